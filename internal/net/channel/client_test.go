package channel

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/py/value"
)

// TestHostileReplies: an attacker on the network path without a key causes an
// error or a new sign-in, never a result.
func TestHostileReplies(t *testing.T) {
	seal := func(key, nonce string, v any) []byte {
		c, err := crypt.NewCrypticle(key)
		if err != nil {
			t.Fatal(err)
		}
		return encode(t, c.Seal(encode(t, v), nonce))
	}
	oldNonce := newNonce()
	foreign, err := private(t, "minion").Public().Encrypt(crypt.OAEPSHA1, []byte(vecSession))
	if err != nil {
		t.Fatal(err)
	}
	inner, _ := crypt.NewCrypticle(vecSession)
	const renew = "renew"
	for name, c := range map[string]struct {
		reply []byte
		want  string // part of the error; renew for a new sign-in
	}{
		"bad load":                  {encode(t, badLoad), renew},
		"nothing":                   {nil, renew},
		"not msgpack":               {[]byte{0xc1}, renew},
		"a map":                     {encode(t, value.DictOf("you", "one")), renew},
		"an error map":              {encode(t, value.DictOf("error", "bad load")), renew},
		"nil":                       {encode(t, nil), renew},
		"true":                      {encode(t, true), renew},
		"an empty text":             {encode(t, ""), "the master answered"},
		"a short text":              {encode(t, "yes"), "the master answered"},
		"bad minion":                {encode(t, badMinion), badMinion},
		"server error":              {encode(t, serverError), serverError},
		"bad id":                    {encode(t, "bad load: id 5 is not a string"+strings.Repeat("!", 90)), "bad load: id 5"},
		"a long text":               {encode(t, strings.Repeat("y", 5000)), "cannot be opened"},
		"under another key":         {seal(crypt.NewKey(), "", "x"), "cannot be opened"},
		"without nonce":             {seal(vecSession, "", "x"), "cannot be opened"},
		"an old reply":              {seal(vecSession, oldNonce, "x"), "cannot be opened"},
		"a private reply for us":    {encode(t, value.DictOf("key", foreign, "pillar", inner.Seal(encode(t, value.DictOf("data", "x", "sig", "y")), ""))), renew},
		"a private reply, unsigned": {encode(t, value.DictOf("key", foreign, "pillar", inner.Seal(encode(t, value.DictOf("pillar", "x")), ""))), renew},
		"a private reply, no map":   {encode(t, value.DictOf("key", foreign, "pillar", inner.Seal([]byte{0x90}, ""))), "expected a map"},
		"a private reply, junk":     {encode(t, value.DictOf("key", foreign, "pillar", "junk")), "cannot open"},
		"a private reply, no key":   {encode(t, value.DictOf("key", "junk", "pillar", "junk")), "cannot decrypt"},
	} {
		t.Run(name, func(t *testing.T) {
			cl := vecClient(t, wire{req: direct(func(context.Context, []byte) ([]byte, error) { return c.reply, nil })}, "")
			cr := cl.current()
			for kind, open := range map[string]func() (any, error){
				"ordinary": func() (any, error) { return cr.open(c.reply, newNonce()) },
				"private":  func() (any, error) { return cl.openPrivate(cr, c.reply, newNonce()) },
			} {
				if kind == "ordinary" && strings.HasPrefix(name, "a private") {
					continue
				}
				v, err := open()
				if v != nil || err == nil {
					t.Fatalf("%s: believed: %v", kind, v)
				}
				if errors.Is(err, errRenew) != (c.want == renew) || c.want != renew && !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v, want %s", kind, err, c.want)
				}
			}
			// The same through the whole client: the request returns an error and no result.
			if v, err := cl.Request(t.Context(), value.DictOf("cmd", "x")); err == nil {
				t.Errorf("Request: %v", v)
			}
			if v, err := cl.RequestPrivate(t.Context(), value.DictOf("cmd", "x")); err == nil {
				t.Errorf("RequestPrivate: %v", v)
			}
		})
	}
}

