package api

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/test/browsertest"
	"brine/test/daemontest"
)

// certificate writes a certificate for an address, with its key.
func certificate(t *testing.T, host string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, IPAddresses: []net.IP{net.ParseIP(host)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := daemontest.ShortDir(t)
	cert, key = filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	for path, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// page serves an empty page from a separate site on the host of the API.
func page(t *testing.T, host, cert, key string) (origin string) {
	t.Helper()
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, TLS: &tls.Config{Certificates: []tls.Certificate{pair}}, Config: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<!DOCTYPE html><title>page</title>")
		})}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

// Scripts of pages. api is the URL of the API.
const (
	scriptLogin = `const [api] = args;
		const r = await fetch(api + "/login", {method: "POST", body: JSON.stringify({username: "admin", password: "s3cret", eauth: "sharedsecret"})});
		return {status: r.status, token: (await r.json()).return[0].token, cookie: document.cookie};`
	// By fetch, with a token (which needs a preflight) or with the cookie. -1 means that the
	// browser hides the answer from the page.
	scriptRun = `const [api, token] = args;
		const o = {method: "POST", headers: {Accept: "application/json"}, body: JSON.stringify({client: "runner", fun: "test.arg", arg: ["x"]})};
		if (token) o.headers["X-Auth-Token"] = token; else o.credentials = "include";
		try { return (await fetch(api + "/", o)).status; } catch (e) { return -1; }`
	// Returns the first event of a job, by an EventSource.
	scriptEvents = `const [url, api, credentials] = args;
		const s = new EventSource(url, {withCredentials: credentials});
		let timer;
		try {
			return await new Promise((done) => {
				s.onerror = () => { if (s.readyState == EventSource.CLOSED) done("closed"); };
				s.onmessage = (m) => { const e = JSON.parse(m.data); if (e.tag == "salt/netapi/hook/page") done(e.data.post.said); };
				const fire = () => fetch(api + "/hook/page", {method: "POST", headers: {"Content-Type": "application/json"}, body: '{"said": "gr\u00fc\u00df dich"}'}).catch(() => {});
				s.onopen = fire;
				timer = setInterval(fire, 1000);
			});
		} finally { clearInterval(timer); s.close(); }`
	scriptSocket = `const [url, api] = args;
		const s = new WebSocket(url);
		let timer;
		try {
			return await new Promise((done) => {
				s.onclose = () => done("closed");
				s.onmessage = (m) => { const e = JSON.parse(m.data.replace(/^data: /, "")); if (e.tag == "salt/netapi/hook/page") done(e.data.post.said); };
				s.onopen = () => {
					s.send("websocket client ready");
					timer = setInterval(() => fetch(api + "/hook/page", {method: "POST", headers: {"Content-Type": "application/json"}, body: '{"said": "gr\u00fc\u00df dich"}'}).catch(() => {}), 300);
				};
			});
		} finally { clearInterval(timer); s.close(); }`
)

// TestBrowser uses a real browser with pages of the API itself, of a site in cors_origins, and of
// an unknown site, by fetch, EventSource and WebSocket.
func TestBrowser(t *testing.T) {
	b := browsertest.Start(t)
	host := daemontest.Host()
	cert, key := certificate(t, host)
	friend, foreign := page(t, host, cert, key), page(t, host, cert, key)
	s := startWith(t, host, func(conf string) string {
		return strings.Replace(conf, "  disable_ssl: true\n", fmt.Sprintf("  ssl_crt: %s\n  ssl_key: %s\n  cors_origins: ['%s']\n", cert, key, friend), 1)
	})
	const said = "grüß dich"
	run := func(what string, want int, token string) {
		t.Helper()
		var got int
		if b.Run(&got, scriptRun, s.url, token); got != want {
			t.Errorf("%s: status %d, want %d", what, got, want)
		}
	}
	hear := func(what, want, script string, args ...any) {
		t.Helper()
		var got string
		if b.Run(&got, script, args...); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	socket := "wss" + strings.TrimPrefix(s.url, "https") + "/ws"

	b.Open(s.url + "/app/some/page")
	var in struct {
		Status        int
		Token, Cookie string
	}
	b.Run(&in, scriptLogin, s.url)
	if in.Status != 200 || len(in.Token) != 40 || in.Cookie != "" {
		t.Fatalf("login: %+v; a script must not see the cookie", in)
	}
	cookies := b.Cookies()
	if len(cookies) != 1 {
		t.Fatalf("cookies: %+v", cookies)
	}
	if c := cookies[0]; c.Name != "session_id" || c.Value != in.Token || c.Path != "/" || !c.HTTPOnly || !c.Secure || c.SameSite != "Strict" ||
		c.Expiry < time.Now().Unix() {
		t.Errorf("the cookie: %+v", c)
	}
	run("the app by its cookie", 200, "")
	hear("the app's EventSource", said, scriptEvents, s.url+"/events", s.url, false)
	hear("the app's WebSocket", said, scriptSocket, socket, s.url)

	b.Open(friend)
	run("a site in cors_origins by the cookie", 200, "")
	run("a site in cors_origins by a token", 200, in.Token)
	hear("its EventSource by the cookie", said, scriptEvents, s.url+"/events", s.url, true)
	hear("its WebSocket by the cookie", said, scriptSocket, socket, s.url)

	// The host is the same, so the browser considers it the same site and sends the cookie whatever
	// SameSite is.
	b.Open(foreign)
	run("a foreign page by the cookie", -1, "")
	run("a foreign page by a token", 200, in.Token)
	run("a foreign page by a wrong token", 401, strings.Repeat("0", 40))
	hear("its EventSource by the cookie", "closed", scriptEvents, s.url+"/events", s.url, true)
	hear("its EventSource by a token", said, scriptEvents, s.url+"/events?token="+in.Token, s.url, false)
	hear("its WebSocket by the cookie", "closed", scriptSocket, socket, s.url)
	hear("its WebSocket by a token", said, scriptSocket, socket+"/"+in.Token, s.url)
}
