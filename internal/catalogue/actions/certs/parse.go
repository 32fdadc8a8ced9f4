package certs

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"slices"
	"time"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// signed is the common part of certificates, requests and lists.
type signed struct {
	DER       []byte
	body      []byte
	algorithm pkix.AlgorithmIdentifier
	signature []byte
}

func parseSigned(der []byte, body any) (signed, error) {
	var outer struct {
		Body      asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}
	if err := unmarshal(der, &outer); err != nil {
		return signed{}, err
	}
	return signed{der, outer.Body.FullBytes, outer.Algorithm, outer.Signature.RightAlign()}, unmarshal(outer.Body.FullBytes, body)
}

// Digest returns the name of the signature's hash, "" if there is none or it is unknown.
func (s *signed) Digest() string { return algorithm(s.algorithm.Algorithm).digest }

// SignedBy reports whether the signature was made with the private key of spki.
func (s *signed) SignedBy(spki []byte) (bool, error) {
	return verify(spki, s.algorithm, s.body, s.signature)
}

// Certificate is a certificate.
type Certificate struct {
	signed
	Version             int
	Serial              *big.Int
	Subject, Issuer     Name
	rawSubject          []byte
	rawIssuer           []byte
	NotBefore, NotAfter time.Time
	PublicKey           []byte // as SubjectPublicKeyInfo
	Extensions          []Extension
}

func parseCertificate(der []byte) (*Certificate, error) {
	var body struct {
		Version       int `asn1:"optional,explicit,default:0,tag:0"`
		Serial        *big.Int
		Algorithm     pkix.AlgorithmIdentifier
		Issuer        asn1.RawValue
		Validity      struct{ NotBefore, NotAfter time.Time }
		Subject       asn1.RawValue
		PublicKey     asn1.RawValue
		IssuerUnique  asn1.BitString `asn1:"optional,tag:1"`
		SubjectUnique asn1.BitString `asn1:"optional,tag:2"`
		Extensions    []Extension    `asn1:"omitempty,optional,explicit,tag:3"`
	}
	s, err := parseSigned(der, &body)
	if err != nil {
		return nil, err
	}
	c := &Certificate{signed: s, Version: body.Version, Serial: body.Serial, rawSubject: body.Subject.FullBytes, rawIssuer: body.Issuer.FullBytes,
		NotBefore: body.Validity.NotBefore.UTC(), NotAfter: body.Validity.NotAfter.UTC(), PublicKey: body.PublicKey.FullBytes, Extensions: body.Extensions}
	if c.Subject, err = decodeName(c.rawSubject); err != nil {
		return nil, err
	}
	if c.Issuer, err = decodeName(c.rawIssuer); err != nil {
		return nil, err
	}
	return c, nil
}

// PEM returns the certificate as PEM.
func (c *Certificate) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.DER})
}

// CertificateFile is the content of a file or argument with certificates.
type CertificateFile struct {
	*Certificate
	// Chain are further certificates.
	Chain []*Certificate
	// Encoding is pem, der, pkcs7_pem, pkcs7_der or pkcs12.
	Encoding string
	// FriendlyName is the name in a PKCS#12 file, nil for none.
	FriendlyName *string
}

// Errors of certificates, which the states tell apart.
var (
	ErrPEMCertificate = fn.Errorf("Could not load PEM-encoded certificate.")
	ErrNoCertificate  = fn.Invalidf("Could not deserialize binary data, neither as DER nor PKCS#7, PKCS#12.")
)

// LoadCertificate reads a certificate.
func LoadCertificate(v any) (*Certificate, error) {
	f, err := LoadCertificates(v, nil)
	if err != nil {
		return nil, err
	}
	return f.Certificate, nil
}

// LoadCertificates reads a certificate and those that follow it in the same file.
func LoadCertificates(v any, passphrase *string) (*CertificateFile, error) {
	b, err := Source(v)
	if err != nil {
		return nil, err
	}
	return parseCertificates(b, passphrase)
}

