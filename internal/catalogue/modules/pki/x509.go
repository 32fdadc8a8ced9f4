// Package pki holds the execution modules x509 and gpg.
package pki

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/certs"
	"brine/internal/catalogue/modules"
	"brine/internal/host"
	"brine/internal/py/value"
)

// units holds the modules, which the files of this package register.
var units = modules.Family()

// Modules returns the modules of this family.
func Modules(m *host.Machine) []fn.Module { return units.Modules(m) }

func init() { units.Declare("x509", x509Module) }

type x509 struct{}

func x509Module() fn.Module {
	x := x509{}
	return fn.Module{Name: "x509", Doc: `X.509 certificates, signing requests, revocation lists and private keys.
		Keys, certificates, requests and lists are given as paths of files, in PEM, in base64 or as hexadecimal digits.`, Funcs: []fn.Func{
		fn.Of("create_certificate", x.createCertificate, `Create a certificate.
			Further keywords are those of names (C, ST, L, STREET, O, OU, CN, MAIL, SN, GN, UID, SERIALNUMBER, or all of them as subject), of extensions
			(basicConstraints, keyUsage, subjectAltName ...) as OpenSSL writes them or as maps and lists, and signing_private_key,
			signing_private_key_passphrase, signing_cert, private_key, private_key_passphrase, public_key, csr, digest, serial_number, not_before,
			not_after, days_valid (365), copypath and prepend_cn. Without signing_cert the certificate is self-signed.`,
			fn.Example("salt '*' x509.create_certificate signing_private_key='/etc/pki/myca.key' csr='/etc/pki/my.csr'")),
		fn.Of("encode_certificate", x.encodeCertificate, `Encode a certificate in another form.`,
			fn.Example("salt '*' x509.encode_certificate /etc/pki/my.crt pkcs7_pem append_certs=/etc/pki/ca.crt")),
		fn.Of("create_crl", x.createCRL, `Create a certificate revocation list.`,
			fn.Example("salt '*' x509.create_crl signing_cert=/etc/pki/ca.crt signing_private_key=/etc/pki/ca.key "+
				"revoked=\"[{'certificate': '/etc/pki/certs/www1.crt'}]\"")),
		fn.Of("encode_crl", x.encodeCRL, `Encode a certificate revocation list in another form.`, fn.Example("salt '*' x509.encode_crl /etc/pki/my.crl der")),
		fn.Of("create_csr", x.createCSR, `Create a certificate signing request. Further keywords are those of names and extensions, as in x509.create_certificate.`,
			fn.Example("salt '*' x509.create_csr private_key='/etc/pki/my.key' CN='My Cert'")),
		fn.Of("encode_csr", x.encodeCSR, `Encode a certificate signing request in another form.`, fn.Example("salt '*' x509.encode_csr /etc/pki/my.csr der")),
		fn.Of("create_private_key", x.createPrivateKey, `Create a private key.`, fn.Example("salt '*' x509.create_private_key algo=ec keysize=384")),
		fn.Of("encode_private_key", x.encodePrivateKey, `Encode a private key in another form.`, fn.Example("salt '*' x509.encode_private_key /etc/pki/my.key der")),
		fn.Of("expires", x.expires, `Return whether a certificate has expired, or will expire in a number of days.`,
			fn.Example("salt '*' x509.expires /etc/pki/my.crt days=7")),
		fn.Of("expired", x.expired, `Return whether a certificate has expired, with its common name and path.`,
			fn.Example("salt '*' x509.expired /etc/pki/mycert.crt")),
		fn.Of("will_expire", x.willExpire, `Return whether a certificate will expire in a number of days, with its common name and path.`,
			fn.Example("salt '*' x509.will_expire /etc/pki/mycert.crt days=30")),
		fn.Of("get_pem_entries", x.getPEMEntries, `Return the first PEM entry of each file that matches a glob.`,
			fn.Example(`salt '*' x509.get_pem_entries "/etc/pki/*.crt"`)),
		fn.Of("get_pem_entry", x.getPEMEntry, `Return the first PEM entry of a text or file, with its usual line breaks.`,
			fn.Example(`salt '*' x509.get_pem_entry /etc/pki/my.crt CERTIFICATE`)),
		fn.Of("get_private_key_size", x.getPrivateKeySize, `Return the length of a private key in bits; null for ed25519.`,
			fn.Example("salt '*' x509.get_private_key_size /etc/pki/mycert.key")),
		fn.Of("get_public_key", x.getPublicKey, `Return the public key of a certificate, a private key, a request or a public key, in PEM.`,
			fn.Example("salt '*' x509.get_public_key /etc/pki/mycert.cer")),
		fn.Of("get_signing_policy", x.getSigningPolicy, `Return a signing policy of this minion or of another one.`,
			fn.Example("salt '*' x509.get_signing_policy www")),
		fn.Of("read_certificate", x.readCertificate, `Return the contents of a certificate.`, fn.Example("salt '*' x509.read_certificate /etc/pki/mycert.crt")),
		fn.Of("read_certificates", x.readCertificates, `Return the contents of the certificates whose files match a glob.`,
			fn.Example(`salt '*' x509.read_certificates "/etc/pki/*.crt"`)),
		fn.Of("read_crl", x.readCRL, `Return the contents of a certificate revocation list.`, fn.Example("salt '*' x509.read_crl /etc/pki/my.crl")),
		fn.Of("read_csr", x.readCSR, `Return the contents of a certificate signing request.`, fn.Example("salt '*' x509.read_csr /etc/pki/mycert.csr")),
		fn.Of("sign_remote_certificate", x.signRemote, `Sign a certificate for another minion, which calls this by publish.publish.
			The signing policy decides: its settings replace those of the request, and minions names who may use it, a glob or a compound expression.`,
			fn.Example("salt '*' x509.sign_remote_certificate www kwargs=\"{'public_key': '/etc/pki/www.key'}\"")),
		fn.Of("verify_crl", x.verifyCRL, `Return whether a certificate has signed a certificate revocation list.`,
			fn.Example("salt '*' x509.verify_crl /etc/pki/my.crl /etc/pki/my.crt")),
		fn.Of("verify_private_key", x.verifyPrivateKey, `Return whether a private key belongs to a public key, or to that of a certificate or request.`,
			fn.Example("salt '*' x509.verify_private_key /etc/pki/my.key /etc/pki/my.crt")),
		fn.Of("verify_signature", x.verifySignature, `Return whether a public key, or that of a certificate or request, has signed a certificate.
			Without one it is the certificate's own.`,
			fn.Example("salt '*' x509.verify_signature /etc/pki/mycert.pem signing_pub_key=/etc/pki/myca.crt")),
		fn.Of("write_pem", x.writePEM, `Write the first PEM entry of a text to a file. A new file is for its owner alone.`,
			fn.Example(`salt '*' x509.write_pem "-----BEGIN CERTIFICATE-----MIIGMzCCBBugA..." path=/etc/pki/mycert.crt`)),
	}}
}

