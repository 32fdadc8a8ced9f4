package crypt

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"hash"
)

// Fingerprint returns the fingerprint of a key file: the hash of the lines between the first and
// the last, in hexadecimal with colons. hashType is md5, sha1, sha224, sha256 (Salt's default),
// sha384 or sha512; for any other the result is empty.
func Fingerprint(pem []byte, hashType string) string {
	h := NewHash(hashType)
	if h == nil {
		return ""
	}
	var lines [][]byte
	for line := range bytes.Lines(pem) {
		if len(bytes.TrimSpace(line)) > 0 {
			lines = append(lines, line)
		}
	}
	if len(lines) > 2 {
		for _, line := range lines[1 : len(lines)-1] {
			h.Write(bytes.ReplaceAll(line, []byte("\r\n"), []byte("\n")))
		}
	}
	sum := h.Sum(nil)
	out := make([]byte, 0, 3*len(sum))
	for i, b := range sum {
		if i > 0 {
			out = append(out, ':')
		}
		out = hex.AppendEncode(out, []byte{b})
	}
	return string(out)
}

// NewHash returns the hash with a name, such as "sha256", or nil.
func NewHash(name string) hash.Hash {
	switch name {
	case "md5":
		return md5.New()
	case "sha1":
		return sha1.New()
	case "sha224":
		return sha256.New224()
	case "sha256":
		return sha256.New()
	case "sha384":
		return sha512.New384()
	case "sha512":
		return sha512.New()
	}
	return nil
}
