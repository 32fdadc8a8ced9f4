package channel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/host/freeport"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/net/transport/tcp"
	"brine/internal/net/transport/zeromq"
	"brine/internal/py/value"
)

// overTransports runs a test over real sockets of each kind.
func overTransports(t *testing.T, test func(t *testing.T, tr transport.Transport)) {
	for _, tr := range []transport.Transport{zeromq.New(quiet), tcp.New(quiet)} {
		t.Run(tr.Name(), func(t *testing.T) { t.Parallel(); test(t, tr) })
	}
}

// master is a master's two channels over a transport on loopback.
type master struct {
	*PublishServer
	*Server
	book     *book
	sessions *Sessions
	signIns  atomic.Int64
	pub, req string
	stop     func()
}

// place is the persistent state of a master.
type place struct {
	tr       transport.Transport
	key      *crypt.PrivateKey
	book     *book
	sessions string
	opts     Options
	pub, req string // "" for any port
}

func newPlace(t *testing.T, tr transport.Transport) *place {
	t.Helper()
	ports, err := freeport.TCP(2)
	if err != nil {
		t.Fatal(err)
	}
	return &place{tr: tr, key: private(t, "master"), book: newBook(), sessions: t.TempDir(), opts: Options{MinimumAuthVersion: 3},
		pub: fmt.Sprintf("127.0.0.1:%d", ports[0]), req: fmt.Sprintf("127.0.0.1:%d", ports[1])}
}

func (p *place) start(t *testing.T) *master {
	t.Helper()
	m := &master{book: p.book}
	ident := handshake.NewIdentity(p.key, nil)
	pub, err := p.tr.ListenPublish(p.pub, transport.ListenOptions{Filter: p.tr.Name() == "tcp",
		Identify: Identifier(func() *PublishServer { return m.PublishServer }, p.book, quiet)})
	if err != nil {
		t.Fatal(err)
	}
	req, err := p.tr.ListenRequests(p.req, transport.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if m.PublishServer, err = NewPublishServer(PublishOptions{SignPubMessages: true, PublishSigningAlgorithm: crypt.PKCS1v15SHA1}, ident,
		[]transport.Publisher{pub}); err != nil {
		t.Fatal(err)
	}
	if m.sessions, err = NewSessions(p.sessions, time.Hour); err != nil {
		t.Fatal(err)
	}
	auth := NewAuthenticator(ident, p.book, p.book, m.sessions, func() Publications { return Publications{Key: m.AES(), Port: 4505, Signed: true} },
		func(AuthEvent) { m.signIns.Add(1) }, quiet)
	m.Server = NewServer(func() Options { return p.opts }, p.book, m.sessions, auth, routes(echo), quiet)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = pub.Serve(ctx) })
	wg.Go(func() { _ = req.Serve(ctx, m.Handle) })
	m.pub, m.req = pub.Addr().String(), req.Addr().String()
	p.pub, p.req = m.pub, m.req // the next master listens on the same ports
	m.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(m.stop)
	return m
}

// minion returns a client of the minion "one", accepted by the master.
func (m *master) minion(t *testing.T, tr transport.Transport) *Client {
	t.Helper()
	m.book.accept("one", private(t, "minion_other").Public())
	c := newClient(t, tr)
	c.SetAddress(m.req)
	return c
}

// asks makes a request of each kind.
func asks(t *testing.T, c *Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	v, err := c.Request(ctx, value.DictOf("cmd", "echo", "x", 42))
	if err != nil || value.Repr(v) != "{'you': 'one', 'sent': 42}" {
		t.Fatalf("request: %v, %v", value.Repr(v), err)
	}
	v, err = c.RequestPrivate(ctx, value.DictOf("cmd", "_pillar"))
	if err != nil || value.Repr(v) != "{'secret': 'one'}" {
		t.Fatalf("private request: %v, %v", value.Repr(v), err)
	}
}

// ear is a subscription that is read continuously.
type ear struct {
	jobs chan *value.Dict
	end  chan struct{}
}

