package revision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/py/value"
	"brine/test/fuzztest"
)

func open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, path string, content []byte, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func take(t *testing.T, s *Store, trees ...Tree) Info {
	t.Helper()
	i, err := s.Take(t.Context(), trees)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func from(s *Store) Source {
	return func(_ context.Context, w []Want) ([][]byte, error) { return s.Read(w), nil }
}

// rooted returns a directory of a revision.
func rooted(t *testing.T, s *Store, id, kind, env string, n int) string {
	t.Helper()
	d, err := s.Roots(id, kind)
	if err != nil {
		t.Fatal(err)
	}
	l := d.List(env)
	if n >= len(l) {
		t.Fatalf("%s %s has %d directories", kind, env, len(l))
	}
	return value.Str(l[n])
}

// TestTakenAndFetched checks that a fetched revision equals the taken one: several directories of an
// environment, permissions, empty directories and links inside. A link that leads out becomes a file.
func TestTakenAndFetched(t *testing.T) {
	src := t.TempDir()
	one, two, pillar := filepath.Join(src, "one"), filepath.Join(src, "two"), filepath.Join(src, "pillar")
	large := make([]byte, 2*partBytes+5)
	for i := range large {
		large[i] = byte(rand.Uint32())
	}
	write(t, filepath.Join(one, "a.sls"), []byte("a"), 0o644)
	write(t, filepath.Join(one, "deep/run.sh"), []byte("run"), 0o755)
	write(t, filepath.Join(one, "deep/none"), nil, 0o644)
	write(t, filepath.Join(two, "a.sls"), []byte("b"), 0o644)
	write(t, filepath.Join(two, "large"), large, 0o644)
	write(t, filepath.Join(pillar, "top.sls"), []byte("secret"), 0o600)
	write(t, filepath.Join(src, "outside"), []byte("from elsewhere"), 0o644)
	for i := range 600 {
		write(t, filepath.Join(two, "many", fmt.Sprint(i)), fmt.Append(nil, "number ", i), 0o644)
	}
	for at, to := range map[string]string{"in": "deep/run.sh", "abs": filepath.Join(one, "a.sls"), "out": "../outside", "nowhere": "missing"} {
		if err := os.Symlink(to, filepath.Join(one, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(one, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	trees := []Tree{{"pillar_roots", "base", []string{pillar}}, {"file_roots", "base", []string{one, two, filepath.Join(src, "missing")}}}
	a, b := open(t), open(t)
	info := take(t, a, trees...)
	if sum, err := Sum(t.Context(), trees); err != nil || sum != info.ID {
		t.Errorf("%s, not %s: %v", sum, info.ID, err)
	}
	if err := b.Fetch(t.Context(), info.ID, from(a)); err != nil {
		t.Fatal(err)
	}
	got, err := b.Info(info.ID)
	if err != nil || got != info || info.Files != 607 {
		t.Errorf("%+v and %+v: %v", got, info, err)
	}
	if again := take(t, b, trees...); again.ID != info.ID {
		t.Errorf("the same directories are %s and %s", again.ID, info.ID)
	}
	top := rooted(t, b, info.ID, "file_roots", "base", 0)
	for name, want := range map[string]string{"a.sls": "a", "deep/run.sh": "run", "deep/none": "", "in": "run", "abs": "a", "out": "from elsewhere"} {
		if c, err := os.ReadFile(filepath.Join(top, name)); err != nil || string(c) != want {
			t.Errorf("%s: %q, not %q: %v", name, c, want, err)
		}
	}
	if fi, err := os.Stat(filepath.Join(top, "deep/run.sh")); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("permissions: %v %v", fi, err)
	}
	if to, err := os.Readlink(filepath.Join(top, "abs")); err != nil || to != "a.sls" {
		t.Errorf("a link into the directory became %q: %v", to, err)
	}
	if es, err := os.ReadDir(filepath.Join(top, "empty")); err != nil || len(es) != 0 {
		t.Errorf("the empty directory: %v %v", es, err)
	}
	if c, err := os.ReadFile(filepath.Join(rooted(t, b, info.ID, "file_roots", "base", 1), "large")); err != nil || !bytes.Equal(c, large) {
		t.Errorf("the large file is not the same: %v", err)
	}
	if c, err := os.ReadFile(filepath.Join(rooted(t, b, info.ID, "pillar_roots", "base", 0), "top.sls")); err != nil || string(c) != "secret" {
		t.Errorf("the pillar: %q %v", c, err)
	}
}

// TestOnlyWhatIsMissing checks that only new contents of a second revision are requested, and that an
// interrupted fetch continues.
func TestOnlyWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "same"), bytes.Repeat([]byte("s"), 1000), 0o644)
	tree := Tree{"file_roots", "base", []string{dir}}
	a, b := open(t), open(t)
	first := take(t, a, tree)
	if err := b.Fetch(t.Context(), first.ID, from(a)); err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), partBytes/4) // 4 parts
	write(t, filepath.Join(dir, "new"), large, 0o644)
	second := take(t, a, tree)
	if d, err := a.Diff(first.ID, second.ID); err != nil || d != (Diff{Added: 1}) {
		t.Errorf("%+v %v", d, err)
	}
	broken := errors.New("broken")
	bytesGot, asks := 0, 0
	counting := func(ctx context.Context, w []Want) ([][]byte, error) {
		if asks++; asks == 4 {
			return nil, broken
		}
		got := a.Read(w)
		for i, part := range got {
			if w[i].Sum != second.ID {
				bytesGot += len(part)
			}
		}
		return got, nil
	}
	if err := b.Fetch(t.Context(), second.ID, counting); !errors.Is(err, broken) || b.Has(second.ID) {
		t.Fatalf("broken off: %v, there: %v", err, b.Has(second.ID))
	}
	b, err := Open(b.dir) // a new process
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Fetch(t.Context(), second.ID, counting); err != nil {
		t.Fatal(err)
	}
	if bytesGot != len(large) {
		t.Errorf("%d bytes came, not %d", bytesGot, len(large))
	}
}

