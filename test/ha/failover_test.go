package ha

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// standsBy waits until the master at has received from w1 that it uses site i and keeps this master
// as a standby.
func (s *setup) standsBy(at, i int) {
	s.t.Helper()
	eventually.Nil(s.t, within, "w1 stands by at "+s.sites[i].Name, func() error {
		d, err := s.masters(at)
		if err != nil {
			return err
		}
		if d.Standby[s.sites[i].front.host] == nil {
			return fmt.Errorf("%+v", d)
		}
		return nil
	})
}

// holders is the result of manage.masters for a minion.
type holders struct {
	Here            bool
	Mode            string
	Active, Standby map[string]any
	Changed         map[string]any
}

func (s *setup) masters(at int) (holders, error) {
	s.t.Helper()
	out, errs, _ := s.sites[at].Run(daemontest.Brine, "salt-run", "manage.masters", "--out=json")
	var d map[string]holders
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		return holders{}, fmt.Errorf("%w: %q %q", err, out, errs)
	}
	return d["w1"], nil
}

// fault is a fault of a master, and its repair.
type fault struct {
	name string
	do   func(*site)
	undo func(*site)
	// silent means that nothing closes a connection.
	silent bool
}

func faults(t *testing.T) []fault {
	start := func(x *site) { x.Start(); x.heard = listen(t, x.Node) }
	pass := func(x *site) { x.front.set(mode{}) }
	return []fault{
		{name: "killed", do: func(x *site) { x.Kill() }, undo: start},
		{name: "frozen", do: func(x *site) { group(t, x.Node, syscall.SIGSTOP) }, undo: func(x *site) { group(t, x.Node, syscall.SIGCONT) }, silent: true},
		{name: "terminated", do: func(x *site) { x.Signal(syscall.SIGTERM); x.Wait(within) }, undo: start},
		{name: "cut off", do: func(x *site) { x.front.set(mode{toward: true, back: true}) }, undo: pass, silent: true},
		{name: "deaf", do: func(x *site) { x.front.set(mode{toward: true}) }, undo: pass, silent: true},
		{name: "mute", do: func(x *site) { x.front.set(mode{back: true}) }, undo: pass, silent: true},
		{name: "connections refused", do: func(x *site) { x.front.set(mode{cut: true}) }, undo: pass},
	}
}

// TestStandbyNamesTheMaster: a command on a standby master whose jobs the minion does not run names
// at once the master that the minion uses.
func TestStandbyNamesTheMaster(t *testing.T) {
	s := newSetup(t, daemontest.Brine, daemontest.Brine, 2, "master_type: failover\nstandby_jobs: False")
	s.usable(0)
	s.standsBy(1, 1)
	host := s.sites[0].front.host
	out, errs, code := s.sites[1].Run(daemontest.Brine, "salt", "-t", "300", "w1", "test.ping") // longer than the test waits
	if want := "w1 is commanded by the master " + host + ": run the command there"; code != 1 || !strings.Contains(errs, want) {
		t.Errorf("code %d, stderr %q, want %q", code, errs, want)
	}
	if want := "Minion did not return. [Commanded by " + host + "]"; !strings.Contains(out, want) {
		t.Errorf("stdout %q, want %q", out, want)
	}
	if out, errs, code := s.sites[0].Run(daemontest.Brine, "salt", "w1", "test.ping"); code != 0 || strings.Contains(out+errs, "ommanded") {
		t.Errorf("the active one: %d %s %s", code, out, errs)
	}
}

// TestFailover causes each fault in turn at the active one of three masters. The minion soon uses
// the next one, its process never ends, both masters get events about it, and the schedule
// continues.
func TestFailover(t *testing.T) {
	for _, tr := range []string{"zeromq", "tcp", "ws"} {
		t.Run(tr, func(t *testing.T) {
			t.Parallel()
			testFailover(t, daemontest.Brine, "transport: "+tr)
		})
	}
}

