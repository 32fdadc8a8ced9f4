package crypt

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
)

// Names of the algorithms in messages and options. There are no others.
const (
	OAEPSHA1       = "OAEP-SHA1"       // encryption, the default
	OAEPSHA224     = "OAEP-SHA224"     // encryption
	PKCS1v15SHA1   = "PKCS1v15-SHA1"   // signatures, the default
	PKCS1v15SHA224 = "PKCS1v15-SHA224" // signatures
)

func oaepHash(alg string) (hash.Hash, error) {
	switch alg {
	case OAEPSHA1:
		return sha1.New(), nil
	case OAEPSHA224:
		return sha256.New224(), nil
	}
	return nil, fmt.Errorf("%w for encryption: %.40q", ErrUnsupportedAlgorithm, alg)
}

func digest(alg string, msg []byte) (crypto.Hash, []byte, error) {
	switch alg {
	case PKCS1v15SHA1:
		sum := sha1.Sum(msg)
		return crypto.SHA1, sum[:], nil
	case PKCS1v15SHA224:
		sum := sha256.Sum224(msg)
		return crypto.SHA224, sum[:], nil
	}
	return 0, nil, fmt.Errorf("%w for signatures: %.40q", ErrUnsupportedAlgorithm, alg)
}

// Encrypt encrypts a short message, such as a symmetric key, for the owner of
// k. The error is ErrUnsupportedAlgorithm or ErrTooLong.
func (k *PublicKey) Encrypt(alg string, msg []byte) ([]byte, error) {
	h, err := oaepHash(alg)
	if err != nil {
		return nil, err
	}
	out, err := rsa.EncryptOAEP(h, rand.Reader, k.key, msg, nil)
	if errors.Is(err, rsa.ErrMessageTooLong) {
		return nil, fmt.Errorf("%w: %d bytes with %s and %d bits", ErrTooLong, len(msg), alg, k.Bits())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return out, nil
}

// Decrypt reads a message made by PublicKey.Encrypt, which is as long as the modulus (RFC 8017,
// section 7.1.2). The error is ErrUnsupportedAlgorithm or ErrDecrypt without a reason.
func (k *PrivateKey) Decrypt(alg string, msg []byte) ([]byte, error) {
	h, err := oaepHash(alg)
	if err != nil {
		return nil, err
	}
	// crypto/rsa accepts a message without its leading zero bytes as the same one.
	if len(msg) != k.key.Size() {
		return nil, ErrDecrypt
	}
	out, err := rsa.DecryptOAEP(h, nil, k.key, msg, nil)
	if err != nil {
		return nil, ErrDecrypt
	}
	return out, nil
}

// Sign signs msg. The error is ErrUnsupportedAlgorithm.
func (k *PrivateKey) Sign(alg string, msg []byte) ([]byte, error) {
	h, sum, err := digest(alg, msg)
	if err != nil {
		return nil, err
	}
	sig, err := rsa.SignPKCS1v15(nil, k.key, h, sum)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return sig, nil
}

// Verify checks a signature made by PrivateKey.Sign. The error is
// ErrUnsupportedAlgorithm or ErrSignature.
func (k *PublicKey) Verify(alg string, msg, sig []byte) error {
	h, sum, err := digest(alg, msg)
	if err != nil {
		return err
	}
	if err := rsa.VerifyPKCS1v15(k.key, h, sum, sig); err != nil {
		return ErrSignature
	}
	return nil
}

// ValidEncryption reports whether alg names an encryption algorithm.
func ValidEncryption(alg string) bool { _, err := oaepHash(alg); return err == nil }

// ValidSigning reports whether alg names a signature algorithm.
func ValidSigning(alg string) bool { return alg == PKCS1v15SHA1 || alg == PKCS1v15SHA224 }
