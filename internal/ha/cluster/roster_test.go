package cluster

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"brine/internal/ha/cluster/limitlog"
	"brine/internal/ha/roster"
)

// TestWeigh: a master asks for its weight, for less of it when its machine is
// busy, and says nothing while nothing changes; who has said nothing that can be
// read has a full share.
func TestWeigh(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	var busy, total int64
	known := true
	c := &Cluster{
		cfg: Config{
			ID: "a", Options: Options{PKIDir: t.TempDir(), Weight: 200, ShedLoad: true},
			Busy: func() (int64, int64, bool) { return busy, total, known },
		}, log: log, rateLimitedLog: limitlog.New(log),
	}
	share := func(want int) {
		t.Helper()
		if got := c.readShare("a"); got != want {
			t.Errorf("it asks for %d, want %d", got, want)
		}
	}
	now := time.Unix(1e9, 0)
	run := func(d time.Duration, part int64) {
		for end := now.Add(d); now.Before(end); now = now.Add(weighEvery * time.Second) {
			busy, total = busy+part*10, total+1000
			c.weigh(now)
		}
	}
	share(0)
	if err := c.ask(c.cfg.Options.weight()); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(c.sharePath("a"))
	if err != nil {
		t.Fatal(err)
	}
	run(time.Hour, 50)
	share(200)
	after, err := os.Stat(c.sharePath("a"))
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
	c.cfg.Options.ShedLoad = false
	run(time.Hour, 100)
	share(200)
	for _, bad := range []string{"", "many", "0", "-1", "10001", "100 100"} {
		if err := os.WriteFile(c.sharePath("b"), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := c.readShare("b"); got != 0 {
			t.Errorf("%q is read as %d", bad, got)
		}
	}
	for weight, ok := range map[int]bool{-1: false, 0: true, 1: true, roster.MaxShare: true, roster.MaxShare + 1: false} {
		o := Options{ID: "x", Port: 4520, Weight: weight}
		if err := o.Check("a", true, "0.0.0.0"); (err == nil) != ok {
			t.Errorf("cluster_weight %d: %v", weight, err)
		}
	}
	if err := c.forgetStation("a"); err != nil {
		t.Error(err)
	}
	share(0)
}
