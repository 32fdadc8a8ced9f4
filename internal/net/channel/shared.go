package channel

import (
	"context"
	"errors"
	"fmt"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/net/transport"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// A shareable answer, such as a part of a file, is
//
//	{"load": sealed, "shared": bytes}
//
// where sealed is as in any other answer, a map whose entry "ticket" decrypts
// shared (crypt.Shared). Only a client that uses RequestShared gets one; it
// sends that only to Brine masters.

// fieldTicket is the entry of the map that decrypts the shared part.
const fieldTicket = "ticket"

// ReplyShared answers with a map and a shared part. sent, if not nil, is called
// once, when the answer has left memory; it must not block.
func (c *Call) ReplyShared(v *value.Dict, s *crypt.Shared, sent func()) {
	done := func(bool) {
		if sent != nil {
			sent()
		}
	}
	if c.cipher == nil || c.req.Answer == nil {
		defer done(true)
		c.Reply(v)
		return
	}
	v = v.Clone()
	v.Set(fieldTicket, s.Ticket())
	sealed, err := c.cipher.AppendSealed(nil, c.nonce, func(b []byte) ([]byte, error) { return msgpack.Append(b, v, msgpack.Wire) })
	if err != nil {
		defer done(true)
		c.Reply("")
		return
	}
	d := dialect(c.req)
	head := msgpack.AppendMapHeader(make([]byte, 0, len(sealed)+32), 2)
	head = msgpack.AppendString(head, "load", d)
	head = msgpack.AppendBin(head, sealed, d)
	head = msgpack.AppendString(head, "shared", d)
	head = msgpack.AppendBinHeader(head, len(s.Sealed()), d)
	c.answered()
	c.req.Answer(transport.Answer{Head: head, Body: s.Sealed(), Sent: done})
}

// RequestShared is Request for a command whose answer may have a shared part,
// otherwise nil. For a stock master it fails with an error of kind NotFound and
// sends nothing. free recycles the memory of shared when it is no longer used;
// the call is optional.
func (c *Client) RequestShared(ctx context.Context, load *value.Dict) (v any, shared []byte, free func(), err error) {
	free = func() {}
	v, err = c.withRenewal(ctx, func(ctx context.Context, cr *credentials) (any, error) {
		if !cr.shares {
			return nil, salt.Errorf(salt.NotFound, "the master does not know %s", load.Str("cmd"))
		}
		nonce, raw, err := c.exchange(ctx, cr, load)
		if err != nil {
			return nil, err
		}
		var v any
		free = func() { transport.Recycle(raw) }
		v, shared, err = cr.openShared(raw, nonce)
		return v, err
	})
	return v, shared, free, err
}

func (cr *credentials) openShared(raw []byte, nonce string) (v any, shared []byte, err error) {
	if _, ok := msgpack.Text(raw); ok {
		v, err = cr.open(raw, nonce)
		return v, nil, err
	}
	load, hasLoad, err := msgpack.Field(raw, "load")
	body, hasBody, err2 := msgpack.Field(raw, "shared")
	if err = errors.Join(err, err2); err != nil || !hasLoad || !hasBody {
		return nil, nil, fmt.Errorf("the master's reply is not sealed: %w", errRenew)
	}
	if v, err = cr.open(load, nonce); err != nil {
		return nil, nil, err
	}
	d, _ := v.(*value.Dict)
	sealed, _ := msgpack.Text(body)
	if shared, err = crypt.OpenShared(d.Bytes(fieldTicket), sealed); err != nil {
		return nil, nil, fmt.Errorf("what came with the master's reply cannot be opened: %w", err)
	}
	return v, shared, nil
}
