package crypt

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"strings"
)

const (
	// minBits is the smallest size that the standard library supports.
	minBits = 1024
	// minNewBits is the smallest size of a new key, as in Salt.
	minNewBits = 2048
	// maxBits bounds the work that the key of an unauthenticated peer causes.
	maxBits = 16384
	// maxPEM is far above the PEM size of a key of maxBits.
	maxPEM = 64 << 10
)

// PrivateKey is an RSA key pair.
type PrivateKey struct {
	key *rsa.PrivateKey
}

// PublicKey is the public half of an RSA key.
type PublicKey struct {
	key *rsa.PublicKey
}

// GenerateKey creates a key of 2048 to 16384 bits. It takes a large part of a second, and far
// longer for large keys.
func GenerateKey(bits int) (*PrivateKey, error) {
	if bits < minNewBits || bits > maxBits {
		return nil, fmt.Errorf("%w: keysize is %d bits; use %d to %d", ErrKey, bits, minNewBits, maxBits)
	}
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		return nil, fmt.Errorf("cannot create a key: %w", err)
	}
	return &PrivateKey{k}, nil
}

// Public returns the public half.
func (k *PrivateKey) Public() *PublicKey { return &PublicKey{&k.key.PublicKey} }

// PEM returns the private key in PEM form, unencrypted: PKCS#1, "RSA PRIVATE KEY".
func (k *PrivateKey) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k.key)})
}

// EncryptedPEM is PEM encrypted with a passphrase (AES-256), in the old form that Salt also writes;
// with an empty passphrase it is PEM.
func (k *PrivateKey) EncryptedPEM(passphrase string) ([]byte, error) {
	if passphrase == "" {
		return k.PEM(), nil
	}
	//lint:ignore SA1019 stock masters beside this one read this form
	block, err := x509.EncryptPEMBlock(rand.Reader, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(k.key), []byte(passphrase), x509.PEMCipherAES256)
	if err != nil {
		return nil, fmt.Errorf("cannot encrypt a key: %w", err)
	}
	return pem.EncodeToMemory(block), nil
}

// PEM returns the content of a .pub file: "PUBLIC KEY" with a newline at the end. Messages contain
// CleanKey of it.
func (k *PublicKey) PEM() []byte {
	der, err := x509.MarshalPKIXPublicKey(k.key)
	if err != nil {
		panic("crypt: cannot encode an RSA key: " + err.Error())
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// Bits returns the size of the key.
func (k *PublicKey) Bits() int { return k.key.N.BitLen() }

// Equal reports whether o is the same key.
func (k *PublicKey) Equal(o *PublicKey) bool { return o != nil && k.key.Equal(o.key) }

// CleanKey returns a key as it is sent and compared: lines end with a line feed only, without
// surrounding white space.
func CleanKey(text string) string {
	if strings.Contains(text, "\r") {
		text = strings.ReplaceAll(text, "\r\n", "\n")
		text = strings.ReplaceAll(text, "\r", "\n")
	}
	return strings.TrimSpace(text)
}

// ParsePublic reads a public key: a single PEM block, "PUBLIC KEY" or "RSA PUBLIC KEY", with only
// white space around it, so that a peer cannot place other data in the key files. Keys below 1024
// and above 16384 bits and exponents that are even or above 31 bits are refused. The error is
// ErrKey.
func ParsePublic(text []byte) (*PublicKey, error) {
	if len(text) > maxPEM {
		return nil, fmt.Errorf("%w: %d bytes are not a public key", ErrKey, len(text))
	}
	text = []byte(CleanKey(string(text)))
	block, rest := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%w: not in PEM form", ErrKey)
	}
	// The decoder skips text and broken blocks before the block that it finds.
	begin := []byte("-----BEGIN ")
	if !bytes.HasPrefix(text, begin) || bytes.Count(text, begin) > 1 || len(rest) > 0 || len(block.Headers) > 0 {
		return nil, fmt.Errorf("%w: there is other data around the key", ErrKey)
	}
	k, err := parsePublicBlock(block)
	if err != nil {
		return nil, err
	}
	if err := checkPublic(k); err != nil {
		return nil, err
	}
	return &PublicKey{k}, nil
}

func parsePublicBlock(block *pem.Block) (*rsa.PublicKey, error) {
	switch block.Type {
	case "RSA PUBLIC KEY":
		if k, err := x509.ParsePKCS1PublicKey(block.Bytes); err == nil {
			return k, nil
		}
		fallthrough // some tools put the other form under this name
	case "PUBLIC KEY":
		k, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrKey, err)
		}
		if k, ok := k.(*rsa.PublicKey); ok {
			return k, nil
		}
		return nil, fmt.Errorf("%w: not an RSA key but a %T", ErrKey, k)
	}
	return nil, fmt.Errorf("%w: %.40q is not a public key", ErrKey, block.Type)
}

