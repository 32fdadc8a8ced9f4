// Package pki holds the state modules x509 and gpg. States of x509 determine the content of a file,
// let file.managed write it, and append the result of file.managed to theirs.
package pki

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/certs"
	"brine/internal/catalogue/states"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// units holds the modules, which the files of this package register.
var units = states.Family()

// Modules returns the state modules of this family.
func Modules() []state.Module { return units.Modules(nil) }

func init() { units.Declare("x509", x509Module) }

type x509 struct{}

func x509Module() state.Module {
	x := x509{}
	mod := state.Module{Name: "x509", Doc: `Keep X.509 certificates, signing requests, revocation lists and private keys.`, Funcs: []state.Func{
		state.Of("certificate_managed", x.certificate, `Keep a certificate as declared, and renew it before it expires.
			Further arguments are those of names (C, ST, L, STREET, O, OU, CN, MAIL, SN, GN, UID, SERIALNUMBER) and of extensions (basicConstraints,
			keyUsage, subjectAltName ...) as OpenSSL writes them or as maps and lists. Without signing_cert and ca_server the certificate is self-signed.`),
		state.Of("crl_managed", x.crl, `Keep a certificate revocation list as declared, and renew it in time.`),
		state.Of("csr_managed", x.csr, `Keep a certificate signing request as declared. Further arguments are those of names and extensions.`),
		state.Of("pem_managed", x.pem, `Keep a file with one PEM entry, with its usual line breaks. Further arguments are those of file.managed.`),
		state.Of("private_key_managed", x.privateKey, `Keep a private key of a kind and length in a file. Its mode is 0400 if none is given.`),
	}}
	for i, f := range mod.Funcs {
		mod.Funcs[i] = f.Renamed(filesys.ExpandUser)
	}
	return mod
}

// fileArgs are arguments of file.managed.
type fileArgs struct {
	User           any         `salt:"user" doc:"user that owns the file" default:"null"`
	Group          any         `salt:"group" doc:"group that owns the file" default:"null"`
	Mode           any         `salt:"mode" doc:"mode, such as '0644'" default:"null"`
	Attrs          *string     `salt:"attrs" doc:"attributes as chattr(1) names them" default:"null"`
	Makedirs       bool        `salt:"makedirs" doc:"make the directories that are missing" default:"false"`
	DirMode        any         `salt:"dir_mode" doc:"mode of these directories; otherwise the file's with the right to enter" default:"null"`
	Backup         any         `salt:"backup" doc:"minion keeps a copy of the old file in the minion's cache" default:""`
	Create         bool        `salt:"create" doc:"make the file if there is none" default:"true"`
	FollowSymlinks bool        `salt:"follow_symlinks" doc:"manage what a symbolic link stands for, in place of the link" default:"true"`
	CheckCmd       string      `salt:"check_cmd" doc:"command that gets the name of a file with the new content and must succeed before it is used" default:"null"`
	TmpDir         string      `salt:"tmp_dir" doc:"directory of the file for check_cmd" default:""`
	TmpExt         string      `salt:"tmp_ext" doc:"end of its name" default:""`
	Selinux        *value.Dict `salt:"selinux" doc:"parts of the SELinux context" default:"null"`
}

func (a fileArgs) keywords(name string) *value.Dict {
	d := value.DictOf("name", name, "user", a.User, "group", a.Group, "mode", a.Mode, "makedirs", a.Makedirs, "dir_mode", a.DirMode, "backup", a.Backup,
		"create", a.Create, "follow_symlinks", a.FollowSymlinks, "tmp_dir", a.TmpDir, "tmp_ext", a.TmpExt, "show_changes", false)
	if a.Attrs != nil {
		d.Set("attrs", *a.Attrs)
	}
	if a.CheckCmd != "" {
		d.Set("check_cmd", a.CheckCmd)
	}
	if a.Selinux != nil {
		d.Set("selinux", a.Selinux)
	}
	return d
}

