package channel

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/net/crypt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// exchange is a recorded request and the stock master's answer.
type exchange struct {
	Case      string
	Request   []byte `json:"request_b64"`
	Load      []byte `json:"request_load_msgpack_b64"`
	Reply     []byte `json:"reply_b64"`
	Kind      string `json:"reply_kind"`
	ReplyLoad []byte `json:"reply_msgpack_b64"`
	newSpec   bool
}

const (
	kindSealed  = "crypticle(session) with nonce prefix"
	kindPrivate = "private: key+pillar"
	kindClear   = "clear"
)

// exchanges returns all recorded requests of the minion.
func exchanges(t *testing.T) []exchange {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(vectors, "requests", "*.json"))
	if err != nil || len(files) < 40 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	var all []exchange
	for _, f := range files {
		var x exchange
		readJSON(t, filepath.Join("requests", filepath.Base(f)), &x)
		all = append(all, x)
	}
	var real struct{ Requests []exchange }
	readJSON(t, "real_minion_requests.json", &real)
	for _, x := range real.Requests {
		x.Case = "real minion " + x.Case
		all = append(all, x)
	}
	return append(all, tcpExchanges(t)...)
}

// tcpExchanges unpacks the recorded frames of the tcp transport.
func tcpExchanges(t *testing.T) []exchange {
	t.Helper()
	var tcp struct {
		Exchanges []struct {
			exchange
			RequestWire []byte `json:"request_wire_b64"`
			ReplyWire   []byte `json:"reply_wire_b64"`
		}
	}
	readJSON(t, "tcp_requests.json", &tcp)
	var all []exchange
	for _, x := range tcp.Exchanges {
		if x.Kind == "" {
			continue // a sign-in
		}
		body := func(frame []byte) []byte {
			raw, ok, err := msgpack.Field(frame, "body")
			if err != nil || !ok {
				t.Fatalf("%s: no body in the frame", x.Case)
			}
			return raw
		}
		x.Case, x.newSpec = "tcp "+x.Case, true
		x.Request, x.Reply = body(x.RequestWire), body(x.ReplyWire)
		all = append(all, x.exchange)
	}
	return all
}

