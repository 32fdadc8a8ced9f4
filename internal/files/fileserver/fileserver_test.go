package fileserver

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/internal/py/value"
	"brine/test/fuzztest"
)

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// served returns a server with the environments DIR/base and DIR/any/ENV, and DIR.
func served(t testing.TB, follow bool) (*Server, string) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir+"/base/a/file", "text\n")
	write(t, dir+"/base/b", strings.Repeat("x", 5000))
	write(t, dir+"/any/qa/q", "qa\n")
	write(t, dir+"/secret", "secret\n")
	for link, to := range map[string]string{"out": "../secret", "in": "a/file", "dir-out": "..", "self": "."} {
		if err := os.Symlink(to, dir+"/base/"+link); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Backends: []string{"roots"}, FollowSymlinks: follow,
		FileRoots: value.DictOf("base", value.ListOf(dir+"/base"), "__env__", value.ListOf(dir+"/any/__env__"))}
	return New(o, Config{CacheDir: dir + "/cache", HashType: "sha256", BufferSize: 1000}, slog.New(slog.DiscardHandler)), dir
}

func ask(t testing.TB, s *Server, cmd string, pairs ...any) any {
	t.Helper()
	load := value.DictOf(pairs...)
	load.Set("cmd", cmd)
	v, err := s.Request(context.Background(), load)
	if err != nil {
		t.Fatalf("%s %s: %v", cmd, value.Repr(load), err)
	}
	return v
}

// hostile are paths and environments that lead out of the directories.
var hostile = [][2]string{
	{"../secret", "base"}, {"a/../../secret", "base"}, {"/etc/passwd", "base"}, {"..", "base"}, {"a/..", "base"}, {"", "base"}, {".", "base"}, {"a", "base"},
	{"a/file\x00", "base"}, {"|../secret", "base"}, {"||../secret", "base"}, {"|/etc/passwd", "base"}, {"secret", ".."}, {"secret", "../.."},
	{"secret", "qa/../.."},
	{"passwd", "/etc"}, {"secret", "."}, {"secret", ""}, {"secret?saltenv=..", "base"}, {"../secret?saltenv=qa", "base"}, {"a/file?index=9", "base"},
	{"a/file?index=x", "base"}, {"q", "base"}, {"base/a/file", "qa/.."}, {"b/", "nosuch\x00"}, {strings.Repeat("a/", 5000), "base"},
}

func TestNothingOutsideIsServed(t *testing.T) {
	s, _ := served(t, true)
	for _, h := range hostile {
		for _, cmd := range []string{"_file_find", "_file_hash", "_serve_file", "_file_hash_and_stat"} {
			v := ask(t, s, cmd, "path", h[0], "saltenv", h[1], "loc", 0)
			switch x := v.(type) {
			case *value.Dict:
				if x.Str("path") != "" || x.Str("dest") != "" || len(x.Bytes("data")) > 0 || x.Has("hsum") {
					t.Errorf("%s %q: %s", cmd, h, value.Repr(x))
				}
			case string:
				if x != "" {
					t.Errorf("%s %q: %q", cmd, h, x)
				}
			case *value.List:
				if x.Items[0] != "" || x.Items[1] != nil {
					t.Errorf("%s %q: %s", cmd, h, value.Repr(x))
				}
			}
		}
	}
	for _, env := range []string{"..", "../..", "/", "/etc", "", "qa/..", "\x00"} {
		for _, cmd := range []string{"_file_list", "_dir_list", "_file_list_emptydirs"} {
			if l := ask(t, s, cmd, "saltenv", env, "prefix", "").(*value.List); l.Len() > 0 {
				t.Errorf("%s %q: %s", cmd, env, value.Repr(l))
			}
		}
	}
}

// TestFindLocal checks that an absolute path is found below the directories of file_roots
// only.
func TestFindLocal(t *testing.T) {
	for _, follow := range []bool{true, false} {
		s, dir := served(t, follow)
		for _, c := range []struct {
			path, env string
			ok        bool
		}{
			{dir + "/base/a/file", "", true}, {dir + "/base/a/file", "base", true}, {dir + "/base//a/./file", "base", true},
			{dir + "/base/a/../b", "base", true}, {dir + "/any/qa/q", "qa", true}, {dir + "/base/out", "base", follow}, {dir + "/base/in", "base", true},
			{dir + "/base/a/file", "qa", false}, {dir + "/any/qa/q", "base", false}, {dir + "/any/qa/q", "", false}, {dir + "/secret", "base", false},
			{dir + "/base/../secret", "base", false}, {dir + "/secret", "..", false}, {dir + "/secret", "../..", false}, {dir + "/secret", "qa/../..", false},
			{dir + "/any/qa/q", "qa/../qa", false}, {dir + "/base", "base", false}, {dir + "/base/a", "base", false}, {dir + "/base2/x", "base", false},
			{dir + "/base/a/file\x00", "base", false}, {"/etc/passwd", "", false}, {"/etc/passwd", "base", false}, {"a/file", "base", false}, {"", "", false},
			{dir + "/base/dir-out/secret", "base", follow},
		} {
			if f, ok := s.FindLocal(c.path, c.env); ok != c.ok {
				t.Errorf("%s in %q, links followed: %v: %v, %+v", c.path, c.env, follow, ok, f)
			}
		}
	}
}

