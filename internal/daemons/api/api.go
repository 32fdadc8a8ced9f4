// Package api is salt-api: the REST interface of Salt's rest_cherrypy to a master. It is a
// separate process without privileges: every chunk of work carries the token or password of
// its sender, and the master authorizes it.
//
// A login returns a session id, by header or cookie, that maps to a token of the master. A
// resource is a row in the table of resources (resources.go) and a function that returns
// data; the Accept header selects the format.
//
// All input is untrusted: sizes, nesting depths and times are bounded.
package api

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/liveness"
	"brine/internal/base/metrics"
	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/py/value"
)

// Master is the connection to the master. *client.Client implements it.
type Master interface {
	// Low runs a chunk of low data for the user of its credentials.
	Low(ctx context.Context, chunk *value.Dict) ([]any, error)
	// NewToken issues a token for eauth, username and password.
	NewToken(ctx context.Context, creds *value.Dict) (*value.Dict, error)
	// Token returns the data of a token, or nil if the token is invalid.
	Token(ctx context.Context, token string) (*value.Dict, error)
	// DropToken deletes a token.
	DropToken(ctx context.Context, token string) error
	// Look calls a function of the runner fleet with the permissions of a token.
	Look(ctx context.Context, token, fun string, kwargs *value.Dict) (any, error)
	// Ping returns an error if the master does not answer.
	Ping(ctx context.Context) error
}

var _ Master = (*client.Client)(nil)

// Bus is the master's event bus.
type Bus interface {
	client.Bus
	Fire(ctx context.Context, tag string, data *value.Dict) error
}

var _ Bus = (*client.Local)(nil)

// Server is the API. New builds it and binds its address; Run serves.
type Server struct {
	s        Settings
	master   Master
	bus      Bus
	log      *slog.Logger
	sessions *sessions
	feed     *feed
	limits   *limits
	listener net.Listener
	admitted *admission
	table    map[string]*resource
	static   *os.Root
	stats    counters
	conf     *tls.Config // nil without TLS
	figures  *figures
	itself   *liveness.Question // whether this server answers
}

// counters are the numbers in /stats and /metrics.
type counters struct {
	requests, active, written, accepted atomic.Int64
	mu                                  sync.Mutex
	byStatus                            map[int]int64
	times                               metrics.Times
}

// New opens the sessions and binds the address. After an error nothing is bound.
func New(s Settings, m Master, b Bus, log *slog.Logger) (*Server, error) {
	a := &Server{s: s, master: m, bus: b, log: log.With("component", "api"), feed: newFeed(b, log), limits: newLimits(s.LoginLimit, time.Now)}
	a.stats.byStatus = map[int]int64{}
	var err error
	if a.sessions, err = openSessions(s.SessionsDir, s.ConsoleIdle); err != nil {
		return nil, err
	}
	if s.Static != "" {
		if a.static, err = os.OpenRoot(s.Static); err != nil {
			return nil, salt.Errorf(salt.Invalid, "rest_cherrypy: static: %w", err)
		}
	}
	if a.listener, err = net.Listen("tcp", net.JoinHostPort(s.Host, strconv.Itoa(s.Port))); err != nil {
		return nil, fmt.Errorf("rest_cherrypy: port: %w", err)
	}
	a.admitted = newAdmission(a.listener, &a.s, a.log)
	a.listener = a.admitted
	a.figures = &figures{s: &a.s, master: a.master, stats: &a.stats, admitted: a.admitted, began: time.Now()}
	a.itself = &liveness.Question{What: "the HTTP server of salt-api", Ask: a.askItself, Limit: liveness.AnswerTime}
	a.table = a.resources()
	if !s.Plain {
		conf, err := certificate(s)
		if err != nil {
			a.listener.Close()
			return nil, err
		}
		a.conf = conf
		a.listener = tls.NewListener(a.listener, conf)
	}
	return a, nil
}

// Warnings returns what the settings name and what does not exist, so that it would have no effect.
func (s *Settings) Warnings() (out []string) {
	served := slices.DeleteFunc(slices.Clone(client.LowClients), func(name string) bool { return name == "ssh" })
	for _, name := range s.Clients {
		if !slices.Contains(served, name) {
			out = append(out, fmt.Sprintf("netapi_enable_clients: there is no client %.80q; there are %s", name, strings.Join(served, ", ")))
		}
	}
	for _, f := range [][2]string{{"app", s.App}, {"favicon", s.Favicon}} {
		if f[1] == "" {
			continue
		}
		if _, err := os.Stat(f[1]); err != nil {
			out = append(out, fmt.Sprintf("rest_cherrypy: %s: %v", f[0], err))
		}
	}
	return out
}

