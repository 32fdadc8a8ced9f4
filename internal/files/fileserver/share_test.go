package fileserver

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/host"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
)

func openPart(t *testing.T, s *Server, pairs ...any) (*value.Dict, []byte) {
	t.Helper()
	load := value.DictOf(pairs...)
	load.Set("cmd", "_brine_part")
	d, shared, err := s.RequestShared(t.Context(), load)
	if err != nil {
		t.Fatal(err)
	}
	if shared == nil {
		return d, nil
	}
	plain, err := crypt.OpenShared(shared.Ticket(), bytes.Clone(shared.Sealed()))
	if err != nil {
		t.Fatal(err)
	}
	return d, plain
}

func rootsOf(t *testing.T, dir string) *Server {
	return New(Options{Backends: []string{"roots"}, FollowSymlinks: true, FileRoots: value.DictOf("base", value.ListOf(dir))},
		Config{CacheDir: t.TempDir(), HashType: "sha256", BufferSize: 1000}, slog.New(slog.DiscardHandler))
}

// TestSharedPartsOfHostileMinions requests files that are not served, and many
// different offsets. Only served data must be returned, and the cache must stay
// bounded.
func TestSharedPartsOfHostileMinions(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "base")
	write(t, dir+"/f", strings.Repeat("x", 2500))
	write(t, top+"/secret", "secret")
	s := rootsOf(t, dir)
	sum, err := s.hashes.of(dir + "/f")
	if err != nil {
		t.Fatal(err)
	}
	secret, err := s.hashes.of(top + "/secret")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"../secret", "/../secret", "f/../../secret", "|../secret", top + "/secret", "secret", "", "f?saltenv=../..", "f\x00"} {
		for _, env := range []string{"base", "../base", "", "/", "none"} {
			if d, part := openPart(t, s, "path", path, "saltenv", env, "hsum", secret, "loc", 0); part != nil || d.Has("size") {
				t.Errorf("%q of %q: %s %q", path, env, value.Repr(d), part)
			}
		}
	}
	if d, part := openPart(t, s, "path", "f", "saltenv", "base", "hsum", secret, "loc", 0); part != nil || !d.Bool("changed") {
		t.Error("a file is served for another hash:", value.Repr(d))
	}
	for loc, n := range map[int64]int{0: 1000, 2000: 500, 2500: 0, 1 << 62: 0} {
		if d, part := openPart(t, s, "path", "f", "saltenv", "base", "hsum", sum, "loc", loc); len(part) != n || d.Int("size") != 2500 {
			t.Errorf("at %d: %d bytes, %s", loc, len(part), value.Repr(d))
		}
	}
	for _, loc := range []any{int64(-1), "0", nil, 0.5} {
		if _, shared, err := s.RequestShared(t.Context(), value.DictOf("cmd", "_brine_part", "path", "f", "saltenv", "base", "hsum", sum, "loc",
			loc)); err == nil || shared != nil {
			t.Errorf("loc %v is answered", loc)
		}
	}
	waitSettled(t, dir+"/f")
	for loc := range int64(maxParts>>10 + 1000) {
		openPart(t, s, "path", "f", "saltenv", "base", "hsum", sum, "loc", 3000+loc)
	}
	if n := len(s.parts.m); n > maxParts>>10 || n != s.parts.order.Len() || s.parts.bytes > maxParts {
		t.Errorf("%d parts are kept, said to be %d bytes", n, s.parts.bytes)
	}
}

// waitSettled waits until another change of a file would change its stamp.
func waitSettled(t *testing.T, path string) {
	for {
		s, err := host.StampOf(path)
		if err != nil {
			t.Fatal(err)
		}
		if s.Settled() {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestTreeIsNewerThanTheQuestion requests the tree concurrently while a file
// changes: a request after a change must never get an older tree.
func TestTreeIsNewerThanTheQuestion(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/f", "")
	s := rootsOf(t, dir)
	tag := func() string {
		d, _, err := s.RequestShared(t.Context(), value.DictOf("cmd", "_brine_tree", "saltenv", "base", "known", &value.List{}))
		if err != nil {
			t.Error(err)
		}
		return d.Str("tag")
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					tag()
				}
			}
		})
	}
	last := tag()
	for i := range 50 {
		write(t, dir+"/f", strings.Repeat("x", i+1))
		now := tag()
		if now == last {
			t.Fatalf("change %d does not show", i)
		}
		last = now
	}
	if err := os.Remove(dir + "/f"); err != nil {
		t.Fatal(err)
	}
	if tag() == last {
		t.Error("a file that has gone is in the tree")
	}
	close(stop)
	wg.Wait()
	for _, env := range []string{"", "..", "../base", "none", "a/../base", "base\x00"} {
		d, shared, err := s.RequestShared(t.Context(), value.DictOf("cmd", "_brine_tree", "saltenv", env))
		if d.Len() != 0 || shared != nil || err != nil {
			t.Errorf("%q: %s %v", env, value.Repr(d), err)
		}
	}
	if len(s.trees.env) != 1 {
		t.Errorf("%d trees are kept of one environment", len(s.trees.env))
	}
}
