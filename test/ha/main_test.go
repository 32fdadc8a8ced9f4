// Package ha tests minions with several masters under faults of masters and networks: real daemons
// as processes, real signals, and a proxy between them that cuts connections, stalls and drops
// data. Each test logs how long it waited. The bounds are far above that, since a slow machine is
// not a failure.
package ha

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
)

func TestMain(m *testing.M) { daemontest.Main(m) }

// within is the timeout for each step of a test.
const within = 60 * time.Second

// site is a master with the proxy through which minions reach it.
type site struct {
	*daemontest.Node
	front *front
	heard *bus
}

// setup is some masters with one key pair and a minion of all of them.
type setup struct {
	t      *testing.T
	sites  []*site
	minion *daemontest.Node
}

// newSetup starts the masters and the minion w1, whose configuration includes more. It does not
// wait.
func newSetup(t *testing.T, masters, minion daemontest.Kind, n int, more string) *setup {
	t.Helper()
	s := &setup{t: t}
	transport := "zeromq"
	for _, line := range strings.Split(more, "\n") {
		if name, ok := strings.CutPrefix(line, "transport: "); ok {
			transport = name
		}
	}
	var hosts []string
	for i := range n {
		name := fmt.Sprintf("m%d", i+1)
		m := daemontest.NewMaster(t, masters, name, daemontest.Host(), "auto_accept: True\ntransport: "+transport)
		if i > 0 {
			shareKeys(t, s.sites[0].Node, m)
		}
		m.Start()
		f := newFront(t, m)
		s.sites = append(s.sites, &site{Node: m, front: f})
		hosts = append(hosts, f.host)
		if i == 0 {
			waitKeys(t, m)
		}
	}
	for _, x := range s.sites {
		x.heard = listen(t, x.Node)
	}
	s.minion = daemontest.NewMinion(t, minion, "w1", hosts, more).Start()
	return s
}

const pki = "etc/salt/pki/master/"

func waitKeys(t *testing.T, m *daemontest.Node) {
	t.Helper()
	eventually.Nil(t, within, "the master's key", func() error {
		_, err := os.Stat(m.Path(pki + "master.pub"))
		return err
	})
}

// shareKeys gives a master the key pair of another one, as operators do.
func shareKeys(t *testing.T, from, to *daemontest.Node) {
	t.Helper()
	for _, f := range []string{"master.pem", "master.pub"} {
		b, err := os.ReadFile(from.Path(pki + f))
		if err != nil {
			t.Fatal(err)
		}
		to.Write(pki+f, string(b))
	}
}

// usable waits until the minion obeys master i, and returns how long that took.
func (s *setup) usable(i int) time.Duration {
	s.t.Helper()
	return eventually.Nil(s.t, within, "w1 answers "+s.sites[i].Name, func() error {
		return s.sites[i].PingAll(s.sites[i].Kind, "w1")
	})
}

// alive expects the minion's process to be running.
func (s *setup) alive() {
	s.t.Helper()
	if !s.minion.Alive() {
		s.t.Error("the minion's process has ended")
	}
}

// group sends a signal to a daemon and all its children.
func group(t *testing.T, n *daemontest.Node, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(-n.PID(), sig); err != nil {
		t.Fatal(err)
	}
}

// bus records the events on a master's event bus.
type bus struct {
	mu     sync.Mutex
	events []*event.Event
}

func listen(t *testing.T, n *daemontest.Node) *bus {
	t.Helper()
	b := &bus{}
	var o event.MasterOptions
	o.IPCMode, o.SockDir = "ipc", n.Path("var/run/salt/master")
	ctx, cancel := context.WithCancel(context.Background())
	var r *event.Reader
	eventually.Nil(t, within, "the event bus of "+n.Name, func() (err error) {
		r, err = event.Dial(ctx, o.Sockets())
		return err
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e, err := range r.Events() {
			if err != nil {
				return
			}
			b.mu.Lock()
			b.events = append(b.events, e)
			b.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return b
}

// count returns how often a tag was received.
func (b *bus) count(tag string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, e := range b.events {
		if e.Tag == tag {
			n++
		}
	}
	return n
}

// all returns the data of all events with a tag.
func (b *bus) all(tag string) (out []*value.Dict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Tag == tag {
			out = append(out, e.Data)
		}
	}
	return out
}

// last returns the data of the last event with a tag, and how many there were.
func (b *bus) last(tag string) (*value.Dict, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var d *value.Dict
	n := 0
	for _, e := range b.events {
		if e.Tag == tag {
			d = e.Data
			n++
		}
	}
	return d, n
}

const (
	changedTag = "salt/minion/w1/master_changed"
	startTag   = "salt/minion/w1/start"
)

// moved waits until the master at has received an event that the minion changed to it.
func (s *setup) moved(i int, before int) (data *value.Dict, took time.Duration) {
	s.t.Helper()
	took = eventually.Nil(s.t, within, "w1 moves to "+s.sites[i].Name, func() error {
		d, n := s.sites[i].heard.last(changedTag)
		if n <= before {
			return errors.New("no event")
		}
		if data = d.Dict("data"); data == nil {
			return fmt.Errorf("an event without data: %s", value.Repr(d))
		}
		if data.Str("to") != s.sites[i].front.host {
			return fmt.Errorf("it moved elsewhere: %s", value.Repr(data))
		}
		return nil
	})
	return data, took
}

// front is a proxy in front of a master's ports.
type front struct {
	host string
	mu   sync.Mutex
	mode mode
	more chan struct{} // closed when the mode changes
	cs   map[net.Conn]bool
}

// mode is how a proxy treats bytes and connections.
type mode struct {
	cut    bool // connections are closed and refused
	toward bool // bytes to the master are held back
	back   bool // bytes from the master are held back
}

func newFront(t *testing.T, m *daemontest.Node) *front {
	t.Helper()
	f := &front{host: daemontest.Host(), more: make(chan struct{}), cs: map[net.Conn]bool{}}
	for _, port := range []int{daemontest.PublishPort, daemontest.RetPort} {
		at := fmt.Sprintf("%s:%d", f.host, port)
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close(); f.set(mode{cut: true}) })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go f.serve(c, fmt.Sprintf("%s:%d", m.Host, port))
			}
		}()
	}
	return f
}

func (f *front) set(m mode) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mode = m
	close(f.more)
	f.more = make(chan struct{})
	if m.cut {
		for c := range f.cs {
			c.Close()
		}
		clear(f.cs)
	}
}

func (f *front) now() (mode, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mode, f.more
}

// serve forwards a connection to the master.
func (f *front) serve(c net.Conn, to string) {
	f.mu.Lock()
	cut := f.mode.cut
	if !cut {
		f.cs[c] = true
	}
	f.mu.Unlock()
	if cut {
		c.Close()
		return
	}
	up, err := net.Dial("tcp", to)
	if err != nil {
		c.Close()
		return
	}
	go f.pump(up, c, func(m mode) bool { return m.toward })
	f.pump(c, up, func(m mode) bool { return m.back })
}

// pump copies data, and waits while held returns true. It also holds back what it has read before,
// like a network that drops packets.
func (f *front) pump(dst, src net.Conn, held func(mode) bool) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		for {
			m, more := f.now()
			if m.cut {
				return
			}
			if !held(m) {
				break
			}
			<-more
		}
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
