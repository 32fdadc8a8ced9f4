package cluster

import (
	"testing"

	"brine/internal/ha/cluster/clustertest"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/memberauth"
	"brine/internal/ha/cluster/saltwire"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// FuzzReceive: no input on the port for masters causes a panic.
func FuzzReceive(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	dir := f.TempDir()
	a, b := openSecrets(f, dir, "a", 0), openSecrets(f, dir, "b", 1)
	body, err := saltwire.KeyMessage(a, []string{"b"}, crypt.NewKey(), true)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	hello, err := wire.Encode(memberauth.TagHello, value.DictOf("nonce", wire.Nonce(), "facts", memberauth.Facts{ID: "a"}.Dict()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(hello)
	c := assemble(Config{ID: "b"}, b, nil, clustertest.Quiet())
	c.local.host = &host{}
	c.Keyring.ring.Store(keys.NewRing(b.Key, keys.Rotation{}))
	p := c.peers.adopt("a")
	f.Fuzz(func(t *testing.T, b []byte) {
		if tag, data, ok := event.SplitBody(b); ok {
			c.inbound.receive(tag, data)
		}
		if _, d, err := wire.Decode(b); err == nil {
			if facts, err := memberauth.ReadFacts(d.Dict("facts")); err == nil {
				memberauth.Differences(c.inbound.self().Facts, facts, "", nil, c.trust)
			}
		}
		p.takeItem(b)
	})
}
