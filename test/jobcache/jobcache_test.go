// Package jobcache runs masters and minions that store jobs, returns and minion data on a shared
// server, and stops that server.
package jobcache

import (
	"fmt"
	"path/filepath"
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

func TestMain(m *testing.M) { daemontest.Main(m) }

const waitLimit = 2 * time.Minute

// ask runs a program of a master and returns its output, decoded as JSON.
func ask(m *daemontest.Node, args ...string) (map[string]any, error) {
	return m.SaltJSON(daemontest.Brine, args...)
}

func salted(t *testing.T, m *daemontest.Node, program string, args ...string) string {
	t.Helper()
	out, stderr, code := m.Run(daemontest.Brine, program, args...)
	if code != 0 {
		t.Errorf("%s %v: %d\n%s%s", program, args, code, out, stderr)
	}
	return out
}

func TestServerGoesAway(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t)
	t.Cleanup(s.Remove)
	shared := fmt.Sprintf(`cache: redis
cache.redis.host: %[1]s
cache.redis.port: %[2]d
master_job_cache: redis
redis.host: %[1]s
redis.port: %[2]d
auto_accept: True
`, s.Host, s.Port)
	a := daemontest.NewMaster(t, daemontest.Brine, "a", "127.0.78.1", shared).Start()
	b := daemontest.NewMaster(t, daemontest.Brine, "b", "127.0.78.2", shared).Start()
	minion := daemontest.NewMinion(t, daemontest.Brine, "m1", []string{a.Host},
		fmt.Sprintf("redis.host: %s\nredis.port: %d\nredis.db: 5\nreturn: redis\n", s.Host, s.Port)).Start()
	eventually.Nil(t, waitLimit, "the minion answers", func() error { return a.PingAll(daemontest.Brine, "m1") })
	far, err := returner.Open("redis", returner.Config{Source: remote.Options(value.DictOf("redis.host", s.Host, "redis.port", s.Port, "redis.db", 5)),
		Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()

	run := func(text string) (jid string) {
		t.Helper()
		out, stderr, code := a.Run(daemontest.Brine, "salt", "-t", "60", "m1", "test.echo", text, "--show-jid", "--out=txt")
		if code != 0 || !strings.Contains(out, "m1: "+text) {
			t.Fatalf("%d\n%s%s", code, out, stderr)
		}
		_, jid, _ = strings.Cut(out, "jid: ")
		jid, _, _ = strings.Cut(jid, "\n")
		return strings.TrimSpace(jid)
	}
	// everywhere waits until the other master and the minion's own server have a job.
	everywhere := func(jid, text string) {
		t.Helper()
		eventually.Nil(t, waitLimit, "the other master shows "+jid, func() error {
			out, stderr, _ := b.Run(daemontest.Brine, "salt-run", "jobs.lookup_jid", jid, "--out=txt")
			if !strings.Contains(out, text) {
				return fmt.Errorf("%s%s", out, stderr)
			}
			return nil
		})
		eventually.Nil(t, waitLimit, "the minion's server has "+jid, func() error {
			rets, err := far.Returns(t.Context(), jid)
			if err != nil || rets["m1"].Str("return") != text {
				return fmt.Errorf("%v %v", rets, err)
			}
			return nil
		})
	}
	first := run("before")
	everywhere(first, "before")
	if out := salted(t, b, "salt-run", "jobs.list_job", first); !strings.Contains(out, "test.echo") || !strings.Contains(out, "m1") {
		t.Error(out)
	}
	if out := salted(t, b, "salt-run", "jobs.list_jobs", "search_function=test.echo"); !strings.Contains(out, first) {
		t.Error(out)
	}
	if out := salted(t, b, "salt-run", "jobs.lookup_jid", first, "ext_source=local_cache"); strings.Contains(out, "before") {
		t.Error("the other master has the job itself:", out)
	}
	// Grains are known to both by the shared cache.
	eventually.Nil(t, waitLimit, "the other master knows the grains", func() error {
		if out := salted(t, b, "salt-run", "cache.fetch", "minions/m1", "data", "--out=txt"); !strings.Contains(out, "saltversion") {
			return fmt.Errorf("%.200s", out)
		}
		return nil
	})

	s.Stop()
	second := run("meanwhile")
	if out := salted(t, a, "salt-run", "jobs.lookup_jid", second, "--out=txt"); !strings.Contains(out, "meanwhile") {
		t.Error(out)
	}
	if ids, err := ask(a, "-G", "id:m1", "test.ping"); err != nil || ids["m1"] != true {
		t.Error("by grains:", ids, err)
	}
	eventually.Nil(t, waitLimit, "the state is shown", func() error {
		if out := salted(t, a, "salt-run", "jobs.cache_status", "--out=json"); !strings.Contains(out, `"connected": false`) {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	// Queued data survives the daemons.
	minion.Kill()
	a.Kill()
	a.Start()
	minion.Start()
	eventually.Nil(t, waitLimit, "the minion answers", func() error { return a.PingAll(daemontest.Brine, "m1") })
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	everywhere(second, "meanwhile")
	eventually.Nil(t, waitLimit, "nothing waits", func() error {
		out := salted(t, a, "salt-run", "jobs.cache_status", "--out=json") + salted(t, a, "salt-run", "cache.status", "--out=json")
		if strings.Contains(out, `"connected": false`) || strings.Count(out, `"waiting": 0`) != 2 {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	if left, _ := filepath.Glob(a.Path("var/cache/salt/master/brine/cache.dirty/*")); len(left) > 0 {
		t.Error(left)
	}
}

// TestEventsInDatabase: a master stores its events in a database, which is unreachable for a while.
func TestEventsInDatabase(t *testing.T) {
	t.Parallel()
	s := servertest.Postgres(t)
	t.Cleanup(s.Remove)
	s.Exec(t, "salt", `SET ROLE salt;
CREATE SEQUENCE seq_salt_events_id;
CREATE TABLE salt_events (id BIGINT NOT NULL UNIQUE DEFAULT nextval('seq_salt_events_id'), tag varchar(255) NOT NULL, data jsonb NOT NULL,
  alter_time TIMESTAMP WITH TIME ZONE DEFAULT NOW(), master_id varchar(255) NOT NULL);`)
	m := daemontest.NewMaster(t, daemontest.Brine, "ev", "127.0.78.3", fmt.Sprintf(`event_return: pgjsonb
event_return_whitelist: ['my/*']
returner.pgjsonb.host: %s
returner.pgjsonb.port: %d
returner.pgjsonb.pass: %s
`, s.Host, s.Port, s.Password)).Start()
	fire := func(tag string) {
		t.Helper()
		salted(t, m, "salt-run", "event.send", tag, `{"n": 1}`)
	}
	kept := func(want string) {
		t.Helper()
		eventually.Nil(t, waitLimit, "the database has "+want, func() error {
			if got := s.Exec(t, "salt", "SELECT tag || ' ' || master_id FROM salt_events ORDER BY id"); got != want {
				return fmt.Errorf("%q", got)
			}
			return nil
		})
	}
	fire("my/one")
	kept("my/one ev\n")
	s.Stop()
	fire("my/two")
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	kept("my/one ev\nmy/two ev\n")
}
