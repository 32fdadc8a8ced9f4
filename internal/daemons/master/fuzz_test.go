package master

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"brine/internal/base/salt"
	"brine/internal/net/channel"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// FuzzWork: a decoded cluster job of another master does not change when it is
// encoded and decoded again.
func FuzzWork(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, d := range []*value.Dict{value.NewDict(0), value.DictOf("fun", "state.orchestrate", "jid", "20260101000000000000", "arg", value.ListOf("x"),
		"kwarg", value.DictOf("a", int64(1)), "tries", int64(2))} {
		b, err := msgpack.Marshal(d, msgpack.NewSpec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := readWork(b)
		if d == nil {
			return
		}
		once, err := msgpack.Marshal(d, msgpack.NewSpec)
		if err != nil {
			t.Fatal(err)
		}
		if again := readWork(once); again == nil || value.Repr(again) != value.Repr(d) {
			t.Errorf("%s became %s", value.Repr(d), value.Repr(again))
		}
	})
}

func FuzzEndorsements(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add([]byte(`[{"pub": "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----\n", "sig": "c2ln"}]`))
	f.Add([]byte(`[{}, null]`))
	f.Add([]byte(`{`))
	path := filepath.Join(f.TempDir(), "x")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		es, err := readEndorsements(path)
		if err != nil && salt.KindOf(err) != salt.Invalid {
			t.Errorf("an error of another kind: %v", err)
		}
		if len(es) > len(b) {
			t.Errorf("%d endorsements in %d bytes", len(es), len(b))
		}
	})
}

// FuzzSeen: the decoder of served requests from another master does not return
// more entries than the message has bytes, and encoding them again loses none.
func FuzzSeen(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	chunk, _ := packSeen([]channel.Seen{{ID: "a", Key: 1 << 63, Generation: 2, Floor: 1<<32 - 1, Nonces: []channel.SeenNonce{{Hash: 1, Sent: 2}, {Hash: 3}}},
		{ID: "b"}})
	for _, l := range []*value.List{chunk, {}, value.ListOf(value.ListOf("a"), nil, value.ListOf("a", []byte("short"), int64(0), int64(-1), []byte{1}))} {
		b, err := msgpack.Marshal(l, msgpack.NewSpec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := msgpack.UnmarshalTyped(b)
		l, ok := v.(*value.List)
		if err != nil || !ok {
			return
		}
		seen := unpackSeen(l.Items)
		nonces := 0
		for _, e := range seen {
			nonces += len(e.Nonces)
		}
		if len(seen)+nonces > len(b) {
			t.Errorf("%d entries and %d nonces in %d bytes", len(seen), nonces, len(b))
		}
		chunk, rest := packSeen(seen)
		if again := append(unpackSeen(chunk.Items), rest...); len(seen) > 0 && !reflect.DeepEqual(again, seen) {
			t.Errorf("%v became %v", seen, again)
		}
	})
}
