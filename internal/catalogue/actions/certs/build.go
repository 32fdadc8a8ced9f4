package certs

import (
	"crypto"
	"crypto/rand"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"time"

	"brine/internal/base/field"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Compat renames keywords of Salt's earlier module to the present ones, in place.
func Compat(kw *value.Dict) {
	rename := func(name string, long []string) {
		for _, l := range long {
			if v, ok := kw.Get(l); ok {
				kw.Delete(l)
				kw.Set(name, v)
			}
		}
	}
	for _, a := range nameAttributes {
		rename(a.name, a.long)
	}
	for _, k := range kinds() {
		if !k.entry {
			rename(k.name, k.longNames())
		}
	}
}

// Merge returns the arguments of a request overridden by a signing policy. Neither argument is
// changed.
func Merge(policy, kw *value.Dict) *value.Dict {
	out := kw.Clone()
	Compat(out)
	if policy.Len() == 0 {
		return out
	}
	policy = policy.Clone()
	Compat(policy)
	subject, ok := out.Get("subject")
	switch fixed := policy.At("subject").(type) {
	case nil:
		if ok && slices.ContainsFunc(nameAttributes[:], func(a nameAttribute) bool { return policy.Has(a.name) }) {
			out.Delete("subject")
		}
	case *value.Dict:
		if d, same := subject.(*value.Dict); same {
			d = d.Clone()
			d.Update(fixed)
			policy.Set("subject", d)
		}
	case *value.List:
		if l, same := subject.(*value.List); same {
			policy.Set("subject", value.ListOf(append(slices.Clone(fixed.Items), l.Items...)...))
		}
	}
	out.Update(policy)
	return out
}

// Policy reads a signing policy, which may be a list of maps.
func Policy(v any) *value.Dict {
	switch x := v.(type) {
	case *value.Dict:
		return x
	case *value.List:
		d := value.NewDict(x.Len())
		for _, it := range x.Items {
			if m, ok := it.(*value.Dict); ok {
				d.Update(m)
			}
		}
		return d
	}
	return value.NewDict(0)
}

// Issue describes a certificate or request to be made.
type Issue struct {
	signer crypto.Signer // nil if another machine signs
	// Key is the private key of the certificate, if it was given.
	Key        crypto.Signer
	CA         *Certificate // nil for a self-signed certificate
	Serial     *big.Int
	Subject    Name
	Issuer     Name
	rawIssuer  []byte
	PublicKey  []byte
	Extensions []Extension
	notBefore  time.Time
	notAfter   time.Time
	digest     string
}

// Digest returns the name of the hash for the signature, "" for keys that need none.
func (i *Issue) Digest() string { return i.digest }

// text returns an argument that is a string, or nil if it is missing or null.
func text(kw *value.Dict, name string) *string {
	v := kw.At(name)
	if v == nil {
		return nil
	}
	s := value.Str(v)
	return &s
}

// Days is the default of days_valid.
const Days = 365

// Prepare reads the arguments of x509.create_certificate. remote says that another machine
// signs, so that no signing key is needed.
func Prepare(kw *value.Dict, remote bool) (*Issue, error) {
	i := &Issue{digest: "sha256"}
	if d := text(kw, "digest"); d != nil {
		if i.digest = strings.ToLower(*d); !slices.Contains(Digests(), i.digest) {
			return nil, BadDigest(*d)
		}
	}
	if !remote {
		k, err := LoadKey(kw.At("signing_private_key"), text(kw, "signing_private_key_passphrase"))
		if err != nil {
			return nil, err
		}
		i.signer = k.Signer
	}
	var request *Request
	var err error
	if v := kw.At("csr"); value.Truth(v) {
		if request, err = loadRequestOf(v); err != nil {
			return nil, err
		}
	}
	if v := kw.At("signing_cert"); value.Truth(v) {
		if i.CA, err = LoadCertificate(v); err != nil {
			return nil, err
		}
	}
	if err := i.choosePublic(kw, request); err != nil {
		return nil, err
	}
	if i.Serial, err = parseSerial(kw.At("serial_number")); err != nil {
		return nil, err
	}
	subject := any(kw)
	if s := kw.At("subject"); value.Truth(s) {
		subject = s
	}
	if i.Subject, err = ParseName(subject); err != nil {
		return nil, err
	}
	i.Issuer, i.rawIssuer = i.Subject, i.Subject.encode()
	if i.CA != nil {
		i.Issuer, i.rawIssuer = i.CA.Subject, i.CA.rawSubject
	}
	if err := i.validity(kw); err != nil {
		return nil, err
	}
	return i, i.extend(kw, request)
}

// BadDigest returns the error for an unknown hash.
func BadDigest(name string) error {
	return fn.Errorf("Invalid value '%s' for digest. Valid: %s", name, strings.Join(Digests(), ", "))
}

func loadRequestOf(v any) (*Request, error) {
	if b, ok := v.([]byte); ok {
		return parseRequest(b)
	}
	return LoadRequest(v)
}

// choosePublic finds the public key, and checks that the CA's key belongs to its certificate.
func (i *Issue) choosePublic(kw *value.Dict, request *Request) error {
	var err error
	switch {
	case i.CA == nil && i.signer == nil:
		return fn.Invalidf("the signing policy has no signing_cert, so that the certificate cannot be compared")
	case i.CA == nil:
		i.PublicKey, err = publicDER(i.signer.Public())
		return err
	case value.Truth(kw.At("private_key")):
		k, err := LoadKey(kw.At("private_key"), text(kw, "private_key_passphrase"))
		if err != nil {
			return err
		}
		i.Key = k.Signer
		if i.PublicKey, err = publicDER(k.Public()); err != nil {
			return err
		}
	case value.Truth(kw.At("public_key")):
		if i.PublicKey, err = LoadPublic(kw.At("public_key")); err != nil {
			return err
		}
	case request != nil:
		i.PublicKey = request.PublicKey
	default:
		return fn.Invalidf("This certificate is not self-signed (signing_cert is set) and thus needs public_key, private_key or csr to derive " +
			"public key to sign")
	}
	if i.signer == nil {
		return nil
	}
	own, err := publicDER(i.signer.Public())
	if err != nil {
		return err
	}
	if !SamePublic(own, i.CA.PublicKey) {
		return fn.Invalidf("Signing private key does not match the certificate's public key")
	}
	return nil
}

func (i *Issue) validity(kw *value.Dict) error {
	now := time.Now().UTC()
	i.notBefore = now
	days := Days
	if v := kw.At("days_valid"); v != nil {
		n, err := number(v)
		if err != nil {
			return err
		}
		days = n
	}
	i.notAfter = now.Add(time.Duration(days) * 24 * time.Hour)
	for _, x := range []struct {
		key string
		at  *time.Time
	}{{"not_before", &i.notBefore}, {"not_after", &i.notAfter}} {
		if v := kw.At(x.key); value.Truth(v) {
			t, err := ParseTime(v)
			if err != nil {
				return err
			}
			*x.at = t
		}
	}
	if i.notAfter.Before(i.notBefore) {
		return fn.Invalidf("The not valid after date must be after the not valid before date.")
	}
	return nil
}

func (i *Issue) extend(kw *value.Dict, request *Request) error {
	c := &scope{subject: i.PublicKey, ca: i.CA}
	if i.CA == nil {
		c.caKey = i.PublicKey
	}
	for _, k := range kinds() {
		v, ok := kw.Get(k.name)
		if !k.crt || !ok || v == nil { // null in a policy forbids an extension
			continue
		}
		e, err := k.create(v, c)
		if err != nil {
			return err
		}
		i.Extensions = append(i.Extensions, e)
	}
	if request == nil {
		return nil
	}
	for _, k := range kinds() {
		if !k.crt || !k.csr || slices.ContainsFunc(i.Extensions, func(e Extension) bool { return e.ID.String() == k.oid }) || k.oid == "" {
			continue
		}
		for _, e := range request.Extensions {
			if e.ID.String() == k.oid {
				i.Extensions = append(i.Extensions, e)
				break
			}
		}
	}
	return nil
}

// Sign makes the certificate.
func (i *Issue) Sign() (*Certificate, error) {
	der, err := sign(i.signer, i.digest, func(id pkix.AlgorithmIdentifier) ([]byte, error) {
		return asn1.Marshal(struct {
			Version    int `asn1:"explicit,tag:0"`
			Serial     *big.Int
			Algorithm  pkix.AlgorithmIdentifier
			Issuer     asn1.RawValue
			Validity   struct{ NotBefore, NotAfter time.Time }
			Subject    asn1.RawValue
			PublicKey  asn1.RawValue
			Extensions []Extension `asn1:"omitempty,explicit,tag:3"`
		}{2, i.Serial, id, asn1.RawValue{FullBytes: i.rawIssuer}, struct{ NotBefore, NotAfter time.Time }{i.notBefore, i.notAfter},
			asn1.RawValue{FullBytes: i.Subject.encode()}, asn1.RawValue{FullBytes: i.PublicKey}, i.Extensions})
	})
	if err != nil {
		return nil, err
	}
	c, err := parseCertificate(der)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return c, nil
}

// parseSerial reads a serial number, as an integer or hexadecimal digits. Without one it returns
// a random number.
func parseSerial(v any) (*big.Int, error) {
	var n *big.Int
	switch x := v.(type) {
	case nil:
		b := make([]byte, 20)
		rand.Read(b) // never fails
		b[0] &= 0x7f
		return new(big.Int).SetBytes(b), nil
	case int64:
		n = big.NewInt(x)
	case *big.Int:
		n = x
	case uint64:
		n = new(big.Int).SetUint64(x)
	case string:
		b, err := hex.DecodeString(strings.ReplaceAll(x, ":", ""))
		if err != nil {
			return nil, fn.Errorf("Could not parse serial number %s", x)
		}
		n = new(big.Int).SetBytes(b)
	default:
		return nil, fn.Errorf("Could not parse serial number %s", value.Str(v))
	}
	switch {
	case n.Sign() <= 0:
		return nil, fn.Errorf("The serial number should be positive.")
	case n.BitLen() > 159:
		return nil, fn.Errorf("The serial number should not be more than 159 bits.")
	}
	return n, nil
}

// PrepareRequest reads the arguments of x509.create_csr.
func PrepareRequest(kw *value.Dict) (*Issue, error) {
	k, err := LoadKey(kw.At("private_key"), text(kw, "private_key_passphrase"))
	if err != nil {
		return nil, err
	}
	i := &Issue{signer: k.Signer, digest: "sha256"}
	if d := text(kw, "digest"); d != nil {
		if i.digest = strings.ToLower(*d); !slices.Contains(Digests(), i.digest) {
			return nil, BadDigest(*d)
		}
	}
	if i.PublicKey, err = publicDER(k.Public()); err != nil {
		return nil, err
	}
	subject := any(kw)
	if s := kw.At("subject"); value.Truth(s) {
		subject = s
	}
	if i.Subject, err = ParseName(subject); err != nil {
		return nil, err
	}
	for _, kind := range kinds() {
		if !kind.crt || !kind.csr || !kw.Has(kind.name) {
			continue
		}
		e, err := kind.create(kw.At(kind.name), &scope{subject: i.PublicKey})
		if err != nil {
			return nil, err
		}
		i.Extensions = append(i.Extensions, e)
	}
	return i, nil
}

// SignRequest makes the request.
func (i *Issue) SignRequest() (*Request, error) {
	der, err := sign(i.signer, i.digest, func(pkix.AlgorithmIdentifier) ([]byte, error) {
		body := must(0, "")
		body = append(body, i.Subject.encode()...)
		body = append(body, i.PublicKey...)
		var attributes []byte
		if len(i.Extensions) > 0 {
			list, err := asn1.Marshal(i.Extensions)
			if err != nil {
				return nil, err
			}
			attributes = attribute(oidExtensionRequest, asn1.RawValue{FullBytes: list})
		}
		return sequence(append(body, must(tagged(0, true, attributes), "")...)), nil
	})
	if err != nil {
		return nil, err
	}
	return parseRequest(der)
}

// Revoke describes a revocation list to be made.
type Revoke struct {
	signer     crypto.Signer
	issuer     *Certificate
	Revoked    []Revocation
	Extensions []Extension
	next       time.Duration
	digest     string
}

// Issuer returns the name of the issuer.
func (r *Revoke) Issuer() Name {
	if r.issuer == nil {
		return nil
	}
	return r.issuer.Subject
}

// Digest returns the name of the hash for the signature, "" for keys that need none.
func (r *Revoke) Digest() string { return r.digest }

// SigningKey returns the public key of the issuer.
func (r *Revoke) SigningKey() ([]byte, error) { return publicDER(r.signer.Public()) }

// Revocations are the arguments for a revocation list.
type Revocations struct {
	Key, Certificate any
	Passphrase       *string
	Revoked          any // a list of maps
	IncludeExpired   bool
	Days             int
	Digest           string
	Extensions       *value.Dict
}

// CheckRevoked rejects what is not a list, such as null: a list without certificates would declare all of them valid
// again.
func CheckRevoked(revoked any) error {
	switch revoked.(type) {
	case *value.List, value.Tuple:
		return nil
	}
	return fn.Invalidf("revoked must be a list of maps, not %s", field.Describe(revoked))
}

// PrepareList reads the arguments of x509.create_crl.
func PrepareList(a Revocations, log *slog.Logger) (*Revoke, error) {
	r := &Revoke{next: time.Duration(a.Days) * 24 * time.Hour, digest: strings.ToLower(a.Digest)}
	if !slices.Contains(Digests(), r.digest) {
		return nil, BadDigest(a.Digest)
	}
	var err error
	if value.Truth(a.Certificate) {
		if r.issuer, err = LoadCertificate(a.Certificate); err != nil {
			return nil, err
		}
	}
	k, err := LoadKey(a.Key, a.Passphrase)
	if err != nil {
		return nil, err
	}
	r.signer = k.Signer
	own, err := r.SigningKey()
	if err != nil {
		return nil, err
	}
	if r.issuer != nil && !SamePublic(own, r.issuer.PublicKey) {
		return nil, fn.Invalidf("Signing private key does not match the certificate's public key")
	}
	if err := CheckRevoked(a.Revoked); err != nil {
		return nil, err
	}
	for _, it := range value.Items(a.Revoked) {
		d, ok := it.(*value.Dict)
		if !ok {
			return nil, fn.Invalidf("a revoked certificate is a map, not %s", value.Repr(it))
		}
		if err := r.revoke(revoked(d), a.IncludeExpired, log); err != nil {
			return nil, err
		}
	}
	for k, v := range a.Extensions.All() {
		at := slices.IndexFunc(kinds(), func(x kind) bool { return x.crl && x.name == k })
		if at < 0 {
			log.Warn("Ignoring invalid CRL extension: " + textOf(k))
			continue
		}
		e, err := kinds()[at].create(v, &scope{ca: r.issuer})
		if err != nil {
			return nil, err
		}
		r.Extensions = append(r.Extensions, e)
	}
	return r, nil
}

// revoked converts an entry in one of Salt's earlier forms: a name with a list of maps, and
// reason.
func revoked(d *value.Dict) *value.Dict {
	if d.Len() == 1 {
		_, v := d.Entry(0)
		if l, ok := v.(*value.List); ok {
			d = Policy(l)
		}
	}
	if reason, ok := d.Get("reason"); ok {
		d = d.Clone()
		d.Delete("reason")
		e := value.NewDict(1)
		e.Update(d.Dict("extensions"))
		e.Set("CRLReason", reason)
		d.Set("extensions", e)
	}
	return d
}

func (r *Revoke) revoke(d *value.Dict, expired bool, log *slog.Logger) error {
	serial, date := d.At("serial_number"), time.Now().UTC()
	var end time.Time
	var err error
	if v := d.At("not_after"); v != nil {
		if end, err = ParseTime(v); err != nil {
			return err
		}
	}
	entry := Revocation{}
	if v := d.At("certificate"); v != nil {
		c, err := LoadCertificate(v)
		if err != nil {
			return err
		}
		entry.Serial, end = c.Serial, c.NotAfter
	} else if !value.Truth(serial) {
		return fn.Invalidf("Need serial_number or certificate")
	} else if entry.Serial, err = parseSerial(serial); err != nil {
		return err
	}
	if !end.IsZero() && !expired && date.After(end) {
		return nil
	}
	entry.Date = date
	if v := d.At("revocation_date"); v != nil {
		if entry.Date, err = ParseTime(v); err != nil {
			return err
		}
	}
	for k, v := range d.Dict("extensions").All() {
		at := slices.IndexFunc(kinds(), func(x kind) bool { return x.entry && x.name == k })
		if at < 0 {
			log.Warn("Ignoring invalid CRL entry extension: " + textOf(k))
			continue
		}
		e, err := kinds()[at].create(v, &scope{ca: r.issuer})
		if err != nil {
			return err
		}
		entry.Extensions = append(entry.Extensions, e)
	}
	r.Revoked = append(r.Revoked, entry)
	return nil
}

// Sign makes the revocation list.
func (r *Revoke) Sign() (*List, error) {
	if r.issuer == nil {
		return nil, fn.Errorf("A CRL must have an issuer name: signing_cert is needed")
	}
	now := time.Now().UTC()
	der, err := sign(r.signer, r.digest, func(id pkix.AlgorithmIdentifier) ([]byte, error) {
		return asn1.Marshal(struct {
			Version    int
			Algorithm  pkix.AlgorithmIdentifier
			Issuer     asn1.RawValue
			Updated    time.Time
			Next       time.Time
			Revoked    []Revocation `asn1:"omitempty"`
			Extensions []Extension  `asn1:"omitempty,explicit,tag:0"`
		}{1, id, asn1.RawValue{FullBytes: r.issuer.rawSubject}, now, now.Add(r.next), r.Revoked, r.Extensions})
	})
	if err != nil {
		return nil, err
	}
	return parseList(der)
}
