package zeromq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/transport"
	"brine/internal/net/transport/netpeer"
)

const (
	// maxConns is the default number of connections, and so of concurrent requests, of one
	// requester; further requests wait.
	maxConns = 4
	// idleTime is how long a connection is kept for the next request.
	idleTime = time.Minute
)

var (
	errClosed     = errors.New("the requester is closed")
	errUnasked    = errors.New("a reply without a request")
	errBadReply   = errors.New("a reply that is not an empty frame and one body")
	errConnection = errors.New("the connection was abandoned")
)

// requester is a pool of REQ connections. Each carries one request at a time. A connection that
// fails or whose caller gives up is closed, so that a late reply cannot be mistaken for the reply
// to another request.
type requester struct {
	addr  string
	opts  transport.DialOptions
	slots chan struct{} // one per pending request
	ctx   context.Context
	close context.CancelFunc

	mu    sync.Mutex
	idle  []*reqConn     // last used last
	conns sync.WaitGroup // their reading goroutines
	keep  time.Duration  // idleTime
}

func newRequester(addr string, o transport.DialOptions) *requester {
	r := &requester{addr: addr, opts: dialDefaults(o), keep: idleTime}
	n := cmp.Or(o.Requests, maxConns)
	if fixedPort(o) {
		n = 1
	}
	r.slots = make(chan struct{}, n)
	r.ctx, r.close = context.WithCancel(context.Background())
	return r
}

// Request sends body and awaits the reply. A request is never sent twice: if the connection breaks
// after the first byte, it fails, since the master may have acted on it.
func (r *requester) Request(ctx context.Context, body []byte) ([]byte, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return nil, failed(fmt.Errorf("waiting for a free connection to %s: %w", r.addr, ctx.Err()))
	case <-r.ctx.Done():
		return nil, salt.Errorf(salt.Unavailable, "%w", errClosed)
	}
	c, err := r.conn(ctx)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(r.ctx, func() { c.fail(errClosed) })()
	reply, err := c.roundTrip(ctx, body)
	if err != nil {
		c.fail(errConnection)
		return nil, failed(fmt.Errorf("request to %s: %w", r.addr, err))
	}
	r.put(c)
	return reply, nil
}

// conn returns a usable idle connection, or a new one.
func (r *requester) conn(ctx context.Context) (*reqConn, error) {
	for {
		r.mu.Lock()
		n := len(r.idle)
		if n == 0 {
			r.mu.Unlock()
			return r.dial(ctx)
		}
		c := r.idle[n-1]
		r.idle = r.idle[:n-1]
		r.mu.Unlock()
		c.expiry.Stop()
		if c.good() {
			return c, nil
		}
		c.fail(errConnection)
	}
}

func (r *requester) dial(ctx context.Context) (*reqConn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	lim := limits{command: maxCommand, message: r.opts.MaxMessage, frames: 2}
	d, err := dial(ctx, r.addr, r.opts, ready{socket: "REQ"}, lim, "ROUTER", "REP")
	if err != nil {
		return nil, err
	}
	c := &reqConn{dialled: d, replies: make(chan []byte, 1), dead: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		d.conn.Close()
		return nil, salt.Errorf(salt.Unavailable, "%w", errClosed)
	}
	r.conns.Go(c.read)
	return c, nil
}

// put keeps c for the next request, for a while.
func (r *requester) put(c *reqConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		c.fail(errClosed)
		return
	}
	r.idle = append(r.idle, c)
	c.expiry = time.AfterFunc(r.keep, func() { r.retire(c) })
}

// retire closes c unless it is in use again.
func (r *requester) retire(c *reqConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.idle, c); i >= 0 {
		r.idle = slices.Delete(r.idle, i, i+1)
		c.fail(errConnection)
	}
}

// Close closes all connections; requests under way fail.
func (r *requester) Close() error {
	r.close()
	r.mu.Lock()
	for _, c := range r.idle {
		c.expiry.Stop()
		c.fail(errClosed)
	}
	r.idle = nil
	r.mu.Unlock()
	r.conns.Wait()
	return nil
}

// reqConn is one connection. Its goroutine always reads, to answer PINGs and to notice the end.
type reqConn struct {
	*dialled
	waiting atomic.Bool // for a reply
	replies chan []byte
	expiry  *time.Timer

	once sync.Once
	dead chan struct{} // closed after err is set
	err  error
}

func (c *reqConn) fail(err error) {
	c.once.Do(func() {
		c.err = err
		close(c.dead)
		c.conn.Close()
	})
}

// good reports whether the connection is open, as far as it can be known here.
func (c *reqConn) good() bool {
	select {
	case <-c.dead:
		return false
	default:
		if c.raw == nil {
			return true
		}
		_, closed := netpeer.Peek(c.raw)
		return !closed
	}
}

func (c *reqConn) read() {
	for {
		reply, err := c.reply()
		if err == nil && !c.waiting.CompareAndSwap(true, false) {
			err = errUnasked
		}
		if err != nil {
			c.fail(unexpected(err))
			return
		}
		c.replies <- reply
	}
}

func (c *reqConn) reply() ([]byte, error) {
	f, err := c.message()
	if err != nil {
		return nil, err
	}
	if !f.more() || len(f.body) > 0 {
		return nil, errBadReply
	}
	f, err = c.message()
	if err == nil && f.more() {
		err = errBadReply
	}
	return f.body, err
}

func (c *reqConn) roundTrip(ctx context.Context, body []byte) ([]byte, error) {
	defer context.AfterFunc(ctx, func() { c.fail(ctx.Err()) })()
	c.waiting.Store(true)
	head := appendHeader(make([]byte, 0, 11), flagMore, 0)
	if err := c.write(appendHeader(head, 0, len(body)), body); err != nil {
		c.fail(err)
		return nil, c.err
	}
	select {
	case reply := <-c.replies:
		return reply, nil
	case <-c.dead:
		select {
		case reply := <-c.replies: // arrived before the end
			return reply, nil
		default:
			return nil, c.err
		}
	}
}
