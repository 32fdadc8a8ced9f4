package pillar

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"brine/internal/base/target"
	"brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/sls/render"
	"brine/test/fuzztest"
	"brine/test/servertest"
	"brine/test/tools"
)

const sqlStatements = `[
 "CREATE TABLE t (minion VARCHAR(40), a VARCHAR(40), b VARCHAR(40), c VARCHAR(40), d VARCHAR(40), n INTEGER)",
 "INSERT INTO t VALUES ('web%', '1', 'x', 'p', 'q', 1), ('web%', '1', 'x', 'p', 'r', 2), ('web%', '1', 'y', 's', 't', 3), ('web%', '2', 'x', 'u', NULL, 4), ('db%', '9', 'z', 'z', 'z', 5)"
]`

// sqlCases are configurations of ext_pillar that were also run with Salt's source
// sqlite3.
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

// TestDatabases compares pillars from rows of real servers with those of Salt's
// source sqlite3; BRINE_RECORD=1 with BRINE_STOCK_SALT records them again.
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
	want := readList(t, "testdata/sql.json")
	for name, start := range map[string]func(testing.TB) *servertest.Server{"mysql": servertest.MySQL, "postgres": servertest.Postgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			if name == "mysql" {
				s.Exec(t, "", "CREATE DATABASE IF NOT EXISTS salt")
			}
			for _, st := range listOf(t, sqlStatements) {
				s.Exec(t, "salt", st.(string))
			}
			if name == "postgres" {
				s.Exec(t, "salt", "GRANT ALL ON t TO salt")
			}
			conn := value.DictOf("host", s.Host, "port", int64(s.Port), "user", s.User, "pass", s.Password, "db", s.Database)
			made := func(conn *value.Dict, what any) *value.Dict {
				return pillarOf(t, name, conn, what)
			}
			for i, c := range listOf(t, sqlCases) {
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
			if got := value.Repr(made(wrong, value.ListOf("SELECT a, b FROM t"))); !strings.Contains(got, "_errors") ||
				strings.Contains(got, "wrong-password") {
				t.Error(got)
			}
		})
	}
}

func listOf(t *testing.T, text string) []any {
	t.Helper()
	v, err := json.Load(text)
	if err != nil {
		t.Fatal(err)
	}
	return v.(*value.List).Items
}

// pillarOf compiles the pillar of web1 with one external pillar.
func pillarOf(t *testing.T, name string, conn *value.Dict, what any) *value.Dict {
	t.Helper()
	opts := value.DictOf("renderer", "jinja|yaml", "pillar_roots", value.DictOf("base", value.ListOf(t.TempDir())), name, conn, "ext_pillar",
		value.ListOf(value.DictOf(name, what)))
	cfg := Config{Renderer: render.New(render.Options{}), Opts: opts, Nodegroups: target.Nodegroups{}, CacheDir: t.TempDir()}
	fill(t, &cfg.Options, opts)
	fill(t, &cfg.Top, opts)
	got, err := New(cfg).Compile(t.Context(), Request{ID: "web1"})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestSQLite is TestDatabases for files of sqlite3.
func TestSQLite(t *testing.T) {
	t.Parallel()
	program := tools.Need(t, "sqlite3", "sqlite3")
	conn := value.DictOf("database", t.TempDir()+"/my pillar.db")
	run := func(sql string) {
		if out, err := exec.Command(program, conn.Str("database"), sql).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for _, st := range listOf(t, sqlStatements) {
		run(st.(string))
	}
	want := readList(t, "testdata/sql.json")
	for i, c := range listOf(t, strings.ReplaceAll(sqlCases, "%s", "?")) {
		if got := pillarOf(t, "sqlite3", conn, c); !value.Equal(got, want[i]) {
			t.Errorf("%s\n got %s\nSalt %s", value.Repr(c), value.Repr(got), value.Repr(want[i]))
		}
	}
	run("CREATE TABLE odd (k, v); INSERT INTO odd VALUES ('line\n''quoted\"', 1.5), ('ü', 9007199254740993), ('null', NULL), ('big', 'x')")
	if got := value.Repr(pillarOf(t, "sqlite3", conn, value.ListOf("SELECT k, v FROM odd ORDER BY rowid -- a comment"))); got !=
		value.Repr(value.DictOf("line\n'quoted\"", 1.5, "ü", int64(9007199254740993), "null", nil, "big", "x")) {
		t.Error(got)
	}
	if got := value.Repr(pillarOf(t, "sqlite3", conn, value.ListOf("SELECT k, v FROM odd WHERE k = ?"))); got != "{}" {
		t.Error(got)
	}
	for _, bad := range []string{"SELECT nonsense FROM nowhere", "SELECT k FROM odd", "DELETE FROM odd"} {
		if got := value.Repr(pillarOf(t, "sqlite3", conn, value.ListOf(bad))); !strings.Contains(got, "Failed to load ext_pillar sqlite3") {
			t.Error(bad, got)
		}
	}
	none := value.DictOf("database", t.TempDir()+"/none.db")
	if got := value.Repr(pillarOf(t, "sqlite3", none, value.ListOf("SELECT 1, 2"))); !strings.Contains(got, "_errors") {
		t.Error(got)
	}
	if _, err := os.Stat(none.Str("database")); err == nil {
		t.Error("a database was made")
	}
}

func FuzzSQLite(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add([]byte(`[{"a":1,"b":null,"a":"x"},{"a":1.5}]`))
	f.Fuzz(func(t *testing.T, out []byte) { readSQLite(out) })
}
