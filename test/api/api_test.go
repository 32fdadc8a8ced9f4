package api

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"brine/internal/call/client"
	"brine/test/eventually"
)

// post runs a chunk in a session.
func (s *site) post(session, chunk string) answer {
	s.t.Helper()
	return s.do("POST", "/", chunk, "Content-Type", asJSON, "X-Auth-Token", session)
}

// TestRights calls every client without a session, with a wrong one, and as users with no, few and
// all permissions.
func TestRights(t *testing.T) {
	s := start(t, "alpha", "beta")
	sessions := map[string]string{"none": "", "wrong": strings.Repeat("a", 40), "stranger": s.login("stranger"), "limited": s.login("limited"),
		"admin": s.login("admin"), "ended": s.login("admin")}
	if a := s.do("POST", "/logout", "", "X-Auth-Token", sessions["ended"]); a.status != 200 {
		t.Fatalf("logout: %d", a.status)
	}
	var expired string
	if a := s.do("POST", "/login", `{"username":"admin","password":"s3cret","eauth":"sharedsecret","token_expire":0.5}`, "Content-Type",
		asJSON); a.status == 200 {
		expired = a.header.Get("X-Auth-Token")
	}
	eventually.Nil(t, time.Minute, "a token has expired", func() error {
		if a := s.do("GET", "/keys", "", "X-Auth-Token", expired); a.status != 401 || expired == "" {
			return fmt.Errorf("status %d", a.status)
		}
		return nil
	})
	users := []string{"none", "wrong", "ended", "stranger", "limited", "admin"}
	byClient := map[string][][6]int{}
	for _, x := range []struct {
		chunk string
		want  [6]int
	}{
		{`{"client":"local","tgt":"alpha","fun":"test.ping"}`, [6]int{401, 401, 401, 401, 200, 200}},
		{`{"client":"local","tgt":"beta","fun":"test.ping"}`, [6]int{401, 401, 401, 401, 401, 200}},
		{`{"client":"local","tgt":"*","fun":"test.ping"}`, [6]int{401, 401, 401, 401, 401, 200}},
		{`{"client":"local","tgt":"alpha","fun":["test.ping","test.version"],"arg":[[],[]]}`, [6]int{401, 401, 401, 401, 401, 200}},
		{`{"client":"local_async","tgt":"alpha","fun":"test.ping"}`, [6]int{401, 401, 401, 401, 200, 200}},
		{`{"client":"local_async","tgt":"beta","fun":"test.ping"}`, [6]int{401, 401, 401, 401, 401, 200}},
		{`{"client":"local_batch","tgt":"alpha","fun":"test.ping","batch":"1"}`, [6]int{401, 401, 401, 401, 200, 200}},
		{`{"client":"local_batch","tgt":"*","fun":"test.ping","batch":"1"}`, [6]int{401, 401, 401, 401, 401, 200}},
		{`{"client":"local_subset","tgt":"*","fun":"test.ping","subset":1}`, [6]int{401, 401, 401, 401, 401, 200}},
		{`{"client":"runner","fun":"jobs.list_jobs","search_function":"nosuch"}`, [6]int{401, 401, 401, 401, 200, 200}},
		{`{"client":"runner","fun":"jobs.list_job","jid":"20200101000000000000"}`, [6]int{401, 401, 401, 401, 401, 200}},
		{`{"client":"runner","fun":"test.arg"}`, [6]int{401, 401, 401, 401, 401, 200}},
		{`{"client":"runner_async","fun":"jobs.list_jobs"}`, [6]int{401, 401, 401, 401, 200, 200}},
		{`{"client":"runner_async","fun":"test.arg"}`, [6]int{401, 401, 401, 401, 401, 200}},
		{`{"client":"wheel","fun":"key.list_all"}`, [6]int{401, 401, 401, 401, 401, 200}},
		{`{"client":"wheel_async","fun":"key.list_all"}`, [6]int{401, 401, 401, 401, 401, 200}},
		{`{"client":"ssh","tgt":"*","fun":"test.ping"}`, [6]int{401, 401, 401, 400, 400, 400}},
	} {
		for i, u := range users {
			if a := s.post(sessions[u], x.chunk); a.status != x.want[i] {
				t.Errorf("%s, %s: %d, want %d: %.300s", u, x.chunk, a.status, x.want[i], a.body)
			}
		}
		if a := s.post(expired, x.chunk); a.status != x.want[1] {
			t.Errorf("expired, %s: %d, want %d", x.chunk, a.status, x.want[1])
		}
		var chunk struct{ Client string }
		if err := json.Unmarshal([]byte(x.chunk), &chunk); err != nil {
			t.Fatal(err)
		}
		byClient[chunk.Client] = append(byClient[chunk.Client], x.want)
	}
	// Each client has been called by a user with permission and by a limited user without it.
	for _, name := range client.LowClients {
		allowed, denied := false, false
		for _, want := range byClient[name] {
			allowed, denied = allowed || want[5] == 200, denied || want[4] == 401
		}
		if !(allowed && denied) && name != "ssh" || byClient[name] == nil {
			t.Errorf("the client %s is not tried by all", name)
		}
	}
	// Arguments of a runner may stand in the chunk itself, as SaltGUI sends them.
	if a := s.post(sessions["admin"], `{"client":"runner","fun":"jobs.list_job","jid":"20200101000000000000"}`); !strings.Contains(a.body,
		"no job with this jid") {
		t.Errorf("a job by jid: %s", a.body)
	}
	// The chunk cannot change the user of a session.
	for _, more := range []string{`"token":"00"`, `"user":"root","key":"x"`, `"eauth":"sharedsecret","username":"admin","password":"s3cret"`,
		`"auth_list":[".*"]`, `"kwargs":{"auth_list":[".*"]}`} {
		if a := s.post(sessions["limited"], `{"client":"local","tgt":"beta","fun":"test.ping",`+more+`}`); a.status != 401 {
			t.Errorf("%s: %d", more, a.status)
		}
	}
	// Each declared resource with each method. A resource that is missing here fails the test.
	type row = [6]int
	all := func(status int) row { return row{status, status, status, status, status, status} }
	want := map[string]row{
		"GET /":                       all(200),
		"POST /":                      {401, 401, 401, 400, 400, 400}, // without a body; the chunks are above
		"GET /login":                  all(200),
		"POST /login":                 all(500), // without a body, as in Salt
		"GET /minions":                {401, 401, 401, 401, 401, 200},
		"GET /minions/{id}":           {401, 401, 401, 401, 401, 200},
		"POST /minions":               {401, 401, 401, 400, 400, 400},
		"GET /jobs":                   {401, 401, 401, 401, 200, 200},
		"GET /jobs/{id}":              {401, 401, 401, 401, 401, 200},
		"GET /keys":                   {401, 401, 401, 401, 401, 200},
		"GET /keys/{id}":              {401, 401, 401, 401, 401, 200},
		"POST /keys":                  all(400), // authenticates by itself
		"POST /keys/{id}":             all(400),
		"POST /run":                   all(400), // authenticates by itself
		"GET /run":                    all(200), // the list of clients, like /
		"POST /token":                 all(400),
		"GET /token":                  all(200),
		"GET /stats":                  {401, 401, 401, 200, 200, 200},
		"GET /metrics":                {401, 401, 401, 200, 200, 200},
		"GET /ws":                     {401, 401, 401, 500, 500, 500}, // no WebSocket
		"GET /ws/{id}":                all(401),
		"HEAD /events":                {401, 401, 401, 200, 200, 200},
		"POST /hook":                  all(200), // webhook_disable_auth
		"GET /openapi.json":           all(200),
		"GET /health":                 all(200),
		"GET /app":                    all(200),
		"GET /static":                 all(404),
		"GET /console":                all(200),                       // the start page; TestConsolePaths covers the rest
		"POST /logout":                {401, 401, 401, 200, 200, 200}, // last, since it ends sessions
		"GET /v1/topology":            {401, 401, 401, 403, 403, 200},
		"GET /v1/minions":             {401, 401, 401, 403, 403, 200},
		"GET /v1/minions/{id}":        {401, 401, 401, 403, 403, 200},
		"GET /v1/preview":             {401, 401, 401, 403, 403, 200},
		"GET /v1/functions":           {401, 401, 401, 403, 403, 200},
		"GET /v1/functions/{id}":      {401, 401, 401, 403, 403, 200},
		"GET /v1/states":              {401, 401, 401, 403, 403, 200},
		"GET /v1/states/{id}":         {401, 401, 401, 403, 403, 400},
		"GET /v1/moves":               {401, 401, 401, 403, 403, 200},
		"GET /v1/history":             {401, 401, 401, 403, 403, 200},
		"GET /v1/history/{id}":        {401, 401, 401, 403, 403, 200},
		"GET /v1/jobs":                {401, 401, 401, 403, 403, 200},
		"GET /v1/jobs/{id}":           {401, 401, 401, 403, 403, 404},
		"GET /v1/jobs/{id}/{minion}":  {401, 401, 401, 403, 403, 404},
		"GET /v1/files":               {401, 401, 401, 403, 403, 200},
		"GET /v1/schedules":           {401, 401, 401, 403, 403, 200},
		"POST /v1/schedules":          {401, 401, 401, 400, 400, 400}, // without a body
		"GET /v1/mine":                {401, 401, 401, 404, 404, 404},
		"GET /v1/mine/{id}":           {401, 401, 401, 403, 403, 200},
		"GET /v1/pillar":              {401, 401, 401, 404, 404, 404},
		"GET /v1/pillar/{id}":         {401, 401, 401, 403, 403, 200},
		"POST /v1/jobs":               {401, 401, 401, 400, 400, 400}, // without a body
		"POST /v1/jobs/{id}":          {401, 401, 401, 400, 400, 400},
		"POST /v1/jobs/{id}/{minion}": {401, 401, 401, 400, 400, 400},
		"GET /v1/approvals":           {401, 401, 401, 200, 200, 200}, // a user's own
		"GET /v1/approvals/{id}":      {401, 401, 401, 405, 405, 405},
		"POST /v1/approvals":          {401, 401, 401, 404, 404, 404},
		"POST /v1/approvals/{id}":     {401, 401, 401, 404, 404, 404},
		"DELETE /v1/approvals":        {401, 401, 401, 404, 404, 404},
		"DELETE /v1/approvals/{id}":   {401, 401, 401, 404, 404, 404},
		"GET /v1/can":                 {401, 401, 401, 403, 403, 400}, // without a user
		"GET /v1/permissions":         {401, 401, 401, 403, 403, 200},
		"GET /v1/roles":               {401, 401, 401, 403, 403, 200},
		"GET /v1/audit":               {401, 401, 401, 403, 403, 200},
		"GET /v1/chain":               {401, 401, 401, 403, 403, 200},
		"GET /v1/keys":                {401, 401, 401, 403, 403, 200},
		"POST /v1/keys":               {401, 401, 401, 400, 400, 400},
		"GET /v1/store":               {401, 401, 401, 403, 403, 200},
		"GET /v1/saved":               {401, 401, 401, 403, 403, 200},
		"GET /v1/saved/{id}":          {401, 401, 401, 405, 405, 405},
		"POST /v1/saved":              {401, 401, 401, 400, 400, 400}, // without a body
		"POST /v1/saved/{id}":         {401, 401, 401, 400, 400, 400},
		"DELETE /v1/saved":            {401, 401, 401, 403, 403, 404},
		"DELETE /v1/saved/{id}":       {401, 401, 401, 403, 403, 404},
		"GET /v1/sessions":            {401, 401, 401, 200, 200, 200}, // a user's own
		"GET /v1/sessions/{id}":       {401, 401, 401, 405, 405, 405},
		"DELETE /v1/sessions":         {401, 401, 401, 404, 404, 404},
		"DELETE /v1/sessions/{id}":    {401, 401, 401, 404, 404, 404},
		"HEAD /v1/events":             {401, 401, 401, 200, 200, 200},
		// POST for a single minion is not supported.
		"POST /minions/{id}": {401, 401, 401, 404, 404, 404},
	}
	var described struct {
		Paths map[string]map[string]any
	}
	if err := json.Unmarshal([]byte(s.do("GET", "/openapi.json", "").body), &described); err != nil || len(described.Paths) < 15 {
		t.Fatalf("%v: %v", err, described)
	}
	var cells []string
	for path, methods := range described.Paths {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH"} {
			if _, declared := methods[strings.ToLower(method)]; declared && (path == "/events" || path == "/v1/events") {
				method = "HEAD" // GET would not end
			}
			cells = append(cells, method+" "+path)
		}
	}
	slices.SortFunc(cells, func(a, b string) int {
		return cmp.Or(cmp.Compare(btoi(a == "POST /logout"), btoi(b == "POST /logout")), cmp.Compare(a, b))
	})
	for _, cell := range cells {
		method, path, _ := strings.Cut(cell, " ")
		expected, ok := want[cell]
		if _, declared := described.Paths[path][strings.ToLower(method)]; !declared && method != "HEAD" {
			if ok {
				t.Errorf("%s is no resource any more", cell)
			}
			expected = all(405)
		} else if !ok {
			t.Errorf("%s: missing in the table of permissions", cell)
			continue
		}
		delete(want, cell)
		path = strings.Replace(path, "/jobs/{id}", "/jobs/20200101000000000000", 1)
		path = strings.NewReplacer("/functions/{id}", "/functions/test.ping", "{id}", "alpha", "{minion}", "alpha").Replace(path)
		for i, u := range append(users, "expired") {
			session, status := sessions[u], expected[min(i, 5)]
			if u == "expired" {
				session, status = expired, expected[1]
			}
			if a := s.do(method, path, "", "X-Auth-Token", session); a.status != status {
				t.Errorf("%s, %s: %d, want %d: %.300s", u, cell, a.status, status, a.body)
			}
		}
	}
	for cell := range want {
		t.Errorf("%s is no resource any more", cell)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestCORS(t *testing.T) {
	s := start(t)
	for _, path := range []string{"/", "/login", "/run", "/events", "/keys", "/minions/x"} {
		a := s.do("OPTIONS", path, "", "Origin", "http://example.test", "Access-Control-Request-Method", "POST")
		if a.status != 200 || a.body != "" || a.header.Get("Access-Control-Allow-Origin") != "*" || a.header.Get("Access-Control-Allow-Credentials") != "" ||
			a.header.Get("Access-Control-Max-Age") != "1400" ||
			a.header.Get("Access-Control-Allow-Methods") != "GET, POST" ||
			a.header.Get("Access-Control-Allow-Headers") != "Content-Type, X-Auth-Token, X-Requested-With, Accept, Cache-Control" {
			t.Errorf("%s: %d %v", path, a.status, a.header)
		}
	}
}

func TestHeadAndGzip(t *testing.T) {
	s := start(t)
	if a := s.do("OPTIONS", "/run", ""); a.status != 200 || a.body != "" || a.header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("OPTIONS: %d %q %v", a.status, a.body, a.header)
	}
	if a := s.do("HEAD", "/", ""); a.status != 200 || a.body != "" || a.header.Get("Content-Length") != "146" {
		t.Errorf("HEAD: %d %q %v", a.status, a.body, a.header)
	}
	plain := s.do("GET", "/", "")
	packed := s.do("GET", "/", "", "Accept-Encoding", "gzip")
	z, err := gzip.NewReader(strings.NewReader(packed.body))
	if err != nil || packed.header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("%v, %v", err, packed.header)
	}
	if b, _ := io.ReadAll(z); string(b) != plain.body {
		t.Errorf("unpacked: %s", b)
	}
	if a := s.do("GET", "/stats", "", "X-Auth-Token", s.login("admin")); !strings.Contains(a.body, `"CherryPy Applications": {`) {
		t.Errorf("/stats: %s", a.body)
	}
}

