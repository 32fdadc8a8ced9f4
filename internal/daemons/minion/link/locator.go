package link

import (
	"context"
	"net"
	"strconv"
	"time"

	"brine/internal/daemons/minion/address"
)

// locator finds the addresses of one master. Only the goroutine of the sessions
// uses it.
type locator struct {
	// warm is the address of the last good session, while it is fresh.
	warm   string
	failed int // failed look-ups in a row
	// resolved is the result of the last successful look-up.
	resolved []address.Endpoint
}

// addresses returns the addresses to try: that of a moment ago, or the current
// ones of the name. If the look-up fails (err), they are the previous ones: an
// unreachable name server does not separate a minion from its master, and peers
// must authenticate anyway.
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

// lookupAgain bounds a look-up when there is another address to try.
const lookupAgain = 2 * time.Second

// pause returns the pause after a failed look-up, 0 for the same as after any
// other failure. The options retry_dns and retry_dns_count reduce the load of a
// name server; the minion never stops trying.
func (l *locator) pause(o *Options) time.Duration {
	switch {
	case l.failed == 0:
		return 0
	case o.RetryDNSCount > 0 && l.failed >= o.RetryDNSCount:
		return max(o.RetryDNS, slowLookup)
	}
	return o.RetryDNS
}

// slowLookup is the pause after retry_dns_count failed look-ups.
const slowLookup = 30 * time.Second
