package channel

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"brine/internal/net/crypt"
	"brine/internal/net/transport"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// FuzzHandle: every input gets one answer, and only peers with the session key
// are served.
func FuzzHandle(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, name := range []string{"requests/pillar.json", "requests/no_cmd.json", "auth/auth_accepted_with_token.json", "auth/auth_pending.json"} {
		var x exchange
		readJSON(f, name, &x)
		f.Add(x.Request)
	}
	var v struct{ Cases []exchange }
	readJSON(f, "errors_and_clear_commands.json", &v)
	for _, x := range v.Cases {
		f.Add(x.Request)
	}
	s := newVecServer(f, func(c *Call) {
		if c.ID != "" && c.ID != vecID {
			f.Errorf("served as %q", c.ID)
		}
		c.Reply(c.Load)
	})
	s.book.auto = true
	f.Fuzz(func(t *testing.T, body []byte) {
		n := 0
		s.Handle(&transport.Request{Body: bytes.Clone(body), Reply: func(b []byte) {
			n++
			decode(t, b)
		}})
		if n != 1 {
			t.Fatalf("%d replies", n)
		}
	})
}

// FuzzSealedLoad decodes arbitrary loads of an accepted minion.
func FuzzSealedLoad(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	files, err := filepath.Glob(filepath.Join(vectors, "requests", "*.json"))
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		var x exchange
		readJSON(f, filepath.Join("requests", filepath.Base(name)), &x)
		f.Add(x.Load)
	}
	s := newVecServer(f, func(c *Call) {
		if c.Load.Str("id") != vecID || c.Load.Has("tok") {
			f.Errorf("served: %s", value.Repr(c.Load))
		}
		if c.Cmd == "_pillar" && c.ReplyPrivate(c.Load) == nil {
			return
		}
		c.Reply(c.Load)
	})
	seal := newSealer(f, vecSession, "minion")
	f.Fuzz(func(t *testing.T, load []byte) {
		env := seal.envelope(t, nil)
		env.Set("load", seal.session.Seal(load, ""))
		n := 0
		s.Handle(&transport.Request{Body: encode(t, env), Reply: func([]byte) { n++ }})
		if n != 1 {
			t.Fatalf("%d replies", n)
		}
	})
}

// FuzzReply: only replies made with the keys are accepted.
func FuzzReply(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, name := range []string{"requests/pillar.json", "requests/no_cmd.json", "requests/file_hash.json"} {
		var x exchange
		readJSON(f, name, &x)
		f.Add(x.Reply)
	}
	c := vecClient(f, wire{req: direct(func(context.Context, []byte) ([]byte, error) { return nil, errors.New("away") })}, "")
	f.Fuzz(func(t *testing.T, raw []byte) {
		if v, err := c.current().open(raw, newNonce()); err == nil {
			t.Fatalf("believed: %v", v)
		}
		if v, err := c.openPrivate(c.current(), raw, newNonce()); err == nil {
			t.Fatalf("believed: %v", v)
		}
	})
}

// FuzzPublication decodes publications and registrations of unauthenticated
// peers.
func FuzzPublication(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	var zmq, tcp struct{ Publications []publication }
	readJSON(f, "publish_zmq.json", &zmq)
	readJSON(f, "publish_tcp.json", &tcp)
	for _, p := range append(zmq.Publications, tcp.Publications...) {
		f.Add(p.Payload)
	}
	c := vecClient(f, wire{}, "")
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	cipher, err := crypt.NewCrypticle(c.creds.aes)
	if err != nil {
		f.Fatal(err)
	}
	p := &PublishServer{}
	p.key.Store(&publishKey{c.creds.aes, cipher})
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, verify := range []bool{true, false} {
			c.cfg.VerifyPublications = verify
			s := &Subscription{c: c, log: quiet}
			if job, err := s.open(ctx, payload); err == nil {
				t.Fatalf("believed: %v", value.Repr(job))
			}
		}
		if id, err := p.identify(payload, newBook()); err == nil {
			t.Fatalf("identified: %q", id)
		}
		// The same under the right key: another minion could send it.
		s := &Subscription{c: c, log: quiet}
		_, _ = s.open(ctx, encode(t, value.DictOf("enc", "aes", "load", cipher.Seal(payload, ""))))
		_, _ = p.identify(encode(t, value.DictOf("load", cipher.Seal(payload, ""))), newBook())
	})
}

// FuzzSessionFile reads mutated session key files: invalid keys are replaced, and
// the minion gets a key in any case.
func FuzzSessionFile(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, key := range []string{vecSession, vecSession + "\n", "", "x", vecSession[:40], " " + vecSession, vecSession + vecSession} {
		f.Add([]byte(key))
	}
	s, err := NewSessions(filepath.Join(f.TempDir(), "sessions"), time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(s.dir, "one")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		key, st, err := s.Get("one")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := crypt.NewCrypticle(key); err != nil {
			t.Fatalf("%q is no key: %v", key, err)
		}
		if again, st2, err := s.Get("one"); err != nil || again != key || st2 != st {
			t.Fatalf("the key is %q and then %q, %v", key, again, err)
		}
	})
}
