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
	// warm is the address of the last session while its keys are known to be valid.
	warm   string
	failed int // failed look-ups in a row
	// resolved is the result of the last successful look-up.
	resolved []address.Endpoint
}

// addresses returns the addresses to try: the warm one, or those that the name has now. If
// the look-up fails (err), they are those of the last successful look-up, so that the
// minion does not need the name server to reconnect. That is safe: masters must
// authenticate anyway.
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

// lookupAgain bounds a look-up when an earlier address can be tried instead.
const lookupAgain = 2 * time.Second

// pause returns the pause after a failed look-up; 0 means the same pause as after any other
// failure. The options retry_dns and retry_dns_count reduce the load of a name server; the
// minion never stops trying.
func (l *locator) pause(o *Options) time.Duration {
	switch {
	case l.failed == 0:
		return 0
	case o.RetryDNSCount > 0 && l.failed >= o.RetryDNSCount:
		return max(o.RetryDNS, slowLookup)
	}
	return o.RetryDNS
}

// slowLookup is the minimum pause after retry_dns_count failed look-ups.
const slowLookup = 30 * time.Second
