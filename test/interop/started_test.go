package interop

import (
	"encoding/json"
	"fmt"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestJobsThatMinionsStart: a master of either kind knows arguments and target
// of the jobs that minions of both kinds start themselves.
func TestJobsThatMinionsStart(t *testing.T) {
	stockTree(t)
	for _, k := range []kind{brine, stock} {
		t.Run("master of "+string(k), func(t *testing.T) {
			t.Parallel()
			m := newMaster(t, k, "boss", daemontest.Host(), "auto_accept: true\n").Start()
			const more = "startup_states: sls\nsls_list: [web]\nschedule: {beat: {function: test.arg, args: [one], seconds: 3600, run_on_start: True}}\n"
			minions := map[kind]*node{}
			for _, kk := range []kind{brine, stock} {
				minions[kk] = newMinion(t, kk, string(kk), []string{m.Host}, more).Start()
			}
			eventually.Nil(t, stockLimit, "both minions answer", func() error { return m.PingAll(k, "brine", "stock") })
			for kk, minion := range minions {
				if out, stderr, code := minion.Run(kk, "salt-call", "test.echo", "by hand"); code != 0 {
					t.Fatal(out, stderr)
				}
			}
			for _, c := range []struct{ id, fun, arg string }{
				{"brine", "test.echo", "[by hand]"}, {"stock", "test.echo", "[by hand]"},
				{"brine", "test.arg", "[one]"}, {"stock", "test.arg", "[one]"},
				{"brine", "state.sls", "[[web]]"}, {"stock", "state.sls", "[[web]]"},
			} {
				eventually.Nil(t, stockLimit, fmt.Sprint("the job is listed: ", c), func() error {
					out, stderr, _ := m.Run(k, "salt-run", "--out=json", "jobs.list_jobs", "search_target="+c.id, "search_function="+c.fun)
					var list map[string]map[string]any
					if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 {
						return fmt.Errorf("%v %v %s", list, err, stderr)
					}
					for _, d := range list {
						if fmt.Sprint(d["Arguments"]) != c.arg || d["Target"] != c.id || d["Target-type"] != "glob" {
							t.Errorf("%v: %v", c, d)
						}
					}
					return nil
				})
			}
		})
	}
}
