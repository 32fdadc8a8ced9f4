package link

import (
	"context"
	"net"
	"strconv"
	"time"

	"brine/internal/daemons/minion/address"
)

// locator finds the addresses of one master. One goroutine uses it, that of the
// sessions.
type locator struct {
	// warm is the address at which a session was good until now.
	warm   string
	failed int // look-ups in a row
	// resolved is what the last look-up that succeeded has found.
	resolved []address.Endpoint
}

// addresses returns where to look for the master: where it was a moment ago,
// or what its name means now. While that cannot be found out, and err says so,
// it is where the name led before: a name server that is unreachable parts no
// minion from its master, and a peer there has to prove itself anyway.
func (l *locator) addresses(ctx context.Context, of address.Master, r *net.Resolver) (found []address.Endpoint, err error) {
	if host, port, err := net.SplitHostPort(l.warm); err == nil {
		p, _ := strconv.Atoi(port)
		return []address.Endpoint{{Host: host, Port: p}}, nil
	}
	if len(l.resolved) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, lookupAgain)
		defer cancel()
	}
	if found, err = of.Resolve(ctx, r); err != nil {
		return l.resolved, err
	}
	l.resolved = found
	return found, nil
}

// lookupAgain is how long a look-up may take when there is another address to
// try.
const lookupAgain = 2 * time.Second

// pause is how long to wait after a look-up that failed, 0 for as long as after
// any other failure. The options retry_dns and retry_dns_count reduce the load
// of a name server; a name is never given up.
func (l *locator) pause(o *Options) time.Duration {
	switch {
	case l.failed == 0:
		return 0
	case o.RetryDNSCount > 0 && l.failed >= o.RetryDNSCount:
		return max(o.RetryDNS, slowLookup)
	}
	return o.RetryDNS
}

// slowLookup is the pause once retry_dns_count look-ups have failed.
const slowLookup = 30 * time.Second
