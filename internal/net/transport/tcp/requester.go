package tcp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/net/transport"
	"brine/internal/net/transport/netpeer"
)

// requester keeps at most one connection for new requests.
type requester struct {
	addr string
	o    transport.DialOptions
	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu   sync.Mutex
	conn *client  // nil if there is none
	dial *attempt // nil if none is under way
}

// attempt is a dial that any number of requests wait for.
type attempt struct {
	done chan struct{}
	conn *client
	err  error
}

func newRequester(addr string, o transport.DialOptions) *requester {
	r := &requester{addr: addr, o: o}
	if r.o.MaxMessage <= 0 {
		r.o.MaxMessage = transport.DefaultMaxMessage
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

func (r *requester) Close() error {
	r.mu.Lock()
	r.stop()
	r.mu.Unlock()
	r.wg.Wait()
	return nil
}

func (r *requester) Request(ctx context.Context, body []byte) ([]byte, error) {
	for {
		c, err := r.connect(ctx)
		if err != nil {
			return nil, err
		}
		reply, err := c.request(ctx, body)
		if !errors.Is(err, errEnded) {
			return reply, err
		}
		// Nothing was sent, so a retry is safe.
	}
}

// connect returns the connection, after dialling if there is none.
func (r *requester) connect(ctx context.Context) (*client, error) {
	if err := ctx.Err(); err != nil {
		return nil, r.failed(err)
	}
	r.mu.Lock()
	if r.ctx.Err() != nil {
		r.mu.Unlock()
		return nil, lost(r.addr, errClosed)
	}
	if c := r.conn; c != nil {
		r.mu.Unlock()
		return c, nil
	}
	a := r.dial
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		r.dial = a
		r.wg.Go(func() { r.run(a) })
	}
	r.mu.Unlock()
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, r.failed(ctx.Err())
	}
}

func (r *requester) failed(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return salt.Errorf(salt.Timeout, "no answer from %s: %w", r.addr, err)
	}
	return fmt.Errorf("request to %s: %w", r.addr, err)
}

// run dials, and then serves the connection until it ends.
func (r *requester) run(a *attempt) {
	conn, live, err := netpeer.Dial(r.ctx, r.addr, r.o)
	r.mu.Lock()
	r.dial = nil
	if a.err = err; err == nil {
		a.conn = newClient(r, conn, live)
		r.conn = a.conn
	}
	r.mu.Unlock()
	close(a.done)
	if err == nil {
		a.conn.serve()
	}
}

// retire takes the connection out of use for further requests.
func (r *requester) retire(c *client) {
	r.mu.Lock()
	if r.conn == c {
		r.conn = nil
	}
	r.mu.Unlock()
	c.retire()
}

// newMID returns a random uuid4.
func newMID() string {
	var u [16]byte
	rand.Read(u[:])
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	var b [36]byte
	hex.Encode(b[:8], u[:4])
	hex.Encode(b[9:13], u[4:6])
	hex.Encode(b[14:18], u[6:8])
	hex.Encode(b[19:23], u[8:10])
	hex.Encode(b[24:], u[10:])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}
