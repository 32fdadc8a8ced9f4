package ha

import (
	"os"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestWrongClock: the clock of the minion, and then of a master, is five minutes ahead. Commands,
// kept jobs and a change of the master work. It runs only if BRINE_CLOCK is set (daemontest.Ahead).
func TestWrongClock(t *testing.T) {
	ahead := daemontest.Ahead(t)
	for name, who := range map[string]int{"minion": -1, "master": 0} {
		t.Run(name, func(t *testing.T) {
			s := &setup{t: t}
			for i, name := range []string{"m1", "m2"} {
				m := daemontest.NewMaster(t, daemontest.Brine, name, daemontest.Host(), "auto_accept: True\n")
				if i == who {
					m.Within = ahead
				} else if i > 0 {
					waitKeys(t, s.sites[0].Node)
				}
				if i > 0 {
					shareKeys(t, s.sites[0].Node, m)
				}
				m.Start()
				s.sites = append(s.sites, &site{Node: m, front: &front{host: m.Host}, heard: listen(t, m)})
			}
			s.minion = daemontest.NewMinion(t, daemontest.Brine, "w1", s.hosts(), "master_type: failover\n")
			if who < 0 {
				s.minion.Within = ahead
			}
			s.minion.Start()
			s.usable(0)
			s.minion.Kill()
			kept := s.minion.Path("kept")
			if out, errs, code := s.sites[0].Run(daemontest.Brine, "salt", "--async", "--expire", "2m", "w1", "file.touch", kept); code != 0 {
				t.Fatal(out, errs)
			}
			s.minion.Start()
			eventually.Nil(t, within, "the kept job has run", func() error {
				_, err := os.Stat(kept)
				return err
			})
			s.standsBy(0, 1)
			s.sites[0].Kill()
			s.moved(1, 0)
			s.usable(1)
			s.alive()
		})
	}
}
