package master

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// TestPushedSize: parts that all claim offset 0 are appended, so the limit
// counts the file on disk; no other user can read it.
func TestPushedSize(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	const limit = 1 << 20
	data := bytes.Repeat([]byte("x"), limit/4)
	for i := range 4 {
		if err := writePart(root, "a/b", part{at: min(int64(i), 1), data: data, limit: limit}); err != nil {
			t.Fatalf("part %d: %v", i, err)
		}
	}
	if err := writePart(root, "a/b", part{at: 1, data: data, limit: limit}); salt.KindOf(err) != salt.Denied {
		t.Errorf("a fifth part of a quarter of the limit: %v", err)
	}
	if err := writePart(root, "a/b", part{at: 0, data: data, limit: limit}); err != nil {
		t.Errorf("the file sent again: %v", err)
	}
	for path, want := range map[string]os.FileMode{"a": 0o700, "a/b": 0o600} {
		if st, err := os.Stat(filepath.Join(dir, path)); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %o", path, st.Mode(), err, want)
		}
	}
}

// TestPushedNames: the path of a pushed file cannot leave the minion's directory.
func TestPushedNames(t *testing.T) {
	for _, bad := range [][]any{{}, {".."}, {"..", "x"}, {"a", "..", "..", "x"}, {"/etc/passwd"}, {"", "..", "x"}, {"."}, {"a/../../x"}, {"a", "../../x"},
		{int64(1)}, {"a\x00b"}} {
		if name, err := pushName(value.ListOf(bad...)); err == nil {
			t.Errorf("%q becomes %q", bad, name)
		}
	}
	if name, err := pushName(value.ListOf("a", "b", "c.txt")); err != nil || name != "a/b/c.txt" {
		t.Errorf("%q, %v", name, err)
	}
}