func checkPublic(k *rsa.PublicKey) error {
	switch bits := k.N.BitLen(); {
	case bits < minBits || bits > maxBits:
		return fmt.Errorf("%w: it has %d bits; %d to %d are allowed", ErrKey, bits, minBits, maxBits)
	case k.N.Bit(0) == 0:
		return fmt.Errorf("%w: the modulus is even", ErrKey)
	case k.E < 3 || k.E&1 == 0 || int64(k.E) > math.MaxInt32:
		return fmt.Errorf("%w: the public exponent is %d", ErrKey, k.E)
	}
	return nil
}

// ParsePrivate reads a private key: the first PEM block, PKCS#1 (also in the old encrypted form,
// which Salt writes with a passphrase) or PKCS#8. The passphrase may be empty; it is ignored for an
// unencrypted key. The error is ErrPassphrase or ErrKey.
func ParsePrivate(text []byte, passphrase string) (*PrivateKey, error) {
	if len(text) > maxPEM {
		return nil, fmt.Errorf("%w: %d bytes are not a private key", ErrKey, len(text))
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%w: not in PEM form", ErrKey)
	}
	k, err := parsePrivateBlock(block, passphrase)
	if err != nil {
		return nil, err
	}
	if err := checkPublic(&k.PublicKey); err != nil {
		return nil, err
	}
	if len(k.Primes) != 2 {
		return nil, fmt.Errorf("%w: it has %d primes, not 2", ErrKey, len(k.Primes))
	}
	return &PrivateKey{k}, nil
}

func parsePrivateBlock(block *pem.Block, passphrase string) (*rsa.PrivateKey, error) {
	switch block.Type {
	case "RSA PRIVATE KEY":
		der, err := decryptBlock(block, passphrase)
		if err != nil {
			return nil, err
		}
		k, err := x509.ParsePKCS1PrivateKey(der)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrKey, err)
		}
		return k, nil
	case "PRIVATE KEY", "ENCRYPTED PRIVATE KEY":
		der := block.Bytes
		if block.Type != "PRIVATE KEY" {
			var err error
			if der, err = decryptPKCS8(der, passphrase); err != nil {
				return nil, err
			}
		}
		k, err := x509.ParsePKCS8PrivateKey(der)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrKey, err)
		}
		if k, ok := k.(*rsa.PrivateKey); ok {
			return k, nil
		}
		return nil, fmt.Errorf("%w: not an RSA key but a %T", ErrKey, k)
	}
	return nil, fmt.Errorf("%w: %.40q is not a private key", ErrKey, block.Type)
}

// decryptBlock decrypts a block as RFC 1421 describes. Its flaw, that a wrong passphrase may stay
// undetected, is harmless because the result must also be a key.
func decryptBlock(block *pem.Block, passphrase string) ([]byte, error) {
	//lint:ignore SA1019 existing keys have this form
	if !x509.IsEncryptedPEMBlock(block) {
		return block.Bytes, nil
	}
	if passphrase == "" {
		return nil, ErrPassphrase
	}
	//lint:ignore SA1019 existing keys have this form
	der, err := x509.DecryptPEMBlock(block, []byte(passphrase))
	if errors.Is(err, x509.IncorrectPasswordError) {
		return nil, ErrPassphrase
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	if _, err := x509.ParsePKCS1PrivateKey(der); err != nil {
		return nil, ErrPassphrase
	}
	return der, nil
}

// Signer returns the key for signing certificates. That key is never written.
func (k *PrivateKey) Signer() crypto.Signer { return k.key }

// Signed checks that the key has signed a certificate. The error is ErrSignature.
func (k *PublicKey) Signed(c *x509.Certificate) error {
	by := &x509.Certificate{PublicKey: k.key, PublicKeyAlgorithm: x509.RSA}
	if err := by.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature); err != nil {
		return ErrSignature
	}
	return nil
}
