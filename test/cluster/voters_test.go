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

// TestVotersUpgrade: two masters and a witness of a version whose voters do not use
// Raft (BRINE_PREVIOUS) get the new one, one after another, in any order. There is one
// holder of the lease at most, with growing tokens, and what was claimed before is not
// begun again. In between it is said which voter has which version.
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
