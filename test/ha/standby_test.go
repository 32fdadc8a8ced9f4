package ha

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

var jidLine = regexp.MustCompile(`(?m)^jid: (\d{20})$`)

// commands runs a command at site i. It expects the command to run once, and the job and its result
// to be known at that master and at the active one.
func (s *setup) commands(i, active int) {
	s.t.Helper()
	s.usable(i) // it may have to subscribe
	ledger := s.minion.Path("ledger")
	if err := os.RemoveAll(ledger); err != nil {
		s.t.Fatal(err)
	}
	script := "echo x >> " + ledger + "; echo done"
	out, errs, code := s.sites[i].Run(daemontest.Brine, "salt", "--show-jid", "-t", "60", "w1", "cmd.run", script)
	jid := jidLine.FindStringSubmatch(out)
	if code != 0 || jid == nil || !strings.Contains(out, "done") || strings.Contains(out+errs, "ommanded") {
		s.t.Fatalf("a command at %s: %d %q %q", s.sites[i].Name, code, out, errs)
	}
	for _, x := range []*site{s.sites[i], s.sites[active]} {
		eventually.Nil(s.t, within, "job and result at "+x.Name, func() error {
			var result map[string]string
			out, errs, _ := x.Run(daemontest.Brine, "salt-run", "jobs.lookup_jid", jid[1], "--out=json")
			if json.Unmarshal([]byte(out), &result) != nil || result["w1"] != "done" {
				return fmt.Errorf("result %q %q", out, errs)
			}
			var job struct {
				Function, Target, User string
				Arguments, Minions     []string
			}
			out, errs, _ = x.Run(daemontest.Brine, "salt-run", "jobs.list_job", jid[1], "--out=json")
			if err := json.Unmarshal([]byte(out), &job); err != nil {
				return fmt.Errorf("%w: %q %q", err, out, errs)
			}
			if job.Function != "cmd.run" || job.Target != "w1" || job.User != "root" || fmt.Sprint(job.Arguments) != "["+script+"]" ||
				fmt.Sprint(job.Minions) != "[w1]" {
				return fmt.Errorf("job %+v", job)
			}
			if n := x.heard.count("salt/job/" + jid[1] + "/ret/w1"); n != 1 {
				return fmt.Errorf("%d events", n)
			}
			return nil
		})
	}
	if b, _ := os.ReadFile(ledger); string(b) != "x\n" {
		s.t.Errorf("a command at %s ran as %q", s.sites[i].Name, b)
	}
}

// TestAnyMasterCommands: with failover a command runs at once regardless of the master that gets
// it, and its job and result are known there and at the active master. The same holds after the
// active one has failed and is back.
func TestAnyMasterCommands(t *testing.T) {
	for _, tr := range []string{"zeromq", "tcp", "ws"} {
		t.Run(tr, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, daemontest.Brine, daemontest.Brine, 3, "master_type: failover\ntransport: "+tr)
			s.usable(0)
			for _, i := range []int{1, 2, 0} {
				s.commands(i, 0)
			}
			_, before := s.sites[1].heard.last(changedTag)
			s.sites[0].Kill()
			s.moved(1, before)
			s.commands(2, 1)
			s.sites[0].Start()
			s.sites[0].heard = listen(t, s.sites[0].Node)
			s.commands(0, 1)
			eventually.Nil(t, within, "all others stand by", func() error {
				if d, err := s.masters(1); err != nil || len(d.Active) != 1 || len(d.Standby) != 2 {
					return fmt.Errorf("manage.masters: %+v, %w", d, err)
				}
				return nil
			})
			s.alive()
		})
	}
}

// TestCommandsOfStandbyRefused: if standby_jobs is off at either end, a command at a standby master
// ends at once.
func TestCommandsOfStandbyRefused(t *testing.T) {
	s := newSetup(t, daemontest.Brine, daemontest.Brine, 2, "master_type: failover")
	s.usable(0)
	s.commands(1, 0)
	m := s.sites[1]
	m.Write("master", m.Read("master")+"standby_jobs: False\n")
	m.Kill()
	m.Start()
	s.standsBy(0, 1)
	eventually.Nil(t, within, "the command is refused", func() error {
		out, errs, _ := m.Run(daemontest.Brine, "salt", "-t", "1", "w1", "test.ping")
		if !strings.Contains(out, "Commanded by "+s.sites[0].front.host) {
			return errors.New(out + errs)
		}
		return nil
	})
}