func TestSymlinks(t *testing.T) {
	for _, follow := range []bool{true, false} {
		s, _ := served(t, follow)
		for path, want := range map[string]bool{"in": true, "out": follow, "dir-out/secret": follow, "self/a/file": true, "self/out": follow} {
			if got := ask(t, s, "_file_hash", "path", path, "saltenv", "base") != ""; got != want {
				t.Errorf("follow %v: %s served: %v", follow, path, got)
			}
		}
		l := ask(t, s, "_file_list", "saltenv", "base", "prefix", "").(*value.List)
		if l.Len() > 40 || !slices.Contains(l.Items, any("a/file")) {
			t.Errorf("follow %v: %s", follow, value.Repr(l)) // circular links must end
		}
	}
}

func TestChangesAreSeenAtOnce(t *testing.T) {
	s, dir := served(t, false)
	list := func() string {
		return value.Repr(ask(t, s, "_file_list", "saltenv", "base", "prefix", "new")) +
			value.Repr(ask(t, s, "_file_list_emptydirs", "saltenv", "base", "prefix", ""))
	}
	hash := func() any { return ask(t, s, "_file_hash", "path", "b", "saltenv", "base").(*value.Dict).At("hsum") }
	for i := range 20 {
		before, sum := list(), hash()
		write(t, dir+"/base/new/"+strings.Repeat("n", i+1), "")
		if list() == before {
			t.Fatalf("after %d: a new file is not listed", i)
		}
		write(t, dir+"/base/b", strings.Repeat(string(rune('a'+i)), 5000))
		if hash() == sum {
			t.Fatalf("after %d: a changed file has the old hash", i)
		}
	}
	if err := os.RemoveAll(dir + "/base/new"); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(list(), "new") {
		t.Error("what was removed is listed")
	}
}

func TestServeInParts(t *testing.T) {
	s, dir := served(t, true)
	want, _ := os.ReadFile(dir + "/base/b")
	for _, level := range []int{0, 1, 9, 99} {
		var got []byte
		parts := 0
		for {
			d := ask(t, s, "_serve_file", "path", "b", "saltenv", "base", "loc", len(got), "gzip", level).(*value.Dict)
			data := d.Bytes("data")
			if len(data) == 0 {
				if d.Str("dest") != "b" {
					t.Errorf("the end has the name %q", d.Str("dest"))
				}
				break
			}
			if d.Has("gzip") != (level > 0) {
				t.Fatalf("level %d: %s", level, value.Repr(d.Keys()))
			}
			if level > 0 {
				z, err := gzip.NewReader(bytes.NewReader(data))
				if err != nil {
					t.Fatal(err)
				}
				data, _ = io.ReadAll(z)
			}
			got = append(got, data...)
			parts++
		}
		if !bytes.Equal(got, want) || parts != 5 {
			t.Errorf("level %d: %d bytes in %d parts", level, len(got), parts)
		}
	}
	for _, loc := range []any{-1, "x", nil, 1.5} {
		if v, err := s.Request(context.Background(), value.DictOf("cmd", "_serve_file", "path", "b", "saltenv", "base", "loc", loc)); err == nil {
			t.Errorf("loc %v: %s", loc, value.Repr(v))
		}
	}
}

func TestUpdate(t *testing.T) {
	s, dir := served(t, true)
	update := func() Changes {
		c, err := s.Update(context.Background())
		if err != nil || len(c) != 1 {
			t.Fatal(c, err)
		}
		return c[0]
	}
	if c := update(); !c.Any || !slices.Contains(c.Added, dir+"/base/a/file") {
		t.Errorf("first: %+v", c)
	}
	if c := update(); c.Any {
		t.Errorf("nothing has changed: %+v", c)
	}
	write(t, dir+"/base/more", "")
	if err := os.Remove(dir + "/base/a/file"); err != nil {
		t.Fatal(err)
	}
	c := update()
	if !c.Any || !slices.Equal(c.Added, []string{dir + "/base/more"}) || !slices.Contains(c.Removed, dir+"/base/a/file") {
		t.Errorf("%+v", c)
	}
}

func FuzzRequest(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	s, dir := served(f, true)
	for _, h := range hostile {
		f.Add(h[0], h[1], "a", int64(0), int64(0))
	}
	f.Add("a/file", "base", "/a/", int64(2), int64(9))
	f.Add("q?saltenv=qa&index=0", "qa", "", int64(-1), int64(-1))
	secret, _ := os.ReadFile(dir + "/secret")
	f.Fuzz(func(t *testing.T, path, env, prefix string, loc, level int64) {
		load := value.DictOf("path", path, "saltenv", env, "prefix", prefix, "loc", loc, "gzip", level)
		for _, cmd := range Commands() {
			load.Set("cmd", cmd)
			v, err := s.Request(context.Background(), load)
			if d, ok := v.(*value.Dict); ok && err == nil && cmd == "_serve_file" && !strings.Contains(path, "out") &&
				bytes.Contains(d.Bytes("data"), secret) {
				t.Errorf("%q of %q: what lies outside was served", path, env)
			}
		}
	})
}

func BenchmarkServe(b *testing.B) {
	s, dir := served(b, true)
	s.part = 1 << 20
	write(b, dir+"/base/mb", strings.Repeat("0123456789abcdef", 1<<16))
	load := value.DictOf("cmd", "_serve_file", "path", "mb", "saltenv", "base", "loc", int64(0))
	b.SetBytes(1 << 20)
	for b.Loop() {
		if v, err := s.Request(context.Background(), load); err != nil || len(v.(*value.Dict).Bytes("data")) != 1<<20 {
			b.Fatal(err)
		}
	}
}

func BenchmarkHashKnown(b *testing.B) {
	s, _ := served(b, true)
	load := value.DictOf("cmd", "_file_hash", "path", "b", "saltenv", "base")
	for b.Loop() {
		if _, err := s.Request(context.Background(), load); err != nil {
			b.Fatal(err)
		}
	}
}