// TestLiesAreNotBelieved checks that wrong contents and lists are rejected.
func TestLiesAreNotBelieved(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), []byte("true"), 0o644)
	a, b := open(t), open(t)
	info := take(t, a, Tree{"file_roots", "base", []string{dir}})
	lie := func(_ context.Context, w []Want) ([][]byte, error) {
		got := a.Read(w)
		if w[0].Sum != info.ID {
			got[0] = []byte("lies")
		}
		return got, nil
	}
	if err := b.Fetch(t.Context(), info.ID, lie); err == nil || b.Has(info.ID) {
		t.Error("another content was believed")
	}
	if err := b.Fetch(t.Context(), info.ID, from(open(t))); err == nil {
		t.Error("fetched from nowhere")
	}
	for _, id := range []string{"", "..", strings.Repeat("/", 64)} {
		if err := b.Fetch(t.Context(), id, from(a)); err == nil || b.Has(id) {
			t.Errorf("%q is an id", id)
		}
	}
	sum := sumOf([]byte("true"))
	for what, es := range map[string][]Entry{
		"a path out of the directory": {{Path: "../x", Type: File, Sum: sum, Size: 4}},
		"an absolute path":            {{Path: "/x", Type: File, Sum: sum, Size: 4}},
		"a link out of the directory": {{Path: "x", Type: Link, To: "../x"}},
		"a link by another link":      {{Path: "b", Type: Link, To: "."}, {Path: "x", Type: Link, To: "b/../x"}},
		"an absolute link":            {{Path: "x", Type: Link, To: "/etc"}},
		"a file below a link":         {{Path: "d", Type: Link, To: "."}, {Path: "d/x", Type: File, Sum: sum, Size: 4}},
		"a file below nothing":        {{Path: "d/x", Type: File, Sum: sum, Size: 4}},
		"a file twice":                {{Path: "x", Type: File, Sum: sum, Size: 4}, {Path: "x", Type: File, Sum: sum, Size: 4}},
		"a hash that is a path":       {{Path: "x", Type: File, Sum: strings.Repeat("../", 21) + "x", Size: 4}},
		"permissions for other user":  {{Path: "x", Type: File, Sum: sum, Size: 4, Mode: 0o4755}},
	} {
		list, err := encode([]Listed{{"file_roots", "base", [][]Entry{es}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode(list); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

// TestKeep checks that revisions and the contents that only they use are removed.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	tree := Tree{"file_roots", "base", []string{dir}}
	s := open(t)
	write(t, path, []byte("one"), 0o644)
	one := take(t, s, tree)
	write(t, path, []byte("two"), 0o644)
	two := take(t, s, tree)
	if err := s.Keep(map[string]bool{two.ID: true}); err != nil {
		t.Fatal(err)
	}
	if s.Has(one.ID) || !s.Has(two.ID) || s.has(sumOf([]byte("one")), 0o644) || !s.has(sumOf([]byte("two")), 0o644) {
		t.Error("the wrong things were removed")
	}
	// A content that was not on disk when the machine crashed.
	bad := s.content(sumOf([]byte("whole")), usualMode)
	write(t, bad, []byte("ha"), 0o644)
	if _, err := Open(s.dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bad); err == nil {
		t.Error("half a content is kept")
	}
}

// TestUnreadable checks that unreadable entries are reported, not left out.
func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../..", filepath.Join(dir, "d", "up")); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t).Take(t.Context(), []Tree{{"file_roots", "base", []string{filepath.Join(dir, "d")}}}); err == nil {
		t.Error("a link that leads around was followed to some end")
	}
}

func FuzzDecode(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	list,
		err := encode([]Listed{{"file_roots", "base",
		[][]Entry{{{Path: "d", Type: Directory}, {Path: "d/x", Type: File, Sum: sumOf(nil)}, {Path: "l", Type: Link, To: "d/x"}}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(list)
	f.Fuzz(func(t *testing.T, b []byte) {
		trees, err := decode(b)
		if err != nil {
			return
		}
		for _, tree := range trees {
			for _, d := range tree.Dirs {
				for _, e := range d {
					if !filepath.IsLocal(e.Path) || e.Type == Link && !filepath.IsLocal(filepath.Join(filepath.Dir(e.Path), e.To)) {
						t.Errorf("%+v", e)
					}
				}
			}
		}
	})
}
