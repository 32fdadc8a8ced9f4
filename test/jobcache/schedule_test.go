package jobcache

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"brine/internal/net/remote"
	"brine/internal/py/value"
	"brine/internal/store/returner"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/servertest"
)

// TestScheduledReturner: results of scheduled jobs are sent once to the returner that each job
// names, with its settings, to the returner of all scheduled jobs, and to the master.
func TestScheduledReturner(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t)
	t.Cleanup(s.Remove)
	store := func(db int) returner.Returner {
		r, err := returner.Open("redis", returner.Config{Timeout: 20 * time.Second,
			Source: remote.Options(value.DictOf("redis.host", s.Host, "redis.port", s.Port, "redis.db", db))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return r
	}
	usual, named := store(5), store(6)
	m := daemontest.NewMaster(t, daemontest.Brine, "a", daemontest.Host(), "auto_accept: True\n").Start()
	daemontest.NewMinion(t, daemontest.Brine, "m1", []string{m.Host}, fmt.Sprintf(`redis.host: %[1]s
redis.port: %[2]d
redis.db: 5
other.redis.host: %[1]s
other.redis.port: %[2]d
other.redis.db: 6
schedule_returner: redis
schedule:
  one:
    function: test.echo
    args: [elsewhere]
    seconds: 3600
    run_on_start: True
    returner: redis
    return_config: other
  two:
    function: test.arg
    args: [as usual]
    seconds: 3600
    run_on_start: True
`, s.Host, s.Port)).Start()
	jids := map[string]string{}
	eventually.Nil(t, waitLimit, "the master has both jobs", func() error {
		for _, fun := range []string{"test.echo", "test.arg"} {
			out, stderr, _ := m.Run(daemontest.Brine, "salt-run", "jobs.list_jobs", "search_function="+fun, "--out=json")
			var list map[string]any
			if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 {
				return fmt.Errorf("%s: %v %s %s", fun, err, out, stderr)
			}
			for jid := range list {
				jids[fun] = jid
			}
		}
		return nil
	})
	for fun, at := range map[string]struct {
		there, not returner.Returner
		text       string
	}{"test.echo": {named, usual, "elsewhere"}, "test.arg": {usual, named, "as usual"}} {
		eventually.Nil(t, waitLimit, "the returner has the job", func() error {
			rets, err := at.there.Returns(t.Context(), jids[fun])
			if err != nil || !strings.Contains(value.Str(rets["m1"].At("return")), at.text) {
				return fmt.Errorf("%s: %v %v", fun, rets, err)
			}
			return nil
		})
		if rets, err := at.not.Returns(t.Context(), jids[fun]); err != nil || len(rets) > 0 {
			t.Errorf("%s is in the other database, too: %v %v", fun, rets, err)
		}
	}
}