// target is a file that a state manages.
type target struct {
	e    *state.Env
	what string // what comments call it
	name string
	file *value.Dict // arguments for file.managed
	// real is the path of the existing content, "" if there is none.
	real     string
	encoding string
	// changes lists the changes of the content.
	changes *value.Dict
	current bool
	// encode creates the content.
	encode func(ctx context.Context) ([]byte, error)
	// link is set if a symbolic link must be replaced.
	link bool
	// results are the results of file.managed.
	results *value.List
	blocked *state.Plan
}

// begin calls file.managed in test mode for the file without its content.
func begin(ctx context.Context, e *state.Env, what, name, encoding string, a fileArgs) (*target, error) {
	name = filesys.ExpandUser(name)
	t := &target{e: e, what: what, name: name, file: a.keywords(name), encoding: encoding, changes: value.NewDict(2), results: &value.List{}}
	res, err := t.managed(ctx, value.DictOf("replace", false), true)
	if err != nil {
		return nil, err
	}
	extra := value.DictOf("sub_state_run", t.results)
	switch {
	case res.At("result") == false:
		t.blocked = &state.Plan{Extra: extra}
		return t, fn.Errorf("Problem while testing file.managed changes, see its output")
	case strings.Contains(res.Str("comment"), "is not present and is not set for creation"):
		t.blocked = &state.Plan{Extra: extra, Comment: t.comment()}
		return t, nil
	}
	if fi, err := os.Lstat(name); err == nil && fi.Mode()&os.ModeSymlink != 0 {
		if !a.FollowSymlinks {
			t.link = true
			t.changes.Set("created", t.name)
			return t, nil
		}
		if name, err = filepath.EvalSymlinks(name); err != nil {
			t.changes.Set("created", t.name)
			return t, nil
		}
	}
	if certs.IsFile(name) {
		t.real = name
	} else {
		t.changes.Set("created", t.name)
	}
	return t, nil
}

func (t *target) comment() string { return "The " + t.what + " is in the correct state" }

// managed calls file.managed and keeps its result.
func (t *target) managed(ctx context.Context, more *value.Dict, test bool) (*value.Dict, error) {
	kw := t.file.Clone()
	kw.Update(more)
	res, err := t.e.State(ctx, "file.managed", nil, kw, test)
	if err != nil {
		return nil, err
	}
	sub := res.Clone()
	sub.Set("low", value.DictOf("name", t.name, "state", "file", "__id__", t.e.Low.At("__id__"), "fun", "managed"))
	t.results.Items = []any{sub}
	return res, nil
}

// replace records that the present content is unreadable and must be replaced.
func (t *target) replace() { t.changes.Set("replaced", t.name) }

// plan returns the plan for the changes.
func (t *target) plan() state.Plan {
	extra := value.DictOf("sub_state_run", t.results)
	first, _ := t.results.Items[0].(*value.Dict)
	fileChanges := first.Dict("changes").Len() > 0
	if t.changes.Len() == 0 && !fileChanges {
		return state.Plan{Comment: t.comment(), Extra: extra}
	}
	verb := "create"
	if t.current {
		verb = "recreate"
	}
	forecast := &state.Result{Verdict: state.Succeeded, Comment: t.comment(), Extra: extra}
	if t.changes.Len() > 0 {
		forecast.Verdict, forecast.Comment, forecast.Changes = state.Undecided, "The "+t.what+" would have been "+verb+"d", t.changes
	}
	return state.Plan{Extra: extra, Forecast: forecast, Comment: t.comment(), Steps: []state.Step{{
		Change: state.Change{Diff: t.changes, Comment: forecast.Comment},
		Do: func(ctx context.Context) (state.Change, error) {
			if err := t.write(ctx); err != nil {
				return state.Change{}, err
			}
			if t.changes.Len() == 0 {
				return state.Change{}, nil
			}
			return state.Change{Diff: t.changes, Comment: "The " + t.what + " has been " + verb + "d"}, nil
		},
	}}}
}

