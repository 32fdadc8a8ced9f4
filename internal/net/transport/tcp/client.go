package tcp

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"brine/internal/net/transport/netpeer"
)

// client is one connection of a requester.
type client struct {
	link
	r      *requester
	frames atomic.Uint64 // received

	mu      sync.Mutex
	asked   bool                   // whether a request that asks for beats was sent
	retired bool                   // close when no request is pending
	pending map[string]chan []byte // by mid; the channels are closed when the connection ends
	err     error                  // why it ended
}

func newClient(r *requester, conn net.Conn, live *netpeer.Conn) *client {
	c := &client{r: r, pending: make(map[string]chan []byte)}
	c.init(conn, live, 0)
	return c
}

// serve reads replies until the connection ends.
func (c *client) serve() {
	stop := context.AfterFunc(c.r.ctx, func() { c.conn.Close() })
	defer stop()
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { everyTick(c.r.o.Heartbeat, ended, func() { c.pulse(c.r.o.Heartbeat) }) })
	err := c.read(newFrameReader(c.conn, c.r.o.MaxMessage, nil))
	if err = c.why(err); c.r.ctx.Err() != nil {
		err = errClosed
	}
	c.r.retire(c)
	c.fail(lost(c.r.addr, err))
	c.end()
	close(ended)
	wg.Wait()
}

func (c *client) read(r *frameReader) error {
	for {
		frame, err := r.next()
		if err != nil {
			return err
		}
		head, body, err := splitFrame(frame)
		if err != nil {
			return err
		}
		c.frames.Add(1)
		mid, beat := readHead(head)
		if mid == nil {
			c.heard(beat)
			continue
		}
		c.live.Heard()
		// With a mid, beat only echoes the request. A reply without a pending request is late.
		if reply := c.take(string(mid)); reply != nil {
			reply <- body
		}
	}
}

// take returns the channel of a pending request and removes it.
func (c *client) take(mid string) chan []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	reply := c.pending[mid]
	delete(c.pending, mid)
	if c.retired && len(c.pending) == 0 {
		c.conn.Close()
	}
	return reply
}

func (c *client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	for _, reply := range c.pending {
		close(reply)
	}
	c.pending = nil
}

func (c *client) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired = true; len(c.pending) == 0 {
		c.conn.Close()
	}
}

// errEnded reports that a request was not sent because the connection had ended.
var errEnded = errors.New("connection has ended")

func (c *client) request(ctx context.Context, body []byte) ([]byte, error) {
	mid := newMID()
	reply := make(chan []byte, 1)
	c.mu.Lock()
	if c.pending == nil {
		c.mu.Unlock()
		return nil, errEnded
	}
	beat := c.r.o.Heartbeat > 0 && !c.asked
	c.asked = c.asked || beat
	c.pending[mid] = reply
	c.mu.Unlock()

	seen := c.frames.Load()
	head := requestHead(mid, beat)
	c.out.Push(netpeer.Message{Head: head, Body: body})
	select {
	case b, ok := <-reply:
		if !ok {
			return nil, c.err
		}
		return b, nil
	case <-ctx.Done():
		c.out.Remove(head)
		c.take(mid)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && c.frames.Load() == seen {
			// The peer was silent all that time: it may be gone without TCP noticing. Further
			// requests use a new connection; pending ones keep this one.
			c.r.retire(c)
		}
		return nil, c.r.failed(ctx.Err())
	}
}
