package jobcache

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/servertest"
)

// TestConsoleStoreFailures: two masters write one saved item at once, another program writes to the tables, and the
// server is read only or does not answer. Requests are answered, nothing is lost, and masters agree afterwards.
func TestConsoleStoreFailures(t *testing.T) {
	t.Parallel()
	s := servertest.Postgres(t)
	t.Cleanup(s.Remove)
	statements, err := daemontest.Brine.Command(t.Context(), t, "migrate", "schema", "console_store").Output()
	if err != nil {
		t.Fatal(err)
	}
	s.Exec(t, "salt", "SET ROLE salt;\n"+string(statements))
	const password = "S3CRET-of-the-store"
	s.Exec(t, "salt", "ALTER ROLE salt PASSWORD '"+password+"';")
	conf := fmt.Sprintf("console_store: postgres\nreturner.postgres.host: %s\nreturner.postgres.port: %d\nreturner.postgres.passwd: %s\n",
		s.Host, s.Port, password)
	a := daemontest.NewMaster(t, daemontest.Brine, "a", daemontest.Host(), conf).Start()
	b := daemontest.NewMaster(t, daemontest.Brine, "b", daemontest.Host(), conf).Start()
	shows := func(m *daemontest.Node, about string, good func(string) bool, args ...string) (out string) {
		t.Helper()
		eventually.Nil(t, waitLimit, m.Name+": "+about, func() error {
			var stderr string
			out, stderr, _ = m.Run(daemontest.Brine, "salt-run", append(args, "--out=json")...)
			if !good(out) {
				return fmt.Errorf("%s%s", out, stderr)
			}
			return nil
		})
		return out
	}
	has := func(text string) func(string) bool {
		return func(out string) bool { return strings.Contains(out, text) }
	}

	// Two versions of one item at once: both masters have the same one in the end.
	var both sync.WaitGroup
	for _, m := range []*daemontest.Node{a, b} {
		both.Go(func() {
			for i := range 2 {
				m.Run(daemontest.Brine, "salt-run", "saved.put_public", "target", "same", fmt.Sprintf("data={tgt: 'from-%s-%d'}", m.Name, i))
			}
		})
	}
	both.Wait()
	eventually.Nil(t, waitLimit, "the masters agree", func() error {
		at := map[string]string{}
		for _, m := range []*daemontest.Node{a, b} {
			out, _, _ := m.Run(daemontest.Brine, "salt-run", "saved.list", "--out=json")
			_, at[m.Name], _ = strings.Cut(out, `"tgt": "`)
			at[m.Name], _, _ = strings.Cut(at[m.Name], `"`)
		}
		stored := s.Exec(t, "salt", "SELECT record FROM console_saved WHERE name = 'same' AND NOT deleted;")
		if at["a"] == "" || at["a"] != at["b"] || !strings.Contains(stored, at["a"]) {
			return fmt.Errorf("%v, stored: %s", at, stored)
		}
		return nil
	})

	// Rows of others, in place of what a master wrote and besides it.
	s.Exec(t, "salt", `UPDATE console_saved SET record = repeat('x', 10000000), version = nextval('console_saved_version');
		INSERT INTO console_saved (id, kind, owner, name, deleted, record) SELECT lpad(i::text, 32, '0'), 'view', 'o', 'n', false,
			'{"id": [], "data": "\u0000"' FROM generate_series(1, 1000) AS i;
		INSERT INTO console_audit (entry, at, master_id, username, fun, result, record) VALUES ('1', now(), 'm', 'u', 'f', 'r', repeat('[', 100000)),
			('2', now(), 'm', 'u', 'f', 'r', repeat('x', 10000000)), ('3', '-infinity', 'm', 'u', 'f', 'r', '{"time": 1}');
		INSERT INTO console_runs (minion, jid, test, at, fun, failed, changed, drift, record) VALUES
			('m', '20990101000000000000', false, 'infinity', 'f', -1, 0, 0, repeat('x', 10000000)), ('../m', 'x', false, now(), 'f', 0, 0, 0, '{"Minions": [1]}');`)
	eventually.Nil(t, waitLimit, "the item is written again", func() error {
		if out := s.Exec(t, "salt", "SELECT left(record, 1000) FROM console_saved WHERE name = 'same';"); !strings.Contains(out, "from-") {
			return fmt.Errorf("the row: %.200s", out)
		}
		return nil
	})
	shows(b, "its own records beside damaged ones", func(out string) bool {
		return strings.Contains(out, "saved.put_public") && !strings.Contains(out, "no answer")
	}, "audit.list")
	shows(b, "the sizes", has(`"console_store: postgres"`), "fleet.store")

	// Read only.
	s.Exec(t, "salt", `ALTER DATABASE salt SET default_transaction_read_only = on;
		SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'salt' AND pid <> pg_backend_pid();`)
	salted(t, a, "salt-run", "saved.put_public", "target", "meanwhile", "data={tgt: 'm*'}")
	shows(a, "that the server is read only", has("read-only"), "fleet.store")
	s.Exec(t, "salt", `SET default_transaction_read_only = off; ALTER DATABASE salt SET default_transaction_read_only = off;
		SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'salt' AND pid <> pg_backend_pid();`)
	shows(b, "what was saved meanwhile", has(`"meanwhile"`), "saved.list")
	eventually.Nil(t, waitLimit, "the audit record of that", func() error {
		if out := s.Exec(t, "salt", "SELECT count(*) FROM console_audit WHERE fun = 'saved.put_public' AND master_id = 'a';"); strings.TrimSpace(out) != "3" {
			return fmt.Errorf("%s records instead of 3", out)
		}
		return nil
	})

	// A server that takes requests and does not answer.
	var hanging sync.WaitGroup
	hanging.Go(func() {
		s.Exec(t, "salt", `BEGIN; LOCK TABLE console_saved, console_audit, console_runs IN ACCESS EXCLUSIVE MODE;
			DO $$ BEGIN PERFORM pg_sleep(3600); EXCEPTION WHEN query_canceled THEN NULL; END $$; COMMIT;`)
	})
	eventually.Nil(t, waitLimit, "the tables are locked", func() error {
		if out := s.Exec(t, "salt", "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep';"); !strings.Contains(out, "1") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	salted(t, a, "salt-run", "saved.put_public", "target", "frozen", "data={tgt: 'm*'}")
	shows(a, "its own records, and that there are no others", func(out string) bool {
		return strings.Contains(out, "no answer") && strings.Contains(out, "saved.put_public")
	}, "audit.list")
	shows(a, "that the server does not answer", has("unreachable since"), "fleet.store")
	s.Exec(t, "salt", "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep';")
	hanging.Wait()
	shows(b, "what was saved then", has(`"frozen"`), "saved.list")
	for _, m := range []*daemontest.Node{a, b} {
		if !m.Alive() {
			t.Errorf("master %s has ended", m.Name)
		}
		for what, text := range map[string]string{"log": m.Log(), "fleet.store": shows(m, "the sizes", has("console_store"), "fleet.store")} {
			if strings.Contains(text, password) {
				t.Errorf("the password is in the %s of master %s", what, m.Name)
			}
		}
	}
}
