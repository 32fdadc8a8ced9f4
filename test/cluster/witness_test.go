package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

type voterRow struct {
	Voter, Is, Votes, Grants string
	TLS                      bool
	Secret                   *bool
}

// votersAt queries a master for the state of the voters.
func votersAt(m *node) (map[string]voterRow, error) {
	out, errs, code := m.Run(brine, "cluster", "voters", "--out=json")
	var rows []voterRow
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		return nil, fmt.Errorf("%w: %s%s", err, out, errs)
	}
	by := map[string]voterRow{}
	all := true
	for _, r := range rows {
		by[r.Voter] = r
		all = all && r.Votes == "yes"
	}
	if all != (code == 0) {
		return nil, fmt.Errorf("exit code %d: %s", code, out)
	}
	return by, nil
}

// witnessIs waits until all masters report that a witness votes, with or without TLS, and whether
// it has the current secret.
func witnessIs(t *testing.T, what string, w *node, byTLS, secret bool, masters ...*node) {
	t.Helper()
	for _, m := range masters {
		eventually.Nil(t, soon, what+" in the eyes of "+m.Name, func() error {
			by, err := votersAt(m)
			r := by[w.Host]
			if err == nil && (len(by) != 3 || r.Is != "witness" || r.Votes != "yes" || r.TLS != byTLS || r.Secret == nil || *r.Secret != secret) {
				err = fmt.Errorf("%+v", by)
			}
			return err
		})
	}
}

func rotated(t *testing.T, m *node) (have, late []string) {
	t.Helper()
	out, errs, code := m.Run(brine, "cluster", "rotate-secret", "--out=json")
	var d struct{ Have, Late []string }
	if err := json.Unmarshal([]byte(out), &d); err != nil || code != 0 {
		t.Fatalf("%v, exit code %d: %s%s", err, code, out, errs)
	}
	return d.Have, d.Late
}

