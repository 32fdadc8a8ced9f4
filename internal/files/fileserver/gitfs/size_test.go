package gitfs

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"brine/internal/files/fileserver"
	"brine/internal/py/value"
	"brine/test/gittest"
)

// TestLargeRepository serves a repository of many branches and large files.
// With BRINE_GIT_SIZE=full (make git-size) it has 1 GB and 1,000 branches,
// otherwise a hundredth and a tenth of that.
func TestLargeRepository(t *testing.T) {
	branches, blobs, blob := 100, 10, 1<<20
	if os.Getenv("BRINE_GIT_SIZE") == "full" {
		branches, blobs, blob = 1000, 8, 128<<20
	}
	origin := filepath.Join(t.TempDir(), "origin.git")
	gittest.Run(t, "/", "init", "--quiet", "--bare", "--initial-branch=main", origin)
	began := time.Now()
	fastImport(t, origin, branches, blobs, blob)
	lap := func(what string) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		t.Logf("%s: %v, heap %d MB, taken from the system %d MB", what, time.Since(began).Round(time.Millisecond), m.HeapAlloc>>20, m.Sys>>20)
		began = time.Now()
	}
	lap("make it")
	srv, fs := server(t, value.DictOf("gitfs_remotes", value.ListOf("file://"+origin), "gitfs_base", "main"), t.TempDir())
	if _, err := fs.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	lap("first copy")
	if envs := fs.Envs(); len(envs) != branches+1 {
		t.Fatalf("%d environments, want %d and base", len(envs), branches)
	}
	lap("environments")
	for i := 0; i < branches; i += branches / 50 {
		env := fmt.Sprintf("b%04d", i)
		l, err := srv.Lists(t.Context(), env)
		if err != nil || len(l.Files) != blobs+1 {
			t.Fatal(env, l, err)
		}
		f, ok := srv.Find("branch", env)
		if b, err := os.ReadFile(f.Path); !ok || err != nil || string(b) != env+"\n" {
			t.Fatalf("%s: %q, %v", env, b, err)
		}
	}
	lap("list and read of 50 environments")
	// Equal contents of all environments share one file in the cache.
	f, ok := srv.Find("large0", "b0000")
	other, _ := srv.Find("large0", "base")
	if st, err := os.Stat(f.Path); !ok || err != nil || st.Size() != int64(blob) || f.Path != other.Path {
		t.Fatal(f, other, err)
	}
	lap("the first large file")
	want := sha256.New()
	io.Copy(want, newNoise(0, blob))
	if n, got := readParts(t, srv, "large0", "base"); n != int64(blob) || !bytes.Equal(got, want.Sum(nil)) {
		t.Errorf("%d bytes were served of %d, or others", n, blob)
	}
	lap("all parts of it")
	update := func(input string) {
		gittest.Feed(t, origin, input, "fast-import", "--quiet", "--force")
		c, err := fs.Update(t.Context())
		if err != nil || !c.Any {
			t.Fatal(c, err)
		}
	}
	update("commit refs/heads/b0001\ncommitter a <a@b> 1700000000 +0000\ndata 1\nx\nfrom refs/heads/b0001^0\nM 100644 inline branch\ndata 8\nchanged\n\n")
	lap("update of a branch")
	f, _ = srv.Find("branch", "b0001")
	if b, err := os.ReadFile(f.Path); err != nil || string(b) != "changed\n" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := fs.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	lap("update without changes")
	gittest.Run(t, origin, "update-ref", "-d", "refs/heads/b0002")
	if c, err := fs.Update(t.Context()); err != nil || !c.Any || len(fs.Envs()) != branches {
		t.Error(c, err, len(fs.Envs()))
	}
	lap("a branch that vanished")
	var m runtime.MemStats
	if runtime.ReadMemStats(&m); m.Sys > 256<<20 {
		t.Errorf("it took %d MB of memory", m.Sys>>20)
	}
}

// readParts fetches a file as minions do, and returns its length and SHA-256.
func readParts(t *testing.T, srv *fileserver.Server, name, env string) (n int64, sum []byte) {
	for h := sha256.New(); ; {
		v, err := srv.Request(t.Context(), value.DictOf("cmd", "_serve_file", "path", name, "saltenv", env, "loc", n))
		d, _ := v.(*value.Dict)
		if err != nil {
			t.Fatal(err)
		}
		part := d.Bytes("data")
		if len(part) == 0 {
			return n, h.Sum(nil)
		}
		h.Write(part)
		n += int64(len(part))
	}
}

// noise is a reader of a number of incompressible bytes.
type noise struct {
	x    uint64
	left int
}

func newNoise(i, size int) *noise { return &noise{uint64(i)*7919 + 88172645463325252, size} }

func (n *noise) Read(b []byte) (int, error) {
	if n.left == 0 {
		return 0, io.EOF
	}
	b = b[:min(len(b), n.left)]
	for i := range b {
		n.x ^= n.x << 13
		n.x ^= n.x >> 7
		n.x ^= n.x << 17
		b[i] = byte(n.x)
	}
	n.left -= len(b)
	return len(b), nil
}

// fastImport fills a repository: main has all large files, and each branch has
// one additional file.
func fastImport(t *testing.T, dir string, branches, blobs, blob int) {
	t.Helper()
	var end bytes.Buffer
	fmt.Fprint(&end, "commit refs/heads/main\ncommitter a <a@b> 1700000000 +0000\ndata 1\nx\n")
	for i := range blobs {
		fmt.Fprintf(&end, "M 100644 :%d large%d\n", i+1, i)
	}
	for i := range branches {
		fmt.Fprintf(&end, "\ncommit refs/heads/b%04d\ncommitter a <a@b> 1700000000 +0000\ndata 1\nx\nfrom refs/heads/main\nM 100644 inline branch\n"+
			"data 6\nb%04d\n", i, i)
	}
	readers := []io.Reader{}
	for i := range blobs {
		readers = append(readers, strings.NewReader(fmt.Sprintf("blob\nmark :%d\ndata %d\n", i+1, blob)),
			newNoise(i, blob), strings.NewReader("\n"))
	}
	c := exec.Command("git", "-c", "core.bigFileThreshold=1m", "-c", "core.compression=0", "-c", "pack.compression=0", "fast-import", "--quiet")
	c.Dir, c.Stdin = dir, io.MultiReader(append(readers, &end)...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("git fast-import: %v\n%s", err, out)
	}
}
