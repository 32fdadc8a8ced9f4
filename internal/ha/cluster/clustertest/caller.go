package clustertest

import (
	"bytes"
	"net"
	"time"

	"brine/internal/net/event"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Drain is a connection whose other end reads everything and sends nothing.
type Drain struct{ net.Conn }

func (Drain) Write(b []byte) (int, error) { return len(b), nil }

func (Drain) Close() error { return nil }

func (Drain) SetDeadline(time.Time) error { return nil }

func (Drain) SetWriteDeadline(time.Time) error { return nil }

func (Drain) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// Computed marks fields of a conversation that depend on previous messages.
const Computed = "computed"

// Caller is the client's end of an in-memory connection. It reads incoming data
// at once, so that neither end waits for the other to read.
type Caller struct {
	net.Conn
	frames chan []byte
}

// Call connects a caller to serve. hangUp closes the connection and waits for both ends.
func Call(serve func(net.Conn), limit int) (c *Caller, hangUp func()) {
	ours, theirs := net.Pipe()
	served, read := make(chan struct{}), make(chan struct{})
	go func() { defer close(served); serve(theirs) }()
	c = &Caller{Conn: ours, frames: make(chan []byte, 1000)}
	go func() {
		defer close(read)
		defer close(c.frames)
		frames := event.NewFrameReader(ours, limit)
		for {
			b, err := frames.Next()
			if err != nil {
				return
			}
			select {
			case c.frames <- bytes.Clone(b):
			default: // more than any test reads
			}
		}
	}()
	ours.SetWriteDeadline(time.Now().Add(time.Minute))
	return c, func() { ours.Close(); <-served; <-read }
}

// Next returns the next frame, nil if the other end has closed or sends
// nothing.
func (c *Caller) Next(waitLimit time.Duration) []byte {
	select {
	case b := <-c.frames:
		return b
	case <-time.After(waitLimit):
		return nil
	}
}

// Frame sends a message, and reports whether the connection accepts it. It skips a message that cannot
// be encoded.
func (c *Caller) Frame(tag string, d *value.Dict) bool {
	b, err := msgpack.Marshal(d, msgpack.NewSpec)
	if err != nil {
		return true
	}
	_, err = c.Write(event.Frame(event.Body(tag, b)))
	return err == nil
}
