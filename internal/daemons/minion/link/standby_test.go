package link

import (
	"testing"
	"time"
)

// TestProbePause: a fast master is probed each second, a slow one every five.
func TestProbePause(t *testing.T) {
	const ms = time.Millisecond
	for took, want := range map[time.Duration]time.Duration{
		0: time.Second, 2 * ms: time.Second, 10 * ms: 2 * time.Second, 20 * ms: 4 * time.Second, 25 * ms: 5 * time.Second, time.Second: 5 * time.Second,
	} {
		if got := probePause(took, time.Second, 5*time.Second); got != want {
			t.Errorf("after an answer in %v it waits %v, want %v", took, got, want)
		}
	}
	if got := probePause(ms, 5*time.Second, time.Second); got != time.Second {
		t.Errorf("with a short bound it waits %v", got)
	}
}