func parseCertificates(b []byte, passphrase *string) (*CertificateFile, error) {
	if bytes.Contains(b, []byte("-----BEGIN")) {
		return parsePEMCertificates(b)
	}
	if c, err := parseCertificate(b); err == nil {
		return &CertificateFile{Certificate: c, Encoding: "der"}, nil
	}
	if all, err := parsePKCS7(b); err == nil {
		return &CertificateFile{Certificate: all[0], Chain: all[1:], Encoding: "pkcs7_der"}, nil
	}
	s, err := parseStore(b, passphrase)
	if err != nil || s.certificate == nil {
		return nil, ErrNoCertificate
	}
	return &CertificateFile{Certificate: s.certificate, Chain: s.chain, Encoding: "pkcs12", FriendlyName: s.name}, nil
}

func parsePEMCertificates(b []byte) (*CertificateFile, error) {
	var f *CertificateFile
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if f == nil && block.Type == "PKCS7" {
			all, err := parsePKCS7(block.Bytes)
			if err != nil {
				return nil, fn.Errorf("Could not load PEM-encoded PKCS#7 blob")
			}
			return &CertificateFile{Certificate: all[0], Chain: all[1:], Encoding: "pkcs7_pem"}, nil
		}
		c, err := parseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" && block.Type != "X509 CERTIFICATE" {
			err = errors.New("another type")
		}
		switch {
		case err != nil && f == nil:
			return nil, ErrPEMCertificate
		case err != nil:
			continue
		case f == nil:
			f = &CertificateFile{Certificate: c, Encoding: "pem"}
		default:
			f.Chain = append(f.Chain, c)
		}
	}
	if f == nil {
		return nil, ErrPEMCertificate
	}
	return f, nil
}

var (
	oidSignedData = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}
	oidData       = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}
)

// contentInfo is the outer structure of PKCS#7.
type contentInfo struct {
	Type asn1.ObjectIdentifier
	// Content is the tagged content; its Bytes are the content itself.
	Content asn1.RawValue `asn1:"optional"`
}

