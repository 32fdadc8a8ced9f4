package crypt

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/des"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"hash"
)

// pkcs8Convert is the advice for an unsupported form.
const pkcs8Convert = "convert it with `openssl rsa -traditional -aes256`"

// maxIterations bounds the work that a file may cause: some seconds. OpenSSL uses 2,048.
const maxIterations = 3_000_000

// Object identifiers of RFC 8018 (PBES2, PBKDF2) and of the algorithms used with them.
var (
	oidPBES2  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 13}
	oidPBKDF2 = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 12}

	pbkdf2Hashes = map[string]func() hash.Hash{
		"1.2.840.113549.2.7": sha1.New, "1.2.840.113549.2.8": sha256.New224, "1.2.840.113549.2.9": sha256.New,
		"1.2.840.113549.2.10": sha512.New384, "1.2.840.113549.2.11": sha512.New,
	}
	pbes2Ciphers = map[string]struct {
		size int
		make func(key []byte) (cipher.Block, error)
	}{
		"2.16.840.1.101.3.4.1.2": {16, aes.NewCipher}, "2.16.840.1.101.3.4.1.22": {24, aes.NewCipher}, "2.16.840.1.101.3.4.1.42": {32, aes.NewCipher},
		"1.2.840.113549.3.7": {24, des.NewTripleDESCipher},
	}
)

// decryptPKCS8 returns the PrivateKeyInfo in an EncryptedPrivateKeyInfo (RFC 5958), encrypted by
// PBES2 with PBKDF2 and a cipher in CBC mode, as OpenSSL and Python's cryptography write it.
func decryptPKCS8(der []byte, passphrase string) ([]byte, error) {
	var outer struct {
		Algorithm pkix.AlgorithmIdentifier
		Data      []byte
	}
	if passphrase == "" {
		return nil, ErrPassphrase
	}
	if err := unmarshalAll(der, &outer); err != nil {
		return nil, err
	}
	return DecryptPBES2(outer.Algorithm, outer.Data, passphrase)
}

// DecryptPKCS8 returns the PrivateKeyInfo in an EncryptedPrivateKeyInfo. The error is ErrPassphrase or ErrKey.
func DecryptPKCS8(der []byte, passphrase string) ([]byte, error) {
	return decryptPKCS8(der, passphrase)
}

// EncryptPKCS8 makes an EncryptedPrivateKeyInfo of a PrivateKeyInfo.
func EncryptPKCS8(der []byte, passphrase string) ([]byte, error) {
	algorithm, data, err := EncryptPBES2(der, passphrase)
	if err != nil {
		return nil, err
	}
	return asn1.Marshal(struct {
		Algorithm pkix.AlgorithmIdentifier
		Data      []byte
	}{algorithm, data})
}

// EncryptPBES2 encrypts by PBES2 with PBKDF2 (HMAC-SHA-256) and AES-256 in CBC mode, as OpenSSL does.
func EncryptPBES2(plain []byte, passphrase string) (algorithm pkix.AlgorithmIdentifier, data []byte, err error) {
	const iterations = 20_000 // the file may be attacked for long, and each use of the key costs this
	salt, iv := make([]byte, 16), make([]byte, aes.BlockSize)
	rand.Read(salt) // never fails
	rand.Read(iv)
	key, err := pbkdf2.Key(sha256.New, passphrase, salt, iterations, 32)
	if err != nil {
		return algorithm, nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return algorithm, nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	pad := aes.BlockSize - len(plain)%aes.BlockSize
	data = append(bytes.Clone(plain), bytes.Repeat([]byte{byte(pad)}, pad)...)
	cipher.NewCBCEncrypter(block, iv).CryptBlocks(data, data)
	kdf, err := asn1.Marshal(struct {
		Salt       []byte
		Iterations int
		PRF        pkix.AlgorithmIdentifier
	}{salt, iterations, pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 2, 9}, Parameters: asn1.NullRawValue}})
	if err != nil {
		return algorithm, nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	vector, err := asn1.Marshal(iv)
	if err != nil {
		return algorithm, nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	scheme, err := asn1.Marshal(struct{ KDF, Cipher pkix.AlgorithmIdentifier }{
		pkix.AlgorithmIdentifier{Algorithm: oidPBKDF2, Parameters: asn1.RawValue{FullBytes: kdf}},
		pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 1, 42}, Parameters: asn1.RawValue{FullBytes: vector}},
	})
	if err != nil {
		return algorithm, nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return pkix.AlgorithmIdentifier{Algorithm: oidPBES2, Parameters: asn1.RawValue{FullBytes: scheme}}, data, nil
}

