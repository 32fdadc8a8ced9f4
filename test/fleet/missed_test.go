package fleet

import (
	"io"
	"net"
	"sync"
	"testing"

	"brine/internal/daemons/minion"
	"brine/test/eventually"
)

// cuttable is a TCP proxy whose connections can be cut and refused.
type cuttable struct {
	net.Listener
	to string

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func newCuttable(t *testing.T, to string) *cuttable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &cuttable{Listener: l, to: to}
	t.Cleanup(func() { l.Close(); p.set(true) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.pass(c)
		}
	}()
	return p
}

func (p *cuttable) pass(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	up, err := net.Dial("tcp", p.to)
	if p.cut || err != nil {
		c.Close()
		return
	}
	p.conns = append(p.conns, c, up)
	go func() { _, _ = io.Copy(up, c); up.Close() }()
	go func() { _, _ = io.Copy(c, up); c.Close() }()
}

// set cuts all connections and refuses new ones, or lets them through again.
func (p *cuttable) set(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	if cut {
		for _, c := range p.conns {
			c.Close()
		}
		p.conns = nil
	}
}

func TestJobPublishedWhileAwayIsNotLost(t *testing.T) {
	m := startMaster(t, "one", "zeromq", nil)
	pub := newCuttable(t, m.pub)
	starts := m.events("salt/minion/")
	startMinion(t, "w1", "zeromq", []*theMaster{m}, func(c *minion.Config) { c.Options.PublishPort = portOf(t, pub.Addr()) })
	m.accept("w1")
	m.awaitStart(starts, "w1")
	for i := range 3 {
		pub.set(true)
		eventually.Nil(t, eventually.Limit, "the minion is cut off", func() error {
			if len(m.Subscribers()) > 0 {
				return errNotYet
			}
			return nil
		})
		events := m.events("salt/job/")
		jid := m.publish("glob", "*", "test.echo", "", i)
		pub.set(false)
		if ret := m.await(events, jid, 1)["w1"]; ret.Int("return") != int64(i) {
			t.Errorf("round %d: %v", i, ret)
		}
	}
}
