package badinput

import (
	"bytes"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"brine/test/daemontest"
)

// proxy is between minions and a master, on another host at the same ports, and records all data.
// It simulates an attacker on the network path.
type proxy struct {
	t    *testing.T
	host string

	mu    sync.Mutex
	conns []*wire
	ended bool
}

// wire is one connection through the proxy.
type wire struct {
	port     int
	minion   net.Conn
	master   net.Conn
	mu       sync.Mutex
	up, down bytes.Buffer
}

// newProxy forwards each port to the master's port of the same number.
func newProxy(t *testing.T, m *node, ports ...int) *proxy {
	t.Helper()
	p := &proxy{t: t, host: daemontest.Host()}
	var wg sync.WaitGroup
	var listeners []net.Listener
	for _, port := range ports {
		l, err := net.Listen("tcp", net.JoinHostPort(p.host, strconv.Itoa(port)))
		must(t, err)
		listeners = append(listeners, l)
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				if s, err := net.Dial("tcp", net.JoinHostPort(m.Host, strconv.Itoa(port))); err == nil {
					p.carry(&wire{port: port, minion: c, master: s}, &wg)
				} else {
					c.Close()
				}
			}
		})
	}
	t.Cleanup(func() {
		for _, l := range listeners {
			l.Close()
		}
		p.mu.Lock()
		p.ended = true
		p.mu.Unlock()
		p.cut()
		wg.Wait()
	})
	return p
}

func (p *proxy) carry(w *wire, wg *sync.WaitGroup) {
	p.mu.Lock()
	p.conns = append(p.conns, w)
	if p.ended {
		w.minion.Close()
		w.master.Close()
	}
	p.mu.Unlock()
	copyTo := func(dst, src net.Conn, record *bytes.Buffer) {
		defer dst.Close()
		defer src.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := src.Read(b)
			w.mu.Lock()
			record.Write(b[:n])
			_, werr := dst.Write(b[:n])
			w.mu.Unlock()
			if err != nil || werr != nil {
				return
			}
		}
	}
	wg.Go(func() { copyTo(w.master, w.minion, &w.up) })
	wg.Go(func() { copyTo(w.minion, w.master, &w.down) })
}

// cut breaks all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.conns {
		w.minion.Close()
		w.master.Close()
	}
}

// to returns the connections to a port, in the order in which they came.
func (p *proxy) to(port int) []*wire {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*wire
	for _, w := range p.conns {
		if w.port == port {
			out = append(out, w)
		}
	}
	return out
}

// said returns the data sent by the minion, heard the data sent to it.
func (w *wire) said() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.up.Bytes())
}

func (w *wire) heard() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.down.Bytes())
}

// tell sends data to the minion as if from the master, and not within another message.
func (w *wire) tell(b []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.minion.Write(b)
	return err
}

// say sends data to a server on a new connection, and returns the answer until the server is silent
// for a moment.
func say(t *testing.T, addr string, b []byte) []byte {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	must(t, err)
	defer c.Close()
	go func() { c.Write(b) }() // the server may close at once
	var got bytes.Buffer
	buf := make([]byte, 64<<10)
	for {
		c.SetReadDeadline(time.Now().Add(time.Second))
		n, err := c.Read(buf)
		got.Write(buf[:n])
		if err != nil {
			return got.Bytes()
		}
	}
}
