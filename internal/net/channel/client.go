package channel

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// ClientConfig is the configuration of a Client.
type ClientConfig struct {
	// Signer creates and verifies sign-ins; all connections of a minion share it.
	Signer *handshake.Minion
	// Transport carries the messages; Dial is for requests, SubscribeDial
	// for publications.
	Transport           transport.Transport
	Dial, SubscribeDial transport.DialOptions
	// AuthTimeout is the timeout of a sign-in, RequestTimeout that of any other
	// request. 0 means 5 s and 60 s.
	AuthTimeout, RequestTimeout time.Duration
	// AutosignGrains are sent at sign-in; nil for none.
	AutosignGrains func() *value.Dict
	// VerifyPublications requires a valid signature on each publication (the
	// minion's sign_pub_messages), also from masters that do not announce at the
	// sign-in that they sign.
	VerifyPublications bool
	Log                *slog.Logger
}

// Client is a minion's connection to one master: it signs in, stores the
// received keys, and renews them when the master has changed its own. It is
// safe for concurrent use. No error is final; every method may be called again.
type Client struct {
	cfg   ClientConfig
	tok   []byte
	again atomic.Bool // set after the first sign-in

	mu      sync.Mutex
	addr    string
	req     *connection
	retired map[*connection]bool // replaced connections with pending requests
	creds   *credentials
	renewal *renewal // the sign-in in progress, or nil
}

// connection is a requester with its number of pending requests. Client.mu
// guards the fields.
type connection struct {
	transport.Requester
	pending int
	expire  *time.Timer // closes it despite pending requests; nil until it is retired
}

// credentials are the keys of one sign-in. gen counts the sign-ins.
type credentials struct {
	gen          int
	aes          string
	publications *publicationKey
	session      *crypt.Crypticle
	publishPort  int
	brine        bool
	shares       bool
	signs        bool // publications without a valid signature are forged
	master       *crypt.PublicKey
	// previous is the key for publications before the last change. Publications in
	// transit that were encrypted with it can be read until previousEnd.
	previous    *publicationKey
	previousEnd time.Time
}

// previousTime is how long the previous key is valid. It is short because a master may change its
// key to exclude a minion that knows the old one.
const previousTime = 10 * time.Second

// publicationKey lives as long as the master's AES key, possibly across several sign-ins, because
// its serial numbers must continue.
type publicationKey struct {
	cipher *crypt.Crypticle
	mu     sync.Mutex
	serial int64
}

// renewal is one sign-in, shared by all waiting callers.
type renewal struct {
	done chan struct{} // closed after err and left are set
	err  error
	left bool // the caller that made it left early: err says nothing about the master
}

// NewClient returns a client that is not connected yet; see SetAddress.
func NewClient(cfg ClientConfig) (*Client, error) {
	if cfg.AuthTimeout <= 0 {
		cfg.AuthTimeout = 5 * time.Second
	}
	if cfg.RequestTimeout <= 0 {
		cfg.RequestTimeout = 60 * time.Second
	}
	o := cfg.Signer.Options
	if !crypt.ValidEncryption(o.EncryptionAlgorithm) {
		return nil, salt.Errorf(salt.Invalid, "option encryption_algorithm: %q is not OAEP-SHA1 or OAEP-SHA224", o.EncryptionAlgorithm)
	}
	if !crypt.ValidSigning(o.SigningAlgorithm) {
		return nil, salt.Errorf(salt.Invalid, "option signing_algorithm: %q is not PKCS1v15-SHA1 or PKCS1v15-SHA224", o.SigningAlgorithm)
	}
	tok, err := cfg.Signer.Key.SignX931([]byte("salt"))
	if err != nil {
		return nil, fmt.Errorf("cannot sign with the minion's key: %w", err)
	}
	return &Client{cfg: cfg, tok: tok, retired: map[*connection]bool{}}, nil
}

// SetAddress sets the master's request address (host:port). A new address drops
// the connection to the old one.
func (c *Client) SetAddress(addr string) {
	c.mu.Lock()
	if addr == c.addr && c.req != nil {
		c.mu.Unlock()
		return
	}
	old := c.connections()
	c.addr, c.req = addr, c.dial(addr)
	c.mu.Unlock()
	closeAll(old)
}

// Close closes the connection; pending requests fail. SetAddress opens a new one.
func (c *Client) Close() {
	c.mu.Lock()
	old := c.connections()
	c.req = nil
	c.mu.Unlock()
	closeAll(old)
}

// connections returns all connections, to close them. c.mu is held.
func (c *Client) connections() (all []*connection) {
	for r := range c.retired {
		r.expire.Stop()
		all = append(all, r)
	}
	clear(c.retired)
	if c.req != nil {
		all = append(all, c.req)
	}
	return all
}

