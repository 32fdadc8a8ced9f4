package crypt

import (
	"bytes"
	"errors"
	"testing"

	"brine/test/fuzztest"
)

func FuzzShared(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	s := NewShared([]byte("the content of a file"))
	ticket := bytes.Clone(s.Ticket())
	f.Add(ticket, bytes.Clone(s.Sealed()))
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, ticket, sealed []byte) {
		if _, err := OpenShared(ticket, bytes.Clone(sealed)); err != nil && !errors.Is(err, ErrFormat) && !errors.Is(err, ErrAuth) {
			t.Fatalf("an error of no kind: %v", err)
		}
		s := NewShared(bytes.Clone(sealed))
		if plain, err := OpenShared(s.Ticket(), bytes.Clone(s.Sealed())); err != nil || !bytes.Equal(plain, sealed) {
			t.Fatalf("%q became %q, %v", sealed, plain, err)
		}
	})
}