func TestCookie(t *testing.T) {
	s := start(t)
	a := s.do("POST", "/login", "username=admin&password=s3cret&eauth=sharedsecret", "Content-Type", "application/x-www-form-urlencoded", "Cookie",
		"session_id="+strings.Repeat("b", 40))
	cookie := a.header.Get("Set-Cookie")
	id := a.header.Get("X-Auth-Token")
	if !strings.HasPrefix(cookie, "session_id="+id+";") || !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Strict") ||
		id == strings.Repeat("b", 40) {
		t.Errorf("cookie %s", cookie)
	}
	if a := s.do("GET", "/keys", "", "Cookie", "session_id="+id); a.status != 200 {
		t.Errorf("by cookie: %d", a.status)
	}
	// A session outlives the program, and its id is not on disk.
	s.api.Kill()
	s.api.Launch()
	eventually.Nil(t, time.Minute, "the API is back", func() error {
		resp, err := http.Get(s.url + "/health")
		if err == nil {
			resp.Body.Close()
		}
		return err
	})
	if a := s.do("GET", "/keys", "", "X-Auth-Token", id); a.status != 200 {
		t.Errorf("after a restart: %d", a.status)
	}
	filepath.WalkDir(s.master.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if b, err := os.ReadFile(path); err == nil && (strings.Contains(string(b), id) || filepath.Base(path) == id) {
			t.Errorf("the id of a session is in %s", path)
		}
		return nil
	})
	if log := s.api.Log(); strings.Contains(strings.ReplaceAll(log, "sharedsecret", ""), "s3cret") {
		t.Error("the log holds a password")
	}
}