// CheckFiles returns an error for a file or directory of the settings that cannot be used.
func (s *Settings) CheckFiles() error {
	if s.Static != "" {
		dir, err := os.OpenRoot(s.Static)
		if err != nil {
			return salt.Errorf(salt.Invalid, "rest_cherrypy: static: %w", err)
		}
		dir.Close()
	}
	if s.Plain {
		return nil
	}
	_, err := certificate(*s)
	return err
}

func certificate(s Settings) (*tls.Config, error) {
	cert, err := os.ReadFile(s.Cert)
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "rest_cherrypy: ssl_crt: %w", err)
	}
	if s.Chain != "" {
		chain, err := os.ReadFile(s.Chain)
		if err != nil {
			return nil, salt.Errorf(salt.Invalid, "rest_cherrypy: ssl_chain: %w", err)
		}
		cert = append(append(cert, '\n'), chain...)
	}
	key, err := os.ReadFile(s.Key)
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "rest_cherrypy: ssl_key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "rest_cherrypy: ssl_crt and ssl_key: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, nil
}

// Addr returns the address that the server listens on.
func (a *Server) Addr() net.Addr { return a.listener.Addr() }

// Times and sizes that bound what a client can occupy.
const (
	headerTime = 10 * time.Second
	bodyTime   = time.Minute
	idleTime   = 2 * time.Minute
	maxHeader  = 64 << 10
	sweepTime  = 10 * time.Minute
)

// Run serves until ctx ends.
func (a *Server) Run(ctx context.Context) error {
	inner, stop := context.WithCancel(ctx)
	defer stop()
	server := &http.Server{
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				a.stats.accepted.Add(1)
			}
		},
		ConnContext: withConnection, Handler: a, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return inner }, ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	var wg sync.WaitGroup
	wg.Go(func() { a.feed.run(inner) })
	wg.Go(func() {
		t := time.NewTicker(sweepTime)
		defer t.Stop()
		for {
			select {
			case <-inner.Done():
				return
			case <-t.C:
				if err := a.sessions.sweep(); err != nil {
					a.log.Warn("cannot remove old sessions", "err", err)
				}
			}
		}
	})
	if a.s.Sessions && a.s.ConsoleIdle > 0 {
		wg.Go(func() { a.endIdle(inner) })
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(a.listener) }()
	var err error
	select {
	case <-ctx.Done():
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if server.Shutdown(limited) != nil {
			server.Close()
		}
		<-failed
	case err = <-failed:
	}
	stop()
	wg.Wait()
	if a.static != nil {
		a.static.Close()
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// endIdle ends the sessions of the console whose users are idle, and their tokens, until ctx ends.
func (a *Server) endIdle(ctx context.Context) {
	const often = 4 // looks per console_idle
	t := time.NewTicker(min(a.s.ConsoleIdle/often, time.Minute))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		ended, err := a.sessions.endIdle()
		if err != nil {
			a.log.Warn("cannot look for idle sessions", "err", err)
		}
		for _, s := range ended {
			a.log.Info("audit", "user", fmt.Sprintf("%.80s", s.User), "from", s.From, "session", "ended", "reason", "idle")
			if err := a.master.DropToken(ctx, s.Token); err != nil {
				a.log.Warn("session ended, but its token stays valid until it expires", "err", err)
			}
		}
	}
}

// failure is an error response.
type failure struct {
	status int
	text   string
}

func (f *failure) Error() string { return f.text }

// Messages that clients compare.
const (
	textNoPermission = "No permission -- see authorization schemes"
	textUnexpected   = "An unexpected error occurred"
	textBadLogin     = "Could not authenticate using provided credentials"
)

// failureOf converts an error of the master into an error response.
func failureOf(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	switch salt.KindOf(err) {
	case salt.Denied:
		return &failure{http.StatusUnauthorized, err.Error()}
	case salt.Invalid:
		return &failure{http.StatusBadRequest, err.Error()}
	case salt.Unavailable:
		return &failure{http.StatusServiceUnavailable, err.Error()}
	case salt.Timeout:
		return &failure{http.StatusGatewayTimeout, err.Error()}
	}
	return nil
}

