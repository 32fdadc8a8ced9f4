package extmods

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"brine/internal/files/fileclient"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
)

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSync(t *testing.T) {
	base, dev, cache := t.TempDir(), t.TempDir(), t.TempDir()
	log := slog.New(slog.DiscardHandler)
	server := fileserver.New(fileserver.Options{Backends: []string{"roots"}, FollowSymlinks: true,
		FileRoots: value.DictOf("base", value.ListOf(base), "dev", value.ListOf(dev))},
		fileserver.Config{CacheDir: t.TempDir(), HashType: "sha256", BufferSize: 1 << 16}, log)
	files := fileclient.New(server, fileclient.Options{CacheDir: cache}, log)
	write(t, base, map[string]string{"_modules/a.py": "1", "_modules/sub/b.py": "2", "_modules/readme.txt": "3", "_states/s.py": "4", "web/init.sls": "5"})
	write(t, dev, map[string]string{"_modules/c.py": "6", "_modules/a.py": "of dev"})
	dir := filepath.Join(t.TempDir(), "extmods")
	sync := func(envs string, white, black []string) string {
		t.Helper()
		names, changed, err := Sync(t.Context(), files, dir,
			Query{Kind: "modules", Envs: strings.Split(envs, ","), Whitelist: white, Blacklist: black, Clean: true}, log)
		if err != nil {
			t.Fatal(err)
		}
		out := strings.Join(names, " ")
		if changed {
			out += " changed"
		}
		return out
	}
	for _, c := range []struct {
		envs         string
		white, black []string
		want         string
	}{
		{"base", nil, nil, "modules.a modules.sub.b changed"},
		{"base", nil, nil, ""},
		{"base,dev", nil, nil, "modules.a modules.c changed"},
		{"base", nil, []string{"sub.b"}, "modules.a changed"}, // c and sub.b are removed
		{"base", []string{"a"}, nil, ""},
		{"base", []string{}, nil, " changed"},
	} {
		if got := sync(c.envs, c.white, c.black); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if found, err := filepath.Glob(filepath.Join(dir, "modules", "*")); err != nil || len(found) > 0 {
		t.Error(found, err)
	}
	kinds, err := Kinds(t.Context(), files, []string{"base"})
	if err != nil || !kinds["modules"] || !kinds["states"] || kinds["grains"] {
		t.Error(kinds, err)
	}
}

func TestScan(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	write(t, first, map[string]string{
		"plain.py": "def x():\n    pass\n",
		"named.py": "__virtualname__ = 'virtual'\n\n\ndef __virtual__():\n    return __virtualname__\n",
		"pkg.py":   "def __virtual__():\n    if True:\n        return \"package\"\n\n    return False\n\n\ndef other():\n    return 'no name'\n",
		"alias.py": "__virtual_aliases__ = ('one', \"two\")\n", "_private.py": "", "text.txt": "", "whole/__init__.py": "", "empty/x.txt": "",
	})
	write(t, second, map[string]string{"plain.py": "hidden", "more.cpython-311-x86_64-linux-gnu.so": ""})
	l := Scan([]string{first, filepath.Join(first, "nothing"), second})
	want := map[string]string{"plain": "plain", "named": "named", "virtual": "named", "pkg": "pkg", "package": "pkg",
		"alias": "alias", "one": "alias", "two": "alias",
		"whole": "whole", "more": "more"}
	for name, stem := range want {
		if !slices.Equal(l.Claims[name], []string{stem}) {
			t.Errorf("%s is claimed by %v", name, l.Claims[name])
		}
	}
	if len(l.Claims) != len(want) || len(l.Paths) != 6 || l.Paths["plain"] != filepath.Join(first, "plain.py") {
		t.Error(l.Claims, l.Paths)
	}
	write(t, first, map[string]string{"plain.py": "def changed():\n    pass\n"})
	if Scan([]string{first, second}).Stamp == l.Stamp {
		t.Error("a changed file is not noticed")
	}
}

func TestDirs(t *testing.T) {
	opts := value.DictOf("python", "/nonexistent", "module_dirs", value.ListOf("/a"), "states_dirs", value.ListOf("/b"))
	if got := strings.Join(Dirs(opts, "/ext", "states"), " "); got != "/a/states /a/_states /b /ext/states" {
		t.Error(got)
	}
	if got := Names(value.DictOf("states", value.ListOf("x")), "modules"); got != nil {
		t.Error(got)
	}
	if got := Names("x,y", "modules"); len(got) != 2 {
		t.Error(got)
	}
}

// TestScanAsSalt checks links and names with dots as Salt treats them: a link to a package is a package, and a
// file with a dot in its name is no module.
func TestScanAsSalt(t *testing.T) {
	dir, there := t.TempDir(), t.TempDir()
	for _, name := range []string{"pkg/__init__.py", "plain.py"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(there, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(there, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"package": "pkg", "module.py": "plain.py", "directory.py": "pkg", "dangling": "none", "dangling.py": "none.py"} {
		if err := os.Symlink(filepath.Join(there, to), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"dotted.name.py", "compiled.cpython-311-x86_64-linux-gnu.so"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := Scan([]string{dir})
	if got := slices.Sorted(maps.Keys(l.Paths)); !slices.Equal(got, []string{"compiled", "module", "package"}) {
		t.Errorf("the modules are %q", got)
	}
	if want := filepath.Join(dir, "package", "__init__.py"); l.Paths["package"] != want {
		t.Errorf("the file of a linked package is %s, want %s", l.Paths["package"], want)
	}
}

// TestScanLargeFiles checks that a file of any size is listed without being read completely,
// and that only regular files are listed.
func TestScanLargeFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "large.py"), []byte("__virtualname__ = 'other'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "large.py"), 1<<40); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo.py"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "zero.py")); err != nil {
		t.Fatal(err)
	}
	l := Scan([]string{dir})
	if len(l.Paths) != 1 || l.Paths["large"] == "" || len(l.Claims) != 1 {
		t.Errorf("%v", l)
	}
}

// TestSyncOnFullDisk checks that the call fails with the path of a module that does not fit.
// Existing modules stay complete, including those that the file server lacks now. When there
// is space, the sync succeeds.
func TestSyncOnFullDisk(t *testing.T) {
	base, dir := t.TempDir(), t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("cannot mount a small file system:", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	log := slog.New(slog.DiscardHandler)
	server := fileserver.New(fileserver.Options{Backends: []string{"roots"}, FileRoots: value.DictOf("base", value.ListOf(base))},
		fileserver.Config{CacheDir: t.TempDir(), HashType: "sha256", BufferSize: 1 << 16}, log)
	files := fileclient.New(server, fileclient.Options{CacheDir: t.TempDir()}, log)
	sync := func() ([]string, bool, error) {
		return Sync(t.Context(), files, dir, Query{Kind: "modules", Envs: []string{"base"}, Clean: true}, log)
	}
	write(t, base, map[string]string{"_modules/a.py": "old", "_modules/gone.py": "x"})
	if _, _, err := sync(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(base, "_modules/gone.py")); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("# a comment\n", 10000)
	write(t, base, map[string]string{"_modules/a.py": large, "_modules/b.py": "new"})
	_, _, err := sync()
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), filepath.Join(dir, "modules/a.py")) {
		t.Errorf("the error is %v", err)
	}
	for name, want := range map[string]string{"a.py": "old", "gone.py": "x"} {
		if got, err := os.ReadFile(filepath.Join(dir, "modules", name)); string(got) != want {
			t.Errorf("%s: %.20q %v", name, got, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "modules", ".*")); err != nil || len(left) > 0 {
		t.Error("what could not be written is left:", left, err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=1m"); err != nil {
		t.Fatal(err)
	}
	names, changed, err := sync()
	if err != nil || !changed || strings.Join(names, " ") != "modules.a modules.b" {
		t.Error(names, changed, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "modules/gone.py")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