func closeAll(all []*connection) {
	for _, r := range all {
		r.Close()
	}
}

// dial returns a connection that connects at first use.
func (c *Client) dial(addr string) *connection {
	return &connection{Requester: c.cfg.Transport.NewRequester(addr, c.cfg.Dial)}
}

// redial replaces the connection if it is still old. Pending requests stay on the old one, since a
// healthy master may still answer them.
func (c *Client) redial(old *connection) {
	c.mu.Lock()
	if c.req != old {
		c.mu.Unlock()
		return
	}
	c.req = c.dial(c.addr)
	busy := old.pending > 0
	if busy {
		c.retired[old] = true
		old.expire = time.AfterFunc(c.cfg.RequestTimeout, func() { c.retire(old) })
	}
	c.mu.Unlock()
	if !busy {
		old.Close()
	}
}

// retire closes a replaced connection after its last request or after a time.
func (c *Client) retire(r *connection) {
	c.mu.Lock()
	mine := c.retired[r]
	delete(c.retired, r)
	c.mu.Unlock()
	if mine {
		r.expire.Stop()
		r.Close()
	}
}

// send sends a message on the current connection, which it also returns.
func (c *Client) send(ctx context.Context, body []byte) (raw []byte, r *connection, err error) {
	c.mu.Lock()
	r = c.req
	if r == nil {
		c.mu.Unlock()
		return nil, nil, salt.Errorf(salt.Unavailable, "not connected to a master")
	}
	r.pending++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		r.pending--
		last := r.pending == 0 && c.retired[r]
		c.mu.Unlock()
		if last {
			c.retire(r)
		}
	}()
	raw, err = r.Request(ctx, body)
	return raw, r, err
}

func (c *Client) current() *credentials {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.creds
}

// PublishPort returns the port announced at the last sign-in, or 0.
func (c *Client) PublishPort() int {
	if cr := c.current(); cr != nil {
		return cr.publishPort
	}
	return 0
}

// Peer describes the master at the last sign-in, apart from its keys.
type Peer struct {
	// Brine means that it knows Brine's additional commands.
	Brine bool
}

// Peer returns what is known of the master; zero before the first sign-in.
func (c *Client) Peer() Peer {
	if cr := c.current(); cr != nil {
		return Peer{Brine: cr.brine}
	}
	return Peer{}
}

// KeyTag identifies the master's key for publications, "" before the first
// sign-in. See the function KeyTag.
func (c *Client) KeyTag() string {
	if cr := c.current(); cr != nil {
		return KeyTag(cr.aes)
	}
	return ""
}

// KeyTag identifies a key for publications without disclosing it, so that a
// minion can ask whether its key is current.
func KeyTag(aes string) string {
	sum := sha256.Sum256([]byte(aes))
	return hex.EncodeToString(sum[:8])
}

// PingRequest returns a request without effect, which stock and Brine masters answer to every peer.
func PingRequest() ([]byte, error) {
	return msgpack.Marshal(value.DictOf("enc", "clear", "load", value.DictOf("cmd", "ping"), "version", protocolVersion), msgpack.NewSpec)
}

// Ping sends a request as a sign of life. The answer is not authenticated; only
// its arrival counts. Stock and Brine masters know this request.
func (c *Client) Ping(ctx context.Context) error {
	body, err := PingRequest()
	if err != nil {
		return err
	}
	_, _, err = c.send(ctx, body)
	return err
}

// SignIn makes one attempt to sign in even if there are valid keys; if a sign-in is in progress it
// waits for that. The errors of package handshake give the reasons.
func (c *Client) SignIn(ctx context.Context) error {
	_, err := c.renew(ctx, c.Generation())
	return err
}

// renew ensures that the keys are from a later sign-in than generation gen. Concurrent callers
// share one sign-in. fresh means that this sign-in began after the call; otherwise its keys may be
// as outdated as those of gen.
func (c *Client) renew(ctx context.Context, gen int) (fresh bool, err error) {
	for {
		r, lead := c.joinRenewal(gen)
		if r == nil {
			return false, nil
		}
		if lead {
			c.lead(ctx, r)
			return true, r.err
		}
		select {
		case <-r.done:
			if r.err != nil && !r.left {
				return false, r.err
			}
		case <-ctx.Done():
			return false, salt.Errorf(salt.Timeout, "waiting for a sign-in: %w", ctx.Err())
		}
	}
}

