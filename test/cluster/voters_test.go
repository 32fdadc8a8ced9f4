package cluster

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/eventually"
)

// TestVotersUpgrade: two masters and a witness of a version whose voters do not use Raft
// (BRINE_PREVIOUS) are upgraded one after another, in any order. There is at most one holder of the
// lease, with growing tokens, and claimed work does not begin again. Meanwhile the version of each
// voter is reported.
func TestVotersUpgrade(t *testing.T) {
	t.Parallel()
	old := os.Getenv("BRINE_PREVIOUS")
	if old == "" {
		t.Skip("BRINE_PREVIOUS does not name the program of a version whose voters do not use Raft")
	}
	for _, first := range []string{"masters", "witness"} {
		t.Run(first+" first", func(t *testing.T) {
			t.Parallel()
			within := []string{"sh", "-c", `shift; exec "` + old + `" "$@"`, "sh"}
			a, w := withWitness(t, "auto_accept: true\n")
			for _, n := range append([]*node{w}, a.masters...) {
				n.Within = within
			}
			w.Launch()
			a.start()
			_, token := holder(t, "with the old version", 0, a.masters...)
			out, errs, code := a.masters[0].Run(brine, "salt-run", "--cluster", "--async", "test.sleep", "600")
			jid := jidIn(out + errs)
			if code != 0 || jid == "" {
				t.Fatalf("%d %s%s", code, out, errs)
			}
			inState(t, a.masters[0], jid, "running")
			renew := func(n *node) {
				n.Signal(syscall.SIGTERM)
				n.Wait(60 * time.Second)
				n.Within = nil
				n.Launch()
				if n != w {
					n.Await()
				}
			}
			order := append(a.masters[:2:2], w)
			if first == "witness" {
				order = []*node{w, a.masters[0], a.masters[1]}
			}
			for i, n := range order {
				renew(n)
				if i == 0 {
					eventually.Nil(t, soon, "the others say that it has another version", func() error {
						l, err := lease(but(a.masters, n)[0])
						if err == nil && !strings.Contains(l.Voters[n.Host], "version") {
							err = fmt.Errorf("%+v", l)
						}
						return err
					})
				}
				_, now := holder(t, "after "+n.Name+" was upgraded", token-1, a.masters...)
				token = max(now, token)
			}
			eventually.Nil(t, soon, "all vote", func() error {
				by, err := votersAt(a.masters[0])
				for id, r := range by {
					if err == nil && r.Votes != "yes" {
						err = fmt.Errorf("%s: %+v", id, r)
					}
				}
				return err
			})
			eventually.Nil(t, soon, "what was begun is reported, and not begun again", func() error {
				w, err := workAt(a.masters[0], jid)
				if err == nil && w.State != "failed" {
					err = errors.New(w.State)
				}
				return err
			})
		})
	}
}

