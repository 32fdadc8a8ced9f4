package cluster

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// secretsOf makes the keys of a master in a shared folder.
func secretsOf(t testing.TB, dir, id string, i int) *Secrets {
	t.Helper()
	keys, err := testKeys()
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenSecrets(dir, id, keys[i], keys[i].Public().PEM(), "", 2048, quiet())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestKeyMessage: a key goes to whom it is for, from who has it.
func TestKeyMessage(t *testing.T) {
	dir := t.TempDir()
	a, b, c := secretsOf(t, dir, "a", 0), secretsOf(t, dir, "b", 1), secretsOf(t, t.TempDir(), "c", 2)
	key := crypt.NewKey()
	body, err := a.keyMessage([]string{"b", "c"}, key, false)
	if err != nil {
		t.Fatal(err)
	}
	tag, data, ok := event.SplitBody(body)
	if !ok || tag != "cluster/peer/a" {
		t.Fatalf("%q", tag)
	}
	g, err := b.readGreeting(data)
	if err != nil || g.from != "a" || g.key != key || !g.brine || g.reply || len(g.names) != 2 {
		t.Errorf("%+v %v", g, err)
	}
	if g, err := c.readGreeting(data); err != nil || g.key != "" { // a does not know c's key
		t.Errorf("%+v %v", g, err)
	}
	// Somebody else says to be a.
	keys, _ := testKeys()
	if err := os.WriteFile(a.peerPath("a"), keys[3].Public().PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	if g, err := b.readGreeting(data); err == nil || g.key != "" {
		t.Errorf("%+v %v: signed with another key than that in peers", g, err)
	}
}

// TestEventMessage goes there and back.
func TestEventMessage(t *testing.T) {
	a := secretsOf(t, t.TempDir(), "a", 0)
	c, err := crypt.NewCrypticle(crypt.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	body, err := a.eventMessage(c, "salt/job/1/ret/m", value.DictOf("return", []byte{0xff, 0}, "n", int64(1)))
	if err != nil {
		t.Fatal(err)
	}
	tag, raw, _ := event.SplitBody(body)
	from, rest, ok := splitEvent(tag)
	if !ok || from != "a" || rest != "salt/job/1/ret/m" {
		t.Errorf("%q %q", from, rest)
	}
	d, err := openEvent(c, raw)
	if err != nil || !bytes.Equal(d.Bytes("return"), []byte{0xff, 0}) || d.Int("n") != 1 {
		t.Errorf("%s %v", value.Repr(d), err)
	}
	for _, tag := range []string{"cluster/event/", "cluster/event/a", "cluster/event//x", "cluster/event/a/", "x"} {
		if _, _, ok := splitEvent(tag); ok {
			t.Errorf("%q is an event", tag)
		}
	}
}

// vectors are what a master of Salt's has sent (recorded), with the key that
// it was sent to.
type vectors struct {
	Events []struct {
		Wire string `json:"wire_b64"`
		Tag  string `json:"tag"`
		AES  string `json:"decrypted_aes"`
		Want *struct {
			Payload map[string]any `json:"event_payload"`
		} `json:"decrypted"`
	} `json:"events"`
}

// TestRecorded reads what a master of Salt's has sent.
func TestRecorded(t *testing.T) {
	b, err := os.ReadFile("../../../testdata/vectors/cluster.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(b, &v); err != nil || len(v.Events) < 2 {
		t.Fatal(err)
	}
	load := func(name string) *crypt.PrivateKey {
		k, err := crypt.LoadPrivate(filepath.Join("../../../testdata/vectors/keys", name), "")
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	peer, sender := load("peer1.pem"), load("master.pem")
	dir := t.TempDir()
	s, err := OpenSecrets(dir, "127.0.0.3", peer, peer.Public().PEM(), "", 2048, quiet())
	if err != nil {
		t.Fatal(err)
	}
	if err := crypt.WritePublic(s.peerPath("127.0.0.1"), sender.Public()); err != nil {
		t.Fatal(err)
	}
	var key string
	for i, e := range v.Events {
		wire, err := base64.StdEncoding.DecodeString(e.Wire)
		if err != nil {
			t.Fatal(err)
		}
		body, err := event.NewFrameReader(bytes.NewReader(wire), maxFrame).Next()
		if err != nil {
			t.Fatal(err)
		}
		tag, data, ok := event.SplitBody(body)
		if !ok || e.Tag != "" && tag != e.Tag {
			t.Errorf("%d: %q", i, tag)
		}
		if strings.HasPrefix(tag, tagPeer) {
			g, err := s.readGreeting(data)
			if err != nil || g.from != "127.0.0.1" || g.key != e.AES || g.brine {
				t.Fatalf("%d: %+v %v", i, g, err)
			}
			key = g.key
			continue
		}
		c, err := crypt.NewCrypticle(key)
		if err != nil {
			t.Fatal(err)
		}
		if d, err := openEvent(c, data); err != nil || d.Len() == 0 {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// FuzzReceive: whatever comes on the port for masters ends in no panic.
func FuzzReceive(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	dir := f.TempDir()
	a, b := secretsOf(f, dir, "a", 0), secretsOf(f, dir, "b", 1)
	body, err := a.keyMessage([]string{"b"}, crypt.NewKey(), true)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	hello, err := say(tagHello, value.DictOf("nonce", nonce(), "facts", facts{id: "a"}.dict()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(hello)
	c := &Cluster{cfg: Config{ID: "b"}, log: quiet(), secrets: b, rateLimitedLog: newRateLimitedLog(quiet()), host: &host{}, origins: map[string]string{}}
	c.ring.Store(newKeyring(b.Key, rotation{}))
	p := newPeer(c, "a")
	c.peers.Store(&map[string]*peer{"a": p})
	f.Fuzz(func(t *testing.T, b []byte) {
		if tag, data, ok := event.SplitBody(b); ok {
			c.receive(tag, data)
		}
		if _, d, err := hear(b); err == nil {
			c.differences(readFacts(d.Dict("facts")), "", nil)
		}
		p.takeItem(b)
	})
}