// TestWitnessLearns: a witness uses TLS with the masters, and gets a new secret at once, or when it
// is reachable, without a change of its configuration. A master that joins afterwards can query it.
// Silent unauthenticated peers block no others, and a removed master is refused.
func TestWitnessLearns(t *testing.T) {
	t.Parallel()
	a, w := withWitness(t, "auto_accept: true\n")
	w.Launch()
	a.start()
	_, token := holder(t, "at first", 0, a.masters...)
	witnessIs(t, "it has the secret", w, true, true, a.masters...)
	have, late := rotated(t, a.masters[0])
	if !slices.Contains(have, w.Host) || len(late) > 0 {
		t.Errorf("have the new secret: %v, and will: %v", have, late)
	}
	witnessIs(t, "it has the second secret", w, true, true, a.masters...)

	w.Kill()
	have, late = rotated(t, a.masters[1])
	if len(have) != 2 || !slices.Equal(late, []string{w.Host}) {
		t.Errorf("while the witness is unreachable have the new secret: %v, and will: %v", have, late)
	}
	eventually.Nil(t, soon, "it is said that it is unreachable", func() error {
		by, err := votersAt(a.masters[0])
		if err == nil && !strings.HasPrefix(by[w.Host].Votes, "no: ") {
			err = fmt.Errorf("%+v", by)
		}
		return err
	})
	if out, _, code := a.masters[0].Run(brine, "cluster", "status"); code == 0 || !strings.Contains(out, w.Host) {
		t.Errorf("exit code %d, and status does not name the witness: %s", code, out)
	}
	w.Launch()
	witnessIs(t, "it has the third secret", w, true, true, a.masters...)

	late3 := a.add(daemontest.Host(), a.masters[0].Host)
	now := strings.TrimSpace(a.masters[0].Read("cluster/.secret"))
	var voters string
	for l := range strings.Lines(a.masters[0].Read("master")) {
		if strings.HasPrefix(l, "cluster_voters: ") {
			voters = l
		}
	}
	late3.Write("master", strings.ReplaceAll(late3.Read("master"), secret, now)+voters)
	late3.Start()
	witnessIs(t, "it takes a master that has joined", w, true, true, late3)

	var silent []net.Conn
	defer func() {
		for _, c := range silent {
			c.Close()
		}
	}()
	for range 200 {
		if c, err := net.Dial("tcp", net.JoinHostPort(w.Host, fmt.Sprint(poolPort))); err == nil {
			silent = append(silent, c)
		}
	}
	first, _ := holder(t, "while unauthenticated peers connect", token-1, a.masters...)
	first.Kill()
	rest := but(a.masters, first)
	if first == late3 { // both others vote
		rest = a.masters[:2]
	}
	holder(t, "after a kill, while unauthenticated peers connect", token, rest...)
	for _, c := range silent {
		c.SetDeadline(time.Now().Add(60 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a silent connection stays: %v", err)
		}
	}
	if first == late3 {
		return
	}
	if _, errs, code := rest[0].Run(brine, "cluster", "remove", first.Name); code != 0 {
		t.Fatal(errs)
	}
	eventually.Nil(t, soon, "the witness knows that it was removed", func() error {
		if s := w.Read("state/known.json"); strings.Contains(s, fmt.Sprintf("%q:", first.Name)) || !strings.Contains(s, late3.Name) {
			return errors.New(s)
		}
		return nil
	})
}

// TestWitnessUpgrade: masters and a witness of a version without TLS (BRINE_OLD) are upgraded.
// Meanwhile the witness votes, whichever end is older, and the log says what to do. A witness that
// uses TLS no longer accepts the old program.
func TestWitnessUpgrade(t *testing.T) {
	t.Parallel()
	old := os.Getenv("BRINE_OLD")
	if old == "" {
		t.Skip("BRINE_OLD does not name the program of a version without TLS between masters")
	}
	for _, first := range []string{"masters", "witness"} {
		t.Run(first+" first", func(t *testing.T) {
			t.Parallel()
			within := []string{"sh", "-c", `shift; exec "` + old + `" "$@"`, "sh"}
			a, w := withWitness(t, "auto_accept: true\n")
			all := append([]*node{w}, a.masters...)
			for _, n := range all {
				n.Within = within
			}
			w.Launch()
			a.start()
			_, token := holder(t, "without TLS", 0, a.masters...)
			renew := func(n *node) {
				n.Signal(syscall.SIGTERM)
				n.Wait(60 * time.Second)
				n.Within = nil
				n.Launch()
				if n != w {
					n.Await()
				}
			}
			if first == "witness" {
				renew(w)
				w.Logged("a master does not use TLS")
				votes(t, w, a.masters...)
			}
			for _, m := range a.masters {
				renew(m)
				votes(t, w, m)
			}
			if first == "masters" {
				witnessIs(t, "it votes without TLS", w, false, false, a.masters...)
				a.masters[0].Logged("a witness does not support TLS")
				if _, late := rotated(t, a.masters[0]); !slices.Equal(late, []string{w.Host}) {
					t.Errorf("%v will have the secret", late)
				}
				// The secret is changed manually, as in older versions.
				w.Write("witness", strings.Replace(w.Read("witness"), secret, strings.TrimSpace(a.masters[0].Read("cluster/.secret")), 1))
				renew(w)
			}
			witnessIs(t, "it speaks TLS", w, true, true, a.masters...)
			holder(t, "by TLS", token, a.masters...)

			eventually.Nil(t, soon, "it is told that all speak TLS", func() error {
				if s := w.Read("state/known.json"); !strings.Contains(s, `"tls": true`) {
					return errors.New(s)
				}
				return nil
			})
			w.Signal(syscall.SIGTERM)
			w.Wait(60 * time.Second)
			w.Within = within
			w.Launch()
			eventually.Nil(t, soon, "the old witness is refused", func() error {
				by, err := votersAt(a.masters[0])
				if err == nil && !strings.Contains(by[w.Host].Votes, "TLS with the witness") {
					err = fmt.Errorf("%+v", by)
				}
				return err
			})
		})
	}
}

// votes waits until masters of any version report that a witness votes, or that its version does
// not vote with theirs.
func votes(t *testing.T, w *node, masters ...*node) {
	t.Helper()
	for _, m := range masters {
		eventually.Nil(t, soon, "the witness votes in the eyes of "+m.Name, func() error {
			l, err := lease(m)
			if said := l.Voters[w.Host]; err == nil && !strings.HasPrefix(said, "grants it to") && !strings.Contains(said, "version") {
				err = fmt.Errorf("%+v", l)
			}
			return err
		})
	}
}
