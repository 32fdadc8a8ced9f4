package netpeer

import (
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// attempt is the space for one call of Conn.Try.
type attempt struct {
	parts [][]byte
	space [2 * batchMessages][]byte
	flat  [FlatSize]byte
	wrote int
	write func(fd uintptr) bool // the method once, allocated once
}

var attempts = sync.Pool{New: func() any {
	a := &attempt{}
	a.write = a.once
	return a
}}

// FlatSize is the size up to which several parts are copied into one.
const FlatSize = 1 << 10

// SendParts writes as much of the parts, none of which is empty, as a socket accepts without
// waiting. flat is space to copy small ones to.
func SendParts(fd int, parts [][]byte, flat []byte) (int, error) {
	if len(parts) == 1 {
		return Send(fd, parts[0])
	}
	n := 0
	for _, p := range parts {
		if n+len(p) > len(flat) {
			return unix.Writev(fd, parts)
		}
		n += copy(flat[n:], p)
	}
	if n == 0 {
		return 0, nil
	}
	return Send(fd, flat[:n])
}

// once is the callback for RawConn.Write. It always reports done, so that it never waits for the
// socket.
func (a *attempt) once(fd uintptr) bool {
	for {
		n, err := SendParts(int(fd), a.parts, a.flat[:])
		if err == unix.EINTR {
			continue
		}
		a.wrote = max(n, 0)
		return true
	}
}

// Try writes as much of the messages, at most batchMessages, as the connection accepts without
// waiting, and returns the number of bytes.
func (c *Conn) Try(ms []Message) int {
	a := attempts.Get().(*attempt)
	a.parts, a.wrote = a.space[:0], 0
	for _, m := range ms {
		if len(m.Head) > 0 {
			a.parts = append(a.parts, m.Head)
		}
		if len(m.Body) > 0 {
			a.parts = append(a.parts, m.Body)
		}
	}
	c.raw.Write(a.write) // an error has written nothing
	n := a.wrote
	clear(a.space[:])
	a.parts = nil
	attempts.Put(a)
	return n
}

// Peek reports, without waiting and without consuming bytes, whether data can be read, or else
// whether the peer has closed the connection.
func Peek(raw syscall.RawConn) (unread, closed bool) {
	err := raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		unread = err == nil && n > 0
		closed = err == nil && n == 0 || err != nil && err != unix.EAGAIN && err != unix.EINTR
	})
	return unread, closed || err != nil
}

// CanTry reports whether Try is supported on this connection.
func (c *Conn) CanTry() bool { return c.raw != nil }
