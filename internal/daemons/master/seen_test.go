package master

import (
	"fmt"
	"reflect"
	"testing"

	"brine/internal/net/channel"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// TestPackSeen: what one master tells another arrives unchanged, in messages of
// bounded size; malformed entries are left out.
func TestPackSeen(t *testing.T) {
	var seen []channel.Seen
	for i := range 3 * seenMinions {
		e := channel.Seen{ID: fmt.Sprint("minion", i), Key: 1<<63 + uint64(i), Generation: uint32(i % 3), Floor: 1<<32 - 1}
		for n := range i % 40 {
			e.Nonces = append(e.Nonces, channel.SeenNonce{Hash: 1<<64 - 1 - uint64(n), Sent: uint32(n)})
		}
		seen = append(seen, e)
	}
	var got []channel.Seen
	for rest := seen; len(rest) > 0; {
		var chunk *value.List
		chunk, rest = packSeen(rest)
		b, err := msgpack.Marshal(chunk, msgpack.NewSpec)
		if err != nil || len(b) > 1<<20 {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		v, err := msgpack.UnmarshalTyped(b)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, unpackSeen(v.(*value.List).Items)...)
	}
	if !reflect.DeepEqual(got, seen) {
		t.Errorf("%d entries of %d arrive, or others", len(got), len(seen))
	}
	one := channel.Seen{ID: "a", Nonces: make([]channel.SeenNonce, 2*seenChunk)}
	if chunk, rest := packSeen([]channel.Seen{one, one}); len(chunk.Items) != 1 || len(rest) != 1 {
		t.Errorf("one entry that is larger than a message: %d and %d", len(chunk.Items), len(rest))
	}
	key := make([]byte, 8)
	for _, bad := range []any{nil, 1, "a", value.ListOf(), value.ListOf("a", key, int64(0), int64(0)), value.ListOf("a", key[:7], int64(0), int64(0), []byte{}),
		value.ListOf("a", key, "0", int64(0), []byte{}), value.ListOf(1, key, int64(0), int64(0), []byte{}), value.ListOf("a", key, int64(0), nil, []byte{})} {
		if got := unpackSeen([]any{bad}); len(got) > 0 {
			t.Errorf("%v is read as %v", value.Repr(bad), got)
		}
	}
}