// TestSignedPrivateReplyMustFit: signed data for another request or another key
// is rejected.
func TestSignedPrivateReplyMustFit(t *testing.T) {
	c := vecClient(t, wire{}, "")
	once := crypt.NewKey()
	cipher, err := crypt.NewCrypticle(once)
	if err != nil {
		t.Fatal(err)
	}
	pub := private(t, "minion").Public()
	key, err := pub.Encrypt(crypt.OAEPSHA1, []byte(once))
	if err != nil {
		t.Fatal(err)
	}
	twin, err := pub.Encrypt(crypt.OAEPSHA1, []byte(once))
	if err != nil {
		t.Fatal(err)
	}
	reply := func(inner any, signer string) []byte {
		data := encode(t, inner)
		sig, err := private(t, signer).Sign(crypt.PKCS1v15SHA1, data)
		if err != nil {
			t.Fatal(err)
		}
		return encode(t, value.DictOf("key", key, "pillar", cipher.Seal(encode(t, value.DictOf("data", data, "sig", sig)), "")))
	}
	open := func(b []byte) (any, error) { return c.openPrivate(c.current(), b, "the nonce") }
	if v, err := open(reply(value.DictOf("key", key, "pillar", "P", "nonce", "the nonce"), "master")); v != "P" || err != nil {
		t.Fatalf("%v, %v", v, err)
	}
	for name, b := range map[string][]byte{
		"another nonce":  reply(value.DictOf("key", key, "pillar", "P", "nonce", "other"), "master"),
		"no nonce":       reply(value.DictOf("key", key, "pillar", "P"), "master"),
		"another key":    reply(value.DictOf("key", twin, "pillar", "P", "nonce", "the nonce"), "master"),
		"no map":         reply("P", "master"),
		"another signer": reply(value.DictOf("key", key, "pillar", "P", "nonce", "the nonce"), "minion_other"),
	} {
		if v, err := open(b); err == nil {
			t.Errorf("%s: %v", name, v)
		}
	}
}

// TestHostileSignIn: answers to a sign-in that are large, deeply nested or
// malformed.
func TestHostileSignIn(t *testing.T) {
	for name, reply := range map[string][]byte{
		"bad load": encode(t, badLoad), "nothing": nil, "not msgpack": {0xc1},
		"deep":   append([]byte(strings.Repeat("\x91", 5000)), 1),
		"large":  encode(t, value.DictOf("enc", "clear", "load", strings.Repeat("x", 1<<20), "sig", "")),
		"claims": {0xdf, 0xff, 0xff, 0xff, 0xff},
		"forged": encode(t, value.DictOf("enc", "clear", "load", encode(t, value.DictOf("ret", "yes", "nonce", "x")), "sig", "x")),
	} {
		c := newClient(t, wire{req: direct(func(context.Context, []byte) ([]byte, error) { return reply, nil })})
		c.SetAddress("master")
		if err := c.SignIn(t.Context()); err == nil || len(err.Error()) > 400 {
			t.Errorf("%s: %v", name, err)
		}
		if c.current() != nil || c.PublishPort() != 0 || c.Generation() != 0 {
			t.Errorf("%s: keys were taken", name)
		}
		if _, ok := c.cfg.Signer.Trust.Known(); ok {
			t.Errorf("%s: the master's key was stored", name)
		}
	}
}

// turns is a transport whose connections reach several requesters in turn, as
// through a load balancer.
type turns struct {
	wire
	next  []transport.Requester
	dials *atomic.Int64
}

func (t turns) NewRequester(string, transport.DialOptions) transport.Requester {
	return t.next[min(int(t.dials.Add(1)), len(t.next))-1]
}

// TestRefusedByOneOfMany: after an unusable answer the next attempt is made on
// another connection, which a load balancer may route to another master.
func TestRefusedByOneOfMany(t *testing.T) {
	s := newServer(t, echo)
	s.book.accept("one", private(t, "minion_other").Public())
	for name, reply := range map[string][]byte{"unreadable": {0xc1}, "refused": encode(t, badLoad)} {
		way := turns{next: []transport.Requester{direct(func(context.Context, []byte) ([]byte, error) { return reply, nil }), s.requester()}, dials: &atomic.Int64{}}
		c := newClient(t, way.wire, func(cfg *ClientConfig) { cfg.Transport = way })
		c.SetAddress("master")
		if err := c.SignIn(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if err := c.SignIn(t.Context()); err != nil || way.dials.Load() != 2 {
			t.Errorf("%s: %d connections, %v", name, way.dials.Load(), err)
		}
		if err := c.SignIn(t.Context()); err != nil || way.dials.Load() != 2 {
			t.Errorf("%s: a good connection is given up: %d, %v", name, way.dials.Load(), err)
		}
	}
}

// closable is a requester whose requests end when it is closed, like those of a
// connection.
type closable struct {
	direct
	closed chan struct{}
}

func newClosable(d direct) *closable { return &closable{d, make(chan struct{})} }

func (c *closable) Request(ctx context.Context, body []byte) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-c.closed:
			cancel(net.ErrClosed)
		case <-ctx.Done():
		}
	}()
	raw, err := c.direct(ctx, body)
	if err != nil {
		err = context.Cause(ctx)
	}
	return raw, err
}

