package databases

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/freeport"
	"brine/internal/py/value"
)

// TestServerIsAway calls functions for a server that does not run. The error
// carries what stock Salt 3007.10 returned, for templates.
func TestServerIsAway(t *testing.T) {
	ports, err := freeport.TCP(1)
	if err != nil {
		t.Fatal(err)
	}
	port := ports[0]
	statements := filepath.Join(t.TempDir(), "statements")
	if err := os.WriteFile(statements, []byte("SELECT 1;\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		fun  string
		args []any
		want string
	}{
		{"version", nil, "''"}, {"status", nil, "{}"}, {"query", []any{"m", "select 1"}, "{}"}, {"file_query", []any{"m", statements}, "False"},
		{"db_list", nil, "[]"}, {"db_get", []any{"x"}, "[]"}, {"db_tables", []any{"x"}, "False"}, {"db_exists", []any{"x"}, "False"},
		{"db_create", []any{"x"}, "False"}, {"alter_db", []any{"x", "utf8"}, "[]"}, {"db_remove", []any{"x"}, "False"},
		{"user_list", nil, "[]"}, {"user_exists", []any{"u"}, "False"}, {"user_info", []any{"u"}, "False"},
		{"user_create", []any{"u", "localhost", "p"}, "False"},
		{"user_chpass", []any{"u", "localhost", "p"}, "False"}, {"user_remove", []any{"u"}, "False"}, {"user_grants", []any{"u"}, "False"},
		{"grant_exists", []any{"SELECT", "a.*", "u"}, "False"}, {"grant_add", []any{"SELECT", "a.*", "u"}, "False"},
		{"grant_revoke", []any{"SELECT", "a.*", "u"}, "False"},
		{"plugins_list", nil, "[]"}, {"plugin_status", []any{"x"}, "''"},
	} {
		kw := value.DictOf("connection_host", "127.0.0.1", "connection_port", port, "connection_user", "u", "connection_pass", "p")
		_, err := r.Call(t.Context(), &fn.Call{Log: slog.New(slog.DiscardHandler), Funcs: r}, "mysql."+c.fun, c.args, kw)
		var u *noServer
		if !errors.As(err, &u) {
			t.Errorf("%s: %v", c.fun, err)
			continue
		}
		if got := value.Repr(u.Answer()); got != c.want {
			t.Errorf("%s answers %s, Salt %s", c.fun, got, c.want)
		}
	}
}

// TestPostgresIsAway does the same with a fake psql. Stock Salt's values were
// recorded with an address on which no server listens.
func TestPostgresIsAway(t *testing.T) {
	psql := filepath.Join(t.TempDir(), "psql")
	if err := os.WriteFile(psql, []byte("#!/bin/sh\necho 'psql: error: connection refused' >&2\nexit 2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	mods := append(Modules(&host.Machine{}), fn.Module{Name: "config", Funcs: []fn.Func{
		fn.Of("option", func(_ context.Context, _ *fn.Call, a struct {
			Name    string `salt:"name"`
			Default any    `salt:"default"`
		}) (any, error) {
			return map[string]any{"postgres.host": "127.0.0.1", "postgres.bins_dir": filepath.Dir(psql)}[a.Name], nil
		}, "", fn.Example("x")),
	}})
	r, err := fn.NewRegistry(nil, mods...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		fun  string
		args []any
		want string
	}{
		{"version", nil, "None"}, {"psql_query", []any{"select 1"}, "[]"}, {"db_list", nil, "{}"}, {"db_exists", []any{"x"}, "False"},
		{"role_get", []any{"x"}, "None"}, {"user_list", nil, "False"}, {"user_exists", []any{"x"}, "False"},
		{"tablespace_list", nil, "{}"}, {"tablespace_exists", []any{"x"}, "False"}, {"available_extensions", nil, "{}"}, {"installed_extensions", nil, "{}"},
		{"get_available_extension", []any{"x"}, "None"}, {"get_installed_extension", []any{"x"}, "None"}, {"is_available_extension", []any{"x"}, "False"},
		{"is_installed_extension", []any{"x"}, "False"}, {"create_metadata", []any{"x"}, "['EXTENSION NOT INSTALLED']"},
		{"drop_extension", []any{"x"}, "True"},
		{"schema_list", []any{"d"}, "{}"}, {"schema_get", []any{"d", "x"}, "None"}, {"schema_exists", []any{"d", "x"}, "False"},
		{"schema_remove", []any{"d", "x"}, "False"},
		{"language_list", []any{"d"}, "{}"}, {"language_exists", []any{"x", "d"}, "False"}, {"language_create", []any{"x", "d"}, "False"},
		{"language_remove", []any{"x", "d"}, "False"},
		{"privileges_list", []any{"x", "table"}, "{}"}, {"has_privileges", []any{"r", "x", "table", "SELECT"}, "False"},
		{"db_create", []any{"x"}, "False"}, {"user_create", []any{"x"}, "False"}, {"user_remove", []any{"x"}, "False"},
		{"tablespace_create", []any{"x", "/x"}, "False"},
		{"privileges_grant", []any{"r", "x", "table", "SELECT"}, "False"}, {"privileges_revoke", []any{"r", "x", "table", "SELECT"}, "False"},
	} {
		v, err := r.Call(t.Context(), &fn.Call{Log: slog.New(slog.DiscardHandler), Funcs: r, Config: fn.Tree{Dict: value.NewDict(0)}}, "postgres."+c.fun,
			c.args, nil)
		var u *noServer
		switch {
		case errors.As(err, &u):
			v = u.Answer()
		case err != nil:
			t.Errorf("%s: %v", c.fun, err)
			continue
		}
		if got := value.Repr(v); got != c.want {
			t.Errorf("%s answers %s, Salt %s", c.fun, got, c.want)
		}
	}
}
