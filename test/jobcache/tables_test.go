package jobcache

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/servertest"
)

// documented returns the statements in docs/caches.md that create tables, for MySQL and for
// PostgreSQL.
func documented(t *testing.T) (mysql, postgres string) {
	t.Helper()
	b, err := os.ReadFile("../../docs/caches.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(b), "```")
	if len(parts) != 5 {
		t.Fatalf("%d parts", len(parts))
	}
	return strings.TrimPrefix(parts[1], "sql\n"), strings.TrimPrefix(parts[3], "sql\n")
}

// TestTablesComeLater: data sent to a returner before its tables exist is queued, jobs.cache_status
// shows the reason, and the data is delivered afterwards.
func TestTablesComeLater(t *testing.T) {
	mysql, postgres := documented(t)
	for name, c := range map[string]struct {
		server       func(testing.TB) *servertest.Server
		pass, tables string
	}{
		"mysql":   {servertest.MySQL, "mysql.pass", mysql},
		"pgjsonb": {servertest.Postgres, "returner.pgjsonb.pass", "SET ROLE salt;\n" + postgres},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.server(t)
			t.Cleanup(s.Remove)
			if name == "mysql" {
				s.Exec(t, "", "CREATE DATABASE salt")
			}
			prefix := strings.TrimSuffix(c.pass, "pass")
			m := daemontest.NewMaster(t, daemontest.Brine, "a", daemontest.Host(),
				fmt.Sprintf("auto_accept: True\nmaster_job_cache: %[1]s\n%[2]shost: %[3]s\n%[2]sport: %[4]d\n%[2]spass: %[5]s\n", name, prefix, s.Host,
					s.Port, s.Password)).Start()
			daemontest.NewMinion(t, daemontest.Brine, "m1", []string{m.Host}, "").Start()
			eventually.Nil(t, waitLimit, "the minion answers", func() error { return m.PingAll(daemontest.Brine, "m1") })
			salted(t, m, "salt", "m1", "test.echo", "kept")
			eventually.Nil(t, waitLimit, "the status says what is missing", func() error {
				out := salted(t, m, "salt-run", "jobs.cache_status", "--out=json")
				if !strings.Contains(out, `"connected": false`) || !strings.Contains(out, "create the tables") || strings.Contains(out, `"waiting": 0`) {
					return fmt.Errorf("%s", out)
				}
				return nil
			})
			s.Exec(t, "salt", c.tables)
			eventually.Nil(t, waitLimit, "job and return are there", func() error {
				out := s.Exec(t, "salt", "SELECT r.fun FROM salt_returns r JOIN jids j ON j.jid = r.jid WHERE r.fun = 'test.echo';")
				status := salted(t, m, "salt-run", "jobs.cache_status", "--out=json")
				if !strings.Contains(out, "test.echo") || !strings.Contains(status, `"connected": true`) {
					return fmt.Errorf("%q %s", out, status)
				}
				return nil
			})
		})
	}
}
