package api

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// TestConsoleOff: with console: false no path of the console exists.
func TestConsoleOff(t *testing.T) {
	r := serve(t, settings(t, "console: false"))
	for _, path := range []string{"/console", "/console/", "/console/main.js", "/console/boot", "/console/stream"} {
		if resp, _ := r.do("GET", path, ""); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}

// TestConsolePaths: the files are public; data requires a session and a page of this
// server.
func TestConsolePaths(t *testing.T) {
	r := serve(t, settings(t, "console_masters: ['https://m2.example:8000'], authorized_ips: [127.0.0.1], cors_origins: ['https://friend.example']"))
	r.master.look = func(fun string, kwargs *value.Dict) (any, error) {
		return value.DictOf("fun", fun, "kwargs", kwargs), nil
	}
	id := r.login()
	for _, c := range []struct {
		path, session, site string
		status              int
		want                string
	}{
		{"/console", "", "", 307, ""},
		{"/console/", "", "", 200, "main.js"},
		{"/console/main.js", "", "cross-site", 200, "import"},
		{"/console/..%2fapi.go", "", "", 404, ""},
		{"/console/boot", "", "", 200, `"masters": ["https://m2.example:8000"]`},
		{"/console/boot", "", "cross-site", 403, ""},
		{"/console/me", "", "", 401, ""},
		{"/console/me", id, "", 200, `"user"`},
		{"/console/me", id, "same-site", 403, ""},
		{"/console/look/minions", "", "", 401, ""},
		{"/console/look/minions?limit=5&search=a&search=b&all=true", id, "same-origin", 200,
			`{"return": {"fun": "fleet.minions", "kwargs": {`},
		{"/console/look/minions?limit=x", id, "", 400, "must be a number"},
		{"/console/look/minions", id, "cross-site", 403, ""},
		{"/console/stream", "", "", 401, ""},
		{"/console/stream", id, "cross-site", 403, ""},
	} {
		h := []string{"Accept", "application/json"}
		if c.session != "" {
			h = append(h, "X-Auth-Token", c.session)
		}
		if c.site != "" {
			h = append(h, "Sec-Fetch-Site", c.site)
		}
		resp, body := r.do("GET", c.path, "", h...)
		if c.path == "/console" && resp.Request.URL.Path == "/console/" {
			continue // the client followed the redirect
		}
		if resp.StatusCode != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s (%q, %q): %d %.300s, want %d %s", c.path, c.session, c.site, resp.StatusCode, body, c.status, c.want)
		}
	}
	for _, bad := range []string{"ftp://x", "https://x/path", "m2", "https://x y"} {
		v := settingsError(t, bad)
		if v == nil || !strings.Contains(v.Error(), "console_masters") {
			t.Errorf("console_masters %q: %v", bad, v)
		}
	}
}

func settingsError(t *testing.T, master string) error {
	t.Helper()
	o := Options{REST: value.DictOf("port", 1, "disable_ssl", true, "console_masters", value.ListOf(master)), Timeout: time.Minute}
	_, err := o.Read(t.TempDir())
	return err
}

// TestLooksAreBounded: a session with too many look-ups is refused, other sessions are not.
func TestLooksAreBounded(t *testing.T) {
	r := serve(t, settings(t, ""))
	r.master.look = func(string, *value.Dict) (any, error) { return true, nil }
	greedy, other := r.login(), r.login()
	refused := 0
	for range 4 * lookBurst {
		if resp, _ := r.do("GET", "/console/look/x", "", "X-Auth-Token", greedy); resp.StatusCode == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no question was refused")
	}
	if resp, _ := r.do("GET", "/console/look/x", "", "X-Auth-Token", other); resp.StatusCode != 200 {
		t.Errorf("another session: %d", resp.StatusCode)
	}
}

// TestLookWithoutRunners: if the operator has not enabled the client runner, look-ups are
// refused.
func TestLookWithoutRunners(t *testing.T) {
	s := settings(t, "")
	s.Clients = []string{"local"}
	r := serve(t, s)
	r.master.look = func(string, *value.Dict) (any, error) { return true, nil }
	if resp, body := r.do("GET", "/console/look/minions", "", "X-Auth-Token", r.login(), "Accept", "application/json"); resp.StatusCode != 400 ||
		!strings.Contains(body, "netapi_enable_clients") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestConsoleStream: a page gets the topology, its changes, and events. An event that
// suggests a change of the topology triggers a reading at once.
func TestConsoleStream(t *testing.T) {
	r := serve(t, settings(t, "own_events: false"))
	asked, state := make(chan string, 100), make(chan string, 1)
	now := "up"
	r.master.look = func(fun string, kwargs *value.Dict) (any, error) {
		select {
		case now = <-state:
		default:
		}
		select {
		case asked <- kwargs.Str("since"):
		default:
		}
		if fun != "fleet.topology" {
			return nil, salt.Errorf(salt.Invalid, "%s", fun)
		}
		return value.DictOf("revision", now, "here", "m1", "masters", value.ListOf(), "minions", value.DictOf("w1", now)), nil
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", r.url+"/console/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Auth-Token", r.login())
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func(name string) (data map[string]any) {
		t.Helper()
		for event := ""; lines.Scan(); {
			if v, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				event = v
			}
			if v, ok := strings.CutPrefix(lines.Text(), "data: "); ok && event == name {
				if err := json.Unmarshal([]byte(v), &data); err != nil {
					t.Fatal(err)
				}
				return data
			}
		}
		t.Fatalf("the stream has ended: %v", lines.Err())
		return nil
	}
	if d := next("topology"); d["full"] != true || d["set"].(map[string]any)["w1"] != "up" {
		t.Fatalf("%v", d)
	}
	if since := <-asked; since != "" {
		t.Errorf("the first question has the revision %q", since)
	}
	state <- "down"
	r.events.Fire("salt/minion/w1/master_changed", value.DictOf("id", "w1\x1b", "x", strings.Repeat("y", 1<<20)))
	if d := next("topology"); d["full"] != false || d["set"].(map[string]any)["w1"] != "down" {
		t.Errorf("%v", d)
	}
	r.events.Fire("salt/x\nevent: topology", value.NewDict(0))
	for {
		d := next("bus")
		first := d["events"].([]any)
		tag := first[len(first)-1].(map[string]any)["tag"]
		if tag == "salt/x\nevent: topology" {
			break
		}
		if tag != "salt/minion/w1/master_changed" {
			t.Fatalf("%v", d)
		}
	}
}

// TestConsoleStreamsAreBounded: the number of open streams of a session is limited.
func TestConsoleStreamsAreBounded(t *testing.T) {
	r := serve(t, settings(t, ""))
	id := r.login()
	open := func() int {
		req, err := http.NewRequestWithContext(t.Context(), "GET", r.url+"/console/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Auth-Token", id)
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp.StatusCode
	}
	for i := range pageStreams {
		if got := open(); got != 200 {
			t.Fatalf("stream %d: %d", i, got)
		}
	}
	if got := open(); got != http.StatusTooManyRequests {
		t.Errorf("one more: %d", got)
	}
}
