package handshake

import (
	"bytes"
	"testing"

	"brine/internal/net/crypt"
)

// TestSealedOnce: secrets are encrypted again only after a change, and always
// for the current key.
func TestSealedOnce(t *testing.T) {
	one, two := mustKey(t), mustKey(t)
	req := func(k *crypt.PrivateKey) Request {
		return Request{ID: "one", EncAlgo: crypt.OAEPSHA1, Pub: crypt.CleanKey(string(k.Public().PEM()))}
	}
	other := req(one)
	other.EncAlgo = crypt.OAEPSHA224
	id := &Identity{}
	var last []byte
	for _, c := range []struct {
		name  string
		r     Request
		key   *crypt.PrivateKey
		sec   Secrets
		again bool
	}{
		{"first", req(one), one, Secrets{AES: "a", Session: "s"}, false},
		{"again", req(one), one, Secrets{AES: "a", Session: "s"}, true},
		{"new session", req(one), one, Secrets{AES: "a", Session: "t"}, false},
		{"new aes", req(one), one, Secrets{AES: "b", Session: "t"}, false},
		{"the same, cut elsewhere", req(one), one, Secrets{AES: "bt", Session: ""}, false},
		{"other algorithm", other, one, Secrets{AES: "b", Session: "t"}, false},
		{"other key", req(two), two, Secrets{AES: "b", Session: "t"}, false},
	} {
		aes, session, err := id.sealed.secrets(c.r, c.key.Public(), c.sec)
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Equal(session, last); got != c.again {
			t.Errorf("%s: the same as before: %v", c.name, got)
		}
		a, err := c.key.Decrypt(c.r.EncAlgo, aes)
		if err != nil || string(a) != c.sec.AES {
			t.Errorf("%s: AES key %q, %v", c.name, a, err)
		}
		b, err := c.key.Decrypt(c.r.EncAlgo, session)
		if err != nil || string(b) != c.sec.Session {
			t.Errorf("%s: session key %q, %v", c.name, b, err)
		}
		last = session
	}
	id.Forget("one")
	if _, ok := id.sealed.m.Load("one"); ok {
		t.Error("a minion that was forgotten is remembered")
	}
}

func mustKey(t *testing.T) *crypt.PrivateKey {
	t.Helper()
	k, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