// joinRenewal returns the sign-in to wait for, or the one to make (lead), or
// nil if there are newer keys than those of gen.
func (c *Client) joinRenewal(gen int) (r *renewal, lead bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.creds != nil && c.creds.gen != gen {
		return nil, false
	}
	if c.renewal != nil {
		return c.renewal, false
	}
	c.renewal = &renewal{done: make(chan struct{})}
	return c.renewal, true
}

// maxBusy bounds how often a master can postpone a sign-in.
const maxBusy = 10

// lead signs in and notifies the waiting callers. A busy master may say when to retry.
func (c *Client) lead(ctx context.Context, r *renewal) {
	got, err := c.attempt(ctx)
	for range maxBusy {
		var busy *handshake.Busy
		if !errors.As(err, &busy) || !wait.Sleep(ctx, busy.Wait) {
			break
		}
		got, err = c.attempt(ctx)
	}
	c.mu.Lock()
	if err == nil {
		err = c.install(got)
	}
	r.err, r.left = err, ctx.Err() != nil
	c.renewal = nil
	c.mu.Unlock()
	close(r.done)
}

func (c *Client) attempt(ctx context.Context) (*handshake.Credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.AuthTimeout)
	defer cancel()
	var autosign *value.Dict
	if c.cfg.AutosignGrains != nil {
		autosign = c.cfg.AutosignGrains()
	}
	a, err := c.cfg.Signer.Begin(newNonce(), autosign, c.again.Swap(true))
	if err != nil {
		return nil, err
	}
	body, err := msgpack.Marshal(value.DictOf("enc", "clear", "load", a.Load, "version", protocolVersion), msgpack.NewSpec)
	if err != nil {
		return nil, err
	}
	raw, conn, err := c.send(ctx, body)
	if err != nil {
		return nil, fmt.Errorf("sign-in: %w", err)
	}
	got, err := finish(a, raw)
	var busy *handshake.Busy
	if err != nil && !errors.As(err, &busy) {
		// Behind a load balancer the next connection may reach another master with
		// another answer.
		c.redial(conn)
	}
	if err == nil && got.Signed != "" {
		c.cfg.Log.Debug("Successfully verified signature of master public key with verification public key " + got.Signed)
	}
	return got, err
}

func finish(a *handshake.Attempt, raw []byte) (*handshake.Credentials, error) {
	reply, err := signInLimits.Unmarshal(raw)
	if err != nil {
		return nil, fmt.Errorf("sign-in: unreadable answer: %w", err)
	}
	return a.Finish(reply)
}

// install activates the keys of a sign-in; c.mu is held.
func (c *Client) install(got *handshake.Credentials) error {
	session, err := crypt.NewCrypticle(got.Session)
	if err != nil {
		return fmt.Errorf("the master sent an unusable session key: %w", err)
	}
	cr := &credentials{gen: 1, aes: got.AES, session: session, publishPort: got.PublishPort, brine: got.Brine, shares: got.Shares, signs: got.Signs,
		master: got.Master}
	old := c.creds
	if old != nil {
		cr.gen = old.gen + 1
	}
	if old != nil && old.aes == cr.aes {
		cr.publications, cr.previous, cr.previousEnd = old.publications, old.previous, old.previousEnd
		c.creds = cr
		return nil
	}
	pc, err := crypt.NewCrypticle(got.AES)
	if err != nil {
		return fmt.Errorf("the master sent an unusable AES key: %w", err)
	}
	cr.publications = &publicationKey{cipher: pc}
	if old != nil {
		cr.previous, cr.previousEnd = old.publications, time.Now().Add(previousTime)
	}
	c.creds = cr
	return nil
}

func newNonce() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // formatted as a UUID
	return hex.EncodeToString(b[:])
}

// errRenew means that the master did not know our keys.
var errRenew = errors.New("the master could not read the request: its log tells why; if its request_server_ttl is set, compare the clocks")

// Request sends a command to the master and returns its answer. load is not
// modified. If the master no longer knows our keys, the client signs in again
// and repeats the request once.
func (c *Client) Request(ctx context.Context, load *value.Dict) (any, error) {
	return c.withRenewal(ctx, func(ctx context.Context, cr *credentials) (any, error) {
		nonce, raw, err := c.exchange(ctx, cr, load)
		if err != nil {
			return nil, err
		}
		v, err := cr.open(raw, nonce)
		transport.Recycle(raw) // the decrypted data is in another buffer
		return v, err
	})
}

// RequestPrivate sends a command whose answer has a key of its own, such as
// _pillar.
func (c *Client) RequestPrivate(ctx context.Context, load *value.Dict) (any, error) {
	return c.withRenewal(ctx, func(ctx context.Context, cr *credentials) (any, error) {
		nonce, raw, err := c.exchange(ctx, cr, load)
		if err != nil {
			return nil, err
		}
		return c.openPrivate(cr, raw, nonce)
	})
}