// storeArgs are the options for writing pkcs12.
type storeArgs struct {
	PKCS12Passphrase   *string `salt:"pkcs12_passphrase" doc:"passphrase of pkcs12" default:"null"`
	PKCS12Compat       bool    `salt:"pkcs12_encryption_compat" doc:"encrypt pkcs12 as old systems need it (PBESv1SHA1And3KeyTripleDESCBC)" default:"false"`
	PKCS12FriendlyName *string `salt:"pkcs12_friendlyname" doc:"name of the certificate in pkcs12" default:"null"`
}

type createCertificateArgs struct {
	CAServer      any    `salt:"ca_server" doc:"minion that signs" default:"null"`
	SigningPolicy any    `salt:"signing_policy" doc:"name of a signing policy, needed with ca_server" default:"null"`
	Encoding      string `salt:"encoding" doc:"pem, der, pkcs7_pem, pkcs7_der or pkcs12; binary ones are returned in base64" default:"pem"`
	AppendCerts   any    `salt:"append_certs" doc:"certificates to append" default:"null"`
	storeArgs
	Path      *string   `salt:"path" doc:"file to write instead of returning the certificate" default:"null"`
	Overwrite bool      `salt:"overwrite" doc:"replace an existing file" default:"true"`
	Raw       bool      `salt:"raw" doc:"return bytes" default:"false"`
	Kwargs    fn.Kwargs `salt:"kwargs"`
}