func TestWrongPasswordsAreSlowedDown(t *testing.T) {
	s := start(t)
	var last answer
	eventually.Nil(t, time.Minute, "attempts are refused", func() error {
		if last = s.do("POST", "/login", "{}", "Content-Type", asJSON); last.status != http.StatusTooManyRequests {
			return fmt.Errorf("status %d", last.status)
		}
		return nil
	})
	if n, err := strconv.Atoi(last.header.Get("Retry-After")); err != nil || n < 1 || n > 60 {
		t.Errorf("Retry-After: %q", last.header.Get("Retry-After"))
	}
	s.login("admin") // another user at this address
}

// TestFloodOfWrongLogins: hundreds of concurrent wrong logins do not slow calls with a valid
// session, or correct logins, down to the pace of the refusals.
func TestFloodOfWrongLogins(t *testing.T) {
	s := start(t)
	admin := s.login("admin")
	const attempts = 300
	for _, flood := range []struct {
		name  string
		user  func(i int) string
		asked int // number that reaches the master: login_limit, and 50 times that for an address
	}{
		{"one user", func(int) string { return "admin" }, 20},
		{"many users", func(i int) string { return fmt.Sprint("user", i) }, attempts},
	} {
		var wrong sync.WaitGroup
		var mu sync.Mutex
		statuses := map[int]int{}
		for i := range attempts {
			wrong.Go(func() {
				a := s.do("POST", "/login", fmt.Sprintf(`{"username":%q,"password":"bad%d","eauth":"sharedsecret"}`, flood.user(i), i), "Content-Type",
					asJSON)
				mu.Lock()
				statuses[a.status]++
				mu.Unlock()
			})
		}
		ended := make(chan struct{})
		go func() { wrong.Wait(); close(ended) }()
		var calls, logins []time.Duration
		before := -1 // refusals before the first right login was answered
		for done := false; !done; {
			select {
			case <-ended:
				done = true
			default:
			}
			from := time.Now()
			if a := s.post(admin, `{"client":"runner","fun":"test.arg"}`); a.status != 200 {
				t.Fatalf("%s: a call by a session: %d", flood.name, a.status)
			}
			calls = append(calls, time.Since(from))
			from = time.Now()
			s.login("limited")
			logins = append(logins, time.Since(from))
			if before < 0 {
				mu.Lock()
				before = statuses[http.StatusUnauthorized]
				mu.Unlock()
			}
		}
		t.Logf("%s: %v; %d calls, slowest %v; %d logins, slowest %v", flood.name, statuses, len(calls), slices.Max(calls), len(logins), slices.Max(logins))
		// At the pace of the refusals only one or two of each would have been served.
		if len(calls) < 10 || statuses[200] > 0 {
			t.Errorf("%s: %v; meanwhile %d calls and %d logins were served", flood.name, statuses, len(calls), len(logins))
		}
		if statuses[http.StatusUnauthorized] > flood.asked {
			t.Errorf("%s: %v: only %d of %d attempts at once may reach the master", flood.name, statuses, flood.asked, attempts)
		}
		// A refusal takes about a second. A correct login that waits for the refusals would be
		// answered after nearly all of them.
		if before > attempts*9/10 {
			t.Errorf("%s: the first right login was answered after %d of %d refusals", flood.name, before, attempts)
		}
	}
}