// DecryptPBES2 decrypts what PBES2 encrypted: one value in DER. The error is ErrPassphrase or ErrKey.
func DecryptPBES2(algorithm pkix.AlgorithmIdentifier, data []byte, passphrase string) ([]byte, error) {
	if passphrase == "" {
		return nil, ErrPassphrase
	}
	var scheme struct{ KDF, Cipher pkix.AlgorithmIdentifier }
	var kdf struct {
		Salt       []byte
		Iterations int
		KeyLength  int                      `asn1:"optional"`
		PRF        pkix.AlgorithmIdentifier `asn1:"optional"`
	}
	var iv []byte
	if !algorithm.Algorithm.Equal(oidPBES2) {
		return nil, fmt.Errorf("%w: encrypted PKCS#8 by %v instead of PBES2; %s", ErrKey, algorithm.Algorithm, pkcs8Convert)
	}
	if err := unmarshalAll(algorithm.Parameters.FullBytes, &scheme); err != nil {
		return nil, err
	}
	if !scheme.KDF.Algorithm.Equal(oidPBKDF2) {
		return nil, fmt.Errorf("%w: encrypted PKCS#8 with %v instead of PBKDF2; %s", ErrKey, scheme.KDF.Algorithm, pkcs8Convert)
	}
	if err := unmarshalAll(scheme.KDF.Parameters.FullBytes, &kdf); err != nil {
		return nil, err
	}
	if err := unmarshalAll(scheme.Cipher.Parameters.FullBytes, &iv); err != nil {
		return nil, err
	}
	newHash := sha1.New // the default of the format
	if len(kdf.PRF.Algorithm) > 0 {
		newHash = pbkdf2Hashes[kdf.PRF.Algorithm.String()]
	}
	c, ok := pbes2Ciphers[scheme.Cipher.Algorithm.String()]
	if newHash == nil || !ok {
		return nil, fmt.Errorf("%w: encrypted PKCS#8 with the hash %v and the cipher %v; %s", ErrKey, kdf.PRF.Algorithm, scheme.Cipher.Algorithm,
			pkcs8Convert)
	}
	if kdf.Iterations < 1 || kdf.Iterations > maxIterations || kdf.KeyLength != 0 && kdf.KeyLength != c.size {
		return nil, fmt.Errorf("%w: encrypted PKCS#8 with %d iterations (at most %d) and a key of %d bytes; %s", ErrKey, kdf.Iterations, maxIterations,
			kdf.KeyLength, pkcs8Convert)
	}
	key, err := pbkdf2.Key(newHash, passphrase, kdf.Salt, kdf.Iterations, c.size)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	block, err := c.make(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	size := block.BlockSize()
	if len(iv) != size || len(data) == 0 || len(data)%size != 0 {
		return nil, fmt.Errorf("%w: encrypted PKCS#8 with %d bytes and a vector of %d", ErrKey, len(data), len(iv))
	}
	plain := make([]byte, len(data))
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(plain, data)
	// With a wrong passphrase there is no valid padding, or by chance no valid key.
	pad := int(plain[len(plain)-1])
	if pad == 0 || pad > size {
		return nil, ErrPassphrase
	}
	for _, b := range plain[len(plain)-pad:] {
		if int(b) != pad {
			return nil, ErrPassphrase
		}
	}
	plain = plain[:len(plain)-pad]
	var info asn1.RawValue
	if rest, err := asn1.Unmarshal(plain, &info); err != nil || len(rest) > 0 {
		return nil, ErrPassphrase
	}
	return plain, nil
}

// unmarshalAll reads DER without trailing data.
func unmarshalAll(der []byte, v any) error {
	rest, err := asn1.Unmarshal(der, v)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d trailing bytes", len(rest))
	}
	if err != nil {
		return fmt.Errorf("%w: encrypted PKCS#8: %w", ErrKey, err)
	}
	return nil
}
