package fileclient

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestSweep: contents that have not been used for a week are removed by daily sweeps. A clock that is wrong during one of them
// removes nothing else, and does not stop later ones.
func TestSweep(t *testing.T) {
	s := store{t.TempDir()}
	start := time.Now()
	create := func(name string) string {
		t.Helper()
		path := filepath.Join(s.dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	old, named := create("old"), create("named")
	if err := os.Link(named, filepath.Join(t.TempDir(), "name")); err != nil {
		t.Fatal(err)
	}
	there := func(path string) bool { _, err := os.Lstat(path); return err == nil }
	const day = 24 * time.Hour
	for _, off := range []time.Duration{0, 30 * day, -30 * day, 0, 5 * time.Hour, 400 * day, 6 * time.Hour} {
		if s.sweepAt(start.Add(off)); !there(old) {
			t.Fatalf("removed by a clock that is %v ahead", off)
		}
	}
	for n := 1; n <= 6; n++ {
		if s.sweepAt(start.Add(time.Duration(n) * (day + time.Hour))); !there(old) {
			t.Fatalf("removed on day %d", n)
		}
	}
	if s.sweepAt(start.Add(9 * day)); there(old) {
		t.Error("an old content stays")
	}
	if !there(named) {
		t.Error("a content with a name was removed")
	}
}
