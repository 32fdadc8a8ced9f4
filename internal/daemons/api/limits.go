package api

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"brine/internal/py/value"
)

// limits slows down password guessing. After several wrong passwords for one user from one
// address within limitTime, further attempts are refused without asking the master. Pending
// attempts count, too; further ones wait for their results. Credentials that were valid
// recently are never limited, so that no client can lock out a user who has logged in.
type limits struct {
	now  func() time.Time
	most int // wrong attempts of one user from one address; 0: no limit

	mu     sync.Mutex
	counts map[limitKey]*attempts
	secret [32]byte
	proven map[[32]byte]time.Time // credentials that were valid, by HMAC
}

// limitKey is a user at an address, or all users at an address.
type limitKey struct {
	addr, user string
	all        bool
}

type attempts struct {
	wrong, running int
	since          time.Time     // time of the first wrong attempt
	changed        chan struct{} // closed when an attempt ends
}

const (
	limitTime = time.Minute
	// everybody is the limit of all users of an address together, as a multiple of the
	// limit of one user: many users may share a proxy.
	everybody = 50
	// maxLimited bounds the number of stored users and addresses, and that of stored
	// credentials, which expire after provenTime.
	maxLimited = 10000
	provenTime = 24 * time.Hour
)

func newLimits(most int, now func() time.Time) *limits {
	l := &limits{now: now, most: most, counts: map[limitKey]*attempts{}, proven: map[[32]byte]time.Time{}}
	rand.Read(l.secret[:])
	return l
}

// verdict is the result of an attempt.
type verdict int

const (
	unjudged verdict = iota // the master was not asked
	right
	wrong
	late // the result did not arrive in time
)

// tooMany is the error of a refused attempt; wait is the time until a retry is allowed.
type tooMany struct{ wait time.Duration }

func (e tooMany) Error() string {
	return fmt.Sprintf("Too many wrong logins of this user from this address: try again in %d seconds", e.seconds())
}

func (e tooMany) seconds() int { return int(math.Ceil(e.wait.Seconds())) }

// begin waits until an attempt is allowed. The caller must pass the result of the attempt
// to end. The error is a tooMany, or that of ctx.
func (l *limits) begin(ctx context.Context, addr string, creds *value.Dict) (end func(verdict), err error) {
	digest := l.digest(creds)
	keys := l.keys(addr, creds)
	for {
		l.mu.Lock()
		if at, ok := l.proven[digest]; ok && l.now().Sub(at) < provenTime || l.most == 0 {
			l.mu.Unlock()
			return func(v verdict) { l.end(keys, digest, v, false) }, nil
		}
		var busy chan struct{}
		for _, k := range keys {
			most := l.most
			if k.all {
				most *= everybody
			}
			a := l.count(k)
			if a.wrong >= most {
				err = tooMany{max(a.since.Add(limitTime).Sub(l.now()), time.Second)}
			} else if a.wrong+a.running >= most {
				busy = a.changed
			}
		}
		if err == nil && busy == nil {
			for _, k := range keys {
				l.count(k).running++
			}
		}
		l.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case busy == nil:
			return func(v verdict) { l.end(keys, digest, v, true) }, nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *limits) end(keys []limitKey, digest [32]byte, v verdict, counted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch v {
	case right:
		if len(l.proven) >= maxLimited {
			clear(l.proven)
		}
		l.proven[digest] = l.now()
	case wrong:
		delete(l.proven, digest)
	}
	if l.most == 0 || !counted && v != wrong {
		return
	}
	for _, k := range keys {
		a := l.count(k)
		if counted {
			a.running--
		}
		if v == wrong || v == late {
			if a.wrong == 0 {
				a.since = l.now()
			}
			a.wrong++
		}
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

// count returns the attempts of a key, and resets expired ones. mu must be held.
func (l *limits) count(k limitKey) *attempts {
	a := l.counts[k]
	if a == nil {
		l.makeRoom()
		a = &attempts{changed: make(chan struct{})}
		l.counts[k] = a
	}
	if l.now().Sub(a.since) > limitTime {
		a.wrong = 0
	}
	return a
}

// makeRoom bounds the number of counts: it drops expired ones, and then all that no running
// attempt uses.
func (l *limits) makeRoom() {
	if len(l.counts) < maxLimited {
		return
	}
	for _, all := range []bool{false, true} {
		for k, a := range l.counts {
			if a.running == 0 && (all || l.now().Sub(a.since) > limitTime) {
				delete(l.counts, k)
			}
		}
		if len(l.counts) < maxLimited {
			return
		}
	}
}

// maxUser is the number of bytes of a user name that are compared.
const maxUser = 256

func (l *limits) keys(addr string, creds *value.Dict) []limitKey {
	user := value.Str(creds.At("username"))
	user = user[:min(len(user), maxUser)]
	if ip, err := netip.ParseAddr(addr); err == nil {
		addr = network(ip).String()
	}
	return []limitKey{{addr: addr, user: user}, {addr: addr, all: true}}
}

// digest returns an HMAC of credentials, so that the credentials themselves are not stored.
func (l *limits) digest(creds *value.Dict) (d [32]byte) {
	h := hmac.New(sha256.New, l.secret[:])
	for _, k := range []string{"eauth", "username", "password"} {
		fmt.Fprintf(h, "%q ", value.Repr(creds.At(k)))
	}
	h.Sum(d[:0])
	return d
}

// attempt starts a login of the client with these credentials.
func (l *limits) attempt(c *call, creds *value.Dict) (end func(verdict), err error) {
	end, err = l.begin(c.r.Context(), c.address(), creds)
	if t, ok := errors.AsType[tooMany](err); ok {
		c.w.Header().Set("Retry-After", fmt.Sprint(t.seconds()))
		return nil, &failure{http.StatusTooManyRequests, t.Error()}
	}
	return end, err
}
