package config

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/test/tools"
)

var update = flag.Bool("update", false, "rewrite what testdata expects")

// sections of an archive with expected output.
var expected = []string{"values", "paths", "warnings", "errors"}

// warnings is a slog.Handler that records warnings and errors.
type warnings struct {
	slog.Handler
	out *bytes.Buffer
}

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	fmt.Fprintf(w.out, "%s %s", r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(w.out, " %s=%v", a.Key, a.Value)
		return true
	})
	w.out.WriteByte('\n')
	return nil
}

func logTo(b *bytes.Buffer) *slog.Logger {
	return slog.New(warnings{slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelWarn}), b})
}

// box is a Machine with fixed properties.
var box = Machine{
	Hostname:  func() (string, error) { return "box", nil },
	FullName:  func(n string) string { return n + ".example.com" },
	ReadFile:  func(string) ([]byte, error) { return nil, os.ErrNotExist },
	Addresses: func() []netip.Addr { return nil },
}

// unpack writes an archive's files to a directory and returns the kind of their
// configuration.
func unpack(t *testing.T, a *txtar.Archive) (dir string, k Kind) {
	t.Helper()
	dir, k = t.TempDir(), MasterKind
	for _, f := range a.Files {
		if slices.Contains(expected, f.Name) {
			continue
		}
		if strings.HasPrefix(f.Name, "minion") {
			k = MinionKind
		}
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir, k
}

// run loads a configuration and describes the result.
func run(t *testing.T, dir string, k Kind) map[string]string {
	t.Helper()
	var logged bytes.Buffer
	log := logTo(&logged)
	tree, err := Load(filepath.Join(dir, string(k)), k, log)
	got := map[string]string{"values": yaml.Dump(tree.Values, yaml.KeepOrder())}
	var err2 error
	if k == MasterKind {
		var m *Master
		tree.WarnUnknown(&Master{})
		if m, err2 = NewMaster(tree, box, log); err2 == nil {
			f := m.Files
			got["paths"] = lines(f.ID, f.PKIDir, f.CacheDir, f.SockDir, f.PIDFile, f.ExtensionModules, f.TokenDir, m.Log.File, m.Events.SockDir,
				m.Keys.AutosignFile)
		}
	} else {
		var m *Minion
		tree.WarnUnknown(&Minion{})
		if m, err2 = NewMinion(tree, box, false, log); err2 == nil {
			f := m.Files
			got["paths"] = lines(f.ID, f.PKIDir, f.CacheDir, f.SockDir, f.PIDFile, f.ExtensionModules, m.Log.File, m.Events.SockDir)
		}
	}
	if err := both(tree, err, err2); err != nil {
		if ExitCode(err) != ExitInvalid {
			t.Errorf("exit code %d", ExitCode(err))
		}
		got["errors"] = err.Error() + "\n"
		delete(got, "paths")
	}
	got["warnings"] = logged.String()
	for k, v := range got {
		got[k] = strings.ReplaceAll(v, dir, "$DIR")
	}
	return got
}

func lines(s ...string) string { return strings.Join(s, "\n") + "\n" }

func TestFiles(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) < 25 {
		t.Fatalf("%d archives, %v", len(archives), err)
	}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			dir, k := unpack(t, a)
			got := run(t, dir, k)
			if *update {
				rewrite(t, path, a, got)
				return
			}
			want := map[string]string{}
			for _, f := range a.Files {
				want[f.Name] = string(f.Data)
			}
			for _, section := range expected {
				if got[section] != want[section] {
					t.Errorf("%s:\ngot\n%swant\n%s", section, got[section], want[section])
				}
			}
		})
	}
}

func rewrite(t *testing.T, path string, a *txtar.Archive, got map[string]string) {
	t.Helper()
	a.Files = slices.DeleteFunc(a.Files, func(f txtar.File) bool { return slices.Contains(expected, f.Name) })
	for _, section := range expected {
		if got[section] != "" {
			a.Files = append(a.Files, txtar.File{Name: section, Data: []byte(got[section])})
		}
	}
	if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
		t.Fatal(err)
	}
}

