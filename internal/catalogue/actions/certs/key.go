package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"

	"brine/internal/call/fn"
	"brine/internal/net/crypt"
)

// Key is a private key with the encoding in which it was found.
type Key struct {
	crypto.Signer
	// Encoding is pem, der or pkcs12.
	Encoding string
}

// Errors of keys, which the states tell apart.
var (
	ErrPassphrase = fn.Invalidf("Bad decrypt - is the password correct?")
	ErrEncrypted  = fn.Invalidf("Private key is encrypted. Please provide a password.")
	ErrPlain      = fn.Invalidf("Private key is unencrypted")
	ErrNoKey      = fn.Invalidf("Could not deserialize binary data, neither as DER nor PKCS#12.")
	ErrPEMKey     = fn.Errorf("Could not load PEM-encoded private key")
)

// LoadKey reads a private key. passphrase is nil if none is given.
func LoadKey(v any, passphrase *string) (Key, error) {
	b, err := Source(v)
	if err != nil {
		return Key{}, err
	}
	return parseKey(b, passphrase)
}

func parseKey(b []byte, passphrase *string) (Key, error) {
	if !bytes.Contains(b, []byte("-----BEGIN")) {
		return parseBinaryKey(b, passphrase)
	}
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY":
			s, err := parseKeyBlock(block, passphrase)
			return Key{s, "pem"}, err
		}
	}
	return Key{}, ErrPEMKey
}

func parseKeyBlock(block *pem.Block, passphrase *string) (crypto.Signer, error) {
	der := block.Bytes
	//lint:ignore SA1019 existing keys have this form
	old := x509.IsEncryptedPEMBlock(block)
	switch encrypted := old || block.Type == "ENCRYPTED PRIVATE KEY"; {
	case encrypted && passphrase == nil:
		return nil, ErrEncrypted
	case !encrypted && passphrase != nil:
		return nil, ErrPlain
	case encrypted:
		var err error
		if old {
			//lint:ignore SA1019 existing keys have this form
			der, err = x509.DecryptPEMBlock(block, []byte(*passphrase))
		} else {
			der, err = crypt.DecryptPKCS8(der, *passphrase)
		}
		if err != nil && (errors.Is(err, crypt.ErrPassphrase) || errors.Is(err, x509.IncorrectPasswordError)) {
			return nil, ErrPassphrase
		} else if err != nil {
			return nil, ErrPEMKey
		}
	}
	s, err := plainKey(der)
	if err != nil && (old || block.Type == "ENCRYPTED PRIVATE KEY") { // a wrong key can yield valid padding by chance
		return nil, ErrPassphrase
	} else if err != nil {
		return nil, ErrPEMKey
	}
	return s, nil
}

// plainKey parses an unencrypted key in DER.
func plainKey(der []byte) (crypto.Signer, error) {
	k, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		if r, err := x509.ParsePKCS1PrivateKey(der); err == nil {
			return r, nil
		}
		return x509.ParseECPrivateKey(der)
	}
	switch s := k.(type) {
	case *rsa.PrivateKey:
		return s, nil
	case *ecdsa.PrivateKey:
		return s, nil
	case ed25519.PrivateKey:
		return s, nil
	}
	return nil, errors.New("another kind of key")
}

func parseBinaryKey(b []byte, passphrase *string) (Key, error) {
	if s, err := plainKey(b); err == nil && passphrase == nil {
		return Key{s, "der"}, nil
	}
	if encryptedPKCS8(b) {
		if passphrase == nil {
			return Key{}, ErrEncrypted
		}
		der, err := crypt.DecryptPKCS8(b, *passphrase)
		if err != nil {
			return Key{}, ErrPassphrase
		}
		s, err := plainKey(der)
		if err != nil {
			return Key{}, ErrPassphrase
		}
		return Key{s, "der"}, nil
	}
	store, err := parseStore(b, passphrase)
	switch {
	case errors.Is(err, ErrPassphrase):
		return Key{}, err
	case err != nil:
		return Key{}, ErrNoKey
	case store.key == nil:
		return Key{}, fn.Errorf("PKCS12-encoded blob does not contain a private key.")
	}
	return Key{store.key, "pkcs12"}, nil
}

// encryptedPKCS8 reports whether DER looks like an encrypted key: an algorithm and an octet
// string.
func encryptedPKCS8(der []byte) bool {
	parts, err := fields(der)
	return err == nil && len(parts) == 2 && parts[0].Tag == 16 && parts[1].Tag == 4
}