func (c *closable) Close() error { close(c.closed); return nil }

// TestRedialLeavesRequests: a sign-in with an unusable answer leads to another
// connection, but pending requests on the old one, such as returns, are
// answered; it is closed with the last of them, after the request timeout, or
// with the client.
func TestRedialLeavesRequests(t *testing.T) {
	ends := map[string]func(c *Client, answer chan<- struct{}){
		"answered": func(_ *Client, answer chan<- struct{}) { close(answer) },
		"timeout":  func(*Client, chan<- struct{}) {},
		"closed":   func(c *Client, _ chan<- struct{}) { c.Close() },
		"moved":    func(c *Client, _ chan<- struct{}) { c.SetAddress("another") },
	}
	for name, end := range ends {
		synctest.Test(t, func(t *testing.T) {
			answer := make(chan struct{})
			old := newClosable(nil)
			waiting := false
			old.direct = func(ctx context.Context, _ []byte) ([]byte, error) {
				if waiting {
					return []byte{0xc1}, nil // the sign-in
				}
				waiting = true
				select {
				case <-answer:
					return []byte{0xc0}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			way := turns{next: []transport.Requester{old, newClosable(nil), newClosable(nil)}, dials: &atomic.Int64{}}
			c := newClient(t, way.wire, func(cfg *ClientConfig) { cfg.Transport, cfg.RequestTimeout = way, time.Minute })
			c.SetAddress("master")
			done := make(chan error, 1)
			go func() { done <- c.Ping(t.Context()) }()
			synctest.Wait()
			if err := c.SignIn(t.Context()); err == nil || way.dials.Load() != 2 {
				t.Fatalf("%s: %d connections, %v", name, way.dials.Load(), err)
			}
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("%s: a request under way ended with the sign-in: %v", name, err)
			default:
			}
			end(c, answer)
			if err := <-done; (err == nil) != (name == "answered") {
				t.Errorf("%s: %v", name, err)
			}
			<-old.closed
			synctest.Wait()
			c.mu.Lock()
			kept := len(c.retired)
			c.mu.Unlock()
			if kept > 0 {
				t.Errorf("%s: the old connection is kept", name)
			}
			c.Close()
		})
	}
}

// TestUnusableKeys: invalid keys are rejected, even if the master is authentic.
func TestUnusableKeys(t *testing.T) {
	c := vecClient(t, wire{}, "")
	before := c.current()
	for _, got := range []handshake.Credentials{{AES: "x", Session: vecSession}, {AES: crypt.NewKey(), Session: "x"}, {}} {
		if err := c.install(&got); err == nil || c.current() != before {
			t.Errorf("%+v: %v", got, err)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, change := range []func(*handshake.MinionOptions){
		func(o *handshake.MinionOptions) { o.EncryptionAlgorithm = "none" },
		func(o *handshake.MinionOptions) { o.SigningAlgorithm = "none" },
	} {
		s := signer(t, "one", private(t, "minion"), nil)
		change(&s.Options)
		if _, err := NewClient(ClientConfig{Signer: s, Log: quiet}); salt.KindOf(err) != salt.Invalid || !strings.Contains(err.Error(), "option ") {
			t.Errorf("error %v", err)
		}
	}
	if _, err := NewPublishServer(PublishOptions{SignPubMessages: true, PublishSigningAlgorithm: "none"}, nil, nil); err == nil {
		t.Error("publishes with an algorithm that does not exist")
	}
}

// TestNoAddress: before SetAddress and after Close all requests fail.
func TestNoAddress(t *testing.T) {
	s := newServer(t, echo)
	s.book.accept("one", private(t, "minion_other").Public())
	c := newClient(t, wire{req: s.requester()})
	for range 2 {
		if err := c.SignIn(t.Context()); salt.KindOf(err) != salt.Unavailable {
			t.Errorf("error %v", err)
		}
		c.SetAddress("master")
		asks(t, c)
		c.Close()
		c.Close()
		if _, err := c.Request(t.Context(), value.DictOf("cmd", "x")); salt.KindOf(err) != salt.Unavailable {
			t.Errorf("error %v", err)
		}
	}
}

// TestWaitersShareTheFailure: while the master does not answer, a hundred
// requests share one attempt, and each waits only as long as its own timeout.
func TestWaitersShareTheFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts atomic.Int64
		c := newClient(t, wire{req: direct(func(ctx context.Context, _ []byte) ([]byte, error) {
			attempts.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		})}, func(cfg *ClientConfig) { cfg.AuthTimeout = 5 * time.Second })
		c.SetAddress("master")
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				ctx := t.Context()
				if i == 50 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Second)
					defer cancel()
				}
				if _, err := c.Request(ctx, value.DictOf("cmd", "x")); err == nil {
					t.Error("no error")
				}
				if took := time.Since(start); i == 50 && took > time.Second {
					t.Errorf("waited for %v", took)
				}
			})
		}
		wg.Wait()
		// If the request with the short timeout made the attempt, there is a second
		// one.
		if n := attempts.Load(); n > 2 {
			t.Errorf("%d attempts", n)
		}
		if took := time.Since(start); took > 7*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestLeaderGivesUp: one caller makes the attempt for all. If it leaves, the
