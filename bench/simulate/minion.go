package simulate

import (
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Minion is one minion of the fleet.
type Minion struct {
	ID string

	fleet   *Fleet
	key     *Key
	signer  *handshake.Minion
	local   net.Addr
	again   atomic.Bool // it has signed in before
	req     transport.Requester
	session atomic.Pointer[crypt.Crypticle] // replaced by a sign-in while requests are in progress

	mu  sync.Mutex
	sub transport.Subscription
}

const protocolVersion = 3

func nonce() string {
	var b [16]byte
	crand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// SignIn signs in over the minion's connection.
func (m *Minion) SignIn(ctx context.Context) error { return m.signIn(ctx, m.req) }

// SignInAnew signs in over a new connection, as minions do, and retries when a busy master says so.
func (m *Minion) SignInAnew(ctx context.Context) error {
	for {
		err := m.signInOnce(ctx)
		var busy *handshake.Busy
		if !errors.As(err, &busy) {
			return err
		}
		m.fleet.Hints.Add(1)
		select {
		case <-time.After(busy.Wait):
		case <-ctx.Done():
			return err
		}
	}
}

func (m *Minion) signInOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.fleet.authTimeout())
	defer cancel()
	r := m.fleet.cfg.Transport.NewRequester(m.fleet.cfg.Request, transport.DialOptions{LocalAddr: m.local})
	defer r.Close()
	return m.signIn(ctx, r)
}

func (m *Minion) signIn(ctx context.Context, r transport.Requester) error {
	a, err := m.signer.Begin(nonce(), nil, m.again.Swap(true) && !m.fleet.NoHints)
	if err != nil {
		return err
	}
	body, err := msgpack.Marshal(value.DictOf("enc", "clear", "load", a.Load, "version", protocolVersion), msgpack.NewSpec)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, m.fleet.cfg.Timeout)
	defer cancel()
	raw, err := r.Request(ctx, body)
	if err != nil {
		return fmt.Errorf("%s: sign-in: %w", m.ID, err)
	}
	if err := m.install(a, raw); err != nil {
		return fmt.Errorf("%s: sign-in: %w", m.ID, err)
	}
	return nil
}

// install reads the session key in the answer to a sign-in.
func (m *Minion) install(a *handshake.Attempt, raw []byte) error {
	v, err := msgpack.Unmarshal(raw)
	if err != nil {
		return err
	}
	reply, ok := v.(*value.Dict)
	if !ok {
		return fmt.Errorf("the master answered %.80q", value.Str(v))
	}
	if reply.Dict("load") != nil { // no acceptance
		_, err := a.Finish(reply)
		return err
	}
	if v, err = msgpack.Unmarshal(reply.Bytes("load")); err != nil {
		return fmt.Errorf("the master answered %.200q", value.Repr(reply))
	}
	inner, ok := v.(*value.Dict)
	if !ok || !inner.Has("session") {
		return errors.New("the master did not accept: " + value.Repr(v))
	}
	session, err := m.key.private.Decrypt(crypt.OAEPSHA1, inner.Bytes("session"))
	if err != nil {
		return err
	}
	c, err := crypt.NewCrypticle(string(session))
	if err != nil {
		return err
	}
	m.session.Store(c)
	return m.fleet.learn(m.key, inner.Bytes("aes"), inner.Bytes("sig"))
}

// Request sends a command under the session key and returns the answer. It modifies load.
func (m *Minion) Request(ctx context.Context, load *value.Dict) (any, error) {
	session := m.session.Load()
	n, raw, err := m.exchange(ctx, session, load)
	if err != nil {
		return nil, err
	}
	sealed, ok := msgpack.Text(raw)
	if !ok {
		return nil, fmt.Errorf("%s: %s: the reply is not sealed", m.ID, load.Str("cmd"))
	}
	plain, err := session.OpenNonce(sealed, n)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: the master answered %.80q: %w", m.ID, load.Str("cmd"), sealed, err)
	}
	transport.Recycle(raw) // as package channel does
	return msgpack.Unmarshal(plain)
}

