package api

import (
	"bufio"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/call/client"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/test/fuzztest"
)

// fakeMaster has one user, ann with the password p, and runs no functions.
type fakeMaster struct {
	look   func(fun string, kwargs *value.Dict) (any, error)
	mu     sync.Mutex
	tokens map[string]bool
	names  map[string]string // of users other than ann, by token
	low    func(chunk *value.Dict) ([]any, error)
	perms  []any // permissions of ann; nil: @runner
	dead   atomic.Bool
	hang   chan struct{} // closed by Low, which then waits until the client disconnects
}

func (m *fakeMaster) Low(ctx context.Context, chunk *value.Dict) ([]any, error) {
	if m.hang != nil {
		close(m.hang)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if m.low != nil {
		return m.low(chunk)
	}
	return []any{chunk}, nil
}

func (m *fakeMaster) NewToken(_ context.Context, d *value.Dict) (*value.Dict, error) {
	if d.Str("password") != "p" {
		return nil, salt.Errorf(salt.Denied, "no")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	tok := strings.Repeat(fmt.Sprintf("%02x", len(m.tokens)), 32)
	m.tokens[tok] = true
	if name := d.Str("username"); name != "ann" {
		m.names[tok] = name
	}
	now := float64(time.Now().Unix())
	return value.DictOf("token", tok, "name", d.Str("username"), "eauth", "x", "start", now, "expire", now+60, "perms", value.ListOf(".*")), nil
}

func (m *fakeMaster) Token(_ context.Context, token string) (*value.Dict, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.tokens[token] {
		return nil, nil
	}
	name := cmp.Or(m.names[token], "ann")
	if m.perms == nil {
		return value.DictOf("name", name, "perms", value.ListOf("@runner")), nil
	}
	return value.DictOf("name", name, "perms", value.ListOf(m.perms...)), nil
}

func (m *fakeMaster) DropToken(_ context.Context, token string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.tokens, token)
	return nil
}

// Look implements Master.
func (m *fakeMaster) Look(ctx context.Context, token, fun string, kwargs *value.Dict) (any, error) {
	if t, err := m.Token(ctx, token); t == nil || m.look == nil {
		return nil, errors.Join(err, salt.Errorf(salt.Denied, "no"))
	}
	return m.look(fun, kwargs)
}

func (m *fakeMaster) Ping(context.Context) error {
	if m.dead.Load() {
		return salt.Errorf(salt.Unavailable, "dead")
	}
	return nil
}

// fakeBus delivers the events of an event.Bus.
type fakeBus struct {
	client.InProcess
}

func (b *fakeBus) Fire(_ context.Context, tag string, data *value.Dict) error {
	return b.Events.Fire(tag, data)
}

func settings(t testing.TB, text string) Settings {
	t.Helper()
	v, err := yaml.Load([]byte("{port: 0, host: 127.0.0.1, disable_ssl: true, "+text+"}"), "test")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{REST: v.(*value.Dict), Enable: value.ListOf("local", "runner"), Timeout: time.Minute}
	s, err := o.Read(filepath.Join(t.TempDir(), "sessions"))
	if err != nil {
		t.Fatal(err)
	}
	return *s
}

type running struct {
	*Server
	t      testing.TB
	master *fakeMaster
	events *event.Bus
	url    string
	client *http.Client
}

func serve(t testing.TB, s Settings) *running {
	t.Helper()
	return serveLogged(t, s, slog.New(slog.DiscardHandler))
}

func serveLogged(t testing.TB, s Settings, log *slog.Logger) *running {
	t.Helper()
	m := &fakeMaster{tokens: map[string]bool{}, names: map[string]string{}}
	bus := &fakeBus{client.InProcess{Events: event.NewBus(0)}}
	a, err := New(s, m, bus, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	scheme := "https"
	if s.Plain {
		scheme = "http"
	}
	r := &running{a, t, m, bus.Events, scheme + "://" + a.Addr().String(),
		&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}}
	return r
}

func (r *running) do(method, path, body string, headers ...string) (*http.Response, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp, string(b)
}

const form = "application/x-www-form-urlencoded"

func (r *running) login() string {
	r.t.Helper()
	resp, b := r.do("POST", "/login", "username=ann&password=p&eauth=x", "Content-Type", form)
	if resp.StatusCode != 200 {
		r.t.Fatalf("login: %d %s", resp.StatusCode, b)
	}
	return resp.Header.Get("X-Auth-Token")
}

// pair writes a certificate of this address and its key.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	for path, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestTLS(t *testing.T) {
	cert, key := pair(t)
	s := settings(t, "ssl_crt: "+cert+", ssl_key: "+key)
	s.Plain = false
	r := serve(t, s)
	resp, _ := r.do("POST", "/login", "username=ann&password=p&eauth=x", "Content-Type", form)
	if c := resp.Header.Get("Set-Cookie"); resp.Proto != "HTTP/1.1" || !strings.Contains(c, "; Secure") || !strings.Contains(c, "; HttpOnly") {
		t.Errorf("%s, cookie %s", resp.Proto, c)
	}
	if v := resp.Header.Values("Strict-Transport-Security"); v != nil {
		t.Errorf("HSTS without the setting: %q", v)
	}
	for plain, want := range map[bool]string{false: "max-age=86400", true: ""} {
		s := settings(t, "hsts_max_age: 86400, ssl_crt: "+cert+", ssl_key: "+key)
		s.Plain = plain
		resp, _ := serve(t, s).do("GET", "/", "")
		if got := resp.Header.Get("Strict-Transport-Security"); got != want {
			t.Errorf("hsts_max_age, disable_ssl %v: %q", plain, got)
		}
	}
	old := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	if c, err := tls.Dial("tcp", r.Addr().String(), old); err == nil {
		c.Close()
		t.Error("TLS 1.1 is taken")
	}
}

