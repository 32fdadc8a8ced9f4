package fetch

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTurn checks that the leading master fetches at each interval. The others must fetch when they hear of
// different content, and at each interval when they hear nothing.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = time.Minute
		var u Turn
		is := func(due, leading bool) {
			t.Helper()
			if d, l := u.Due(interval, false), u.Due(interval, true); d != due || l != leading {
				t.Errorf("due %v, not %v; leading %v, not %v", d, due, l, leading)
			}
		}
		is(true, true)
		u.Take()
		is(false, false)
		time.Sleep(interval)
		is(true, true) // no message from a master yet
		u.Take()
		time.Sleep(interval / 2)
		u.Told(true, true)
		is(false, false)
		time.Sleep(interval)
		is(false, true)
		u.Told(false, true)
		is(true, true)
		u.Take()
		u.Told(true, false)
		is(false, false)
		u.Told(false, false) // another master was asked to fetch
		is(true, true)
		u.Take()
		for range 10 {
			time.Sleep(interval)
			u.Told(true, true)
			is(false, true)
		}
		u.Told(true, false)
		time.Sleep(waitLimit(interval) - time.Nanosecond)
		is(false, true)
		time.Sleep(time.Nanosecond)
		is(true, true)
		u.Take()
		is(false, false)
		time.Sleep(interval)
		is(true, true)
		u.Take()
		u.Reset()
		is(true, true)
		if u.Since() < time.Hour {
			t.Error(u.Since())
		}
	})
}
