package client

import (
	"testing"
	"time"

	"brine/internal/py/value"
)

// TestElsewhereIsNotWaitedFor: minions that another master commands are reported
// absent at once, unless they return before the others have.
func TestElsewhereIsNotWaitedFor(t *testing.T) {
	c := New(Options{Timeout: 5 * time.Second, GatherJobTimeout: 10 * time.Second}, "", nil, nil, quiet())
	now := time.Now()
	p := Published{JID: "1", Minions: []string{"a", "b", "c"}, Elsewhere: map[string]string{"b": "m2", "c": "m2"}}
	w := c.newWait(p, &Job{}, now)
	w.expect(p.Minions, now) // the announcement names all
	if w.over(now) {
		t.Fatal("it is over although a is waited for")
	}
	if !w.returned("b") || !w.returned("a") || !w.over(now) {
		t.Error("it is not over after the return of a")
	}
	if got := w.unreturned(); len(got) != 1 || got[0] != "c" {
		t.Errorf("not returned: %v", got)
	}
	p.Elsewhere["a"] = "m2"
	if w := c.newWait(p, &Job{}, now); !w.over(now) || len(w.unreturned()) != 3 {
		t.Errorf("all are elsewhere: %v", w.unreturned())
	}
}

// TestAwayIsNotWaitedFor: minions that are not connected are not waited for, if the job says so.
func TestAwayIsNotWaitedFor(t *testing.T) {
	c := New(Options{Timeout: 5 * time.Second, GatherJobTimeout: 10 * time.Second}, "", nil, nil, quiet())
	now := time.Now()
	p, err := c.published(value.DictOf("enc", "clear", "load", value.DictOf(
		"jid", "20261128134532806955", "minions", value.ListOf("a", "b"), "missing", value.ListOf(),
		"away", value.DictOf("b", 1.7e9, "c", "x", "d", -1.0), "expires", 1.7e9+15)))
	if err != nil || len(p.Away) != 1 || !p.Away["b"].Equal(time.Unix(1_700_000_000, 0)) || !p.Expires.Equal(time.Unix(1_700_000_015, 0)) {
		t.Fatalf("%+v, %v", p, err)
	}
	for leave, over := range map[bool]bool{true: true, false: false} {
		w := c.newWait(p, &Job{LeaveAway: leave}, now)
		w.expect(p.Minions, now)
		w.returned("a")
		if w.over(now) != over || len(w.unreturned()) != 1 {
			t.Errorf("leave %v: over %v, not returned: %v", leave, w.over(now), w.unreturned())
		}
	}
}