// write creates the content and writes it.
func (t *target) write(ctx context.Context) error {
	if t.changes.Len() == 0 {
		return t.apply(ctx, value.DictOf("replace", false))
	}
	content, err := t.encode(ctx)
	if err != nil {
		t.results.Items = nil
		return err
	}
	if t.link {
		if err := os.Remove(t.name); err != nil {
			return fn.Errorf("%w", err)
		}
	}
	if strings.HasSuffix(t.encoding, "pem") {
		return t.apply(ctx, value.DictOf("contents", string(content)))
	}
	if !t.file.Has("check_cmd") && !value.Truth(t.file.At("backup")) { // as in Salt
		if err := t.apply(ctx, value.DictOf("replace", false)); err != nil {
			return err
		}
		return certs.WriteFile(t.name, content)
	}
	path, err := aside(content)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	return t.apply(ctx, value.DictOf("source", path))
}

// apply calls file.managed.
func (t *target) apply(ctx context.Context, more *value.Dict) error {
	res, err := t.managed(ctx, more, false)
	if err != nil {
		return err
	}
	if res.At("result") == false {
		verb := "create"
		if t.current {
			verb = "update"
		}
		return fn.Errorf("Could not %s file, see file.managed output", verb)
	}
	return nil
}

// aside writes binary content to a temporary file, which file.managed copies.
func aside(content []byte) (string, error) {
	f, err := os.CreateTemp("", "x509-") // readable by its owner only
	if err != nil {
		return "", fn.Errorf("%w", err)
	}
	_, err = f.Write(content)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		os.Remove(f.Name())
		return "", fn.Errorf("%w", err)
	}
	return f.Name(), nil
}

// only reports whether there are no changes except these.
func (t *target) only(names ...string) bool {
	for k := range t.changes.All() {
		if !slices.Contains(names, value.Str(k)) {
			return false
		}
	}
	return true
}

// digest compares the hash algorithms of signatures.
func (t *target) digest(now, want string) {
	if now != "" && now != strings.ToLower(want) {
		t.changes.Set("digest", want)
	}
}

func oneOf(encoding string, valid ...string) error {
	if slices.Contains(valid, encoding) {
		return nil
	}
	return fn.Errorf("Invalid value '%s' for encoding. Valid: %s", encoding, strings.Join(valid, ", "))
}