// Generate makes a private key; size 0 means the default of the algorithm.
func Generate(algo string, size int) (crypto.Signer, error) {
	switch algo {
	case "rsa":
		if size == 0 {
			size = 2048
		}
		if !slices.Contains([]int{2048, 3072, 4096}, size) {
			return nil, fn.Invalidf("RSA key size must be either 2048, 3072 or 4096 bits.")
		}
		return rsa.GenerateKey(rand.Reader, size)
	case "ec":
		curve, ok := map[int]elliptic.Curve{0: elliptic.P256(), 256: elliptic.P256(), 384: elliptic.P384(), 521: elliptic.P521()}[size]
		if !ok {
			return nil, fn.Invalidf("EC key size must be either 256, 384, 521 bits.")
		}
		return ecdsa.GenerateKey(curve, rand.Reader)
	case "ed25519":
		_, k, err := ed25519.GenerateKey(rand.Reader)
		return k, err
	case "ed448":
		return nil, fn.Errorf("ed448 is not supported; use ed25519")
	}
	return nil, fn.Invalidf("Invalid algorithm specified for generating private key: %s. Valid: rsa, ec, ed25519, ed448", algo)
}

// KeyType returns the type of a key and, for rsa and ec, its size in bits.
func KeyType(pub crypto.PublicKey) (kind string, size int) {
	switch k := pub.(type) {
	case *rsa.PublicKey:
		return "rsa", k.N.BitLen()
	case *ecdsa.PublicKey:
		return "ec", k.Curve.Params().BitSize
	case ed25519.PublicKey:
		return "ed25519", 0
	}
	return "", 0
}

// EncodeKey encodes a private key as pem, der or pkcs12.
func EncodeKey(k crypto.Signer, encoding string, passphrase *string, compat bool) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	name := "PRIVATE KEY"
	switch {
	case encoding == "pkcs12":
		return encodeStore(store{key: k}, passphrase, compat)
	case passphrase != nil:
		if *passphrase == "" {
			return nil, fn.Errorf("Password must be 1 or more bytes.")
		}
		if der, err = crypt.EncryptPKCS8(der, *passphrase); err != nil {
			return nil, fn.Errorf("%w", err)
		}
		name = "ENCRYPTED PRIVATE KEY"
	}
	if encoding == "der" {
		return der, nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: name, Bytes: der}), nil
}

// publicDER returns the SubjectPublicKeyInfo of a key.
func publicDER(pub crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return der, nil
}

// PublicPEM encodes a public key as PEM.
func PublicPEM(spki []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki}))
}

// LoadPublic reads a public key and returns its SubjectPublicKeyInfo.
func LoadPublic(v any) ([]byte, error) {
	b, err := Source(v)
	if err != nil {
		return nil, err
	}
	return parsePublic(b)
}

func parsePublic(b []byte) ([]byte, error) {
	wrong := "DER"
	if bytes.Contains(b, []byte("-----BEGIN")) {
		wrong = "PEM"
		block, _ := pem.Decode(b)
		switch {
		case block == nil:
			b = nil
		case block.Type == "RSA PUBLIC KEY":
			if k, err := x509.ParsePKCS1PublicKey(block.Bytes); err == nil {
				return publicDER(k)
			}
			b = nil
		case block.Type == "PUBLIC KEY":
			b = block.Bytes
		default:
			b = nil
		}
	}
	pub, err := x509.ParsePKIXPublicKey(b)
	if kind, _ := KeyType(pub); err != nil || kind == "" {
		return nil, fn.Errorf("Could not load %s-encoded public key.", wrong)
	}
	return publicDER(pub)
}

// PublicOf returns the public key that v holds: a public key, a certificate, a private key or
// a request.
func PublicOf(v any, passphrase *string) ([]byte, error) {
	b, err := Source(v)
	if err != nil {
		return nil, fn.Errorf("Could not load key as certificate, public key, private key or CSR")
	}
	if spki, err := parsePublic(b); err == nil {
		return spki, nil
	}
	if f, err := parseCertificates(b, passphrase); err == nil {
		return f.PublicKey, nil
	}
	if k, err := parseKey(b, passphrase); err == nil {
		return publicDER(k.Public())
	}
	if r, err := parseRequest(b); err == nil {
		return r.PublicKey, nil
	}
	return nil, fn.Errorf("Could not load key as certificate, public key, private key or CSR")
}

// SamePublic reports whether two public keys are equal.
func SamePublic(a, b []byte) bool {
	x, err := x509.ParsePKIXPublicKey(a)
	y, err2 := x509.ParsePKIXPublicKey(b)
	k, ok := x.(interface{ Equal(crypto.PublicKey) bool })
	return err == nil && err2 == nil && ok && k.Equal(y)
}

// Matches reports whether the key belongs to the public key spki.
func (k Key) Matches(spki []byte) (bool, error) {
	own, err := publicDER(k.Public())
	return err == nil && SamePublic(own, spki), err
}
