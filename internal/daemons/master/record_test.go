package master

import (
	"testing"
	"time"
)

func TestUnauthenticatedRefusalsAreBounded(t *testing.T) {
	s := newRefusalLimit()
	now := time.Unix(1e9, 0)
	taken := 0
	for range 100 {
		if _, ok := s.Admit(now); ok {
			taken++
		}
	}
	if taken != 10 {
		t.Errorf("%d were recorded", taken)
	}
	if skipped, ok := s.Admit(now.Add(10 * time.Second)); !ok || skipped != 90 {
		t.Errorf("later: %d %v", skipped, ok)
	}
}
