// Package crypt is Salt's cryptography: bytes in, bytes out. It knows no
// msgpack, no message and no socket.
//
// A Crypticle is the symmetric half. Its key is standard base64 of 56
// bytes: 24 of AES-192 key, then 32 of HMAC-SHA256 key.
//
//	ciphertext = iv(16) || AES-CBC(plaintext, PKCS#7 padding) || HMAC(iv || cbc)(32)
//	plaintext  = "pickle::" || nonce || payload
//
// The nonce is there only in replies, where both sides know it.
//
// PrivateKey and PublicKey are the RSA half: OAEP to hand over such keys,
// PKCS#1 v1.5 signatures, and signatures from which the message is recovered
// (ANSI X9.31 padding, no hash):
//
//	block     = 6B || BB ... BB || BA || message || CC    as long as the modulus
//	signature = min(s, n-s) where s = block^d mod n
//
// Keys and Crypticles are immutable and safe for concurrent use. Errors match
// one of the Err variables; none of them contains a secret.
package crypt

import "errors"

var (
	// ErrAuth reports a ciphertext of another key, or a changed one.
	ErrAuth = errors.New("message authentication failed")
	// ErrFormat reports an authentic ciphertext that is not in Salt's format: bad padding or no
	// prefix.
	ErrFormat = errors.New("malformed plaintext")
	// ErrNonce reports an authentic reply that does not belong to the request.
	ErrNonce = errors.New("the nonces of request and reply differ")
	// ErrKey reports a key that cannot be read or must not be used.
	ErrKey = errors.New("invalid key")
	// ErrPassphrase reports an encrypted private key with a missing or wrong passphrase.
	ErrPassphrase = errors.New("the private key is encrypted and the passphrase is missing or wrong")
	// ErrUnsupportedAlgorithm reports an algorithm that Salt does not have for this purpose.
	ErrUnsupportedAlgorithm = errors.New("unsupported algorithm")
	// ErrDecrypt reports a message that was not encrypted for this RSA key.
	ErrDecrypt = errors.New("cannot decrypt the message with this key")
	// ErrSignature reports a wrong signature.
	ErrSignature = errors.New("wrong signature")
	// ErrTooLong reports a message that is too long for the RSA key.
	ErrTooLong = errors.New("the message is too long for the key")
)