// others do not get its error, but make another attempt.
func TestLeaderGivesUp(t *testing.T) {
	s := newServer(t, echo)
	s.book.accept("one", private(t, "minion_other").Public())
	real, started := s.requester(), make(chan struct{})
	var first sync.Once
	c := newClient(t, wire{req: direct(func(ctx context.Context, body []byte) ([]byte, error) {
		hang := false
		first.Do(func() { hang = true; close(started) })
		if hang {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return real(ctx, body)
	})})
	c.SetAddress("master")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.SignIn(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("the leader: %v", err)
		}
	})
	<-started
	for range 10 {
		wg.Go(func() {
			if err := c.SignIn(t.Context()); err != nil {
				t.Errorf("another: %v", err)
			}
		})
	}
	cancel()
	wg.Wait()
}

// TestStaleRenewal: another caller signed in meanwhile, but before the master
// forgot the session. Its keys do not help; a sign-in of our own does.
func TestStaleRenewal(t *testing.T) {
	s := newServer(t, echo)
	c := s.client(t)
	asks(t, c)
	calls := 0
	v, err := c.withRenewal(t.Context(), func(ctx context.Context, cr *credentials) (any, error) {
		if calls++; calls == 1 {
			if err := c.SignIn(ctx); err != nil {
				return nil, err
			}
			s.Forget("one")
			return nil, errRenew
		}
		nonce, raw, err := c.exchange(ctx, cr, value.DictOf("cmd", "echo", "x", 1))
		if err != nil {
			return nil, err
		}
		return cr.open(raw, nonce)
	})
	if err != nil || v.(*value.Dict).Int("sent") != 1 || calls != 3 || c.Generation() != 3 {
		t.Errorf("%v, %v after %d calls, %d sign-ins", v, err, calls, c.Generation())
	}
}

// TestStaleRenewalOfPublication: the same for a publication that arrives during a sign-in whose
// answer still contains the previous key.
func TestStaleRenewalOfPublication(t *testing.T) {
	s := newServer(t, echo)
	s.book.accept("one", private(t, "minion_other").Public())
	real := s.requester()
	var hold atomic.Bool
	answered, gate := make(chan struct{}), make(chan struct{})
	c := newClient(t, wire{req: direct(func(ctx context.Context, body []byte) ([]byte, error) {
		b, err := real(ctx, body)
		if hold.CompareAndSwap(true, false) {
			close(answered)
			<-gate
		}
		return b, err
	})})
	c.SetAddress("master")
	asks(t, c)
	sink := &collector{}
	p, err := NewPublishServer(PublishOptions{SignPubMessages: true, PublishSigningAlgorithm: crypt.PKCS1v15SHA1},
		s.auth.Identity(), []transport.Publisher{sink})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(value.DictOf("n", 1), nil); err != nil {
		t.Fatal(err)
	}
	hold.Store(true)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.SignIn(t.Context()); err != nil {
			t.Error(err)
		}
	})
	<-answered
	s.aes = p.AES()
	wg.Go(func() {
		sub := &Subscription{c: c, sub: &playback{left: sink.payloads}, log: quiet}
		if job, err := sub.Receive(t.Context()); err != nil || job.Int("n") != 1 {
			t.Errorf("%v, %v", value.Repr(job), err)
		}
	})
	close(gate)
	wg.Wait()
	if n := c.Generation(); n != 3 {
		t.Errorf("%d sign-ins", n)
	}
}

