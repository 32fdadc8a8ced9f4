package wire

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// GreetingTime is the timeout for the authentication of a connection.
const GreetingTime = 10 * time.Second

// counted is a connection that counts the bytes read.
type counted struct {
	net.Conn
	n *atomic.Int64
}

// Count counts the bytes that are read from a connection.
func Count(conn net.Conn, n *atomic.Int64) net.Conn { return counted{conn, n} }

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// IsTimeout reports whether an error is that of a deadline.
func IsTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// silence is how long a connection without traffic stays open.
const silence = 3 * time.Second

// HandshakeTime is the timeout of the four handshake messages.
const HandshakeTime = 10 * time.Second

// Session sends and receives frames after the handshake.
type Session struct {
	Count              *atomic.Int64 // of sent bytes
	Conn               *Line
	Frames             *event.FrameReader
	Cipher             *crypt.Crypticle // nil with TLS
	Out, In            string           // values that mark the direction of a frame
	mu                 sync.Mutex
	numbered, received int64 // numbers of the last frames
}

// Send sends the message that m points to in a frame.
func (s *Session) Send(m any) error { return s.SendDict(Dict(m)) }

// SendDict sends an encoded message, to which it adds the number and the direction.
func (s *Session) SendDict(d *value.Dict) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numbered++
	d.Set("n", s.numbered)
	d.Set("d", s.Out)
	b, err := msgpack.Marshal(d, msgpack.NewSpec)
	if err != nil {
		return err
	}
	s.Conn.SetWriteDeadline(time.Now().Add(WriteTime))
	if s.Cipher != nil {
		b = s.Cipher.Seal(b, "")
	}
	n, err := s.Conn.Write(event.Frame(b))
	s.Count.Add(int64(n))
	return err
}

// Receive returns the next frame. It fails if none arrives for some seconds, or if a frame is repeated or
// missing.
func (s *Session) Receive() (f Frame, err error) {
	s.Conn.SetReadDeadline(time.Now().Add(silence))
	body, err := s.Frames.Next()
	if err != nil {
		return f, err
	}
	if s.Cipher != nil {
		if body, err = s.Cipher.Open(body); err != nil {
			return f, err
		}
	}
	v, err := msgpack.UnmarshalTyped(body)
	if err != nil {
		return f, err
	}
	f.Body, _ = v.(*value.Dict)
	View(f.Body, &f.FrameHead)
	s.received++
	if f.Number != s.received || f.Direction != s.In {
		return f, errors.New("a frame came twice, or out of order")
	}
	return f, nil
}

// DialTime is the timeout for connecting to a peer, writeTime for one write.
const (
	DialTime  = 2 * time.Second
	WriteTime = 5 * time.Second
)

// MaxFrame bounds messages from an authenticated peer, in bytes.
const MaxFrame = 80 << 20