// stream reads the lines of /events into a channel.
func (s *site) stream(path string, headers ...string) <-chan string {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, "GET", s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || kind != "text/event-stream;charset=utf-8" ||
		resp.Header.Get("Cache-Control") != "no-cache" {
		s.t.Fatalf("%s: %d %s", path, resp.StatusCode, kind)
	}
	lines, done := make(chan string, 10000), make(chan struct{})
	go func() {
		defer close(done)
		defer close(lines)
		for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
			lines <- sc.Text()
		}
	}()
	s.t.Cleanup(func() { cancel(); resp.Body.Close(); <-done })
	return lines
}

func next(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case l, ok := <-lines:
		if !ok {
			t.Fatal("the stream has ended")
		}
		return l
	case <-time.After(time.Minute):
		t.Fatal("no event")
	}
	return ""
}

func TestEvents(t *testing.T) {
	s := start(t)
	admin := s.login("admin")
	var raw []map[string]any
	if a := s.do("POST", "/token", "username=admin&password=s3cret&eauth=sharedsecret", "Content-Type",
		"application/x-www-form-urlencoded"); json.Unmarshal([]byte(a.body), &raw) != nil || len(raw) != 1 {
		t.Fatalf("/token: %s", a.body)
	}
	for _, c := range []struct {
		path    string
		headers []string
	}{
		{"/events", []string{"X-Auth-Token", admin}},
		{"/events", []string{"Cookie", "session_id=" + admin}},
		{"/events?token=" + admin, nil},
		{"/events?salt_token=" + raw[0]["token"].(string), nil},
	} {
		lines := s.stream(c.path, c.headers...)
		if l := next(t, lines); l != "retry: 400" {
			t.Fatalf("%s begins with %q", c.path, l)
		}
		// Send events until one arrives: the stream begins to listen when it is read.
		heard := make(chan struct{})
		go func() {
			defer close(heard)
			for l := range lines {
				if l == "tag: salt/netapi/hook/try/me" {
					return
				}
			}
		}()
		eventually.Nil(t, time.Minute, "an event on "+c.path, func() error {
			if a := s.do("POST", "/hook/try/me", `{"a":"ö"}`, "Content-Type", asJSON, "X-Auth-Token", admin, "Cookie", "session_id=x", "X-Other",
				"y"); a.status != 200 {
				return fmt.Errorf("hook: %d", a.status)
			}
			select {
			case <-heard:
				return nil
			default:
				return fmt.Errorf("not heard yet")
			}
		})
		data := next(t, lines)
		var got struct {
			Tag  string
			Data struct {
				Body    string
				Post    map[string]any
				Headers map[string]string
			}
		}
		if !strings.HasPrefix(data, `data: {"data": {"body": "{\"a\":\"\u00f6\"}", "post": {"a": "\u00f6"}, "headers": {`) ||
			json.Unmarshal([]byte(strings.TrimPrefix(data, "data: ")), &got) != nil ||
			got.Tag != "salt/netapi/hook/try/me" || got.Data.Headers["X-Other"] != "y" || got.Data.Headers["X-Auth-Token"]+got.Data.Headers["Cookie"] != "" {
			t.Errorf("%s: %s", c.path, data)
		}
		if l := next(t, lines); l != "" {
			t.Errorf("behind an event: %q", l)
		}
	}
}

