package certs

import (
	"crypto/sha1"
	"encoding/asn1"
	"encoding/hex"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Extension is an X.509 extension. Value is DER.
type Extension struct {
	ID       asn1.ObjectIdentifier
	Critical bool `asn1:"optional"`
	Value    []byte
}

// kind is a type of extension.
type kind struct {
	// name is Salt's name. oid is the object identifier, "" if the extension cannot
	// be encoded.
	name, oid string
	// shown is the name in changes.
	shown string
	long  []string
	// crt, csr, crl and entry say whether certificates, requests, lists and entries of lists
	// may have it.
	crt, csr, crl, entry bool
	make                 func(v any, c *scope) (der []byte, critical bool, err error)
	show                 func(der []byte, e *value.Dict) error
}

// scope holds the keys that extensions are derived from.
type scope struct {
	subject []byte       // the public key of the certificate, as its SubjectPublicKeyInfo
	ca      *Certificate // nil for none
	caKey   []byte       // the CA's public key if there is no CA certificate (self-signed)
}

// kinds returns all kinds, in the order in which they are encoded and shown.
func kinds() []kind {
	return []kind{
		{name: "basicConstraints", oid: "2.5.29.19", crt: true, csr: true, make: makeBasicConstraints, show: showBasicConstraints},
		{name: "keyUsage", oid: "2.5.29.15", crt: true, csr: true, make: makeKeyUsage, show: showKeyUsage},
		{name: "extendedKeyUsage", oid: "2.5.29.37", crt: true, csr: true, make: makeExtendedKeyUsage, show: showExtendedKeyUsage},
		{name: "subjectKeyIdentifier", oid: "2.5.29.14", crt: true, csr: true, make: makeSubjectKeyIdentifier, show: showSubjectKeyIdentifier},
		{name: "authorityKeyIdentifier", oid: "2.5.29.35", crt: true, crl: true, make: makeAuthorityKeyIdentifier, show: showAuthorityKeyIdentifier},
		{name: "issuerAltName", oid: "2.5.29.18", long: []string{"X509v3 Issuer Alternative Name", "issuserAltName"}, crt: true, crl: true,
			make: makeIssuerAltName, show: showNames},
		{name: "authorityInfoAccess", oid: "1.3.6.1.5.5.7.1.1", long: []string{"Authority Information Access"}, crt: true, crl: true,
			make: makeAuthorityInfoAccess, show: showAuthorityInfoAccess},
		{name: "subjectAltName", oid: "2.5.29.17", long: []string{"X509v3 Subject Alternative Name"}, crt: true, csr: true,
			make: makeSubjectAltName, show: showNames},
		{name: "crlDistributionPoints", oid: "2.5.29.31", shown: "cRLDistributionPoints", long: []string{"X509v3 CRL Distribution Points"}, crt: true,
			make: makeDistributionPoints, show: showDistributionPoints},
		{name: "issuingDistributionPoint", oid: "2.5.29.28", long: []string{"X509v3 Issuing Distribution Point"}, crl: true, make: makeIssuingPoint,
			show: showIssuingPoint},
		{name: "certificatePolicies", oid: "2.5.29.32", crt: true, csr: true, make: makePolicies, show: showPolicies},
		{name: "policyConstraints", oid: "2.5.29.36", crt: true, csr: true, make: makePolicyConstraints, show: showPolicyConstraints},
		{name: "inhibitAnyPolicy", oid: "2.5.29.54", crt: true, csr: true, make: makeInhibitAnyPolicy, show: showInteger},
		{name: "nameConstraints", oid: "2.5.29.30", crt: true, csr: true, make: makeNameConstraints, show: showNameConstraints},
		{name: "noCheck", oid: "1.3.6.1.5.5.7.48.1.5", shown: "OCSPNoCheck", long: []string{"OCSP No Check"}, crt: true, csr: true, make: makeNoCheck,
			show: func(_ []byte, e *value.Dict) error { e.Set("value", true); return nil }},
		{name: "tlsfeature", oid: "1.3.6.1.5.5.7.1.24", shown: "TLSFeature", long: []string{"TLS Feature"}, crt: true, csr: true, make: makeTLSFeature,
			show: showTLSFeature},
		{name: "nsComment", long: []string{"Netscape Comment"}, crt: true, csr: true, make: notImplemented("nsComment")},
		{name: "nsCertType", long: []string{"Netscape Certificate Type"}, crt: true, csr: true, make: notImplemented("nsCertType")},
		{name: "cRLNumber", oid: "2.5.29.20", long: []string{"X509v3 CRLNumber"}, crl: true, make: makeCRLNumber, show: showInteger},
		{name: "deltaCRLIndicator", oid: "2.5.29.27", crl: true, make: makeDelta, show: showInteger},
		{name: "freshestCRL", oid: "2.5.29.46", long: []string{"x509v3 Freshest CRL"}, crl: true, make: makeFreshest, show: showDistributionPoints},
		{name: "certificateIssuer", oid: "2.5.29.29", entry: true, make: makeIssuerAltName, show: showNames},
		{name: "CRLReason", oid: "2.5.29.21", shown: "cRLReason", entry: true, make: makeReason, show: showReason},
		{name: "invalidityDate", oid: "2.5.29.24", entry: true, make: makeInvalidityDate, show: showInvalidityDate},
	}
}

// longNames returns the names of the extension in Salt's earlier module.
func (k kind) longNames() []string {
	if k.long != nil {
		return k.long
	}
	var words strings.Builder
	for i, c := range k.name {
		switch {
		case i == 0:
			words.WriteString(strings.ToUpper(string(c)))
		case c >= 'A' && c <= 'Z' && !strings.HasPrefix(k.name[i-1:], "RL"):
			words.WriteString(" " + string(c))
		default:
			words.WriteRune(c)
		}
	}
	return []string{"X509v3 " + words.String()}
}

// extensionName returns the name of an extension in changes.
func extensionName(id asn1.ObjectIdentifier) string {
	for _, k := range kinds() {
		if k.oid == id.String() {
			if k.shown != "" {
				return k.shown
			}
			return k.name
		}
	}
	if n, ok := map[string]string{"1.3.6.1.5.5.7.1.11": "subjectInfoAccess", "1.3.6.1.4.1.11129.2.4.2": "signedCertificateTimestampList",
		"1.3.6.1.4.1.11129.2.4.3": "ctPoison"}[id.String()]; ok {
		return n
	}
	return "Unknown OID"
}

// create encodes an extension from its setting.
func (k kind) create(v any, c *scope) (Extension, error) {
	der, critical, err := k.make(v, c)
	if err != nil {
		return Extension{}, err
	}
	return Extension{oid(k.oid), critical, der}, nil
}

// show describes extensions of certificates, requests and lists.
func show(all []Extension, entry bool) *value.Dict {
	out := value.NewDict(len(all))
	for _, k := range kinds() {
		i := slices.IndexFunc(all, func(e Extension) bool { return e.ID.String() == k.oid })
		if i < 0 || k.entry != entry {
			continue
		}
		d := value.DictOf("critical", all[i].Critical)
		if k.show(all[i].Value, d) != nil {
			d.Set("value", Hex(all[i].Value))
		}
		out.Set(k.name, d)
	}
	return out
}

// confString parses OpenSSL's syntax: words separated by commas, each with an optional value
// after a colon.
func confString(s string) (words []pair, critical bool) {
	if critical = strings.HasPrefix(s, "critical"); critical {
		s = strings.TrimSpace(strings.Trim(s[len("critical"):], ","))
	}
	for w := range strings.SplitSeq(s, ",") {
		k, v, ok := strings.Cut(strings.TrimSpace(w), ":")
		if !ok {
			v = present
		}
		words = append(words, pair{strings.TrimSpace(k), strings.TrimSpace(v)})
	}
	return words, critical
}

const present = "__present__"

// settings reads settings from a string in OpenSSL's syntax or from a map.
func settings(v any) (d *value.Dict, critical bool, err error) {
	switch x := v.(type) {
	case *value.Dict:
		return x, x.Has("critical") && value.Truth(x.At("critical")), nil
	case string:
		words, critical := confString(x)
		d := value.NewDict(len(words))
		for _, w := range words {
			d.Set(w.kind, w.value)
		}
		return d, critical, nil
	case *value.List:
		d := value.NewDict(x.Len())
		for _, it := range x.Items {
			switch y := it.(type) {
			case *value.Dict:
				d.Update(y)
			case string:
				words, c := confString(y)
				critical = critical || c
				for _, w := range words {
					if w.kind != "" {
						d.Set(w.kind, w.value)
					}
				}
			}
		}
		return d, critical || d.Has("critical"), nil
	}
	return nil, false, fn.Invalidf("expected a string, a list or a map, got %s", value.Repr(v))
}

// has reports whether a string, list or map contains a word, like Python's "in".
func has(v any, word string) bool {
	switch x := v.(type) {
	case string:
		return strings.Contains(x, word)
	case *value.List:
		return slices.ContainsFunc(x.Items, func(it any) bool { return it == word })
	case *value.Dict:
		return x.Has(word)
	}
	return false
}

func number(v any) (int, error) {
	switch x := v.(type) {
	case int64:
		return int(x), nil
	case int:
		return x, nil
	case string:
		if n, err := strconv.Atoi(strings.TrimSpace(x)); err == nil {
			return n, nil
		}
	}
	return 0, fn.Invalidf("invalid literal for int() with base 10: %s", value.Repr(v))
}

func makeBasicConstraints(v any, _ *scope) ([]byte, bool, error) {
	s, isText := v.(string)
	if isText {
		v = strings.ToLower(s)
	}
	d, critical, err := settings(v)
	if err != nil {
		return nil, false, err
	}
	switch {
	case !d.Has("ca") && isText:
		return nil, false, fn.Invalidf("Invalid configuration for basicContraints: 'ca'")
	case !d.Has("ca"):
		return nil, false, fn.Invalidf("Undefined required key for basicConstraints: 'ca'")
	}
	ca := value.Truth(d.At("ca"))
	if s, ok := d.At("ca").(string); ok {
		ca = strings.EqualFold(s, "true")
	}
	body := []byte{}
	if ca {
		body = must(true, "")
	}
	if n := d.At("pathlen"); n != nil {
		length, err := number(n)
		if err != nil {
			return nil, false, fn.Invalidf("Invalid configuration for basicContraints: %w", err)
		}
		switch {
		case !ca:
			return nil, false, fn.Invalidf("path_length must be None when ca is False")
		case length < 0:
			return nil, false, fn.Invalidf("path_length must be a non-negative integer or None")
		}
		body = append(body, must(length, "")...)
	}
	return sequence(body), critical, nil
}

func showBasicConstraints(der []byte, e *value.Dict) error {
	var v struct {
		CA     bool `asn1:"optional"`
		Length *int `asn1:"optional"`
	}
	var raw asn1.RawValue
	if err := unmarshal(der, &raw); err != nil {
		return err
	}
	rest := raw.Bytes
	var err error
	if len(rest) > 0 && rest[0] == asn1.TagBoolean {
		if rest, err = asn1.Unmarshal(rest, &v.CA); err != nil {
			return err
		}
	}
	e.Set("ca", v.CA)
	e.Set("pathlen", nil)
	if len(rest) > 0 {
		n := 0
		if _, err = asn1.Unmarshal(rest, &n); err != nil {
			return err
		}
		e.Set("pathlen", int64(n))
	}
	return nil
}

// usages names the bits of key usage, in order.
var usages = [...]string{"digitalSignature", "nonRepudiation", "keyEncipherment", "dataEncipherment", "keyAgreement", "keyCertSign", "cRLSign",
	"encipherOnly", "decipherOnly"}

func makeKeyUsage(v any, _ *scope) ([]byte, bool, error) {
	set := make([]bool, len(usages))
	for i, name := range usages {
		set[i] = has(v, name)
	}
	if !set[4] && (set[7] || set[8]) {
		return nil, false, fn.Invalidf("encipher_only and decipher_only can only be true when key_agreement is true")
	}
	return must(bits(set), ""), has(v, "critical"), nil
}

// bits encodes flags as a bit string without trailing zeros.
func bits(set []bool) asn1.BitString {
	var b asn1.BitString
	for i, on := range set {
		if !on {
			continue
		}
		for len(b.Bytes) <= i/8 {
			b.Bytes = append(b.Bytes, 0)
		}
		b.Bytes[i/8] |= 0x80 >> (i % 8)
		b.BitLength = i + 1
	}
	return b
}

func showKeyUsage(der []byte, e *value.Dict) error {
	var b asn1.BitString
	if err := unmarshal(der, &b); err != nil {
		return err
	}
	for _, i := range []int{6, 3, 8, 0, 7, 4, 5, 2, 1} {
		e.Set(usages[i], b.At(i) == 1 && (i < 7 || b.At(4) == 1))
	}
	return nil
}

// purposes returns the extended key usages by name.
func purposes() map[string]string {
	return map[string]string{
		"serverAuth": "1.3.6.1.5.5.7.3.1", "clientAuth": "1.3.6.1.5.5.7.3.2", "codeSigning": "1.3.6.1.5.5.7.3.3", "emailProtection": "1.3.6.1.5.5.7.3.4",
		"timeStamping": "1.3.6.1.5.5.7.3.8", "OCSPSigning": "1.3.6.1.5.5.7.3.9", "msSmartcardLogin": "1.3.6.1.4.1.311.20.2.2",
		"pkInitKDC": "1.3.6.1.5.2.3.5", "ipsecIKE": "1.3.6.1.5.5.7.3.17", "msCodeInd": "1.3.6.1.4.1.311.2.1.21", "msCodeCom": "1.3.6.1.4.1.311.2.1.22",
		"msCTLSign": "1.3.6.1.4.1.311.10.3.1", "msEFS": "1.3.6.1.4.1.311.10.3.4",
	}
}

func makeExtendedKeyUsage(v any, _ *scope) ([]byte, bool, error) {
	critical := has(v, "critical")
	var words []any
	switch x := v.(type) {
	case string:
		all, c := confString(x)
		critical = c
		for _, w := range all {
			words = append(words, w.kind)
		}
	case *value.List:
		words = x.Items
	default:
		words = []any{v}
	}
	known := purposes()
	var ids []asn1.ObjectIdentifier
	for _, w := range words {
		if w == "critical" {
			continue
		}
		name := textOf(w)
		if id, ok := known[name]; ok {
			name = id
		}
		id, err := parseOID(name)
		if err != nil {
			return nil, false, err
		}
		ids = append(ids, id)
	}
	if ids == nil {
		return nil, false, fn.Invalidf("extendedKeyUsage has no purpose")
	}
	return must(ids, ""), critical, nil
}

func showExtendedKeyUsage(der []byte, e *value.Dict) error {
	var ids []asn1.ObjectIdentifier
	if err := unmarshal(der, &ids); err != nil {
		return err
	}
	names := map[string]string{"2.5.29.37.0": "anyExtendedKeyUsage"}
	for _, n := range []string{"serverAuth", "clientAuth", "codeSigning", "emailProtection", "timeStamping", "OCSPSigning", "msSmartcardLogin",
		"pkInitKDC", "ipsecIKE"} {
		names[purposes()[n]] = n
	}
	out := &value.List{}
	for _, id := range ids {
		if n, ok := names[id.String()]; ok {
			out.Append(n)
			continue
		}
		out.Append(id.String())
	}
	e.Set("value", out)
	return nil
}

// keyID returns the identifier of a public key: the hash of its bits.
func keyID(spki []byte) ([]byte, error) {
	var k struct {
		Algorithm asn1.RawValue
		Key       asn1.BitString
	}
	if err := unmarshal(spki, &k); err != nil {
		return nil, fn.Errorf("%w", err)
	}
	sum := sha1.Sum(k.Key.Bytes)
	return sum[:], nil
}

func makeSubjectKeyIdentifier(v any, c *scope) ([]byte, bool, error) {
	if has(v, "critical") {
		return nil, false, fn.Invalidf("subjectKeyIdentifier must be marked as non-critical")
	}
	var id []byte
	var err error
	switch x := v.(type) {
	case []byte:
		id = x
	case string:
		if x == "hash" {
			id, err = keyID(c.subject)
		} else if id, err = hex.DecodeString(strings.ReplaceAll(x, ":", "")); err != nil {
			err = fn.Invalidf("Value must be precomputed hash")
		}
	default:
		err = fn.Invalidf("Value must be a (hex-)digest or pubkey")
	}
	return must(id, ""), false, err
}

func showSubjectKeyIdentifier(der []byte, e *value.Dict) error {
	var id []byte
	err := unmarshal(der, &id)
	e.Set("value", Hex(id))
	return err
}

func makeAuthorityKeyIdentifier(v any, c *scope) ([]byte, bool, error) {
	if has(v, "critical") {
		return nil, false, fn.Invalidf("authorityKeyIdentifier must be marked as non-critical")
	}
	if c.ca == nil && c.caKey == nil {
		return nil, false, fn.Errorf("Need CA certificate or CA pubkey to calculate authorityKeyIdentifier")
	}
	d, _, err := settings(v)
	if err != nil {
		return nil, false, err
	}
	var id, body []byte
	if d.Has("keyid") {
		if id, err = c.authorityID(); err != nil {
			return nil, false, err
		}
		body = must(tagged(0, false, id), "")
	}
	if d.At("issuer") == "always" || d.Has("issuer") && id == nil {
		switch {
		case c.ca != nil:
			name := must(tagged(gnDirectory, true, c.ca.rawIssuer), "")
			body = append(body, must(tagged(1, true, name), "")...)
			var raw asn1.RawValue
			if err := unmarshal(must(c.ca.Serial, ""), &raw); err != nil {
				return nil, false, err
			}
			body = append(body, must(tagged(2, false, raw.Bytes), "")...)
		case d.At("issuer") == "always":
			return nil, false, fn.Errorf("Could not add authority_cert_issuer and authority_cert_serial_number, but was set to always.")
		}
	}
	return sequence(body), false, nil
}

// authorityID returns the identifier of the CA's key.
func (c *scope) authorityID() ([]byte, error) {
	if c.ca == nil {
		return keyID(c.caKey)
	}
	for _, e := range c.ca.Extensions {
		if e.ID.String() == "2.5.29.14" {
			var id []byte
			err := unmarshal(e.Value, &id)
			return id, err
		}
	}
	return keyID(c.ca.PublicKey)
}

func showAuthorityKeyIdentifier(der []byte, e *value.Dict) error {
	parts, err := fields(der)
	e.Set("keyid", nil)
	e.Set("issuer", nil)
	e.Set("issuer_sn", nil)
	for _, p := range parts {
		switch p.Tag {
		case 0:
			e.Set("keyid", Hex(p.Bytes))
		case 1:
			names, err := split(p.Bytes)
			if err != nil {
				return err
			}
			e.Set("issuer", value.ListOf(showGeneralNames(names)...))
		case 2:
			e.Set("issuer_sn", SerialHex(new(big.Int).SetBytes(p.Bytes)))
		}
	}
	return err
}

// fields returns the elements of a DER sequence.
func fields(der []byte) ([]asn1.RawValue, error) {
	var raw asn1.RawValue
	if err := unmarshal(der, &raw); err != nil {
		return nil, err
	}
	return split(raw.Bytes)
}

// split returns consecutive DER values.
func split(der []byte) (out []asn1.RawValue, err error) {
	for len(der) > 0 {
		var v asn1.RawValue
		if der, err = asn1.Unmarshal(der, &v); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// namesOf reads general names from a string or list.
func namesOf(v any) (all []pair, critical bool, err error) {
	switch x := v.(type) {
	case string:
		all, critical = confString(x)
		return all, critical, nil
	case *value.List:
		all, err = pairsOf(x.Items)
		return all, has(v, "critical"), err
	case *value.Dict:
		for k, v := range x.All() {
			if k == "critical" {
				continue
			}
			for _, it := range value.Items(v) {
				all = append(all, pair{textOf(k), it})
			}
		}
		return all, x.Has("critical"), nil
	}
	return nil, false, fn.Invalidf("expected names such as DNS:example.com, got %s", value.Repr(v))
}

func sequenceOf(all []asn1.RawValue) []byte {
	var body []byte
	for _, v := range all {
		body = append(body, must(v, "")...)
	}
	return sequence(body)
}

func makeSubjectAltName(v any, _ *scope) ([]byte, bool, error) {
	all, critical, err := namesOf(v)
	if err != nil {
		return nil, false, err
	}
	names, err := generalNames(all)
	return sequenceOf(names), critical, err
}

func makeIssuerAltName(v any, c *scope) ([]byte, bool, error) {
	all, critical, err := namesOf(v)
	if err != nil {
		return nil, false, err
	}
	var names []asn1.RawValue
	if slices.ContainsFunc(all, copiesIssuer) {
		if c.ca == nil {
			return nil, false, fn.Errorf("Need CA certificate to copy to issuerAltName")
		}
		i := slices.IndexFunc(c.ca.Extensions, func(e Extension) bool { return e.ID.String() == "2.5.29.17" })
		if i < 0 {
			return nil, false, fn.Errorf("No <ObjectIdentifier(oid=2.5.29.17, name=subjectAltName)> extension was found")
		}
		if names, err = fields(c.ca.Extensions[i].Value); err != nil {
			return nil, false, err
		}
		all = slices.DeleteFunc(all, func(p pair) bool { return p.kind == "issuer" })
	}
	more, err := generalNames(all)
	return sequenceOf(append(names, more...)), critical, err
}

func copiesIssuer(p pair) bool { return p.kind == "issuer" && p.value == "copy" }

func showNames(der []byte, e *value.Dict) error {
	names, err := fields(der)
	e.Set("value", value.ListOf(showGeneralNames(names)...))
	return err
}

// access returns the access methods by name.
func access() map[string]string {
	return map[string]string{"OCSP": "1.3.6.1.5.5.7.48.1", "caIssuers": "1.3.6.1.5.5.7.48.2", "caRepository": "1.3.6.1.5.5.7.48.5"}
}

func makeAuthorityInfoAccess(v any, _ *scope) ([]byte, bool, error) {
	var all []pair
	switch x := v.(type) {
	case string:
		for w := range strings.SplitSeq(x, ",") {
			if w = strings.TrimSpace(w); w == "critical" {
				continue
			}
			method, name, ok := strings.Cut(w, ";")
			if !ok {
				return nil, false, fn.Errorf("Unknown access OID: %s", w)
			}
			all = append(all, pair{method, name})
		}
	case *value.Dict:
		for k, v := range x.All() {
			if k != "critical" {
				all = append(all, pair{textOf(k), v})
			}
		}
	case *value.List:
		for _, it := range x.Items {
			if d, ok := it.(*value.Dict); ok {
				for k, v := range d.All() {
					all = append(all, pair{textOf(k), v})
				}
			}
		}
	}
	var body []byte
	for _, p := range all {
		name := p.kind
		if id, ok := access()[name]; ok {
			name = id
		}
		id, err := parseOID(name)
		if err != nil {
			return nil, false, fn.Errorf("Unknown access OID: %s", p.kind)
		}
		gn, err := splitPair(textOf(p.value))
		if err != nil {
			return nil, false, err
		}
		g, err := generalName(gn)
		if err != nil {
			return nil, false, err
		}
		body = append(body, sequence(append(must(id, ""), must(g, "")...))...)
	}
	return sequence(body), false, nil
}

func showAuthorityInfoAccess(der []byte, e *value.Dict) error {
	var all []struct {
		Method asn1.ObjectIdentifier
		Name   asn1.RawValue
	}
	if err := unmarshal(der, &all); err != nil {
		return err
	}
	out := &value.List{}
	for _, a := range all {
		name := a.Method.String()
		for n, id := range access() {
			if id == name {
				name = n
				break
			}
		}
		_, text, _ := strings.Cut(showGeneralName(a.Name), ":")
		out.Append(value.DictOf(name, text))
	}
	e.Set("value", out)
	return nil
}

// reasons names the reason bits of distribution points, in order.
var reasons = [...]string{"unspecified", "keyCompromise", "cACompromise", "affiliationChanged", "superseded", "cessationOfOperation", "certificateHold",
	"privilegeWithdrawn", "aACompromise"}

// revocations names the reason codes in revocation lists; 7 is unused.
var revocations = [...]string{"unspecified", "keyCompromise", "cACompromise", "affiliationChanged", "superseded", "cessationOfOperation",
	"certificateHold", "", "removeFromCRL", "privilegeWithdrawn", "aACompromise"}

func reasonBits(v any) (asn1.BitString, error) {
	set := make([]bool, len(reasons))
	for _, it := range value.Items(v) {
		i := slices.Index(reasons[:], textOf(it))
		if i < 0 {
			return asn1.BitString{}, fn.Invalidf("%s is not a valid ReasonFlags", value.Repr(it))
		}
		if i == 0 {
			return asn1.BitString{}, fn.Invalidf("unspecified and remove_from_crl are not valid reasons in a DistributionPoint")
		}
		set[i] = true
	}
	return bits(set), nil
}

// contentOf returns the content of a DER value, without tag and length.
func contentOf(der []byte) []byte {
	var raw asn1.RawValue
	if _, err := asn1.Unmarshal(der, &raw); err != nil {
		return nil
	}
	return raw.Bytes
}

// pointName encodes a full or relative name of a distribution point.
func pointName(full, relative any) ([]byte, error) {
	switch {
	case value.Truth(full) && value.Truth(relative):
		return nil, fn.Invalidf("You cannot provide both full_name and relative_name, at least one must be None.")
	case value.Truth(full):
		all, err := pairsOf(value.Items(full))
		if err != nil {
			return nil, err
		}
		names, err := generalNames(all)
		if err != nil {
			return nil, err
		}
		return must(tagged(0, true, must(tagged(0, true, contentOf(sequenceOf(names))), "")), ""), nil
	case value.Truth(relative):
		r, err := parseRDN(relative)
		if err != nil {
			return nil, err
		}
		set := contentOf(contentOf(Name{r}.encode()))
		return must(tagged(0, true, must(tagged(1, true, set), "")), ""), nil
	}
	return nil, nil
}

func makeDistributionPoints(v any, _ *scope) ([]byte, bool, error) {
	var points []any
	critical := has(v, "critical")
	switch x := v.(type) {
	case string:
		words, c := confString(x)
		critical = c
		for _, w := range words {
			points = append(points, w.kind+":"+textOf(w.value))
		}
	case *value.List:
		points = x.Items
	case *value.Dict:
		points = []any{x}
	}
	var body []byte
	for _, p := range points {
		if p == "critical" {
			continue
		}
		d, ok := p.(*value.Dict)
		if !ok {
			d = value.DictOf("fullname", value.ListOf(p))
		}
		one, err := pointName(listed(d.At("fullname")), d.At("relativename"))
		if err != nil {
			return nil, false, err
		}
		if one == nil && !value.Truth(d.At("crlissuer")) {
			return nil, false, fn.Invalidf("You must supply crl_issuer, full_name, or relative_name when reasons is not None")
		}
		if r := d.At("reasons"); value.Truth(r) {
			b, err := reasonBits(r)
			if err != nil {
				return nil, false, err
			}
			one = append(one, must(tagged(1, false, contentOf(must(b, ""))), "")...)
		}
		if issuer := d.At("crlissuer"); value.Truth(issuer) {
			all, err := pairsOf(value.Items(listed(issuer)))
			if err != nil {
				return nil, false, err
			}
			names, err := generalNames(all)
			if err != nil {
				return nil, false, err
			}
			one = append(one, must(tagged(2, true, contentOf(sequenceOf(names))), "")...)
		}
		body = append(body, sequence(one)...)
	}
	return sequence(body), critical, nil
}

// listed wraps a single value in a list.
func listed(v any) any {
	if _, ok := v.(*value.List); ok || v == nil {
		return v
	}
	return value.ListOf(v)
}

func makeFreshest(v any, c *scope) ([]byte, bool, error) {
	der, _, err := makeDistributionPoints(v, c)
	return der, false, err
}

// showPoint describes the name of a distribution point.
func showPoint(raw asn1.RawValue) (full []any, relative any, err error) {
	full = []any{}
	parts, err := split(raw.Bytes)
	if err != nil || len(parts) == 0 {
		return full, nil, err
	}
	names, err := split(parts[0].Bytes)
	if err != nil {
		return full, nil, err
	}
	if parts[0].Tag == 0 {
		return showGeneralNames(names), nil, nil
	}
	n, err := decodeName(sequence(must(asn1.RawValue{Tag: asn1.TagSet, IsCompound: true, Bytes: parts[0].Bytes}, "")))
	return full, n.String(), err
}

func showReasons(content []byte) (*value.List, error) {
	var b asn1.BitString
	err := unmarshal(must(asn1.RawValue{Tag: asn1.TagBitString, Bytes: content}, ""), &b)
	var names []string
	for i := range reasons {
		if b.At(i) == 1 {
			names = append(names, reasons[i])
		}
	}
	slices.Sort(names)
	return value.Strings(names), err
}

func showDistributionPoints(der []byte, e *value.Dict) error {
	points, err := fields(der)
	if err != nil {
		return err
	}
	out := &value.List{}
	for _, p := range points {
		d := value.DictOf("crlissuer", &value.List{}, "fullname", &value.List{}, "reasons", &value.List{}, "relativename", nil)
		parts, err := split(p.Bytes)
		if err != nil {
			return err
		}
		for _, part := range parts {
			switch part.Tag {
			case 0:
				full, relative, err := showPoint(part)
				if err != nil {
					return err
				}
				d.Set("fullname", value.ListOf(full...))
				d.Set("relativename", relative)
			case 1:
				r, err := showReasons(part.Bytes)
				if err != nil {
					return err
				}
				d.Set("reasons", r)
			case 2:
				names, err := split(part.Bytes)
				if err != nil {
					return err
				}
				d.Set("crlissuer", value.ListOf(showGeneralNames(names)...))
			}
		}
		out.Append(d)
	}
	e.Set("value", out)
	return nil
}

func makeIssuingPoint(v any, _ *scope) ([]byte, bool, error) {
	d, ok := v.(*value.Dict)
	if !ok {
		return nil, false, fn.Invalidf("issuingDistributionPoint must be a dictionary")
	}
	body, err := pointName(listed(d.At("fullname")), d.At("relativename"))
	if err != nil {
		return nil, false, err
	}
	n := 0
	flag := func(tag int, key string) {
		if value.Truth(d.At(key)) {
			n++
			body = append(body, must(tagged(tag, false, []byte{0xff}), "")...)
		}
	}
	flag(1, "onlyuser")
	flag(2, "onlyCA")
	if r := d.At("onlysomereasons"); value.Truth(r) {
		b, err := reasonBits(r)
		if err != nil {
			return nil, false, err
		}
		body = append(body, must(tagged(3, false, contentOf(must(b, ""))), "")...)
	}
	flag(4, "indirectCRL")
	flag(5, "onlyAA")
	switch {
	case n > 1:
		return nil, false, fn.Invalidf("Only one of the following can be set to True: only_contains_user_certs, only_contains_ca_certs, " +
			"indirect_crl, only_contains_attribute_certs")
	case body == nil:
		return nil, false, fn.Invalidf("Cannot create empty extension: if only_contains_user_certs, only_contains_ca_certs, indirect_crl, and " +
			"only_contains_attribute_certs are all False, then either full_name, relative_name, or only_some_reasons must have a value.")
	}
	return sequence(body), value.Truth(d.At("critical")), nil
}

func showIssuingPoint(der []byte, e *value.Dict) error {
	parts, err := fields(der)
	if err != nil {
		return err
	}
	for _, k := range []string{"fullname", "onysomereasons"} {
		e.Set(k, &value.List{})
	}
	e.Set("relativename", nil)
	for _, k := range []string{"onlyuser", "onlyCA", "onlyAA", "indirectCRL"} {
		e.Set(k, false)
	}
	for _, p := range parts {
		switch p.Tag {
		case 0:
			full, relative, err := showPoint(p)
			if err != nil {
				return err
			}
			e.Set("fullname", value.ListOf(full...))
			e.Set("relativename", relative)
		case 3:
			r, err := showReasons(p.Bytes)
			if err != nil {
				return err
			}
			e.Set("onysomereasons", r)
		case 1, 2, 4, 5:
			on := len(p.Bytes) == 1 && p.Bytes[0] != 0
			e.Set(map[int]string{1: "onlyuser", 2: "onlyCA", 4: "indirectCRL", 5: "onlyAA"}[p.Tag], on)
		}
	}
	return nil
}

const (
	oidStatement = "1.3.6.1.5.5.7.2.1"
	oidNotice    = "1.3.6.1.5.5.7.2.2"
)

func makePolicies(v any, _ *scope) ([]byte, bool, error) {
	var body []byte
	d, ok := v.(*value.Dict)
	if !ok {
		words := value.Items(v)
		critical := has(v, "critical")
		if s, ok := v.(string); ok {
			critical = strings.HasPrefix(s, "critical")
			words = nil
			for w := range strings.SplitSeq(s, ",") {
				words = append(words, strings.TrimSpace(w))
			}
		}
		for _, w := range words {
			if w == "critical" {
				continue
			}
			id, err := parseOID(w)
			if err != nil {
				return nil, false, fn.Invalidf("certificatePolicies defined as string must be a comma-separated list of OID.")
			}
			body = append(body, sequence(must(id, ""))...)
		}
		return sequence(body), critical, nil
	}
	for k, v := range d.All() {
		if k == "critical" {
			continue
		}
		id, err := parseOID(k)
		if err != nil {
			return nil, false, err
		}
		var qualifiers []byte
		for _, q := range value.Items(listed(v)) {
			one, err := qualifier(q)
			if err != nil {
				return nil, false, err
			}
			qualifiers = append(qualifiers, one...)
		}
		one := must(id, "")
		if qualifiers != nil {
			one = append(one, sequence(qualifiers)...)
		}
		body = append(body, sequence(one)...)
	}
	return sequence(body), value.Truth(d.At("critical")), nil
}

// qualifier encodes the URL of a statement, or a notice for the user.
func qualifier(q any) ([]byte, error) {
	if s, ok := q.(string); ok {
		return sequence(append(must(oid(oidStatement), ""), must(s, "ia5")...)), nil
	}
	d, ok := q.(*value.Dict)
	if !ok {
		return nil, fn.Errorf("a qualifier of a policy is a string or a map, not %s", value.Repr(q))
	}
	var body []byte
	if numbers := value.Items(d.At("noticeNumbers")); len(numbers) > 0 {
		list := []byte{}
		for _, it := range numbers {
			n, err := number(it)
			if err != nil {
				return nil, err
			}
			list = append(list, must(n, "")...)
		}
		body = sequence(append(must(textOf(d.At("organization")), "utf8"), sequence(list)...))
	}
	if text := textOf(d.At("text")); text != "" {
		body = append(body, must(text, "utf8")...)
	}
	if body == nil {
		return nil, nil
	}
	return sequence(append(must(oid(oidNotice), ""), sequence(body)...)), nil
}

func showPolicies(der []byte, e *value.Dict) error {
	var all []struct {
		ID         asn1.ObjectIdentifier
		Qualifiers []asn1.RawValue `asn1:"optional"`
	}
	if err := unmarshal(der, &all); err != nil {
		return err
	}
	out := &value.List{}
	for _, p := range all {
		qualifiers := &value.List{}
		for _, q := range p.Qualifiers {
			shown, err := showQualifier(q)
			if err != nil {
				return err
			}
			qualifiers.Append(shown)
		}
		name := p.ID.String()
		if name == "2.5.29.32.0" {
			name = "anyPolicy"
		}
		out.Append(value.DictOf(name, qualifiers))
	}
	e.Set("value", out)
	return nil
}

func showQualifier(raw asn1.RawValue) (*value.Dict, error) {
	parts, err := split(raw.Bytes)
	if err != nil || len(parts) != 2 {
		return nil, asn1.StructuralError{Msg: "a qualifier has two parts"}
	}
	var id asn1.ObjectIdentifier
	if err := unmarshal(parts[0].FullBytes, &id); err != nil {
		return nil, err
	}
	if id.String() == oidStatement {
		return value.DictOf("practice_statement", string(parts[1].Bytes)), nil
	}
	d := value.DictOf("organizataion", nil, "notice_numbers", nil, "explicit_text", nil)
	fields, err := split(parts[1].Bytes)
	if err != nil {
		return nil, err
	}
	for _, f := range fields {
		if f.Tag != asn1.TagSequence {
			d.Set("explicit_text", stringOf(f))
			continue
		}
		ref, err := split(f.Bytes)
		if err != nil || len(ref) != 2 {
			return nil, asn1.StructuralError{Msg: "a reference has two parts"}
		}
		var numbers []int
		if err := unmarshal(ref[1].FullBytes, &numbers); err != nil {
			return nil, err
		}
		list := &value.List{}
		for _, n := range numbers {
			list.Append(int64(n))
		}
		d.Set("organizataion", stringOf(ref[0]))
		d.Set("notice_numbers", list)
	}
	return d, nil
}

func makePolicyConstraints(v any, _ *scope) ([]byte, bool, error) {
	d, critical, err := settings(v)
	if err != nil {
		return nil, false, err
	}
	var body []byte
	for tag, key := range []string{"requireExplicitPolicy", "inhibitPolicyMapping"} {
		if !d.Has(key) {
			continue
		}
		n, err := number(d.At(key))
		if err != nil {
			return nil, false, err
		}
		body = append(body, must(tagged(tag, false, contentOf(must(n, ""))), "")...)
	}
	if body == nil {
		return nil, false, fn.Invalidf("At least one of require_explicit_policy and inhibit_policy_mapping must not be None")
	}
	return sequence(body), critical || d.Has("critical"), nil
}

func showPolicyConstraints(der []byte, e *value.Dict) error {
	parts, err := fields(der)
	e.Set("inhibitPolicyMapping", nil)
	e.Set("requireExplicitPolicy", nil)
	for _, p := range parts {
		n := value.Big(new(big.Int).SetBytes(p.Bytes))
		if p.Tag == 0 {
			e.Set("requireExplicitPolicy", n)
		} else {
			e.Set("inhibitPolicyMapping", n)
		}
	}
	return err
}

func makeInhibitAnyPolicy(v any, _ *scope) ([]byte, bool, error) {
	critical := has(v, "critical")
	if s, ok := v.(string); ok {
		words, c := confString(s)
		critical, v = c, words[0].kind
	}
	if d, ok := v.(*value.Dict); ok {
		if !d.Has("value") {
			return nil, false, fn.Invalidf("Undefined required key for inhibitAnyPolicy: 'value'")
		}
		v = d.At("value")
	}
	n, err := number(v)
	if err == nil && n < 0 {
		err = fn.Invalidf("skip_certs must be a non-negative integer")
	}
	return must(n, ""), critical, err
}

func showInteger(der []byte, e *value.Dict) error {
	n := new(big.Int)
	err := unmarshal(der, &n)
	e.Set("value", value.Big(n))
	return err
}

func makeNameConstraints(v any, _ *scope) ([]byte, bool, error) {
	trees := map[string][]pair{}
	critical := has(v, "critical")
	switch x := v.(type) {
	case *value.Dict:
		for _, key := range []string{"permitted", "excluded"} {
			all, err := pairsOf(value.Items(listed(x.At(key))))
			if err != nil {
				return nil, false, err
			}
			trees[key] = all
		}
	case string:
		for w := range strings.SplitSeq(x, ",") {
			key, name, ok := strings.Cut(strings.TrimSpace(w), ";")
			if !ok {
				continue
			}
			p, err := splitPair(name)
			if err != nil {
				return nil, false, err
			}
			trees[key] = append(trees[key], p)
		}
	}
	var body []byte
	for tag, key := range []string{"permitted", "excluded"} {
		if len(trees[key]) == 0 {
			continue
		}
		names, err := generalNames(trees[key])
		if err != nil {
			return nil, false, err
		}
		var subtrees []byte
		for _, n := range names {
			if n.Tag == gnIP && len(n.Bytes)%8 != 0 {
				return nil, false, fn.Invalidf("IPAddress name constraints must be an IPv4Network or IPv6Network object")
			}
			subtrees = append(subtrees, sequence(must(n, ""))...)
		}
		body = append(body, must(tagged(tag, true, subtrees), "")...)
	}
	if body == nil {
		return nil, false, fn.Invalidf("nameConstraints needs at least one definition")
	}
	return sequence(body), critical, nil
}

func showNameConstraints(der []byte, e *value.Dict) error {
	parts, err := fields(der)
	e.Set("excluded", &value.List{})
	e.Set("permitted", &value.List{})
	for _, p := range parts {
		trees, err := split(p.Bytes)
		if err != nil {
			return err
		}
		var names []asn1.RawValue
		for _, t := range trees {
			base, err := split(t.Bytes)
			if err != nil || len(base) == 0 {
				return asn1.StructuralError{Msg: "a subtree has a base"}
			}
			names = append(names, base[0])
		}
		e.Set([]string{"permitted", "excluded"}[p.Tag&1], value.ListOf(showGeneralNames(names)...))
	}
	return err
}

func makeNoCheck(v any, _ *scope) ([]byte, bool, error) {
	return must(asn1.NullRawValue, ""), strings.Contains(textOf(v), "critical"), nil
}

func makeTLSFeature(v any, _ *scope) ([]byte, bool, error) {
	words := value.Items(v)
	if s, ok := v.(string); ok {
		words = nil
		for w := range strings.SplitSeq(s, ",") {
			words = append(words, strings.TrimSpace(w))
		}
	}
	var all []int
	critical := false
	for _, w := range words {
		if w == "critical" {
			critical = true
			continue
		}
		n, ok := map[string]int{"status_request": 5, "status_request_v2": 17}[textOf(w)]
		if !ok {
			return nil, false, fn.Invalidf("%s is no TLS feature; there are status_request and status_request_v2", value.Repr(w))
		}
		all = append(all, n)
	}
	return must(all, ""), critical, nil
}

func showTLSFeature(der []byte, e *value.Dict) error {
	var all []int
	if err := unmarshal(der, &all); err != nil {
		return err
	}
	out := &value.List{}
	for _, n := range all {
		switch n {
		case 5:
			out.Append("status_request")
		case 17:
			out.Append("status_request_v2")
		default:
			out.Append(strconv.Itoa(n))
		}
	}
	e.Set("value", out)
	return nil
}

func notImplemented(name string) func(any, *scope) ([]byte, bool, error) {
	return func(any, *scope) ([]byte, bool, error) {
		return nil, false, fn.Invalidf("%s is currently not implemented.", name)
	}
}

func makeCRLNumber(v any, _ *scope) ([]byte, bool, error) {
	n, err := number(v)
	if err != nil {
		return nil, false, fn.Invalidf("cRLNumber must be an integer and must be marked as non-critical")
	}
	return must(n, ""), false, nil
}

func makeDelta(v any, _ *scope) ([]byte, bool, error) {
	s := textOf(v)
	all := strings.FieldsFunc(s, func(c rune) bool { return c < '0' || c > '9' })
	if len(all) != 1 {
		return nil, false, fn.Invalidf("deltaCRLIndicator must contain a single integer pointing to a cRLNumber")
	}
	n, err := number(all[0])
	return must(n, ""), strings.Contains(s, "critical"), err
}

func makeReason(v any, _ *scope) ([]byte, bool, error) {
	critical := has(v, "critical")
	switch x := v.(type) {
	case string:
		words, c := confString(x)
		critical, v = c, words[0].kind
	case *value.List:
		rest := slices.DeleteFunc(slices.Clone(x.Items), func(it any) bool { return it == "critical" })
		if len(rest) > 0 {
			v = rest[0]
		}
	}
	n := slices.Index(revocations[:], textOf(v))
	if n < 0 || n == 7 {
		return nil, false, fn.Invalidf("%s is not a valid ReasonFlags", value.Repr(v))
	}
	return must(asn1.Enumerated(n), ""), critical, nil
}

func showReason(der []byte, e *value.Dict) error {
	var n asn1.Enumerated
	if err := unmarshal(der, &n); err != nil {
		return err
	}
	if n < 0 || int(n) >= len(revocations) {
		return asn1.StructuralError{Msg: "an unknown reason"}
	}
	e.Set("value", revocations[n])
	return nil
}

func makeInvalidityDate(v any, _ *scope) ([]byte, bool, error) {
	s, ok := v.(string)
	if !ok {
		return nil, false, fn.Invalidf("invalidityDate must be a string")
	}
	critical := strings.HasPrefix(s, "critical")
	if critical {
		_, s, _ = strings.Cut(s, " ")
	}
	t, err := ParseTime(s)
	return must(t, "generalized"), critical, err
}

func showInvalidityDate(der []byte, e *value.Dict) error {
	var t time.Time
	_, err := asn1.UnmarshalWithParams(der, &t, "generalized")
	e.Set("value", t.UTC().Format(TimeFormat))
	return err
}
