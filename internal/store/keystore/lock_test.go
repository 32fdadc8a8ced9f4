package keystore

import (
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestExclusive checks that, if keys are replicated, a change waits for Exclusive of another store
// of the same directory, whose own changes do not wait. Otherwise nothing waits.
func TestExclusive(t *testing.T) {
	dir := t.TempDir()
	open := func() *Store {
		s, err := Open(dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	mirror, program := open(), open()
	for _, marked := range []bool{true, false} {
		mark := filepath.Join(dir, MirrorMark)
		if marked {
			if err := os.WriteFile(mark, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		} else if err := os.Remove(mark); err != nil {
			t.Fatal(err)
		}
		if err := mirror.Put(Pending, "m", "key"); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		err := mirror.Exclusive(func(s *Store) error {
			go func() { done <- program.As(nil, "root", "salt-key").Move("m", Pending, Rejected) }()
			if marked {
				select {
				case err := <-done:
					t.Errorf("a program changed keys meanwhile: %v", err)
				case <-time.After(100 * time.Millisecond):
				}
			} else if err := <-done; err != nil {
				t.Error(err)
			}
			return s.Put(Accepted, "m", "key")
		})
		if err != nil {
			t.Fatal(err)
		}
		if marked {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if st, _, err := program.Lookup("m"); err != nil || st == None {
			t.Errorf("%v, %v", st, err)
		}
	}
}

// TestNoLocks checks that keys can be changed on a file system without flock.
func TestNoLocks(t *testing.T) {
	flock = func(int, int) error { return syscall.ENOLCK }
	t.Cleanup(func() { flock = syscall.Flock })
	dir := t.TempDir()
	s, err := Open(dir, slog.New(slog.DiscardHandler))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, MirrorMark), nil, 0o600)
	}
	if err == nil {
		err = s.Exclusive(func(s *Store) error { return s.Put(Pending, "m", "key") })
	}
	if err == nil {
		err = s.Move("m", Pending, Accepted)
	}
	if err != nil {
		t.Error(err)
	}
}
