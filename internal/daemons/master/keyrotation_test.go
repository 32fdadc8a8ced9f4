package master

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestRequestForAESKey: each request for a new key causes one rotation. It is not
// lost if the rotation fails, the master ends during it, or salt-key requests
// again meanwhile.
func TestRequestForAESKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), dropfile)
	there := func(path string) bool { _, err := os.Lstat(path); return err == nil }
	request := func(text string, mode os.FileMode) {
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	failed := errors.New("no space")
	var result error
	var meanwhile func()
	calls := 0
	rotate := func() error {
		calls++
		if there(path) {
			t.Error("salt-key sees the request, and would not ask for a deletion from now on")
		}
		if do := meanwhile; do != nil {
			meanwhile = nil
			do()
		}
		return result
	}
	// look checks for a request once, as the master does every second.
	look := func(what string, wantCalls int, want error) {
		t.Helper()
		calls = 0
		if err := rotateOnRequest(path, "boss", rotate); !errors.Is(err, want) || calls != wantCalls {
			t.Errorf("%s: %v, %d calls", what, err, calls)
		}
	}

	for _, c := range []struct {
		text string
		mode os.FileMode
	}{{"boss", 0o600}, {"other", 0o400}} {
		request(c.text, c.mode)
		look("no request", 0, nil)
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != c.mode {
			t.Errorf("%q: what is not a request was changed: %v", c.text, err)
		}
		os.Remove(path)
	}

	request("boss\n", 0o400)
	look("a request", 1, nil)
	look("after it", 0, nil)

	request("boss", 0o400)
	result = failed
	look("a replacement that fails", 1, failed)
	look("once more", 1, failed)
	result = nil
	look("one that succeeds", 1, nil)
	look("after it", 0, nil)

	request("boss", 0o400)
	meanwhile = func() { request("boss", 0o400) }
	look("a request meanwhile", 1, nil)
	look("that one", 1, nil)
	look("after both", 0, nil)

	request("boss", 0o400)
	func() {
		defer func() { recover() }()
		meanwhile = func() { panic("the master ends here") }
		rotateOnRequest(path, "boss", rotate)
		t.Error("the master has not ended")
	}()
	look("the next start", 1, nil)
	look("after it", 0, nil)
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}
