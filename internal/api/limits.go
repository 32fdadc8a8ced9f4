package api

import (
	"sync"
	"time"
)

// limits slow down those who try passwords: after some failures from one
// address within a time, further attempts are refused without asking anybody.
type limits struct {
	now func() time.Time

	mu       sync.Mutex
	failures map[string]*failures
}

type failures struct {
	n     int
	since time.Time
}

const (
	// maxFailures is how many wrong logins an address has in limitTime.
	maxFailures = 20
	limitTime   = time.Minute
	// maxLimited bounds the addresses that are remembered.
	maxLimited = 10000
)

func newLimits(now func() time.Time) *limits {
	return &limits{now: now, failures: map[string]*failures{}}
}

// allowed reports whether an address may try.
func (l *limits) allowed(addr string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.failures[addr]
	if f != nil && l.now().Sub(f.since) > limitTime {
		delete(l.failures, addr)
		f = nil
	}
	return f == nil || f.n < maxFailures
}

// failed notes a wrong login.
func (l *limits) failed(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.failures[addr]
	if f == nil {
		if len(l.failures) >= maxLimited {
			for k, f := range l.failures {
				if l.now().Sub(f.since) > limitTime {
					delete(l.failures, k)
				}
			}
			if len(l.failures) >= maxLimited {
				clear(l.failures)
			}
		}
		f = &failures{since: l.now()}
		l.failures[addr] = f
	}
	f.n++
}
