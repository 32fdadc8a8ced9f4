package files

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/call/fn/fntest"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/host"
	"brine/internal/py/value"
)

// directory is where the jobs of the table write.
const directory = "/tmp/brine-files-test"

const table = "testdata/jobs.json"

func registry(t *testing.T) *fn.Registry {
	t.Helper()
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func run(t *testing.T, fun string, arg ...any) fn.Outcome {
	t.Helper()
	return registry(t).Run(t.Context(), &fn.Call{}, fn.Job{Fun: fun, Arg: arg})
}

func TestCatalogue(t *testing.T) { fntest.Catalogue(t, Modules(&host.Machine{})) }

func TestLikeSalt(t *testing.T) {
	empty(t)
	stocktest.Compare(t, table, registry(t), func() *fn.Call { return &fn.Call{} })
	for path, want := range map[string]string{"sub/a/b.txt": "hello\nmore\n", "sub/c": "x", "sub/f": "text", "sub/g": "ä", "sub/other": "text"} {
		if got, err := os.ReadFile(filepath.Join(directory, path)); string(got) != want {
			t.Errorf("%s holds %q, %v", path, got, err)
		}
	}
	for path, want := range map[string]uint32{"sub/a/b.txt": 0o640, "sub/c": 0o4755} {
		if got := mode(t, filepath.Join(directory, path)); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
	err := filepath.WalkDir(directory, func(path string, _ os.DirEntry, err error) error {
		if strings.Contains(path, ".brine") {
			t.Errorf("left behind: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestRecordingIsTrue(t *testing.T) {
	empty(t)
	stocktest.Verify(t, table)
}

func empty(t *testing.T) {
	t.Helper()
	clean := func() { os.RemoveAll(directory) }
	clean()
	t.Cleanup(clean)
}

func mode(t *testing.T, path string) uint32 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Mode & 0o7777
}

// b64 returns base64 as bytes, as salt-cp sends it: a string that ends with "=" would be
// a keyword.
func b64(s string) []byte { return []byte(base64.StdEncoding.EncodeToString([]byte(s))) }

func packed(s string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(s))
	z.Close()
	return b64(b.String())
}

// TestReplaceKeeps checks that a replaced file keeps its mode, and that a link remains a
// link.
func TestReplaceKeeps(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", link); err != nil {
		t.Fatal(err)
	}
	o := run(t, "cp.recv", value.DictOf("link", "new"), dir)
	if !value.Equal(o.Return, value.DictOf(link, true)) {
		t.Fatalf("got %+v", o)
	}
	if got, _ := os.ReadFile(file); string(got) != "new" || mode(t, file) != 0o600 {
		t.Errorf("the file holds %q, mode %o", got, mode(t, file))
	}
	if to, err := os.Readlink(link); to != "file" {
		t.Errorf("the link is now %q, %v", to, err)
	}
}

func TestBadChunks(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	broken := packed(strings.Repeat("x", 1000))
	raw, _ := base64.StdEncoding.DecodeString(string(broken))
	bomb := packed(strings.Repeat("\x00", maxInflated+1))
	cut := b64(string(raw[:len(raw)-9]))
	for name, arg := range map[string][]any{
		"no gzip":             {file, b64("plain")},
		"no gzip, appended":   {file, b64("plain"), true},
		"cut off":             {file, cut},
		"cut off, appended":   {file, cut, true},
		"too large":           {file, bomb},
		"too large, appended": {file, bomb, true},
		"no base64":           {file, "?"},
		"a number":            {file, int64(3)},
		"a fifo":              {fifo(t, dir), b64("x"), false, false},
		"a loop":              {loop(t, dir), b64("x"), true, false},
	} {
		o := run(t, "cp.recv_chunked", arg...)
		if text, ok := o.Return.(string); !ok || text == "" || o.Retcode != 1 {
			t.Errorf("%s: got %+v", name, o)
		}
		if got, _ := os.ReadFile(file); string(got) != "old" {
			t.Fatalf("%s: the file now holds %d bytes", name, len(got))
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func fifo(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func loop(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "loop")
	if err := os.Symlink("loop", path); err != nil {
		t.Fatal(err)
	}
	return path
}
