package sources

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"brine/internal/fileclient"
	"brine/internal/fileserver"
	"brine/internal/fn"
	"brine/internal/state"
	"brine/internal/value"
)

// TestFirstThere has names of which one begins another: a master lists files
// by the beginning of their names, and only what is in a folder makes one.
func TestFirstThere(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.conf.jinja": "x", "tree/file": "y"} {
		path := filepath.Join(dir, "roots", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	quiet := slog.New(slog.DiscardHandler)
	srv := fileserver.New(fileserver.Options{
		FileRoots: value.DictOf("base", value.ListOf(filepath.Join(dir, "roots"))), Backends: []string{"roots"}, IgnoreRegex: value.ListOf(), IgnoreGlob: value.ListOf(),
	}, fileserver.Config{CacheDir: filepath.Join(dir, "cache"), HashType: "sha256"}, quiet)
	e := &state.Env{Call: &fn.Call{Files: fileclient.New(srv, fileclient.Options{CacheDir: filepath.Join(dir, "minion"), HashType: "sha256"}, quiet)}}
	for _, c := range []struct {
		names []any
		want  string
	}{
		{[]any{"salt://a.conf", "salt://a.conf.jinja"}, "salt://a.conf.jinja"},
		{[]any{"salt://none", "salt://tree", "salt://a.conf.jinja"}, "salt://tree"},
		{[]any{"salt://tre", "salt://a"}, ""},
	} {
		all, err := Read(value.ListOf(c.names...), "", "base")
		if err != nil {
			t.Fatal(err)
		}
		got, err := FirstThere(t.Context(), e, all)
		if got.URL != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%v: got %q, %v", c.names, got.URL, err)
		}
	}
}
