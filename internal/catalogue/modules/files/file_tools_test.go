package files

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/host"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
)

// keep makes two backup copies of one file, and one of another.
func keep(t *testing.T) (cache, path string) {
	t.Helper()
	cache, path = t.TempDir(), filepath.Join(t.TempDir(), "my_file")
	root := filepath.Join(cache, "file_backup")
	for i, text := range []string{"old\n", "new!\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := filesys.Backup(path, root, time.Date(2026, 11, 22, 1, 2, 3+i, 45000, time.UTC)); err != nil {
			t.Fatal(err)
		}
	}
	other := filepath.Join(filepath.Dir(path), "b")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := filesys.Backup(other, root, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, filepath.Dir(path), "my_file_stray"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return cache, path
}

func TestBackups(t *testing.T) {
	cache, path := keep(t)
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	job := func(fun string, arg ...any) string {
		c := &fn.Call{Config: fn.Tree{Dict: value.DictOf("cachedir", cache)}}
		return strings.NewReplacer(cache, "C", filepath.Dir(path), "/D").Replace(value.Repr(r.Run(t.Context(), c, fn.Job{Fun: fun, Arg: arg}).Return))
	}
	const newer = "{'Backup Time': 'Sun Nov 22 2026 01:02:04.000045', 'Size': 5, 'Location': 'C/file_backup/D/my_file_Sun_Nov_22_01:02:04_000045_2026'}"
	const older = "{'Backup Time': 'Sun Nov 22 2026 01:02:03.000045', 'Size': 4, 'Location': 'C/file_backup/D/my_file_Sun_Nov_22_01:02:03_000045_2026'}"
	const other = "{0: {'Backup Time': 'Fri Jan 02 2026 03:04:05.000000', 'Size': 0, 'Location': 'C/file_backup/D/b_Fri_Jan_02_03:04:05_000000_2026'}}"
	for _, c := range []struct {
		fun  string
		arg  []any
		want string
	}{
		{"file.list_backups", []any{path}, "{0: " + newer + ", 1: " + older + "}"},
		{"file.list_backup", []any{path, 1}, "{0: " + newer + "}"},
		{"file.list_backups", []any{"/none"}, "{}"},
		{"file.list_backups_dir", []any{filepath.Dir(path) + "/"}, "{'b': " + other + ", 'my_file': {0: " + newer + ", 1: " + older + "}}"},
		{"file.restore_backup", []any{path, "01"}, "{'result': False, 'comment': \"Invalid backup_id '01'\"}"},
		{"file.restore_backup", []any{path, 2}, "{'result': False, 'comment': \"backup_id '2' does not exist for /D/my_file\"}"},
		{"file.restore_backup", []any{path, 1},
			"{'result': True, 'comment': 'Successfully restored C/file_backup/D/my_file_Sun_Nov_22_01:02:03_000045_2026 to /D/my_file'}"},
		{"file.delete_backup", []any{path, 2}, "{'result': True, 'comment': 'Successfully removed C/file_backup/D/my_file_Sun_Nov_22_01:02:03_000045_2026'}"},
	} {
		if got := job(c.fun, c.arg...); got != c.want {
			t.Errorf("%s %v: got  %s\nwant %s", c.fun, c.arg, got, c.want)
		}
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "old\n" {
		t.Errorf("%q, %v", b, err)
	}
	if left := strings.Count(job("file.list_backups", path), "Location"); left != 2 { // includes the copy made by the restore
		t.Errorf("%d copies", left)
	}
}

func TestBackupsLikeSalt(t *testing.T) {
	cache, path := keep(t)
	jobs := [][]any{{"file.list_backups", path}, {"file.list_backups", path, 1}, {"file.restore_backup", path, 7}, {"file.delete_backup", path, 0},
		{"file.restore_backup", path, 0}}
	recorded := stocktest.Ask(t, map[string]any{"root_dir": cache, "cachedir": "/"}, jobs...)
	mine, path2 := keep(t)
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := strings.NewReplacer(mine, "C", filepath.Dir(path2), "D"), strings.NewReplacer(cache, "C", filepath.Dir(path), "D")
	for i, j := range recorded {
		c := &fn.Call{Config: fn.Tree{Dict: value.DictOf("cachedir", mine)}}
		arg := slices.Clone(jobs[i][1:])
		arg[0] = path2
		got := r.Run(t.Context(), c, fn.Job{Fun: j.Str("fun"), Arg: arg}).Return
		d := value.NewDict(0) // JSON cannot have numbers as keys
		if all, ok := got.(*value.Dict); ok {
			for k, v := range all.All() {
				d.Set(value.Str(k), v)
			}
		}
		if g, w := ours.Replace(value.Repr(d)), theirs.Replace(value.Repr(j.At("return"))); g != w {
			t.Errorf("%v: returns %s\nSalt: %s", jobs[i], g, w)
		}
	}
}

// TestPrograms checks the arguments of lsattr and chattr.
func TestPrograms(t *testing.T) {
	m := &host.Machine{Root: t.TempDir()}
	for _, p := range []string{"/bin/lsattr", "/bin/chattr"} {
		if err := m.WriteFile(p, nil); err != nil {
			t.Fatal(err)
		}
		if err := m.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var calls []string
	m.Exec = func(_ context.Context, path string, args ...string) (string, int, error) {
		calls = append(calls, strings.Join(append([]string{filepath.Base(path)}, args...), " "))
		if filepath.Base(path) == "lsattr" {
			return "----i---------e------- /x y\nlsattr: no\n--------------------- /z", 0, nil
		}
		return "", 0, nil
	}
	r, err := fn.NewRegistry(nil, Modules(m)...)
	if err != nil {
		t.Fatal(err)
	}
	run := func(fun string, arg ...any) fn.Outcome {
		return r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: fun, Arg: arg})
	}
	if got := value.Repr(run("file.lsattr", "/").Return); got != "{'/x y': ['i', 'e'], '/z': []}" {
		t.Errorf("%s", got)
	}
	if o := run("file.chattr", "/a", "-b", "operator=remove", "attributes=ai", "flags=R", "version=5"); o.Return != true ||
		calls[len(calls)-1] != "chattr -ai -R -v 5 -- /a -b" {
		t.Errorf("%+v, ran %q", o, calls)
	}
	calls = nil
	for _, c := range [][]any{{"/a", "operator=add", "attributes=a b"}, {"/a", "operator=what", "attributes=a"}, {"/a", "operator=add"}} {
		if o := run("file.chattr", c...); o.Success || len(calls) != 0 {
			t.Errorf("%v: %+v, ran %q", c, o, calls)
		}
	}
	if o := run("file.patch", "/a", "/b"); o.Return != "ERROR: patch executable not found. Is the distribution's patch package installed?" {
		t.Errorf("%+v", o)
	}
}

// TestOpenFiles finds the files that this test has open.
func TestOpenFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "open")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	all, _ := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "file.open_files"}).Return.(*value.Dict)
	if pids := all.List(path); !slices.Contains(pids, any(int64(os.Getpid()))) {
		t.Errorf("%s is open in %v", path, pids)
	}
	byPID, _ := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "file.open_files", Arg: []any{true}}).Return.(*value.Dict)
	v, _ := byPID.Get(int64(os.Getpid()))
	if l, ok := v.(*value.List); !ok || !slices.Contains(l.Items, any(path)) {
		t.Errorf("this process has %v", value.Repr(v))
	}
}

// TestAppendAtOnce checks that concurrent appends to one file lose no line.
func TestAppendAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	const writers, each = 4, 50
	var g sync.WaitGroup
	for range writers {
		g.Go(func() {
			for range each {
				if got := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "file.append", Arg: []any{path, "a line"}}); !got.Success {
					t.Errorf("file.append: %v", got.Return)
				}
			}
		})
	}
	g.Wait()
	if b, _ := os.ReadFile(path); string(b) != strings.Repeat("a line\n", writers*each) {
		t.Errorf("%d lines are there, want %d", strings.Count(string(b), "\n"), writers*each)
	}
}
