package fileclient

import (
	"bytes"
	"compress/gzip"
	"testing"

	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// FuzzTree parses lists of files that a hostile master may send. packed says
// whether the input is already compressed.
func FuzzTree(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	plain, err := msgpack.Marshal(value.ListOf("sha256", true, value.ListOf("a/b", "c"), value.ListOf("00", "11")), msgpack.NewSpec)
	if err != nil {
		f.Fatal(err)
	}
	pack := func(b []byte) []byte {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		w.Write(b)
		w.Close()
		return z.Bytes()
	}
	f.Add(plain, false)
	f.Add(pack(plain), true)
	f.Add(pack(make([]byte, 1<<20)), true)
	f.Fuzz(func(t *testing.T, b []byte, packed bool) {
		if !packed {
			b = pack(b)
		}
		tree, err := readTree("tag", b)
		if err != nil {
			return
		}
		if len(tree.sums) > len(tree.names) {
			t.Errorf("%d names, %d sums", len(tree.names), len(tree.sums))
		}
	})
}
