package master

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestRequestForAESKey: the file that asks for a new key is gone when the key is
// replaced, not before, and stays if that has failed.
func TestRequestForAESKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), dropfile)
	there := func() bool { _, err := os.Stat(path); return err == nil }
	calls := 0
	rotate := func() error {
		if calls++; !there() {
			t.Error("the file is gone before the key is replaced")
		}
		return nil
	}
	failed := errors.New("no space")
	for _, c := range []struct {
		text   string
		mode   os.FileMode
		rotate func() error
		calls  int
		left   bool
		err    error
	}{
		{"boss\n", 0o400, rotate, 1, false, nil},
		{"boss", 0o600, rotate, 0, true, nil},
		{"other", 0o400, rotate, 0, true, nil},
		{"boss", 0o400, func() error { calls++; return failed }, 1, true, failed},
	} {
		calls = 0
		if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		if err := rotateOnRequest(path, "boss", c.rotate); !errors.Is(err, c.err) || calls != c.calls || there() != c.left {
			t.Errorf("%q of mode %o: %v, %d calls, there: %v", c.text, c.mode, err, calls, there())
		}
		if fi, err := os.Stat(path); err == nil && fi.Mode().Perm() != c.mode {
			t.Errorf("%q: the mode is now %o", c.text, fi.Mode().Perm())
		}
		os.Remove(path)
	}
}
