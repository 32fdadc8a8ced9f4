package databases

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"brine/internal/fn"
	"brine/internal/host"
	"brine/internal/value"
)

// TestServerIsAway asks a server that does not run: an error, beside which
// stands what stock Salt 3007.10 returned, for templates.
func TestServerIsAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
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
		{"user_list", nil, "[]"}, {"user_exists", []any{"u"}, "False"}, {"user_info", []any{"u"}, "False"}, {"user_create", []any{"u", "localhost", "p"}, "False"},
		{"user_chpass", []any{"u", "localhost", "p"}, "False"}, {"user_remove", []any{"u"}, "False"}, {"user_grants", []any{"u"}, "False"},
		{"grant_exists", []any{"SELECT", "a.*", "u"}, "False"}, {"grant_add", []any{"SELECT", "a.*", "u"}, "False"}, {"grant_revoke", []any{"SELECT", "a.*", "u"}, "False"},
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
