package roster

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

func ids(members []Member) (out []string) {
	for _, m := range members {
		out = append(out, m.ID)
	}
	return out
}

// TestPreferRanks checks that draining masters are last, then those of other zones, then slow ones, regardless of share.
func TestPreferRanks(t *testing.T) {
	members := []Member{
		{ID: "drains", Zone: "n", Draining: true}, {ID: "far", Zone: "s", Share: MaxShare}, {ID: "slow", Zone: "n", Share: MaxShare},
		{ID: "quick", Zone: "n", Share: 1},
		{ID: "slowest", Zone: "n"},
	}
	class := func(id string) int { return map[string]int{"slow": 1, "slowest": maxClasses + 5}[id] }
	for i := range 100 {
		want := []string{"quick", "slow", "slowest", "far", "drains"}
		if got := ids(Prefer(members, fmt.Sprint("m", i), "n", class)); !slices.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	}
}

// TestShares checks that minions are distributed by share, and that a changed share moves only the necessary minions, from or to that
// master.
func TestShares(t *testing.T) {
	const n = 20_000
	first := func(i int, members []Member) string { return Prefer(members, fmt.Sprint("minion", i), "", nil)[0].ID }
	full := []Member{{ID: "a"}, {ID: "b"}, {ID: "c", Share: 200}}
	less := []Member{{ID: "a"}, {ID: "b"}, {ID: "c", Share: 50}}
	var before, after, moves = map[string]int{}, map[string]int{}, 0
	for i := range n {
		x, y := first(i, full), first(i, less)
		before[x]++
		after[y]++
		if x != y {
			moves++
			if x != "c" {
				t.Fatalf("minion%d goes from %s to %s since c has less", i, x, y)
			}
		}
	}
	if moves != before["c"]-after["c"] {
		t.Errorf("%d moves for %d that c has less", moves, before["c"]-after["c"])
	}
	for _, want := range []struct {
		counts map[string]int
		share  map[string]float64
	}{{before, map[string]float64{"a": .25, "b": .25, "c": .5}}, {after, map[string]float64{"a": .4, "b": .4, "c": .2}}} {
		for id, part := range want.share {
			if got := float64(want.counts[id]) / n; got < part*.95 || got > part*1.05 {
				t.Errorf("%s has %.3f of the minions, want %.3f", id, got, part)
			}
		}
	}
}

func TestLatency(t *testing.T) {
	bounds := Bounds{5 * ms, 25 * ms, 100 * ms}
	now := time.Unix(0, 0)
	var l Latency
	add := func(took time.Duration, times int) {
		for range times {
			now = now.Add(5 * time.Second)
			l.Add(took, now, bounds)
		}
	}
	is := func(what string, class int, known bool) {
		t.Helper()
		if c, k := l.Class(now); c != class || k != known {
			t.Errorf("%s: class %d, known %v; want %d, %v", what, c, k, class, known)
		}
	}
	is("at first", 0, false)
	add(40*ms, enough-1)
	is("hardly asked", 0, false)
	add(40*ms, 1)
	is("asked", 2, true)
	add(20*ms, window)
	is("a little quicker", 2, true)
	add(10*ms, 1)
	is("much quicker", 1, true)
	add(36*ms, window-1)
	is("mostly slow", 1, true)
	add(36*ms, 1)
	is("a little slower", 1, true)
	add(40*ms, window)
	is("slower", 2, true)
	add(time.Second, 2*window)
	is("very slow", 3, true)
	now = now.Add(stale + time.Second)
	add(ms, 1)
	is("one answer after a gap", 3, true)
	add(ms, enough-1)
	is("enough of them", 0, true)
	now = now.Add(Forget + time.Second)
	is("long ago", 0, false)
	var none Latency
	for range enough {
		none.Add(time.Hour, now, nil)
	}
	if c, known := none.Class(now); c != 0 || !known {
		t.Errorf("without bounds: class %d, known %v", c, known)
	}
	for _, bad := range []Bounds{{0}, {2, 1}, {1, 1}, make(Bounds, maxClasses+1), {-1}} {
		if bad.Check() == nil {
			t.Errorf("%v is taken", bad)
		}
	}
	if err := bounds.Check(); err != nil {
		t.Error(err)
	}
}

// TestLatencyNearABound checks that a master with answers on both sides of a bound keeps its class.
func TestLatencyNearABound(t *testing.T) {
	var l Latency
	now, changes := time.Unix(0, 0), 0
	for i := range 1000 {
		now = now.Add(5 * time.Second)
		took := 4 * ms
		if i/window%2 == 1 {
			took = 7 * ms
		}
		if l.Add(took, now, Bounds{5 * ms}) {
			changes++
		}
	}
	if changes != 1 {
		t.Errorf("it changed its class %d times", changes)
	}
}

// TestLoad checks that a busy master requests less until it is not busy, that a calm one slowly requests more, and that its own minions'
// load reverses no step.
func TestLoad(t *testing.T) {
	var l Load
	now := time.Unix(0, 0)
	run := func(d time.Duration, busy func(percent int) float64) (steps []int) {
		last := steps100(&l)
		for end := now.Add(d); now.Before(end); {
			now = now.Add(10 * time.Second)
			if p := l.Look(busy(last), now); p != last {
				steps, last = append(steps, p), p
			}
		}
		return steps
	}
	if got := run(time.Hour, func(int) float64 { return .8 }); len(got) > 0 {
		t.Errorf("busy, and not too busy: %v", got)
	}
	if got := run(40*time.Second, func(int) float64 { return 1 }); len(got) > 0 {
		t.Errorf("a moment: %v", got)
	}
	if got := run(10*time.Minute, func(int) float64 { return .5 }); len(got) > 0 {
		t.Errorf("nothing: %v", got)
	}
	// All minions cause a load of 40 %, other work 65 %.
	work := func(other float64) func(int) float64 {
		return func(percent int) float64 { return min(1, other+.4*float64(percent)/100) }
	}
	if got := run(3*time.Hour, work(.65)); !slices.Equal(got, []int{70, 50}) {
		t.Errorf("too much: %v, at %.2f", got, l.Busy())
	}
	if got := run(3*time.Hour, work(0)); !slices.Equal(got, []int{70, 100}) {
		t.Errorf("calm again: %v, at %.2f", got, l.Busy())
	}
	if got := run(3*time.Hour, work(1)); !slices.Equal(got, []int{70, 50, 35, 25}) {
		t.Errorf("hopeless: %v", got)
	}
	// The share becomes stable for any load.
	for other := 0.0; other < 1; other += .01 {
		l := Load{}
		late := 0
		for i, p, at := 0, 100, time.Unix(0, 0); i < 6*360; i++ {
			at = at.Add(10 * time.Second)
			if next := l.Look(work(other)(p), at); next != p {
				if p = next; i > 3*360 {
					late++
				}
			}
		}
		if late > 0 {
			t.Errorf("with other work of %.2f it still takes steps after three hours", other)
		}
	}
}

func steps100(l *Load) int { return steps[l.step] }
