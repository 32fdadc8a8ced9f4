package hotlink

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"brine/internal/net/crypt"
	"brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

var testKeys = sync.OnceValues(func() ([2]*crypt.PrivateKey, error) {
	a, err := crypt.GenerateKey(2048)
	b, err2 := crypt.GenerateKey(2048)
	return [2]*crypt.PrivateKey{a, b}, errors.Join(err, err2)
})

// loop passes requests from a client and a server; sent has the requests.
type loop struct {
	server *Server
	sent   [][]byte
}

func (l *loop) Request(_ context.Context, body []byte) ([]byte, error) {
	v, err := msgpack.UnmarshalTyped(body)
	if err != nil {
		return nil, err
	}
	var in wire.HotRequest
	wire.View(v.(*value.Dict).Dict("load"), &in)
	l.sent = append(l.sent, in.Data)
	sealed, err := l.server.Answer(in.Data)
	if err != nil {
		return msgpack.Marshal(value.NewDict(0), msgpack.NewSpec)
	}
	return msgpack.Marshal(value.DictOf("data", sealed), msgpack.NewSpec)
}

// TestLink asks, repeats requests, and asks with another key.
func TestLink(t *testing.T) {
	keys, err := testKeys()
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	answer := func(from, name string, arg *value.Dict) (*value.Dict, error) {
		asked = append(asked, from+" "+name+" "+arg.Str("x"))
		if name == "bad" {
			return nil, errors.New("no such thing")
		}
		return value.DictOf("got", arg.Str("x")), nil
	}
	server, err := NewServer("m2", keys[0], answer)
	if err != nil {
		t.Fatal(err)
	}
	l := &loop{server: server}
	c, err := NewClient("m1", keys[0], l)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(x string) {
		t.Helper()
		if id, data, err := c.Ask(t.Context(), "picture", value.DictOf("x", x)); err != nil || id != "m2" || data.Str("got") != x {
			t.Fatalf("%s %v %v", id, data, err)
		}
	}
	ask("1")
	ask("2")
	if _, _, err := c.Ask(t.Context(), "bad", nil); err == nil {
		t.Error("an error is not reported")
	}
	want := []string{"m1 picture 1", "m1 picture 2", "m1 bad "}
	// Requests that were recorded are not answered again, also by a master that has started again.
	again, _ := NewServer("m2", keys[0], answer)
	for _, b := range l.sent {
		for _, s := range []*Server{server, again} {
			if _, err := s.Answer(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !slices.Equal(asked, want) {
		t.Errorf("answered %q, want %q", asked, want)
	}
	// A client goes on when the master has started again.
	l.server = again
	ask("3")
	// An answer does not count as a request, nor as the answer to another request.
	sealed, _ := again.Answer(l.sent[0])
	if _, err := again.Answer(sealed); !errors.Is(err, ErrForeign) {
		t.Errorf("an answer as a request: %v", err)
	}
	// Other keys, and damaged bytes.
	foreign, _ := NewClient("m1", keys[1], l)
	if _, _, err := foreign.Ask(t.Context(), "picture", nil); !errors.Is(err, ErrRefused) {
		t.Errorf("another key: %v", err)
	}
	for i := range l.sent[0] {
		b := slices.Clone(l.sent[0])
		b[i] ^= 1
		if _, err := again.Answer(b); !errors.Is(err, ErrForeign) {
			t.Fatalf("a changed byte %d: %v", i, err)
		}
	}
	// Epochs end before their nonces fill the memory.
	for range maxNonces + 10 {
		_, _ = again.admit(again.epoch, random())
	}
	if len(again.seen) > maxNonces {
		t.Errorf("%d nonces", len(again.seen))
	}
	ask("4")
}

// FuzzAnswer gives a server bytes.
func FuzzAnswer(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add([]byte("x"), true)
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		keys, err := testKeys()
		if err != nil {
			t.Fatal(err)
		}
		asked := false
		s, _ := NewServer("m2", keys[0], func(string, string, *value.Dict) (*value.Dict, error) { asked = true; return nil, nil })
		if seal {
			b = s.keys.ask.Seal(b, "")
		}
		if _, _ = s.Answer(b); asked {
			t.Fatal("a question of an unknown epoch was answered")
		}
	})
}
