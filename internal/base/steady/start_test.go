package steady

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestResume: a process that starts with a clock days ahead of its record removes nothing for an hour that it would not have removed
// before. It does not record the wrong time.
func TestResume(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "brine") // created by Record
	path := filepath.Join(dir, "clock")
	t.Cleanup(func() { start.ahead = 0 })
	const days = 72 * time.Hour
	write := func(at time.Time) {
		t.Helper()
		if err := os.WriteFile(path, []byte(at.UTC().Format(time.RFC3339)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	near := func(what string, got, want time.Time) {
		t.Helper()
		if got.Sub(want).Abs() > time.Minute {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	if Resume(path) != 0 {
		t.Error("a clock is distrusted without a record")
	}
	near("without a record", Removal(), time.Now())
	past, end := context.WithCancel(t.Context())
	end()
	Record(past, path, func(err error) { t.Error(err) })
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory of the record: %v, %v", info, err)
	}
	write(time.Now().Add(-5 * time.Minute))
	if Resume(path) != 0 {
		t.Error("a clock is distrusted after a restart of some minutes")
	}
	write(time.Now().Add(days))
	if Resume(path) != 0 {
		t.Error("a clock behind its record is distrusted")
	}
	near("behind the record", Removal(), time.Now())
	write(time.Now().Add(-days))
	if ahead := Resume(path); ahead < days || ahead > days+time.Minute {
		t.Error(ahead)
	}
	near("ahead of the record", Removal(), time.Now().Add(-days))
	near("a job may still expire", Early(), time.Now())

	// Without a readable record the newest file counts, and of another program's record its content.
	for _, record := range []string{"", "damaged\n"} {
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, "masters"), 0o700)); err != nil {
			t.Fatal(err)
		}
		if Resume(path) != 0 {
			t.Error("a clock is distrusted in an empty directory")
		}
		if record != "" {
			if err := os.WriteFile(path, []byte(record), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		at := time.Now().Add(-days)
		for name, older := range map[string]time.Duration{"jobs.db": days, "masters/voters": 0} {
			file := filepath.Join(dir, name)
			if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chtimes(file, at.Add(-older), at.Add(-older))); err != nil {
				t.Fatal(err)
			}
		}
		other := []byte(at.Add(-time.Hour).UTC().Format(time.RFC3339) + "\n")
		if err := os.WriteFile(filepath.Join(dir, "clock.other"), other, 0o600); err != nil {
			t.Fatal(err)
		}
		if ahead := Resume(path); ahead < days-time.Minute || ahead > days+time.Minute {
			t.Errorf("by the newest file, record %q: %v", record, ahead)
		}
		if err := os.WriteFile(filepath.Join(dir, "jobs.db"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if ahead := Resume(path); ahead != 0 {
			t.Errorf("a file was just written, and the clock is distrusted: %v", ahead)
		}
	}
	write(time.Now().Add(-days))
	Resume(path)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	Record(ctx, path, func(err error) { t.Error(err) })
	if ahead := Resume(path); ahead < days-time.Minute || ahead > days+time.Minute {
		t.Errorf("the doubtful time was recorded: %v", ahead)
	}
	start.at = start.at.Add(-believeTime)
	near("after an hour", Removal(), time.Now())
	Record(ctx, path, func(err error) { t.Error(err) })
	if Resume(path) != 0 {
		t.Error("the believed time was not recorded")
	}
}