// call is one request in progress, and its response.
type call struct {
	s     *Settings
	log   *slog.Logger
	stats *counters

	w    http.ResponseWriter
	r    *http.Request
	rest []string // the path below the resource
	body body
	kind string // content type of the response
	id   string // id of the session, or of a new one
	of   *session
	// byCookie means that the cookie has the id, and not a header.
	byCookie bool
	// cookie means that the response sets the session's cookie; gone means that it deletes
	// the cookie.
	cookie, gone bool
	// plainErrors: errors are JSON whatever the client accepts.
	plainErrors bool
	status      int
}

// ServeHTTP implements http.Handler.
func (a *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.stats.requests.Add(1)
	a.stats.active.Add(1)
	defer a.stats.active.Add(-1)
	bounded := bound(w, r, &a.s)
	defer bounded.more() // for the end of the response, which the server sends
	c := &call{s: &a.s, log: a.log, stats: &a.stats, w: bounded, r: r, kind: typeJSON, status: http.StatusOK}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "GET, POST")
	h.Set("Server", "Brine")
	h.Set("Vary", "Accept-Encoding")
	if origin := r.Header.Get("Origin"); c.trusts(origin) {
		h.Set("Access-Control-Allow-Credentials", "true")
		if origin != "" {
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Vary", "Accept-Encoding, Origin")
		}
	}
	h.Set("X-Content-Type-Options", "nosniff")
	// HSTS is off by default, because it applies to all ports of the host.
	if a.s.HSTS > 0 && !a.s.Plain {
		h.Set("Strict-Transport-Security", fmt.Sprintf("max-age=%d", a.s.HSTS))
	}
	name, ok := strings.CutPrefix(r.URL.Path, a.s.Prefix)
	if !ok {
		c.fail(&failure{http.StatusNotFound, notFound(r)})
		return
	}
	res, rest := a.find(name)
	if res == nil {
		c.fail(&failure{http.StatusNotFound, notFound(r)})
		return
	}
	c.rest = rest
	if len(a.s.Proxies) > 0 && c.fromProxy() {
		done, ok := a.admitted.forwarded(c.address())
		if !ok {
			h.Set("Retry-After", "1")
			c.fail(&failure{http.StatusTooManyRequests, "Too many requests from this address at once (max_connections_per_address): try again later"})
			return
		}
		defer done()
	}
	if !res.stream {
		defer a.stats.times.Since(time.Now())
	}
	a.serve(c, res)
}

// trusts reports whether pages of an origin may use the session cookie: pages of this
// server, and of cors_origins. Other pages can use a token, as any program can. A request
// without an origin does not come from a page of another origin.
//
// Behind a proxy that changes Host, the browser's header Sec-Fetch-Site decides. A page
// cannot set it, and browsers send it only over TLS.
//
// Salt trusts every origin, so that any page can use the session of a user who
// opens it.
func (c *call) trusts(origin string) bool {
	if origin == "" || slices.Contains(c.s.Origins, origin) || slices.Contains(c.s.Origins, "*") {
		return true
	}
	if c.r.Header.Get("Sec-Fetch-Site") == "same-origin" {
		return true
	}
	_, host, ok := strings.Cut(origin, "://")
	if ok && c.fromProxy() && strings.EqualFold(host, c.r.Header.Get("X-Forwarded-Host")) {
		return true
	}
	return ok && strings.EqualFold(host, c.r.Host)
}

func notFound(r *http.Request) string { return "The path '" + r.URL.Path + "' was not found." }