// exchange sends a command under a session key and returns its nonce and the
// raw answer.
func (m *Minion) exchange(ctx context.Context, session *crypt.Crypticle, load *value.Dict) (n string, raw []byte, err error) {
	if m.fleet.Before != nil {
		m.fleet.Before()
	}
	n = nonce()
	load.Set("nonce", n)
	load.Set("ts", time.Now().Unix())
	load.Set("tok", m.key.tok)
	load.Set("id", m.ID)
	plain, err := msgpack.Marshal(load, msgpack.Wire)
	if err != nil {
		return "", nil, err
	}
	body, err := msgpack.Marshal(value.DictOf("enc", "aes", "load", session.Seal(plain, ""), "version", protocolVersion,
		"id", m.ID, "enc_algo", crypt.OAEPSHA1, "sig_algo", crypt.PKCS1v15SHA1), msgpack.NewSpec)
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.fleet.cfg.Timeout)
	defer cancel()
	if raw, err = m.req.Request(ctx, body); err != nil {
		err = fmt.Errorf("%s: %s: %w", m.ID, load.Str("cmd"), err)
	}
	return n, raw, err
}

// Pillar requests the minion's pillar, which a master encrypts with a key made for the answer.
func (m *Minion) Pillar(ctx context.Context, grains map[string]any) (*value.Dict, error) {
	g := value.NewDict(len(grains))
	for k, v := range grains {
		g.Set(k, v)
	}
	load := value.DictOf("cmd", "_pillar", "grains", g, "saltenv", nil, "pillarenv", nil, "pillar_override", value.NewDict(0),
		"extra_minion_data", value.NewDict(0), "ver", "2")
	_, raw, err := m.exchange(ctx, m.session.Load(), load)
	if err != nil {
		return nil, err
	}
	v, err := msgpack.Unmarshal(raw)
	if err != nil {
		return nil, err
	}
	reply, ok := v.(*value.Dict)
	if !ok {
		return nil, fmt.Errorf("%s: _pillar: the master answered %.80q", m.ID, value.Str(v))
	}
	key, err := m.key.private.Decrypt(crypt.OAEPSHA1, reply.Bytes("key"))
	if err != nil {
		return nil, fmt.Errorf("%s: _pillar: %w", m.ID, err)
	}
	c, err := crypt.NewCrypticle(string(key))
	if err != nil {
		return nil, err
	}
	plain, err := c.Open(reply.Bytes("pillar"))
	if err != nil {
		return nil, fmt.Errorf("%s: _pillar: %w", m.ID, err)
	}
	if v, err = msgpack.Unmarshal(plain); err != nil {
		return nil, err
	}
	signed, _ := v.(*value.Dict)
	if v, err = msgpack.Unmarshal(signed.Bytes("data")); err != nil {
		return nil, fmt.Errorf("%s: _pillar: %w", m.ID, err)
	}
	inner, _ := v.(*value.Dict)
	return inner.Dict("pillar"), nil
}

// File fetches a file of the environment base chunk by chunk, as a minion does when it writes it to
// a file.
func (m *Minion) File(ctx context.Context, path string, to io.Writer) error {
	for loc := 0; ; {
		v, err := m.Request(ctx, value.DictOf("cmd", "_serve_file", "path", path, "saltenv", "base", "loc", loc))
		if err != nil {
			return err
		}
		d, ok := v.(*value.Dict)
		if !ok {
			return fmt.Errorf("%s: _serve_file: the master answered %.80q", m.ID, value.Str(v))
		}
		data := d.Bytes("data")
		if len(data) == 0 {
			return nil
		}
		if _, err := to.Write(data); err != nil {
			return err
		}
		loc += len(data)
	}
}