// collector is a Publisher that records its publications.
type collector struct {
	transport.Publisher
	payloads [][]byte
}

func (c *collector) Publish(p transport.Publication) { c.payloads = append(c.payloads, p.Payload) }

// TestRequestThatMasterNeverReads: the client does not sign in endlessly.
func TestRequestThatMasterNeverReads(t *testing.T) {
	s := newServer(t, echo)
	s.opts.RequestServerTTL = time.Minute
	s.now = func() time.Time { return time.Now().Add(time.Hour) }
	c := s.client(t)
	_, err := c.Request(t.Context(), value.DictOf("cmd", "echo"))
	if !errors.Is(err, errRenew) || !strings.Contains(err.Error(), "clocks") {
		t.Errorf("error %v", err)
	}
	if n := c.Generation(); n != 2 {
		t.Errorf("%d sign-ins", n)
	}
}

// TestPublicationsAcrossKeys follows a subscription through key changes.
func TestPublicationsAcrossKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, echo)
		c := s.client(t)
		sink := &collector{}
		p, err := NewPublishServer(PublishOptions{SignPubMessages: true, PublishSigningAlgorithm: crypt.PKCS1v15SHA224},
			s.auth.Identity(), []transport.Publisher{sink})
		if err != nil {
			t.Fatal(err)
		}
		signIn := func() {
			s.aes = p.AES()
			if err := c.SignIn(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		job := value.DictOf("n", 1)
		publish := func() []byte {
			if err := p.Publish(job, nil); err != nil {
				t.Fatal(err)
			}
			return sink.payloads[len(sink.payloads)-1]
		}
		signIn()
		sub := &Subscription{c: c, log: quiet}
		takes := func(what string, payload []byte, want bool) {
			t.Helper()
			gen := c.Generation()
			got, err := sub.open(t.Context(), payload)
			if (err == nil) != want || want && value.Repr(got) != "{'n': 1}" {
				t.Errorf("%s: %v, %v", what, value.Repr(got), err)
			}
			if want && c.Generation() != gen {
				t.Errorf("%s: signed in", what)
			}
		}
		one, two, three := publish(), publish(), publish()
		takes("the first", one, true)
		takes("the first again", one, false)
		takes("the third", three, true)
		takes("the second, late", two, false)
		signIn()
		takes("the third again, after a sign-in", three, false)

		four, five, six := publish(), publish(), publish()
		if err := p.Rotate(); err != nil {
			t.Fatal(err)
		}
		seven := publish()
		signIn()
		takes("under the last key", four, true)
		takes("under the last key, again", four, false)
		takes("under the new key", seven, true)
		takes("under the last key, still", five, true)
		time.Sleep(previousTime + time.Second)
		takes("under the last key, much later", six, false)

		if job.Has("serial") {
			t.Error("the caller's job was changed")
		}
		for name, payload := range map[string][]byte{
			"junk": {0xc1}, "nothing": nil, "a list": {0x90}, "clear": encode(t, value.DictOf("enc", "clear", "load", "x")),
			"no load": encode(t, value.DictOf("enc", "aes")),
		} {
			takes(name, payload, false)
		}
	})
}

// TestRotateWhilePublishing: each publication is encrypted under one key, and
// the serial numbers of a key count up by one in the order of sending.
func TestRotateWhilePublishing(t *testing.T) {
	sink := &collector{}
	p, err := NewPublishServer(PublishOptions{}, handshake.NewIdentity(private(t, "master"), nil), []transport.Publisher{sink})
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{p.AES(): true}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if err := p.Publish(value.DictOf("n", 1), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		if err := p.Rotate(); err != nil {
			t.Fatal(err)
		}
		keys[p.AES()] = true
	}
	wg.Wait()
	serial, last := int64(0), ""
	for i, payload := range sink.payloads {
		load := decode(t, payload).(*value.Dict).Bytes("load")
		var plain []byte
		for k := range keys {
			c, err := crypt.NewCrypticle(k)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := c.Open(load); err == nil {
				if plain = b; k != last {
					serial, last = 0, k
				}
			}
		}
		if serial++; plain == nil || decode(t, plain).(*value.Dict).Int("serial") != serial {
			t.Fatalf("publication %d: %q", i, plain)
		}
	}
	if len(sink.payloads) != 200 || len(keys) != 21 {
		t.Errorf("%d publications, %d keys", len(sink.payloads), len(keys))
	}
}

