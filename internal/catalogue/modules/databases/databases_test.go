package databases

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/call/fn/fntest"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

func TestCatalogue(t *testing.T) { fntest.Catalogue(t, Modules(&host.Machine{})) }

const signatures = "testdata/signatures.json"

func TestSignatures(t *testing.T) { stocktest.Signatures(t, signatures, Modules(&host.Machine{}), nil) }

func TestRecordingIsTrue(t *testing.T) { stocktest.Verify(t, signatures) }

// TestNoServer connects to servers that do not exist. The error for a socket is
// that of the client library.
func TestNoServer(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "sock")
	funcs, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	was := sockets
	sockets = []string{gone}
	t.Cleanup(func() { sockets = was })
	for _, c := range []struct {
		kw   *value.Dict
		want string
	}{
		{value.DictOf(), "MySQL Error 2002: Can't connect to local server through socket '" + gone + "' (2)"},
		{value.DictOf("connection_host", "localhost"), "MySQL Error 2002: Can't connect to local server through socket '" + gone + "' (2)"},
		{value.DictOf("connection_unix_socket", "/nothing/s"), "MySQL Error 2002: Can't connect to local server through socket '/nothing/s' (2)"},
		{value.DictOf("connection_host", "127.0.0.1", "connection_port", 1), "MySQL Error 2003: Can't connect to MySQL server on '127.0.0.1:1'"},
	} {
		kw := value.DictOf("name", "x", "__kwarg__", true)
		kw.Update(c.kw)
		o := funcs.Run(t.Context(), &fn.Call{Funcs: funcs, Log: slog.New(slog.DiscardHandler)}, fn.Job{Fun: "mysql.db_exists", Arg: []any{kw}})
		if got := value.Str(o.Return); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", value.Repr(c.kw), got)
		}
	}
}

func TestStatements(t *testing.T) {
	got := statements("-- a comment; not a statement\nSELECT ';', \"#\", `--`; # more\nINSERT INTO t\n  VALUES ('it''s', 'a\\'b;');/* ; */\n/*!40101 " +
		"SET x */;\nlast")
	want := []string{"SELECT ';', \"#\", `--`", "INSERT INTO t\n  VALUES ('it''s', 'a\\'b;')", "/*!40101 SET x */", "last"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestReadGrant(t *testing.T) {
	for text, want := range map[string]string{
		"GRANT SELECT, INSERT ON testdb.* TO 'testuser'@'localhost'": "{'user': 'testuser', 'host': 'localhost', 'grant': ['SELECT', " +
			"'INSERT'], 'database': 'testdb.*'}",
		"GRANT ALL PRIVILEGES ON `a``b ON c`.* TO `joe`@`%` WITH GRANT OPTION": "{'user': 'joe', 'host': '%', 'grant': ['ALL PRIVILEGES'], " +
			"'database': '`a``b ON c`.*'}",
		"GRANT SELECT (a, `b`), LOCK TABLES ON `d`.`t` TO 'o''neill'@'10.0.0.0/8'": "{'user': \"o'neill\", 'host': '10.0.0.0/8', 'grant': ['SELECT', " +
			"'SELECT.a', 'SELECT.b', 'LOCK TABLES'], 'database': '`d`.`t`'}",
		"GRANT USAGE ON *.* TO joe@localhost IDENTIFIED BY PASSWORD '*AB'": "{'user': 'joe', 'host': 'localhost', 'grant': ['USAGE'], 'database': '*.*'}",
		"nonsense": "{'user': '', 'host': '', 'grant': ['nonsense'], 'database': ''}",
	} {
		d, err := tokenizeGrant(t.Context(), nil, tokenArgs{text})
		if got := value.Repr(d); err != nil || got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
}

func TestRights(t *testing.T) {
	for _, bad := range []string{"SELECT; DROP DATABASE x", "SELECT ON x.* TO y -- ", "SELECT (a'b)", "SEL#ECT", ""} {
		if got, err := rights(bad); err == nil && bad != "" {
			t.Errorf("%q counts as rights %q", bad, got)
		}
	}
}

// FuzzReadGrant checks that no input causes a panic.
func FuzzReadGrant(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add("GRANT SELECT (a) ON `b`.* TO 'c'@'d'")
	f.Fuzz(func(t *testing.T, text string) {
		readGrant(text)
		statements(text)
	})
}