func TestBadSettings(t *testing.T) {
	cert, key := pair(t)
	open := filepath.Join(filepath.Dir(key), "open")
	b, _ := os.ReadFile(key)
	if err := os.WriteFile(open, b, 0o644); err != nil {
		t.Fatal(err)
	}
	os.Chmod(open, 0o644)
	for text, want := range map[string]string{
		"{}":                                    "port",
		"{port: 1}":                             "ssl_crt",
		"{port: x, disable_ssl: true}":          "port",
		"{port: 70000, disable_ssl: true}":      "port",
		"{port: 1, disable_ssl: true, hots: x}": "hots",
		"{port: 1, disable_ssl: true, authorized_ips: [1.2.3]}":                  "authorized_ips",
		"{port: 1, disable_ssl: true, trusted_proxies: [10.0.0.0/33]}":           "trusted_proxies",
		"{port: 1, disable_ssl: true, trusted_proxies: ['::ffff:0:0/90']}":       "trusted_proxies",
		"{port: 1, disable_ssl: true, login_limit: -1}":                          "login_limit",
		"{port: 1, disable_ssl: true, host: [x]}":                                "host",
		"{port: 1, disable_ssl: true, max_request_body_size: 0}":                 "max_request_body_size",
		"{port: 1, ssl_crt: /none, ssl_key: " + key + "}":                        "ssl_crt",
		"{port: 1, ssl_crt: " + cert + ", ssl_key: " + open + "}":                "chmod",
		"{port: 1, ssl_crt: " + cert + ", ssl_key: " + key + ", ssl_chain: /no}": "ssl_chain",
	} {
		v, err := yaml.Load([]byte(text), "test")
		if err != nil {
			t.Fatal(err)
		}
		o := Options{REST: v.(*value.Dict)}
		if _, err := o.Read(t.TempDir()); salt.KindOf(err) != salt.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestWhoMayTry(t *testing.T) {
	for text, want := range map[string]int{
		"":                                     200,
		"api_acl: {users: {ann: [127.0.0.1]}}": 200,
		"api_acl: {users: {'*': ['*']}}":       200,
		"api_acl: {users: {ann: ['*']}}":       200,
		"api_acl: {users: {ann: 127.0.0.1}}":   200,
		"api_acl: {users: {ann: [10.0.0.1]}}":  401,
		"api_acl: {users: {bob: ['*']}}":       401,
		"api_acl: {}":                          401,
	} {
		if resp, b := serve(t, settings(t, text)).do("POST", "/login", "username=ann&password=p&eauth=x", "Content-Type", form); resp.StatusCode != want {
			t.Errorf("%s: %d %s", text, resp.StatusCode, b)
		}
	}
	for text, want := range map[string]int{"authorized_ips: [127.0.0.1]": 200, "authorized_ips: [10.0.0.1]": 403, "authorized_ips: []": 200} {
		if resp, _ := serve(t, settings(t, text)).do("GET", "/", ""); resp.StatusCode != want {
			t.Errorf("%s: %d", text, resp.StatusCode)
		}
	}
}

func TestRootPrefixAndSessionsOff(t *testing.T) {
	r := serve(t, settings(t, "root_prefix: /salt, enable_sessions: false, webhook_url: /in/hook, webhook_disable_auth: true"))
	for path, want := range map[string]int{"/salt": 200, "/salt/": 200, "/": 404, "/salt/login": 404, "/salt/jobs": 404, "/salt/in/hook": 405,
		"/salt/in": 404, "/salt/nosuch": 404, "/saltx": 404} {
		if resp, _ := r.do("GET", path, ""); resp.StatusCode != want {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	if resp, b := r.do("POST", "/salt/in/hook/a/b", ""); resp.StatusCode != 200 {
		t.Errorf("hook: %d %s", resp.StatusCode, b)
	}
}

// TestErrors: errors of the master get the right HTTP status.
func TestErrors(t *testing.T) {
	r := serve(t, settings(t, ""))
	id := r.login()
	for kind, want := range map[salt.Kind]int{salt.Denied: 401, salt.Invalid: 400, salt.Unavailable: 503, salt.Timeout: 504, salt.Internal: 500,
		salt.NotFound: 500} {
		r.master.low = func(*value.Dict) ([]any, error) { return nil, salt.Errorf(kind, "it is <so>") }
		resp, b := r.do("POST", "/", `{"client":"local"}`, "Content-Type", typeJSON, "X-Auth-Token", id)
		if resp.StatusCode != want || strings.Contains(b, "<so>") || want != 500 && !strings.Contains(b, "<p>it is &lt;so&gt;</p>") {
			t.Errorf("%v: %d %s", kind, resp.StatusCode, b)
		}
	}
	r.master.low = func(*value.Dict) ([]any, error) { return nil, errors.New("secret path") }
	if _, b := r.do("POST", "/", `{"client":"local"}`, "Content-Type", typeJSON, "X-Auth-Token",
		id); b != `{"status": 500, "return": "An unexpected error occurred"}` {
		t.Errorf("unforeseen: %s", b)
	}
}

// TestChunksShowTheSession: a chunk carries the token of the session, whatever credentials
// it contains.
func TestChunksShowTheSession(t *testing.T) {
	r := serve(t, settings(t, ""))
	id := r.login()
	var got *value.Dict
	r.master.low = func(d *value.Dict) ([]any, error) { got = d; return []any{nil}, nil }
	r.do("POST", "/", `{"client":"local","token":"ab","eauth":"x","username":"root","password":"p","tgt":"a"}`, "Content-Type", "text/plain;charset=UTF-8",
		"X-Auth-Token", id)
	if want := "{'client': 'local', 'tgt': 'a', 'token': '" + strings.Repeat("00", 32) + "'}"; value.Repr(got) != want {
		t.Errorf("got %s, want %s", value.Repr(got), want)
	}
	// A header takes precedence over a cookie.
	other := r.login()
	r.do("POST", "/", `{"client":"local"}`, "Content-Type", typeJSON, "X-Auth-Token", id, "Cookie", "session_id="+other)
	if got.Str("token") != strings.Repeat("00", 32) {
		t.Error("the cookie counts more than the header")
	}
}

func TestSessionsEnd(t *testing.T) {
	r := serve(t, settings(t, ""))
	id := r.login()
	status := func() int { resp, _ := r.do("GET", "/minions", "", "X-Auth-Token", id); return resp.StatusCode }
	if got := status(); got != 200 {
		t.Fatalf("in time: %d", got)
	}
	r.sessions.mu.Lock()
	r.sessions.now = func() time.Time { return time.Now().Add(2 * time.Minute) }
	r.sessions.mu.Unlock()
	if got := status(); got != 401 {
		t.Errorf("after its end: %d", got)
	}
	if entries, _ := os.ReadDir(r.sessions.dir); len(entries) != 0 {
		t.Errorf("%d files are left", len(entries))
	}
}

func TestSweep(t *testing.T) {
	s, err := openSessions(filepath.Join(t.TempDir(), "s"), 0)
	if err != nil {
		t.Fatal(err)
	}
	now := float64(time.Now().Unix())
	keep, _ := s.add(&session{Token: "a", Expire: now + 60})
	s.add(&session{Token: "b", Expire: now - 60})
	os.WriteFile(filepath.Join(s.dir, "junk"), []byte("x"), 0o600)
	if err := s.sweep(); err != nil {
		t.Fatal(err)
	}
	entries, _ := os.ReadDir(s.dir)
	if len(entries) != 1 || s.get(keep) == nil {
		t.Errorf("%d files", len(entries))
	}
	for _, bad := range []string{"", "x", "../" + keep, strings.Repeat("0", 40)} {
		if s.get(bad) != nil {
			t.Errorf("%q is a session", bad)
		}
	}
	fi, err := os.Stat(s.dir)
	if err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", fi.Mode(), err)
	}
}

// TestSessionsOutliveClock: a clock that is days ahead for a moment ends no session, and a request made while it is days behind makes no user
// idle.
func TestSessionsOutliveClock(t *testing.T) {
	s, err := openSessions(t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	now, passed := time.Now(), time.Duration(1)
	s.now = func() time.Time { return now }
	s.steady = steady.Of(s.now, func(time.Time) time.Duration { return passed })
	id, err := s.add(&session{Token: "a", Expire: float64(now.Add(24 * time.Hour).Unix()), Forgery: "x"})
	if err != nil {
		t.Fatal(err)
	}
	round := func() *session {
		t.Helper()
		of := s.get(id)
		if ended, err := s.endIdle(); len(ended) > 0 || err != nil {
			t.Errorf("ended: %v, %v", ended, err)
		}
		if err := s.sweep(); err != nil {
			t.Error(err)
		}
		return of
	}
	const days = 72 * time.Hour
	now = now.Add(days)
	if round() != nil {
		t.Error("an expired session is valid while the clock is ahead")
	}
	now = now.Add(-days)
	of := round()
	if of == nil {
		t.Fatal("the session is not valid any more with the right clock")
	}
	now = now.Add(-days)
	round()
	s.use(id, of)
	now = now.Add(days)
	if round() == nil {
		t.Error("a user who made a request while the clock was behind is idle")
	}
	now, passed = now.Add(2*time.Hour), passed+2*time.Hour
	if ended, err := s.endIdle(); len(ended) != 1 || err != nil {
		t.Errorf("an idle session does not end: %v, %v", ended, err)
	}
}

// listen opens a stream and returns its lines.
func (r *running) listen(id string) (lines <-chan string, stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "GET", r.url+"/events", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("X-Auth-Token", id)
	resp, err := r.client.Do(req)
	if err != nil || resp.StatusCode != 200 {
		r.t.Fatalf("%v %v", resp, err)
	}
	c := make(chan string, 1000)
	go func() {
		defer close(c)
		for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
			c <- sc.Text()
		}
	}()
	if first := <-c; first != "retry: 400" {
		r.t.Fatalf("begins with %q", first)
	}
	return c, func() { cancel(); resp.Body.Close() }
}

// until fires an event repeatedly until the stream has it, and returns the tags before it.
func (r *running) until(lines <-chan string, tag string) []string {
	r.t.Helper()
	var tags []string
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	over := time.After(time.Minute)
	for {
		select {
		case l, ok := <-lines:
			if !ok {
				r.t.Fatal("the stream has ended")
			}
			if l == "tag: "+tag {
				return tags
			}
			if t, ok := strings.CutPrefix(l, "tag: "); ok {
				tags = append(tags, t)
			}
		case <-again.C:
			r.events.Fire(tag, value.DictOf("user", "ann"))
		case <-over:
			r.t.Fatal("no event")
		}
	}
}

// TestTagsAreOneLine: a line break in a tag, which senders of hooks and minions choose,
// does not start another event of the stream.
func TestTagsAreOneLine(t *testing.T) {
	r := serve(t, settings(t, "webhook_disable_auth: true"))
	lines, stop := r.listen(r.login())
	defer stop()
	r.until(lines, "begin")
	if resp, b := r.do("POST", "/hook/a%0Adata:%20forged%0A"+"b", ""); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, b)
	}
	r.events.Fire("a\rdata: forged\rb", value.NewDict(0))
	r.events.Fire("end", value.NewDict(0))
	var tags []string
	for l := range lines {
		if l == "tag: end" {
			break
		}
		for part := range strings.SplitSeq(l, "\r") {
			if part == "data: forged" {
				t.Errorf("an event of the sender's own: %q", l)
			}
		}
		if tag, ok := strings.CutPrefix(l, "tag: "); ok && tag != "begin" {
			tags = append(tags, tag)
		}
	}
	if got := strings.Join(tags, "|"); got != "salt/netapi/hook/a data: forged b|a data: forged b" {
		t.Errorf("the tags are %q", got)
	}
}

// TestTokenProvesNoPassword: for a chunk with a token the master does not check the
// password, so the password does not count as proven. Otherwise a user with a token could
// try any number of other users' passwords.
func TestTokenProvesNoPassword(t *testing.T) {
	r := serve(t, settings(t, "login_limit: 3"))
	token := strings.Repeat("00", 32)
	guess := func(i int) string { return fmt.Sprintf("username=root&password=x%d&eauth=x", i) }
	for i := range 10 {
		if resp, b := r.do("POST", "/run", "client=local&tgt=a&fun=test.ping&token="+token+"&"+guess(i), "Content-Type", form); resp.StatusCode != 200 {
			t.Fatalf("a chunk with a token: %d %s", resp.StatusCode, b)
		}
	}
	for i := range 10 {
		want := http.StatusUnauthorized
		if i >= 3 {
			want = http.StatusTooManyRequests
		}
		if resp, b := r.do("POST", "/login", guess(i), "Content-Type", form); resp.StatusCode != want {
			t.Errorf("login %d: %d %s, want %d", i, resp.StatusCode, b, want)
		}
	}
	// Tokens are not limited.
	if resp, b := r.do("POST", "/run", "client=local&tgt=a&fun=test.ping&token="+token+"&"+guess(0), "Content-Type", form); resp.StatusCode != 200 {
		t.Errorf("a chunk with a token: %d %s", resp.StatusCode, b)
	}
}

// TestSlowReader: a reader that does not read is disconnected, and delays no other reader.
func TestSlowReader(t *testing.T) {
	r := serve(t, settings(t, ""))
	lines, stop := r.listen(r.login())
	defer stop()
	slow := r.feed.open()
	r.until(lines, "begin")
	for range readerQueue + 1 {
		r.feed.give(&message{tag: "x", json: "{}", data: value.NewDict(0)})
	}
	for range slow.c {
	}
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	if r.feed.readers[slow] {
		t.Error("the slow reader is still there")
	}
}

// TestSlowReaderOfLargeEvents: the events queued for a reader are also limited by bytes, so
// that a few large ones do not fill the memory.
func TestSlowReaderOfLargeEvents(t *testing.T) {
	r := serve(t, settings(t, ""))
	lines, stop := r.listen(r.login())
	defer stop()
	r.until(lines, "begin")
	slow, reading := r.feed.open(), r.feed.open()
	large := &message{tag: "x", json: strings.Repeat("x", 200_000), data: value.NewDict(0)}
	waited := 0
	for r.listed(slow) {
		r.feed.give(large)
		waited = max(waited, len(slow.c)*len(large.json))
		reading.took(<-reading.c)
	}
	if waited > readerBytes || waited < readerBytes/2 {
		t.Errorf("%d bytes waited for a reader", waited)
	}
	if _, ok := <-slow.c; ok {
		t.Error("events wait for a reader that is cut off")
	}
	// A single event may exceed that limit.
	r.feed.give(&message{tag: "x", json: strings.Repeat("x", readerBytes+1), data: value.NewDict(0)})
	if !r.listed(reading) {
		t.Error("a reader that keeps up is cut off by one large event")
	}
}

func (r *running) listed(of *reader) bool {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	return r.feed.readers[of]
}

// TestClientGone: it is no server error if a client closes the connection.
func TestClientGone(t *testing.T) {
	var log logBuffer
	r := serveLogged(t, settings(t, ""), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo})))
	r.master.hang = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", r.url+"/", strings.NewReader("client=local&tgt=*&fun=test.ping"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Auth-Token", r.login())
	req.Header.Set("Content-Type", form)
	done := make(chan error, 1)
	go func() {
		resp, err := r.client.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		done <- err
	}()
	<-r.master.hang
	cancel()
	<-done
	for {
		r.stats.mu.Lock()
		n := r.stats.byStatus[statusClosed]
		r.stats.mu.Unlock()
		if n == 1 {
			break
		}
		if n = 0; r.stats.active.Load() == 0 {
			t.Error("the request is not counted as one whose client has gone")
			break
		}
		time.Sleep(time.Millisecond)
	}
	if strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("logged: %s", &log)
	}
}