// serve dispatches the request to a resource.
func (a *Server) serve(c *call, res *resource) {
	h := c.w.Header()
	c.plainErrors = res.plainErrors
	if len(res.allow) > 0 {
		h.Set("Allow", strings.Join(res.allow, ", "))
	}
	c.cookie = res.session || res.authPost && c.r.Method == http.MethodPost
	a.identify(c)
	method := c.r.Method
	if method == http.MethodOptions && c.r.Header.Get("Access-Control-Request-Method") != "" {
		h.Set("Access-Control-Allow-Methods", "GET, POST")
		if res.do[http.MethodDelete] != nil {
			h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
		}
		h.Set("Access-Control-Allow-Headers", "Content-Type, X-Auth-Token, X-Requested-With, Accept, Cache-Control")
		h.Set("Access-Control-Max-Age", "1400")
		c.cookie = false
		c.write(nil, typeHTML)
		return
	}
	if method == http.MethodOptions {
		c.cookie = false
		c.write(nil, typeHTML) // includes the header Allow
		return
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	do := res.do[method]
	switch {
	case do == nil:
		c.fail(&failure{http.StatusMethodNotAllowed, "Specified method is invalid for this resource"})
		return
	case c.forged() && !res.public:
		c.fail(&failure{http.StatusForbidden, "The header " + forgeryHeader + " is missing or wrong: sessions of the console need it with the cookie"})
		return
	case res.addresses && !c.fromAuthorized():
		c.fail(&failure{http.StatusForbidden, "Bad IP"})
		return
	case (res.auth || res.authPost && method == http.MethodPost) && c.of == nil:
		c.fail(&failure{http.StatusUnauthorized, textNoPermission})
		return
	}
	if res.auth || res.authPost && method == http.MethodPost {
		h.Set("Cache-Control", "private")
	}
	if res.auth && res.checked {
		if err := a.goodToken(c.r.Context(), c.of.Token); err != nil {
			c.answer(nil, err)
			return
		}
	}
	if res.raw {
		if _, err := do(c); err != nil {
			c.answer(nil, err)
		}
		return
	}
	if !res.plainErrors && c.wantsApp() {
		c.cookie = false
		h.Set("Allow", "GET, HEAD")
		c.file(c.s.App)
		return
	}
	accept := c.r.Header.Get("Accept")
	if c.kind = choose(accept, typeJSON, typeYAML); c.kind == "" {
		c.kind = typeJSON
		c.fail(&failure{http.StatusNotAcceptable, "Your client sent this Accept header: " + accept +
			". But this resource only emits these media types: application/json, application/x-yaml."})
		return
	}
	if c.r.Method == http.MethodPost {
		var err error
		if c.body, err = readBody(c.r, c.s.MaxBody); err != nil {
			c.answer(nil, err)
			return
		}
		if c.r.ContentLength != 0 { // the handler may take longer than reading the body
			http.NewResponseController(c.w).SetReadDeadline(time.Time{})
		}
	}
	c.answer(do(c))
}

// identify finds the session of a request. A header takes precedence over a
// cookie.
func (a *Server) identify(c *call) {
	c.id = c.r.Header.Get("X-Auth-Token")
	if c.id == "" && c.trusts(c.r.Header.Get("Origin")) {
		if k, err := c.r.Cookie("session_id"); err == nil {
			c.id, c.byCookie = k.Value, true
		}
	}
	if c.of = a.sessions.get(c.id); c.of == nil {
		c.id = newID()
		return
	}
	// The console's pages read again by themselves; that and open streams are not the user.
	if c.r.Header.Get(idleHeader) == "" && !strings.HasPrefix(c.r.Header.Get("Accept"), "text/event-stream") {
		a.sessions.use(c.id, c.of)
	}
	proven(c.r)
}

// Headers of the console's pages.
const (
	// consoleHeader marks a login of the console, whose session then needs forgeryHeader and ends
	// when its user is idle.
	consoleHeader = "X-Brine-Console"
	// forgeryHeader has the session's token against request forgery.
	forgeryHeader = "X-Csrf-Token"
	// idleHeader marks a request that a page makes by itself.
	idleHeader = "X-Brine-Idle"
)

// forged reports whether a request may come from a page of another site: it changes something and
// is authenticated by the cookie of a session of the console, but lacks the token.
func (c *call) forged() bool {
	switch c.r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return c.of != nil && c.byCookie && c.of.Forgery != "" &&
		subtle.ConstantTimeCompare([]byte(c.r.Header.Get(forgeryHeader)), []byte(c.of.Forgery)) != 1
}

// goodToken checks that the master still accepts a token.
func (a *Server) goodToken(ctx context.Context, token string) error {
	t, err := a.master.Token(ctx, token)
	if err == nil && t == nil {
		err = &failure{http.StatusUnauthorized, textNoPermission}
	}
	return err
}

// address returns the client's address. From X-Forwarded-For it uses only the entries that
// trusted_proxies wrote: each proxy appends the address of its client.
func (c *call) address() string {
	host, _, err := net.SplitHostPort(c.r.RemoteAddr)
	if err != nil {
		host = c.r.RemoteAddr
	}
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.Unmap().String()
	}
	hops := strings.Split(strings.Join(c.r.Header.Values("X-Forwarded-For"), ","), ",")
	for len(hops) > 0 && c.s.trustsProxy(host) {
		last := strings.TrimSpace(hops[len(hops)-1])
		hops = hops[:len(hops)-1]
		if p, err := netip.ParseAddrPort(last); err == nil {
			last = p.Addr().String()
		}
		a, err := netip.ParseAddr(strings.Trim(last, "[]"))
		if err != nil {
			break
		}
		host = a.Unmap().String()
	}
	return host
}

