package queue

import (
	"fmt"
	"testing"
)

// numbers returns the messages from a number on, and the number of the first.
func numbers(q *Queue, next uint64, n, size int) string {
	first, items := q.From(next, n, size)
	return fmt.Sprintf("%d %s", first, items)
}

func TestOrderAndAcknowledgement(t *testing.T) {
	q := New(10, 100)
	for _, m := range []string{"one", "two", "three"} {
		q.Add([]byte(m))
	}
	for _, c := range []struct {
		next    uint64
		n, size int
		want    string
	}{
		{1, 10, 100, "1 [one two three]"},
		{2, 1, 100, "2 [two]"},
		{1, 10, 4, "1 [one two]"}, // at most about size bytes: stop after the message that reaches it
		{4, 10, 100, "4 []"},
	} {
		if got := numbers(q, c.next, c.n, c.size); got != c.want {
			t.Errorf("from %d, %d messages, %d bytes: %s, want %s", c.next, c.n, c.size, got, c.want)
		}
	}
	q.Ack(2)
	q.Ack(1) // an old acknowledgement changes nothing
	if got := numbers(q, 1, 10, 100); got != "3 [three]" {
		t.Error(got)
	}
	q.Ack(99)
	q.Add([]byte("four"))
	if got := numbers(q, 1, 10, 100); got != "4 [four]" {
		t.Errorf("numbers do not go on: %s", got)
	}
}

// TestFull: the oldest messages are dropped and counted. A single message larger than the limit
// stays.
func TestFull(t *testing.T) {
	q := New(2, 10)
	for _, m := range []string{"a", "b", "c"} {
		q.Add([]byte(m))
	}
	if got := numbers(q, 1, 10, 100); got != "2 [b c]" {
		t.Error(got)
	}
	q.Add([]byte("more than ten bytes"))
	if got := numbers(q, 1, 10, 100); got != "4 [more than ten bytes]" {
		t.Error(got)
	}
	if n := q.TakeLost(); n != 3 {
		t.Errorf("%d messages were lost, want 3", n)
	}
	if n := q.TakeLost(); n != 0 {
		t.Errorf("%d messages were lost since then", n)
	}
}

func TestClear(t *testing.T) {
	q := New(2, 10)
	q.Add([]byte("a"))
	q.Clear()
	q.Add([]byte("b"))
	if got := numbers(q, 1, 10, 100); got != "2 [b]" {
		t.Error(got)
	}
	select {
	case <-q.More.C():
	default:
		t.Error("no message is signalled")
	}
}