// TestVoterDisks: of three voting masters, each one that runs no cluster job is killed during such
// a job. Then one gets an old voter file, one loses its file, and one is removed from the cluster
// and readmitted with an empty disk. Each votes again, the lease continues with growing tokens, and
// work that has begun does not begin again. Then two are killed: the last one reports that, and
// when they are back so is the lease.
func TestVoterDisks(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "auto_accept: true\n")
	var ids []string
	for _, m := range a.masters {
		ids = append(ids, m.Name)
	}
	for _, m := range a.masters {
		m.Write("master", m.Read("master")+fmt.Sprintf("cluster_voters: [%s]\n", strings.Join(ids, ", ")))
	}
	a.start()
	one, two, three := a.masters[0], a.masters[1], a.masters[2]
	_, token := holder(t, "at first", 0, a.masters...)
	var done []string
	work := func(at *node) {
		t.Helper()
		eventually.Nil(t, soon, "work is done once", func() error {
			out, errs, code := at.Run(brine, "salt-run", "--cluster", "--async", "test.arg", fmt.Sprint(len(done)))
			jid := jidIn(out + errs)
			if code != 0 || jid == "" {
				return fmt.Errorf("%d %s%s", code, out, errs)
			}
			inState(t, at, jid, "done")
			done = append(done, jid)
			return nil
		})
	}
	file := func(m *node) string { return m.Path("var/cache/salt/master/brine/masters/" + m.Name + "/voter.db") }
	all := func(what string) {
		t.Helper()
		for _, m := range a.masters {
			eventually.Nil(t, soon, m.Name+" knows that all vote "+what, func() error {
				by, err := votersAt(m)
				for _, id := range ids {
					if err == nil && by[id].Votes != "yes" {
						err = fmt.Errorf("%s: %+v", id, by[id])
					}
				}
				return err
			})
		}
		_, now := holder(t, what, token-1, a.masters...)
		token = now
		work(one)
		for _, jid := range done {
			if got := inState(t, one, jid, "done"); got.Runs != 1 {
				t.Errorf("%s: %s has begun %d times", what, jid, got.Runs)
			}
		}
	}
	work(one)
	all("at first")

	// One of the others leads the voters: the master with the lease passes the leadership on.
	for range 2 {
		out, errs, code := one.Run(brine, "salt-run", "--cluster", "--async", "test.sleep", "8")
		jid := jidIn(out + errs)
		if code != 0 || jid == "" {
			t.Fatal(code, out, errs)
		}
		on := inState(t, one, jid, "running").On
		away := but(a.masters, a.named(on))[len(done)%2]
		away.Kill()
		eventually.Nil(t, soon, "it ends, and has begun once", func() error {
			w, err := workAt(a.named(on), jid)
			if err == nil && (w.State != "done" && w.State != "failed" || w.Runs != 1) { // on a slow machine the lease may expire
				err = fmt.Errorf("%+v", w)
			}
			return err
		})
		away.Start()
		all("after " + away.Name + " was killed in the work")
	}

	three.Kill()
	old, err := os.ReadFile(file(three))
	must(t, err)
	three.Start()
	all("after a restart")
	three.Kill()
	must(t, os.WriteFile(file(three), old, 0o600))
	three.Start()
	all("with an old file")
	if !strings.Contains(three.Log(), "becomes a new voter in its own place") {
		t.Error("it does not say that its file is an old one")
	}

	two.Kill()
	must(t, os.Remove(file(two)))
	two.Start()
	all("with a lost file")

	out, errs, code := one.Run(brine, "cluster", "remove", three.Name)
	now := shownSecret(out)
	if code != 0 || now == "" {
		t.Fatal(code, out, errs)
	}
	three.Kill()
	eventually.Nil(t, soon, "it is said that the removed one does not vote", func() error {
		by, err := votersAt(one)
		if err == nil && (by[three.Name].Votes == "yes" || by[two.Name].Votes != "yes") {
			err = fmt.Errorf("%+v", by)
		}
		return err
	})
	holder(t, "without the removed one", token-1, one, two)
	work(one)
	if out, errs, code := one.Run(brine, "cluster", "readmit", three.Name); code != 0 {
		t.Fatal(out, errs)
	}
	eventually.Nil(t, soon, "the other member knows", func() error {
		if _, err := os.Stat(two.Path("cluster/removed/" + three.Name)); err == nil {
			return errors.New("not yet")
		}
		return nil
	})
	for _, dir := range []string{"cluster", "var/cache", "etc/salt/pki"} {
		must(t, os.RemoveAll(three.Path(dir)))
	}
	three.Write("master", strings.Replace(three.Read("master"), "cluster_secret: "+secret, "cluster_secret: "+now, 1))
	three.Start()
	all("after it was readmitted")

	two.Kill()
	three.Kill()
	eventually.Nil(t, soon, "the last one says that there is no majority", func() error {
		by, err := votersAt(one)
		if err == nil && (by[two.Name].Votes == "yes" || by[three.Name].Votes == "yes") {
			err = fmt.Errorf("%+v", by)
		}
		if l, err2 := lease(one); err == nil && (err2 != nil || l.Here || l.Majority) {
			err = fmt.Errorf("%+v %w", l, err2)
		}
		if _, _, code := one.Run(brine, "cluster", "voters"); err == nil && code != 1 {
			err = fmt.Errorf("exit code %d", code)
		}
		return err
	})
	two.Start()
	three.Start()
	all("with all back")
}
