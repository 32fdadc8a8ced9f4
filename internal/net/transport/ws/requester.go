package ws

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coder/websocket"

	"brine/internal/base/salt"
	"brine/internal/net/transport"
)

// Limits of idle connections.
const (
	maxIdle  = 8
	idleTime = time.Minute
)

// requester has a connection for each pending request, and some idle ones.
type requester struct {
	addr string
	o    transport.DialOptions
	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu   sync.Mutex
	idle []*client // the last one was used last
}

// client is one connection of a requester.
type client struct {
	link
	replies chan []byte // closed after err was set
	err     error
	timer   *time.Timer // ends an idle connection
}

func newRequester(addr string, o transport.DialOptions) *requester {
	r := &requester{addr: addr, o: o}
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
	c, err := r.get(ctx)
	if err != nil {
		return nil, r.failed(ctx, err)
	}
	if err := c.ws.Write(ctx, websocket.MessageBinary, body); err != nil {
		c.close()
		return nil, r.failed(ctx, c.why(r.addr, err))
	}
	select {
	case reply, ok := <-c.replies:
		if !ok {
			return nil, r.failed(ctx, c.err)
		}
		r.put(c)
		return reply, nil
	case <-ctx.Done():
		c.close() // its reply would be mistaken for that of the next request
		return nil, r.failed(ctx, ctx.Err())
	}
}

// failed returns the context's error if that was the cause.
func (r *requester) failed(ctx context.Context, err error) error {
	switch {
	case r.ctx.Err() != nil:
		return salt.Errorf(salt.Unavailable, "connection to %s: %w", r.addr, errClosed)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return salt.Errorf(salt.Timeout, "no answer from %s: %w", r.addr, ctx.Err())
	case ctx.Err() != nil:
		return fmt.Errorf("request to %s: %w", r.addr, ctx.Err())
	}
	return err
}

// get returns an unused connection.
func (r *requester) get(ctx context.Context) (*client, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	if err := r.ctx.Err(); err != nil {
		r.mu.Unlock()
		return nil, err
	}
	if n := len(r.idle); n > 0 {
		c := r.idle[n-1]
		r.idle = r.idle[:n-1]
		c.timer.Stop()
		r.mu.Unlock()
		return c, nil
	}
	r.wg.Add(1) // under the lock, so that Close waits for it
	r.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	c := &client{replies: make(chan []byte, 1)}
	if err := c.dial(ctx, r.addr, "/", r.o); err != nil {
		r.wg.Done()
		return nil, err
	}
	go func() {
		defer r.wg.Done()
		r.serve(c)
	}()
	return c, nil
}

// put makes the connection available to the next request.
func (r *requester) put(c *client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.idle) >= maxIdle || len(c.replies) > 0 {
		c.live.Close()
		return
	}
	c.timer = time.AfterFunc(idleTime, func() {
		if r.forget(c) {
			c.live.Close()
		}
	})
	r.idle = append(r.idle, c)
}

// forget removes c from the idle connections and reports whether it was there.
func (r *requester) forget(c *client) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, x := range r.idle {
		if x == c {
			r.idle = append(r.idle[:i], r.idle[i+1:]...)
			c.timer.Stop()
			return true
		}
	}
	return false
}

// serve reads replies until the connection ends.
func (r *requester) serve(c *client) {
	stop := context.AfterFunc(r.ctx, c.close)
	defer stop()
	c.whileBeating(r.o.Heartbeat, func() {
		c.err = c.why(r.addr, c.readReplies())
		r.forget(c)
		close(c.replies)
	})
}

// readReplies ends with an error. A server that sends an unrequested message gets no further
// request.
func (c *client) readReplies() error {
	for {
		b, err := c.read(nil)
		if err != nil {
			return err
		}
		if err := checkObject(b); err != nil {
			return err
		}
		select {
		case c.replies <- b:
		default:
			return errors.New("the server sent an answer without a request")
		}
	}
}