// oneOf validates an encoding.
func oneOf(encoding string, valid ...string) error {
	if slices.Contains(valid, encoding) {
		return nil
	}
	return fn.Errorf("Invalid value '%s' for encoding. Valid: %s", encoding, strings.Join(valid, ", "))
}

var encodings = []string{"der", "pem", "pkcs7_der", "pkcs7_pem", "pkcs12"}

// keywords returns the user's keywords under their present names, without those that have
// no effect.
func keywords(kw fn.Kwargs, ignored ...string) *value.Dict {
	d := kw.Clean()
	if v, ok := d.Get("algorithm"); ok {
		d.Delete("algorithm")
		d.Set("digest", v)
	}
	for _, k := range ignored {
		d.Delete(k)
	}
	certs.Compat(d)
	return d
}

func (x509) createCertificate(ctx context.Context, c *fn.Call, a createCertificateArgs) (any, error) {
	kw := keywords(a.Kwargs, "text", "version", "serial_bits")
	if !kw.Has("days_valid") && !kw.Has("not_after") {
		kw.Set("days_valid", int64(certs.Days))
	}
	if err := oneOf(a.Encoding, encodings...); err != nil {
		return nil, err
	}
	if d := kw.At("digest"); d != nil && !slices.Contains(certs.Digests(), strings.ToLower(value.Str(d))) {
		return nil, certs.BadDigest(value.Str(d))
	}
	switch {
	case a.Encoding == "der" && value.Truth(a.AppendCerts):
		return nil, fn.Invalidf("Cannot encode a certificate chain in DER")
	case a.Encoding == "pkcs12" && !value.Truth(kw.At("private_key")):
		return nil, errNoKey
	case !kw.Has("signing_private_key") && !value.Truth(a.CAServer):
		return nil, fn.Invalidf("Creating a certificate locally at least requires a signing private key.")
	}
	if a.Path != nil && !a.Overwrite && certs.IsFile(*a.Path) {
		return "The file at " + *a.Path + " exists and overwrite was set to false", nil
	}
	server := a.CAServer
	if !value.Truth(server) {
		server = nil
	}
	cert, made, err := certs.Make(ctx, c, server, a.SigningPolicy, kw)
	if err != nil {
		return nil, err
	}
	out, err := encode(cert, a.AppendCerts, a.Encoding, made, a.storeArgs)
	if err != nil {
		return nil, err
	}
	if a.Path == nil {
		return shown(out, a.Encoding, a.Raw), nil
	}
	if a.Encoding == "pem" {
		if len(value.Items(listed(a.AppendCerts))) > 0 {
			return "PEM written to " + *a.Path, certs.WriteFile(*a.Path, out)
		}
		return "PEM written to " + *a.Path, certs.WritePEM(string(out), *a.Path, a.Overwrite, "CERTIFICATE")
	}
	return "Certificate written to " + *a.Path, certs.WriteFile(*a.Path, out)
}

var errNoKey = fn.Invalidf("Creating a PKCS12-encoded certificate without embedded private key is unsupported")

func listed(v any) any {
	if _, ok := v.(*value.List); ok || v == nil {
		return v
	}
	return value.ListOf(v)
}

// encode encodes a certificate and the appended ones.
func encode(cert *certs.Certificate, appended any, encoding string, made *certs.Issue, a storeArgs) ([]byte, error) {
	chain, err := certs.LoadChain(appended)
	if err != nil {
		return nil, err
	}
	if encoding != "pkcs12" {
		return certs.EncodeCertificates(cert, chain, encoding)
	}
	if made.Key == nil {
		return nil, errNoKey
	}
	return certs.EncodeStore(cert, chain, made.Key, a.PKCS12Passphrase, a.PKCS12FriendlyName, a.PKCS12Compat)
}

