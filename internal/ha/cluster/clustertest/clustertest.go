// Package clustertest has common helpers for the tests of a cluster's packages. It imports none
// of them.
package clustertest

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"brine/internal/net/crypt"
)

// giveUp is the timeout of tests.
const giveUp = 60 * time.Second

// Eventually fails the test unless ok succeeds within a minute.
func Eventually(t testing.TB, what string, ok func() error) {
	t.Helper()
	for end := time.Now().Add(giveUp); ; time.Sleep(5 * time.Millisecond) {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited for: %s: %v", what, err)
		}
	}
}

// Keys returns four key pairs.
var Keys = sync.OnceValues(func() ([]*crypt.PrivateKey, error) {
	var out []*crypt.PrivateKey
	for range 4 {
		k, err := crypt.GenerateKey(2048)
		if err != nil {
			return nil, err
		}
		out = append(out, k)
	}
	return out, nil
})

// Quiet returns a log that discards everything.
func Quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
