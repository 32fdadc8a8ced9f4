// Package netpeer is one connection of a stream transport, on either side: it opens the connection
// (Dial), records when the peer was last heard (Conn), decides when to ping and when to give up
// (Watch), and writes without waiting for the peer (Queue). It knows no protocol.
//
// Below the transports' own heartbeats the operating system checks a connection: keepalive probes
// find a vanished machine while nothing is sent, and data that stays unacknowledged for UserTimeout
// ends the connection (Linux; elsewhere the system's own, longer limit applies).
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

// UserTimeout is how long sent data may stay unacknowledged. It also ends a connection to a live
// machine whose process reads nothing for that long, so it must not be shorter.
const UserTimeout = 2 * time.Minute

const defaultDialTimeout = 5 * time.Second

// writeStep is how much Conn writes before it counts the progress as a sign of life: acknowledged
// data makes room for more.
const writeStep = 64 << 10

// Conn is a connection that records when its peer last showed a sign of life.
type Conn struct {
	net.Conn
	raw   syscall.RawConn // to try without waiting; nil if not supported
	heard atomic.Int64    // since start
	// sure is the last sign of life that was more than bytes.
	sure atomic.Int64
}

// start is the origin of the monotonic times that Conn keeps.
var start = time.Now()

// Wrap returns the Conn of an accepted or dialled connection.
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

// Heard records a sign of life: a message, or the answer to a ping.
func (c *Conn) Heard() {
	c.touch()
	c.sure.Store(c.heard.Load())
}

// Discount ignores what was received since Heard: a peer's ping shows that it sends, not that it
// receives.
func (c *Conn) Discount() { c.heard.Store(c.sure.Load()) }

// Sign returns the time of the last sign of life, for Watch.Judge.
func (c *Conn) Sign() int64 { return c.heard.Load() }

// Unread reports whether data of the peer waits to be read: the peer lives, and the reader is late.
func (c *Conn) Unread() bool {
	if c.raw == nil {
		return false
	}
	unread, _ := Peek(c.raw)
	return unread
}

// Closed reports whether the peer has closed the connection and no data is left to read.
func (c *Conn) Closed() bool {
	if c.raw == nil {
		return false
	}
	_, closed := Peek(c.raw)
	return closed
}

// Read implements net.Conn; received bytes are a sign of life.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.touch()
	}
	return n, err
}

// Write implements net.Conn; progress within a long message is a sign of life.
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

// Dial connects to addr (host:port) and, with o.TLS, completes the TLS handshake, all within
// o.DialTimeout. conn is for reading and writing; live is the connection below TLS, or the same
// one. Errors are of kind Unavailable.
func Dial(ctx context.Context, addr string, o transport.DialOptions) (conn net.Conn, live *Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, DialTimeout(o))
	defer cancel()
	d := net.Dialer{LocalAddr: o.LocalAddr, KeepAliveConfig: keepAlive(o)}
	if !d.KeepAliveConfig.Enable {
		d.KeepAlive = -1 // otherwise the net package sets its own default
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

// DialTimeout returns o.DialTimeout or its default.
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

// keepAlive makes the operating system probe a quiet connection at the heartbeat interval, which is
// the only check if the peer has no heartbeats.
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
