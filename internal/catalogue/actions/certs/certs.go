// Package certs makes, reads and compares X.509 certificates, signing requests
// and revocation lists for the execution module and the states x509. Names and
// extensions are given in Salt's strings and maps.
//
// It encodes and decodes DER itself. crypto/x509 does not let a caller choose
// the order of names and the form of every extension, and refuses certificates
// that its own verifier would not use.
package certs

import (
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/big"
	"os"
	"strings"
	"time"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// TimeFormat is the format of dates in arguments and results. They are UTC.
const TimeFormat = "2006-01-02 15:04:05"

// maxSource bounds the size of a file that is read, in bytes.
const maxSource = 8 << 20

// Source returns the bytes that an argument stands for: the path of a file, PEM,
// hexadecimal digits, base64, or the bytes themselves.
func Source(v any) ([]byte, error) {
	if s, ok := v.(string); ok && isFile(s) {
		return readFile(s)
	}
	return Inline(v)
}

// Inline is Source for arguments from other machines: they cannot name a file of
// this machine.
func Inline(v any) ([]byte, error) {
	switch x := v.(type) {
	case []byte:
		return x, nil
	case string:
		if b, ok := strings.CutPrefix(x, "b64:"); ok {
			if out, err := fromBase64(b); err == nil {
				return out, nil
			}
			break
		}
		if strings.Contains(x, "-----BEGIN") {
			return []byte(x), nil
		}
		if out, err := hex.DecodeString(strings.Join(strings.Fields(x), "")); err == nil {
			return out, nil
		}
		if out, err := fromBase64(x); err == nil {
			return out, nil
		}
	}
	return nil, fn.Invalidf("Could not load provided source. You need to pass an existing file, (PEM|hex|base64)-encoded string or raw bytes.")
}

func fromBase64(s string) ([]byte, error) {
	return base64.StdEncoding.DecodeString(strings.Join(strings.Fields(s), ""))
}

// IsFile reports whether an argument names a file of this machine.
func IsFile(v any) bool { s, ok := v.(string); return ok && isFile(s) }

func isFile(s string) bool {
	if s == "" || strings.ContainsAny(s, "\x00\n") {
		return false
	}
	fi, err := os.Stat(s)
	return err == nil && fi.Mode().IsRegular()
}

func readFile(path string) ([]byte, error) {
	fi, err := os.Stat(path)
	if err == nil && fi.Size() > maxSource {
		return nil, fn.Errorf("%s is larger than %d bytes", path, maxSource)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return b, nil
}

// Hex formats bytes as pairs of hexadecimal digits separated by colons.
func Hex(b []byte) string {
	parts := make([]string, len(b))
	for i, c := range b {
		parts[i] = fmt.Sprintf("%02X", c)
	}
	return strings.Join(parts, ":")
}

// SerialHex formats a serial number as Hex does.
func SerialHex(n *big.Int) string {
	if n.Sign() == 0 {
		return "00"
	}
	if n.Sign() < 0 {
		return "-" + Hex(new(big.Int).Neg(n).Bytes())
	}
	return Hex(n.Bytes())
}

// ParseTime reads a date.
func ParseTime(v any) (time.Time, error) {
	s, ok := v.(string)
	if !ok {
		s = value.Str(v)
	}
	t, err := time.Parse("2006-1-2 15:4:5", s)
	if err != nil {
		return t, fn.Invalidf("time data '%s' does not match format '%%Y-%%m-%%d %%H:%%M:%%S'", s)
	}
	return t, nil
}

// parseOID reads an object identifier.
func parseOID(v any) (asn1.ObjectIdentifier, error) {
	s := value.Str(v)
	parts := strings.Split(s, ".")
	id := make(asn1.ObjectIdentifier, 0, len(parts))
	for _, p := range parts {
		var n int
		if len(p) == 0 || len(p) > 9 {
			return nil, fn.Errorf("Invalid oid: %s", s)
		}
		for _, c := range p {
			if c < '0' || c > '9' {
				return nil, fn.Errorf("Invalid oid: %s", s)
			}
			n = n*10 + int(c-'0')
		}
		id = append(id, n)
	}
	if len(id) < 2 || id[0] > 2 || id[0] < 2 && id[1] > 39 {
		return nil, fn.Errorf("Invalid oid: %s", s)
	}
	return id, nil
}

func oid(s string) asn1.ObjectIdentifier {
	id, err := parseOID(s)
	if err != nil {
		panic("certs: " + err.Error())
	}
	return id
}

// must marshals values whose marshalling cannot fail; it panics otherwise.
func must(v any, params string) []byte {
	b, err := asn1.MarshalWithParams(v, params)
	if err != nil {
		panic("certs: " + err.Error())
	}
	return b
}

// unmarshal reads DER without trailing data.
func unmarshal(der []byte, v any) error {
	rest, err := asn1.Unmarshal(der, v)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return fmt.Errorf("%d trailing bytes", len(rest))
	}
	return nil
}

// tagged wraps content in a tag of the context class.
func tagged(tag int, compound bool, content []byte) asn1.RawValue {
	return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tag, IsCompound: compound, Bytes: content}
}

func sequence(content []byte) []byte {
	return must(asn1.RawValue{Tag: asn1.TagSequence, IsCompound: true, Bytes: content}, "")
}