// TestPublicationWaitsForTheMaster: the message that revealed a restart is kept
// while the master, busy with other minions, does not answer.
func TestPublicationWaitsForTheMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, echo)
		s.book.accept("one", private(t, "minion_other").Public())
		real := s.requester()
		down := 0
		c := newClient(t, wire{req: direct(func(ctx context.Context, body []byte) ([]byte, error) {
			if down--; down >= 0 {
				return nil, errors.New("busy")
			}
			return real(ctx, body)
		})})
		c.SetAddress("master")
		sink := &collector{}
		p, err := NewPublishServer(PublishOptions{SignPubMessages: true, PublishSigningAlgorithm: crypt.PKCS1v15SHA1},
			s.auth.Identity(), []transport.Publisher{sink})
		if err != nil {
			t.Fatal(err)
		}
		asks(t, c)
		s.aes = p.AES()
		if err := p.Publish(value.DictOf("n", 1), nil); err != nil {
			t.Fatal(err)
		}
		sub := &Subscription{c: c, log: quiet, sub: &playback{left: sink.payloads}}
		down = renewTries - 1
		if job, err := sub.Receive(t.Context()); err != nil || job.Int("n") != 1 {
			t.Errorf("%v, %v", value.Repr(job), err)
		}
		// Refusals are final: this minion can no longer read the message.
		s.aes = crypt.NewKey()
		s.book.remove("one")
		start := time.Now()
		sub.sub = &playback{left: [][]byte{encode(t, value.DictOf("enc", "aes", "load", strings.Repeat("x", 96), "sig", "x", "sig_algo", "x"))}}
		if job, err := sub.Receive(t.Context()); err == nil {
			t.Errorf("%v", job)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("a refused minion tried again for %v", took)
		}
		// A rejected minion stops waiting.
		down = 1 << 20
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		sub.sub = &playback{left: sink.payloads}
		c.creds.publications = vecCredentials(t, "").publications
		if _, err := sub.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}

func TestFileTrust(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "minion_master.pub")
	trust := NewFileTrust(path)
	if _, ok := trust.Known(); ok {
		t.Error("a key out of nothing")
	}
	// Many processes with different keys adopt one file.
	var wg sync.WaitGroup
	got := make([]string, 20)
	for i := range got {
		wg.Go(func() {
			k, err := NewFileTrust(path).Adopt("key "+string(rune('a'+i)), false)
			if err != nil {
				t.Error(err)
			}
			got[i] = k
		})
	}
	wg.Wait()
	on, _ := trust.Known()
	for i, k := range got {
		if k != on {
			t.Errorf("%d was told %q, on file is %q", i, k, on)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v", info.Mode())
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	if now, err := trust.Adopt("new", false); now != on || err != nil {
		t.Errorf("%q, %v", now, err)
	}
	if now, err := trust.Adopt("new", true); now != "new" || err != nil {
		t.Errorf("%q, %v", now, err)
	}
	if on, _ := trust.Known(); on != "new" {
		t.Errorf("on file is %q", on)
	}
	// Salt writes it with or without a newline; editors use other line ends.
	if err := os.WriteFile(path, []byte("a\r\nb\r\n\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if on, ok := trust.Known(); on != "a\nb" || !ok {
		t.Errorf("on file is %q", on)
	}
	// A directory in place of the file, or a path that cannot be created, is an error with the
	// path.
	directory := NewFileTrust(dir)
	nowhere := NewFileTrust(filepath.Join(dir, "no", "where"))
	for _, tr := range []*FileTrust{directory, nowhere} {
		for _, replace := range []bool{false, true} {
			if now, err := tr.Adopt("k", replace); err == nil || !strings.Contains(err.Error(), tr.File()) || now != "" {
				t.Errorf("%s: %q, %v", tr.File(), now, err)
			}
		}
	}
}