// stockMerge prints, for each directory, the values that Salt reads from its files, without
// those that Salt adds itself; null after an error.
const stockMerge = `
import json, os, sys, logging
logging.disable(logging.CRITICAL)
import salt.config as c

def load(path, kind):
    opts = c.load_config(path, "SALT_NO_SUCH", path, exit_on_config_errors=True)
    inc, more = opts.get("default_include", kind + ".d/*.conf"), opts.get("include", [])
    opts.update(c.include_config(inc, path, False, exit_on_config_errors=True))
    opts.update(c.include_config(more, path, True, exit_on_config_errors=True))
    opts.pop("conf_file", None)
    return {str(k): v for k, v in opts.items()}

out = {}
for path in sys.argv[1:]:
    try:
        out[path] = load(path, os.path.basename(path))
    except (SystemExit, Exception):
        out[path] = None
print(json.dumps(out))
`

// TestMergeAsSalt: stock Salt reads the same values from the same files.
func TestMergeAsSalt(t *testing.T) {
	stock, python := tools.StockSalt(t)
	kinds := map[string]Kind{}
	args := []string{"-W", "ignore", "-c", stockMerge}
	for _, name := range []string{"empty", "missing", "order", "nested", "schedule", "types", "unknown", "tabs", "duplicate", "list", "binary", "python_tag",
		"nulls", "doors", "paths", "loop", "directory", "many", "masters"} {
		a, err := txtar.ParseFile("testdata/" + name + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		dir, k := unpack(t, a)
		path := filepath.Join(dir, string(k))
		kinds[path] = k
		args = append(args, path)
	}
	cmd := exec.Command(python, args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+stock)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var salt map[string]map[string]any
	if err := json.Unmarshal(out, &salt); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for path, k := range kinds {
		tree, err := Load(path, k, quiet())
		if (err != nil) != (salt[path] == nil) {
			t.Errorf("error %v, Salt %v", err, salt[path])
		}
		if err != nil || salt[path] == nil {
			continue
		}
		got := value.NewDict(0)
		for k, v := range tree.Values.All() {
			got.Set(value.Str(k), v)
		}
		if want := fromJSON(salt[path]); !value.Equal(got, want) {
			t.Errorf("got  %s\nSalt %s", value.Repr(got), value.Repr(want))
		}
	}
}

func fromJSON(v any) any {
	switch x := v.(type) {
	case map[string]any:
		d := value.NewDict(len(x))
		for k, w := range x {
			d.Set(k, fromJSON(w))
		}
		return d
	case []any:
		l := &value.List{}
		for _, w := range x {
			l.Append(fromJSON(w))
		}
		return l
	}
	return v
}

// TestUnreadFiles: files whose names default_include does not match are named, if they look like
// files of the configuration.
func TestUnreadFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "minion", "id: web 1\n")
	if err := os.Mkdir(filepath.Join(dir, "minion.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.conf", "b.yaml", ".c.conf", "README", "d.conf.bak", "e.conf~", "f", "g.CONF", "h.txt", "i.conf.rpmnew",
		"j.conf.dpkg-dist", "k.conf", "readme.txt", ".l.swp", "m.conf.disabled"} {
		write(t, dir, "minion.d/"+name, "x: 1\n")
	}
	var out bytes.Buffer
	m, tree, err := LoadMinion(filepath.Join(dir, "minion"), false, slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	tree.WarnPaths(m)
	s := out.String()
	if strings.Count(s, "is not read") != 5 || !strings.Contains(s, "the id has a blank") {
		t.Error(s)
	}
	for _, name := range []string{"b.yaml", ".c.conf", "f", "g.CONF", "h.txt"} {
		if !strings.Contains(s, "/minion.d/"+name+"\n") {
			t.Errorf("no %s in %s", name, s)
		}
	}
	for id, warned := range map[string]bool{"web*": true, "web[1]": true, "a,b": true, "web-1.example.com": false} {
		out.Reset()
		write(t, dir, "minion", "id: '"+id+"'\n")
		m, tree, err := LoadMinion(filepath.Join(dir, "minion"), false, slog.New(slog.NewTextHandler(&out, nil)))
		if err != nil {
			t.Fatal(err)
		}
		tree.WarnPaths(m)
		if strings.Contains(out.String(), "means something else in targets") != warned {
			t.Errorf("%s: %s", id, out.String())
		}
	}
}
