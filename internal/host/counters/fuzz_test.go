package counters

import (
	"encoding/binary"
	"testing"

	"brine/test/fuzztest"
)

func FuzzLogins(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, size := range []int{384, 400, 800} {
		rec := make([]byte, size)
		binary.NativeEndian.PutUint16(rec, userProcess)
		copy(rec[8:], "pts/0")
		copy(rec[atUser:], "ann")
		copy(rec[atHost:], "192.0.2.7")
		f.Add(rec, size == 400)
	}
	f.Fuzz(func(t *testing.T, b []byte, wide bool) {
		list := parseLogins(b, wide)
		if len(list) > len(b)/384 {
			t.Errorf("%d logins in %d bytes", len(list), len(b))
		}
		for _, l := range list {
			// A byte that is not UTF-8 becomes three.
			if len(l.User) > 3*32 || len(l.Terminal) > 3*32 || len(l.Host) > 3*256 {
				t.Errorf("%+v", l)
			}
		}
	})
}
