package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	pyjson "brine/internal/py/json"
	"brine/internal/py/value"
	"brine/test/fuzztest"
	"brine/test/fuzztest/conversation"
)

// own is the placeholder for the session of the fuzzed client.
const own = "own session"

// visit passes one request of a conversation to the handler and returns the
// response, nil if the request is not valid HTTP.
func visit(a *Server, msg *value.Dict, session string) *httptest.ResponseRecorder {
	var body string
	switch b := msg.At("body").(type) {
	case string:
		body = b
	case []byte:
		body = string(b)
	case nil:
	case *value.Dict:
		if kind := msg.Dict("headers").Str("Content-Type"); kind == form {
			q := url.Values{}
			for k, v := range b.All() {
				name, _ := k.(string)
				text, ok := v.(string)
				if !ok {
					text = value.Repr(v)
				}
				q.Add(name, text)
			}
			body = q.Encode()
		} else {
			body, _ = pyjson.Dump(b, pyjson.Format{ASCII: true})
		}
	default:
		body, _ = pyjson.Dump(b, pyjson.Format{ASCII: true})
	}
	path := msg.Str("path")
	u, err := url.ParseRequestURI(path)
	if err != nil {
		return nil
	}
	// Streams end with their client.
	waitLimit := time.Minute
	if strings.Contains(u.Path, "events") || strings.Contains(u.Path, "ws") {
		waitLimit = 5 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, msg.Str("method"), path, strings.NewReader(body))
	if err != nil || path == "" || path[0] != '/' {
		return nil
	}
	r.RemoteAddr, r.Host, r.RequestURI = "192.0.2.7:4711", "api.example.com", path
	for k, v := range msg.Dict("headers").All() {
		name, _ := k.(string)
		text, _ := v.(string)
		text = strings.ReplaceAll(text, own, session)
		if name == "" || strings.ContainsAny(name+text, "\r\n\x00") {
			continue
		}
		r.Header.Set(name, text)
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

// FuzzTalk sends mutated sequences of recorded requests. The client never uses the session
// of another client, and that client is served afterwards.
func FuzzTalk(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	r := serve(f, settings(f, "trusted_proxies: [192.0.2.7], webhook_disable_auth: false, max_request_body_size: 65536"))
	r.limits = newLimits(0, time.Now) // otherwise logins would soon be refused
	var mu sync.Mutex
	var chunks []*value.Dict
	r.master.low = func(d *value.Dict) ([]any, error) {
		mu.Lock()
		defer mu.Unlock()
		chunks = append(chunks, d)
		return []any{value.DictOf("minion", value.DictOf("ret", d))}, nil
	}
	taken := func() (all []*value.Dict) {
		mu.Lock()
		defer mu.Unlock()
		all, chunks = chunks, nil
		return all
	}
	honest := r.login()
	token := strings.Repeat("00", 32)
	login := value.DictOf("method", "POST", "path", "/login", "headers", value.DictOf("Content-Type", form), "body",
		value.DictOf("username", "ann", "password", "p", "eauth", "x"))
	message := func(method, path string, body any, headers ...any) *value.Dict {
		return value.DictOf("method", method, "path", path, "headers",
			value.DictOf(append([]any{"X-Auth-Token", own, "Content-Type", typeJSON, "Accept", typeJSON}, headers...)...), "body", body)
	}
	talk := []*value.Dict{
		login,
		message("POST", "/", value.DictOf("client", "local", "tgt", "*", "fun", "test.ping", "arg", value.ListOf("x"), "kwarg", value.DictOf("a", int64(1)))),
		message("POST", "/", "- client: runner\n  fun: manage.up\n", "Content-Type", typeYAML),
		message("POST", "/", value.DictOf("client", "local", "tgt", "*", "fun", "test.arg", "arg", "1"), "Content-Type", form),
		message("POST", "/run", value.DictOf("client", "local", "tgt", "*", "fun", "test.ping", "username", "ann", "password", "p", "eauth", "x")),
		message("POST", "/minions", value.DictOf("tgt", "*", "fun", "test.ping")),
		message("GET", "/minions/m1", nil, "Cookie", "session_id="+own),
		message("GET", "/jobs/20260101000000000000", nil, "Origin", "https://evil.example.com"),
		message("GET", "/keys", nil, "X-Forwarded-For", "203.0.113.9, 192.0.2.7", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "api.example.com"),
		message("POST", "/hook/deploy/now", value.DictOf("revision", "a")),
		message("POST", "/token", value.DictOf("username", "ann", "password", "p", "eauth", "x")),
		message("GET", "/events?tag=salt/job", nil),
		message("GET", "/ws/"+own, nil, "Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Key", "x3JJHMbDL1EzLkh9GBhXDw==",
			"Sec-WebSocket-Version", "13"),
		message("GET", "/stats", nil, "Accept", "application/x-yaml;q=0.5, */*;q=0.1"),
		message("OPTIONS", "/run", nil, "Access-Control-Request-Method", "POST"),
		message("POST", "/logout", nil),
	}
	values := conversation.Values("wheel", "runner_async", "local_async", "local_batch", "token", token, "/..", "/keys/../run", "/%2e%2e/", "//",
		"/login?x=1", "/static/../../x",
		"application/x-yaml", "multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=\"fun\"\r\n\r\nx\r\n--x--", "text/plain",
		"text/event-stream",
		"PUT", "DELETE", "HEAD", "PATCH", "X-Forwarded-For", "[::1]:80", "fe80::1%eth0", "session_id=\""+own+"\"; session_id=x", "a: &a [*a]", "chunked",
		"gzip")
	for _, s := range conversation.Seeds(len(talk), values) {
		f.Add(s)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, program []byte) {
		session := ""
		for i, msg := range conversation.Mutate(program, talk, values) {
			w := visit(r.Server, msg, session)
			if w == nil {
				continue
			}
			if id := w.Header().Get("X-Auth-Token"); id == honest {
				t.Fatalf("message %d gave the session of another client", i)
			} else if id != "" {
				session = id
			}
			// 500 means an unexpected error. In Salt a login without a body returns it,
			// too.
			if w.Code == http.StatusInternalServerError && !strings.HasPrefix(msg.Str("path"), "/login") || w.Code < 200 || w.Code > 599 {
				t.Errorf("message %d, %.300s: %d %.300s", i, value.Repr(msg), w.Code, w.Body)
			}
			if b := w.Body.Bytes(); strings.HasPrefix(w.Header().Get("Content-Type"), typeJSON) && len(b) > 0 {
				if _, err := pyjson.Load(string(b)); err == nil { // parsed as Python does, with NaN and Infinity
					continue
				}
				t.Errorf("message %d, %.300s: not JSON: %.300q", i, value.Repr(msg), b)
			}
		}
		for _, d := range taken() {
			// /run forwards tokens that the client itself sends.
			if d.Str("token") == token && !strings.Contains(value.Repr(value.ListOf(asAny(conversation.Mutate(program, talk, values))...)), token) {
				t.Errorf("run with the token of another client: %s", value.Repr(d))
			}
		}
		w := visit(r.Server, message("POST", "/", value.DictOf("client", "local", "tgt", "m", "fun", "test.ping")), honest)
		if got := taken(); w.Code != http.StatusOK || len(got) != 1 || got[0].Str("token") != token {
			t.Errorf("the other client gets %d %s, run was %v", w.Code, w.Body, got)
		}
		if n := r.stats.active.Load(); n != 0 {
			t.Errorf("%d requests are never done", n)
		}
	})
}

func asAny(ms []*value.Dict) (out []any) {
	for _, m := range ms {
		out = append(out, m)
	}
	return out
}
