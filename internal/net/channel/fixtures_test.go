package channel

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

const vectors = "../../../testdata/vectors"

var quiet = slog.New(slog.DiscardHandler)

// vecID is the minion of the recordings, vecSession its session key.
const (
	vecID      = "vecminion"
	vecSession = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc="
)

func readJSON(t testing.TB, name string, into any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(vectors, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// private returns one of the recorded key pairs; generating keys is slow.
func private(t testing.TB, name string) *crypt.PrivateKey {
	t.Helper()
	k, err := crypt.LoadPrivate(filepath.Join(vectors, "keys", name+".pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func decode(t testing.TB, b []byte) any {
	t.Helper()
	v, err := msgpack.Unmarshal(b)
	if err != nil {
		t.Fatalf("%v in %q", err, b)
	}
	return v
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := msgpack.Marshal(v, msgpack.Wire)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// book is a key store in memory, with an operator's policy.
type book struct {
	mu       sync.Mutex
	accepted map[string]*crypt.PublicKey
	pending  map[string]string
	rejected map[string]string
	denied   map[string]string
	auto     bool
	open     bool
	full     bool
	err      error // returned by every look-up
}

func newBook() *book {
	return &book{accepted: map[string]*crypt.PublicKey{}, pending: map[string]string{}, rejected: map[string]string{}, denied: map[string]string{}}
}

func (b *book) AcceptedKey(id string) (*crypt.PublicKey, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k, ok := b.accepted[id]
	return k, ok, b.err
}

func (b *book) Known(id string) (handshake.Known, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p, ok := b.rejected[id]; ok {
		return handshake.Rejected, p, b.err
	}
	if k, ok := b.accepted[id]; ok {
		return handshake.Accepted, string(k.PEM()), b.err
	}
	if p, ok := b.pending[id]; ok {
		return handshake.Pending, p, b.err
	}
	return handshake.Unknown, "", b.err
}

func (b *book) Store(bank handshake.Bank, id, pem, _ string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch bank {
	case handshake.ToAccepted:
		k, err := crypt.ParsePublic([]byte(pem))
		if err != nil {
			return err
		}
		b.accepted[id] = k
	case handshake.ToPending:
		b.pending[id] = pem
	case handshake.ToRejected:
		b.rejected[id] = pem
	case handshake.ToDenied:
		b.denied[id] = pem
	}
	return nil
}

func (b *book) Add(bank handshake.Bank, id, pem, rule string) error {
	if known, _, _ := b.Known(id); known != handshake.Unknown {
		return salt.Errorf(salt.Exists, "%s has a key", id)
	}
	return b.Store(bank, id, pem, rule)
}

func (b *book) DropPending(id, _ string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pending, id)
	return nil
}

// accept works like salt-key -a, remove like -d.
func (b *book) accept(id string, pub *crypt.PublicKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accepted[id] = pub
	delete(b.pending, id)
}

func (b *book) remove(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.accepted, id)
	delete(b.pending, id)
	delete(b.rejected, id)
}

func (b *book) Open() bool       { return b.open }
func (b *book) Full(string) bool { b.mu.Lock(); defer b.mu.Unlock(); return b.full }
func (b *book) Policy(string, *value.Dict) handshake.Policy {
	return handshake.Policy{AutoSign: b.auto}
}

// set changes the policy.
func (b *book) set(change func(b *book)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

// routes is a Router that calls a function.
type routes func(c *Call)

func (r routes) Encrypted(c *Call) { r(c) }
func (r routes) Clear(c *Call)     { r(c) }

// echo answers with the request; _pillar privately.
func echo(c *Call) {
	switch {
	case c.ID == "":
		c.Reply(value.DictOf("clear", c.Cmd))
	case c.Cmd == "_pillar":
		if err := c.ReplyPrivate(value.DictOf("secret", c.ID)); err != nil {
			c.Reply(err.Error())
		}
	default:
		c.Reply(value.DictOf("you", c.ID, "sent", c.Load.At("x")))
	}
}

// testServer is a master's request channel without a transport.
type testServer struct {
	*Server
	book     *book
	sessions *Sessions
	auth     *Authenticator
	opts     Options
	aes      string
	events   []AuthEvent
}

func newServer(t testing.TB, r routes) *testServer {
	t.Helper()
	s := &testServer{book: newBook(), opts: Options{MinimumAuthVersion: 3}, aes: crypt.NewKey()}
	var err error
	if s.sessions, err = NewSessions(filepath.Join(t.TempDir(), "sessions"), 24*time.Hour); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	s.auth = NewAuthenticator(handshake.NewIdentity(private(t, "master"), nil), s.book, s.book, s.sessions,
		func() Publications { return Publications{Key: s.aes, Port: 4505} }, func(e AuthEvent) {
			mu.Lock()
			defer mu.Unlock()
			s.events = append(s.events, e)
		}, quiet)
	s.Server = NewServer(func() Options { return s.opts }, s.book, s.sessions, s.auth, r, quiet)
	return s
}

// newVecServer is a server that knows the recorded minion and its session.
func newVecServer(t testing.TB, r routes) *testServer {
	t.Helper()
	s := newServer(t, r)
	s.book.accept(vecID, private(t, "minion").Public())
	if err := os.WriteFile(filepath.Join(s.sessions.dir, vecID), []byte(vecSession), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// ask passes a request to the server and returns the reply.
func (s *testServer) ask(t testing.TB, body []byte, newSpec bool) []byte {
	t.Helper()
	replies := make(chan []byte, 2)
	s.Handle(&transport.Request{Body: bytes.Clone(body), Peer: &net.TCPAddr{}, NewSpec: newSpec, Reply: func(b []byte) { replies <- b }})
	select {
	case b := <-replies:
		if len(replies) > 0 {
			t.Fatalf("a second reply: %q", <-replies)
		}
		return b
	case <-time.After(time.Minute):
		t.Fatal("no reply")
	}
	return nil
}

// direct is a Requester that calls a function.
type direct func(ctx context.Context, body []byte) ([]byte, error)

func (d direct) Request(ctx context.Context, body []byte) ([]byte, error) { return d(ctx, body) }
func (direct) Close() error                                               { return nil }

// requester connects a client to the server without a transport.
func (s *testServer) requester() direct {
	return func(ctx context.Context, body []byte) ([]byte, error) {
		reply := make(chan []byte, 1)
		s.Handle(&transport.Request{Body: bytes.Clone(body), Reply: func(b []byte) { reply <- b }})
		select {
		case b := <-reply:
			return b, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// wire is a Transport with given connections.
type wire struct {
	transport.Transport
	req transport.Requester
	sub transport.Subscription
}

func (w wire) NewRequester(string, transport.DialOptions) transport.Requester {
	if w.req == nil {
		return direct(func(context.Context, []byte) ([]byte, error) { return nil, net.ErrClosed })
	}
	return w.req
}
func (w wire) Subscribe(context.Context, string, transport.DialOptions) (transport.Subscription, error) {
	return w.sub, nil
}

func signer(t testing.TB, id string, key *crypt.PrivateKey, trust handshake.Trust) *handshake.Minion {
	t.Helper()
	if trust == nil {
		trust = NewFileTrust(filepath.Join(t.TempDir(), "minion_master.pub"))
	}
	return &handshake.Minion{ID: id, Key: key, Token: "token", Trust: trust, Options: handshake.MinionOptions{
		EncryptionAlgorithm: crypt.OAEPSHA1, SigningAlgorithm: crypt.PKCS1v15SHA1, HashType: "sha256"}}
}

// newClient returns a client of the minion "one" with the key minion_other.
func newClient(t testing.TB, tr transport.Transport, change ...func(*ClientConfig)) *Client {
	t.Helper()
	cfg := ClientConfig{Signer: signer(t, "one", private(t, "minion_other"), nil), Transport: tr, VerifyPublications: true, Log: quiet}
	for _, f := range change {
		f(&cfg)
	}
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// client returns a client of the server, accepted and not signed in yet.
func (s *testServer) client(t testing.TB, change ...func(*ClientConfig)) *Client {
	t.Helper()
	s.book.accept("one", private(t, "minion_other").Public())
	c := newClient(t, wire{req: s.requester()}, change...)
	c.SetAddress("master")
	return c
}

// vecCredentials returns the keys that the recorded minion got.
func vecCredentials(t testing.TB, aes string) *credentials {
	t.Helper()
	session, err := crypt.NewCrypticle(vecSession)
	if err != nil {
		t.Fatal(err)
	}
	if aes == "" {
		aes = crypt.NewKey()
	}
	pub, err := crypt.NewCrypticle(aes)
	if err != nil {
		t.Fatal(err)
	}
	return &credentials{gen: 1, aes: aes, session: session, publications: &publicationKey{cipher: pub}, master: private(t, "master").Public()}
}

// vecClient is the recorded minion, signed in.
func vecClient(t testing.TB, tr transport.Transport, aes string, change ...func(*ClientConfig)) *Client {
	t.Helper()
	c := newClient(t, tr, append([]func(*ClientConfig){func(cfg *ClientConfig) {
		cfg.Signer = signer(t, vecID, private(t, "minion"), nil)
	}}, change...)...)
	c.creds = vecCredentials(t, aes)
	c.SetAddress("master")
	return c
}
