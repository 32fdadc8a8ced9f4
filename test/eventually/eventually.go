// Package eventually waits in tests for conditions that other processes or goroutines fulfil.
package eventually

import (
	"errors"
	"testing"
	"time"
)

// Limit is the usual timeout; no machine should need longer.
const Limit = time.Minute

// Nil calls ok repeatedly until it returns nil, and returns how long that took. After within the
// test fails with the last error.
func Nil(t testing.TB, within time.Duration, what string, ok func() error) time.Duration {
	t.Helper()
	from := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := ok()
		took := time.Since(from)
		switch {
		case err == nil:
			return took
		case took > within:
			t.Fatalf("waited %v for: %s: %v", within, what, err)
		}
		time.Sleep(pause)
	}
}

var errNotYet = errors.New("it is not so yet")

// True calls ok repeatedly until it returns true, at most for Limit.
func True(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Nil(t, Limit, what, func() error {
		if ok() {
			return nil
		}
		return errNotYet
	})
}