// plain decrypts a request or reply of the recorded minion.
func plain(t *testing.T, sealed []byte, nonce string) []byte {
	t.Helper()
	b, err := vecCredentials(t, "").session.OpenNonce(sealed, nonce)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// requestLoad returns the decrypted load of a recorded request.
func (x exchange) requestLoad(t *testing.T) *value.Dict {
	t.Helper()
	b := plain(t, decode(t, x.Request).(*value.Dict).Bytes("load"), "")
	if x.Load != nil && !bytes.Equal(b, x.Load) {
		t.Fatal("the load is not the recorded one")
	}
	return decode(t, b).(*value.Dict)
}

// TestRecordedRequests passes recorded requests of a stock minion to our
// server, with a router that returns the stock master's answers.
func TestRecordedRequests(t *testing.T) {
	for _, x := range exchanges(t) {
		t.Run(x.Case, func(t *testing.T) {
			load := x.requestLoad(t)
			nonce := load.Str("nonce")
			var want any
			switch x.Kind {
			case kindSealed:
				want = decode(t, plain(t, mustText(t, x.Reply), nonce))
			case kindPrivate:
				want = openRecorded(t, x, nonce)
			}
			load.Delete("tok")
			load.Delete("nonce")
			routed := false
			s := newVecServer(t, func(c *Call) {
				routed = true
				if value.Repr(c.Load) != value.Repr(load) || c.ID != vecID || c.Cmd != load.Str("cmd") || c.Version != 3 {
					t.Errorf("routed: %s of %q: %s", c.Cmd, c.ID, value.Repr(c.Load))
				}
				if x.Kind == kindPrivate {
					if err := c.ReplyPrivate(want); err != nil {
						t.Error(err)
					}
					return
				}
				c.Reply(want)
			})
			got := s.ask(t, x.Request, x.newSpec)
			switch x.Kind {
			case kindClear:
				if !bytes.Equal(got, x.Reply) {
					t.Errorf("reply %q, want %q", got, x.Reply)
				}
				return
			case kindSealed:
				b := plain(t, mustText(t, got), nonce)
				if x.ReplyLoad != nil && !bytes.Equal(b, x.ReplyLoad) {
					t.Errorf("reply\n%q, want\n%q", b, x.ReplyLoad)
				}
				if len(got) != len(x.Reply) || got[0] != x.Reply[0] {
					t.Errorf("reply of %d bytes as %x, recorded were %d as %x", len(got), got[0], len(x.Reply), x.Reply[0])
				}
			case kindPrivate:
				x.Reply = got
				if again := openRecorded(t, x, nonce); value.Repr(again) != value.Repr(want) {
					t.Errorf("reply %s, want %s", value.Repr(again), value.Repr(want))
				}
			}
			if !routed {
				t.Error("not routed")
			}
		})
	}
}

func mustText(t *testing.T, b []byte) []byte {
	t.Helper()
	text, ok := msgpack.Text(b)
	if !ok {
		t.Fatalf("not a text: %.60q", b)
	}
	return text
}

// openRecorded decrypts a private reply like our client.
func openRecorded(t *testing.T, x exchange, nonce string) any {
	t.Helper()
	c := vecClient(t, wire{}, "")
	v, err := c.openPrivate(c.current(), x.Reply, nonce)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestClientReadsRecordedReplies: the client decodes recorded replies of a
// stock master, and rejects a reply to another request.
func TestClientReadsRecordedReplies(t *testing.T) {
	cr := vecCredentials(t, "")
	for _, x := range exchanges(t) {
		nonce := x.requestLoad(t).Str("nonce")
		switch x.Kind {
		case kindSealed:
			v, err := cr.open(x.Reply, nonce)
			if err != nil || x.ReplyLoad != nil && !bytes.Equal(encode(t, v), x.ReplyLoad) {
				t.Errorf("%s: %s, %v", x.Case, value.Repr(v), err)
			}
			if v, err := cr.open(x.Reply, newNonce()); !errors.Is(err, crypt.ErrNonce) {
				t.Errorf("%s with another nonce: %v, %v", x.Case, v, err)
			}
		case kindPrivate:
			if got := value.Repr(openRecorded(t, x, nonce)); !strings.Contains(got, "'greeting': 'hello'") {
				t.Errorf("%s: pillar %s", x.Case, got)
			}
			c := vecClient(t, wire{}, "")
			if v, err := c.openPrivate(c.current(), x.Reply, newNonce()); err == nil {
				t.Errorf("%s with another nonce: %v", x.Case, value.Repr(v))
			}
		case kindClear:
			if v, err := cr.open(x.Reply, nonce); err == nil || errors.Is(err, errRenew) || !strings.Contains(err.Error(), badMinion) {
				t.Errorf("%s: %v, %v", x.Case, v, err)
			}
		}
	}
}

// TestClientPacksAsRecorded: our request has the keys of a recorded one, in the
// same order.
func TestClientPacksAsRecorded(t *testing.T) {
	var sent []byte
	c := vecClient(t, wire{req: direct(func(_ context.Context, body []byte) ([]byte, error) {
		sent = body
		return nil, errors.New("enough")
	})}, "")
	for _, x := range exchanges(t) {
		if strings.HasPrefix(x.Case, "real minion") {
			continue // with the id and an old tok at the front
		}
		want := x.requestLoad(t)
		load := want.Clone()
		for _, k := range []string{"nonce", "ts", "tok", "id"} {
			load.Delete(k)
		}
		before := value.Repr(load)
		if _, err := c.Request(t.Context(), load); err == nil {
			t.Fatal("no error")
		}
		if value.Repr(load) != before {
			t.Errorf("%s: the caller's load was changed", x.Case)
		}
		env, old := decode(t, sent).(*value.Dict), decode(t, x.Request).(*value.Dict)
		got := decode(t, plain(t, env.Bytes("load"), "")).(*value.Dict)
		for _, k := range []string{"nonce", "ts"} {
			if k == "nonce" && len(got.Str(k)) != 32 || k == "ts" && got.Int(k) < 1 {
				t.Errorf("%s: %s is %v", x.Case, k, got.At(k))
			}
			got.Set(k, want.At(k))
		}
		if value.Repr(got) != value.Repr(want) {
			t.Errorf("%s: load %v, want %v", x.Case, got.Keys(), want.Keys())
		}
		env.Set("load", old.At("load"))
		if value.Repr(env) != value.Repr(old) {
			t.Errorf("%s: envelope %v, want %v", x.Case, env.Keys(), old.Keys())
		}
	}
}

// TestRecordedErrors: invalid requests and clear commands get Salt's answers.
func TestRecordedErrors(t *testing.T) {
	var v struct {
		Cases []struct {
			exchange
			Name string
		}
	}
	readJSON(t, "errors_and_clear_commands.json", &v)
	if len(v.Cases) < 19 {
		t.Fatalf("%d cases", len(v.Cases))
	}
	for _, x := range v.Cases {
		t.Run(x.Name, func(t *testing.T) {
			s := newVecServer(t, func(c *Call) {
				switch {
				case c.ID == "" && strings.HasPrefix(x.Name, "clear_"), x.Name == "err_unknown_clear":
					c.Reply(decode(t, x.Reply)) // the answers of commands are not the channel's
				case x.Name == "ok_control":
					c.Reply(true)
				default:
					t.Errorf("routed: %s of %q", c.Cmd, c.ID)
					c.Reply(nil)
				}
			})
			got := s.ask(t, x.Request, false)
			if x.Name == "ok_control" {
				if _, err := vecCredentials(t, "").session.Open(mustText(t, got)); err != nil || len(got) != len(x.Reply) {
					t.Errorf("reply %q: %v", got, err)
				}
				return
			}
			if !bytes.Equal(got, x.Reply) {
				t.Errorf("reply %q, want %q", got, x.Reply)
			}
			if left, err := os.ReadDir(s.sessions.dir); err != nil || len(left) != 1 {
				t.Errorf("the directory of session keys contains %v, %v", left, err) // Salt creates one for an unknown minion
			}
		})
	}
}

// publication is a recorded publication.
type publication struct {
	AES     string `json:"master_aes"`
	Payload []byte `json:"payload_b64"`
	Load    []byte `json:"load_msgpack_b64"`
}

func publications(t *testing.T) []publication {
	t.Helper()
	var zmq, tcp struct{ Publications []publication }
	readJSON(t, "publish_zmq.json", &zmq)
	readJSON(t, "publish_tcp.json", &tcp)
	return append(zmq.Publications, tcp.Publications...)
}

// playback is a Subscription with recorded payloads.
type playback struct{ left [][]byte }

func (p *playback) Receive() ([]byte, error) {
	if len(p.left) == 0 {
		return nil, errors.New("that was all")
	}
	b := p.left[0]
	p.left = p.left[1:]
	return b, nil
}
func (*playback) Close() error { return nil }

// listen subscribes a client with the recorded keys to payloads.
func listen(t *testing.T, aes string, verify bool, payloads ...[]byte) *Subscription {
	t.Helper()
	away := direct(func(context.Context, []byte) ([]byte, error) { return nil, errors.New("no master") })
	c := vecClient(t, wire{req: away, sub: &playback{payloads}}, aes, func(c *ClientConfig) { c.VerifyPublications = verify })
	s, err := c.Subscribe(t.Context(), "master")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRecordedPublications(t *testing.T) {
	for _, p := range publications(t) {
		for _, verify := range []bool{false, true} {
			want := decode(t, p.Load).(*value.Dict)
			if !want.Has("serial") {
				t.Fatal("no serial was recorded")
			}
			want.Delete("serial")
			job, err := listen(t, p.AES, verify, p.Payload).Receive(t.Context())
			if err != nil || value.Repr(job) != value.Repr(want) {
				t.Errorf("verify %t: %s, %v; want %s", verify, value.Repr(job), err, value.Repr(want))
			}
			// The same once more is a replay.
			if job, err := listen(t, p.AES, verify, p.Payload, p.Payload).receive(2); err == nil {
				t.Errorf("replayed: %s", value.Repr(job))
			}
		}
	}
}

// receive returns the n-th publication.
func (s *Subscription) receive(n int) (job *value.Dict, err error) {
	for range n {
		if job, err = s.Receive(context.Background()); err != nil {
			return nil, err
		}
	}
	return job, nil
}

// TestPublicationSignature: with verification on, only publications signed by
// the master pass, even if the key for publications fits; and an unsigned one
// causes no sign-in.
func TestPublicationSignature(t *testing.T) {
	p := publications(t)[0]
	good := decode(t, p.Payload).(*value.Dict)
	spoil := func(f func(*value.Dict)) []byte {
		d := good.Clone()
		f(d)
		return encode(t, d)
	}
	forged, err := private(t, "minion_other").Sign(crypt.PKCS1v15SHA1, good.Bytes("load"))
	if err != nil {
		t.Fatal(err)
	}
	for name, payload := range map[string][]byte{
		"unsigned":          spoil(func(d *value.Dict) { d.Delete("sig") }),
		"another's":         spoil(func(d *value.Dict) { d.Set("sig", forged) }),
		"another algorithm": spoil(func(d *value.Dict) { d.Set("sig_algo", crypt.PKCS1v15SHA224) }),
		"no algorithm":      spoil(func(d *value.Dict) { d.Delete("sig_algo") }),
		"strange algorithm": spoil(func(d *value.Dict) { d.Set("sig_algo", "none") }),
	} {
		s := listen(t, p.AES, true)
		ctx, cancel := context.WithCancel(t.Context())
		if name == "unsigned" {
			defer cancel()
		} else {
			cancel() // otherwise it would try ten times to sign in
		}
		if job, err := s.open(ctx, payload); err == nil || name == "unsigned" && !errors.Is(err, errUnsigned) {
			t.Errorf("%s: %v, %v", name, job, err)
		}
		if job, err := listen(t, p.AES, false, payload).Receive(t.Context()); err != nil || job.Str("fun") != "test.ping" {
			t.Errorf("%s without verification: %v, %v", name, job, err)
		}
	}
	if job, err := listen(t, p.AES, true, p.Payload).Receive(t.Context()); err != nil || job == nil {
		t.Errorf("the good one: %v", err)
	}
}

// TestRecordedRegistration: the message with which a stock minion registers on
// the tcp transport.
func TestRecordedRegistration(t *testing.T) {
	var v struct {
		AES string `json:"master_aes"`
		IDs []struct {
			Wire []byte `json:"wire_b64"`
		} `json:"subscriber_id_message"`
	}
	readJSON(t, "publish_tcp.json", &v)
	c, err := crypt.NewCrypticle(v.AES)
	if err != nil {
		t.Fatal(err)
	}
	p := &PublishServer{}
	p.key.Store(&publishKey{v.AES, c})
	b := newBook()
	b.accept(vecID, private(t, "minion").Public())
	for _, m := range v.IDs {
		body, ok, err := msgpack.Field(m.Wire, "body")
		if err != nil || !ok {
			t.Fatal(err)
		}
		identify := Identifier(func() *PublishServer { return p }, b, quiet)
		if id, ok := identify(body); !ok || id != vecID {
			t.Errorf("identified %q, %t", id, ok)
		}
		b.accept(vecID, private(t, "minion_other").Public())
		if id, ok := identify(body); ok {
			t.Errorf("identified %q, whose key is another", id)
		}
		b.remove(vecID)
		if id, ok := identify(body); ok {
			t.Errorf("identified %q, who is not accepted", id)
		}
	}
	if _, ok := Identifier(func() *PublishServer { return nil }, b, quiet)(nil); ok {
		t.Error("identified before there is a publish server")
	}
}