// parsePKCS7 returns the certificates of a PKCS#7 message without a signer.
func parsePKCS7(der []byte) ([]*Certificate, error) {
	var outer contentInfo
	if err := unmarshal(der, &outer); err != nil {
		return nil, err
	}
	if !outer.Type.Equal(oidSignedData) {
		return nil, errors.New("no signed data")
	}
	parts, err := fields(outer.Content.Bytes)
	if err != nil {
		return nil, err
	}
	var all []*Certificate
	for _, p := range parts {
		if p.Class != asn1.ClassContextSpecific || p.Tag != 0 {
			continue
		}
		certificates, err := split(p.Bytes)
		if err != nil {
			return nil, err
		}
		for _, der := range certificates {
			c, err := parseCertificate(der.FullBytes)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
	}
	if all == nil {
		return nil, errors.New("no certificates")
	}
	return all, nil
}

// encodePKCS7 encodes certificates as a PKCS#7 message without a signer.
func encodePKCS7(all []*Certificate) []byte {
	parts := make([][]byte, len(all))
	for i, c := range all {
		parts[i] = c.DER
	}
	slices.SortFunc(parts, bytes.Compare) // DER sorts the elements of a set
	set := asn1.RawValue{Tag: asn1.TagSet, IsCompound: true}
	body := must(1, "")
	body = append(body, must(set, "")...)
	body = append(body, dataPart(nil)...)
	body = append(body, must(tagged(0, true, bytes.Join(parts, nil)), "")...)
	body = append(body, must(set, "")...)
	return sequence(append(must(oidSignedData, ""), must(tagged(0, true, sequence(body)), "")...))
}

// EncodeCertificates encodes a certificate and the chain that follows it.
func EncodeCertificates(c *Certificate, chain []*Certificate, encoding string) ([]byte, error) {
	all := append([]*Certificate{c}, chain...)
	switch encoding {
	case "der":
		return c.DER, nil
	case "pem":
		out := c.PEM()
		for _, x := range chain {
			out = append(append(out, '\n'), x.PEM()...)
		}
		return out, nil
	case "pkcs7_der":
		return encodePKCS7(all), nil
	case "pkcs7_pem":
		return pem.EncodeToMemory(&pem.Block{Type: "PKCS7", Bytes: encodePKCS7(all)}), nil
	}
	return nil, fn.Errorf("Invalid value '%s' for encoding. Valid: der, pem, pkcs7_der, pkcs7_pem, pkcs12", encoding)
}

// Read describes the certificate as a map.
func (c *Certificate) Read() (*value.Dict, error) {
	pub, err := x509.ParsePKIXPublicKey(c.PublicKey)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	kind, size := KeyType(pub)
	md, s1, s256 := md5.Sum(c.DER), sha1.Sum(c.DER), sha256.Sum256(c.DER)
	return value.DictOf("version", int64(c.Version+1), "key_size", sizeOf(size), "key_type", orNull(kind), "serial_number", SerialHex(c.Serial),
		"fingerprints", value.DictOf("sha1", Hex(s1[:]), "sha256", Hex(s256[:]), "md5", Hex(md[:])),
		"subject", c.Subject.Dict(), "subject_hash", nameHash(c.rawSubject), "subject_str", c.Subject.String(),
		"issuer", c.Issuer.Dict(), "issuer_hash", nameHash(c.rawIssuer), "issuer_str", c.Issuer.String(),
		"not_before", c.NotBefore.Format(TimeFormat), "not_after", c.NotAfter.Format(TimeFormat), "public_key", PublicPEM(c.PublicKey),
		"extensions", show(c.Extensions, false), "signature_algorithm", algorithm(c.signed.algorithm.Algorithm).name), nil
}

func sizeOf(n int) any {
	if n == 0 {
		return nil
	}
	return int64(n)
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// nameHash returns the first 4 bytes of a name's hash, in little-endian order as OpenSSL's
// c_rehash prints it.
func nameHash(der []byte) string {
	sum := sha1.Sum(der)
	b := sum[:4]
	slices.Reverse(b)
	return Hex(b)
}

// Request is a certificate signing request.
type Request struct {
	signed
	Version    int
	Subject    Name
	rawSubject []byte
	PublicKey  []byte
	Extensions []Extension
	Encoding   string
}

var oidExtensionRequest = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 14}

// Errors of requests and lists, which the states tell apart.
var (
	ErrPEMRequest = fn.Invalidf("Could not load PEM-encoded certificate signing request.")
	ErrDERRequest = fn.Invalidf("Could not load DER-encoded certificate signing request.")
	ErrPEMList    = fn.Invalidf("Could not load PEM-encoded certificate revocation list.")
	ErrDERList    = fn.Invalidf("Could not load DER-encoded certificate revocation list.")
)

// LoadRequest reads a request.
func LoadRequest(v any) (*Request, error) {
	b, err := Source(v)
	if err != nil {
		return nil, err
	}
	return parseRequest(b)
}

func parseRequest(b []byte) (*Request, error) {
	encoding, wrong := "der", ErrDERRequest
	if bytes.Contains(b, []byte("-----BEGIN")) {
		encoding, wrong = "pem", ErrPEMRequest
		if b = blockOf(b, "CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"); b == nil {
			return nil, wrong
		}
	}
	var body struct {
		Version    int
		Subject    asn1.RawValue
		PublicKey  asn1.RawValue
		Attributes []asn1.RawValue `asn1:"tag:0,set"`
	}
	s, err := parseSigned(b, &body)
	if err != nil {
		return nil, wrong
	}
	r := &Request{signed: s, Version: body.Version, rawSubject: body.Subject.FullBytes, PublicKey: body.PublicKey.FullBytes, Encoding: encoding}
	if r.Subject, err = decodeName(r.rawSubject); err != nil {
		return nil, wrong
	}
	for _, a := range body.Attributes {
		var attr struct {
			ID     asn1.ObjectIdentifier
			Values []asn1.RawValue `asn1:"set"`
		}
		if unmarshal(a.FullBytes, &attr) != nil || !attr.ID.Equal(oidExtensionRequest) {
			continue
		}
		if len(attr.Values) != 1 || unmarshal(attr.Values[0].FullBytes, &r.Extensions) != nil {
			return nil, wrong
		}
	}
	return r, nil
}

// blockOf returns the content of the first PEM block of one of the types.
func blockOf(text []byte, types ...string) []byte {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if slices.Contains(types, block.Type) {
			return block.Bytes
		}
	}
	return nil
}

// Encode encodes the request as pem or der.
func (r *Request) Encode(encoding string) []byte {
	if encoding == "der" {
		return r.DER
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: r.DER})
}