// shown returns an encoded object as a function returns it.
func shown(b []byte, encoding string, raw bool) any {
	switch {
	case raw:
		return b
	case strings.HasSuffix(encoding, "pem"):
		return string(b)
	}
	return base64.StdEncoding.EncodeToString(b)
}

type encodeCertificateArgs struct {
	Certificate          any     `salt:"certificate" doc:"certificate"`
	Encoding             string  `salt:"encoding" doc:"pem, der, pkcs7_pem, pkcs7_der or pkcs12; binary ones are returned in base64" default:"pem"`
	AppendCerts          any     `salt:"append_certs" doc:"certificates to append" default:"null"`
	PrivateKey           any     `salt:"private_key" doc:"its private key, for pkcs12" default:"null"`
	PrivateKeyPassphrase *string `salt:"private_key_passphrase" doc:"passphrase of that" default:"null"`
	storeArgs
	Raw bool `salt:"raw" doc:"return bytes" default:"false"`
}

func (x509) encodeCertificate(_ context.Context, _ *fn.Call, a encodeCertificateArgs) (any, error) {
	if err := oneOf(a.Encoding, encodings...); err != nil {
		return nil, err
	}
	switch has := value.Truth(a.PrivateKey); {
	case a.Encoding == "der" && value.Truth(a.AppendCerts):
		return nil, fn.Invalidf("Cannot encode a certificate chain in DER")
	case a.Encoding != "pkcs12" && has:
		return nil, fn.Invalidf("Embedding private keys is only supported for pkcs12 encoding")
	case a.Encoding == "pkcs12" && !has:
		return nil, errNoKey
	}
	cert, err := certs.LoadCertificate(a.Certificate)
	if err != nil {
		return nil, err
	}
	made := &certs.Issue{}
	if value.Truth(a.PrivateKey) {
		k, err := certs.LoadKey(a.PrivateKey, a.PrivateKeyPassphrase)
		if err != nil {
			return nil, err
		}
		made.Key = k.Signer
	}
	out, err := encode(cert, a.AppendCerts, a.Encoding, made, a.storeArgs)
	return shown(out, a.Encoding, a.Raw), err
}

type createCRLArgs struct {
	SigningPrivateKey any         `salt:"signing_private_key" doc:"private key of the issuer"`
	Revoked           any         `salt:"revoked" doc:"list of maps: certificate, or serial_number and not_after; revocation_date, and extensions CRLReason, invalidityDate"`
	SigningCert       any         `salt:"signing_cert" doc:"certificate of the issuer" default:"null"`
	Passphrase        *string     `salt:"signing_private_key_passphrase" doc:"passphrase of the private key" default:"null"`
	IncludeExpired    bool        `salt:"include_expired" doc:"also list certificates that have expired" default:"false"`
	DaysValid         *int        `salt:"days_valid" doc:"days until the next list is due; 100 if it is null" default:"null"`
	Digest            string      `salt:"digest" doc:"hash for the signature" default:"sha256"`
	Encoding          string      `salt:"encoding" doc:"pem, or der, which is returned in base64" default:"pem"`
	Extensions        *value.Dict `salt:"extensions" doc:"extensions of the list, such as cRLNumber and authorityKeyIdentifier" default:"null"`
	Path              *string     `salt:"path" doc:"file to write instead of returning the list" default:"null"`
	Raw               bool        `salt:"raw" doc:"return bytes" default:"false"`
	Kwargs            fn.Kwargs   `salt:"kwargs"`
}

// unknown rejects unknown keywords, except those without effect.
func unknown(kw fn.Kwargs, ignored ...string) error {
	d := kw.Clean()
	var names []string
	for k := range d.All() {
		if !slices.Contains(ignored, value.Str(k)) {
			names = append(names, value.Str(k))
		}
	}
	if names != nil {
		return fn.Invalidf("Unrecognized keyword arguments: %s", value.Repr(value.Strings(names)))
	}
	return nil
}