// FileOf fetches a file as a Brine minion does from a Brine master: by
// its hash (SHA-256, in hexadecimal), in parts that minions share.
func (m *Minion) FileOf(ctx context.Context, path, sum string, to io.Writer) error {
	for loc := 0; ; {
		session := m.session.Load()
		n, raw, err := m.exchange(ctx, session, value.DictOf("cmd", "_brine_part", "path", path, "saltenv", "base", "hsum", sum, "loc", loc))
		if err != nil {
			return err
		}
		part, size, err := sharedPart(session, n, raw)
		if err != nil {
			return fmt.Errorf("%s: _brine_part: %w", m.ID, err)
		}
		if _, err := to.Write(part); err != nil {
			return err
		}
		transport.Recycle(raw) // as fileclient does
		if loc += len(part); int64(loc) >= size {
			return nil
		}
	}
}

// List fetches the names of all files of the environment base.
func (m *Minion) List(ctx context.Context) ([]string, error) {
	v, err := m.Request(ctx, value.DictOf("cmd", "_file_list", "saltenv", "base", "prefix", ""))
	if err != nil {
		return nil, err
	}
	l, ok := v.(*value.List)
	if !ok {
		return nil, fmt.Errorf("%s: _file_list: the master answered %.80q", m.ID, value.Str(v))
	}
	return value.Texts(l), nil
}

// Tree fetches the list of the environment base with its hashes, as a
// Brine minion does.
func (m *Minion) Tree(ctx context.Context) error {
	session := m.session.Load()
	n, raw, err := m.exchange(ctx, session, value.DictOf("cmd", "_brine_tree", "saltenv", "base", "known", &value.List{}))
	if err != nil {
		return err
	}
	part, _, err := sharedPart(session, n, raw)
	if err == nil && len(part) == 0 {
		err = errors.New("an empty list")
	}
	if err != nil {
		return fmt.Errorf("%s: _brine_tree: %w", m.ID, err)
	}
	return nil
}

// sharedPart reads the answer to _brine_part.
func sharedPart(session *crypt.Crypticle, nonce string, raw []byte) (part []byte, size int64, err error) {
	load, _, err := msgpack.Field(raw, "load")
	if err != nil {
		return nil, 0, err
	}
	shared, _, err := msgpack.Field(raw, "shared")
	if err != nil {
		return nil, 0, err
	}
	sealed, _ := msgpack.Text(load)
	plain, err := session.OpenNonce(sealed, nonce)
	if err != nil {
		return nil, 0, err
	}
	v, err := msgpack.Unmarshal(plain)
	if err != nil {
		return nil, 0, err
	}
	d, _ := v.(*value.Dict)
	body, _ := msgpack.Text(shared)
	if part, err = crypt.OpenShared(d.Bytes("ticket"), body); err == nil && len(part) == 0 {
		err = fmt.Errorf("the master answered %s", value.Repr(v))
	}
	return part, d.Int("size"), err
}

// Return sends the return of test.ping for a job.
func (m *Minion) Return(ctx context.Context, jid string) error {
	return m.ReturnValue(ctx, jid, "test.ping", true)
}

// ReturnValue sends the return of a function for a job.
func (m *Minion) ReturnValue(ctx context.Context, jid, fun string, v any) error {
	_, err := m.Request(ctx, value.DictOf("cmd", "_return", "id", m.ID, "success", true, "return", v, "retcode", 0,
		"jid", jid, "fun", fun, "fun_args", &value.List{}, "user", "root"))
	return err
}

// Event fires an event on the master's bus.
func (m *Minion) Event(ctx context.Context, tag string, data *value.Dict) error {
	_, err := m.Request(ctx, value.DictOf("id", m.ID, "cmd", "_minion_event", "pretag", nil, "tag", tag, "data", data))
	return err
}

