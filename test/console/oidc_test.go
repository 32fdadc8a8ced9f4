package console

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// provider is a small OpenID provider with the code flow and PKCE. Its tokens are signed with RS256.
type provider struct {
	*httptest.Server
	t   *testing.T
	key *rsa.PrivateKey

	mu    sync.Mutex
	codes map[string]url.Values // by code: the parameters of the authorization
	users map[string]string     // by code
	// nonce replaces the nonce of tokens, if it is not empty.
	nonce string
}

const clientSecret = "client secret"

func startProvider(t *testing.T) *provider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{t: t, key: key, codes: map[string]url.Values{}, users: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		p.send(w, map[string]any{"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
			"jwks_uri": p.URL + "/keys", "response_types_supported": []string{"code"},
			"id_token_signing_alg_values_supported": []string{"RS256"}, "code_challenge_methods_supported": []string{"S256"}})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		p.send(w, map[string]any{"keys": []any{map[string]any{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "one",
			"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()), "e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes())}}})
	})
	mux.HandleFunc("/favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/authorize", p.authorize)
	mux.HandleFunc("/token", p.token)
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// settings returns the entry of external_auth.
func (p *provider) settings() string {
	return fmt.Sprintf(`  oidc:
    ^issuer: %s
    ^client_id: brine
    ^client_secret: %s
    ^redirect_uri: http://HOST:%d/console/
    ann: ['@runner']
`, p.URL, clientSecret, port)
}

func (p *provider) send(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		p.t.Error(err)
	}
}

// authorize is the provider's page: it lets the user choose who it is.
func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != "brine" || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" ||
		!strings.Contains(q.Get("scope"), "openid") {
		http.Error(w, "a wrong request", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/html")
	for _, user := range []string{"ann", "eve"} {
		code := rand.Text()
		p.mu.Lock()
		p.codes[code], p.users[code] = q, user
		p.mu.Unlock()
		back.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
		fmt.Fprintf(w, `<a id="%s" href="%s">%s</a> `, user, html.EscapeString(back.String()), user)
	}
	back.RawQuery = url.Values{"error": {"access_denied"}, "error_description": {"<b>no</b>"}, "state": {q.Get("state")}}.Encode()
	fmt.Fprintf(w, `<a id="refuse" href="%s">refuse</a>`, html.EscapeString(back.String()))
}

// token exchanges a code, once.
func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	if unescaped, err := url.QueryUnescape(secret); err == nil {
		secret = unescaped
	}
	code := r.PostFormValue("code")
	p.mu.Lock()
	q, user, nonce := p.codes[code], p.users[code], p.nonce
	delete(p.codes, code)
	p.mu.Unlock()
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if id != "brine" || secret != clientSecret || q == nil || q.Get("redirect_uri") != r.PostFormValue("redirect_uri") ||
		base64.RawURLEncoding.EncodeToString(sum[:]) != q.Get("code_challenge") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error": "invalid_grant"}`)
		return
	}
	if nonce == "" {
		nonce = q.Get("nonce")
	}
	now := time.Now()
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			p.t.Error(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	claims := map[string]any{"iss": p.URL, "aud": "brine", "sub": user, "preferred_username": user, "nonce": nonce,
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	text := part(map[string]any{"alg": "RS256", "kid": "one", "typ": "JWT"}) + "." + part(claims)
	digest := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, p.key, crypto.SHA256, digest[:])
	if err != nil {
		p.t.Error(err)
	}
	p.send(w, map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": text + "." + base64.RawURLEncoding.EncodeToString(sig)})
}

// openID signs users in at the provider, in the browser.
func (s *stage) openID(p *provider) {
	s.t.Helper()
	visit := func(link string) {
		s.t.Helper()
		s.click("#provider")
		s.until("the page of the provider", `location.origin === args[0]`, p.URL)
		s.click("#" + link)
	}
	s.Run(nil, `location.hash = "#/jobs"; location.reload();`)
	visit("refuse")
	s.sees("The OpenID provider refused: <b>no</b>")
	visit("eve")
	s.sees("external_auth grants you nothing")
	p.mu.Lock()
	p.nonce = "of another sign-in"
	p.mu.Unlock()
	visit("ann")
	s.sees("The master does not accept what the OpenID provider sent.")
	p.mu.Lock()
	p.nonce = ""
	p.mu.Unlock()
	s.clean("401")
	visit("ann")
	s.until("the page from which the user came", `document.querySelector("#who").textContent === "ann" &&
		location.hash === "#/jobs" && location.search === ""`)
	s.until("the stream is open", `document.getElementById("connection").textContent.includes("live")`)
	for _, c := range s.Cookies() {
		if c.Name == "session_id" && (!c.HTTPOnly || c.SameSite != "Strict") {
			s.t.Errorf("the cookie %+v", c)
		}
	}
	if got := s.text(`JSON.stringify({...sessionStorage, "brine-due": ""})`); got != `{"brine-due":""}` {
		s.t.Errorf("the secrets of the sign-in are still there: %s", got)
	}
	// A code that another page has begun is refused: it could be another user's.
	s.Open(s.url + "/console/?code=abc&state=" + strings.Repeat("x", 43))
	s.until("the user is still there", `document.querySelector("#who").textContent === "ann" && location.search === ""`)
	s.clean("401")
}
