package badinput

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"brine/internal/base/field"
	"brine/internal/base/salt"
	"brine/internal/net/channel"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/net/transport/zeromq"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

var quiet = slog.New(slog.DiscardHandler)

// bare is a minion without a daemon. It can modify every byte that it sends.
type bare struct {
	t      *testing.T
	id     string
	signer *handshake.Minion
	r      transport.Requester
	creds  *handshake.Credentials
}

func newBare(t *testing.T, m *node, id string, key *crypt.PrivateKey) *bare {
	t.Helper()
	var o handshake.MinionOptions
	must(t, field.Defaults(&o))
	b := &bare{t: t, id: id, r: zeromq.New(quiet).NewRequester(m.Requests(), transport.DialOptions{}),
		signer: &handshake.Minion{ID: id, Key: key, Options: o, Token: "t",
			Trust: channel.NewFileTrust(filepath.Join(t.TempDir(), "minion_master.pub"))}}
	t.Cleanup(func() { b.r.Close() })
	return b
}

// send sends one envelope and returns the answer.
func (b *bare) send(envelope any) (any, error) {
	b.t.Helper()
	body, err := msgpack.Marshal(envelope, msgpack.NewSpec)
	must(b.t, err)
	return b.raw(body)
}

func (b *bare) raw(body []byte) (any, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), waitLimit)
	defer cancel()
	raw, err := b.r.Request(ctx, body)
	if err != nil {
		return nil, err
	}
	return msgpack.Unmarshal(raw)
}

// clear returns an unauthenticated envelope.
func clear(load any) *value.Dict {
	return value.DictOf("enc", "clear", "load", load, "version", 3)
}

// signIn makes one attempt. change, if not nil, modifies the request.
func (b *bare) signIn(change func(load *value.Dict)) error {
	b.t.Helper()
	a, err := b.signer.Begin(fmt.Sprintf("%032x", time.Now().UnixNano()), nil, false)
	must(b.t, err)
	if change != nil {
		change(a.Load)
	}
	reply, err := b.send(clear(a.Load))
	if err != nil {
		return err
	}
	b.creds, err = a.Finish(reply)
	return err
}

// sealed returns the envelope of a request under the session key; change, if not nil, modifies its
// load.
func (b *bare) sealed(load *value.Dict, change func(load *value.Dict)) *value.Dict {
	b.t.Helper()
	tok, err := b.signer.Key.SignX931([]byte("salt"))
	must(b.t, err)
	full := load.Clone()
	full.Update(value.DictOf("nonce", fmt.Sprintf("%032x", time.Now().UnixNano()), "ts", time.Now().Unix(), "tok", tok, "id", b.id))
	if change != nil {
		change(full)
	}
	plain, err := msgpack.Marshal(full, msgpack.Wire)
	must(b.t, err)
	c, err := crypt.NewCrypticle(b.creds.Session)
	must(b.t, err)
	return value.DictOf("enc", "aes", "load", c.Seal(plain, ""), "version", 3, "id", b.id)
}

// open returns the content of a sealed answer; a plain string is returned unchanged.
func (b *bare) open(answer any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	var sealed []byte
	switch x := answer.(type) {
	case []byte:
		sealed = x
	case string:
		sealed = []byte(x)
	default:
		return answer, nil
	}
	c, err := crypt.NewCrypticle(b.creds.Session)
	must(b.t, err)
	plain, err := c.Open(sealed)
	if err != nil {
		return answer, nil
	}
	// The nonce of the request precedes the answer.
	return msgpack.Unmarshal(plain[min(32, len(plain)):])
}

// event returns a request with a visible effect: an event.
func (b *bare) event(tag string) *value.Dict {
	return value.DictOf("cmd", "_minion_event", "id", b.id, "tag", tag, "data", value.NewDict(0))
}

// returns returns the return of a job.
func (b *bare) returns(jid string, v any) *value.Dict {
	return value.DictOf("cmd", "_return", "id", b.id, "jid", jid, "fun", "test.ping", "fun_args", &value.List{},
		"return", v, "success", true, "retcode", 0)
}

func newJID() string { return salt.NewJID(time.Now()) }
