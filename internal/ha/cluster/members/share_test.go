package members

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"brine/internal/ha/cluster/limitlog"
)

// TestWeigh: a master requests its weight, or less when its machine is busy. It writes only when
// the share changes. A master without a readable request has a full share.
func TestWeigh(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	var busy, total int64
	known := true
	files := &Files{Paths: Paths(t.TempDir()), Log: limitlog.New(log)}
	s := &Share{Files: files, ID: "a", Weight: 200, Shed: true, Busy: func() (int64, int64, bool) { return busy, total, known }, Log: log}
	share := func(want int) {
		t.Helper()
		if got := files.Share("a"); got != want {
			t.Errorf("it asks for %d, want %d", got, want)
		}
	}
	now := time.Unix(1e9, 0)
	run := func(d time.Duration, part int64) {
		for end := now.Add(d); now.Before(end); now = now.Add(10 * time.Second) {
			busy, total = busy+part*10, total+1000
			s.Weigh(now)
		}
	}
	share(0)
	if err := s.Request(s.Weight); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(files.sharePath("a"))
	if err != nil {
		t.Fatal(err)
	}
	run(time.Hour, 50)
	share(200)
	after, err := os.Stat(files.sharePath("a"))
	if err != nil || !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
		t.Errorf("it was said again: %v", err)
	}
	run(5*time.Minute, 100)
	share(140)
	run(time.Hour, 100)
	share(50)
	known = false
	run(time.Hour, 0)
	share(50)
	known = true
	run(time.Hour, 10)
	share(200)
	s.Shed = false
	run(time.Hour, 100)
	share(200)
	for _, bad := range []string{"", "many", "0", "-1", "10001", "100 100"} {
		if err := os.WriteFile(files.sharePath("b"), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := files.Share("b"); got != 0 {
			t.Errorf("%q is read as %d", bad, got)
		}
	}
	if err := files.Forget("a"); err != nil {
		t.Error(err)
	}
	share(0)
}
