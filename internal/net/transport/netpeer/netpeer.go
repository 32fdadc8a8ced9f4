// Package netpeer holds what a stream transport needs of one connection, on
// either side: to open it (Dial), to know when the peer was last heard (Conn),
// to decide when to ping and when to give up (Watch), and to write to it
// without waiting for it (Queue). It knows no protocol.
//
// Below the transports' own heartbeats the operating system looks after a
// connection: keepalive probes find a vanished machine while nothing is sent,
// and data that stays unacknowledged for UserTimeout ends the connection
// (Linux; elsewhere the system's own, longer limit holds).
package netpeer

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/transport"
	"brine/internal/net/transport/netserve"
)

// UserTimeout is how long sent data may stay unacknowledged. It also ends a
// connection whose peer's kernel lives but whose process reads nothing for so
// long, which is why it is no shorter.
const UserTimeout = 2 * time.Minute

const defaultDialTimeout = 5 * time.Second

// writeStep is how much Conn writes before it takes the progress as a sign of
// life: what the peer's machine acknowledges makes room for more.
const writeStep = 64 << 10

// Conn is a connection that knows when its peer last showed a sign of life.
type Conn struct {
	net.Conn
	raw   syscall.RawConn // to try without waiting; nil where there is none
	heard atomic.Int64    // since start
	// sure is the last sign of life that was more than bytes.
	sure atomic.Int64
}

// start is the origin of the monotonic times that Conn keeps.
var start = time.Now()

// Wrap makes a Conn of an accepted or dialled connection.
func Wrap(c net.Conn) *Conn {
	if t, ok := c.(*net.TCPConn); ok {
		setUserTimeout(t, UserTimeout)
	}
	p := &Conn{Conn: c}
	if sc, ok := c.(syscall.Conn); ok {
		p.raw, _ = sc.SyscallConn()
	}
	p.Heard()
	return p
}

func (c *Conn) touch() { c.heard.Store(int64(time.Since(start))) }

// Heard notes a sign of life: a message, or the answer to a ping.
func (c *Conn) Heard() {
	c.touch()
	c.sure.Store(c.heard.Load())
}

// Discount takes what was received since Heard for no sign of life: a peer's
// ping shows that it sends, not that it hears us.
func (c *Conn) Discount() { c.heard.Store(c.sure.Load()) }

// Sign is the time of the last sign of life, for Watch.Judge.
func (c *Conn) Sign() int64 { return c.heard.Load() }

// Unread tells whether something of the peer waits to be read: it lives, and
// whoever reads has not come to it yet.
func (c *Conn) Unread() bool {
	if c.raw == nil {
		return false
	}
	unread, _ := Peek(c.raw)
	return unread
}

// Closed tells whether the peer has closed the connection and nothing that it
// sent before is left to read.
func (c *Conn) Closed() bool {
	if c.raw == nil {
		return false
	}
	_, closed := Peek(c.raw)
	return closed
}

// Read is net.Conn's; received bytes are a sign of life.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.touch()
	}
	return n, err
}

// Write is net.Conn's; progress within a long message is a sign of life.
func (c *Conn) Write(b []byte) (written int, err error) {
	for len(b) > writeStep {
		n, err := c.Conn.Write(b[:writeStep])
		written += n
		if err != nil {
			return written, err
		}
		c.Heard()
		b = b[writeStep:]
	}
	n, err := c.Conn.Write(b)
	return written + n, err
}

// Dial connects to addr (host:port) and, with o.TLS, completes the TLS
// handshake, all within o.DialTimeout. conn is what to read and write; live is
// the connection beneath, or the same one. Errors are of kind Unavailable.
func Dial(ctx context.Context, addr string, o transport.DialOptions) (conn net.Conn, live *Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, DialTimeout(o))
	defer cancel()
	d := net.Dialer{LocalAddr: o.LocalAddr, KeepAliveConfig: keepAlive(o)}
	if !d.KeepAliveConfig.Enable {
		d.KeepAlive = -1 // otherwise the net package puts its own default
	}
	d.SetMultipathTCP(false)
	if a, ok := o.LocalAddr.(*net.TCPAddr); ok && a.Port != 0 {
		d.Control = reuseAddr // the port may still be waiting out its last connection
	}
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, salt.Errorf(salt.Unavailable, "cannot connect to %s: %w", addr, err)
	}
	live = Wrap(raw)
	if o.TLS == nil {
		return live, live, nil
	}
	t := tls.Client(live, clientConfig(o.TLS, addr))
	if err := t.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, nil, salt.Errorf(salt.Unavailable, "cannot connect to %s: TLS handshake (option ssl): %w", addr, err)
	}
	return t, live, nil
}

// DialTimeout resolves the default of o.DialTimeout.
func DialTimeout(o transport.DialOptions) time.Duration {
	if o.DialTimeout > 0 {
		return o.DialTimeout
	}
	return defaultDialTimeout
}

// clientConfig adds the name to expect in the server's certificate.
func clientConfig(c *tls.Config, addr string) *tls.Config {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || c.ServerName != "" {
		return c
	}
	c = c.Clone()
	c.ServerName = host
	return c
}

// keepAlive has the operating system probe a quiet connection as often as
// heartbeats are wanted: that is all there is where the peer knows none.
func keepAlive(o transport.DialOptions) net.KeepAliveConfig {
	k := netserve.KeepAlive(o.KeepAlive)
	if o.Heartbeat > 0 && k.Enable {
		beat := max(o.Heartbeat, time.Second) // the kernel counts in seconds
		if k.Idle <= 0 || k.Idle > beat {
			k.Idle = beat
		}
		if k.Interval <= 0 || k.Interval > beat {
			k.Interval = beat
		}
		if k.Count <= 0 {
			k.Count = 2
		}
	}
	return k
}
