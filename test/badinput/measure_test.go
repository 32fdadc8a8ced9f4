package badinput

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"brine/test/eventually"
)

// status returns a number in /proc/PID/status, in its unit.
func status(t *testing.T, n *node, field string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.PID()))
	if err != nil {
		t.Skip("no /proc here:", err)
	}
	for l := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(l, field+":"); ok {
			v, err := strconv.Atoi(strings.Fields(rest)[0])
			must(t, err)
			return v
		}
	}
	t.Fatalf("no %s in /proc/%d/status", field, n.PID())
	return 0
}

// memory returns the memory of a daemon and its peak, in MiB.
func memory(t *testing.T, n *node) (now, peak int) {
	t.Helper()
	return status(t, n, "VmRSS") >> 10, status(t, n, "VmHWM") >> 10
}

// files counts the open files of a daemon.
func files(t *testing.T, n *node) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.PID()))
	must(t, err)
	return len(entries)
}

// healthy is the state of a daemon before an attack, for comparison.
type healthy struct {
	t     *testing.T
	n     *node
	rss   int
	files int
}

func examine(t *testing.T, n *node) *healthy {
	t.Helper()
	rss, _ := memory(t, n)
	return &healthy{t, n, rss, files(t, n)}
}

// bounded expects the daemon's peak memory to be at most more MiB above its memory before the
// attack.
func (h *healthy) bounded(more int) {
	h.t.Helper()
	_, peak := memory(h.t, h.n)
	h.t.Logf("%s: %d MiB before, at most %d MiB", h.n.Name, h.rss, peak)
	if peak > h.rss+more {
		h.t.Errorf("%s took up to %d MiB, %d MiB before; %d MiB more are granted", h.n.Name, peak, h.rss, more)
	}
}

// recovers expects the daemon to release the files and memory that it used during the attack.
func (h *healthy) recovers(more int) {
	h.t.Helper()
	took := eventually.Nil(h.t, waitLimit, h.n.Name+" gives back files and memory", func() error {
		if now := files(h.t, h.n); now > h.files+5 {
			return fmt.Errorf("%d files are open, %d before", now, h.files)
		}
		if now, _ := memory(h.t, h.n); now > h.rss+more {
			return fmt.Errorf("it takes %d MiB, %d before", now, h.rss)
		}
		return nil
	})
	now, _ := memory(h.t, h.n)
	h.t.Logf("%s: %d MiB and %d files %.1f s later, %d MiB and %d files before", h.n.Name, now, files(h.t, h.n), took.Seconds(), h.rss, h.files)
}

// pinging pings until stop is closed, and expects every ping to be answered.
func pinging(t *testing.T, m *node, stop <-chan struct{}, ids ...string) {
	t.Helper()
	n := 0
	for ; ; n++ {
		select {
		case <-stop:
			t.Logf("%d pings were answered", n)
			return
		default:
			mustPing(t, m, ids...)
			if t.Failed() {
				<-stop
				return
			}
		}
	}
}

// during runs an attack on a daemon while its minions are commanded.
func during(t *testing.T, m *node, ids []string, attack func()) {
	t.Helper()
	stop := make(chan struct{})
	go func() { defer close(stop); attack() }()
	pinging(t, m, stop, ids...)
	mustPing(t, m, ids...)
}
