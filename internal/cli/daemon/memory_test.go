package daemon

import "testing"

func TestWorthGivingBack(t *testing.T) {
	const mb = 1 << 20
	g := giver{last: use{20 * mb, 0}, given: use{20 * mb, 0}}
	for i, c := range []struct {
		now  use
		want bool
	}{
		{use{20 * mb, mb / 4}, false},      // nothing has happened
		{use{40 * mb, 40 * mb}, false},     // at work
		{use{40 * mb, 40*mb + 1000}, true}, // at rest after it
		{use{57 * mb, 400 * mb}, true},     // far more than there was
		{use{50 * mb, 500 * mb}, false},    // at work again
	} {
		got := g.worth(c.now)
		if got != c.want {
			t.Errorf("step %d: %v", i, got)
		}
		if got {
			g.gave(use{20 * mb, c.now.allocs})
		}
	}
	if now := memoryNow(); now.held < mb || now.allocs == 0 {
		t.Errorf("this process takes %+v", now)
	}
}

// What is in use when memory is given back, and is freed later without any
// work, is given back, too; and a daemon that needs what it has is left alone
// more and more.
func TestAskedAgainAtRest(t *testing.T) {
	const mb = 1 << 20
	g := giver{last: use{20 * mb, 0}, given: use{20 * mb, 0}}
	if !g.worth(use{100 * mb, 100 * mb}) { // under load
		t.Fatal("much more than there was")
	}
	g.gave(use{90 * mb, 100 * mb})
	asked := 0
	for range 1000 {
		if g.worth(use{90 * mb, 100*mb + 1}) {
			asked++
			g.gave(use{90 * mb, 100*mb + 1})
		}
	}
	if asked < 5 || asked > 15 {
		t.Errorf("asked %d times in 1000 looks", asked)
	}
	g.gave(use{20 * mb, 100*mb + 1})
	for range 1000 {
		if g.worth(use{20 * mb, 100*mb + 2}) {
			t.Fatal("asked although there is little")
		}
	}
}
