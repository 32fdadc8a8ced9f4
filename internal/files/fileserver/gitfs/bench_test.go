package gitfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/py/value"
	"brine/test/gittest"
)

// BenchmarkTenThousandFiles fetches a repository of 10,000 files, checks it for
// changes, lists all files, and reads each file, as a master does. With
// BRINE_STOCK_SALT set, stock Salt does the same first, in one process, without
// its start time.
func BenchmarkTenThousandFiles(b *testing.B) {
	dir := b.TempDir()
	gittest.Run(b, dir, "init", "--quiet", "--initial-branch=main", dir)
	files := map[string]string{}
	for i := range 10_000 {
		files[fmt.Sprintf("d%02d/e%d/f%04d.sls", i%100, i%7, i)] = fmt.Sprintf("file %d\n", i)
	}
	gittest.Write(b, dir, files)
	gittest.Run(b, dir, "add", "-A")
	gittest.Run(b, dir, "commit", "--quiet", "-m", "x")
	if stock := os.Getenv("BRINE_STOCK_SALT"); stock != "" {
		for _, provider := range []string{"pygit2", "gitpython"} {
			c := exec.Command("/usr/bin/python3", "-W", "ignore", "testdata/bench.py", "file://"+dir, b.TempDir(), provider)
			c.Env = append(os.Environ(), "PYTHONPATH="+stock)
			out, err := c.CombinedOutput()
			if err != nil {
				b.Fatalf("%v\n%s", err, out)
			}
			b.Logf("stock Salt with %s: %s", provider, strings.TrimSpace(string(out)))
		}
	}
	conf := value.DictOf("gitfs_remotes", value.ListOf("file://"+dir), "gitfs_base", "main")
	fill := func(cache string) *FS {
		_, fs := server(b, conf, cache)
		if _, err := fs.Update(b.Context()); err != nil {
			b.Fatal(err)
		}
		return fs
	}
	list := func(fs *FS) []string {
		l, err := fs.Lists(b.Context(), "base")
		if err != nil || len(l.Files) != len(files) {
			b.Fatal(len(l.Files), err)
		}
		return l.Files
	}
	b.Run("first copy", func(b *testing.B) {
		for i := range b.N {
			fill(filepath.Join(dir, "..", fmt.Sprint("first", i, b.N)))
		}
	})
	cache := b.TempDir()
	fs := fill(cache)
	b.Run("update without changes", func(b *testing.B) {
		for b.Loop() {
			if _, err := fs.Update(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("list by a new process", func(b *testing.B) {
		for b.Loop() {
			_, fs := server(b, conf, cache)
			list(fs)
		}
	})
	b.Run("list again", func(b *testing.B) {
		for b.Loop() {
			list(fs)
		}
	})
	b.Run("find each file first", func(b *testing.B) {
		for range b.N {
			if err := os.RemoveAll(filepath.Join(cache, "gitfs", "objects")); err != nil {
				b.Fatal(err)
			}
			for _, name := range list(fs) {
				if _, ok := fs.Find("base", name, nil); !ok {
					b.Fatal(name)
				}
			}
		}
	})
	b.Run("find each file again", func(b *testing.B) {
		for b.Loop() {
			for _, name := range list(fs) {
				if _, ok := fs.Find("base", name, nil); !ok {
					b.Fatal(name)
				}
			}
		}
	})
}