func (x509) createCRL(_ context.Context, c *fn.Call, a createCRLArgs) (any, error) {
	if err := unknown(a.Kwargs, "text"); err != nil {
		return nil, err
	}
	if err := oneOf(a.Encoding, "der", "pem"); err != nil {
		return nil, err
	}
	days := 100
	if a.DaysValid != nil {
		days = *a.DaysValid
	}
	r, err := certs.PrepareList(certs.Revocations{Key: a.SigningPrivateKey, Certificate: a.SigningCert, Passphrase: a.Passphrase, Revoked: a.Revoked,
		IncludeExpired: a.IncludeExpired, Days: days, Digest: a.Digest, Extensions: a.Extensions}, c.Log)
	if err != nil {
		return nil, err
	}
	l, err := r.Sign()
	if err != nil {
		return nil, err
	}
	return deliver(l.Encode(a.Encoding), a.Encoding, a.Raw, a.Path, "CRL")
}

// deliver returns an encoded object, or writes it to a file.
func deliver(out []byte, encoding string, raw bool, path *string, what string) (any, error) {
	if path == nil {
		return shown(out, encoding, raw), nil
	}
	if encoding == "pem" {
		what = "PEM"
	}
	return what + " written to " + *path, certs.WriteFile(*path, out)
}

type encodeCRLArgs struct {
	CRL      any    `salt:"crl" doc:"list"`
	Encoding string `salt:"encoding" doc:"pem, or der, which is returned in base64" default:"pem"`
	Raw      bool   `salt:"raw" doc:"return bytes" default:"false"`
}

func (x509) encodeCRL(_ context.Context, _ *fn.Call, a encodeCRLArgs) (any, error) {
	if err := oneOf(a.Encoding, "der", "pem"); err != nil {
		return nil, err
	}
	l, err := certs.LoadList(a.CRL)
	if err != nil {
		return nil, err
	}
	return shown(l.Encode(a.Encoding), a.Encoding, a.Raw), nil
}

type createCSRArgs struct {
	PrivateKey           any       `salt:"private_key" doc:"private key of the certificate"`
	PrivateKeyPassphrase *string   `salt:"private_key_passphrase" doc:"passphrase of that" default:"null"`
	Digest               string    `salt:"digest" doc:"hash for the signature" default:"sha256"`
	Encoding             string    `salt:"encoding" doc:"pem, or der, which is returned in base64" default:"pem"`
	Path                 *string   `salt:"path" doc:"file to write instead of returning the request" default:"null"`
	Raw                  bool      `salt:"raw" doc:"return bytes" default:"false"`
	Kwargs               fn.Kwargs `salt:"kwargs"`
}

func (x509) createCSR(_ context.Context, _ *fn.Call, a createCSRArgs) (any, error) {
	kw := keywords(a.Kwargs, "text", "version")
	if !kw.Has("digest") {
		kw.Set("digest", a.Digest)
	}
	if err := oneOf(a.Encoding, "der", "pem"); err != nil {
		return nil, err
	}
	kw.Set("private_key", a.PrivateKey)
	if a.PrivateKeyPassphrase != nil {
		kw.Set("private_key_passphrase", *a.PrivateKeyPassphrase)
	}
	i, err := certs.PrepareRequest(kw)
	if err != nil {
		return nil, err
	}
	r, err := i.SignRequest()
	if err != nil {
		return nil, err
	}
	return deliver(r.Encode(a.Encoding), a.Encoding, a.Raw, a.Path, "CSR")
}

type encodeCSRArgs struct {
	CSR      any    `salt:"csr" doc:"request"`
	Encoding string `salt:"encoding" doc:"pem, or der, which is returned in base64" default:"pem"`
	Raw      bool   `salt:"raw" doc:"return bytes" default:"false"`
}

func (x509) encodeCSR(_ context.Context, _ *fn.Call, a encodeCSRArgs) (any, error) {
	if err := oneOf(a.Encoding, "der", "pem"); err != nil {
		return nil, err
	}
	r, err := certs.LoadRequest(a.CSR)
	if err != nil {
		return nil, err
	}
	return shown(r.Encode(a.Encoding), a.Encoding, a.Raw), nil
}