func TestWebSocket(t *testing.T) {
	s := start(t)
	admin := s.login("admin")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	url := "ws" + strings.TrimPrefix(s.url, "http")
	for _, path := range []string{"/ws", "/ws/" + strings.Repeat("a", 40)} {
		if conn, resp, err := websocket.Dial(ctx, url+path, nil); err == nil || resp == nil || resp.StatusCode != 401 {
			t.Errorf("%s: %v %v", path, conn, err)
		}
	}
	// A page of another site has the cookie, but not the token.
	foreign := &websocket.DialOptions{HTTPHeader: http.Header{"Cookie": {"session_id=" + admin}, "Origin": {"http://evil.test"}}}
	if _, resp, err := websocket.Dial(ctx, url+"/ws", foreign); err == nil || resp.StatusCode != 401 {
		t.Errorf("a foreign page got in: %v", err)
	}
	conn, _, err := websocket.Dial(ctx, url+"/ws/"+admin, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if err := conn.Write(ctx, websocket.MessageText, []byte("websocket client ready")); err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 1)
	go func() {
		for {
			_, b, err := conn.Read(ctx)
			if err != nil {
				return
			}
			if strings.Contains(string(b), "salt/netapi/hook/ws") {
				heard <- string(b)
				return
			}
		}
	}()
	var text string
	eventually.Nil(t, time.Minute, "an event", func() error {
		s.do("POST", "/hook/ws", "")
		select {
		case text = <-heard:
			return nil
		default:
			return fmt.Errorf("not heard yet")
		}
	})
	if !strings.HasPrefix(text, `data: {"data": {"body": "", "post": {}, "headers": {`) || !strings.HasSuffix(text, "}\n\n") {
		t.Errorf("frame %q", text)
	}
}

