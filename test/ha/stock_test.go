package ha

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestFailoverAmongStockMasters: a Brine minion moves between stock masters, which know nothing of
// standby connections and are not disturbed by them.
func TestFailoverAmongStockMasters(t *testing.T) {
	daemontest.StockTree(t)
	for _, tr := range []string{"zeromq", "tcp", "ws"} {
		t.Run(tr, func(t *testing.T) {
			s := newSetup(t, daemontest.Stock, daemontest.Brine, 2, "master_type: failover\ntransport: "+tr)
			s.usable(0)
			s.minion.Logged("signed in to a standby master master=" + s.sites[1].front.host)
			time.Sleep(12 * time.Second) // several keep-alives on the standby connection
			// Check before the faults: after those stock masters log errors of their own.
			for _, x := range s.sites {
				for _, line := range strings.Split(x.Log(), "\n") {
					if strings.Contains(line, "[ERROR") || strings.Contains(line, "Traceback") {
						t.Errorf("%s logged %s", x.Name, line)
					}
				}
			}
			for _, f := range []struct {
				name string
				from int
				do   func(*site)
			}{
				{"frozen", 0, func(x *site) { group(t, x.Node, syscall.SIGSTOP) }},
				{"killed", 1, func(x *site) { x.Kill() }},
			} {
				if f.from == 1 {
					group(t, s.sites[0].Node, syscall.SIGCONT)
					time.Sleep(3 * time.Second) // it wakes up
				}
				next := 1 - f.from
				_, before := s.sites[next].heard.last(changedTag)
				f.do(s.sites[f.from])
				data, took := s.moved(next, before)
				t.Logf("%s: on the next master after %.2f s, answering commands %.2f s later; reason %q",
					f.name, took.Seconds(), s.usable(next).Seconds(), data.Str("reason"))
				s.alive()
			}
		})
	}
}

// TestStockMinionUnderBrineMasters freezes one of two hot masters of a stock minion: the other one
// can still use it, and it reconnects to the first.
func TestStockMinionUnderBrineMasters(t *testing.T) {
	daemontest.StockTree(t)
	s := newSetup(t, daemontest.Brine, daemontest.Stock, 2, "")
	s.usable(0)
	s.usable(1)
	group(t, s.sites[0].Node, syscall.SIGSTOP)
	for range 3 {
		if err := s.sites[1].PingAll(daemontest.Brine, "w1"); err != nil {
			t.Errorf("a ping through the living master was lost: %v", err)
		}
	}
	time.Sleep(8 * time.Second) // longer than the time to live of the master's PING
	group(t, s.sites[0].Node, syscall.SIGCONT)
	t.Logf("answered %.1f s after the master woke up", s.usable(0).Seconds())
	d, err := s.masters(0)
	if err != nil || d.Mode != "unknown" || !d.Here {
		t.Errorf("manage.masters tells %+v, %v", d, err)
	}
	s.alive()
}

// TestJobKeptForAStockMinion publishes a job while a stock minion is unreachable. The minion runs
// it when it is back, and not again after a restart. A job that it has received is not sent again
// after a restart either.
func TestJobKeptForAStockMinion(t *testing.T) {
	daemontest.StockTree(t)
	s := newSetup(t, daemontest.Brine, daemontest.Stock, 1, "")
	s.usable(0)
	m, ran := s.sites[0], s.minion.Path("ran")
	command := func(what string) {
		t.Helper()
		if out, errs, code := m.Run(daemontest.Brine, "salt", "--async", "--expire", "1h", "w1", "cmd.run", fmt.Sprintf(what, ran)); code != 0 {
			t.Fatal(out, errs)
		}
	}
	stop := func() {
		t.Helper()
		s.minion.Signal(syscall.SIGTERM) // otherwise its next process would conclude that it is already running
		s.minion.Wait(within)
		s.minion.Kill() // what it has left
	}
	lines := func() string {
		b, _ := os.ReadFile(ran)
		return string(b)
	}
	command("echo had >>%s")
	eventually.Nil(t, within, "the first job runs", func() error {
		if lines() != "had\n" {
			return errors.New("not yet")
		}
		return nil
	})
	stop()
	command("echo kept >>%s")
	for range 2 {
		s.minion.Start()
		eventually.Nil(t, within, "the kept job has run", func() error {
			if lines() != "had\nkept\n" {
				return errors.New(lines())
			}
			return nil
		})
		s.usable(0)
		stop()
	}
	if got := lines(); got != "had\nkept\n" {
		t.Errorf("%q has run", got)
	}
}

// TestJobKeptForAStockMinionCutOff: a stock minion separated from its master only by the network
// gets the jobs published meanwhile, once. Over tcp such a minion does not reconnect by itself.
func TestJobKeptForAStockMinionCutOff(t *testing.T) {
	daemontest.StockTree(t)
	s := newSetup(t, daemontest.Brine, daemontest.Stock, 1, "")
	s.usable(0)
	m, ran := s.sites[0], s.minion.Path("ran")
	alive := func(want bool) {
		t.Helper()
		eventually.Nil(t, within, fmt.Sprintf("w1 is connected: %v", want), func() error {
			out, errs, _ := m.Run(daemontest.Brine, "salt-run", "manage.alived", "--out=json")
			if strings.Contains(out, "w1") != want {
				return fmt.Errorf("%s %s", out, errs)
			}
			return nil
		})
	}
	alive(true)
	want := ""
	for round := 1; round <= 2; round++ {
		m.front.set(mode{cut: true})
		alive(false)
		if out, errs, code := m.Run(daemontest.Brine, "salt", "--async", "--expire", "1h", "w1", "cmd.run", fmt.Sprintf("echo kept%d >>%s", round, ran)); code != 0 {
			t.Fatal(out, errs)
		}
		m.front.set(mode{})
		want += fmt.Sprintf("kept%d\n", round)
		eventually.Nil(t, within, "the kept job has run", func() error {
			if b, _ := os.ReadFile(ran); string(b) != want {
				return fmt.Errorf("%q", b)
			}
			return nil
		})
		s.usable(0)
	}
	if b, _ := os.ReadFile(ran); string(b) != want {
		t.Errorf("%q has run", b)
	}
}
