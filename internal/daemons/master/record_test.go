package master

import (
	"testing"
	"time"
)

func TestStrangersAreBounded(t *testing.T) {
	var s strangers
	now := time.Unix(1e9, 0)
	taken := 0
	for range 100 {
		if _, ok := s.take(now); ok {
			taken++
		}
	}
	if taken != strangersMost {
		t.Errorf("%d were recorded", taken)
	}
	if skipped, ok := s.take(now.Add(strangersTime)); !ok || skipped != 100-strangersMost {
		t.Errorf("later: %d %v", skipped, ok)
	}
	if skipped, ok := s.take(now.Add(strangersTime)); !ok || skipped != 0 {
		t.Errorf("told twice: %d %v", skipped, ok)
	}
}
