package crypt

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
)

// TestPublicExponent: with exponent 1 a signature equals its message, so that
// anybody could sign for the key.
func TestPublicExponent(t *testing.T) {
	good := private(t, "minion").Public()
	block, _ := pem.Decode(good.PEM())
	k, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	n := k.(*rsa.PublicKey).N
	for _, e := range []int{1, 2} {
		der, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: new(big.Int).Set(n), E: e})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParsePublic(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})); err == nil {
			t.Errorf("a key with exponent %d is taken", e)
		}
	}
}
