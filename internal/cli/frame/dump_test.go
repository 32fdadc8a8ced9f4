package frame

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDumpNeverFollows: a file or link that already has the dump's name stays unchanged.
func TestDumpNeverFollows(t *testing.T) {
	dir := t.TempDir()
	victim, now := filepath.Join(dir, "victim"), time.Unix(1700000000, 0)
	if err := os.Symlink(victim, filepath.Join(dir, "salt-debug-1700000000.log")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		path, err := dumpStacks(dir, now)
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Lstat(path)
		if err != nil || st.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(text), "======== Salt Debug Stack Trace =========\n") || !strings.Contains(string(text), "TestDumpNeverFollows") {
			t.Errorf("%s: %.300s, %v", path, text, err)
		}
	}
	if _, err := os.Lstat(victim); err == nil {
		t.Error("the link was followed")
	}
	if found, _ := filepath.Glob(dir + "/salt-debug-*.log"); len(found) != 3 {
		t.Errorf("%v", found)
	}
	if _, err := dumpStacks(dir+"/none", now); err == nil {
		t.Error("no directory, and no error")
	}
}
