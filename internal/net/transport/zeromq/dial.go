package zeromq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/transport"
	"brine/internal/net/transport/netpeer"
	"brine/internal/net/transport/netserve"
)

// dialled is a connection opened by this side, after its handshake.
type dialled struct {
	conn  net.Conn
	raw   syscall.RawConn // nil where there is none
	dec   *decoder
	peer  peer
	every time.Duration // interval of heartbeats, 0 for none

	// For the reading goroutine. Signs of life are numbered: last is the latest one, sure the
	// latest one that was more than received bytes.
	signs, last, sure int64
	watch             netpeer.Watch
	due               time.Time // when watch is next called
	taken             int64     // value of pieces at the last check

	writing sync.Mutex
	pieces  atomic.Int64 // number of pieces of large messages that the peer has accepted
}

// dial connects and completes the handshake as the socket self with one of accept.
func dial(ctx context.Context, addr string, o transport.DialOptions, self ready, lim limits, accept ...string) (*dialled, error) {
	ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()
	c, err := newDialer(o).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, failed(fmt.Errorf("cannot connect to %s: %w", addr, ended(ctx, err)))
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	d := &dialled{conn: c}
	if sc, ok := c.(syscall.Conn); ok {
		d.raw, _ = sc.SyscallConn()
	}
	d.dec = newDecoder(d, requestBuffer, lim)
	d.dec.asked = true
	d.peer, err = handshake(c, d.dec, self, accept...)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, failed(fmt.Errorf("no ZeroMQ handshake with %s: %w", addr, ended(ctx, unexpected(err))))
	}
	if d.peer.minor >= 1 {
		d.every = o.Heartbeat // older peers need not support PING
	}
	return d, nil
}

// newDialer returns the dialer for the options.
func newDialer(o transport.DialOptions) *net.Dialer {
	d := &net.Dialer{LocalAddr: o.LocalAddr, KeepAliveConfig: netserve.KeepAlive(o.KeepAlive)}
	if !d.KeepAliveConfig.Enable {
		d.KeepAlive = -1 // otherwise the net package sets its own default
	}
	if fixedPort(o) {
		d.Control = reuseAddr
	}
	return d
}

// fixedPort reports whether all connections must use one local port.
func fixedPort(o transport.DialOptions) bool {
	a, ok := o.LocalAddr.(*net.TCPAddr)
	return ok && a != nil && a.Port != 0
}

// ended returns the error of ctx if that caused err, else err without the address, which the
// caller's message has.
func ended(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return op.Err
	}
	return err
}

// failed gives err a kind if it has none.
func failed(err error) error {
	switch {
	case salt.KindOf(err) != salt.Internal:
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return salt.Errorf(salt.Timeout, "%w", err)
	}
	return salt.Errorf(salt.Unavailable, "%w", err)
}

// Read reads from the connection. After an interval without a sign of life it sends a PING, which
// every live peer answers; netpeer.Watch decides. While Read is not called, no time passes for the
// peer, and received data is read before the decision.
func (d *dialled) Read(b []byte) (int, error) {
	if d.every <= 0 {
		return d.conn.Read(b)
	}
	for {
		if now := time.Now(); !d.due.After(now) {
			d.due = now.Add(max(d.every/netpeer.Ticks, time.Millisecond))
		}
		d.conn.SetReadDeadline(d.due)
		n, err := d.conn.Read(b)
		if n > 0 {
			d.signs++
			d.last = d.signs
		}
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if p := d.pieces.Load(); p != d.taken {
			d.taken = p
			d.heard() // it accepts a large message
		}
		switch d.watch.Judge(time.Now(), d.last, d.every) {
		case netpeer.Ping:
			if err := d.ping(); err != nil {
				return 0, err
			}
		case netpeer.Dead:
			if d.unread() {
				continue
			}
			return 0, salt.Errorf(salt.Timeout, "no sign of life from %s for %v", d.conn.RemoteAddr(), transport.Misses*d.every)
		}
	}
}

// heard records a sign of life that is more than bytes.
func (d *dialled) heard() {
	d.signs++
	d.last, d.sure = d.signs, d.signs
}

// unread reports whether data has arrived since the last attempt to read.
func (d *dialled) unread() bool {
	if d.raw == nil {
		return false
	}
	unread, _ := netpeer.Peek(d.raw)
	return unread
}

// ping sends a PING unless another message is being sent.
func (d *dialled) ping() error {
	if !d.writing.TryLock() {
		return nil
	}
	defer d.writing.Unlock()
	d.conn.SetWriteDeadline(time.Now().Add(d.every))
	_, err := d.conn.Write(appendPing(nil, 0))
	d.conn.SetWriteDeadline(time.Time{})
	return err
}

// write sends head and body.
func (d *dialled) write(head, body []byte) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	piece := body[:min(len(body), batchBytes)]
	bufs := net.Buffers{head, piece}
	_, err := bufs.WriteTo(d.conn)
	for body = body[len(piece):]; err == nil && len(body) > 0; body = body[len(piece):] {
		d.pieces.Add(1)
		piece = body[:min(len(body), batchBytes)]
		_, err = d.conn.Write(piece)
	}
	return err
}

// message returns the next frame that belongs to a message.
func (d *dialled) message() (frame, error) {
	for {
		f, err := d.dec.frame()
		if err != nil || !f.command() {
			d.heard()
			return f, err
		}
		name, data, err := parseCommand(f.body)
		if err != nil {
			return f, err
		}
		switch name {
		case cmdPing:
			// It shows that the peer sends, not that it receives.
			d.last = d.sure
			pong, err := appendPong(nil, data)
			if err == nil {
				err = d.write(pong, nil)
			}
			if err != nil {
				return f, err
			}
		case cmdPong:
			d.heard()
		case cmdError:
			return f, parseError(data)
		}
	}
}
