package ha

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// normalTime is how long TestNormalHour lasts, unless BRINE_NORMAL is set. Periodic work of an hour
// is configured to happen every few seconds.
const normalTime = 15 * time.Second

// TestNormalHour: three hot masters and four minions do everyday work. None of them logs at level
// error, and no command is lost.
func TestNormalHour(t *testing.T) {
	t.Parallel()
	last := normalTime
	if text := os.Getenv("BRINE_NORMAL"); text != "" {
		var err error
		if last, err = time.ParseDuration(text); err != nil {
			t.Fatalf("BRINE_NORMAL: %v", err)
		}
	}
	s := &setup{t: t}
	more := "auto_accept: True\npresence_events: True\npublish_session: 5\nfileserver_interval: 2\n" +
		"file_roots: {base: [srv/salt]}\npillar_roots: {base: [srv/pillar]}\n"
	for i := range 3 {
		m := daemontest.NewMaster(t, daemontest.Brine, fmt.Sprintf("m%d", i+1), daemontest.Host(), more)
		m.Level = "info"
		m.Write("srv/salt/motd.sls", "motd:\n  file.managed:\n    - name: {{ grains.motd }}\n    - contents_pillar: motd\n")
		m.Write("srv/pillar/top.sls", "base: {'*': [motd]}\n")
		m.Write("srv/pillar/motd.sls", "motd: hello\n")
		for _, roots := range []string{"salt", "pillar"} { // absolute, as they must be
			m.Write("master", strings.Replace(m.Read("master"), "[srv/"+roots+"]", "["+m.Path("srv/"+roots)+"]", 1))
		}
		if i > 0 {
			shareKeys(t, s.sites[0].Node, m)
		}
		m.Start()
		waitKeys(t, m)
		s.sites = append(s.sites, &site{Node: m, front: &front{host: m.Host}})
	}
	ids := []string{"w1", "w2", "w3"}
	var minions []*daemontest.Node
	for i, id := range append(ids, "leaving") {
		w := daemontest.NewMinion(t, daemontest.Brine, id, s.hosts(), "schedule: {often: {function: test.ping, seconds: 2}}\n"+
			"mine_functions: {test.ping: []}\nmine_interval: 1\nping_interval: 1\ngrains_refresh_every: 1\n")
		w.Write("minion", w.Read("minion")+"grains: {motd: "+w.Path("motd")+"}\n")
		if i == 2 {
			w.Write("minion", w.Read("minion")+"master_type: failover\n")
		}
		w.Level = "info"
		minions = append(minions, w.Start())
	}
	answered := func(x *site, n int, args ...string) error {
		rets, err := x.SaltJSON(daemontest.Brine, args...)
		good := 0
		for _, id := range ids {
			if _, ok := rets[id]; ok {
				good++
			}
		}
		if err == nil && good < n {
			err = fmt.Errorf("salt %s: %d of %d answered: %v", strings.Join(args, " "), good, n, rets)
		}
		return err
	}
	// The third minion answers only one master, and is commanded there.
	for i, x := range s.sites {
		eventually.Nil(t, within, "the minions answer "+x.Name, func() error {
			if i == 0 {
				return answered(x, 3, "-L", "w1,w2,w3", "test.ping")
			}
			return answered(x, 2, "-L", "w1,w2", "test.ping")
		})
	}
	leaving := minions[3]
	for _, x := range s.sites {
		eventually.Nil(t, within, "leaving answers "+x.Name, func() error {
			rets, err := x.SaltJSON(daemontest.Brine, "leaving", "test.ping")
			if err == nil && rets["leaving"] != true {
				err = fmt.Errorf("%v", rets)
			}
			return err
		})
	}
	leaving.Signal(15)
	leaving.Wait(within)
	commands := 0
	for begin := time.Now(); time.Since(begin) < last; {
		for i, x := range s.sites {
			for _, args := range [][]string{{"test.ping"}, {"cmd.run", "echo x"}, {"state.apply", "motd"}, {"mine.get", "*", "test.ping"}, {"pillar.items"}} {
				if err := answered(x, 2, append([]string{"-L", "w1,w2"}, args...)...); err != nil {
					t.Error(err)
				}
				commands++
			}
			if i == 0 {
				if err := answered(x, 1, "w3", "test.ping"); err != nil {
					t.Error(err)
				}
			}
			for _, fun := range []string{"manage.masters", "jobs.list_jobs"} {
				if _, errs, code := x.Run(daemontest.Brine, "salt-run", fun); code != 0 {
					t.Errorf("%s: %d %s", fun, code, errs)
				}
			}
		}
		if commands == 15 { // once: deleting the key of a minion that is gone changes the AES keys
			for _, x := range s.sites {
				if _, errs, code := x.Run(daemontest.Brine, "salt-key", "-y", "-d", "leaving"); code != 0 {
					t.Errorf("salt-key: %d %s", code, errs)
				}
			}
		}
	}
	t.Logf("%d commands in %v", commands, last)
	for _, n := range append(minions, s.sites[0].Node, s.sites[1].Node, s.sites[2].Node) {
		for line := range strings.Lines(n.Log()) {
			if strings.Contains(line, "[ERROR") || strings.Contains(line, "[CRITICAL") || strings.Contains(line, "panic") {
				t.Errorf("%s: %s", n.Name, line)
			}
		}
		if !strings.Contains(n.Log(), "[INFO") {
			t.Errorf("%s logs nothing", n.Name)
		}
	}
	if b, err := os.ReadFile(filepath.Join(minions[0].Dir, "motd")); err != nil || string(b) != "hello\n" {
		t.Errorf("the state made %q, %v", b, err)
	}
}
