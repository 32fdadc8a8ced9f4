package channel

import (
	"errors"
	"fmt"
	"net"

	"brine/internal/crypt"
	"brine/internal/msgpack"
	"brine/internal/transport"
	"brine/internal/value"
)

// Call is one request on its way through the master. Exactly one of Reply and
// ReplyPrivate must be called, once, from any goroutine.
type Call struct {
	// Cmd is the command's name.
	Cmd string
	// Load is the request's map without tok and nonce.
	Load *value.Dict
	// ID is the minion that sent it, proved; "" for a clear request.
	ID string
	// Version is the protocol version of the envelope.
	Version int

	req    *transport.Request
	cipher *crypt.Crypticle
	nonce  string
	minion *minionState
	auth   *Authenticator
}

// Peer is the address that the request came from; it may be nil.
func (c *Call) Peer() net.Addr { return c.req.Peer }

// Reply answers with v: sealed for a minion, in clear otherwise. A value that
// cannot be encoded is answered as Salt answers a failed command, with "".
func (c *Call) Reply(v any) {
	if c.cipher == nil {
		replyValue(c.req, v)
		return
	}
	b, err := msgpack.Marshal(v, msgpack.Wire)
	if err != nil {
		b = msgpack.AppendString(nil, "", msgpack.Wire)
	}
	c.send(c.cipher.Seal(b, c.nonce))
}

func (c *Call) send(sealed []byte) {
	c.req.Reply(msgpack.AppendBin(make([]byte, 0, len(sealed)+5), sealed, dialect(c.req)))
}

// ReplyPrivate answers as pillar is answered: under a key made for this one
// reply, which is encrypted to the minion's public key, and signed by the
// master. On an error nothing was sent yet and Reply is still to be called.
func (c *Call) ReplyPrivate(v any) error {
	if c.minion == nil {
		return errors.New("a clear request has no private reply")
	}
	encAlgo, sigAlgo := c.algorithms()
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
	replyValue(c.req, value.DictOf("key", key, "pillar", cipher.Seal(plain, "")))
	return nil
}

// algorithms are those that the minion asked for.
func (c *Call) algorithms() (enc, sig string) {
	enc, sig = crypt.OAEPSHA1, crypt.PKCS1v15SHA1
	if t, ok := textField(c.req.Body, "enc_algo"); ok {
		enc = t
	}
	if t, ok := textField(c.req.Body, "sig_algo"); ok {
		sig = t
	}
	return enc, sig
}