// secure reports whether the client uses TLS, to this server or to one of
// trusted_proxies.
func (c *call) secure() bool {
	return c.r.TLS != nil || c.fromProxy() && strings.EqualFold(c.r.Header.Get("X-Forwarded-Proto"), "https")
}

// fromProxy reports whether a request comes from one of trusted_proxies.
func (c *call) fromProxy() bool {
	host, _, err := net.SplitHostPort(c.r.RemoteAddr)
	return err == nil && c.s.trustsProxy(host)
}

func (c *call) fromAuthorized() bool {
	return c.s.AuthorizedIPs == nil || slices.Contains(c.s.AuthorizedIPs, c.address())
}

// wantsApp reports whether the client is a browser that gets the web app.
func (c *call) wantsApp() bool {
	accept := c.r.Header.Get("Accept")
	return c.s.App != "" && accept != "*/*" && accept != "" && c.r.Method != http.MethodPost &&
		choose(accept, typeHTML, typeJSON, typeYAML) == typeHTML
}

// answer sends the result of a resource.
func (c *call) answer(v any, err error) {
	if errors.Is(err, errWritten) {
		return
	}
	if err == nil {
		var b []byte
		if b, err = encode(v, c.kind); err == nil {
			c.write(b, c.kind)
			return
		}
	}
	if f := failureOf(err); f != nil {
		c.fail(f)
		return
	}
	if c.r.Context().Err() != nil {
		c.log.Debug("client closed the connection before the response", "path", c.r.URL.Path, "err", err)
		c.status = statusClosed
		c.count()
		return
	}
	c.log.Error("cannot serve request", "path", c.r.URL.Path, "err", err)
	c.status = http.StatusInternalServerError
	b, _ := encode(value.DictOf("status", c.status, "return", textUnexpected), typeJSON)
	c.write(b, typeJSON)
}

// statusClosed counts requests whose client closed the connection early. nginx
// and HAProxy use the same code; it is never sent.
const statusClosed = 499

// fail sends an error response: an HTML page, or JSON if the Accept header names it.
func (c *call) fail(f *failure) {
	c.status = f.status
	if c.plainErrors || strings.Contains(c.r.Header.Get("Accept"), typeJSON) {
		b, _ := encode(value.DictOf("status", f.status, "return", f.text), typeJSON)
		c.write(b, typeJSON)
		return
	}
	title := strconv.Itoa(f.status) + " " + http.StatusText(f.status)
	c.write([]byte("<!DOCTYPE html>\n<html>\n<head>\n    <meta charset=\"utf-8\">\n    <title>"+title+"</title>\n</head>\n    <body>\n        <h2>"+title+
		"</h2>\n        <p>"+escape.Replace(f.text)+"</p>\n    </body>\n</html>\n"), typeHTML+";charset=utf-8")
}

// escape escapes a string for HTML.
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// write sends the response.
func (c *call) write(b []byte, kind string) {
	c.setCookie()
	h := c.w.Header()
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", kind)
	}
	if len(b) > 0 && compressed(c.r) {
		b = squeeze(b)
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(b)))
	c.count()
	c.w.WriteHeader(c.status)
	if c.r.Method != http.MethodHead {
		n, _ := c.w.Write(b) // a client that has disconnected needs no response
		c.stats.written.Add(int64(n))
	}
}

func (c *call) count() {
	c.stats.mu.Lock()
	c.stats.byStatus[c.status]++
	c.stats.mu.Unlock()
}

func (c *call) setCookie() {
	if !c.cookie || !c.s.Sessions || !c.trusts(c.r.Header.Get("Origin")) {
		return
	}
	k := &http.Cookie{Name: "session_id", Value: c.id, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: c.secure()}
	if c.gone {
		k.Expires = time.Now().AddDate(-1, 0, 0)
	} else {
		k.Expires, k.MaxAge = time.Now().Add(sessionTime), int(sessionTime/time.Second)
	}
	http.SetCookie(c.w, k)
}

// file sends a file.
func (c *call) file(path string) {
	f, err := os.Open(path)
	if err != nil {
		c.fail(&failure{http.StatusNotFound, notFound(c.r)})
		return
	}
	defer f.Close()
	c.send(f)
}

func (c *call) send(f *os.File) {
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		c.fail(&failure{http.StatusNotFound, notFound(c.r)})
		return
	}
	c.count()
	http.ServeContent(c.w, c.r, filepath.Base(f.Name()), fi.ModTime(), f)
}
