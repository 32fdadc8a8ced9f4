package fleet

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"brine/internal/daemons/minion"
	"brine/internal/host/freeport"
	"brine/internal/net/handshake"
	"brine/test/eventually"
)

// nameServer resolves every name to this machine or, while it is down, fails.
func nameServer(t *testing.T, down *atomic.Bool) *net.Resolver {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		q := make([]byte, 1500)
		for {
			_, from, err := c.ReadFrom(q)
			if err != nil {
				return
			}
			end := 12
			for q[end] != 0 {
				end += int(q[end]) + 1
			}
			isA := q[end+2] == 1
			a := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end+5]...)
			switch {
			case down.Load():
				a[3] = 0x82
			case isA:
				a[7] = 1
				a = append(a, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
			}
			c.WriteTo(a, from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", c.LocalAddr().String())
	}}
}

// TestNameStopsResolving: the name server fails for a minion of two hot masters. The minion stays
// connected, the master with the unresolvable name may even be restarted, and no job of the other
// one is lost.
func TestNameStopsResolving(t *testing.T) {
	one := startMaster(t, "one", "zeromq", nil)
	two := startMaster(t, "two", "zeromq", sameKey(one))
	var down atomic.Bool
	w := startMinion(t, "w1", "zeromq", []*theMaster{two}, func(c *minion.Config) {
		c.Resolver = nameServer(t, &down)
		_, port, _ := net.SplitHostPort(one.req)
		c.Options.Master = append(c.Options.Master, "m1.example.com.:"+port)
	})
	connected := func(m *theMaster) {
		t.Helper()
		eventually.Nil(t, eventually.Limit, m.cfg.ID+" has a subscriber", func() error {
			if len(m.Subscribers()) == 0 {
				return errNotYet
			}
			return nil
		})
	}
	for _, m := range []*theMaster{one, two} {
		m.accept("w1")
		connected(m)
	}
	ping := func(m *theMaster) {
		t.Helper()
		if ret := m.command("glob", "w1", "test.ping", 1)["w1"]; ret.At("return") != true {
			t.Errorf("%s: %v", m.cfg.ID, ret)
		}
	}
	ping(one)
	down.Store(true)
	ping(one)
	ping(two)
	one.restart()
	ping(two)
	connected(one)
	ping(one)
	// A new process knows no address; this must not affect the other master.
	w.stop()
	one.stop()
	starts := two.events("salt/minion/")
	startMinion(t, "w2", "zeromq", []*theMaster{two}, func(c *minion.Config) {
		c.Resolver = w.cfg.Resolver
		c.Options.Master = append(c.Options.Master, w.cfg.Options.Master[1])
	})
	two.accept("w2")
	two.awaitStart(starts, "w2")
	if ret := two.command("glob", "w2", "test.ping", 1)["w2"]; ret.At("return") != true {
		t.Errorf("two: %v", ret)
	}
}

// TestReasonsAfterFailedLookups: a name server refuses many look-ups, each from another local port.
// They are logged once, and so is the next obstacle: that the key is pending. The last message is
// that the connection is established.
func TestReasonsAfterFailedLookups(t *testing.T) {
	one := startMaster(t, "one", "zeromq", nil)
	var up atomic.Bool
	var down atomic.Bool
	good := nameServer(t, &down)
	closed, err := freeport.UDP(1)
	if err != nil {
		t.Fatal(err)
	}
	w := startMinion(t, "w1", "zeromq", nil, func(c *minion.Config) {
		c.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if up.Load() {
				return good.Dial(ctx, network, address)
			}
			var d net.Dialer
			return d.DialContext(ctx, "udp", fmt.Sprintf("127.0.0.1:%d", closed[0]))
		}}
		_, port, _ := net.SplitHostPort(one.req)
		c.Options.Master = minion.Masters{"m1.example.com.:" + port}
		c.Options.ReconDefault, c.Options.ReconMax, c.Options.RetryDNS = 5, 5, 0
	})
	said := func(text string) int { return strings.Count(w.log.String(), text) }
	wait := func(text string, times int) {
		t.Helper()
		eventually.Nil(t, eventually.Limit, text, func() error {
			if said(text) < times {
				return errNotYet
			}
			return nil
		})
	}
	wait("still not connected to this master", 60)
	if n := said("cannot connect to the master"); n != 1 {
		t.Errorf("%d reports of one cause", n)
	}
	up.Store(true)
	wait(handshake.ErrPending.Error(), 1)
	one.accept("w1")
	wait("level=WARN msg=\"reconnected to the master\"", 1)
}
