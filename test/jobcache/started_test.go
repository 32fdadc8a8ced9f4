package jobcache

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"brine/internal/net/remote"
	"brine/internal/py/value"
	"brine/internal/store/job"
	"brine/internal/store/returner"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/servertest"
)

// runner runs a runner of a master and returns its result.
func runner(m *daemontest.Node, args ...string) (map[string]any, error) {
	out, stderr, _ := m.Run(m.Kind, "salt-run", append([]string{"--out=json"}, args...)...)
	var got map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		return nil, fmt.Errorf("%w: %q %q", err, out, stderr)
	}
	return got, nil
}

// TestJobsThatMinionsStart: jobs of salt-call, the schedule and startup_states have arguments,
// target and minions in every job store.
func TestJobsThatMinionsStart(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t)
	t.Cleanup(s.Remove)
	m := daemontest.NewMaster(t, daemontest.Brine, "a", daemontest.Host(),
		fmt.Sprintf("auto_accept: True\nmaster_job_cache: redis\nredis.host: %s\nredis.port: %d\n", s.Host, s.Port)).Start()
	minion := daemontest.NewMinion(t, daemontest.Brine, "m1", []string{m.Host}, `startup_states: sls
sls_list: [web, db]
schedule:
  beat:
    function: test.arg
    args: [one]
    kwargs: {two: 2}
    seconds: 3600
    run_on_start: True
`).Start()
	eventually.Nil(t, waitLimit, "the minion answers", func() error { return m.PingAll(daemontest.Brine, "m1") })
	if out, stderr, code := minion.Run(daemontest.Brine, "salt-call", "test.echo", "by hand"); code != 0 {
		t.Fatal(out, stderr)
	}
	far, err := returner.Open("redis", returner.Config{Timeout: 20 * time.Second,
		Source: remote.Options(value.DictOf("redis.host", s.Host, "redis.port", s.Port))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	files, err := job.NewLocalCache(m.Path("var/cache/salt/master"), "")
	if err != nil {
		t.Fatal(err)
	}
	for fun, arg := range map[string]string{"test.echo": "[by hand]", "test.arg": "[one map[__kwarg__:true two:2]]", "state.sls": "[[web db]]"} {
		var jid string
		eventually.Nil(t, waitLimit, fun+" is found by its target", func() error {
			list, err := runner(m, "jobs.list_jobs", "search_target=m1", "search_function="+fun)
			if err != nil || len(list) != 1 {
				return fmt.Errorf("%v %v", list, err)
			}
			for id, v := range list {
				jid = id
				d := v.(map[string]any)
				if fmt.Sprint(d["Arguments"]) != arg || d["Target"] != "m1" || d["Target-type"] != "glob" {
					t.Errorf("%s: %v", fun, d)
				}
			}
			return nil
		})
		one, err := runner(m, "jobs.list_job", jid)
		if err != nil || fmt.Sprint(one["Minions"]) != "[m1]" {
			t.Errorf("%s: %v %v", fun, one, err)
		}
		load, err := far.Load(t.Context(), jid)
		if err != nil || load.Str("tgt") != "m1" || load.List("arg") == nil || fmt.Sprint(load.List("Minions")) != "[m1]" {
			t.Errorf("%s in redis: %v %v", fun, value.Repr(load), err)
		}
		if w, err := files.Lookup(jid); err != nil || w == nil || w.Load.Str("tgt") != "m1" || len(w.Minions) != 1 {
			t.Errorf("%s below %s: %v %v", fun, filepath.Join(m.Dir, "var"), w, err)
		}
	}
}