// TestHostileRequests: hostile requests are refused and have no other effect.
func TestHostileRequests(t *testing.T) {
	s := start(t)
	admin := s.login("admin")
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'l'; c++ {
		p := string(c - 1)
		bomb += fmt.Sprintf("%c: &%c [*%s,*%s,*%s,*%s,*%s,*%s,*%s,*%s,*%s,*%s]\n", c, c, p, p, p, p, p, p, p, p, p, p)
	}
	for what, c := range map[string]struct {
		body, kind string
		want       int
	}{
		"too large":    {strings.Repeat(" ", 2<<20), asJSON, 413},
		"deep":         {deep, asJSON, 400},
		"deep YAML":    {deep, "application/x-yaml", 400},
		"a YAML bomb":  {bomb, "application/x-yaml", 400},
		"no chunks":    {`[1]`, asJSON, 400},
		"bad tgt":      {`[{"client":"local","tgt":["a",1],"fun":"test.ping"}]`, asJSON, 400},
		"bad fun":      {`[{"client":"local","tgt":"a","fun":{"a":1}}]`, asJSON, 400},
		"bad kwarg":    {`[{"client":"local","tgt":"a","fun":"test.ping","kwarg":[1]}]`, asJSON, 400},
		"bad timeout":  {`[{"client":"local","tgt":"a","fun":"test.ping","timeout":"x"}]`, asJSON, 400},
		"long timeout": {`[{"client":"local","tgt":"a","fun":"test.ping","timeout":1e99}]`, asJSON, 400},
		"no function":  {`[{"client":"runner","arg":[1]}]`, asJSON, 400},
		"bad tgt_type": {`[{"client":"local","tgt":"a","tgt_type":"nosuch","fun":"test.ping"}]`, asJSON, 200}, // as in Salt: no minion matches
		"bad batch":    {`[{"client":"local_batch","tgt":"a","fun":"test.ping","batch":"x"}]`, asJSON, 400},
		"bad type":     {`x`, "a b c", 406},
	} {
		if a := s.do("POST", "/", c.body, "Content-Type", c.kind, "X-Auth-Token", admin); a.status != c.want {
			t.Errorf("%s: %d %.300s, want %d", what, a.status, a.body, c.want)
		}
	}
	for _, path := range []string{"/static/../../etc/passwd", "/static/%2e%2e/%2e%2e/etc/passwd", "/static/..%2fapp.html", "/static//etc/passwd", "/static/",
		"/static"} {
		if a := s.do("GET", path, ""); a.status == 200 || strings.Contains(a.body, "root:") || strings.Contains(a.body, "<html>app") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := s.do("GET", "/<script>", ""); strings.Contains(a.body, "<script>") {
		t.Errorf("a path comes back as it is: %s", a.body)
	}
	if a := s.do("GET", "/nosuch", "", "Accept", asJSON); a.body != `{"status": 404, "return": "The path '/nosuch' was not found."}` {
		t.Errorf("an error as JSON: %s", a.body)
	}
	if a := s.post(admin, `{"client":"runner","fun":"test.arg"}`); a.status != 200 {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
}

func TestDescription(t *testing.T) {
	s := start(t)
	var d struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]map[string]any
	}
	a := s.do("GET", "/openapi.json", "")
	if err := json.Unmarshal([]byte(a.body), &d); err != nil || d.OpenAPI == "" {
		t.Fatalf("%v: %s", err, a.body)
	}
	for _, p := range []string{"/", "/login", "/logout", "/run", "/token", "/minions", "/minions/{id}", "/jobs/{id}", "/keys", "/hook", "/events", "/ws/{id}",
		"/stats", "/metrics"} {
		if len(d.Paths[p]) == 0 {
			t.Errorf("%s is not described", p)
		}
	}
	m := s.do("GET", "/metrics", "", "X-Auth-Token", s.login("admin"))
	if m.status != 200 || !strings.Contains(m.body, `brine_api_requests_total{status="200"} `) ||
		!strings.Contains(m.body, "# TYPE brine_api_uptime_seconds gauge\n") {
		t.Errorf("/metrics: %d %s", m.status, m.body)
	}
}

