package ha

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestOnce: with any number of masters, hot or one at a time, there is one schedule, and the
// startup states run once, also when the master changes.
func TestOnce(t *testing.T) {
	for _, kind := range []string{"str", "failover"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			count := func(file string) int {
				b, _ := os.ReadFile(dir + "/" + file)
				return strings.Count(string(b), "x")
			}
			s := hot(t, 3, func(n *daemontest.Node) {
				n.Write("master", n.Read("master")+"file_roots: {base: ["+n.Path("srv/salt")+"]}\n")
				n.Write("srv/salt/once.sls", "run:\n  test.succeed_without_changes: []\n")
			})
			s.minion = daemontest.NewMinion(t, daemontest.Brine, "w1", s.hosts(), "master_type: "+kind+`
startup_states: sls
sls_list: [once]
schedule:
  tick:
    function: cmd.run
    args: ["echo x >> `+dir+`/schedule"]
    seconds: 1
`).Start()
			s.usable(0)
			eventually.Nil(t, within, "the startup states ran", func() error {
				if n, ok := s.startups(); n == 0 || !ok {
					return fmt.Errorf("%d times, well: %v", n, ok)
				}
				return nil
			})
			if kind == "failover" {
				s.standsBy(0, 1)
			}
			const turns = 10
			at := count("schedule")
			s.sites[0].Kill()
			took := eventually.Nil(t, within, "the schedule goes on", func() error {
				if n := count("schedule"); n < at+turns {
					return fmt.Errorf("%d turns", n-at)
				}
				return nil
			})
			s.usable(1)
			// Two masters at once would halve the time. A busy machine may delay a run until the
			// next one, but not several.
			if took < (turns-2)*9*time.Second/10 {
				t.Errorf("%d turns of a second took %v", turns, took)
			}
			if n, _ := s.startups(); n != 1 {
				t.Errorf("the startup states ran %d times", n)
			}
			s.alive()
		})
	}
}

// startups counts the returns of state.sls that the masters have received; ok reports whether all
// were successful.
func (s *setup) startups() (n int, ok bool) {
	ok = true
	for _, x := range s.sites {
		x.heard.mu.Lock()
		for _, e := range x.heard.events {
			if strings.HasSuffix(e.Tag, "/ret/w1") && e.Data.Str("fun") == "state.sls" {
				n++
				ok = ok && e.Data.Int("retcode") == 0
			}
		}
		x.heard.mu.Unlock()
	}
	return n, ok
}

// TestSaltCallAsksTheDaemon: salt-call uses the daemon's master, not the first of the list.
func TestSaltCallAsksTheDaemon(t *testing.T) {
	s := newSetup(t, daemontest.Brine, daemontest.Brine, 2, "master_type: failover")
	s.usable(0)
	s.standsBy(0, 1)
	s.sites[0].front.set(mode{toward: true, back: true}) // detecting this would take as long as a sign-in's timeout
	s.moved(1, 0)
	s.usable(1)
	_, errs, code := s.minion.Run(daemontest.Brine, "salt-call", "event.send", "from/call")
	if code != 0 {
		t.Fatalf("%d %s", code, errs)
	}
	if s.sites[1].heard.count("from/call") != 1 {
		t.Error("the event is not at the master that the daemon uses")
	}
}
