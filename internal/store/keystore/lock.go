package keystore

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"brine/internal/base/salt"
)

// MirrorMark is a file in the directory of keys whose keys are replicated to other masters. Its
// presence makes every change wait for Exclusive: the replica compares the keys with what it knows
// before it writes another master's decision, and no other change may happen in between.
const MirrorMark = ".brine-replica-key"

// flock is replaced by tests.
var flock = syscall.Flock

// Bounds of the wait for the lock.
const (
	lockTime = 10 * time.Second
	lockStep = 2 * time.Millisecond
)

// Exclusive calls fn while no other process or goroutine changes keys through this package. fn gets a store for
// its own changes. Programs without this lock, such as Salt's, do not wait. The error is that of fn, or of kind
// Unavailable if a change takes too long. On a file system without flock fn is called without a lock, because
// the time between comparison and write is short.
func (s *Store) Exclusive(fn func(*Store) error) error {
	unlock, err := lockDir(s.dir, syscall.LOCK_EX)
	switch {
	case err == nil:
		defer unlock()
	case errors.Is(err, syscall.EWOULDBLOCK):
		return salt.Errorf(salt.Unavailable, "the keys of minions in %s have been locked by another process for %v", s.dir, lockTime)
	default:
		s.log.Debug("writing keys of minions without a lock", "path", s.dir, "err", err)
	}
	return fn(&Store{directory: s.directory, by: s.by, locked: true})
}

// shared begins a change: if keys are replicated, it waits for Exclusive of others. If the lock
// fails, the change is made without it.
func (s *Store) shared() (done func()) {
	if s.locked {
		return func() {}
	}
	if _, err := os.Lstat(filepath.Join(s.dir, MirrorMark)); err != nil {
		return func() {}
	}
	unlock, err := lockDir(s.dir, syscall.LOCK_SH)
	if err != nil {
		s.log.Warn("changing keys of minions without the lock", "path", s.dir, "err", err)
		return func() {}
	}
	return unlock
}

// lockDir locks a directory with flock(2). The lock ends with the process.
func lockDir(dir string, how int) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(lockTime); ; time.Sleep(lockStep) {
		err := flock(int(f.Fd()), how|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) || time.Now().After(end) {
			f.Close()
			return nil, err
		}
	}
}
