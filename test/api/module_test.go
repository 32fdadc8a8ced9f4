package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/tools"
)

// authModules are modules of external_auth: house has groups, acls has permissions of its own.
var authModules = map[string]string{
	"house": `
def auth(username, password, **kwargs):
    return password == "open " + username
def groups(username, **kwargs):
    return ["staff"] if username.startswith("s") else []
`,
	"acls": `
def auth(username, password):
    return password == "open " + username
def acl(username, **kwargs):
    return {"bob": ["test.echo", {"web*": ["test.arg"]}, "@runner"], "eve": []}.get(username)
`,
}

// TestUsersByModule signs users in by modules in Python: by salt -a, by salt-run -a, and at /login,
// whose tokens count for later requests. What the programs print and their exit codes are those of
// stock 3007.10.
func TestUsersByModule(t *testing.T) {
	t.Parallel()
	tools.NeedPython(t, "python3", "marshal")
	host := daemontest.Host()
	change := func(string) string {
		return fmt.Sprintf(`auto_accept: true
timeout: 10
gather_job_timeout: 5
netapi_enable_clients: [local, runner, wheel]
external_auth:
  house: {ann: [test.ping, test.version], 'staff%%': [test.echo, '@runner']}
  acls: {bob: ['.*'], eve: ['.*'], tim: [test.ping]}
rest_cherrypy: {host: %s, port: %d, disable_ssl: true}
`, host, port)
	}
	s := startNamed(t, "users", host, change, func(m *daemontest.Node) {
		for name, text := range authModules {
			m.Write("var/cache/salt/master/extmods/auth/"+name+".py", text)
		}
	}, "web1")
	const denied, unknown = "Authorization error occurred.\n", "Authentication error occurred.\n"
	for _, c := range []struct{ program, eauth, user, password, fun, arg, want string }{
		{"salt", "house", "ann", "open ann", "test.ping", "", "web1:\n    True\n"},
		{"salt", "house", "ann", "open bob", "test.ping", "", unknown},
		{"salt", "house", "ann", "open ann", "test.echo", "x", denied},
		{"salt", "house", "sue", "open sue", "test.echo", "x", "web1:\n    x\n"}, // by the group
		{"salt", "house", "sue", "open sue", "test.ping", "", denied},
		{"salt", "acls", "bob", "open bob", "test.echo", "x", "web1:\n    x\n"}, // by the module alone
		{"salt", "acls", "bob", "open bob", "test.ping", "", denied},
		{"salt", "acls", "eve", "open eve", "test.ping", "", denied},
		{"salt", "acls", "tim", "open tim", "test.ping", "", "web1:\n    True\n"}, // by external_auth
		{"salt", "acls", "zed", "open zed", "test.ping", "", denied},
		{"salt-run", "acls", "bob", "open bob", "test.arg", "1", "args:\n    - 1\nkwargs:\n    ----------\n"},
		{"salt-run", "house", "sue", "open sue", "test.arg", "1", "args:\n    - 1\nkwargs:\n    ----------\n"},
		{"salt-run", "house", "ann", "open ann", "test.arg", "1", "Authentication failure of type \"eauth\" occurred for user ann.\n"},
	} {
		args := []string{"-a", c.eauth, "--username", c.user, "--password", c.password}
		if c.program == "salt" {
			args = append(args, "*")
		}
		args = append(args, c.fun)
		if c.arg != "" {
			args = append(args, c.arg)
		}
		if out, errs, code := s.master.Run(daemontest.Brine, c.program, args...); out != c.want || code != 0 {
			t.Errorf("%s %s: %q %d, want %q (%s)", c.program, strings.Join(args, " "), out, code, c.want, errs)
		}
	}

	for _, c := range []struct {
		eauth, user string
		perms       string         // of the answer to /login
		status      map[string]int // of later requests
	}{
		{"house", "ann", `["test.ping","test.version"]`, map[string]int{"local test.ping": 200, "local test.echo": 401, "runner test.arg": 401}},
		{"house", "sue", `["@runner","test.echo"]`, map[string]int{"local test.echo": 200, "local test.ping": 401, "runner test.arg": 200}},
		{"acls", "bob", `["@runner","test.echo",{"web*":["test.arg"]}]`,
			map[string]int{"local test.echo": 200, "local test.arg": 200, "local test.ping": 401, "runner test.arg": 200, "wheel key.list_all": 401}},
		{"acls", "eve", `{}`, map[string]int{"local test.ping": 401, "runner test.arg": 401}},
		{"acls", "tim", `["test.ping"]`, map[string]int{"local test.ping": 200, "local test.echo": 401}},
		{"house", "nil", `{}`, map[string]int{"local test.ping": 401}},
	} {
		login := fmt.Sprintf(`{"username":%q,"password":"open %s","eauth":%q}`, c.user, c.user, c.eauth)
		a := s.do("POST", "/login", login, "Content-Type", asJSON)
		var in struct {
			Return []struct {
				Token, User, EAuth string
				Perms              json.RawMessage
			}
		}
		if err := json.Unmarshal([]byte(a.body), &in); err != nil || a.status != 200 || len(in.Return) != 1 {
			t.Errorf("login of %s: %d %s", c.user, a.status, a.body)
			continue
		}
		got := in.Return[0]
		perms := strings.ReplaceAll(string(got.Perms), " ", "")
		if perms != c.perms || got.User != c.user || got.EAuth != c.eauth || got.Token != a.header.Get("X-Auth-Token") {
			t.Errorf("login of %s: %s", c.user, a.body)
		}
		for call, want := range c.status {
			name, fun, _ := strings.Cut(call, " ")
			chunk := fmt.Sprintf(`{"client":%q,"tgt":"web1","fun":%q,"arg":["x"]}`, name, fun)
			if fun == "test.ping" || name == "wheel" {
				chunk = strings.Replace(chunk, `,"arg":["x"]`, "", 1)
			}
			if a := s.post(got.Token, chunk); a.status != want {
				t.Errorf("%s, %s by the token: %d, want %d: %s", c.user, call, a.status, want, a.body)
			}
		}
		wrong := strings.Replace(login, `"open `, `"shut `, 1)
		if a := s.do("POST", "/login", wrong, "Content-Type", asJSON); a.status != 401 {
			t.Errorf("login of %s by a wrong password: %d %s", c.user, a.status, a.body)
		}
		run := fmt.Sprintf(`[{"client":"local","tgt":"web1","fun":"test.ping",%s]`, login[1:])
		want := 401
		if c.status["local test.ping"] == 200 {
			want = 200
		}
		if a := s.do("POST", "/run", run, "Content-Type", asJSON); a.status != want {
			t.Errorf("%s at /run: %d, want %d: %s", c.user, a.status, want, a.body)
		}
		if a := s.do("POST", "/logout", "", "X-Auth-Token", got.Token); a.status != 200 {
			t.Errorf("logout of %s: %d", c.user, a.status)
		}
		if a := s.post(got.Token, `{"client":"local","tgt":"web1","fun":"test.ping"}`); a.status != 401 {
			t.Errorf("%s after the logout: %d", c.user, a.status)
		}
	}
}
