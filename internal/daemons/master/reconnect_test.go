package master

import (
	"net"
	"slices"
	"testing"
	"time"

	"brine/internal/py/value"
)

// TestHandAgain: jobs that a stock minion may have missed are republished, but
// not for a minion that restarted since.
func TestHandAgain(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	q := newQueue(func() time.Time { return now })
	var w reconnects
	job := value.DictOf("fun", "test.ping")
	q.add(job, "old", []string{"salts"}, nil, now.Add(time.Hour))
	now = now.Add(2 * time.Minute)
	q.add(job, "over", []string{"salts"}, nil, now)
	q.add(job, "1", []string{"salts", "restarted", "brines", "done"}, nil, now.Add(time.Hour))
	q.missed("brines", 0, 1)
	q.returned("1", "done")
	now = now.Add(time.Second)
	w.signedIn("restarted", now)
	got := q.unheard(againFor, againJobs, 100, w.since)
	if len(got) != 1 || len(got["salts"]) != 1 || got["salts"][0].jid != "1" {
		t.Errorf("%v", got)
	}
	if got := q.unheard(againFor, againJobs, 0, w.since); len(got) != 0 {
		t.Errorf("%v: above the limit", got)
	}
	for i := range againJobs { // so many that a minion has forgotten the first
		q.add(job, string(rune('A'+i)), nil, nil, now.Add(time.Hour))
	}
	if got := q.unheard(againFor, againJobs, 100, w.since); len(got) != 0 {
		t.Errorf("%v: too long ago", got)
	}

	a, b := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2}
	var due []bool
	for _, conns := range [][]net.Addr{{a}, {a}, {a, b}, {a, b}, {a, b}, {a}, {a}} {
		due = append(due, w.look(conns))
	}
	if !slices.Equal(due, []bool{false, true, false, true, false, false, false}) {
		t.Errorf("%v", due)
	}
}
