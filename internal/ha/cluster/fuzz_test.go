package cluster

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/base/wait"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/oplog"
	"brine/test/fuzztest"
)

// FuzzFeed: what a peer says about changes, and the changes, end in no panic,
// and in nothing that is out of bounds.
func FuzzFeed(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, d := range []*value.Dict{
		value.DictOf("rep", "records", "origin", "a", "from", int64(0), "to", int64(2), "items", value.ListOf(value.ListOf(int64(1), []byte("x")))),
		value.DictOf("rep", "records", "vec", value.DictOf("a", int64(3)), "got", int64(1)),
		value.DictOf("rep", "records", "gap", true, "err", "no"),
		value.DictOf("vec", value.DictOf("records", value.DictOf("a", int64(3)))),
	} {
		b, err := msgpack.Marshal(d, msgpack.NewSpec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := msgpack.UnmarshalTyped(b)
		d, _ := v.(*value.Dict)
		if err != nil || d == nil {
			return
		}
		batches := make(chan oplog.Batch, 1)
		if err := (applyQueues{"records": batches}).give(d); err == nil {
			for _, it := range (<-batches).Items {
				if int64(it.Number) < 0 {
					t.Fatalf("change %d", it.Number)
				}
			}
		}
		fd := &feed{name: "records", news: wait.NewWakeup(), have: oplog.Vector{}, sent: oplog.Vector{"a": 1}, lag: map[string]lag{}, open: 1}
		fd.answered(d)
		if fd.open < 0 {
			t.Fatalf("%d batches are open", fd.open)
		}
		for _, vec := range []oplog.Vector{fd.have, readVector(d.Dict("vec").Dict("records"))} {
			if len(vec) > maxVector {
				t.Fatalf("%d origins", len(vec))
			}
			for origin, n := range vec {
				if n == 0 || int64(n) < 0 || len(origin) > maxOrigin {
					t.Fatalf("%q: %d", origin, n)
				}
			}
		}
	})
}

// drain is a connection whose other end takes everything and says nothing.
type drain struct{ net.Conn }

func (drain) Write(b []byte) (int, error)      { return len(b), nil }
func (drain) Close() error                     { return nil }
func (drain) SetDeadline(time.Time) error      { return nil }
func (drain) SetWriteDeadline(time.Time) error { return nil }
func (drain) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// FuzzJoin: whatever a master says that wants to join, it does not come in
// without the secret, and whatever a member answers, nothing is written that is
// of no use.
func FuzzJoin(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	dir := f.TempDir()
	s := secretsOf(f, dir, "b", 1)
	keys, err := testKeys()
	if err != nil {
		f.Fatal(err)
	}
	stranger := keys[0].Public().PEM()
	discover, err := say(tagDiscover, value.DictOf("id", "a", "cluster", "c", "protocol", protocol, "nonce", nonce(), "pub", stranger))
	if err != nil {
		f.Fatal(err)
	}
	box, err := keys[1].Public().Encrypt(crypt.OAEPSHA224, []byte(crypt.NewKey()))
	if err != nil {
		f.Fatal(err)
	}
	join, err := say(tagJoin, value.DictOf("key", box, "proof", []byte("x"), "sig", []byte("y")))
	if err != nil {
		f.Fatal(err)
	}
	welcome, err := msgpack.Marshal(value.DictOf("proof", []byte("x"), "cluster_pem", keys[2].PEM(), "cluster_pub", keys[2].Public().PEM(), "aes", crypt.NewKey(),
		"peers", value.DictOf("b", stranger)), msgpack.NewSpec)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(discover, join)
	f.Add(discover, discover)
	f.Add(welcome, join)
	cfg := Config{ID: "b", Own: keys[1], OwnPub: keys[1].Public().PEM(), Options: Options{ID: "c", PKIDir: dir, Isolated: true, Secret: strings.Repeat("s", minSecret)}}
	c := &Cluster{cfg: cfg, log: quiet(), secrets: s, rateLimitedLog: newRateLimitedLog(quiet())}
	c.peers.Store(&map[string]*peer{})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		if tag, _, ok := event.SplitBody(first); ok && tag == tagDiscover {
			frames := event.NewFrameReader(io.MultiReader(bytes.NewReader(event.Frame(second))), maxGreeting)
			if id, err := c.letIn(&line{Conn: drain{}, raw: drain{}}, frames, first); err == nil {
				t.Fatalf("%q has joined", id)
			}
		}
		unsigned(first)
		if v, err := msgpack.UnmarshalTyped(first); err == nil {
			d, _ := v.(*value.Dict)
			fresh := filepath.Join(t.TempDir(), "pki")
			joiner := &Config{ID: "a", Own: keys[0], Options: Options{PKIDir: fresh}}
			if d == nil || settle(joiner, d) != nil {
				return
			}
			if _, err := OpenSecrets(fresh, "a", keys[0], stranger, "", 2048, quiet()); err != nil {
				t.Fatalf("what was taken is of no use: %v", err)
			}
		}
	})
}