// Garbage sends an invalid request of some kind.
func (m *Minion) Garbage(ctx context.Context, sort int) {
	ctx, cancel := context.WithTimeout(ctx, m.fleet.cfg.Timeout)
	defer cancel()
	forged, _ := msgpack.Marshal(value.DictOf("enc", "aes", "load", make([]byte, 1000), "version", protocolVersion, "id", m.ID), msgpack.NewSpec)
	bodies := [][]byte{{0xc1}, {0xa3, 'a', 'b', 'c'}, forged}
	m.req.Request(ctx, bodies[sort%len(bodies)])
}

// Pause sleeps for a minion's delay before it retries a sign-in.
func (m *Minion) Pause() { time.Sleep(time.Duration(500+rand.IntN(1000)) * time.Millisecond) }

// Subscribe connects to the publish port, and registers if the transport supports that, for which
// the minion must be signed in. handle may be nil.
func (m *Minion) Subscribe(ctx context.Context, handle func(*Minion, *Publication)) error {
	s, err := m.connect(ctx)
	if err != nil {
		return err
	}
	m.fleet.wg.Go(func() {
		m.listen(s, handle)
		for m.fleet.Resubscribe && m.dropped(ctx, s) {
			m.fleet.Dropped.Add(1)
			for s, err = m.connect(ctx); err != nil && ctx.Err() == nil; s, err = m.connect(ctx) {
				m.Pause()
			}
			if err == nil {
				m.listen(s, handle)
			}
		}
	})
	return nil
}

// dropped reports whether a subscription ended although neither the minion nor the load ended it.
func (m *Minion) dropped(ctx context.Context, s transport.Subscription) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sub == s && ctx.Err() == nil && m.fleet.ctx.Err() == nil
}

// Stall subscribes and never reads.
func (m *Minion) Stall(ctx context.Context) error {
	_, err := m.connect(ctx)
	return err
}

func (m *Minion) connect(ctx context.Context) (transport.Subscription, error) {
	s, err := m.fleet.cfg.Transport.Subscribe(ctx, m.fleet.cfg.Publish, transport.DialOptions{LocalAddr: m.local, Identity: m.ID})
	if err != nil {
		return nil, err
	}
	if sender, ok := s.(transport.Sender); ok {
		if err := m.register(sender); err != nil {
			s.Close()
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sub = s
	return s, nil
}

func (m *Minion) register(s transport.Sender) error {
	key := m.fleet.aes.Load()
	if key == nil {
		return errors.New("no minion has signed in yet")
	}
	plain, err := msgpack.Marshal(value.DictOf("id", m.ID, "tok", m.key.tok), msgpack.Wire)
	if err != nil {
		return err
	}
	body, err := msgpack.Marshal(value.DictOf("enc", "aes", "load", key.cipher.Seal(plain, ""), "version", protocolVersion), msgpack.NewSpec)
	if err != nil {
		return err
	}
	return s.Send(body)
}

func (m *Minion) listen(s transport.Subscription, handle func(*Minion, *Publication)) {
	for {
		payload, err := s.Receive()
		if err != nil {
			return
		}
		if handle == nil {
			continue
		}
		p, err := m.fleet.openPublication(payload)
		if err == nil {
			handle(m, p)
		}
	}
}

// Unsubscribe ends the subscription.
func (m *Minion) Unsubscribe() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sub != nil {
		m.sub.Close()
		m.sub = nil
	}
}

// Answer is a handler for Subscribe: it answers test.ping, and the query whether a job is still
// running, like a minion. failed gets the error of a return that the master did not accept.
func Answer(ctx context.Context, failed func(error)) func(*Minion, *Publication) {
	return func(m *Minion, p *Publication) {
		if !p.For(m.ID) {
			return
		}
		var err error
		switch p.Fun {
		case "test.ping":
			err = m.Return(ctx, p.JID)
		case "saltutil.find_job":
			err = m.ReturnValue(ctx, p.JID, p.Fun, value.NewDict(0))
		}
		if err != nil && salt.KindOf(ctx.Err()) != salt.Timeout && ctx.Err() == nil {
			failed(err)
		}
	}
}
