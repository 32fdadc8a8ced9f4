package crypt

import (
	"bytes"
	"errors"
	"testing"
)

func TestShared(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 1 << 20} {
		plain := bytes.Repeat([]byte{7}, n)
		one, two := NewShared(bytes.Clone(plain)), NewShared(bytes.Clone(plain))
		ticket, sealed := one.Ticket(), one.Sealed()
		if n > 15 && bytes.Contains(sealed, plain[:8]) {
			t.Fatal("it is not encrypted")
		}
		other, again := two.Ticket(), two.Sealed()
		if bytes.Equal(ticket, other) || n > 15 && bytes.Equal(sealed, again) {
			t.Fatal("a key was used twice")
		}
		// With one byte, two keys give the same ciphertext in 1 of 256 cases.
		if _, err := OpenShared(other, bytes.Clone(sealed)); n > 1 && !errors.Is(err, ErrAuth) {
			t.Error("a ticket opens what is another's:", err)
		}
		if n > 0 {
			bad := bytes.Clone(sealed)
			bad[n/2] ^= 1
			if _, err := OpenShared(ticket, bad); !errors.Is(err, ErrAuth) {
				t.Error("changed bytes are opened:", err)
			}
			if _, err := OpenShared(ticket, bytes.Clone(sealed[:n-1])); !errors.Is(err, ErrAuth) {
				t.Error("a part is opened:", err)
			}
		}
		got, err := OpenShared(ticket, bytes.Clone(sealed))
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%d bytes: %v", n, err)
		}
		if _, err := OpenShared(ticket[:TicketSize-1], sealed); !errors.Is(err, ErrFormat) {
			t.Error("half a ticket:", err)
		}
	}
}