// Chunks contain keywords of Salt's clients beside arguments: SaltGUI sends match with each wheel
// function. Functions of the master that do not declare them never get them; a runner gets only
// keywords that it declares.
func TestWordsOfTheClient(t *testing.T) {
	s := start(t)
	admin := s.login("admin")
	const words = `"match":"*","print_event":false,"full_return":false,"cmd":"x","__user__":"root","__jid__":"1","__tag__":"t"`
	for chunk, want := range map[string]string{
		`{"client":"wheel","fun":"key.list_all",` + words + `}`:                                              `"minions_pre"`,
		`{"client":"wheel","fun":"minions.connected","match":"*"}`:                                           `"success": true`,
		`{"client":"wheel","fun":"key.list_all","kwarg":{"match":"*","print_event":true}}`:                   `"minions_pre"`,
		`{"client":"wheel","fun":"key.name_match","match":"nothing"}`:                                        `"return": {}`,
		`{"client":"wheel","fun":"key.list_all","foo":1}`:                                                    "foo",
		`{"client":"runner","fun":"jobs.list_jobs","foo":1,"expr_form":"glob","search_function":"nothing"}`:  `{"return": [{}]}`,
		`{"client":"runner","fun":"jobs.list_jobs","kwarg":{"foo":1,"search_function":"nothing"}}`:           `{"return": [{}]}`,
		`{"client":"runner","fun":"jobs.list_jobs","arg":["foo=1","search_function=nothing"]}`:               `{"return": [{}]}`,
		`{"client":"runner","fun":"manage.up","expr_form":"glob","print_event":false,"tgt":"*"}`:             `{"return": [[]]}`,
		`{"client":"runner","fun":"test.arg","foo":1,"print_event":false}`:                                   `"foo": 1`,
		`{"client":"runner","fun":"error.error","name":"Exception","message":"told","user":"eve","key":"k"}`: "told",
	} {
		if a := s.post(admin, chunk); a.status != 200 || !strings.Contains(a.body, want) || want != "foo" && strings.Contains(a.body, "not valid") {
			t.Errorf("%s: %d, want %s: %.300s", chunk, a.status, want, a.body)
		}
	}
	if a := s.post(admin, `{"client":"wheel","fun":"key.list_all","foo":1}`); !strings.Contains(a.body, "not valid") {
		t.Errorf("an unknown keyword of a wheel function is not refused: %s", a.body)
	}
	// Ignored keywords are not recorded as arguments.
	if a := s.post(admin, `{"client":"runner","fun":"jobs.list_jobs","search_target":"nothing","foo":"ignored-word"}`); a.status != 200 {
		t.Fatal(a.body)
	}
	if a := s.post(admin, `{"client":"runner","fun":"jobs.list_jobs","ext_source":null}`); strings.Contains(a.body, "ignored-word") {
		t.Errorf("an ignored keyword is on record: %s", a.body)
	}
}

