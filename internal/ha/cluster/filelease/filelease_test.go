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
	now = now.Add(61 * time.Second)
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