// subscribe returns when the subscription is known to work.
func (m *master) subscribe(t *testing.T, c *Client) *ear {
	t.Helper()
	s, err := c.Subscribe(t.Context(), m.pub)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	e := &ear{jobs: make(chan *value.Dict, 1000), end: make(chan struct{})}
	go func() {
		defer close(e.end)
		for {
			job, err := s.Receive(t.Context())
			if err != nil {
				return
			}
			e.jobs <- job
		}
	}()
	// A publication before the subscription arrived is not received.
	for last := 0; ; {
		last--
		if err := m.Publish(value.DictOf("n", last), []string{"one"}); err != nil {
			t.Fatal(err)
		}
		select {
		case job := <-e.jobs:
			for job.Int("n") != int64(last) {
				job = e.hear(t)
			}
			return e
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (e *ear) hear(t *testing.T) *value.Dict {
	t.Helper()
	select {
	case job := <-e.jobs:
		if job.Has("serial") {
			t.Errorf("the serial is left in %s", value.Repr(job))
		}
		return job
	case <-time.After(time.Minute):
		t.Fatal("nothing was received")
	}
	return nil
}

func (m *master) publish(t *testing.T, n int) {
	t.Helper()
	if err := m.Publish(value.DictOf("n", n), []string{"one"}); err != nil {
		t.Fatal(err)
	}
}

func TestFromUnknownToAccepted(t *testing.T) {
	overTransports(t, func(t *testing.T, tr transport.Transport) {
		p := newPlace(t, tr)
		m := p.start(t)
		c := newClient(t, tr)
		c.SetAddress(m.req)
		ctx := t.Context()
		if _, err := c.Subscribe(ctx, m.pub); err == nil {
			t.Error("subscribed before signing in")
		}
		for range 2 {
			if err := c.SignIn(ctx); !errors.Is(err, handshake.ErrPending) {
				t.Fatalf("first sign-in: %v, want pending", err)
			}
		}
		if _, err := c.Request(ctx, value.DictOf("cmd", "echo")); !errors.Is(err, handshake.ErrPending) {
			t.Fatalf("request while pending: %v", err)
		}
		pub := private(t, "minion_other").Public()
		p.book.accept("one", pub)
		asks(t, c) // signs in by itself
		if c.PublishPort() != 4505 || c.Generation() != 1 {
			t.Errorf("port %d, generation %d", c.PublishPort(), c.Generation())
		}

		// The operator deletes the key: the minion is unknown again.
		p.book.remove("one")
		if _, err := c.Request(ctx, value.DictOf("cmd", "echo")); !errors.Is(err, handshake.ErrPending) {
			t.Fatalf("request with a deleted key: %v", err)
		}
		p.book.accept("one", pub)
		asks(t, c)

		// The operator rejects it.
		p.book.remove("one")
		if err := p.book.Store(handshake.ToRejected, "one", string(pub.PEM()), ""); err != nil {
			t.Fatal(err)
		}
		if _, err := c.RequestPrivate(ctx, value.DictOf("cmd", "_pillar")); !errors.Is(err, handshake.ErrRejected) {
			t.Fatalf("request of a rejected minion: %v", err)
		}
		p.book.remove("one")
		p.book.set(func(b *book) { b.full = true })
		if err := c.SignIn(ctx); !errors.Is(err, handshake.ErrFull) {
			t.Fatalf("sign-in at a full master: %v", err)
		}
	})
}

func TestSessionKeyRenewal(t *testing.T) {
	overTransports(t, func(t *testing.T, tr transport.Transport) {
		m := newPlace(t, tr).start(t)
		c := m.minion(t, tr)
		asks(t, c)
		path := filepath.Join(m.sessions.dir, "one")
		for name, change := range map[string]func() error{
			"removed":  func() error { return os.Remove(path) },
			"replaced": func() error { return os.WriteFile(path, []byte(crypt.NewKey()), 0o600) },
			"damaged":  func() error { return os.WriteFile(path, []byte("junk"), 0o600) },
			"expired":  func() error { old := time.Now().Add(-2 * time.Hour); return os.Chtimes(path, old, old) },
			"future":   func() error { f := time.Now().Add(2 * time.Hour); return os.Chtimes(path, f, f) },
		} {
			if err := change(); err != nil {
				t.Fatal(err)
			}
			m.Server.table.drop("one") // without waiting for the next check of the file
			gen := c.Generation()
			asks(t, c)
			if c.Generation() != gen+1 {
				t.Errorf("%s: %d sign-ins", name, c.Generation()-gen)
			}
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("session key: %v, %v", info.Mode(), err)
		}
	})
}

func TestMasterRestart(t *testing.T) {
	overTransports(t, func(t *testing.T, tr transport.Transport) {
		p := newPlace(t, tr)
		m := p.start(t)
		c := m.minion(t, tr)
		asks(t, c)
		e := m.subscribe(t, c)
		m.stop()
		<-e.end
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if v, err := c.Request(ctx, value.DictOf("cmd", "echo")); err == nil {
			t.Fatalf("an unreachable master answers %v", v)
		}

		m = p.start(t)
		asks(t, c)
		if c.Generation() != 1 {
			t.Errorf("%d sign-ins: session keys outlive the master", c.Generation())
		}
		// The first publication reveals the new key, and is read. A tcp publisher sends
		// it only to registered subscribers.
		if tr.Name() == "tcp" {
			if err := c.SignIn(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		e = m.subscribe(t, c)
		m.publish(t, 1)
		if n := e.hear(t).Int("n"); n != 1 {
			t.Errorf("received %d", n)
		}
		if c.Generation() != 2 {
			t.Errorf("generation %d", c.Generation())
		}
		asks(t, c)
	})
}

// TestRotationLosesNothing publishes before and after rotations while the
// minion signs in for other reasons: every message arrives once, in order.
func TestRotationLosesNothing(t *testing.T) {
	overTransports(t, func(t *testing.T, tr transport.Transport) {
		m := newPlace(t, tr).start(t)
		c := m.minion(t, tr)
		asks(t, c)
		e := m.subscribe(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := c.SignIn(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
		n := 0
		for range 6 {
			aes := m.AES()
			for range 4 {
				n++
				m.publish(t, n)
			}
			if err := m.Rotate(); err != nil || m.AES() == aes {
				t.Fatalf("the key is the same, %v", err)
			}
			if m.PublishServer.serial != 0 {
				t.Errorf("serial %d: it restarts with each key", m.PublishServer.serial)
			}
			for range 4 {
				n++
				m.publish(t, n)
			}
			for i := n - 7; i <= n; i++ {
				if got := e.hear(t).Int("n"); got != int64(i) {
					t.Fatalf("received %d, want %d", got, i)
				}
			}
		}
	})
}

// TestManyRenewOneSignIn: when the master forgets a session, all requests
// that notice share one sign-in.
func TestManyRenewOneSignIn(t *testing.T) {
	overTransports(t, func(t *testing.T, tr transport.Transport) {
		m := newPlace(t, tr).start(t)
		c := m.minion(t, tr)
		for round := range 3 {
			before, gen := m.signIns.Load(), c.Generation()
			var wg sync.WaitGroup
			for i := range 30 {
				wg.Go(func() {
					v, err := c.Request(t.Context(), value.DictOf("cmd", "echo", "x", i))
					if err != nil || v.(*value.Dict).Int("sent") != int64(i) {
						t.Errorf("request %d: %v, %v", i, value.Repr(v), err)
					}
				})
			}
			wg.Wait()
			if n := m.signIns.Load() - before; n != 1 || c.Generation() != gen+1 {
				t.Errorf("round %d: %d sign-ins", round, n)
			}
			m.Forget("one")
		}
	})
}

// TestManyUnauthenticatedPeers: hundreds of unauthenticated peers neither delay an accepted minion
// nor use the master's memory.
func TestManyUnauthenticatedPeers(t *testing.T) {
	overTransports(t, func(t *testing.T, tr transport.Transport) {
		m := newPlace(t, tr).start(t)
		c := m.minion(t, tr)
		asks(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var asked atomic.Int64
		key := private(t, "cluster")
		for i := range 8 {
			wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					s := newClient(t, tr, func(cfg *ClientConfig) { cfg.Signer = signer(t, fmt.Sprintf("unknown-%d-%d", i, n), key, nil) })
					s.SetAddress(m.req)
					_ = s.SignIn(ctx)
					// Requests that look encrypted, from ids that do not exist.
					s.creds = vecCredentials(t, "")
					_, _ = s.Request(ctx, value.DictOf("cmd", "echo"))
					s.Close()
					asked.Add(1)
				}
			})
		}
		for n := 0; n < 40 || asked.Load() < 30; n++ {
			asks(t, c)
			if n%20 == 0 {
				if err := c.SignIn(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		cancel()
		wg.Wait()
		remembered := 0
		m.Server.table.m.Range(func(k, _ any) bool { remembered++; return true })
		left, err := os.ReadDir(m.sessions.dir)
		if remembered != 1 || err != nil || len(left) != 1 {
			t.Errorf("%d minions remembered, %d session keys, %v", remembered, len(left), err)
		}
	})
}

// TestTwoMastersMeetANewMinion: if two masters with different keys connect to a new minion in any
// order, it trusts exactly one of them.
func TestTwoMastersMeetANewMinion(t *testing.T) {
	tr := zeromq.New(quiet)
	first, second := newPlace(t, tr), newPlace(t, tr)
	second.key = private(t, "cluster")
	masters := []*master{first.start(t), second.start(t)}
	pub := private(t, "minion_other").Public()
	for range 5 {
		trust := NewFileTrust(filepath.Join(t.TempDir(), "minion_master.pub"))
		shared := signer(t, "one", private(t, "minion_other"), trust)
		errs := make([]error, 2)
		var wg sync.WaitGroup
		for i, m := range masters {
			m.book.accept("one", pub)
			c := newClient(t, tr, func(cfg *ClientConfig) { cfg.Signer = shared })
			c.SetAddress(m.req)
			wg.Go(func() { errs[i] = c.SignIn(t.Context()) })
		}
		wg.Wait()
		loser, winner := 0, 1
		if errs[0] == nil {
			loser, winner = 1, 0
		}
		var mismatch *handshake.KeyMismatch
		if errs[winner] != nil || !errors.As(errs[loser], &mismatch) {
			t.Fatalf("errors: %v", errs)
		}
		on, _ := trust.Known()
		if on != crypt.CleanKey(string([]*place{first, second}[winner].key.Public().PEM())) {
			t.Error("the key on file is not that of the master that was quicker")
		}
		if mismatch.Expected != crypt.Fingerprint([]byte(on), "sha256") || mismatch.File != trust.File() {
			t.Errorf("mismatch %+v", mismatch)
		}
	}
}

// TestMasterKeyRemovedAtRunTime: the operator removes minion_master.pub.
// Existing sessions continue; the next sign-in is like the first.
func TestMasterKeyRemovedAtRunTime(t *testing.T) {
	tr := zeromq.New(quiet)
	m := newPlace(t, tr).start(t)
	c := m.minion(t, tr)
	asks(t, c)
	trust := c.cfg.Signer.Trust
	before, _ := trust.Known()
	if err := os.Remove(trust.File()); err != nil {
		t.Fatal(err)
	}
	asks(t, c)
	if c.Generation() != 1 {
		t.Error("signed in again for no reason")
	}
	if err := c.SignIn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after, _ := trust.Known(); after != before {
		t.Error("the master's key is not back")
	}
	if info, err := os.Stat(trust.File()); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode of the key file: %v", info.Mode())
	}

	// A master that returned with another key pair is detected at once, also by a
	// private reply under a valid session.
	if err := os.WriteFile(trust.File(), []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	m.stop()
	other := newPlace(t, tr)
	other.key, other.req, other.sessions, other.book = private(t, "cluster"), m.req, m.sessions.dir, m.book
	other.start(t)
	var mismatch *handshake.KeyMismatch
	if _, err := c.RequestPrivate(t.Context(), value.DictOf("cmd", "_pillar")); !errors.As(err, &mismatch) {
		t.Errorf("private reply of a master with another key: %v", err)
	}
	if !strings.Contains(mismatch.Error(), trust.File()) {
		t.Error(mismatch)
	}
}
