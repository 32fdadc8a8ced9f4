package badinput

import (
	"strings"
	"testing"
	"time"

	"brine/internal/py/value"
	"brine/test/eventually"
)

// TestClocks: a master with a maximum age of requests, and minions with wrong clocks.
func TestClocks(t *testing.T) {
	t.Parallel()
	m := master(t, "request_server_ttl: 60\n")
	key := newKey(t)
	tags := m.Events()
	for _, c := range []struct {
		id    string
		off   time.Duration
		taken bool
	}{
		{"right", 0, true}, {"a-little-late", -30 * time.Second, true}, {"a-little-early", 30 * time.Second, true},
		{"late", -3 * time.Minute, false}, {"early", 3 * time.Minute, false}, {"no-time", -time.Duration(time.Now().UnixNano()), false},
	} {
		b := newBare(t, m, c.id, key)
		must(t, b.signIn(nil))
		for i := range 3 {
			answer, err := b.open(b.send(b.sealed(b.event("clock/"+c.id), func(load *value.Dict) {
				load.Set("ts", time.Now().Add(c.off).Unix())
			})))
			if err != nil || (answer == "bad load") == c.taken {
				t.Errorf("%s, request %d: %v, %v", c.id, i, answer, err)
			}
		}
		if told := strings.Contains(m.Log(), "minion="+c.id+" age="); told == c.taken {
			t.Errorf("%s: told in the log: %v", c.id, told)
		}
	}
	m.Logged("refused request: its time is off by more than request_server_ttl; check the clocks of this master and the minion minion=late age=3m")
	// An attacker on the network path cannot fill the log with these messages.
	if n := strings.Count(m.Log(), "its time is off"); n != 3 {
		t.Errorf("it is told %d times for 9 requests of 3 minions", n)
	}
	eventually.Nil(t, waitLimit, "the events of the others", func() error {
		return contains(tags(), "clock/right\n", "clock/a-little-late\n", "clock/a-little-early\n")
	})
	if strings.Contains(tags(), "clock/late") || strings.Contains(tags(), "clock/early") {
		t.Error("a refused request had an effect")
	}
	// A real minion is not affected as long as the clocks agree.
	minion(t, "w", "", m)
}
