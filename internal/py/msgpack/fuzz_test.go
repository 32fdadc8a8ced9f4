package msgpack

import (
	"bytes"
	"errors"
	"testing"

	"brine/internal/py/value"
	"brine/test/fuzztest"
)

func seed(f *fuzztest.F) {
	for _, v := range readVectors(f) {
		f.Add(unhex(f, v.Wire))
		f.Add(unhex(f, v.IPC))
	}
	f.Add(highstate(f, Wire))
	f.Add(unhex(f, "82 a1ff 01 c40161 c7064f92a14bc40176"))
	f.Add(unhex(f, "9291 8190 01 c1"))
	f.Add(unhex(f, "df 80000000 dd ffffffff"))
}

// fuzzLimits keeps the fuzzer from spending time on large inputs.
var fuzzLimits = Limits{Depth: 100, Items: 10_000, Bytes: 1 << 20}

func FuzzUnmarshal(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, decode := range []func([]byte) (any, error){fuzzLimits.Unmarshal, fuzzLimits.UnmarshalTyped} {
			v, err := decode(b)
			if err != nil {
				if !errors.Is(err, ErrShort) && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrLimit) {
					t.Fatalf("an error that matches no kind: %v", err)
				}
				continue
			}
			_ = value.Repr(v)
		}
	})
}

// FuzzSkip checks that Skip, the Scanner and Unmarshal agree on the end of an
// object.
func FuzzSkip(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		n, skipErr := fuzzLimits.Skip(b)
		s := Scanner{Limits: fuzzLimits}
		var m int
		var scanErr error
		for end := 0; end <= len(b); end = max(end+1, end*3/2) {
			if m, scanErr = s.Next(b[:end]); !errors.Is(scanErr, ErrShort) {
				break
			}
		}
		if errors.Is(scanErr, ErrShort) {
			m, scanErr = s.Next(b)
		}
		if n != m || (skipErr == nil) != (scanErr == nil) {
			t.Fatalf("Skip: %d, %v; Scanner: %d, %v", n, skipErr, m, scanErr)
		}
		if skipErr != nil {
			if _, err := fuzzLimits.Unmarshal(b); err == nil {
				t.Fatalf("Unmarshal accepts input that Skip rejects: %v", skipErr)
			}
			return
		}
		if _, err := fuzzLimits.Unmarshal(b[:n]); errors.Is(err, ErrShort) {
			t.Fatal("Skip ends too early")
		}
		if _, err := fuzzLimits.Unmarshal(b[:n-1]); err == nil {
			t.Fatal("Skip ends too late")
		}
	})
}

// FuzzRoundTrip checks that a decoded value survives encoding and decoding.
func FuzzRoundTrip(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, c := range []struct {
			d      Dialect
			decode func([]byte) (any, error)
		}{
			{Wire, fuzzLimits.Unmarshal}, {NewSpec, fuzzLimits.UnmarshalTyped},
		} {
			v, err := c.decode(b)
			if err != nil {
				return
			}
			once, err := Marshal(v, c.d)
			if err != nil {
				t.Fatal(err)
			}
			w, err := c.decode(once)
			if err != nil {
				t.Fatalf("%x: %v", once, err)
			}
			if value.Repr(v) != value.Repr(w) {
				t.Fatalf("%s became %s", value.Repr(v), value.Repr(w))
			}
			if twice, err := Marshal(w, c.d); err != nil || !bytes.Equal(once, twice) {
				t.Fatalf("%x became %x, %v", once, twice, err)
			}
		}
	})
}

func FuzzField(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	seed(f)
	f.Add(unhex(f, "82 a161 01 c40161 93 01 02 03"))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Unmarshal(b)
		m, isMap := v.(*value.Dict)
		if err != nil || !isMap {
			return
		}
		raw, ok, err := Field(b, "a")
		if err != nil || ok != m.Has("a") {
			t.Fatalf("%v, %v", ok, err)
		}
		if !ok {
			return
		}
		if w, err := Unmarshal(raw); err != nil || value.Repr(w) != value.Repr(m.At("a")) {
			t.Fatalf("%v, %v; want %v", w, err, m.At("a"))
		}
	})
}
