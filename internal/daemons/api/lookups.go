package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/call/acl"
	"brine/internal/py/value"
)

// lookups calls the master's functions for consoles, with the token of a session and limited in
// rate. They start no job.
type lookups struct {
	master Master

	mu      sync.Mutex
	pages   map[string]*page // by the token of the session
	cleaned time.Time
}

// page has the counts that limit the requests of the pages of one session.
type page struct {
	looks   ratelimit.Bucket
	streams int
	used    time.Time
}

const (
	// lookRate and lookBurst limit the look-ups of a session per second, pageStreams its
	// open streams.
	lookRate, lookBurst = 10, 40
	pageStreams         = 8
	// pageAge is how long the counts of an idle session are stored.
	pageAge = 10 * time.Minute
)

// maxRows bounds the rows that a look-up can ask for.
const maxRows = 1000

// numbers and truths are the arguments of look-ups that are integers and booleans.
var (
	numbers = map[string]bool{"offset": true, "limit": true, "days": true}
	truths  = map[string]bool{"all": true}
)

// allows reports whether netapi_enable_clients includes a client.
func (c *call) allows(client string) bool {
	return slices.Contains(c.s.Clients, client)
}

// errNoRunners is the error of look-ups if the operator has not enabled the client runner.
var errNoRunners = salt.Errorf(salt.Invalid, "Client disabled: 'runner'. Add to 'netapi_enable_clients' master config option to enable.")

// look calls a function with the session's token. args has the arguments as text.
func (l *lookups) look(c *call, fun string, args *value.Dict) (any, error) {
	if !c.allows(acl.Runner) {
		return nil, errNoRunners
	}
	if !l.page(c.of.Token, func(p *page) bool { return p.looks.Admit(1, time.Now()) }) {
		c.w.Header().Set("Retry-After", "1")
		return nil, &failure{http.StatusTooManyRequests, "This session asks too often: try again in a second"}
	}
	kwargs := value.NewDict(args.Len())
	for k, v := range args.All() {
		name, text := value.Str(k), value.Str(v)
		switch {
		case numbers[name]:
			n, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				return nil, &failure{http.StatusBadRequest, name + " must be a number"}
			}
			if name == "limit" {
				n = min(n, maxRows)
			}
			kwargs.Set(name, n)
		case truths[name]:
			kwargs.Set(name, text == "true")
		default:
			kwargs.Set(name, v)
		}
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), c.s.Timeout)
	defer cancel()
	ret, err := l.master.Look(ctx, c.of.Token, fun, kwargs)
	if err != nil && salt.KindOf(err) == salt.NotFound {
		return nil, &failure{http.StatusNotFound, err.Error()}
	}
	return ret, err
}

// page calls fn with the counts of a session, under the lock.
func (l *lookups) page(token string, fn func(*page) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.cleaned) > pageAge {
		for k, p := range l.pages {
			if p.streams == 0 && now.Sub(p.used) > pageAge {
				delete(l.pages, k)
			}
		}
		l.cleaned = now
	}
	p := l.pages[token]
	if p == nil {
		p = &page{looks: ratelimit.Bucket{Rate: lookRate, Burst: lookBurst}}
		if l.pages == nil {
			l.pages = map[string]*page{}
		}
		l.pages[token] = p
	}
	p.used = now
	return fn(p)
}
