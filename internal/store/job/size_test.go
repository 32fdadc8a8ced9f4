package job

import (
	"log/slog"
	"testing"
	"time"

	"brine/internal/py/value"
)

// TestUsage counts jobs over several hours.
func TestUsage(t *testing.T) {
	s, err := Open(t.TempDir(), Options{KeepJobsSeconds: 86400, JobCache: true}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if u, err := s.Usage(); err != nil || u.Jobs != 0 || !u.Oldest.IsZero() || u.Bytes <= 0 {
		t.Errorf("without jobs: %+v, %v", u, err)
	}
	at := time.Date(2026, 1, 1, 12, 30, 0, 0, time.UTC)
	s.now = func() time.Time { return at }
	for _, jid := range []string{"20260101123000000001", "20260101123000000002", "20260101143000000000"} {
		if err := s.NewJob(value.DictOf("jid", jid, "fun", "test.ping", "tgt", "*"), []string{"a", "b"}); err != nil {
			t.Fatal(err)
		}
		at = at.Add(time.Hour)
	}
	u, err := s.Usage()
	if err != nil || u.Jobs != 3 || u.More || !u.Oldest.Equal(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v, %v", u, err)
	}
}
