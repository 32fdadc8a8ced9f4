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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"brine/internal/base/httpclient"
	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// openID accepts as the password what an OpenID provider issued: an ID token, or an authorization
// code (code=...&code_verifier=...), which is exchanged with client_secret and redirect_uri. Salt
// has no such system.
//
// The provider's keys are fetched at the first sign-in, and again when a token is signed by an
// unknown key.
type openID struct {
	issuer, client, secret, redirect string
	nameClaim, groupsClaim           string
	scopes                           []string
	http                             *http.Client

	mu       sync.Mutex
	provider *oidc.Provider // nil until the provider was reachable
}

// oidcTime is the timeout of one request to the provider.
const oidcTime = 10 * time.Second

func init() { systems.Register("oidc", newOIDC) }

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
	if scopes, ok := conf.Get("^scopes"); ok {
		o.scopes = scopesOf(scopes)
	} else {
		o.scopes = []string{oidc.ScopeOpenID, "profile"}
	}
	u, err := url.Parse(o.issuer)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, salt.Errorf(salt.Invalid, "^issuer must be the https URL of the OpenID provider")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return nil, salt.Errorf(salt.Invalid, "^issuer must be an https URL: over http an attacker on the path can sign in as any user")
	case !slices.Contains(o.scopes, oidc.ScopeOpenID):
		return nil, salt.Errorf(salt.Invalid, "^scopes must be a list of names with openid")
	case o.client == "":
		return nil, salt.Errorf(salt.Invalid, "^client_id is missing: the client id registered at the provider, which must be the audience (aud) of the tokens")
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
	// Another host, to which it might redirect, is not the configured provider.
	o.http = httpclient.New(httpclient.Options{Timeout: oidcTime, TLS: conf2, Proxies: true, StayHere: true})
	return o, nil
}

// scopesOf reads ^scopes; it returns nil if that is not a list of strings.
func scopesOf(v any) (scopes []string) {
	l, _ := v.(*value.List)
	for _, it := range value.Items(l) {
		s, ok := it.(string)
		if !ok {
			return nil
		}
		scopes = append(scopes, s)
	}
	return scopes
}

// CodeFlow starts the sign-in of a browser at the OpenID provider. The provider sends the browser
// back to ^redirect_uri with a code, which is the password of the system oidc, together with the
// verifier and the nonce.
type CodeFlow struct{ provider *openID }

// NewCodeFlow returns the CodeFlow of external_auth, nil if oidc is not there or has no
// ^redirect_uri.
func NewCodeFlow(o *Options) (*CodeFlow, error) {
	conf := o.External.Dict("oidc")
	if conf.Str("^redirect_uri") == "" {
		return nil, nil
	}
	s, err := newOIDC(conf, o)
	if err != nil {
		return nil, fmt.Errorf("external_auth: oidc: %w", err)
	}
	return &CodeFlow{s.(*openID)}, nil
}

// URL returns the provider's page for a sign-in. challenge is the SHA-256 of the verifier (PKCE),
// in base64url.
func (f *CodeFlow) URL(_ context.Context, state, challenge, nonce string) (string, error) {
	o := f.provider
	p, err := o.find()
	if err != nil {
		return "", err
	}
	conf := oauth2.Config{ClientID: o.client, Endpoint: p.Endpoint(), RedirectURL: o.redirect, Scopes: o.scopes}
	return conf.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.SetAuthURLParam("code_challenge", challenge),
		oauth2.SetAuthURLParam("code_challenge_method", "S256")), nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// NamesUsers implements namer: the token contains the user name.
func (*openID) NamesUsers() {}

// find returns the provider. The first call fetches its metadata.
func (o *openID) find() (*oidc.Provider, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.provider == nil {
		// The provider keeps the context for later fetches of its keys.
		p, err := oidc.NewProvider(oidc.ClientContext(context.Background(), o.http), o.issuer)
		if err != nil {
			return nil, fmt.Errorf("request to the OpenID provider failed: %w", err)
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
	raw, nonce := c.Password, ""
	if strings.HasPrefix(raw, "code=") {
		if raw, nonce, err = o.exchange(ctx, p, raw); err != nil {
			return Vouched{}, err
		}
	}
	token, err := p.VerifierContext(oidc.ClientContext(ctx, o.http), &oidc.Config{ClientID: o.client}).Verify(ctx, raw)
	if err != nil {
		return Vouched{}, salt.Errorf(salt.Denied, "invalid token: %w", err)
	}
	if nonce != "" && token.Nonce != nonce {
		return Vouched{}, salt.Errorf(salt.Denied, "the token was issued for another sign-in: its nonce differs")
	}
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return Vouched{}, salt.Errorf(salt.Denied, "invalid token: %w", err)
	}
	name, _ := claims[o.nameClaim].(string)
	switch {
	case name == "":
		return Vouched{}, salt.Errorf(salt.Denied, "the token lacks the claim %q (^username_claim)", o.nameClaim)
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

// exchange exchanges an authorization code for an ID token. It also returns the nonce that the
// token must have, "" if the client sent none.
func (o *openID) exchange(ctx context.Context, p *oidc.Provider, text string) (token, nonce string, err error) {
	q, err := url.ParseQuery(text)
	if err != nil || o.redirect == "" {
		return "", "", salt.Errorf(salt.Denied, "a code cannot be exchanged without ^redirect_uri (and ^client_secret)")
	}
	conf := oauth2.Config{ClientID: o.client, ClientSecret: o.secret, Endpoint: p.Endpoint(), RedirectURL: o.redirect}
	var more []oauth2.AuthCodeOption
	if v := q.Get("code_verifier"); v != "" {
		more = append(more, oauth2.VerifierOption(v))
	}
	t, err := conf.Exchange(oidc.ClientContext(ctx, o.http), q.Get("code"), more...)
	if err != nil {
		// The library's error may contain the code, which is a secret.
		return "", "", salt.Errorf(salt.Denied, "the provider refused to exchange the code")
	}
	raw, _ := t.Extra("id_token").(string)
	if raw == "" {
		return "", "", salt.Errorf(salt.Denied, "the provider returned no ID token: was the scope openid requested?")
	}
	return raw, q.Get("nonce"), nil
}
