package cluster

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestWrongClock: a master whose clock is five minutes ahead does not join the cluster, whichever
// starts first. Both report why, and the first continues. It runs only if BRINE_CLOCK is set
// (daemontest.Ahead).
func TestWrongClock(t *testing.T) {
	ahead := daemontest.Ahead(t)
	for name, who := range map[string]int{"the first is ahead": 0, "the second is ahead": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, "auto_accept: true\n", brine, brine)
			first, second := f.masters[0], f.masters[1]
			f.masters[who].Within = ahead
			first.Launch().Await()
			f.minion(brine, "m0", first.Host, "")
			eventually.Nil(t, soon, "the minion answers", func() error { return first.PingAll(brine, "m0") })
			second.Launch()
			if code := second.Wait(90 * time.Second); code == 0 {
				t.Errorf("the second ends with %d", code)
			}
			// The second master judges the clock of the first.
			how := map[int]string{0: "ahead", 1: "behind"}[who]
			for _, m := range f.masters {
				refused(t, m, fmt.Sprintf(`(?m)^(salt-master:|.*\[ERROR *\]).*the clock of %s is (5m0|4m5)[0-9.]*s %s (of )?that of %s; at most 5s are allowed`,
					regexp.QuoteMeta(first.Host), how, regexp.QuoteMeta(second.Host)))
			}
			eventually.Nil(t, soon, "the first goes on", func() error { return first.PingAll(brine, "m0") })
		})
	}
}
