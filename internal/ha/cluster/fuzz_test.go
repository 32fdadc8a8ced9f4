package cluster

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/ha/cluster/clustertest"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/memberauth"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// openSecrets creates the keys of a master in a shared directory.
func openSecrets(t testing.TB, dir, id string, i int) *keys.Secrets {
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

// FuzzJoin: a joining master is not admitted without the secret, whatever it
// sends, and a joining master writes no invalid data, whatever a member
// answers.
func FuzzJoin(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	dir := f.TempDir()
	s := openSecrets(f, dir, "b", 1)
	pairs, err := clustertest.Keys()
	if err != nil {
		f.Fatal(err)
	}
	unknown := pairs[0].Public().PEM()
	discover, err := wire.Encode(memberauth.TagDiscover, value.DictOf("id", "a", "cluster", "c", "protocol", wire.Protocol, "nonce", wire.Nonce(), "pub",
		unknown))
	if err != nil {
		f.Fatal(err)
	}
	box, err := pairs[1].Public().Encrypt(crypt.OAEPSHA224, []byte(crypt.NewKey()))
	if err != nil {
		f.Fatal(err)
	}
	join, err := wire.Encode(memberauth.TagJoin, value.DictOf("key", box, "proof", []byte("x"), "sig", []byte("y")))
	if err != nil {
		f.Fatal(err)
	}
	welcome, err := msgpack.Marshal(value.DictOf("proof", []byte("x"), "cluster_pem", pairs[2].PEM(), "cluster_pub", pairs[2].Public().PEM(), "aes",
		crypt.NewKey(),
		"peers", value.DictOf("b", unknown)), msgpack.NewSpec)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(discover, join)
	f.Add(discover, discover)
	f.Add(welcome, join)
	cfg := Config{ID: "b", Own: pairs[1], OwnPub: pairs[1].Public().PEM(),
		Options: Options{ID: "c", PKIDir: dir, Isolated: true, Secret: strings.Repeat("s", keys.MinSecret)}}
	c := assemble(cfg, s, nil, clustertest.Quiet())
	c.Keyring.ring.Store(keys.NewRing(s.Key, keys.Rotation{}))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		if tag, _, ok := event.SplitBody(first); ok && tag == memberauth.TagDiscover {
			frames := event.NewFrameReader(io.MultiReader(bytes.NewReader(event.Frame(second))), wire.MaxGreeting)
			if id, err := c.inbound.letIn(&wire.Line{Conn: clustertest.Drain{}, Raw: clustertest.Drain{}}, frames, first); err == nil {
				t.Fatalf("%q has joined", id)
			}
		}
		wire.Unsigned(first)
		if v, err := msgpack.UnmarshalTyped(first); err == nil {
			d, _ := v.(*value.Dict)
			fresh := filepath.Join(t.TempDir(), "pki")
			joiner := &Config{ID: "a", Own: pairs[0], OwnPub: unknown, Options: Options{PKIDir: fresh}}
			var welcome wire.Welcome
			if d == nil || wire.Read(d, &welcome) != nil || settle(joiner, &welcome) != nil {
				return
			}
			if _, err := keys.OpenSecrets(fresh, "a", pairs[0], unknown, "", 2048, clustertest.Quiet()); err != nil {
				t.Fatalf("what was taken is of no use: %v", err)
			}
		}
	})
}
