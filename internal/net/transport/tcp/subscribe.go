package tcp

import (
	"context"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/net/transport"
	"brine/internal/net/transport/netpeer"
	"brine/internal/py/msgpack"
)

// ahead is how many publications a subscription reads ahead of Receive. It
// reads at all times, so that it can answer pings while its user is busy.
const ahead = 16

// maxUnsent bounds the messages that wait to be sent to the publisher.
const maxUnsent = 100

// subscription is a connection to a publisher.
type subscription struct {
	link
	addr     string
	messages chan []byte // closed after err was set
	err      error
	done     chan struct{} // closed by Close
	stop     func()
	wg       sync.WaitGroup
}

var _ transport.Sender = (*subscription)(nil)

func subscribe(ctx context.Context, addr string, o transport.DialOptions) (*subscription, error) {
	conn, live, err := netpeer.Dial(ctx, addr, o)
	if err != nil {
		return nil, err
	}
	s := &subscription{addr: addr, messages: make(chan []byte, ahead), done: make(chan struct{})}
	s.stop = sync.OnceFunc(func() {
		close(s.done)
		conn.Close()
	})
	s.init(conn, live, maxUnsent)
	s.out.Push(netpeer.Message{Head: helloFrame})
	max := o.MaxMessage
	if max <= 0 {
		max = transport.DefaultMaxMessage
	}
	ended := make(chan struct{})
	s.wg.Go(func() {
		defer close(ended)
		s.read(newFrameReader(conn, max, nil))
	})
	s.wg.Go(func() { everyTick(o.Heartbeat, ended, func() { s.pulse(o.Heartbeat) }) })
	return s, nil
}

// read puts publications into the channel until the connection ends.
func (s *subscription) read(r *frameReader) {
	defer s.end()
	defer close(s.messages)
	for {
		frame, err := r.next()
		var payload []byte
		if err == nil {
			payload, err = s.received(frame)
		}
		if err != nil {
			s.err = s.reason(err)
			return
		}
		if payload == nil {
			continue
		}
		select {
		case s.messages <- payload:
		case <-s.done:
			s.err = s.reason(errClosed)
			return
		}
	}
}

// reason returns the reason for the end of the connection; err is the read error.
func (s *subscription) reason(err error) error {
	select {
	case <-s.done:
		err = errClosed
	default:
		err = s.why(err)
	}
	return lost(s.addr, err)
}

// received returns the payload of a frame, nil if it carries none.
func (s *subscription) received(frame []byte) ([]byte, error) {
	head, body, err := splitFrame(frame)
	if err != nil {
		return nil, err
	}
	_, beat := readHead(head)
	if s.heard(beat); beat != noBeat {
		return nil, nil
	}
	if payload, ok := msgpack.Text(body); ok {
		return payload, nil
	}
	if body[0] == 0xc0 {
		return nil, nil // Salt's minion ignores an empty body, too
	}
	return body, nil
}

func (s *subscription) Receive() ([]byte, error) {
	if m, ok := <-s.messages; ok {
		return m, nil
	}
	return nil, s.err
}

// Beats reports whether the publisher supports beats.
func (s *subscription) Beats() bool { return s.knowsBeats.Load() }

// Send writes a frame with this body, which is how a minion registers.
func (s *subscription) Send(body []byte) error {
	select {
	case <-s.done:
		return lost(s.addr, errClosed)
	default:
	}
	if !s.out.Push(netpeer.Message{Head: []byte(emptyHead), Body: body}) {
		return salt.Errorf(salt.Unavailable, "connection to %s: the publisher does not read", s.addr)
	}
	return nil
}

func (s *subscription) Close() error {
	s.stop()
	s.wg.Wait()
	return nil
}