func testFailover(t *testing.T, masters daemontest.Kind, more string) {
	s := newSetup(t, masters, daemontest.Brine, 3, "master_type: failover\n"+more)
	s.usable(0)
	at := 0
	for _, f := range faults(t) {
		next := (at + 1) % len(s.sites)
		if masters == daemontest.Brine {
			s.standsBy(at, next)
		} else {
			s.minion.Logged("signed in to a standby master master=" + s.sites[next].front.host)
		}
		_, before := s.sites[next].heard.last(changedTag)
		starts := s.sites[next].heard.count(startTag)
		f.do(s.sites[at])
		data, took := s.moved(next, before)
		ping := s.usable(next)
		t.Logf("%s: on the next master after %.2f s, answering commands %.2f s later; reason %q",
			f.name, took.Seconds(), ping.Seconds(), data.Str("reason"))
		s.alive()
		if from := data.Str("from"); from != s.sites[at].front.host {
			t.Errorf("%s: the event says that it was %s", f.name, from)
		}
		eventually.Nil(t, within, "the start event", func() error {
			if s.sites[next].heard.count(startTag) != starts+1 {
				return errors.New("none, or too many")
			}
			return nil
		})
		if masters == daemontest.Brine {
			d, err := s.masters(next)
			if err != nil || !d.Here || d.Active[s.sites[next].front.host] == nil || len(d.Active) != 1 {
				t.Errorf("%s: manage.masters tells %+v, %v", f.name, d, err)
			}
		}
		f.undo(s.sites[at])
		at = next
	}
	// Only the active master commands it, and standby masters whose jobs it runs.
	for i, x := range s.sites {
		if masters == daemontest.Brine {
			s.usable(i)
			continue
		}
		rets, _ := x.SaltJSON(x.Kind, "w1", "test.ping")
		if got := rets["w1"] == true; got != (i == at) {
			t.Errorf("%s commands w1: %v", x.Name, got)
		}
	}
}

// TestAllMastersAway stops all masters: the minion's process continues, and can soon be used by the
// first one that is back, with a new AES key.
func TestAllMastersAway(t *testing.T) {
	for _, kind := range []string{"failover", "str"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, daemontest.Brine, daemontest.Brine, 2, "master_type: "+kind)
			s.usable(0)
			for _, x := range s.sites {
				x.Kill()
			}
			time.Sleep(4 * time.Second) // a while
			s.alive()
			s.sites[1].Start()
			t.Logf("answered %.2f s after a master was back", s.usable(1).Seconds())
			s.alive()
		})
	}
}

// TestStartAfterOutage stops both masters and restarts the one that the minion used. The minion
// fires its start event there again, like stock minions, unless all masters are used at once.
func TestStartAfterOutage(t *testing.T) {
	for _, kind := range []string{"failover", "str"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, daemontest.Brine, daemontest.Brine, 2, "master_type: "+kind)
			s.usable(0)
			first := s.sites[0]
			s.sites[1].Kill()
			first.front.set(mode{cut: true})
			first.Kill()
			time.Sleep(2 * time.Second) // for several attempts
			first.Start()
			first.heard = listen(t, first.Node)
			first.front.set(mode{})
			s.usable(0)
			want := map[string]int{"failover": 1, "str": 0}[kind]
			eventually.Nil(t, within, "the start event", func() error {
				if n := first.heard.count(startTag); n != want {
					return fmt.Errorf("%d start events, want %d", n, want)
				}
				return nil
			})
		})
	}
}

// TestFailback: the minion returns to the first master once that has been healthy for a while,
// without losing a command, and not while a job runs.
func TestFailback(t *testing.T) {
	s := newSetup(t, daemontest.Brine, daemontest.Brine, 2, "master_type: failover\nmaster_failback: True\nmaster_failback_interval: 3\n")
	s.usable(0)
	s.standsBy(0, 1)
	s.sites[0].Kill()
	s.moved(1, 0)
	s.usable(1)
	// A running job keeps the minion at the master that requested it. The report of the change and
	// the return arrive at different masters, so their order means nothing, but the duration of the
	// job does.
	const lasts = 8 * time.Second
	began := time.Now()
	out, errs, code := s.sites[1].Run(daemontest.Brine, "salt", "--async", "w1", "cmd.run", fmt.Sprintf("sleep %g; echo done", lasts.Seconds()))
	if code != 0 {
		t.Fatal(out, errs)
	}
	s.sites[0].Start()
	s.sites[0].heard = listen(t, s.sites[0].Node)
	data, _ := s.moved(0, 0)
	t.Logf("back %.1f s after the job was given: %s", time.Since(began).Seconds(), data.Str("reason"))
	if data.Str("reason") != "failback" {
		t.Errorf("the reason is %q", data.Str("reason"))
	}
	if took := time.Since(began); took < lasts {
		t.Errorf("the minion left its job's master after %.1f s, and the job takes %s", took.Seconds(), lasts)
	}
	ret := "salt/job/" + jidOf(out) + "/ret/w1"
	eventually.Nil(t, 90*time.Second, "the job's master has its return", func() error {
		if s.sites[1].heard.count(ret) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	s.usable(0)
	if n := s.sites[1].heard.count(ret); n != 1 {
		t.Errorf("the job has returned %d times", n)
	}
	s.alive()
}

// jidOf finds the job id in the output of salt --async.
func jidOf(text string) string {
	for _, w := range strings.Fields(text) {
		if len(w) == 20 && strings.Trim(w, "0123456789") == "" {
			return w
		}
	}
	return ""
}