// logBuffer is a log for tests.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestHealth(t *testing.T) {
	r := serve(t, settings(t, ""))
	if resp, body := r.do("GET", "/health", ""); resp.StatusCode != 200 || body != `{"status": "ok"}` {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	r.master.dead.Store(true)
	r.figures.alive.mu.Lock()
	r.figures.alive.at = time.Time{}
	r.figures.alive.mu.Unlock()
	if resp, body := r.do("GET", "/health", ""); resp.StatusCode != 503 || !strings.Contains(body, "master") {
		t.Errorf("with a dead master: %d %s", resp.StatusCode, body)
	}
}

// TestCookieBehindAProxy: behind a proxy that changes Host, pages of the same site may use
// the cookie because of the browser's header Sec-Fetch-Site, X-Forwarded-Host of a trusted
// proxy, or cors_origins.
func TestCookieBehindAProxy(t *testing.T) {
	for _, c := range []struct {
		setting string
		headers []string
		cookie  bool
	}{
		{"", nil, false},
		{"", []string{"Sec-Fetch-Site", "same-origin"}, true},
		{"", []string{"Sec-Fetch-Site", "same-site"}, false},
		{"", []string{"Sec-Fetch-Site", "cross-site"}, false},
		{"", []string{"X-Forwarded-Host", "gui.test"}, false},
		{"trusted_proxies: [127.0.0.1]", []string{"X-Forwarded-Host", "gui.test"}, true},
		{"trusted_proxies: [127.0.0.1]", []string{"X-Forwarded-Host", "other.test"}, false},
		{"trusted_proxies: [127.0.0.1]", []string{"X-Forwarded-Host", "gui.test", "X-Forwarded-Proto", "https"}, true},
		{"cors_origins: ['https://gui.test']", nil, true},
	} {
		r := serve(t, settings(t, c.setting))
		resp, _ := r.do("POST", "/login", "username=ann&password=p&eauth=x",
			append([]string{"Content-Type", form, "Origin", "https://gui.test"}, c.headers...)...)
		cookie := resp.Header.Get("Set-Cookie")
		if resp.StatusCode != 200 || (cookie != "") != c.cookie {
			t.Errorf("%+v: %d, cookie %q", c, resp.StatusCode, cookie)
		}
		if secure := strings.Contains(cookie, "Secure"); secure != (len(c.headers) == 4) {
			t.Errorf("%+v: %q", c, cookie)
		}
		if !c.cookie {
			continue
		}
		id := r.login()
		if resp, _ := r.do("HEAD", "/events", "", append([]string{"Cookie", "session_id=" + id, "Origin", "https://gui.test"},
			c.headers...)...); resp.StatusCode != 200 || resp.Header.Get("X-Accel-Buffering") != "no" {
			t.Errorf("%+v: /events: %d, %v", c, resp.StatusCode, resp.Header)
		}
	}
}