type createKeyArgs struct {
	Algo       string    `salt:"algo" doc:"rsa, ec or ed25519" default:"rsa"`
	Keysize    *int      `salt:"keysize" doc:"bits: 2048, 3072 or 4096 for rsa, 256, 384 or 521 for ec" default:"null"`
	Passphrase *string   `salt:"passphrase" doc:"passphrase to encrypt it with" default:"null"`
	Encoding   string    `salt:"encoding" doc:"pem, der or pkcs12; binary ones are returned in base64" default:"pem"`
	Compat     bool      `salt:"pkcs12_encryption_compat" doc:"encrypt pkcs12 as old systems need it (PBESv1SHA1And3KeyTripleDESCBC)" default:"false"`
	Path       *string   `salt:"path" doc:"file to write instead of returning the key" default:"null"`
	Raw        bool      `salt:"raw" doc:"return bytes" default:"false"`
	Kwargs     fn.Kwargs `salt:"kwargs"`
}

func (x509) createPrivateKey(_ context.Context, _ *fn.Call, a createKeyArgs) (any, error) {
	if err := unknown(a.Kwargs, "bits", "cipher", "verbose", "text"); err != nil {
		return nil, err
	}
	size := 0
	if a.Keysize != nil {
		size = *a.Keysize
	}
	if v, ok := a.Kwargs.At("bits").(int64); ok {
		size = int(v)
	}
	if err := oneOf(a.Encoding, "der", "pem", "pkcs12"); err != nil {
		return nil, err
	}
	k, err := certs.Generate(a.Algo, size)
	if err != nil {
		return nil, err
	}
	out, err := certs.EncodeKey(k, a.Encoding, a.Passphrase, a.Compat)
	if err != nil {
		return nil, err
	}
	return deliver(out, a.Encoding, a.Raw, a.Path, "Private key")
}

type encodeKeyArgs struct {
	PrivateKey           any     `salt:"private_key" doc:"private key"`
	Encoding             string  `salt:"encoding" doc:"pem, der or pkcs12; binary ones are returned in base64" default:"pem"`
	Passphrase           *string `salt:"passphrase" doc:"passphrase to encrypt it with" default:"null"`
	PrivateKeyPassphrase *string `salt:"private_key_passphrase" doc:"its present passphrase" default:"null"`
	Compat               bool    `salt:"pkcs12_encryption_compat" doc:"encrypt pkcs12 as old systems need it (PBESv1SHA1And3KeyTripleDESCBC)" default:"false"`
	Raw                  bool    `salt:"raw" doc:"return bytes" default:"false"`
}

func (x509) encodePrivateKey(_ context.Context, _ *fn.Call, a encodeKeyArgs) (any, error) {
	if err := oneOf(a.Encoding, "der", "pem", "pkcs12"); err != nil {
		return nil, err
	}
	k, err := certs.LoadKey(a.PrivateKey, a.PrivateKeyPassphrase)
	if err != nil {
		return nil, err
	}
	out, err := certs.EncodeKey(k.Signer, a.Encoding, a.Passphrase, a.Compat)
	if err != nil {
		return nil, err
	}
	return shown(out, a.Encoding, a.Raw), nil
}

type expiresArgs struct {
	Certificate any `salt:"certificate" doc:"certificate"`
	Days        int `salt:"days" doc:"days from now" default:"0"`
}

func (x509) expires(_ context.Context, _ *fn.Call, a expiresArgs) (bool, error) {
	cert, err := certs.LoadCertificate(a.Certificate)
	if err != nil {
		return false, err
	}
	return cert.Expires(a.Days), nil
}

type certificateArgs struct {
	Certificate any `salt:"certificate" doc:"certificate"`
}

func (x509) expired(_ context.Context, _ *fn.Call, a certificateArgs) (*value.Dict, error) {
	return expiry(a.Certificate, 0, "expired", value.NewDict(3))
}

type willExpireArgs struct {
	Certificate any `salt:"certificate" doc:"certificate"`
	Days        int `salt:"days" doc:"days from now"`
}

