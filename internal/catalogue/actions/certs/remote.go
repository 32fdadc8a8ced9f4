package certs

import (
	"context"
	"path/filepath"
	"strings"

	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Options are the minion's options for certificates. Policies may also come from the pillar.
type Options struct {
	Policies any `salt:"x509_signing_policies" default:"{}" doc:"signing policies of x509 by name: settings of certificates that this minion signs, and minions, who may ask" change:"live"`
}

// policiesKey is the key of signing policies in pillar and configuration.
const policiesKey = "x509_signing_policies"

// localPolicy returns a signing policy of this minion, from the pillar or else from its
// configuration.
func localPolicy(ctx context.Context, c *fn.Call, name any) (*value.Dict, error) {
	if name == nil {
		return value.NewDict(0), nil
	}
	if all, ok := c.Pillar.Get(policiesKey).(*value.Dict); ok {
		if p := Policy(all.At(name)); p.Len() > 0 {
			return p, nil
		}
	}
	v, err := c.Funcs.Call(ctx, c, "config.get", []any{policiesKey, value.NewDict(0)}, nil)
	if err != nil {
		return nil, err
	}
	all, _ := v.(*value.Dict)
	return Policy(all.At(name)), nil
}

// SigningPolicy returns a signing policy of this minion or of another one.
func SigningPolicy(ctx context.Context, c *fn.Call, name, server any) (*value.Dict, error) {
	if server == nil {
		p, err := localPolicy(ctx, c, name)
		if err != nil {
			return nil, err
		}
		p = p.Clone()
		Compat(p)
		return p, nil
	}
	v, err := ask(ctx, c, server, name, value.NewDict(0), true)
	if err != nil {
		return nil, err
	}
	d, ok := v.(*value.Dict)
	if !ok {
		return nil, fn.Errorf("Received invalid return value from ca_server. See minion log for details")
	}
	d = d.Clone()
	Compat(d)
	if v := d.At("signing_cert"); v != nil {
		b, err := Inline(v)
		if err != nil {
			return nil, err
		}
		f, err := parseCertificates(b, nil)
		if err != nil {
			return nil, err
		}
		d.Set("signing_cert", string(f.PEM()))
	}
	return d, nil
}

// ask asks another minion to sign a certificate, or only for its signing policy.
func ask(ctx context.Context, c *fn.Call, server, policy any, kw *value.Dict, only bool) (any, error) {
	v, err := c.Funcs.Call(ctx, c, "publish.publish", []any{server, "x509.sign_remote_certificate"},
		value.DictOf("arg", value.ListOf(policy, kw, only)))
	if err != nil {
		return nil, err
	}
	all, _ := v.(*value.Dict)
	if all.Len() == 0 {
		return nil, fn.Invalidf("ca_server did not respond. Salt master must permit peers to call the sign_remote_certificate function.")
	}
	_, one := all.Entry(0)
	d, ok := one.(*value.Dict)
	if !ok || !d.Has("data") {
		c.Log.Error("Received invalid return value from ca_server", "return", value.Repr(one))
		return nil, fn.Errorf("Received invalid return value from ca_server. See minion log for details")
	}
	if errs := value.Texts(d.At("errors")); len(errs) > 0 {
		return nil, fn.Errorf("ca_server reported errors:\n%s", strings.Join(errs, "\n"))
	}
	return d.At("data"), nil
}

// mine lists the arguments that control how this minion signs and what it writes. Only its own
// policy may set them, not the request of another minion.
var mine = [...]string{"signing_private_key", "signing_private_key_passphrase", "signing_cert", "private_key", "private_key_passphrase",
	"copypath", "prepend_cn", "ca_server", "signing_policy", "minions"}

// SignForOther signs a certificate for another minion, or only returns the policy for a comparison.
// The result is a map of data and errors.
func SignForOther(ctx context.Context, c *fn.Call, name any, kw *value.Dict, only bool, asker any) *value.Dict {
	data, err := signForOther(ctx, c, name, kw, only, asker)
	if err != nil {
		return value.DictOf("data", nil, "errors", value.ListOf(err.Error()))
	}
	return value.DictOf("data", data, "errors", &value.List{})
}

func signForOther(ctx context.Context, c *fn.Call, name any, kw *value.Dict, only bool, asker any) (any, error) {
	policy, err := localPolicy(ctx, c, name)
	if err != nil {
		c.Log.Error("cannot read signing policies", "err", err)
		return nil, fn.Errorf("Failed building the signing policy. See CA server log for details.")
	}
	if policy.Len() == 0 {
		return nil, fn.Errorf("signing_policy must be specified and defined on signing minion")
	}
	if policy.Has("minions") {
		id, ok := asker.(string)
		if !ok {
			return nil, fn.Errorf("minion sending this request could not be identified")
		}
		permitted, err := matches(ctx, c, value.Str(policy.At("minions")), id)
		if err != nil {
			c.Log.Error("cannot match the minion that asks for a certificate", "minion", id, "err", err)
			return nil, fn.Errorf("Failed building the signing policy. See CA server log for details.")
		}
		if !permitted {
			return nil, fn.Errorf("minion not permitted to use specified signing policy")
		}
	}
	policy = policy.Clone()
	policy.Delete("minions")
	if only {
		return shownPolicy(policy)
	}
	request := kw.Clone()
	for _, k := range mine {
		request.Delete(k)
	}
	for _, k := range []string{"public_key", "csr"} { // a request must not name files of this machine
		if v := request.At(k); value.Truth(v) {
			b, err := Inline(v)
			if err != nil {
				return nil, err
			}
			request.Set(k, b)
		}
	}
	request = Merge(policy, request)
	if !request.Has("days_valid") && !request.Has("not_after") {
		request.Set("days_valid", int64(30))
	}
	cert, _, err := SignHere(request)
	if err != nil {
		return nil, err
	}
	return cert.DER, nil
}

// shownPolicy returns a policy without the signing key.
func shownPolicy(policy *value.Dict) (*value.Dict, error) {
	policy.Delete("signing_private_key")
	policy.Delete("signing_private_key_passphrase")
	if v := policy.At("signing_cert"); v != nil {
		cert, err := LoadCertificate(v)
		if err != nil {
			return nil, err
		}
		policy.Set("signing_cert", cert.DER)
	}
	return policy, nil
}

// matches reports whether a policy's expression matches a minion: a glob, or a compound expression,
// which the master evaluates.
func matches(ctx context.Context, c *fn.Call, expr, id string) (bool, error) {
	if !strings.Contains(expr, "@") {
		return target.ParseGlob(expr).Match(id), nil
	}
	v, err := c.Funcs.Call(ctx, c, "publish.runner", []any{"match.compound_matches"}, value.DictOf("arg", value.ListOf(expr, id)))
	if err != nil {
		return false, err
	}
	d, ok := v.(*value.Dict)
	if !ok || !d.Has("res") {
		return false, fn.Errorf("Could not check minion match for compound expression. Is this minion allowed to run `match.compound_matches` on the master?")
	}
	return d.At("res") == id, nil
}

// askRemote requests a certificate from another minion. The private key stays on this one.
func askRemote(ctx context.Context, c *fn.Call, server, policy any, kw *value.Dict) (*Certificate, error) {
	request := value.NewDict(kw.Len())
	for k, v := range kw.All() {
		switch k {
		case "private_key", "private_key_passphrase", "signing_private_key", "signing_private_key_passphrase", "signing_cert":
			continue
		}
		if v != nil {
			request.Set(k, v)
		}
	}
	if v := request.At("public_key"); value.Truth(v) {
		spki, err := LoadPublic(v)
		if err != nil {
			return nil, err
		}
		request.Set("public_key", spki)
	}
	if v := request.At("csr"); value.Truth(v) {
		r, err := LoadRequest(v)
		if err != nil {
			return nil, err
		}
		request.Set("csr", r.DER)
	}
	v, err := ask(ctx, c, server, policy, request, false)
	if err != nil {
		return nil, err
	}
	b, err := Inline(v)
	if err == nil {
		var f *CertificateFile
		if f, err = parseCertificates(b, nil); err == nil {
			return f.Certificate, nil
		}
	}
	return nil, fn.Errorf("ca_server did not return a certificate: %s", value.Str(v))
}

// Make makes a certificate with the arguments of x509.create_certificate, locally or on ca_server.
func Make(ctx context.Context, c *fn.Call, server, policy any, kw *value.Dict) (*Certificate, *Issue, error) {
	if server == nil {
		p, err := SigningPolicy(ctx, c, policy, nil)
		if err != nil {
			return nil, nil, err
		}
		return SignHere(Merge(p, kw))
	}
	if policy == nil {
		return nil, nil, fn.Invalidf("signing_policy must be specified to request a certificate from a remote ca_server")
	}
	own := &Issue{}
	kw = kw.Clone()
	if v := kw.At("private_key"); value.Truth(v) {
		k, err := LoadKey(v, text(kw, "private_key_passphrase"))
		if err != nil {
			return nil, nil, err
		}
		own.Key = k.Signer
		spki, err := publicDER(k.Public())
		if err != nil {
			return nil, nil, err
		}
		kw.Set("public_key", spki)
	}
	cert, err := askRemote(ctx, c, server, policy, kw)
	return cert, own, err
}

// SignHere makes a certificate locally with the arguments of x509.create_certificate, including
// copypath.
func SignHere(kw *value.Dict) (*Certificate, *Issue, error) {
	i, err := Prepare(kw, false)
	if err != nil {
		return nil, nil, err
	}
	cert, err := i.Sign()
	if err != nil {
		return nil, nil, err
	}
	if dir := text(kw, "copypath"); dir != nil && *dir != "" {
		name := cert.Serial.Text(16) + ".crt"
		if cn, ok := cert.Subject.CommonName(); ok && value.Truth(kw.At("prepend_cn")) {
			if strings.ContainsAny(cn, "/\x00") {
				return nil, nil, fn.Errorf("the common name %q cannot be part of a file name", cn)
			}
			name = cn + "-" + name
		}
		if err := WritePEM(string(cert.PEM()), filepath.Join(*dir, name), true, "CERTIFICATE"); err != nil {
			return nil, nil, err
		}
	}
	return cert, i, nil
}
