package ha

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestOneScheduleForAllMasters: three hot masters change and use the single schedule of one minion.
// All see each change, each run_job causes one run, the pillar's jobs exist once, salt-call changes
// the daemon's schedule, and saved jobs survive a restart of the minion.
func TestOneScheduleForAllMasters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	count := func(file string) int {
		b, _ := os.ReadFile(dir + "/" + file)
		return strings.Count(string(b), "x")
	}
	s := hot(t, 3, func(n *daemontest.Node) {
		n.Write("master", n.Read("master")+"pillar_roots: {base: ["+n.Path("srv/pillar")+"]}\n")
		n.Write("srv/pillar/top.sls", "base: {'*': [jobs]}\n")
		n.Write("srv/pillar/jobs.sls", "schedule:\n  shared:\n    function: cmd.run\n    args: ['echo x >> "+dir+
			"/shared']\n    hours: 9\n    run_on_start: True\n")
	})
	s.minion = daemontest.NewMinion(t, daemontest.Brine, "w1", s.hosts(), "").Start()
	for i := range s.sites {
		s.usable(i)
	}
	do := func(master int, args ...string) *value.Dict {
		t.Helper()
		out, errs, code := s.sites[master].Run(daemontest.Brine, "salt", append([]string{"--out=yaml", "-t", "60", "w1"}, args...)...)
		v, err := yaml.Load([]byte(out), "answer")
		d, ok := v.(*value.Dict)
		if err != nil || !ok {
			t.Fatalf("%v: %d %v %s %s", args, code, err, out, errs)
		}
		return d.Dict("w1")
	}
	counted := func(file string, n int) {
		t.Helper()
		eventually.Nil(t, within, fmt.Sprintf("%d runs of %s", n, file), func() error {
			if got := count(file); got != n {
				return fmt.Errorf("%d", got)
			}
			return nil
		})
	}
	counted("shared", 1)
	if d := do(0, "schedule.add", "hand", "function=cmd.run", "job_args=['echo x >> "+dir+"/hand']", "hours=9"); !d.Bool("result") ||
		d.Dict("changes").Str("hand") != "added" {
		t.Fatalf("add: %s", value.Repr(d))
	}
	if d := do(1, "schedule.add", "hand", "function=test.ping", "seconds=1"); d.Bool("result") {
		t.Errorf("added twice: %s", value.Repr(d))
	}
	for i := range s.sites {
		if d := do(i, "schedule.list", "return_yaml=False"); d.Dict("hand").Int("hours") != 9 || d.Dict("shared").Str("function") != "cmd.run" {
			t.Errorf("list of %d: %s", i, value.Repr(d))
		}
		if d := do(i, "schedule.run_job", "hand"); !d.Bool("result") {
			t.Errorf("run_job of %d: %s", i, value.Repr(d))
		}
		counted("hand", i+1)
	}
	// The first connected master provides the pillar; the next one's results in the same schedule.
	s.sites[0].Kill()
	s.usable(1)
	out, errs, code := s.minion.Run(daemontest.Brine, "salt-call", "schedule.modify", "hand", "days=1")
	if code != 0 || !strings.Contains(out, "Modified job: hand in schedule.") {
		t.Errorf("salt-call: %d %s %s", code, out, errs)
	}
	if d := do(2, "schedule.is_enabled", "hand"); d.Int("days") != 1 {
		t.Errorf("what salt-call has changed: %s", value.Repr(d))
	}
	s.minion.Kill()
	s.minion.Start()
	s.usable(2)
	counted("shared", 2) // at its start
	d := do(2, "schedule.job_status", "hand")
	if d.Int("days") != 1 || d.Str("_next_fire_time") == "" || d.Str("function") != "cmd.run" {
		t.Errorf("after a restart: %s", value.Repr(d))
	}
	if d := do(1, "schedule.delete", "hand"); !d.Bool("result") {
		t.Errorf("delete: %s", value.Repr(d))
	}
	if d := do(2, "schedule.list", "return_yaml=False"); d.Has("hand") || !d.Has("shared") {
		t.Errorf("after delete: %s", value.Repr(d))
	}
	if n := count("hand"); n != 3 {
		t.Errorf("%d runs", n)
	}
	s.alive()
}
