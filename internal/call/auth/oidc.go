package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// openID takes for a password what an OpenID provider gave out: an ID token,
// or a code that is changed for one (code=...&code_verifier=..., with
// client_secret and redirect_uri). Salt has no such system.
//
// The provider's keys are fetched when somebody first signs in, and again when
// a token is signed by one that is not known.
type openID struct {
	issuer, client, secret, redirect string
	nameClaim, groupsClaim           string
	http                             *http.Client

	mu       sync.Mutex
	provider *oidc.Provider // nil until it could be asked
}

// oidcTime bounds one request to the provider.
const oidcTime = 10 * time.Second

func newOIDC(conf *value.Dict, _ *Options) (System, error) {
	set := func(key, usual string) string {
		if v, ok := conf.Get("^" + key); ok {
			return value.Str(v)
		}
		return usual
	}
	o := &openID{
		issuer: set("issuer", ""), client: set("client_id", ""), secret: set("client_secret", ""), redirect: set("redirect_uri", ""),
		nameClaim: set("username_claim", "preferred_username"), groupsClaim: set("groups_claim", "groups"),
	}
	u, err := url.Parse(o.issuer)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, salt.Errorf(salt.Invalid, "^issuer must be the https address of the OpenID provider")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return nil, salt.Errorf(salt.Invalid, "^issuer must be an https address: who can change what comes over http can sign in as anybody")
	case o.client == "":
		return nil, salt.Errorf(salt.Invalid, "^client_id is missing: the name that the provider knows this master's users by, which must be in their tokens (aud)")
	}
	conf2 := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := set("ca_file", ""); file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, salt.Errorf(salt.Invalid, "^ca_file: %w", err)
		}
		conf2.RootCAs = x509.NewCertPool()
		if !conf2.RootCAs.AppendCertsFromPEM(b) {
			return nil, salt.Errorf(salt.Invalid, "^ca_file: %s holds no certificate", file)
		}
	}
	o.http = &http.Client{
		Timeout:   oidcTime,
		Transport: &http.Transport{TLSClientConfig: conf2, Proxy: http.ProxyFromEnvironment},
		// A provider that sends elsewhere is not the one that was named.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return o, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// NamesUsers implements namer: who shows a token need not say who they are.
func (*openID) NamesUsers() {}

// find returns the provider, of which the first call learns.
func (o *openID) find() (*oidc.Provider, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.provider == nil {
		// The provider keeps the context for later fetches of its keys.
		p, err := oidc.NewProvider(oidc.ClientContext(context.Background(), o.http), o.issuer)
		if err != nil {
			return nil, fmt.Errorf("cannot ask the OpenID provider: %w", err)
		}
		o.provider = p
	}
	return o.provider, nil
}

// Authenticate implements System.
func (o *openID) Authenticate(ctx context.Context, c Credentials) (Vouched, error) {
	p, err := o.find()
	if err != nil {
		return Vouched{}, err
	}
	raw := c.Password
	if strings.HasPrefix(raw, "code=") {
		if raw, err = o.exchange(ctx, p, raw); err != nil {
			return Vouched{}, err
		}
	}
	token, err := p.VerifierContext(oidc.ClientContext(ctx, o.http), &oidc.Config{ClientID: o.client}).Verify(ctx, raw)
	if err != nil {
		return Vouched{}, salt.Errorf(salt.Denied, "the token is not good: %w", err)
	}
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return Vouched{}, salt.Errorf(salt.Denied, "the token is not good: %w", err)
	}
	name, _ := claims[o.nameClaim].(string)
	switch {
	case name == "":
		return Vouched{}, salt.Errorf(salt.Denied, "the token has no claim %q, which ^username_claim names", o.nameClaim)
	case o.nameClaim == "email" && claims["email_verified"] != true:
		return Vouched{}, salt.Errorf(salt.Denied, "the provider has not verified the email address in the token")
	case c.Name != "" && c.Name != name:
		return Vouched{}, ErrRefused
	}
	v := Vouched{Name: name}
	switch groups := claims[o.groupsClaim].(type) {
	case string:
		v.Groups = []string{groups}
	case []any:
		for _, g := range groups[:min(len(groups), maxGroups)] {
			if s, ok := g.(string); ok {
				v.Groups = append(v.Groups, s)
			}
		}
	}
	return v, nil
}

// exchange changes a code for an ID token.
func (o *openID) exchange(ctx context.Context, p *oidc.Provider, text string) (string, error) {
	q, err := url.ParseQuery(text)
	if err != nil || o.redirect == "" {
		return "", salt.Errorf(salt.Denied, "a code cannot be changed for a token without ^redirect_uri (and ^client_secret)")
	}
	conf := oauth2.Config{ClientID: o.client, ClientSecret: o.secret, Endpoint: p.Endpoint(), RedirectURL: o.redirect}
	var more []oauth2.AuthCodeOption
	if v := q.Get("code_verifier"); v != "" {
		more = append(more, oauth2.VerifierOption(v))
	}
	t, err := conf.Exchange(oidc.ClientContext(ctx, o.http), q.Get("code"), more...)
	if err != nil {
		// The library's error may hold the code, which is a secret.
		return "", salt.Errorf(salt.Denied, "the provider does not give a token for this code")
	}
	raw, _ := t.Extra("id_token").(string)
	if raw == "" {
		return "", salt.Errorf(salt.Denied, "the provider gave no ID token; was the scope openid asked for?")
	}
	return raw, nil
}
