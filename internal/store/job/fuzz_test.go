package job

import (
	"testing"

	"brine/internal/base/salt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// FuzzEntries reads damaged entries of the job database.
func FuzzEntries(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, v := range []any{value.DictOf("fun", "test.ping", "return", true), value.ListOf("a", "b", int64(1))} {
		b, err := msgpack.Marshal(v, msgpack.NewSpec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("20260101000000000000\x00rminion"))
	short, err := encode(value.ListOf(itemShort, "20260101000000000000", "minion", []byte("checksum"), "0123abcd"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(short)
	f.Add(shortOf([]byte("checksum"), "0123abcd"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if jid, _, id := splitKey(b); len(jid)+len(id) > len(b) {
			t.Errorf("%q: %q %q", b, jid, id)
		}
		if d, err := decodeDict(b); err != nil && salt.KindOf(err) != salt.Internal || err == nil && d == nil {
			t.Errorf("%v, %v", d, err)
		}
		if it, err := decodeItem(b); err == nil && it.Short != isShort(it.raw) {
			t.Errorf("%+v", it)
		}
		if isShort(b) && (len(sumReturn(b)) != 2*sumLen || len(receiverOf(b)) >= len(b)) {
			t.Errorf("%q: %q %q", b, sumReturn(b), receiverOf(b))
		}
		if ids := decodeIDs(b); len(ids) > len(b) {
			t.Errorf("%d ids in %d bytes", len(ids), len(b))
		}
	})
}