// Read describes the request as a map.
func (r *Request) Read() (*value.Dict, error) {
	pub, err := x509.ParsePKIXPublicKey(r.PublicKey)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	kind, size := KeyType(pub)
	id, err := keyID(r.PublicKey)
	if err != nil {
		return nil, err
	}
	return value.DictOf("key_size", sizeOf(size), "key_type", orNull(kind), "subject", r.Subject.Dict(), "subject_hash", nameHash(r.rawSubject),
		"subject_str", r.Subject.String(), "public_key_hash", Hex(id), "extensions", show(r.Extensions, false)), nil
}

// List is a certificate revocation list.
type List struct {
	signed
	Issuer        Name
	Updated, Next time.Time
	Revoked       []Revocation
	Extensions    []Extension
	Encoding      string
}

// Revocation is an entry of a list.
type Revocation struct {
	Serial     *big.Int
	Date       time.Time
	Extensions []Extension `asn1:"optional"`
}

// LoadList reads a list.
func LoadList(v any) (*List, error) {
	b, err := Source(v)
	if err != nil {
		return nil, err
	}
	return parseList(b)
}

func parseList(b []byte) (*List, error) {
	encoding, wrong := "der", ErrDERList
	if bytes.Contains(b, []byte("-----BEGIN")) {
		encoding, wrong = "pem", ErrPEMList
		if b = blockOf(b, "X509 CRL"); b == nil {
			return nil, wrong
		}
	}
	var body struct {
		Version    int `asn1:"optional,default:0"`
		Algorithm  pkix.AlgorithmIdentifier
		Issuer     asn1.RawValue
		Updated    time.Time
		Next       time.Time    `asn1:"optional"`
		Revoked    []Revocation `asn1:"optional"`
		Extensions []Extension  `asn1:"optional,explicit,tag:0"`
	}
	s, err := parseSigned(b, &body)
	if err != nil {
		return nil, wrong
	}
	l := &List{signed: s, Updated: body.Updated.UTC(), Next: body.Next.UTC(), Revoked: body.Revoked, Extensions: body.Extensions, Encoding: encoding}
	if l.Issuer, err = decodeName(body.Issuer.FullBytes); err != nil {
		return nil, wrong
	}
	return l, nil
}

// Encode encodes the list as pem or der.
func (l *List) Encode(encoding string) []byte {
	if encoding == "der" {
		return l.DER
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: l.DER})
}

// Number returns the number of the list.
func (l *List) Number() (int64, bool) {
	for _, e := range l.Extensions {
		n := new(big.Int)
		if e.ID.String() == "2.5.29.20" && unmarshal(e.Value, &n) == nil && n.IsInt64() {
			return n.Int64(), true
		}
	}
	return 0, false
}

// Read describes the list as a map.
func (l *List) Read() *value.Dict {
	revoked := value.NewDict(len(l.Revoked))
	for _, r := range l.Revoked {
		revoked.Set(string(bytes.ReplaceAll([]byte(SerialHex(r.Serial)), []byte(":"), nil)),
			value.DictOf("revocation_date", r.Date.UTC().Format(TimeFormat), "extensions", show(r.Extensions, true)))
	}
	next := any(nil)
	if !l.Next.IsZero() {
		next = l.Next.Format(TimeFormat)
	}
	return value.DictOf("issuer", l.Issuer.Dict(), "last_update", l.Updated.Format(TimeFormat), "next_update", next, "revoked_certificates", revoked,
		"extensions", show(l.Extensions, false), "signature_algorithm", algorithm(l.signed.algorithm.Algorithm).name)
}

// LoadChain reads one certificate or a list of certificates.
func LoadChain(v any) ([]*Certificate, error) {
	if !value.Truth(v) {
		return nil, nil
	}
	items := []any{v}
	if l, ok := v.(*value.List); ok {
		items = l.Items
	}
	var all []*Certificate
	for _, it := range items {
		c, err := LoadCertificate(it)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// Expires reports whether the certificate will have expired in a number of days.
func (c *Certificate) Expires(days int) bool {
	return !c.NotAfter.After(time.Now().Add(time.Duration(days) * 24 * time.Hour))
}

// SameChain reports whether two lists hold the same certificates.
func SameChain(a, b []*Certificate) bool {
	return slices.EqualFunc(a, b, func(x, y *Certificate) bool { return bytes.Equal(x.DER, y.DER) })
}
