package api

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/test/eventually"
)

// enter signs a user in as the console does, and returns the session's cookie and token against
// forgery.
func (r *running) enter(user string) (cookie, csrf string) {
	r.t.Helper()
	resp, b := r.do("POST", "/login", `{"username": "`+user+`", "password": "p", "eauth": "x"}`, "Content-Type", typeJSON, consoleHeader, "1")
	var in struct {
		Return []struct{ Csrf string }
	}
	if err := json.Unmarshal([]byte(b), &in); err != nil || len(in.Return) != 1 || len(in.Return[0].Csrf) != 40 {
		r.t.Fatalf("login: %d %s %v", resp.StatusCode, b, err)
	}
	return "session_id=" + resp.Header.Get("X-Auth-Token"), in.Return[0].Csrf
}

// TestForgery: a request that changes something needs the token of a session of the console
// together with its cookie.
func TestForgery(t *testing.T) {
	r := serve(t, settings(t, ""))
	cookie, csrf := r.enter("ann")
	_, other := r.enter("bob")
	id := strings.TrimPrefix(cookie, "session_id=")
	const chunk = `{"client":"local","tgt":"*","fun":"test.ping"}`
	for _, c := range []struct {
		what, method, path string
		headers            []string
		want               int
	}{
		{"no token", "POST", "/", []string{"Cookie", cookie}, 403},
		{"an empty token", "POST", "/", []string{"Cookie", cookie, forgeryHeader, ""}, 403},
		{"a token of another session", "POST", "/", []string{"Cookie", cookie, forgeryHeader, other}, 403},
		{"a page of this server", "POST", "/", []string{"Cookie", cookie, "Origin", r.url, "Sec-Fetch-Site", "same-origin"}, 403},
		{"the token", "POST", "/", []string{"Cookie", cookie, forgeryHeader, csrf}, 200},
		{"the token, from a foreign page", "POST", "/", []string{"Cookie", cookie, forgeryHeader, csrf, "Origin", "https://evil.test"}, 401},
		{"the session in a header", "POST", "/", []string{"X-Auth-Token", id}, 200},
		{"a key", "POST", "/v1/keys", []string{"Cookie", cookie}, 403},
		{"a job", "POST", "/v1/jobs", []string{"Cookie", cookie}, 403},
		{"a session", "DELETE", "/v1/sessions/x", []string{"Cookie", cookie}, 403},
		{"an event", "POST", "/hook/x", []string{"Cookie", cookie}, 403},
		{"a log-out", "POST", "/logout", []string{"Cookie", cookie}, 403},
		{"reading", "GET", "/v1/sessions", []string{"Cookie", cookie}, 200},
	} {
		resp, body := r.do(c.method, c.path, chunk, append(c.headers, "Content-Type", typeJSON)...)
		if resp.StatusCode != c.want {
			t.Errorf("%s: %d %s, want %d", c.what, resp.StatusCode, body, c.want)
		}
	}
	// A session that the console has not started has no such token.
	plain := "session_id=" + r.login()
	if resp, body := r.do("POST", "/", chunk, "Content-Type", typeJSON, "Cookie", plain); resp.StatusCode != 200 {
		t.Errorf("another program: %d %s", resp.StatusCode, body)
	}
	resp, _ := r.do("POST", "/login", `{"username": "ann", "password": "p", "eauth": "x"}`, "Content-Type", typeJSON, consoleHeader, "1", "Cookie", cookie)
	if c := resp.Header.Get("Set-Cookie"); resp.StatusCode != 200 || !strings.Contains(c, "HttpOnly") || !strings.Contains(c, "SameSite=Strict") {
		t.Errorf("a login with an old cookie: %d %s", resp.StatusCode, c)
	}
}

