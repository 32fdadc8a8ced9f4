package pillar

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"brine/internal/json"
	"brine/internal/render"
	"brine/internal/target"
	"brine/internal/value"
	"brine/test/servertest"
)

const sqlStatements = `[
 "CREATE TABLE t (minion VARCHAR(40), a VARCHAR(40), b VARCHAR(40), c VARCHAR(40), d VARCHAR(40), n INTEGER)",
 "INSERT INTO t VALUES ('web%', '1', 'x', 'p', 'q', 1), ('web%', '1', 'x', 'p', 'r', 2), ('web%', '1', 'y', 's', 't', 3), ('web%', '2', 'x', 'u', NULL, 4), ('db%', '9', 'z', 'z', 'z', 5)"
]`

// sqlCases are what ext_pillar says, which Salt's source sqlite3 was asked, too.
const sqlCases = `[
 ["SELECT a, b FROM t WHERE %s LIKE minion ORDER BY n"],
 ["SELECT a, b, c FROM t WHERE %s LIKE minion ORDER BY n"],
 ["SELECT a, b, c, d, n FROM t WHERE %s LIKE minion AND d IS NOT NULL ORDER BY n"],
 [["SELECT a, b, c, d, n FROM t WHERE %s LIKE minion ORDER BY n", 2]],
 [["SELECT a, b, c, d, n FROM t WHERE %s LIKE minion ORDER BY n", 1], "SELECT b, d FROM t WHERE %s LIKE minion ORDER BY n"],
 {"root": "SELECT a, b FROM t WHERE %s LIKE minion ORDER BY n", "other": {"query": "SELECT a, d FROM t WHERE %s LIKE minion ORDER BY n", "ignore_null": true}},
 {"l": {"query": "SELECT a, b, c, d FROM t WHERE %s LIKE minion ORDER BY n", "as_list": true}},
 {"l": {"query": "SELECT a, b, c, d, n FROM t WHERE %s LIKE minion ORDER BY n", "depth": 2, "as_list": true}},
 {"l": {"query": "SELECT a, b, c, d, n FROM t WHERE %s LIKE minion AND d IS NOT NULL ORDER BY n", "depth": 5, "with_lists": [1, 3]}},
 {"l": {"query": "SELECT a, b, c, d FROM t WHERE %s LIKE minion ORDER BY n", "with_lists": "1"}},
 {"l": {"query": "SELECT a, b, c, d, n FROM t WHERE %s LIKE minion ORDER BY n", "depth": 2, "with_lists": [2], "ignore_null": true}},
 {"empty": "", "none": {"depth": 2}, "some": "SELECT a, n FROM t WHERE %s LIKE minion ORDER BY n"}
]`

// TestDatabases sets what comes of rows of real servers beside what Salt's
// source sqlite3 made of the same; BRINE_RECORD=1 with BRINE_STOCK_SALT asks it
// anew.
func TestDatabases(t *testing.T) {
	t.Parallel()
	if stock := os.Getenv("BRINE_STOCK_SALT"); stock != "" && os.Getenv("BRINE_RECORD") != "" {
		cmd := exec.Command("/usr/bin/python3", "-W", "ignore", "testdata/record_sql.py")
		cmd.Env, cmd.Stdin = append(os.Environ(), "PYTHONPATH="+stock), strings.NewReader("["+sqlStatements+","+sqlCases+"]")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, stderr.String())
		}
		if err := os.WriteFile("testdata/sql.json", append(out, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	list := func(text string) []any {
		v, err := json.Load(text)
		if err != nil {
			t.Fatal(err)
		}
		return v.(*value.List).Items
	}
	want := readList(t, "testdata/sql.json")
	for name, start := range map[string]func(testing.TB) *servertest.Server{"mysql": servertest.MySQL, "postgres": servertest.Postgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			if name == "mysql" {
				s.Exec(t, "", "CREATE DATABASE IF NOT EXISTS salt")
			}
			for _, st := range list(sqlStatements) {
				s.Exec(t, "salt", st.(string))
			}
			if name == "postgres" {
				s.Exec(t, "salt", "GRANT ALL ON t TO salt")
			}
			conn := value.DictOf("host", s.Host, "port", int64(s.Port), "user", s.User, "pass", s.Password, "db", s.Database)
			made := func(conn *value.Dict, what any) *value.Dict {
				opts := value.DictOf("renderer", "jinja|yaml", "pillar_roots", value.DictOf("base", value.ListOf(t.TempDir())), name, conn, "ext_pillar", value.ListOf(value.DictOf(name, what)))
				cfg := Config{Renderer: render.New(render.Options{}), Opts: opts, Nodegroups: target.Nodegroups{}, CacheDir: t.TempDir()}
				fill(t, &cfg.Options, opts)
				fill(t, &cfg.Top, opts)
				got, err := New(cfg).Compile(t.Context(), Request{ID: "web1"})
				if err != nil {
					t.Fatal(err)
				}
				return got
			}
			for i, c := range list(sqlCases) {
				if got := made(conn, c); !value.Equal(got, want[i]) {
					t.Errorf("%s\n got %s\nSalt %s", value.Repr(c), value.Repr(got), value.Repr(want[i]))
				}
			}
			js := value.DictOf("j", value.DictOf("query", `SELECT '{"k": [1, {"x": null}]}'`, "as_json", true))
			if got := made(conn, js); value.Repr(got) != "{'j': {'k': [1, {'x': None}]}}" {
				t.Error(value.Repr(got))
			}
			for _, bad := range []string{"SELECT nonsense FROM nowhere", "SELECT a FROM t"} {
				if got := value.Repr(made(conn, value.ListOf(bad))); !strings.Contains(got, "Failed to load ext_pillar "+name) {
					t.Error(got)
				}
			}
			wrong := conn.Clone()
			wrong.Set("pass", "wrong-password")
			if got := value.Repr(made(wrong, value.ListOf("SELECT a, b FROM t"))); !strings.Contains(got, "_errors") || strings.Contains(got, "wrong-password") {
				t.Error(got)
			}
		})
	}
}
