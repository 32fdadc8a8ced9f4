package auth

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"brine/test/tools"
)

// provider is an OpenID provider in a separate process.
type provider struct {
	t   *testing.T
	url string
}

func startProvider(t *testing.T) *provider {
	t.Helper()
	c := exec.Command(tools.NeedPython(t, "python3-authlib and python3-flask", "authlib, flask"), "-W", "ignore", "testdata/provider.py")
	c.Env = append(os.Environ(), "AUTHLIB_INSECURE_TRANSPORT=1")
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return &provider{t, "http://127.0.0.1:" + strings.TrimSpace(port)}
}

func (p *provider) post(path, body string) string {
	p.t.Helper()
	resp, err := http.Post(p.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		p.t.Fatalf("%s: %d %s %v", path, resp.StatusCode, b, err)
	}
	return string(b)
}

func (p *provider) mint(body string) string { return p.post("/mint", body) }

// code returns the authorization code that the provider sends a user back with.
func (p *provider) code(user, verifier string) string {
	p.t.Helper()
	sum := sha256.Sum256([]byte(verifier))
	q := url.Values{"response_type": {"code"}, "client_id": {"brine"}, "redirect_uri": {"https://api.lab/callback"}, "scope": {"openid"}, "as": {user},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"}}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Get(p.url + "/authorize?" + q.Encode())
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	to, err := resp.Location()
	if err != nil || to.Query().Get("code") == "" {
		b, _ := io.ReadAll(resp.Body)
		p.t.Fatalf("%d %v %v %s", resp.StatusCode, to, err, b)
	}
	return to.Query().Get("code")
}

func TestOIDC(t *testing.T) {
	p := startProvider(t)
	base := fmt.Sprintf("^issuer: '%s', ^client_id: brine, ^client_secret: client secret, ^redirect_uri: https://api.lab/callback", p.url)
	use := func(more string) *Service {
		return must(t, Options{ExpireOverride: true, External: external(t, "{oidc: {"+base+more+", ann: [a.b], 'ops%': [o.p], 'dev%': [d.v]}}")})
	}
	s := use("")
	try := func(s *Service, name, password string) string {
		u, err := s.Authenticate(context.Background(), Credentials{"oidc", name, password, nil})
		if err != nil {
			return "refused"
		}
		return fmt.Sprint(u.Name, s.Rights(u))
	}
	good := p.mint(`{}`)
	for what, c := range map[string]struct{ name, token, want string }{
		"a token":                      {"ann", good, "ann[a.b o.p d.v]"},
		"without a name":               {"", good, "ann[a.b o.p d.v]"},
		"one group as a string":        {"bob", p.mint(`{"claims": {"preferred_username": "bob", "groups": "dev"}}`), "bob[d.v]"},
		"invalid groups claim":         {"ann", p.mint(`{"claims": {"groups": {"ops": 1}}}`), "ann[a.b]"},
		"another user's":               {"bob", good, "refused"},
		"a name that is a pattern":     {"*", p.mint(`{"claims": {"preferred_username": "*", "groups": []}}`), "*[]"},
		"no token":                     {"ann", "x", "refused"},
		"nothing":                      {"ann", "", "refused"},
		"nobody":                       {"", "", "refused"},
		"expired":                      {"ann", p.mint(`{"claims": {"exp": 1}}`), "refused"},
		"for another program":          {"ann", p.mint(`{"claims": {"aud": "other"}}`), "refused"},
		"of another provider":          {"ann", p.mint(`{"claims": {"iss": "https://evil.test"}}`), "refused"},
		"without a signature":          {"ann", p.mint(`{"how": "none"}`), "refused"},
		"signed by the public key":     {"ann", p.mint(`{"how": "hmac"}`), "refused"},
		"signed by another key":        {"ann", p.mint(`{"how": "foreign"}`), "refused"},
		"changed":                      {"ann", good[:len(good)-8] + "AAAAAAAA", "refused"},
		"no name in it":                {"", p.mint(`{"claims": {"preferred_username": ""}}`), "refused"},
		"a name that is not a string":  {"", p.mint(`{"claims": {"preferred_username": 5}}`), "refused"},
		"a code":                       {"", "code=" + p.code("ann", "v1") + "&code_verifier=v1", "refused"}, // the verifier is too short
		"a code with its verifier":     {"", "code=" + p.code("ann", long) + "&code_verifier=" + long, "ann[a.b o.p d.v]"},
		"a code with another verifier": {"", "code=" + p.code("ann", long) + "&code_verifier=" + long + "x", "refused"},
		"a code with another name":     {"ann", "code=" + p.code("bob", long) + "&code_verifier=" + long, "refused"},
		"an unknown code":              {"", "code=abc", "refused"},
	} {
		if got := try(s, c.name, c.token); got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
	once := "code=" + p.code("ann", long) + "&code_verifier=" + long
	if a, b := try(s, "", once), try(s, "", once); a == "refused" || b != "refused" {
		t.Errorf("a code used twice: %s, then %s", a, b)
	}
	p.post("/rotate", "")
	if got := try(s, "", p.mint(`{}`)); got != "ann[a.b o.p d.v]" {
		t.Errorf("signed by a new key: %s", got)
	}
	mail := use(", ^username_claim: email, ^groups_claim: teams")
	if got := try(mail, "", p.mint(`{"claims": {"teams": ["ops"]}}`)); got != "ann@lab[o.p]" {
		t.Errorf("by email: %s", got)
	}
	if got := try(mail, "", p.mint(`{"claims": {"email_verified": false}}`)); got != "refused" {
		t.Errorf("by an email that is not verified: %s", got)
	}
	tok, err := s.NewToken(context.Background(), Credentials{"oidc", "", p.mint(`{}`), nil}, 0)
	if err != nil || tok.Str("name") != "ann" {
		t.Fatalf("%v, %v", tok, err)
	}
	if u, err := s.ByToken(tok.Str("token")); err != nil || u.Name != "ann" || len(u.Groups) != 2 {
		t.Errorf("%v, %v", u, err)
	}
}

// long is a verifier of the minimum length.
var long = strings.Repeat("v", 43)

func TestOIDCSettings(t *testing.T) {
	for _, c := range []string{"", "^issuer: x, ^client_id: a", "^issuer: 'ftp://a', ^client_id: a", "^issuer: 'http://idp.test', ^client_id: a",
		"^issuer: 'https://idp.test'",
		"^issuer: 'https://idp.test', ^client_id: a, ^ca_file: /nosuch", "^issuer: 'https://idp.test', ^client_id: a, ^ca_file: oidc_test.go"} {
		if _, errs := service(t, Options{External: external(t, "{oidc: {"+c+"}}")}); len(errs) != 1 {
			t.Errorf("%s: %v", c, errs)
		}
	}
	// An unreachable provider affects only its own users.
	s := must(t, Options{External: external(t, "{oidc: {^issuer: 'http://127.0.0.1:1', ^client_id: a}}")})
	if _, err := s.Authenticate(context.Background(), Credentials{"oidc", "ann", "x", nil}); err != ErrRefused {
		t.Errorf("%v", err)
	}
}
