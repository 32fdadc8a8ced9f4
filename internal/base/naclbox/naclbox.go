// Package naclbox encrypts texts with the boxes of NaCl in the formats of Salt's module nacl: base64
// of libsodium's sealed box (crypto_box_seal), or of a secret box whose nonce comes first.
package naclbox

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/curve25519"
	"golang.org/x/crypto/nacl/box"
	"golang.org/x/crypto/nacl/secretbox"

	"brine/internal/py/value"
)

// Sealed and Secret are the types of boxes: for a pair of keys, and for one key.
const (
	Sealed = "sealedbox"
	Secret = "secretbox"
)

const keySize, nonceSize = 32, 24

// Config says which box is used and where its keys are. A key is base64 of 32 bytes.
type Config struct {
	// BoxType is Sealed or Secret.
	BoxType string
	// SK and PK are the secret and the public key; if empty, they are read from files.
	SK, PK         string
	SKFile, PKFile string
}

// New reads the option nacl.config, which may be nil, and the keywords of a call, which go before it.
// pkiDir has the default files of keys.
func New(option, keywords *value.Dict, pkiDir string) Config {
	c := Config{BoxType: Sealed, SKFile: filepath.Join(pkiDir, "master/nacl"), PKFile: filepath.Join(pkiDir, "master/nacl.pub")}
	for _, d := range []*value.Dict{option, keywords} {
		for name, field := range map[string]*string{"box_type": &c.BoxType, "sk": &c.SK, "sk_file": &c.SKFile, "pk": &c.PK, "pk_file": &c.PKFile} {
			if !d.Has(name) {
				continue
			}
			*field = ""
			if v := d.At(name); v != nil {
				*field = text(v)
			}
		}
	}
	// Both words are from before there were sealed boxes.
	for old, field := range map[string]*string{"keyfile": &c.SKFile, "key": &c.SK} {
		if keywords.Has(old) {
			*field, c.BoxType = text(keywords.At(old)), Secret
		}
	}
	return c
}

func text(v any) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return value.Str(v)
}

// Encrypt returns base64 of an encrypted text.
func (c Config) Encrypt(plain []byte) ([]byte, error) {
	var out []byte
	switch c.BoxType {
	case Sealed:
		pk, err := publicKey(c)
		if err != nil {
			return nil, err
		}
		if out, err = box.SealAnonymous(nil, plain, &pk, rand.Reader); err != nil {
			return nil, err
		}
	case Secret:
		sk, err := secretKey(c)
		if err != nil {
			return nil, err
		}
		var nonce [nonceSize]byte
		if _, err := rand.Read(nonce[:]); err != nil {
			return nil, err
		}
		out = secretbox.Seal(nonce[:], plain, &nonce, &sk)
	default:
		return nil, c.badType()
	}
	return base64.StdEncoding.AppendEncode(nil, out), nil
}

// Decrypt returns the text of what Encrypt, or Salt, has made with the same keys.
func (c Config) Decrypt(encrypted []byte) ([]byte, error) {
	if c.BoxType != Sealed && c.BoxType != Secret {
		return nil, c.badType()
	}
	data, err := decode(string(encrypted))
	if err != nil {
		return nil, fmt.Errorf("this is no encrypted text: %w", err)
	}
	sk, err := secretKey(c)
	if err != nil {
		return nil, err
	}
	least := nonceSize + secretbox.Overhead
	if c.BoxType == Sealed {
		least = box.AnonymousOverhead
	}
	if len(data) < least {
		return nil, fmt.Errorf("an encrypted text has at least %d bytes, this one %d", least, len(data))
	}
	if c.BoxType == Sealed {
		pk := public(sk)
		if plain, ok := box.OpenAnonymous(nil, data, &pk, &sk); ok {
			return plain, nil
		}
		return nil, errWrong
	}
	if plain, ok := secretbox.Open(nil, data[nonceSize:], (*[nonceSize]byte)(data), &sk); ok {
		return plain, nil
	}
	return nil, errWrong
}

var errWrong = errors.New("the text cannot be decrypted: it is damaged, or was encrypted for another key or as another box_type")

func (c Config) badType() error {
	return fmt.Errorf("box_type is %q; it must be %s or %s", c.BoxType, Sealed, Secret)
}

// Pair is a new pair of keys, as base64.
type Pair struct{ Secret, Public []byte }

// NewPair makes keys. The secret one is for both types of boxes.
func NewPair() (Pair, error) {
	pk, sk, err := box.GenerateKey(rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Secret: encode(*sk), Public: encode(*pk)}, nil
}

// PublicOf returns the public key of a file with a secret one.
func PublicOf(path string) ([]byte, error) {
	sk, err := secretKey(Config{SKFile: path})
	if err != nil {
		return nil, err
	}
	return encode(public(sk)), nil
}

func public(sk [keySize]byte) (pk [keySize]byte) {
	curve25519.ScalarBaseMult(&pk, &sk)
	return pk
}

func encode(key [keySize]byte) []byte { return base64.StdEncoding.AppendEncode(nil, key[:]) }

func secretKey(c Config) ([keySize]byte, error) {
	return key(c.SK, c.SKFile, "no key or sk_file found", "sk")
}

func publicKey(c Config) ([keySize]byte, error) {
	return key(c.PK, c.PKFile, "no pubkey or pk_file found", "pk")
}

// maxFile bounds what is read of a file of a key.
const maxFile = 4096

func key(given, file, none, name string) (key [keySize]byte, err error) {
	where := name
	if given == "" {
		if file == "" {
			return key, errors.New(none)
		}
		where = file
		info, err := os.Stat(file)
		if err != nil {
			return key, fmt.Errorf("%s: %w", none, err)
		}
		if !info.Mode().IsRegular() || info.Size() > maxFile {
			return key, fmt.Errorf("%s is no file of a key", file)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return key, fmt.Errorf("%s: %w", none, err)
		}
		given = string(b)
	}
	b, err := decode(given)
	if err != nil {
		return key, fmt.Errorf("the key of %s is not base64: %w", where, err)
	}
	if len(b) != keySize {
		return key, fmt.Errorf("the key of %s has %d bytes instead of %d", where, len(b), keySize)
	}
	return [keySize]byte(b), nil
}

// decode leaves out what is not of base64's alphabet, as Python does: YAML folds long texts.
func decode(s string) ([]byte, error) {
	return base64.StdEncoding.DecodeString(strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '+' || r == '/' || r == '=' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') {
			return r
		}
		return -1
	}, s))
}
