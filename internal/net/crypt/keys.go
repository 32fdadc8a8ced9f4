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
	// minBits is what the standard library still computes with.
	minBits = 1024
	// minNewBits is the least that a new key may have, as in Salt.
	minNewBits = 2048
	// maxBits bounds the work that a stranger's key makes.
	maxBits = 16384
	// maxPEM is far above the text of a key of maxBits.
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

// GenerateKey makes a key of 2048 to 16384 bits. It takes a good part of a
// second, and far longer for large keys.
func GenerateKey(bits int) (*PrivateKey, error) {
	if bits < minNewBits || bits > maxBits {
		return nil, fmt.Errorf("%w: keysize is %d bits; use %d to %d", ErrKey, bits, minNewBits, maxBits)
	}
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key: %w", err)
	}
	return &PrivateKey{k}, nil
}

// Public returns the public half.
func (k *PrivateKey) Public() *PublicKey { return &PublicKey{&k.key.PublicKey} }

// PEM returns the private key as text, unencrypted: PKCS#1, "RSA PRIVATE KEY".
func (k *PrivateKey) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k.key)})
}

// EncryptedPEM is PEM encrypted with a passphrase (AES-256), in the old form
// that Salt writes, too; with an empty passphrase it is PEM.
func (k *PrivateKey) EncryptedPEM(passphrase string) ([]byte, error) {
	if passphrase == "" {
		return k.PEM(), nil
	}
	//lint:ignore SA1019 masters of Salt's beside this one read the form that theirs write
	block, err := x509.EncryptPEMBlock(rand.Reader, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(k.key), []byte(passphrase), x509.PEMCipherAES256)
	if err != nil {
		return nil, fmt.Errorf("cannot encrypt a key: %w", err)
	}
	return pem.EncodeToMemory(block), nil
}

// PEM returns the key as the text of a .pub file: "PUBLIC KEY" with a newline
// at the end. What travels is CleanKey of it.
func (k *PublicKey) PEM() []byte {
	der, err := x509.MarshalPKIXPublicKey(k.key)
	if err != nil {
		panic("crypt: an RSA key that cannot be written: " + err.Error())
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// Bits returns the size of the key.
func (k *PublicKey) Bits() int { return k.key.N.BitLen() }

// Equal reports whether o is the same key.
func (k *PublicKey) Equal(o *PublicKey) bool { return o != nil && k.key.Equal(o.key) }

// CleanKey returns the text of a key as it travels and is compared: lines end
// with a line feed only, and nothing is around them.
func CleanKey(text string) string {
	if strings.Contains(text, "\r") {
		text = strings.ReplaceAll(text, "\r\n", "\n")
		text = strings.ReplaceAll(text, "\r", "\n")
	}
	return strings.TrimSpace(text)
}

// ParsePublic reads a public key: a single PEM block, "PUBLIC KEY" or "RSA
// PUBLIC KEY", with nothing but white space around it, so that a stranger
// cannot place other text in the key files. Keys below 1024 and above 16384
// bits and exponents that are even or above 31 bits are refused. The error is
// ErrKey.
func ParsePublic(text []byte) (*PublicKey, error) {
	if len(text) > maxPEM {
		return nil, fmt.Errorf("%w: %d bytes are no public key", ErrKey, len(text))
	}
	text = []byte(CleanKey(string(text)))
	block, rest := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%w: not in PEM form", ErrKey)
	}
	// The decoder passes over text and broken blocks before the one it finds.
	begin := []byte("-----BEGIN ")
	if !bytes.HasPrefix(text, begin) || bytes.Count(text, begin) > 1 || len(rest) > 0 || len(block.Headers) > 0 {
		return nil, fmt.Errorf("%w: there is other text around the key", ErrKey)
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
		return nil, fmt.Errorf("%w: an RSA key is needed, this is a %T", ErrKey, k)
	}
	return nil, fmt.Errorf("%w: %.40q is no public key", ErrKey, block.Type)
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

// ParsePrivate reads a private key: the first PEM block of the text, PKCS#1
// (also in the old encrypted form, which Salt writes when it has a
// passphrase) or PKCS#8. The passphrase may be empty; it is ignored for a key
// that is not encrypted. The error is ErrPassphrase or ErrKey.
func ParsePrivate(text []byte, passphrase string) (*PrivateKey, error) {
	if len(text) > maxPEM {
		return nil, fmt.Errorf("%w: %d bytes are no private key", ErrKey, len(text))
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
		return nil, fmt.Errorf("%w: an RSA key is needed, this is a %T", ErrKey, k)
	}
	return nil, fmt.Errorf("%w: %.40q is no private key", ErrKey, block.Type)
}

// decryptBlock undoes the encryption that RFC 1421 describes. Its flaw, that
// a wrong passphrase may pass unnoticed, is harmless here since the result
// must also be a key.
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

// Signer gives the key to what signs certificates with it. It is never written.
func (k *PrivateKey) Signer() crypto.Signer { return k.key }

// Signed checks that the key has signed a certificate. The error is ErrSignature
// if it has not.
func (k *PublicKey) Signed(c *x509.Certificate) error {
	by := &x509.Certificate{PublicKey: k.key, PublicKeyAlgorithm: x509.RSA}
	if err := by.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature); err != nil {
		return ErrSignature
	}
	return nil
}
