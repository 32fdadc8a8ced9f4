package saltwire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/ha/cluster/clustertest"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// secretsOf creates the keys of a master in a shared directory.
func secretsOf(t testing.TB, dir, id string, i int) *keys.Secrets {
	t.Helper()
	pairs, err := clustertest.Keys()
	if err != nil {
		t.Fatal(err)
	}
	s, err := keys.OpenSecrets(dir, id, pairs[i], pairs[i].Public().PEM(), "", 2048, clustertest.Quiet())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestKeyMessage: only the receiver can read a key message, and it accepts one only from the
// claimed sender.
func TestKeyMessage(t *testing.T) {
	dir := t.TempDir()
	a, b, c := secretsOf(t, dir, "a", 0), secretsOf(t, dir, "b", 1), secretsOf(t, t.TempDir(), "c", 2)
	key := crypt.NewKey()
	body, err := KeyMessage(a, []string{"b", "c"}, key, false)
	if err != nil {
		t.Fatal(err)
	}
	tag, data, ok := event.SplitBody(body)
	if !ok || tag != "cluster/peer/a" {
		t.Fatalf("%q", tag)
	}
	g, err := ReadGreeting(b, data)
	if err != nil || g.From != "a" || g.Key != key || !g.Brine || g.Reply || len(g.Names) != 2 {
		t.Errorf("%+v %v", g, err)
	}
	if g, err := ReadGreeting(c, data); err != nil || g.Key != "" { // a does not know c's key
		t.Errorf("%+v %v", g, err)
	}
	// Another master claims to be a.
	pairs, _ := clustertest.Keys()
	if err := os.WriteFile(a.PeerPath("a"), pairs[3].Public().PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	if g, err := ReadGreeting(b, data); err == nil || g.Key != "" {
		t.Errorf("%+v %v: signed with another key than that in peers", g, err)
	}
}

// TestEventMessage encodes and decodes an event.
func TestEventMessage(t *testing.T) {
	a := secretsOf(t, t.TempDir(), "a", 0)
	c, err := crypt.NewCrypticle(crypt.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	body, err := EventMessage(a, c, "salt/job/1/ret/m", value.DictOf("return", []byte{0xff, 0}, "n", int64(1)))
	if err != nil {
		t.Fatal(err)
	}
	tag, raw, _ := event.SplitBody(body)
	from, rest, ok := SplitEvent(tag)
	if !ok || from != "a" || rest != "salt/job/1/ret/m" {
		t.Errorf("%q %q", from, rest)
	}
	d, err := OpenEvent(c, raw)
	if err != nil || !bytes.Equal(d.Bytes("return"), []byte{0xff, 0}) || d.Int("n") != 1 {
		t.Errorf("%s %v", value.Repr(d), err)
	}
	for _, tag := range []string{"cluster/event/", "cluster/event/a", "cluster/event//x", "cluster/event/a/", "x"} {
		if _, _, ok := SplitEvent(tag); ok {
			t.Errorf("%q is an event", tag)
		}
	}
}

// vectors are recorded messages of a stock master, with the key of their
// receiver.
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

// TestRecorded decodes messages of a stock master.
func TestRecorded(t *testing.T) {
	b, err := os.ReadFile("../../../../testdata/vectors/cluster.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(b, &v); err != nil || len(v.Events) < 2 {
		t.Fatal(err)
	}
	load := func(name string) *crypt.PrivateKey {
		k, err := crypt.LoadPrivate(filepath.Join("../../../../testdata/vectors/keys", name), "")
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	peer, sender := load("peer1.pem"), load("master.pem")
	dir := t.TempDir()
	s, err := keys.OpenSecrets(dir, "127.0.0.3", peer, peer.Public().PEM(), "", 2048, clustertest.Quiet())
	if err != nil {
		t.Fatal(err)
	}
	if err := crypt.WritePublic(s.PeerPath("127.0.0.1"), sender.Public()); err != nil {
		t.Fatal(err)
	}
	var key string
	for i, e := range v.Events {
		frame, err := base64.StdEncoding.DecodeString(e.Wire)
		if err != nil {
			t.Fatal(err)
		}
		body, err := event.NewFrameReader(bytes.NewReader(frame), wire.MaxFrame).Next()
		if err != nil {
			t.Fatal(err)
		}
		tag, data, ok := event.SplitBody(body)
		if !ok || e.Tag != "" && tag != e.Tag {
			t.Errorf("%d: %q", i, tag)
		}
		if strings.HasPrefix(tag, TagPeer) {
			g, err := ReadGreeting(s, data)
			if err != nil || g.From != "127.0.0.1" || g.Key != e.AES || g.Brine {
				t.Fatalf("%d: %+v %v", i, g, err)
			}
			key = g.Key
			continue
		}
		c, err := crypt.NewCrypticle(key)
		if err != nil {
			t.Fatal(err)
		}
		if d, err := OpenEvent(c, data); err != nil || d.Len() == 0 {
			t.Errorf("%d: %v", i, err)
		}
	}
}
