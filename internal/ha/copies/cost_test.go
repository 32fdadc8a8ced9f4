package copies

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"brine/internal/py/value"
)

// TestCopiesCost reports what a return costs five masters between each other, with three copies and with one on each: bytes of
// changes, and CPU time of reading, encoding, decoding and storing them. BRINE_COPIED_RETURNS is the number of small returns; a twentieth
// as many have 20 kB.
func TestCopiesCost(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("BRINE_COPIED_RETURNS"))
	n = max(n, 1000)
	for _, c := range []struct {
		name string
		text string
		n    int
	}{{"60 bytes", strings.Repeat("x", 20), n}, {"600 bytes", strings.Repeat("x", 540), n}, {"20 kB", strings.Repeat("some output of a state. ", 850), n / 20}} {
		var bytes [2]float64
		for i, copies := range []int{3, 0} {
			f := newFleet(t, 5, copies)
			minions := make([]string, c.n)
			for i := range minions {
				minions[i] = fmt.Sprintf("minion%06d", i)
			}
			jid := f.publish("a", minions...)
			f.exchange()
			var wg sync.WaitGroup
			for worker := range 64 {
				wg.Go(func() {
					for i := worker; i < c.n; i += 64 {
						f.nodes[f.ids()[i%5]].store.Return(value.DictOf("jid", jid, "id", minions[i], "return", c.text, "retcode", 0, "success", true))
					}
				})
			}
			wg.Wait()
			began := used(t)
			f.exchange()
			took := used(t) - began
			bytes[i] = float64(f.sent) / float64(c.n)
			t.Logf("returns of %s, %d copies (0: all): %.0f bytes between the masters and %v of CPU time a return", c.name, copies, bytes[i],
				took/time.Duration(c.n))
			for _, m := range f.nodes {
				if got, err := m.store.ReturnedBy(jid); err != nil || len(got) != c.n {
					t.Fatalf("%d of %d: %v", len(got), c.n, err)
				}
				m.kill()
			}
		}
		if bytes[0] > bytes[1] {
			t.Errorf("three copies need %.0f bytes, five %.0f", bytes[0], bytes[1])
		}
	}
}

func used(t *testing.T) time.Duration {
	t.Helper()
	var r syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
