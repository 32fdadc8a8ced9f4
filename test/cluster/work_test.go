package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

type work struct {
	Fun, By, On, State, Lost string
	Token                    uint64
	Runs                     int
	Return                   any
}

func workAt(m *node, jid string) (w work, err error) {
	out, errs, _ := m.Run(brine, "salt-run", "--out=json", "cluster.work", jid)
	var all map[string]work
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return w, fmt.Errorf("%w: %s%s", err, out, errs)
	}
	return all[jid], nil
}

func inState(t *testing.T, m *node, jid, state string) (w work) {
	t.Helper()
	eventually.Nil(t, soon, fmt.Sprintf("%s says of %s that it is %s", m.Name, jid, state), func() (err error) {
		if w, err = workAt(m, jid); err == nil && w.State != state {
			err = fmt.Errorf("%+v", w)
		}
		return err
	})
	return w
}

// TestWorkOnce: a cluster job runs a runner on the master that holds the lease, wherever it was
// started, and the caller gets the result. When that master is killed or frozen meanwhile, the
// other one reports that within seconds and does not run it again, unless that was allowed. The
// frozen one does not do the work twice, and its result is discarded.
func TestWorkOnce(t *testing.T) {
	t.Parallel()
	a, w := withWitness(t, "auto_accept: true\n")
	w.Launch()
	a.start()
	a.minion("m0", a.masters...)
	for _, m := range a.masters {
		eventually.Nil(t, soon, "it answers to "+m.Name, func() error { return m.PingAll(brine, "m0") })
	}
	dir := daemontest.ShortDir(t)
	count := func(name string) int {
		b, _ := os.ReadFile(filepath.Join(dir, name))
		return strings.Count(string(b), "begun")
	}
	// order makes the minion run a shell command that reports its start.
	order := func(at *node, name, then string, args ...string) (jid string) {
		t.Helper()
		out, errs, code := at.Run(brine, "salt-run", append(append([]string{"--cluster", "--async"}, args...), "salt.execute", "m0", "cmd.run",
			fmt.Sprintf("arg=['echo begun >> %s/%s; %s']", dir, name, then), "kwarg={python_shell: True}")...)
		if jid = jidIn(out + errs); jid == "" || code != 0 {
			t.Fatalf("no order: %d %s%s", code, out, errs)
		}
		return jid
	}
	// until makes a command wait for a file, at most as long as the test runs.
	until := func(name string) string {
		return fmt.Sprintf("for i in $(seq 1 600); do test -e %s/%s.go && break; sleep 0.2; done; echo over", dir, name)
	}
	let := func(name string) {
		t.Helper()
		if err := exec.Command("touch", filepath.Join(dir, name+".go")).Run(); err != nil {
			t.Fatal(err)
		}
	}
	named := func(id string) (m *node) {
		for _, m = range a.masters {
			if m.Name == id {
				return m
			}
		}
		return nil
	}
	// running starts work that continues until it is allowed to end, and returns the master that
	// runs it. If the machine is suspended for seconds the lease moves: then the work is started
	// again under another name.
	running := func(at func() *node, name string, args ...string) (jid, as string, on, other *node, token uint64) {
		t.Helper()
		eventually.Nil(t, soon, "one runs "+name, func() error {
			as = fmt.Sprint(name, time.Now().UnixNano())
			t.Cleanup(func() { let(as) })
			jid = order(at(), as, until(as), args...)
			for range 100 {
				w, err := workAt(at(), jid)
				if err != nil || w.State == "failed" {
					return fmt.Errorf("%+v %w", w, err)
				}
				if w.State == "running" && count(as) == 1 && w.Runs == 1 {
					on, token = named(w.On), w.Token
					other = but(a.masters, on)[0]
					return nil
				}
				time.Sleep(50 * time.Millisecond)
			}
			return errors.New("it does not run")
		})
		return jid, as, on, other, token
	}

	holder(t, "at first", 0, a.masters...)
	for _, m := range a.masters { // started on each master
		eventually.Nil(t, soon, "what is ordered at "+m.Name+" is done", func() error {
			out, errs, code := m.Run(brine, "salt-run", "--cluster", "--out=json", "salt.cmd", "test.echo", "hello")
			if code != 0 || !strings.Contains(out, "hello") {
				return fmt.Errorf("%d %s%s", code, out, errs)
			}
			return nil
		})
	}

	// The master is killed.
	jid, killed, first, second, token := running(func() *node { return a.masters[0] }, "killed")
	events := second.Events()
	first.Kill()
	from := time.Now()
	got := inState(t, second, jid, "failed")
	t.Logf("reported %v after the kill", time.Since(from).Round(time.Millisecond))
	if got.Lost != first.Name || got.On != second.Name || got.Token <= token || !strings.Contains(fmt.Sprint(got.Return), "is not run again") {
		t.Errorf("%+v", got)
	}
	eventually.Nil(t, soon, "the bus hears of it", func() error {
		if all := events(); !strings.Contains(all, "salt/cluster/work/"+jid) || got.By == second.Name && !strings.Contains(all, "salt/run/"+jid+"/ret") {
			return errors.New(all)
		}
		return nil
	})
	eventually.Nil(t, soon, "the job cache has it", func() error {
		out, _, _ := second.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
		if !strings.Contains(out, "is not run again") {
			return errors.New(out)
		}
		return nil
	})
	first.Start()
	inState(t, first, jid, "failed")

	// The master is frozen, and resumes when the other has taken over.
	once, frozen, third, other, token := running(func() *node { return second }, "frozen")
	twice, again, same, _, _ := running(func() *node { return other }, "again", "--repeatable")
	third.Signal(syscall.SIGSTOP)
	from = time.Now()
	got = inState(t, other, once, "failed")
	t.Logf("reported %v after the freeze", time.Since(from).Round(time.Millisecond))
	if got.Lost != third.Name || got.Token <= token {
		t.Errorf("%+v", got)
	}
	least := 1
	if same == third {
		least = 2
	}
	eventually.Nil(t, soon, "the other runs again what it may", func() error {
		if n := count(again); n < least {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	t.Logf("run again %v after the freeze", time.Since(from).Round(time.Millisecond))
	let(frozen) // the work begun by the frozen master ends
	third.Signal(syscall.SIGCONT)
	let(again)
	for _, m := range a.masters {
		if got := inState(t, m, twice, "done"); got.Runs < least || got.Runs != count(again) || !strings.Contains(fmt.Sprint(got.Return), "over") {
			t.Errorf("at %s: %+v, and it was begun %d times", m.Name, got, count(again))
		}
		if got := inState(t, m, once, "failed"); got.Lost != third.Name {
			t.Errorf("at %s: %+v", m.Name, got)
		}
	}
	if a, b := count(killed), count(frozen); a != 1 || b != 1 {
		t.Errorf("begun %d and %d times", a, b)
	}
	a.equal(other, 2, nil)

	// Without a majority the work waits, and runs once there is one.
	w.Kill()
	third.Kill()
	jid = order(other, "waits", "echo over")
	time.Sleep(2 * lookAgain) // it would have begun by then
	if got := inState(t, other, jid, "ordered"); got.Runs != 0 || count("waits") != 0 {
		t.Errorf("%+v", got)
	}
	w.Launch()
	inState(t, other, jid, "done")
	if n := count("waits"); n != 1 {
		t.Errorf("it has begun %d times", n)
	}
}

// lookAgain is longer than a holder's interval of looking for work, and than the time until it
// loses the lease.
const lookAgain = 5 * time.Second

// TestWorkNeedsVoters: without voters cluster jobs are refused.
func TestWorkNeedsVoters(t *testing.T) {
	t.Parallel()
	a := newApart(t, 2, "").start()
	if out, errs, code := a.masters[0].Run(brine, "salt-run", "--cluster", "test.arg"); !strings.Contains(out+errs, "cluster_voters") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	single := daemontest.NewMaster(t, brine, "single", daemontest.Host(), "").Start()
	if out, errs, code := single.Run(brine, "salt-run", "--cluster", "test.arg"); !strings.Contains(out+errs, "cluster_voters") {
		t.Errorf("%d %s%s", code, out, errs)
	}
}