// TestServerStatistics: /stats has a section for the web server, with the name by which
// clients of Salt find it.
func TestServerStatistics(t *testing.T) {
	r := serve(t, settings(t, "collect_stats: true, stats_disable_auth: true"))
	r.do("GET", "/health", "")
	resp, body := r.do("GET", "/stats", "")
	want := regexp.MustCompile(`"Cheroot HTTPServer \d+": \{"Enabled": true, "Bind Address": "\('127.0.0.1', 0\)", "Run time": [\d.e-]+, "Accepts": 2, `)
	if resp.StatusCode != 200 || !want.MatchString(body) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestAuditQuotesOnce: a name in the audit log is not quoted twice.
func TestAuditQuotesOnce(t *testing.T) {
	var log logBuffer
	r := serveLogged(t, settings(t, ""), slog.New(slog.NewTextHandler(&log, nil)))
	r.login()
	if text := log.String(); !strings.Contains(text, "user=ann ") {
		t.Errorf("logged: %s", text)
	}
}

// TestOwnEvents: a user without permission for state.event sees only the events of its own
// jobs. With own_events this applies to all users.
func TestOwnEvents(t *testing.T) {
	for name, c := range map[string]struct {
		setting string
		perms   []any
		all     bool
	}{
		"asked for":          {"own_events: true", nil, false},
		"no rights":          {"", []any{}, false},
		"minions alone":      {"", []any{".*", "@wheel", value.DictOf("@runner", value.ListOf("jobs.*"))}, false},
		"all runners":        {"", []any{"@runner"}, true},
		"state.event":        {"", []any{value.DictOf("@runner", value.ListOf("state.event"))}, true},
		"everybody sees all": {"own_events: false", []any{}, true},
	} {
		t.Run(name, func(t *testing.T) { ownEvents(t, c.setting, c.perms, c.all) })
	}
}

func ownEvents(t *testing.T, setting string, perms []any, all bool) {
	r := serve(t, settings(t, setting))
	r.master.perms = perms
	lines, stop := r.listen(r.login())
	defer stop()
	r.until(lines, "salt/job/20260101000000000000/new")
	for _, tag := range []string{"salt/auth", "salt/job/20260101000000000001/ret/a", "salt/job/20260101000000000000/ret/a",
		"salt/run/20260101000000000001/ret"} {
		r.events.Fire(tag, value.DictOf("user", "bob"))
	}
	r.events.Fire("salt/run/20260101000000000002/new", value.DictOf("user", "bob"))
	r.events.Fire("salt/run/20260101000000000002/ret", value.DictOf("user", "bob"))
	seen := map[string]bool{}
	for _, tag := range r.until(lines, "salt/wheel/20260101000000000003/new") {
		if tag != "salt/job/20260101000000000000/new" {
			seen[tag] = true
		}
	}
	if all != seen["salt/auth"] || all != seen["salt/run/20260101000000000002/ret"] || !all && len(seen) != 1 ||
		!seen["salt/job/20260101000000000000/ret/a"] {
		t.Errorf("seen %v", seen)
	}
}

// TestForeignPages: a page of another site can use a token, but not the user's cookie,
// unless its site is in cors_origins.
func TestForeignPages(t *testing.T) {
	r := serve(t, settings(t, "cors_origins: ['https://gui.test:8443']"))
	id := r.login()
	own := r.url
	const chunk = `{"client":"local","tgt":"*","fun":"test.ping"}`
	for origin, trusted := range map[string]bool{
		"": true, own: true, "https://gui.test:8443": true, "http://evil.test": false, "https://gui.test": false, "http://gui.test:8443": false,
		"null": false, "https://gui.test:8443.evil.test": false, own + ".evil.test": false,
	} {
		want := map[bool]int{true: 200, false: 401}[trusted]
		resp, _ := r.do("POST", "/", chunk, "Content-Type", "text/plain", "Cookie", "session_id="+id, "Origin", origin)
		if got := resp.Header.Get("Access-Control-Allow-Credentials") == "true"; resp.StatusCode != want || got != trusted {
			t.Errorf("%q by cookie: %d, credentials %v", origin, resp.StatusCode, got)
		}
		if got := resp.Header.Get("Access-Control-Allow-Origin"); trusted && origin != "" && got != origin || !trusted && got != "*" {
			t.Errorf("%q: allowed origin %q", origin, got)
		}
		if got := resp.Header.Get("Set-Cookie"); !trusted && got != "" {
			t.Errorf("%q: a cookie is set: %s", origin, got)
		}
		if resp, _ := r.do("POST", "/", chunk, "Content-Type", "text/plain", "X-Auth-Token", id, "Origin", origin); resp.StatusCode != 200 {
			t.Errorf("%q by token: %d", origin, resp.StatusCode)
		}
		if resp, _ := r.do("HEAD", "/events", "", "Cookie", "session_id="+id, "Origin", origin); resp.StatusCode != want {
			t.Errorf("%q: /events by cookie: %d", origin, resp.StatusCode)
		}
		if resp, _ := r.do("HEAD", "/events?token="+id, "", "Origin", origin); resp.StatusCode != 200 {
			t.Errorf("%q: /events by token: %d", origin, resp.StatusCode)
		}
	}
}

func TestChoose(t *testing.T) {
	for header, want := range map[string]string{
		"": typeJSON, "*/*": typeJSON, "application/*": typeJSON, "application/x-yaml": typeYAML,
		"application/x-yaml;q=0.2, application/json;q=0.1": typeYAML,
		"text/plain": "", "application/json;q=0": "", "text/html,*/*;q=0.1": typeJSON, "APPLICATION/JSON": typeJSON, ",,;;": "",
	} {
		if got := choose(header, typeJSON, typeYAML); got != want {
			t.Errorf("%q: %q", header, got)
		}
	}
}

func TestFormData(t *testing.T) {
	for in, want := range map[string]string{
		"a=1&b=x&b=y":                    "{'a': '1', 'b': ['x', 'y']}",
		"arg=1&arg=two&arg=c=3":          "{'arg': [1, 'two', 'c=3']}",
		"arg=%5B1%2C2%5D&kwarg={a: b}":   "{'arg': [[1, 2]], 'kwarg': {'a': 'b'}}",
		"&=x&y=&z=%zz&a=b%&c=%fc+%C3%BC": "{'z': '%zz', 'a': 'b%', 'c': '\ufffd ü'}",
	} {
		if got := value.Repr(formData(in)); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestPerms(t *testing.T) {
	m := value.DictOf("b", 1)
	for _, c := range []struct {
		in   []any
		want string
	}{
		{nil, "{}"}, {[]any{"b", "a", "b"}, "['a', 'b']"}, {[]any{m, "z", value.DictOf("a", 2), value.DictOf("b", 1)}, "['z', {'a': 2}, {'b': 1}]"},
	} {
		if got := value.Repr(perms(c.in)); got != c.want {
			t.Errorf("%v: %s", c.in, got)
		}
	}
}

// tries is a limits with its own clock.
type tries struct {
	*limits
	t   testing.TB
	now time.Time
}

func newTries(t *testing.T, most int) *tries {
	r := &tries{t: t, now: time.Unix(1e9, 0)}
	r.limits = newLimits(most, func() time.Time { return r.now })
	return r
}

func login(user, password string) *value.Dict {
	return value.DictOf("eauth", "x", "username", user, "password", password)
}

// try makes an attempt and reports whether it is allowed.
func (r *tries) try(addr string, creds *value.Dict, v verdict) bool {
	r.t.Helper()
	end, err := r.begin(r.t.Context(), addr, creds)
	if err != nil {
		if wait := err.(tooMany).wait; wait <= 0 || wait > limitTime {
			r.t.Errorf("come back in %v", wait)
		}
		return false
	}
	end(v)
	return true
}

func TestLimits(t *testing.T) {
	const most = 3
	r := newTries(t, most)
	good := login("ann", "good")
	if !r.try("a", good, right) {
		t.Fatal("a first attempt is refused")
	}
	for range most {
		if !r.try("a", login("ann", "x"), wrong) {
			t.Fatal("too early")
		}
	}
	if r.try("a", login("ann", "x"), wrong) {
		t.Error("not held back")
	}
	for _, c := range []struct {
		addr  string
		creds *value.Dict
	}{{"b", login("ann", "x")}, {"a", login("bob", "x")}, {"a", good}} {
		if !r.try(c.addr, c.creds, right) {
			t.Errorf("%s, %v: held back by the wrong logins of another", c.addr, c.creds)
		}
	}
	// Credentials that were valid once count like others after they were wrong.
	for i, got := range []bool{r.try("c", good, wrong), r.try("c", good, wrong), r.try("c", good, late), r.try("c", good, wrong)} {
		if want := i < 3; got != want {
			t.Errorf("attempt %d with credentials that were right: let in %t, want %t", i, got, want)
		}
	}
	if r.now = r.now.Add(limitTime + 1); !r.try("a", login("ann", "x"), wrong) {
		t.Error("held back for ever")
	}
	// If the master is unreachable, no attempt counts.
	for range 2 * most {
		if !r.try("d", login("ann", "x"), unjudged) {
			t.Error("a login that was not judged counts")
		}
	}
	// All users of an address share another limit, and the addresses of one IPv6 network
	// count as one address.
	for i := range most * everybody {
		if !r.try("2001:db8::1", login(fmt.Sprint(i), "x"), wrong) {
			t.Fatal(i, "too early")
		}
	}
	if r.try("2001:db8::2", login("new", "x"), wrong) || !r.try("2001:db8:0:1::2", login("new", "x"), wrong) {
		t.Error("an address is not held back, or another is")
	}
	for i := range maxLimited + 10 {
		r.try(fmt.Sprint(i), login("ann", "x"), wrong)
	}
	if len(r.counts) > maxLimited+2 {
		t.Errorf("%d users are remembered", len(r.counts))
	}
	if r := newTries(t, 0); func() bool {
		for range 1000 {
			if !r.try("a", login("ann", "x"), wrong) {
				return false
			}
		}
		return true
	}() == false {
		t.Error("login_limit: 0 limits")
	}
}

// TestLimitsOfAttemptsAtOnce: pending attempts count, and further ones wait for their
// results.
func TestLimitsOfAttemptsAtOnce(t *testing.T) {
	const most = 3
	r := newTries(t, most)
	var ends []func(verdict)
	for range most {
		end, err := r.begin(t.Context(), "a", login("ann", "x"))
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	outcome := make(chan error, 2)
	var more sync.WaitGroup
	for password, v := range map[string]verdict{"x": right, "y": wrong} {
		more.Go(func() {
			end, err := r.begin(t.Context(), "a", login("ann", password))
			if err == nil {
				end(v)
			}
			outcome <- err
		})
	}
	if !r.try("b", login("ann", "x"), unjudged) || !r.try("a", login("bob", "x"), unjudged) {
		t.Error("others wait, too")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.begin(gone, "a", login("ann", "z")); !errors.Is(err, context.Canceled) {
		t.Errorf("beyond the limit: %v", err)
	}
	select {
	case err := <-outcome:
		t.Fatalf("more than %d at once: %v", most, err)
	default:
	}
	for i, end := range ends {
		end([]verdict{wrong, wrong, right}[i])
	}
	more.Wait()
	// "x" is right, and "y" is the third wrong one.
	for range 2 {
		if err := <-outcome; err != nil {
			t.Error(err)
		}
	}
	if r.try("a", login("ann", "z"), wrong) {
		t.Error("a further attempt is made")
	}
}

func TestTrustedProxies(t *testing.T) {
	s := settings(t, "trusted_proxies: [10.0.0.1, 10.1.0.0/16, '::1']")
	for _, c := range []struct{ remote, forwarded, want string }{
		{"10.0.0.1:5", "192.0.2.7", "192.0.2.7"},
		{"10.0.0.1:5", "203.0.113.1, 192.0.2.7", "192.0.2.7"}, // entries that the client itself sent have no effect
		{"10.0.0.1:5", "192.0.2.7, 10.1.2.3", "192.0.2.7"},
		{"10.0.0.1:5", "192.0.2.7:1234", "192.0.2.7"},
		{"10.0.0.1:5", "[2001:db8::1]:99, 10.1.2.3", "2001:db8::1"},
		{"[::1]:5", "2001:db8::1", "2001:db8::1"},
		{"10.0.0.1:5", "", "10.0.0.1"},
		{"10.0.0.1:5", "unknown", "10.0.0.1"},
		{"10.0.0.1:5", "x, 10.1.2.3", "10.1.2.3"},
		{"10.0.0.2:5", "192.0.2.7", "10.0.0.2"},
		{"10.0.0.1:5", "10.1.0.1, 10.1.0.2", "10.1.0.1"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.remote
		if c.forwarded != "" {
			r.Header["X-Forwarded-For"] = []string{c.forwarded}
		}
		if got := (&call{s: &s, r: r}).address(); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	// An IPv4 address in IPv6 form is the same address, in the option and in the request.
	s = settings(t, "trusted_proxies: ['::ffff:10.0.0.1', '::ffff:10.1.0.0/112', '10.2.0.1'], authorized_ips: ['::ffff:192.0.2.7', '2001:DB8:0::7']")
	for _, remote := range []string{"10.0.0.1:5", "10.1.0.9:5", "[::ffff:10.0.0.1]:5", "[::ffff:10.2.0.1]:5"} {
		for _, client := range []string{"192.0.2.7", "::ffff:192.0.2.7", "2001:db8::7"} {
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr, r.Header["X-Forwarded-For"] = remote, []string{client}
			if c := (&call{s: &s, r: r}); !c.fromProxy() || !c.fromAuthorized() {
				t.Errorf("%s for %s: %s", remote, client, c.address())
			}
		}
	}
	// Several headers are one list.
	s = settings(t, "trusted_proxies: [10.0.0.1]")
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr, r.Header["X-Forwarded-For"] = "10.0.0.1:5", []string{"203.0.113.1", "192.0.2.7"}
	if got := (&call{s: &s, r: r}).address(); got != "192.0.2.7" {
		t.Error(got)
	}
}

func TestFormattedEvents(t *testing.T) {
	f := newFormatted()
	give := func(tag string, pairs ...any) string {
		return strings.Join(f.take(&message{tag: tag, data: value.DictOf(pairs...)}), "|")
	}
	if got := give("salt/auth"); got != "" {
		t.Error(got)
	}
	if got := give("salt/job/1/new", "fun", "grains.items", "tgt", "*", "tgt_type", "glob", "minions", value.ListOf("a"), "_stamp", "s"); got !=
		`{"jobs": {"1": {"jid": "1", "start_time": "s", "minions": {"a": {}}, "fun": "grains.items", "tgt": "*", "tgt_type": "glob", "state": "running"}}}` {
		t.Error(got)
	}
	if got := give("salt/job/1/ret/a", "fun", "grains.items", "return", value.DictOf("os", "x"), "retcode", 0, "success", true); !strings.Contains(got,
		`"state": "complete"`) ||
		!strings.HasSuffix(got, `|{"minions": [{"id": "a", "grains": {"os": "x"}}]}`) {
		t.Error(got)
	}
	for i := range maxFormatted + 5 {
		give(fmt.Sprintf("salt/job/x%d/new", i))
	}
	if len(f.jobs) > maxFormatted {
		t.Errorf("%d jobs", len(f.jobs))
	}
}

func FuzzBody(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add("application/json", `[{"client":"local"}]`)
	f.Add("application/x-yaml", "a: &a [b]\nc: *a\n")
	f.Add(form, "arg=1&arg=[a&kwarg={")
	f.Add("text/plain", "x")
	f.Fuzz(func(t *testing.T, kind, text string) {
		r, err := http.NewRequest("POST", "/", strings.NewReader(text))
		if err != nil {
			return
		}
		r.Header.Set("Content-Type", kind)
		b, err := readBody(r, 1<<16)
		if err != nil {
			if failureOf(err) == nil {
				t.Errorf("an error without a status: %v", err)
			}
			return
		}
		lowstate(b.data)
		if _, err := encode(b.data, typeJSON); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
