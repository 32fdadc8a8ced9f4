package channel

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"brine/internal/base/metrics"
	"brine/internal/net/crypt"
	"brine/internal/net/transport"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Call is a request in progress. Exactly one of Reply and ReplyPrivate must be
// called, once, from any goroutine.
type Call struct {
	// Cmd is the command's name.
	Cmd string
	// Load is the request's map without tok and nonce.
	Load *value.Dict
	// ID is the authenticated minion; "" for a clear request.
	ID string
	// Version is the protocol version of the envelope.
	Version int
	// Sender is the authenticated sender of a clear request, set by a Router for
	// the handlers that it passes the request to.
	Sender any

	req    *transport.Request
	cipher *crypt.Crypticle
	nonce  string
	minion *minionState
	auth   *Authenticator
	times  *metrics.Times // counts how long the answer takes, or nil
	began  time.Time
}

// Observe counts in times how long it takes from now until the call is answered.
func (c *Call) Observe(times *metrics.Times) { c.times, c.began = times, time.Now() }

// answered is called with the first byte of the answer.
func (c *Call) answered() {
	if c.times != nil {
		c.times.Since(c.began)
		c.times = nil
	}
}

// NewCall returns a call whose answer is sent in clear. The sender counts as the authenticated
// minion id, or as the command line if id is "". It is for tests of handlers.
func NewCall(cmd, id string, load *value.Dict, req *transport.Request) *Call {
	return &Call{Cmd: cmd, ID: id, Load: load, req: req}
}

// Size is the encoded size of the request in bytes.
func (c *Call) Size() int { return len(c.req.Body) }

// Peer is the address that the request came from; it may be nil.
func (c *Call) Peer() net.Addr { return c.req.Peer }

// Reply answers with v: encrypted for a minion, in clear otherwise. A value
// that cannot be encoded is answered with "", Salt's answer for a failed
// command.
func (c *Call) Reply(v any) {
	if c.cipher == nil {
		c.answered()
		replyValue(c.req, v)
		return
	}
	c.reply(v, nil)
}

// ReplyThen is Reply with a callback: sent is called once when the answer no longer uses memory,
// which may be much later. It must not block.
func (c *Call) ReplyThen(v any, sent func()) {
	if c.cipher == nil || c.req.Answer == nil {
		defer sent()
		c.Reply(v)
		return
	}
	c.reply(v, sent)
}

func (c *Call) reply(v any, sent func()) {
	c.answered()
	s := seals.Get().(*seal)
	var err error
	s.b, err = c.cipher.AppendSealed(s.b[:0], c.nonce, func(b []byte) ([]byte, error) { return msgpack.Append(b, v, msgpack.Wire) })
	if err != nil {
		s.b = c.cipher.Seal(msgpack.AppendString(nil, "", msgpack.Wire), c.nonce)
	}
	d := dialect(c.req)
	if sent == nil || c.req.Answer == nil {
		c.req.Reply(msgpack.AppendBin(make([]byte, 0, len(s.b)+5), s.b, d))
		s.free()
		return
	}
	c.req.Answer(transport.Answer{Head: msgpack.AppendBinHeader(nil, len(s.b), d), Body: s.b, Sent: func(free bool) {
		if free {
			s.free()
		}
		sent()
	}})
}

// seal is the buffer of an answer while it is encoded, and of a large one until
// it is sent.
type seal struct{ b []byte }

var seals = sync.Pool{New: func() any { return new(seal) }}

// maxSeal is the largest buffer that is reused. It is large enough for a part of a file.
const maxSeal = 4 << 20

func (s *seal) free() {
	if cap(s.b) <= maxSeal {
		seals.Put(s)
	}
}

// ReplyPrivate answers like _pillar: the answer is signed by the master and encrypted with a key
// created for this reply, which is encrypted with the minion's public key. After an error nothing
// was sent, and Reply must still be called.
func (c *Call) ReplyPrivate(v any) error {
	if c.minion == nil {
		return errors.New("a clear request has no private reply")
	}
	encAlgo, sigAlgo := algorithms(c.req.Body)
	once := crypt.NewKey()
	cipher, err := crypt.NewCrypticle(once)
	if err != nil {
		return err
	}
	key, err := c.minion.pub.Encrypt(encAlgo, []byte(once))
	if err != nil {
		return fmt.Errorf("cannot encrypt to %s: %w", c.ID, err)
	}
	signed, err := msgpack.Marshal(value.DictOf("key", key, "pillar", v, "nonce", c.nonce), msgpack.Wire)
	if err != nil {
		return err
	}
	sig, err := c.auth.Identity().Key().Sign(sigAlgo, signed)
	if err != nil {
		return err
	}
	plain, err := msgpack.Marshal(value.DictOf("data", signed, "sig", sig), msgpack.Wire)
	if err != nil {
		return err
	}
	c.answered()
	replyValue(c.req, value.DictOf("key", key, "pillar", cipher.Seal(plain, "")))
	return nil
}

// algorithms returns the algorithms that an envelope requests.
func algorithms(envelope []byte) (enc, sig string) {
	enc, sig = crypt.OAEPSHA1, crypt.PKCS1v15SHA1
	if t, ok := textField(envelope, "enc_algo"); ok {
		enc = t
	}
	if t, ok := textField(envelope, "sig_algo"); ok {
		sig = t
	}
	return enc, sig
}
