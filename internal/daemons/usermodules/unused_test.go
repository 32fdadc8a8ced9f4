package usermodules

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/py/value"
)

// TestLogUnused checks that modules of kinds that do not run are reported, and others not.
func TestLogUnused(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"ext/log_handlers/own.py", "ext/modules/used.py", "ext/matchers/__init__.py", "more/_matchers/glob_match.py", "more/proxy/box.py",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	LogUnused(value.DictOf("module_dirs", value.ListOf(filepath.Join(dir, "more"))), filepath.Join(dir, "ext"), slog.New(slog.NewTextHandler(&out, nil)))
	for _, want := range []string{"kind=log_handlers names=own\n", "kind=matchers names=glob_match\n", "kind=proxy names=box\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Count(out.String(), "\n") != 3 {
		t.Errorf("further warnings:\n%s", out.String())
	}
}
