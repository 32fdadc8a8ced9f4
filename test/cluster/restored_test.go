package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"brine/test/eventually"
)

// TestRestoredDiskDecidesApart: a master's disk is restored from a backup. It starts while no other
// master is reachable, decides about more keys and publishes more jobs than the backup lacks. When
// it reconnects, nothing deleted is back, no decision or job is lost, and it reports what happened.
func TestRestoredDiskDecidesApart(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "").start()
	one, two, three := a.masters[0], a.masters[1], a.masters[2]
	var gone, kept []string
	for i := range 10 {
		gone = append(gone, fmt.Sprint("gone", i))
	}
	for i := range 25 {
		kept = append(kept, fmt.Sprint("kept", i))
	}
	a.pend(one, append(gone, kept...)...)
	one.Accept(gone...)
	for _, m := range a.masters {
		isState(t, m, "gone9", "minions")
		isState(t, m, "kept24", "minions_pre")
	}
	one.Kill()
	back := disk(t, one)
	one.Start()
	for _, id := range gone {
		a.deleteKey(one, id)
	}
	for _, m := range a.masters {
		isState(t, m, "gone9", "")
	}
	a.equal(one, 3, map[string]int{"key": len(kept)})
	for _, m := range a.masters {
		m.Kill()
	}
	back()
	if s := state(one, "gone0"); s != "minions" {
		t.Fatalf("this is no backup: gone0 is in %q", s)
	}
	one.Start()
	one.Accept(kept...)
	var jids []string
	for range 12 {
		out, errs, code := one.Run(brine, "salt", "--async", "kept0", "test.ping")
		if code != 0 {
			t.Fatal(out, errs)
		}
		jids = append(jids, jidIn(out))
	}
	two.Start()
	three.Start()
	a.equal(one, 3, map[string]int{"key": len(kept), "job": len(jids)})
	for _, m := range a.masters {
		for _, id := range gone {
			isState(t, m, id, "")
		}
		for _, id := range kept {
			isState(t, m, id, "minions")
		}
		eventually.Nil(t, soon, m.Name+" knows the jobs", func() error {
			out, errs, _ := m.Run(brine, "salt-run", "--out=json", "jobs.list_jobs")
			for _, jid := range jids {
				if !strings.Contains(out, jid) {
					return errors.New(jid + " is not there: " + errs)
				}
			}
			return nil
		})
	}
	if !strings.Contains(one.Log(), "restored from an old copy") {
		t.Error("the restored master does not say that its disk is an older copy")
	}
}
