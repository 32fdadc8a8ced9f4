package filelease

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestLease: one holder at a time, and never for ever.
func TestLease(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	clock := func() time.Time { return now }
	var leases []*Lease
	for i := range 8 {
		l := New(dir, "lead", fmt.Sprint(i), time.Minute)
		l.now = clock
		leases = append(leases, l)
	}
	holders := func() (out []int) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i, l := range leases {
			wg.Go(func() {
				ok, err := l.Hold()
				if err != nil {
					t.Error(err)
				}
				if ok {
					mu.Lock()
					out = append(out, i)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		return out
	}
	first := holders()
	if len(first) != 1 {
		t.Fatalf("%v hold it", first)
	}
	now = now.Add(30 * time.Second)
	if again := holders(); !slices.Equal(again, first) {
		t.Fatalf("%v, then %v", first, again)
	}
	// The holder is suspended; another takes over, and keeps the lease when the
	// first resumes.
	frozen := leases[first[0]]
	leases = slices.Delete(slices.Clone(leases), first[0], first[0]+1)
	if early := holders(); len(early) > 0 {
		t.Fatalf("%v hold it, too", early)
	}
	now = now.Add(61 * time.Second)
	if frozen.Holds() {
		t.Error("the suspended master believes that it holds it")
	}
	second := holders()
	if len(second) != 1 {
		t.Fatalf("%v hold it", second)
	}
	if ok, err := frozen.Hold(); ok || err != nil {
		t.Errorf("two hold it: %v", err)
	}
	if err := leases[second[0]].Release(); err != nil {
		t.Fatal(err)
	}
	if ok, err := frozen.Hold(); !ok || err != nil {
		t.Errorf("it was given back and cannot be had: %v", err)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) > 3 {
		t.Errorf("%d files are left", len(entries))
	}
}

// TestWrongClocks: whatever the time of day is at each master, the holder keeps the lease while it renews it.
func TestWrongClocks(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	master := func(name string, wrong time.Duration) *Lease {
		l := New(dir, "lead", name, time.Minute)
		l.now = func() time.Time { return now.Add(wrong) }
		return l
	}
	for _, wrong := range []time.Duration{48 * time.Hour, -48 * time.Hour} {
		right, other := master("right", 0), master("other", wrong)
		for range 10 {
			one, err := right.Hold()
			two, err2 := other.Hold()
			if !one || two || err != nil || err2 != nil {
				t.Fatalf("a clock that is wrong by %v: %v %v, %v %v", wrong, one, two, err, err2)
			}
			now = now.Add(20 * time.Second)
		}
		if err := right.Release(); err != nil {
			t.Fatal(err)
		}
		if ok, err := other.Hold(); !ok || err != nil {
			t.Fatalf("it was given back and cannot be had: %v", err)
		}
		if err := other.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamagedLease: a file that a loss of power has emptied is a lease that ends.
func TestDamagedLease(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/lead.7", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	l := New(dir, "lead", "one", time.Minute)
	l.now = func() time.Time { return now }
	if ok, err := l.Hold(); ok || err != nil {
		t.Errorf("taken at once: %v %v", ok, err)
	}
	now = now.Add(time.Minute)
	if ok, err := l.Hold(); !ok || err != nil {
		t.Errorf("a minute later: %v %v", ok, err)
	}
}
