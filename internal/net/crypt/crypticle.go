package crypt

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding"
	"encoding/base64"
	"fmt"
	"hash"
	"strings"
	"sync"
)

const (
	aesKeySize  = 24
	hmacKeySize = sha256.Size
	ivSize      = aes.BlockSize
	macSize     = sha256.Size

	// prefix opens every plaintext, a remainder of Salt's earlier format.
	prefix = "pickle::"
)

// Overhead is the size in bytes that sealing adds at least; a shorter message is invalid.
const Overhead = ivSize + aes.BlockSize + macSize

// NewKey returns a new random key for a Crypticle in the form used in messages and files: 76
// characters, no newline.
func NewKey() string {
	var key [aesKeySize + hmacKeySize]byte
	rand.Read(key[:]) // never fails
	return base64.StdEncoding.EncodeToString(key[:])
}

// DeriveKey returns a key that depends only on a secret and a string. It reveals nothing about the
// secret.
func DeriveKey(secret []byte, text string) string {
	var key []byte
	for i := byte(1); len(key) < aesKeySize+hmacKeySize; i++ {
		h := hmac.New(sha256.New, secret)
		h.Write([]byte{i})
		h.Write([]byte(text))
		key = h.Sum(key)
	}
	return base64.StdEncoding.EncodeToString(key[:aesKeySize+hmacKeySize])
}

// Crypticle encrypts and authenticates messages with one key. A master has one per minion, so it is
// small: the hash functions are shared by all.
type Crypticle struct {
	block cipher.Block
	// inner and outer are the states of the two hashes of HMAC (RFC 2104) after the key.
	inner, outer []byte
}

// macHash is a hash function from a pool, with space for its result.
type macHash struct {
	sha state
	sum [macSize]byte
}

// state is a hash function whose state can be saved and restored.
type state interface {
	hash.Hash
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

var macHashes = sync.Pool{New: func() any { return &macHash{sha: sha256.New().(state)} }}

// keyState returns the state of the hash after one block: the key combined with pad.
func keyState(key []byte, pad byte) []byte {
	var block [sha256.BlockSize]byte
	copy(block[:], key)
	for i := range block {
		block[i] ^= pad
	}
	h := sha256.New().(state)
	h.Write(block[:])
	b, err := h.MarshalBinary()
	if err != nil {
		panic("crypt: SHA-256 cannot save its state: " + err.Error())
	}
	return b
}

func (h *macHash) load(state []byte) {
	if err := h.sha.UnmarshalBinary(state); err != nil {
		panic("crypt: SHA-256 cannot restore its state: " + err.Error())
	}
}

// mac appends the HMAC-SHA256 of msg to dst.
func (c *Crypticle) mac(h *macHash, dst, msg []byte) []byte {
	h.load(c.inner)
	h.sha.Write(msg)
	sum := h.sha.Sum(h.sum[:0])
	h.load(c.outer)
	h.sha.Write(sum)
	return h.sha.Sum(dst)
}

// NewCrypticle returns the Crypticle of a key. White space around the key is ignored. The error is
// ErrKey.
func NewCrypticle(key string) (*Crypticle, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(key))
	if err != nil {
		return nil, fmt.Errorf("%w: a symmetric key must be base64", ErrKey)
	}
	if len(raw) != aesKeySize+hmacKeySize {
		return nil, fmt.Errorf("%w: a symmetric key has %d bytes, not %d", ErrKey, aesKeySize+hmacKeySize, len(raw))
	}
	block, err := aes.NewCipher(raw[:aesKeySize])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return &Crypticle{block: block, inner: keyState(raw[aesKeySize:], 0x36), outer: keyState(raw[aesKeySize:], 0x5c)}, nil
}

// Encrypt returns the ciphertext of plain under a random IV.
func (c *Crypticle) Encrypt(plain []byte) []byte {
	var iv [ivSize]byte
	rand.Read(iv[:]) // never fails
	return c.encrypt(iv, "", "", plain)
}

// Seal encrypts a payload in the form of the protocol. Replies have a nonce; in requests it is
// empty.
func (c *Crypticle) Seal(payload []byte, nonce string) []byte {
	var iv [ivSize]byte
	rand.Read(iv[:]) // never fails
	return c.encrypt(iv, prefix, nonce, payload)
}