type certificateArgs struct {
	Name                 string  `salt:"name" doc:"path of the file"`
	DaysRemaining        *int    `salt:"days_remaining" doc:"renew it when fewer days are left; 90 if it is null" default:"null"`
	CAServer             any     `salt:"ca_server" doc:"minion that signs" default:"null"`
	SigningPolicy        any     `salt:"signing_policy" doc:"name of a signing policy, needed with ca_server" default:"null"`
	Encoding             string  `salt:"encoding" doc:"pem, der, pkcs7_pem, pkcs7_der or pkcs12" default:"pem"`
	AppendCerts          any     `salt:"append_certs" doc:"certificates to append" default:"null"`
	Copypath             any     `salt:"copypath" doc:"directory for a copy, named by the serial number" default:"null"`
	PrependCN            bool    `salt:"prepend_cn" doc:"begin the name of the copy with the common name" default:"false"`
	Digest               string  `salt:"digest" doc:"hash for the signature" default:"sha256"`
	SigningPrivateKey    any     `salt:"signing_private_key" doc:"private key of the issuer" default:"null"`
	SigningPassphrase    any     `salt:"signing_private_key_passphrase" doc:"passphrase of that" default:"null"`
	SigningCert          any     `salt:"signing_cert" doc:"certificate of the issuer" default:"null"`
	PublicKey            any     `salt:"public_key" doc:"public key of the certificate" default:"null"`
	PrivateKey           any     `salt:"private_key" doc:"private key of the certificate" default:"null"`
	PrivateKeyPassphrase any     `salt:"private_key_passphrase" doc:"passphrase of that" default:"null"`
	CSR                  any     `salt:"csr" doc:"request with the public key and extensions" default:"null"`
	Subject              any     `salt:"subject" doc:"name of the subject: a string as in RFC 4514, a list or a map" default:"null"`
	SerialNumber         any     `salt:"serial_number" doc:"serial number; otherwise random" default:"null"`
	NotBefore            any     `salt:"not_before" doc:"start of validity, YYYY-MM-DD HH:MM:SS in UTC; otherwise now" default:"null"`
	NotAfter             any     `salt:"not_after" doc:"end of validity" default:"null"`
	DaysValid            any     `salt:"days_valid" doc:"days of validity without not_after; 365 if it is null" default:"null"`
	PKCS12Passphrase     *string `salt:"pkcs12_passphrase" doc:"passphrase of pkcs12" default:"null"`
	PKCS12Compat         bool    `salt:"pkcs12_encryption_compat" doc:"encrypt pkcs12 as old systems need it (PBESv1SHA1And3KeyTripleDESCBC)" default:"false"`
	PKCS12FriendlyName   *string `salt:"pkcs12_friendlyname" doc:"name of the certificate in pkcs12" default:"null"`
	fileArgs
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// keywords returns the keywords for x509.create_certificate.
func (a *certificateArgs) keywords() *value.Dict {
	kw := a.Kwargs.Clean()
	digest := a.Digest
	if v := kw.At("algorithm"); v != nil {
		digest = value.Str(v)
	}
	kw.Delete("algorithm")
	for k, v := range value.DictOf("copypath", a.Copypath, "signing_private_key", a.SigningPrivateKey, "signing_private_key_passphrase", a.SigningPassphrase,
		"signing_cert", a.SigningCert, "public_key", a.PublicKey, "private_key", a.PrivateKey, "private_key_passphrase", a.PrivateKeyPassphrase, "csr", a.CSR,
		"subject", a.Subject, "serial_number", a.SerialNumber, "not_before", a.NotBefore, "not_after", a.NotAfter, "days_valid", a.DaysValid,
		"digest", digest).All() {
		if v != nil {
			kw.Set(k, v)
		}
	}
	if a.PrependCN {
		kw.Set("prepend_cn", true)
	}
	if a.DaysValid == nil && a.NotAfter == nil {
		kw.Set("days_valid", int64(certs.Days))
	}
	certs.Compat(kw)
	return kw
}

func (x509) certificate(ctx context.Context, e *state.Env, a certificateArgs) (state.Plan, error) {
	if err := oneOf(a.Encoding, "der", "pem", "pkcs7_der", "pkcs7_pem", "pkcs12"); err != nil {
		return state.Plan{}, err
	}
	t, err := begin(ctx, e, "certificate", a.Name, a.Encoding, a.fileArgs)
	if t != nil && t.blocked != nil {
		return *t.blocked, err
	}
	if err != nil {
		return state.Plan{}, err
	}
	c := &certificate{target: t, a: &a, kw: a.keywords()}
	if !value.Truth(a.CAServer) {
		a.CAServer = nil
	}
	t.encode = c.content
	if t.real == "" {
		return t.plan(), nil
	}
	if err := c.compare(ctx); err != nil {
		return state.Plan{}, err
	}
	return t.plan(), nil
}

// certificate is the certificate of a state.
type certificate struct {
	*target
	a    *certificateArgs
	kw   *value.Dict
	now  *certs.CertificateFile // nil if no readable one exists
	want *certs.Issue
}

func (c *certificate) compare(ctx context.Context) error {
	now, err := certs.LoadCertificates(c.real, c.a.PKCS12Passphrase)
	switch {
	case errors.Is(err, certs.ErrNoCertificate), errors.Is(err, certs.ErrPEMCertificate):
		c.replace()
		return nil
	case err != nil:
		return err
	}
	c.now, c.current = now, true
	switch {
	case c.a.Encoding != now.Encoding:
		c.changes.Set("encoding", c.a.Encoding)
	case c.a.Encoding == "pkcs12" && !same(now.FriendlyName, c.a.PKCS12FriendlyName):
		c.changes.Set("pkcs12_friendlyname", orNull(c.a.PKCS12FriendlyName))
	}
	days := 90
	if c.a.DaysRemaining != nil {
		days = *c.a.DaysRemaining
	}
	if now.NotAfter.Before(time.Now().Add(time.Duration(days) * 24 * time.Hour)) {
		c.changes.Set("expiration", true)
	}
	chain, err := certs.LoadChain(c.a.AppendCerts)
	if err != nil {
		return err
	}
	if !certs.SameChain(now.Chain, chain) {
		c.changes.Set("additional_certs", true)
	}
	policy, err := certs.SigningPolicy(ctx, c.e.Call, c.a.SigningPolicy, c.a.CAServer)
	if err != nil {
		return err
	}
	if c.want, err = certs.Prepare(certs.Merge(policy, c.kw), c.a.CAServer != nil); err != nil {
		return err
	}
	c.digest(now.Digest(), c.want.Digest())
	d, err := now.Differs(c.want, c.a.SerialNumber)
	c.changes.Update(d)
	return err
}

func same(a, b *string) bool { return orNull(a) == orNull(b) }

func orNull(s *string) any {
	if s == nil || *s == "" {
		return nil
	}
	return *s
}

// content creates the file's content, with the present certificate if it is kept.
func (c *certificate) content(ctx context.Context) ([]byte, error) {
	chain, err := certs.LoadChain(c.a.AppendCerts)
	if err != nil {
		return nil, err
	}
	if c.a.Encoding == "der" && len(chain) > 0 {
		return nil, fn.Invalidf("Cannot encode a certificate chain in DER")
	}
	if c.a.Encoding == "pkcs12" && !value.Truth(c.a.PrivateKey) {
		return nil, fn.Invalidf("Creating a PKCS12-encoded certificate without embedded private key is unsupported")
	}
	cert, made := (*certs.Certificate)(nil), c.want
	if c.now != nil && c.only("additional_certs", "encoding", "pkcs12_friendlyname") {
		cert = c.now.Certificate
	} else if cert, made, err = certs.Make(ctx, c.e.Call, c.a.CAServer, c.a.SigningPolicy, c.kw); err != nil {
		return nil, err
	}
	if c.a.Encoding != "pkcs12" {
		return certs.EncodeCertificates(cert, chain, c.a.Encoding)
	}
	if made.Key == nil {
		return nil, fn.Invalidf("Creating a PKCS12-encoded certificate without embedded private key is unsupported")
	}
	return certs.EncodeStore(cert, chain, made.Key, c.a.PKCS12Passphrase, c.a.PKCS12FriendlyName, c.a.PKCS12Compat)
}

type crlArgs struct {
	Name              string      `salt:"name" doc:"path of the file"`
	SigningPrivateKey any         `salt:"signing_private_key" doc:"private key of the issuer"`
	Revoked           any         `salt:"revoked" doc:"list of maps: certificate, or serial_number and not_after; revocation_date, and extensions CRLReason, invalidityDate"`
	DaysRemaining     *int        `salt:"days_remaining" doc:"renew it when fewer days are left; 30 if it is null" default:"null"`
	SigningCert       any         `salt:"signing_cert" doc:"certificate of the issuer" default:"null"`
	Passphrase        *string     `salt:"signing_private_key_passphrase" doc:"passphrase of the private key" default:"null"`
	IncludeExpired    bool        `salt:"include_expired" doc:"also list certificates that have expired" default:"false"`
	DaysValid         *int        `salt:"days_valid" doc:"days until the next list is due; 100 if it is null" default:"null"`
	Digest            string      `salt:"digest" doc:"hash for the signature" default:"sha256"`
	Encoding          string      `salt:"encoding" doc:"pem or der" default:"pem"`
	Extensions        *value.Dict `salt:"extensions" doc:"extensions of the list; the cRLNumber auto counts" default:"null"`
	fileArgs
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// unknown rejects unknown arguments, except those without effect.
func unknown(kw fn.Kwargs, ignored ...string) error {
	var names []string
	for k := range kw.Clean().All() {
		if !slices.Contains(ignored, value.Str(k)) {
			names = append(names, value.Str(k))
		}
	}
	if names != nil {
		return fn.Invalidf("Unrecognized keyword arguments: %s", value.Repr(value.Strings(names)))
	}
	return nil
}

func (x509) crl(ctx context.Context, e *state.Env, a crlArgs) (state.Plan, error) {
	if err := unknown(a.Kwargs, "text"); err != nil {
		return state.Plan{}, err
	}
	if err := oneOf(a.Encoding, "der", "pem"); err != nil {
		return state.Plan{}, err
	}
	t, err := begin(ctx, e, "certificate revocation list", a.Name, a.Encoding, a.fileArgs)
	if t != nil && t.blocked != nil {
		return *t.blocked, err
	}
	if err != nil {
		return state.Plan{}, err
	}
	days, left := 100, 30
	if a.DaysValid != nil {
		days = *a.DaysValid
	}
	if a.DaysRemaining != nil {
		left = *a.DaysRemaining
	}
	if err := certs.CheckRevoked(a.Revoked); err != nil {
		return state.Plan{}, err
	}
	extensions := value.NewDict(2)
	extensions.Update(a.Extensions)
	auto := extensions.At("cRLNumber") == "auto"
	if auto {
		extensions.Delete("cRLNumber")
	}
	prepare := func() (*certs.Revoke, error) {
		return certs.PrepareList(certs.Revocations{Key: a.SigningPrivateKey, Certificate: a.SigningCert, Passphrase: a.Passphrase,
			Revoked: a.Revoked, IncludeExpired: a.IncludeExpired, Days: days, Digest: a.Digest, Extensions: extensions}, e.Log)
	}
	var now *certs.List
	t.encode = func(context.Context) ([]byte, error) {
		if now != nil && t.only("encoding") {
			return now.Encode(a.Encoding), nil
		}
		if auto {
			n := int64(0)
			if now != nil {
				n, _ = now.Number()
			}
			extensions.Set("cRLNumber", n+1)
		}
		r, err := prepare()
		if err != nil {
			return nil, err
		}
		l, err := r.Sign()
		if err != nil {
			return nil, err
		}
		return l.Encode(a.Encoding), nil
	}
	if t.real == "" {
		return t.plan(), nil
	}
	switch now, err = certs.LoadList(t.real); {
	case errors.Is(err, certs.ErrPEMList), errors.Is(err, certs.ErrDERList):
		t.replace()
		return t.plan(), nil
	case err != nil:
		return state.Plan{}, err
	}
	t.current = true
	want, err := prepare()
	if err != nil {
		return state.Plan{}, err
	}
	t.digest(now.Digest(), want.Digest())
	if a.Encoding != now.Encoding {
		t.changes.Set("encoding", a.Encoding)
	}
	if left > 0 && now.Next.Before(time.Now().Add(time.Duration(left)*24*time.Hour)) {
		t.changes.Set("expiration", true)
	}
	d, err := now.Differs(want, auto)
	if err != nil {
		return state.Plan{}, err
	}
	t.changes.Update(d)
	return t.plan(), nil
}

type csrArgs struct {
	Name                 string `salt:"name" doc:"path of the file"`
	PrivateKey           any    `salt:"private_key" doc:"private key of the certificate"`
	PrivateKeyPassphrase any    `salt:"private_key_passphrase" doc:"passphrase of that" default:"null"`
	Digest               string `salt:"digest" doc:"hash for the signature" default:"sha256"`
	Encoding             string `salt:"encoding" doc:"pem or der" default:"pem"`
	Subject              any    `salt:"subject" doc:"name of the subject: a string as in RFC 4514, a list or a map" default:"null"`
	fileArgs
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (x509) csr(ctx context.Context, e *state.Env, a csrArgs) (state.Plan, error) {
	if err := oneOf(a.Encoding, "der", "pem"); err != nil {
		return state.Plan{}, err
	}
	t, err := begin(ctx, e, "certificate signing request", a.Name, a.Encoding, a.fileArgs)
	if t != nil && t.blocked != nil {
		return *t.blocked, err
	}
	if err != nil {
		return state.Plan{}, err
	}
	kw := a.Kwargs.Clean()
	digest := a.Digest
	if v := kw.At("algorithm"); v != nil {
		digest = value.Str(v)
	}
	kw.Delete("algorithm")
	kw.Set("digest", digest)
	for k, v := range value.DictOf("private_key", a.PrivateKey, "private_key_passphrase", a.PrivateKeyPassphrase, "subject", a.Subject).All() {
		if v != nil {
			kw.Set(k, v)
		}
	}
	certs.Compat(kw)
	var now *certs.Request
	t.encode = func(context.Context) ([]byte, error) {
		if now != nil && t.only("encoding") {
			return now.Encode(a.Encoding), nil
		}
		i, err := certs.PrepareRequest(kw)
		if err != nil {
			return nil, err
		}
		r, err := i.SignRequest()
		if err != nil {
			return nil, err
		}
		return r.Encode(a.Encoding), nil
	}
	if t.real == "" {
		return t.plan(), nil
	}
	switch now, err = certs.LoadRequest(t.real); {
	case errors.Is(err, certs.ErrPEMRequest), errors.Is(err, certs.ErrDERRequest):
		t.replace()
		return t.plan(), nil
	case err != nil:
		return state.Plan{}, err
	case now.Version != 0:
		now = nil
		t.changes.Set("invalid_version", true)
		t.replace()
		return t.plan(), nil
	}
	t.current = true
	want, err := certs.PrepareRequest(kw)
	if err != nil {
		return state.Plan{}, err
	}
	t.digest(now.Digest(), want.Digest())
	if a.Encoding != now.Encoding {
		t.changes.Set("encoding", a.Encoding)
	}
	t.changes.Update(now.Differs(want))
	return t.plan(), nil
}

type pemArgs struct {
	Name string `salt:"name" doc:"path of the file"`
	Text any    `salt:"text" doc:"text, or path of a file"`
	fileArgs
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (x509) pem(ctx context.Context, e *state.Env, a pemArgs) (state.Plan, error) {
	if err := unknown(a.Kwargs); err != nil {
		return state.Plan{}, err
	}
	text, err := certs.Entry(a.Text)
	if err != nil {
		return state.Plan{}, err
	}
	kw := a.keywords(filesys.ExpandUser(a.Name))
	kw.Set("contents", text)
	res, err := e.State(ctx, "file.managed", nil, kw, true)
	switch {
	case err != nil:
		return state.Plan{}, err
	case res.At("result") == false:
		return state.Plan{}, fn.Errorf("%s", res.Str("comment"))
	case res.At("result") == true:
		return state.Plan{Comment: strings.Replace(res.Str("comment"), "The file ", "File ", 1),
			Forecast: &state.Result{Verdict: state.Succeeded, Comment: res.Str("comment")}}, nil
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: res.Dict("changes"), Comment: res.Str("comment")},
		Do: func(ctx context.Context) (state.Change, error) {
			res, err := e.State(ctx, "file.managed", nil, kw, false)
			if err == nil && res.At("result") == false {
				err = fn.Errorf("%s", res.Str("comment"))
			}
			if err != nil {
				return state.Change{}, err
			}
			return state.Change{Diff: res.Dict("changes"), Comment: res.Str("comment")}, nil
		},
	}}}, nil
}

type privateKeyArgs struct {
	Name       string  `salt:"name" doc:"path of the file"`
	Algo       string  `salt:"algo" doc:"rsa, ec or ed25519" default:"rsa"`
	Keysize    *int    `salt:"keysize" doc:"bits: 2048, 3072 or 4096 for rsa, 256, 384 or 521 for ec" default:"null"`
	Passphrase *string `salt:"passphrase" doc:"passphrase to encrypt it with" default:"null"`
	Encoding   string  `salt:"encoding" doc:"pem, der or pkcs12" default:"pem"`
	New        bool    `salt:"new" doc:"always make a new key; for the requisite prereq of a certificate" default:"false"`
	Overwrite  bool    `salt:"overwrite" doc:"replace a key that cannot be decrypted, and what is no key" default:"false"`
	Compat     bool    `salt:"pkcs12_encryption_compat" doc:"encrypt pkcs12 as old systems need it (PBESv1SHA1And3KeyTripleDESCBC)" default:"false"`
	fileArgs
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (x509) privateKey(ctx context.Context, e *state.Env, a privateKeyArgs) (state.Plan, error) {
	if err := unknown(a.Kwargs, "bits", "cipher", "verbose", "text"); err != nil {
		return state.Plan{}, err
	}
	if err := oneOf(a.Encoding, "der", "pem", "pkcs12"); err != nil {
		return state.Plan{}, err
	}
	size := 0
	if a.Keysize != nil {
		size = *a.Keysize
	}
	if n, ok := a.Kwargs.At("bits").(int64); ok {
		size = int(n)
	}
	if size != 0 && (a.Algo == "ed25519" || a.Algo == "ed448") {
		return state.Plan{}, fn.Invalidf("keysize is an invalid parameter for %s", a.Algo)
	}
	if !value.Truth(a.Mode) {
		a.Mode = "0400"
	}
	t, err := begin(ctx, e, "private key", a.Name, a.Encoding, a.fileArgs)
	if t != nil && t.blocked != nil {
		return *t.blocked, err
	}
	if err != nil {
		return state.Plan{}, err
	}
	var now *certs.Key
	t.current = t.real != ""
	switch {
	case t.real == "":
	case a.New:
		t.replace()
	default:
		if now, err = t.presentKey(&a); err != nil {
			return state.Plan{}, err
		}
	}
	if now != nil {
		t.compareKey(*now, &a, size)
	}
	t.encode = func(context.Context) ([]byte, error) {
		k := now
		if k == nil || !t.only("encoding", "passphrase") {
			s, err := certs.Generate(a.Algo, size)
			if err != nil {
				return nil, err
			}
			k = &certs.Key{Signer: s}
		}
		return certs.EncodeKey(k.Signer, a.Encoding, a.Passphrase, a.Compat)
	}
	return t.plan(), nil
}

// presentKey reads the existing key; it returns nil if the key must be replaced.
func (t *target) presentKey(a *privateKeyArgs) (*certs.Key, error) {
	k, err := certs.LoadKey(t.real, a.Passphrase)
	switch {
	case err == nil:
		return &k, nil
	case errors.Is(err, certs.ErrPassphrase):
		if !a.Overwrite {
			return nil, fn.Errorf("The provided passphrase cannot decrypt the private key. Pass overwrite: true to force regeneration")
		}
		t.changes.Set("passphrase", true)
		t.changes.Set("created", t.name)
	case errors.Is(err, certs.ErrPlain):
		t.changes.Set("passphrase", true)
		k, err := certs.LoadKey(t.real, nil)
		return &k, err
	case errors.Is(err, certs.ErrEncrypted) && a.Passphrase == nil:
		if !a.Overwrite {
			return nil, fn.Errorf("The existing file is encrypted. Pass overwrite: true to force regeneration without passphrase")
		}
		t.changes.Set("passphrase", true)
		t.changes.Set("created", t.name)
	case errors.Is(err, certs.ErrNoKey), errors.Is(err, certs.ErrPEMKey):
		if !a.Overwrite {
			return nil, fn.Errorf("The existing file does not seem to be a private key formatted as DER, PEM or embedded in PKCS12. Pass overwrite: " +
				"true to force regeneration")
		}
		t.changes.Set("created", t.name)
	default:
		return nil, err
	}
	return nil, nil
}

// compareKey compares type, length and encoding.
func (t *target) compareKey(k certs.Key, a *privateKeyArgs, size int) {
	if size == 0 {
		size = map[string]int{"rsa": 2048, "ec": 256}[a.Algo]
	}
	switch kind, n := certs.KeyType(k.Public()); {
	case kind != a.Algo:
		t.changes.Set("algo", a.Algo)
	case n != size:
		t.changes.Set("keysize", int64(size))
	}
	if a.Encoding != k.Encoding {
		t.changes.Set("encoding", a.Encoding)
	}
}