// TestWheelFiles calls wheel functions that write files, as users with permission.
func TestWheelFiles(t *testing.T) {
	s := start(t)
	admin, limited := s.login("admin"), s.login("limited")
	for chunk, want := range map[string]string{
		`{"client":"wheel","fun":"config.update_config","file_name":"pepper","yaml_contents":{"timeout":5}}`: `"return": "Wrote pepper.conf"`,
		`{"client":"wheel","fun":"config.apply","key":"log_level","value":"info"}`:                           `"return": null`,
		`{"client":"wheel","fun":"key.master_key_str"}`:                                                      "BEGIN PUBLIC KEY",
		`{"client":"wheel","fun":"file_roots.write","data":"x: 1","path":"../../etc/x.sls"}`:                 `Invalid path`,
		`{"client":"wheel","fun":"file_roots.list_roots"}`:                                                   `"base"`,
		`{"client":"wheel","fun":"error.error"}`:                                                             `"return": {}`,
	} {
		if a := s.post(limited, chunk); a.status != 401 {
			t.Errorf("limited: %s: %d %s", chunk, a.status, a.body)
		}
		if a := s.post(admin, chunk); a.status != 200 || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d, want %s: %.300s", chunk, a.status, want, a.body)
		}
	}
	for name, want := range map[string]string{"master.d/pepper.conf": "timeout: 5\n", "master": "log_level: info\n"} {
		if b, err := os.ReadFile(s.master.Path(name)); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %v\n%s", name, err, b)
		}
	}
}
