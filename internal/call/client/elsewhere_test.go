package client

import (
	"testing"
	"time"
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
