package record

import (
	"bytes"
	"compress/flate"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// sealer encrypts and authenticates rows. A row is bound to its name, so that no row can take the
// place of another one.
type sealer struct {
	aead cipher.AEAD
	// id names the secret, and is part of the names of all rows: masters with another secret have
	// other rows.
	id string
}

// The bytes of a sealed row: the version of the format, flags, a nonce, the ciphertext.
const (
	sealVersion = 1
	sealHead    = 2
)

// Flags of a row.
const (
	flagPacked    = 1 << iota // the content is compressed
	flagTombstone             // the entry is a deletion
	flagParts                 // the content is in further rows
)

// Bounds in bytes. Contents of at least packFrom are compressed. maxContent is more than any record,
// job or return can have.
const (
	packFrom   = 1 << 10
	maxContent = 128 << 20
)

// newSealer derives the keys from the secret of the store and the name of the cluster.
func newSealer(secret, cluster string) (*sealer, error) {
	derived, err := hkdf.Key(sha256.New, []byte(secret), []byte(cluster), "brine store of record", 32+8)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(derived[:32])
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &sealer{aead: aead, id: hex.EncodeToString(derived[32:])}, err
}

// seal returns the value of a row.
func (s *sealer) seal(name string, flags byte, content []byte) ([]byte, error) {
	if len(content) >= packFrom {
		var b bytes.Buffer
		w, err := flate.NewWriter(&b, flate.BestSpeed)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		if b.Len() < len(content) {
			content, flags = b.Bytes(), flags|flagPacked
		}
	}
	out := make([]byte, sealHead+s.aead.NonceSize(), sealHead+s.aead.NonceSize()+len(content)+s.aead.Overhead())
	out[0], out[1] = sealVersion, flags
	rand.Read(out[sealHead:])
	return s.aead.Seal(out, out[sealHead:], content, additional(name, flags)), nil
}

func additional(name string, flags byte) []byte { return append([]byte{sealVersion, flags}, name...) }

// errSealed is the error for a row that was not written with the secret of this master.
var errSealed = errors.New("it was damaged, moved, or not written by a master with this store_of_record_secret")

// open is the reverse of seal.
func (s *sealer) open(name string, row []byte) (flags byte, content []byte, err error) {
	head := sealHead + s.aead.NonceSize()
	if len(row) < head {
		return 0, nil, errSealed
	}
	if row[0] != sealVersion {
		return 0, nil, fmt.Errorf("its format %d is unknown: is another master of a newer version?", row[0])
	}
	flags = row[1]
	content, err = s.aead.Open(nil, row[sealHead:head], row[head:], additional(name, flags))
	if err != nil {
		return 0, nil, errSealed
	}
	if flags&flagPacked != 0 {
		r := flate.NewReader(bytes.NewReader(content))
		content, err = io.ReadAll(io.LimitReader(r, maxContent+1))
		if err == nil && len(content) > maxContent {
			err = errors.New("its content is too large")
		}
		if err != nil {
			return 0, nil, err
		}
	}
	return flags, content, nil
}