func (x509) willExpire(_ context.Context, _ *fn.Call, a willExpireArgs) (*value.Dict, error) {
	return expiry(a.Certificate, a.Days, "will_expire", value.DictOf("check_days", int64(a.Days)))
}

func expiry(v any, days int, key string, d *value.Dict) (*value.Dict, error) {
	if certs.IsFile(v) {
		d.Set("path", v)
	}
	cert, err := certs.LoadCertificate(v)
	if err != nil {
		return nil, err
	}
	if cn, ok := cert.Subject.CommonName(); ok {
		d.Set("cn", cn)
	}
	d.Set(key, cert.Expires(days))
	return d, nil
}

type globArgs struct {
	GlobPath string `salt:"glob_path" doc:"glob of paths"`
}

// each reads every file that matches a glob, and skips those that cannot be parsed.
func each(glob string, read func(path string) (any, error)) (*value.Dict, error) {
	paths, err := filepath.Glob(glob)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	d := value.NewDict(len(paths))
	for _, p := range paths {
		if fi, err := os.Stat(p); err != nil || !fi.Mode().IsRegular() {
			continue
		}
		v, err := read(p)
		if err != nil {
			return nil, err
		}
		d.Set(p, v)
	}
	return d, nil
}

func (x509) getPEMEntries(_ context.Context, _ *fn.Call, a globArgs) (*value.Dict, error) {
	return each(a.GlobPath, func(path string) (any, error) { return certs.Entry(path) })
}

type entryArgs struct {
	Text    any     `salt:"text" doc:"text, or path of a file"`
	PEMType *string `salt:"pem_type" doc:"wanted type, such as CERTIFICATE" default:"null"`
}

func (x509) getPEMEntry(_ context.Context, _ *fn.Call, a entryArgs) (string, error) {
	return certs.Entry(a.Text, types(a.PEMType)...)
}

func types(t *string) []string {
	if t == nil || *t == "" {
		return nil
	}
	return []string{*t}
}

type keyArgs struct {
	PrivateKey any     `salt:"private_key" doc:"private key"`
	Passphrase *string `salt:"passphrase" doc:"its passphrase" default:"null"`
}

func (x509) getPrivateKeySize(_ context.Context, _ *fn.Call, a keyArgs) (any, error) {
	k, err := certs.LoadKey(a.PrivateKey, a.Passphrase)
	if err != nil {
		return nil, err
	}
	if _, size := certs.KeyType(k.Public()); size > 0 {
		return int64(size), nil
	}
	return nil, nil
}

type publicArgs struct {
	Key        any     `salt:"key" doc:"certificate, private key, request or public key"`
	Passphrase *string `salt:"passphrase" doc:"its passphrase" default:"null"`
	AsObj      any     `salt:"asObj" doc:"of Salt's earlier module" default:"null" ignored:"there are no objects to return"`
}

func (x509) getPublicKey(_ context.Context, _ *fn.Call, a publicArgs) (string, error) {
	spki, err := certs.PublicOf(a.Key, a.Passphrase)
	if err != nil {
		return "", err
	}
	return certs.PublicPEM(spki), nil
}

type policyArgs struct {
	SigningPolicy any `salt:"signing_policy" doc:"name of the signing policy"`
	CAServer      any `salt:"ca_server" doc:"minion that has it; null is this one" default:"null"`
}

func (x509) getSigningPolicy(ctx context.Context, c *fn.Call, a policyArgs) (*value.Dict, error) {
	return certs.SigningPolicy(ctx, c, a.SigningPolicy, a.CAServer)
}

func (x509) readCertificate(_ context.Context, _ *fn.Call, a certificateArgs) (*value.Dict, error) {
	cert, err := certs.LoadCertificate(a.Certificate)
	if err != nil {
		return nil, err
	}
	return cert.Read()
}

func (x509) readCertificates(_ context.Context, _ *fn.Call, a globArgs) (*value.Dict, error) {
	return each(a.GlobPath, func(path string) (any, error) {
		cert, err := certs.LoadCertificate(path)
		if err != nil {
			return nil, err
		}
		return cert.Read()
	})
}

type crlArgs struct {
	CRL any `salt:"crl" doc:"list"`
}

