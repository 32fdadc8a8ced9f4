package zeromq

import (
	"context"
	"errors"
	"fmt"
	"net"

	"brine/internal/base/salt"
	"brine/internal/net/transport"
)

// sub is a SUB connected to one publisher.
type sub struct {
	*dialled
	err error // why Receive failed
}

func subscribe(ctx context.Context, addr string, o transport.DialOptions) (*sub, error) {
	o = dialDefaults(o)
	lim := limits{command: maxCommand, message: o.MaxMessage, frames: 2}
	d, err := dial(ctx, addr, o, ready{socket: "SUB", identity: o.Identity}, lim, "PUB", "XPUB")
	if err != nil {
		return nil, err
	}
	topics := o.Topics
	if topics == nil {
		topics = []string{""}
	}
	var b []byte
	for _, topic := range topics {
		b = appendSubscribe(b, d.peer.minor, topic)
	}
	if err := d.write(b, nil); err != nil {
		d.conn.Close()
		return nil, salt.Errorf(salt.Unavailable, "cannot subscribe at %s: %w", addr, err)
	}
	return &sub{dialled: d}, nil
}

// appendSubscribe appends a subscription in the form of the peer's version.
func appendSubscribe(b []byte, minor int, topic string) []byte {
	if minor >= 1 {
		return appendCommand(b, cmdSubscribe, []byte(topic))
	}
	return appendFrame(b, 0, append([]byte{1}, topic...))
}

// Receive returns the next payload, without its topic. It must not be called concurrently. It also
// answers and sends heartbeats.
func (s *sub) Receive() ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	f, err := s.message()
	if err == nil && f.more() {
		f, err = s.message() // f was the topic, which is only for the filter
		if err == nil && f.more() {
			err = errors.New("a publication of more than two frames")
		}
	}
	if err != nil {
		s.conn.Close()
		s.err = s.lost(err)
		return nil, s.err
	}
	return f.body, nil
}

func (s *sub) lost(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return salt.Errorf(salt.Unavailable, "the subscription to %s was closed: %w", s.conn.RemoteAddr(), net.ErrClosed)
	}
	return failed(fmt.Errorf("the publisher %s is lost: %w", s.conn.RemoteAddr(), err))
}

// Beats reports whether the publisher answers heartbeats, as every one of
// ZMTP 3.1 does.
func (s *sub) Beats() bool { return s.every > 0 }

// Close ends the subscription; a Receive under way fails.
func (s *sub) Close() error { return s.conn.Close() }