// TestIdle: a session of the console ends when its user does nothing, with its token; those of
// other programs do not.
func TestIdle(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	s, err := openSessions(dir, 10*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	s.now = func() time.Time { return now }
	later := float64(now.Add(24 * time.Hour).Unix())
	ours, err := s.add(&session{Token: "aa", Expire: later, Forgery: "f"})
	if err != nil {
		t.Fatal(err)
	}
	program, err := s.add(&session{Token: "bb", Expire: later})
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(9 * time.Minute)
	of := s.get(ours)
	if of == nil {
		t.Fatal("the session ended before its time")
	}
	s.use(ours, of)
	now = now.Add(9 * time.Minute)
	// A restart reads the use from the file.
	again, err := openSessions(dir, 10*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	again.now = s.now
	if s.get(ours) == nil || again.get(ours) == nil {
		t.Error("a use of the session does not count")
	}
	now = now.Add(2 * time.Minute)
	if s.get(ours) != nil || again.get(ours) != nil || s.get(program) == nil {
		t.Error("the idle session must end, the program's must not")
	}
	ended, err := s.endIdle()
	if err != nil || len(ended) != 1 || ended[0].Token != "aa" {
		t.Fatalf("%v %v", ended, err)
	}
	if _, err := os.Stat(filepath.Join(dir, hashed(ours))); err == nil {
		t.Error("its file is still there")
	}

	conf := settings(t, "")
	conf.ConsoleIdle = 50 * time.Millisecond
	r := serve(t, conf)
	cookie, _ := r.enter("ann")
	eventually.Nil(t, time.Minute, "the token ends", func() error {
		// These requests are not the user's: an open page makes them.
		r.do("GET", "/console/me", "", "Cookie", cookie, idleHeader, "1")
		r.master.mu.Lock()
		defer r.master.mu.Unlock()
		if n := len(r.master.tokens); n > 0 {
			return fmt.Errorf("%d tokens", n)
		}
		return nil
	})
	if resp, _ := r.do("GET", "/console/me", "", "Cookie", cookie); resp.StatusCode != 401 {
		t.Errorf("after the end: %d", resp.StatusCode)
	}
}

// TestApprovals: a job that the master refuses without a second user waits; another user approves
// or rejects it, and the master gets both tokens.
func TestApprovals(t *testing.T) {
	s := settings(t, "")
	s.Clients = append(s.Clients, "local_async", "local_batch")
	r := serve(t, s)
	r.master.perms = []any{"test.*"}
	var mu sync.Mutex
	var got []*value.Dict
	r.master.low = func(chunk *value.Dict) ([]any, error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case chunk.Str(wire.ApproverKey) == "":
			return nil, &salt.Error{Kind: salt.Invalid, Err: &client.Refused{Name: wire.ApprovalRequired, Text: "this job is for 200 minions"}}
		case chunk.Str("tgt") == "far":
			return nil, &salt.Error{Kind: salt.Denied, Err: &client.Refused{Name: "AuthorizationError", Text: "not permitted"}}
		}
		got = append(got, chunk)
		return []any{value.DictOf("jid", "20260101000000000000")}, nil
	}
	ann, bob := r.login(), ""
	resp, _ := r.do("POST", "/login", "username=bob&password=p&eauth=x", "Content-Type", form)
	bob = resp.Header.Get("X-Auth-Token")
	ask := func(who, body string) string {
		t.Helper()
		resp, b := r.do("POST", "/v1/jobs", body, "Content-Type", typeJSON, "X-Auth-Token", who)
		var in struct{ Approval, Reason string }
		if err := json.Unmarshal([]byte(b), &in); err != nil || resp.StatusCode != 200 || in.Approval == "" || !strings.Contains(in.Reason, "200 minions") {
			t.Fatalf("%d %s %v", resp.StatusCode, b, err)
		}
		return in.Approval
	}
	decide := func(method, who, id string, want int, text string) {
		t.Helper()
		resp, b := r.do(method, "/v1/approvals/"+id, "{}", "Content-Type", typeJSON, "X-Auth-Token", who)
		if resp.StatusCode != want || !strings.Contains(b, text) {
			t.Errorf("%s %s: %d %s, want %d %s", method, id, resp.StatusCode, b, want, text)
		}
	}
	first := ask(ann, `{"tgt": "*", "fun": "test.echo", "arg": ["x"], "timeout": 9}`)
	decide("POST", ann, first, http.StatusForbidden, "cannot approve its own job")
	decide("POST", bob, "nosuch", http.StatusNotFound, "")
	decide("POST", bob, first, 200, `"jid": "20260101000000000000"`)
	decide("POST", bob, first, http.StatusConflict, "approved")
	mu.Lock()
	if len(got) != 1 || got[0].Str("token") == got[0].Str(wire.ApproverKey) || got[0].Str("fun") != "test.echo" || got[0].Str("client") != "local_async" ||
		got[0].Int("timeout") != 9 {
		t.Errorf("the master got %v", got)
	}
	mu.Unlock()

	// The master decides whether the second user may; if not, the job waits further.
	second := ask(ann, `{"tgt": "far", "fun": "test.ping", "batch": "10%"}`)
	third := ask(ann, `{"tgt": "far", "fun": "test.ping"}`)
	decide("POST", bob, third, http.StatusForbidden, "not permitted")
	decide("DELETE", bob, third, 200, `"state": "rejected"`)
	decide("DELETE", ann, second, 200, `"by": "ann"`)
	// The key of the second user cannot come from a client.
	forged := `{"client": "local_async", "tgt": "*", "fun": "test.ping", "` + wire.ApproverKey + `": "aa"}`
	resp, b := r.do("POST", "/", forged, "Content-Type", typeJSON, "X-Auth-Token", ann)
	if resp.StatusCode != 200 || !strings.Contains(b, `"approval"`) {
		t.Errorf("with a forged second user: %d %s", resp.StatusCode, b)
	}
	if resp, b := r.do("GET", "/v1/approvals", "", "X-Auth-Token", bob); resp.StatusCode != 200 || strings.Count(b, `"reason"`) != 4 ||
		strings.Contains(b, "token") {
		t.Errorf("the list: %d %s", resp.StatusCode, b)
	}
	// Users who may not run the function do not see the job.
	r.master.mu.Lock()
	r.master.perms = []any{"pkg.*", "@runner"}
	r.master.mu.Unlock()
	if resp, b := r.do("GET", "/v1/approvals", "", "X-Auth-Token", bob); resp.StatusCode != 200 || strings.Contains(b, "test.") {
		t.Errorf("the list for another: %d %s", resp.StatusCode, b)
	}
	decide("POST", bob, first, http.StatusNotFound, "")

	for _, body := range []string{`[]`, `{"tgt": "*", "fun": "test.ping", "client": "wheel"}`, `{"tgt": "*", "fun": "test.ping", "token": "aa"}`} {
		if resp, b := r.do("POST", "/v1/jobs", body, "Content-Type", typeJSON, "X-Auth-Token", ann); resp.StatusCode != 400 {
			t.Errorf("%s: %d %s", body, resp.StatusCode, b)
		}
	}
}

// TestApprovalAfterRejection: a job whose rejection the master has recorded does not start, although this server does not know of that yet.
func TestApprovalAfterRejection(t *testing.T) {
	s := settings(t, "")
	s.Clients = append(s.Clients, "local_async")
	r := serve(t, s)
	r.master.perms = []any{"test.*"}
	var started, rejected atomic.Bool
	rejected.Store(true)
	r.master.look = func(fun string, _ *value.Dict) (any, error) {
		if fun == approvalsApprove && rejected.Load() {
			return nil, salt.Errorf(salt.Invalid, "this job no longer waits: it is rejected")
		}
		return value.NewDict(0), nil
	}
	r.master.low = func(chunk *value.Dict) ([]any, error) {
		if chunk.Str(wire.ApproverKey) == "" {
			return nil, &salt.Error{Kind: salt.Invalid, Err: &client.Refused{Name: wire.ApprovalRequired, Text: "this job is for 200 minions"}}
		}
		started.Store(true)
		return []any{value.DictOf("jid", "20260101000000000000")}, nil
	}
	ann := r.login()
	resp, _ := r.do("POST", "/login", "username=bob&password=p&eauth=x", "Content-Type", form)
	bob := resp.Header.Get("X-Auth-Token")
	_, b := r.do("POST", "/v1/jobs", `{"tgt": "*", "fun": "test.ping"}`, "Content-Type", typeJSON, "X-Auth-Token", ann)
	var in struct{ Approval string }
	if err := json.Unmarshal([]byte(b), &in); err != nil || in.Approval == "" {
		t.Fatal(b, err)
	}
	approve := func() (int, string) {
		resp, b := r.do("POST", "/v1/approvals/"+in.Approval, "{}", "Content-Type", typeJSON, "X-Auth-Token", bob)
		return resp.StatusCode, b
	}
	if code, b := approve(); code != http.StatusConflict || !strings.Contains(b, "rejected") || started.Load() {
		t.Errorf("a rejected job: %d %s, started: %v", code, b, started.Load())
	}
	rejected.Store(false)
	if code, b := approve(); code != 200 || !started.Load() {
		t.Errorf("a job that waits: %d %s", code, b)
	}
}

// TestApprovalsExpire: a job does not wait for ever, and the waiting jobs of a user are bounded.
func TestApprovalsExpire(t *testing.T) {
	now := time.Now()
	job := &approval{id: "x", user: "ann", state: waiting, asked: now, chunk: value.DictOf("token", "t", "fun", "test.ping")}
	a := &approvals{now: func() time.Time { return now }, list: []*approval{job}}
	now = now.Add(approvalTime + time.Second)
	a.clean()
	if p := a.list[0]; p.state != expired || p.chunk.Has("token") {
		t.Errorf("%+v", p)
	}
	now = now.Add(approvalTime)
	if a.clean(); len(a.list) != 0 {
		t.Errorf("%+v", a.list)
	}
}

// TestApprovalsRestart: jobs that wait survive a restart, with the tokens of their users in the files of
// sessions only. They expire as before, and end with the session of the user who asked; one that was being
// started does not start again.
func TestApprovalsRestart(t *testing.T) {
	s := settings(t, "")
	s.Clients = append(s.Clients, "local_async")
	hour := float64(time.Now().Add(time.Hour).Unix())
	users, err := openSessions(s.SessionsDir, 0)
	if err != nil {
		t.Fatal(err)
	}
	files, err := openApprovalFiles(users)
	if err != nil {
		t.Fatal(err)
	}
	ann, err := users.add(&session{Token: "a0a0", User: "ann", Expire: hour})
	if err != nil {
		t.Fatal(err)
	}
	bob, err := users.add(&session{Token: "b0b0", User: "bob", Expire: hour})
	if err != nil {
		t.Fatal(err)
	}
	eve, err := users.add(&session{Token: "e0e0", User: "eve", Expire: hour})
	if err != nil {
		t.Fatal(err)
	}
	a := &approvals{log: slog.New(slog.DiscardHandler), now: time.Now, files: files}
	ids := map[string]string{}
	for _, one := range []struct {
		word, user, session, state string
		age                        time.Duration
	}{
		{"waits", "ann", ann, waiting, 50 * time.Minute}, {"old", "ann", ann, waiting, approvalTime + time.Minute}, {"begun", "ann", ann, starting, 0},
		{"ended", "eve", eve, waiting, 0}, {"stolen", "eve", ann, waiting, 0},
	} {
		p := &approval{id: newID(), user: one.user, from: "127.0.0.1", why: "for 200 minions", asked: time.Now().Add(-one.age), session: hashed(one.session),
			state: one.state, chunk: value.DictOf("client", "local", "tgt", "*", "fun", "test.echo", "arg", value.ListOf(one.word), "token", "a0a0")}
		ids[one.word] = p.id
		a.keep(p)
		if b, err := os.ReadFile(files.path(p.id)); err != nil || strings.Contains(string(b), "a0a0") {
			t.Errorf("%s: %s %v", one.word, b, err)
		}
	}
	users.drop(eve)
	if err := os.WriteFile(files.path(newID()), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}

	r := serve(t, s)
	r.master.mu.Lock()
	r.master.perms = []any{"test.*"}
	r.master.tokens["a0a0"], r.master.tokens["b0b0"] = true, true
	r.master.mu.Unlock()
	var mu sync.Mutex
	var got []*value.Dict
	r.master.low = func(chunk *value.Dict) ([]any, error) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, chunk)
		return []any{value.DictOf("jid", "20260101000000000000")}, nil
	}
	resp, b := r.do("GET", "/v1/approvals", "", "X-Auth-Token", bob)
	var in struct {
		Approvals []struct {
			ID, State, Problem string
			Asked, Expire      float64
		}
	}
	if err := json.Unmarshal([]byte(b), &in); err != nil || resp.StatusCode != 200 || len(in.Approvals) != 5 {
		t.Fatalf("%d %s %v", resp.StatusCode, b, err)
	}
	for word, want := range map[string]string{"waits": waiting, "old": expired, "begun": failed, "ended": failed, "stolen": failed} {
		for _, p := range in.Approvals {
			if p.ID == ids[word] && (p.State != want || p.Expire-p.Asked != approvalTime.Seconds() || want == failed && p.Problem == "") {
				t.Errorf("%s: %+v", word, p)
			}
		}
		if _, err := os.Stat(files.path(ids[word])); (err == nil) != (want == waiting) {
			t.Errorf("the file of %s: %v", word, err)
		}
	}
	for word, want := range map[string]int{"old": 409, "begun": 409, "ended": 409, "stolen": 409, "waits": 200} {
		if resp, b := r.do("POST", "/v1/approvals/"+ids[word], "{}", "Content-Type", typeJSON, "X-Auth-Token", bob); resp.StatusCode != want {
			t.Errorf("%s: %d %s", word, resp.StatusCode, b)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(got) != 1 || got[0].Str("token") != "a0a0" || got[0].Str(wire.ApproverKey) != "b0b0" || value.Str(got[0].At("arg")) != "['waits']" {
		t.Errorf("the master got %v", got)
	}
	if left, err := os.ReadDir(files.dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v %v", left, err)
	}
}
