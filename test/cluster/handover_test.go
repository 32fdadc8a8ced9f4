package cluster

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/eventually"
)

// TestApartStopWhileAlone: a master that was alone when it acknowledged a job is stopped while the other one can be reached again, and they are
// not connected yet. The other one has the job before this one ends. A master that is really alone reports that it could not hand over.
func TestApartStopWhileAlone(t *testing.T) {
	t.Parallel()
	a := newApart(t, 2, "auto_accept: true\n").start()
	one, two := a.masters[0], a.masters[1]
	m := a.minion("m0", one)
	eventually.Nil(t, soon, "it answers", func() error { return two.PingAll(brine, "m0") })
	a.equal(one, 2, map[string]int{"key": 1})
	m.Kill()
	alone := func() {
		t.Helper()
		eventually.Nil(t, soon, "the other one is unreachable", func() error {
			if out, errs, _ := one.Run(brine, "cluster", "members", "--out=json"); !strings.Contains(out, `"up": false`) {
				return errors.New(out + errs)
			}
			return nil
		})
	}
	for i := range 3 {
		two.Signal(syscall.SIGSTOP)
		alone()
		out, errs, code := one.Run(brine, "salt", "--async", "m0", "test.echo", fmt.Sprint("alone", i))
		jid := jidIn(out + errs)
		if jid == "" {
			t.Fatalf("%d: %s%s", code, out, errs)
		}
		one.Signal(syscall.SIGTERM)
		time.Sleep(300 * time.Millisecond) // a master that does not wait for the other one has ended
		two.Signal(syscall.SIGCONT)
		one.Wait(soon)
		if out, errs, _ := two.Run(brine, "salt-run", "--out=json", "jobs.list_job", jid); !strings.Contains(out, fmt.Sprint("alone", i)) {
			t.Errorf("the other master does not have the job: %s%s", out, errs)
		}
		one.Start()
		a.equal(one, 2, map[string]int{"job": i + 1})
	}
	two.Kill()
	alone()
	one.Run(brine, "salt", "--async", "m0", "test.echo", "really alone")
	before := strings.Count(one.Log(), "no other master can be reached")
	one.Signal(syscall.SIGTERM)
	one.Wait(soon)
	if strings.Count(one.Log(), "no other master can be reached") != before+1 {
		t.Error("the master does not report that it could not hand over")
	}
}