// AppendSealed is Seal for a payload that fill appends, which avoids copies. It appends to dst, and
// returns dst unchanged if fill fails.
func (c *Crypticle) AppendSealed(dst []byte, nonce string, fill func([]byte) ([]byte, error)) ([]byte, error) {
	var iv [ivSize]byte
	rand.Read(iv[:]) // never fails
	out := append(dst, iv[:]...)
	out = append(out, prefix...)
	out, err := fill(append(out, nonce...))
	if err != nil {
		return dst, err
	}
	return c.finish(out, len(dst)), nil
}

// encrypt encrypts the concatenation of three parts without joining them first.
func (c *Crypticle) encrypt(iv [ivSize]byte, pre, nonce string, payload []byte) []byte {
	n := len(pre) + len(nonce) + len(payload)
	pad := aes.BlockSize - n%aes.BlockSize
	out := make([]byte, 0, ivSize+n+pad+macSize)
	out = append(out, iv[:]...)
	out = append(out, pre...)
	out = append(out, nonce...)
	return c.finish(append(out, payload...), 0)
}

// finish pads and encrypts in place the data after the IV, which begins at from, and appends the
// HMAC.
func (c *Crypticle) finish(out []byte, from int) []byte {
	pad := aes.BlockSize - (len(out)-from)%aes.BlockSize // the IV is a whole block
	for range pad {
		out = append(out, byte(pad))
	}
	iv, body := out[from:from+ivSize], out[from+ivSize:]
	cipher.NewCBCEncrypter(c.block, iv).CryptBlocks(body, body)
	h := macHashes.Get().(*macHash)
	defer macHashes.Put(h)
	return c.mac(h, out, out[from:])
}

// Decrypt returns the plaintext of b, which stays unchanged. It decrypts only authentic data: the
// error is ErrAuth, or ErrFormat for bad padding.
func (c *Crypticle) Decrypt(b []byte) ([]byte, error) {
	return c.decrypt(b, func(n int) []byte { return make([]byte, n) })
}

// decrypt writes the plaintext to the space that it allocates with the given function.
func (c *Crypticle) decrypt(b []byte, space func(n int) []byte) ([]byte, error) {
	if len(b) < macSize || !c.authentic(b) {
		return nil, ErrAuth
	}
	b = b[:len(b)-macSize]
	if len(b) < ivSize+aes.BlockSize || len(b)%aes.BlockSize != 0 {
		return nil, fmt.Errorf("%w: not a whole number of blocks", ErrFormat)
	}
	plain := space(len(b) - ivSize)
	cipher.NewCBCDecrypter(c.block, b[:ivSize]).CryptBlocks(plain, b[ivSize:])

	// The data is authentic, so an early exit reveals nothing.
	pad := int(plain[len(plain)-1])
	if pad == 0 || pad > aes.BlockSize {
		return nil, fmt.Errorf("%w: bad padding", ErrFormat)
	}
	n := len(plain) - pad
	for _, p := range plain[n:] {
		if int(p) != pad {
			return nil, fmt.Errorf("%w: bad padding", ErrFormat)
		}
	}
	return plain[:n:n], nil
}

func (c *Crypticle) authentic(b []byte) bool {
	h := macHashes.Get().(*macHash)
	defer macHashes.Put(h)
	return hmac.Equal(c.mac(h, h.sum[:0], b[:len(b)-macSize]), b[len(b)-macSize:])
}

// Open decrypts what Seal made without a nonce: a request or a publication.
// The errors are those of Decrypt, and ErrFormat when the prefix is missing.
func (c *Crypticle) Open(b []byte) (payload []byte, err error) {
	return unprefixed(c.Decrypt(b))
}

// OpenInPlace is Open for a message that is not used afterwards: the payload is a part of b. A
// message that is not authentic stays unchanged.
func (c *Crypticle) OpenInPlace(b []byte) (payload []byte, err error) {
	return unprefixed(c.decrypt(b, func(n int) []byte { return b[ivSize : ivSize+n] }))
}

func unprefixed(plain []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	if len(plain) < len(prefix) || string(plain[:len(prefix)]) != prefix {
		return nil, fmt.Errorf("%w: no %q", ErrFormat, prefix)
	}
	return plain[len(prefix):], nil
}

// OpenNonce decrypts a reply to the request that had this nonce. The errors
// are those of Open, and ErrNonce. With an empty nonce it is Open.
func (c *Crypticle) OpenNonce(b []byte, nonce string) (payload []byte, err error) {
	payload, err = c.Open(b)
	if err != nil {
		return nil, err
	}
	if len(payload) < len(nonce) || subtle.ConstantTimeCompare(payload[:len(nonce)], []byte(nonce)) != 1 {
		return nil, ErrNonce
	}
	return payload[len(nonce):], nil
}