// renewals bounds the sign-ins that one request can cause.
const renewals = 3

func (c *Client) withRenewal(ctx context.Context, do func(context.Context, *credentials) (any, error)) (any, error) {
	cr := c.current()
	if cr == nil {
		if _, err := c.renew(ctx, 0); err != nil {
			return nil, err
		}
		cr = c.current()
	}
	for try, fresh := 0, false; ; try++ {
		v, err := do(ctx, cr)
		if !errors.Is(err, errRenew) || fresh || try == renewals {
			return v, err
		}
		if fresh, err = c.renew(ctx, cr.gen); err != nil {
			return nil, err
		}
		cr = c.current()
	}
}

// exchange encrypts the load with the session key, sends it and returns the raw
// reply.
func (c *Client) exchange(ctx context.Context, cr *credentials, load *value.Dict) (nonce string, raw []byte, err error) {
	nonce = newNonce()
	full := load.Clone()
	full.Set("nonce", nonce)
	full.Set("ts", time.Now().Unix())
	full.Set("tok", c.tok)
	full.Set("id", c.cfg.Signer.ID)
	plain, err := msgpack.Marshal(full, msgpack.Wire)
	if err != nil {
		return "", nil, fmt.Errorf("cannot encode the request: %w", err)
	}
	body, err := msgpack.Marshal(value.DictOf("enc", "aes", "load", cr.session.Seal(plain, ""), "version", protocolVersion,
		"id", c.cfg.Signer.ID, "enc_algo", c.cfg.Signer.Options.EncryptionAlgorithm,
		"sig_algo", c.cfg.Signer.Options.SigningAlgorithm), msgpack.NewSpec)
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	raw, _, err = c.send(ctx, body)
	return nonce, raw, err
}

// open decodes an ordinary reply: either encrypted with the session key, or one of a master's plain
// error strings. The latter are not authenticated: they lead to an error or a new sign-in, never to
// a result.
func (cr *credentials) open(raw []byte, nonce string) (any, error) {
	sealed, ok := msgpack.Text(raw)
	if !ok {
		return nil, fmt.Errorf("the master's reply is not sealed: %w", errRenew)
	}
	plain, err := cr.session.OpenNonce(sealed, nonce)
	switch {
	case err == nil:
		return minionLimits.Unmarshal(plain)
	case string(sealed) == badLoad:
		return nil, errRenew
	case len(sealed) < crypt.Overhead || isPlainText(sealed):
		return nil, salt.Errorf(salt.Internal, "the master answered %.80q: its log tells why", sealed)
	}
	return nil, fmt.Errorf("the master's reply cannot be opened: %w", err)
}

// isPlainText recognizes the longer plain error strings.
func isPlainText(b []byte) bool {
	return string(b) == serverError || bytes.HasPrefix(b, []byte(badLoad+": "))
}

// openPrivate decrypts the reply to RequestPrivate.
func (c *Client) openPrivate(cr *credentials, raw []byte, nonce string) (any, error) {
	if _, ok := msgpack.Text(raw); ok {
		return cr.open(raw, nonce) // an error, or the master chose an ordinary reply
	}
	outer, err := dictOf(raw, minionLimits)
	if err != nil || !outer.Has("key") {
		return nil, errRenew
	}
	key := outer.Bytes("key")
	once, err := c.cfg.Signer.Key.Decrypt(c.cfg.Signer.Options.EncryptionAlgorithm, key)
	if err != nil {
		return nil, fmt.Errorf("cannot decrypt the key of a private reply: %w", err)
	}
	cipher, err := crypt.NewCrypticle(string(once))
	if err != nil {
		return nil, err
	}
	plain, err := cipher.Open(outer.Bytes("pillar"))
	if err != nil {
		return nil, fmt.Errorf("cannot open a private reply: %w", err)
	}
	d, err := dictOf(plain, minionLimits)
	if err != nil {
		return nil, err
	}
	data := d.Bytes("data")
	if err := cr.master.Verify(c.cfg.Signer.Options.SigningAlgorithm, data, d.Bytes("sig")); err != nil {
		// A master that restarted with another key pair still knows the session; a sign-in verifies
		// the new key.
		return nil, fmt.Errorf("a private reply is not signed by the master (%w): %w", err, errRenew)
	}
	inner, err := dictOf(data, minionLimits)
	if err != nil {
		return nil, err
	}
	if string(inner.Bytes("key")) != string(key) || inner.Str("nonce") != nonce {
		return nil, errors.New("a private reply does not belong to its request")
	}
	return inner.At("pillar"), nil
}