func (x509) readCRL(_ context.Context, _ *fn.Call, a crlArgs) (*value.Dict, error) {
	l, err := certs.LoadList(a.CRL)
	if err != nil {
		return nil, err
	}
	return l.Read(), nil
}

type csrArgs struct {
	CSR any `salt:"csr" doc:"request"`
}

func (x509) readCSR(_ context.Context, _ *fn.Call, a csrArgs) (*value.Dict, error) {
	r, err := certs.LoadRequest(a.CSR)
	if err != nil {
		return nil, err
	}
	return r.Read()
}

type signRemoteArgs struct {
	SigningPolicy any         `salt:"signing_policy" doc:"name of the signing policy"`
	Arguments     *value.Dict `salt:"kwargs" doc:"keywords of x509.create_certificate"`
	PolicyOnly    bool        `salt:"get_signing_policy_only" doc:"return the policy, without the private key" default:"false"`
	Kwargs        fn.Kwargs   `salt:"more_kwargs"`
}

func (x509) signRemote(ctx context.Context, c *fn.Call, a signRemoteArgs) (*value.Dict, error) {
	return certs.SignForOther(ctx, c, a.SigningPolicy, a.Arguments, a.PolicyOnly, a.Kwargs.At("__pub_id")), nil
}

type verifyCRLArgs struct {
	CRL  any `salt:"crl" doc:"list"`
	Cert any `salt:"cert" doc:"certificate, or its public key"`
}

func (x509) verifyCRL(_ context.Context, _ *fn.Call, a verifyCRLArgs) (bool, error) {
	l, err := certs.LoadList(a.CRL)
	if err != nil {
		return false, err
	}
	spki, err := certs.PublicOf(a.Cert, nil)
	if err != nil {
		return false, err
	}
	return l.SignedBy(spki)
}

type verifyKeyArgs struct {
	PrivateKey any     `salt:"private_key" doc:"private key"`
	PublicKey  any     `salt:"public_key" doc:"public key, or certificate or request that has it"`
	Passphrase *string `salt:"passphrase" doc:"passphrase of the private key" default:"null"`
}

func (x509) verifyPrivateKey(_ context.Context, _ *fn.Call, a verifyKeyArgs) (bool, error) {
	k, err := certs.LoadKey(a.PrivateKey, a.Passphrase)
	if err != nil {
		return false, err
	}
	spki, err := certs.PublicOf(a.PublicKey, nil)
	if err != nil {
		return false, err
	}
	return k.Matches(spki)
}

type verifySignatureArgs struct {
	Certificate any     `salt:"certificate" doc:"certificate"`
	Signer      any     `salt:"signing_pub_key" doc:"who signed it: a certificate or its public key; null is the certificate itself" default:"null"`
	Passphrase  *string `salt:"signing_pub_key_passphrase" doc:"passphrase of that" default:"null"`
}

func (x509) verifySignature(_ context.Context, _ *fn.Call, a verifySignatureArgs) (bool, error) {
	cert, err := certs.LoadCertificate(a.Certificate)
	if err != nil {
		return false, err
	}
	by := a.Signer
	if !value.Truth(by) {
		by = a.Certificate
	}
	spki, err := certs.PublicOf(by, a.Passphrase)
	if err != nil {
		return false, err
	}
	return cert.SignedBy(spki)
}

type writePEMArgs struct {
	Text      any     `salt:"text" doc:"text, or path of a file"`
	Path      string  `salt:"path" doc:"file to write"`
	Overwrite bool    `salt:"overwrite" doc:"with False, and CERTIFICATE, a private key and DH parameters in the file stay there" default:"true"`
	PEMType   *string `salt:"pem_type" doc:"wanted type, such as CERTIFICATE" default:"null"`
}

func (x509) writePEM(_ context.Context, _ *fn.Call, a writePEMArgs) (string, error) {
	text, err := certs.Entry(a.Text, types(a.PEMType)...)
	if err == nil {
		err = certs.WritePEM(text, a.Path, a.Overwrite, types(a.PEMType)...)
	}
	return "PEM written to " + a.Path, err
}
