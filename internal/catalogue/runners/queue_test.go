package runners

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

func TestQueue(t *testing.T) {
	h := newHouse(t)
	heard := h.bus.Subscribe(10, "salt/queue/")
	defer heard.Close()
	const twice = "sqlite error: UNIQUE constraint failed: q.name"
	for _, c := range [][2]string{
		{"queue.list_queues", "[]"},
		{"queue.list_length q", "0"},
		{"queue.pop q", "[]"},
		{"queue.insert q one", "True"},
		{"queue.insert q one", "'Item already exists in this queue. " + twice + "'"},
		{"queue.insert q '[two, three]'", "True"},
		{"queue.insert q '[four, two]'", "'One or more items already exists in this queue. " + twice + "'"},
		{"queue.insert q 5", "True"},
		{"queue.list_items q", "['one', 'two', 'three', '5']"},
		{"queue.list_length q backend=sqlite", "4"},
		{"queue.list_queues", "['q']"},
		{"queue.delete q three", "True"},
		{"queue.delete q none", "True"},
		{"queue.pop q", "['one']"},
		{"queue.process_queue q 1", "{'items': ['two'], 'backend': 'sqlite', 'queue': 'q'}"},
		{"queue.process_queue q x", "False"},
		{"queue.pop q all", "['5']"},
		{"queue.list_items q", "[]"},
		{"queue.insert_runner test.arg args=a,b kwargs='{c: 1}' queue=r", "True"},
		{"queue.list_items r", `['{\'fun\': \'test.arg\', \'args\': [\'a\', \'b\'], \'kwargs\': {\'c\': 1}}']`},
		{"queue.insert_runner config.get '[interface]' queue=r", "True"},
		{"queue.process_runner all queue=r", "None"},
		{"queue.list_length r", "0"},
		{"queue.insert_runner error.error kwargs='{name: E}' queue=r", "True"},
	} {
		got := value.Repr(h.call(c[0]).Return)
		if strings.HasPrefix(c[0], "queue.list_items r") {
			got = strings.ReplaceAll(got, `"`, `'`)
			c[1] = strings.ReplaceAll(c[1], `\`, ``)
		}
		if got != c[1] {
			t.Errorf("%s\ngot  %s\nwant %s", c[0], got, c[1])
		}
	}
	for line, want := range map[string]string{
		"queue.insert q x backend=pgjsonb":        `Function "pgjsonb.insert" is not available`,
		"queue.list_queues backend=redis":         `Function "redis.list_queues" is not available`,
		"queue.insert ../q x":                     "is not a valid queue name",
		"queue.insert .hidden x":                  "is not a valid queue name",
		"queue.pop q x":                           `Quantity must be an integer or "all"`,
		"queue.insert_runner test.arg":            "no queue is named",
		"queue.process_runner queue=r":            "error.error of the queue r failed",
		"queue.insert q null":                     "items must be",
		"queue.insert_runner f kwargs=[] queue=r": "kwargs must be a map",
	} {
		if got := value.Str(h.call(line).Return); !strings.Contains(got, want) {
			t.Errorf("%s: %s", line, got)
		}
	}
	select {
	case e := <-heard.C:
		if e.Tag != "salt/queue/q/process" || value.Repr(e.Data.At("items")) != "['two']" {
			t.Errorf("%s %v", e.Tag, e.Data)
		}
	default:
		t.Error("process_queue fired no event")
	}
}

func TestSurvey(t *testing.T) {
	h := newHouse(t)
	h.want("survey.hash '*' test.ping", "[{'pool': ['alpha', 'beta'], 'result': 'True'}]")
	h.version = map[string]string{"alpha": "1", "beta": "2"}
	h.want("survey.hash '*' test.version", "[{'pool': ['alpha'], 'result': '1'}, {'pool': ['beta'], 'result': '2'}]")
	h.want("survey.diff '*' test.version",
		`[{'pool': ['alpha'], 'result': '1'}, {'pool': ['beta'], 'result': '2', 'diff': '--- alpha\n+++ beta\n@@ -1 +1 @@\n-1\n+2\n'}]`)
	h.want("survey.hash nobody test.version", "[]")
	if got := value.Str(h.call("survey.hash '*'").Return); !strings.Contains(got, "a target and a function") {
		t.Error(got)
	}
}

func TestSync(t *testing.T) {
	h := newHouse(t)
	h.want("saltutil.sync_modules extmod_whitelist='{runners: [a]}'", "[]")
	h.want("saltutil.sync_roster base", "[]")
	d, ok := h.call("saltutil.sync_all").Return.(*value.Dict)
	if !ok || d.Len() != len(synced) || value.Repr(d.At("runners")) != "[]" {
		t.Errorf("%v", d)
	}
}

// theReactor stores rules.
type theReactor struct {
	rules  *value.List
	follow bool
}

func (r *theReactor) List() *value.List { return r.rules }
func (r *theReactor) Add(tag string, files any) (bool, error) {
	if tag == "bad" {
		return false, errors.New("no files")
	}
	r.rules.Append(value.DictOf(tag, files))
	return tag != "there", nil
}
func (r *theReactor) Delete(tag string) bool { return tag == "there" }
func (r *theReactor) Leads() bool            { return !r.follow }
func (r *theReactor) Lead(on bool)           { r.follow = !on }

func TestReactorRunner(t *testing.T) {
	h := newHouse(t)
	var in *theReactor
	h.deps.Reactor = func() Reactor {
		if in == nil {
			return nil
		}
		return in
	}
	var err error
	if h.reg, err = fn.NewRegistry(nil, New(h.deps)...); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"reactor.list", "reactor.add a b", "reactor.delete a", "reactor.is_leader", "reactor.set_leader"} {
		if got := value.Str(h.call(line).Return); !strings.Contains(got, "Reactor system is not running.") {
			t.Errorf("%s: %s", line, got)
		}
	}
	in = &theReactor{rules: &value.List{}}
	h.want("reactor.add a /b.sls", "{'status': True, 'comment': 'Reactor added.'}")
	h.want("reactor.add there reactors='[/c.sls]'", "{'status': False, 'comment': 'Reactor already exists.'}")
	h.want("reactor.list", "[{'a': ['/b.sls']}, {'there': ['/c.sls']}]")
	h.want("reactor.delete there", "{'status': True, 'comment': 'Reactor deleted.'}")
	h.want("reactor.delete a", "{'status': False, 'comment': 'Reactor does not exists.'}")
	h.want("reactor.is_leader", "True")
	h.want("reactor.set_leader False", "False")
	h.want("reactor.is_leader", "False")
	if got := value.Str(h.call("reactor.add bad x").Return); !strings.Contains(got, "no files") {
		t.Error(got)
	}
}

func TestHTTP(t *testing.T) {
	h := newHouse(t)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/none" {
			w.WriteHeader(404)
		}
		w.Write([]byte(r.Method + " body"))
	}))
	defer srv.Close()
	h.want("http.query "+srv.URL, "{'body': 'GET body'}")
	h.want("http.query "+srv.URL+" method=POST status=True", "{'body': 'POST body', 'status': 200}")
	dir := t.TempDir()
	target, more := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "more")
	if err := os.WriteFile(more, []byte("more\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.want("http.update_ca_bundle target="+target+" source="+srv.URL+" merge_files="+more, "None")
	if b, _ := os.ReadFile(target); string(b) != "GET body\nmore\n" {
		t.Errorf("%q", b)
	}
	for _, line := range []string{"http.update_ca_bundle target=" + target + " source=" + srv.URL + "/none", "http.update_ca_bundle target=" + target} {
		if o := h.call(line); o.Err == nil {
			t.Errorf("%s: %v", line, o.Return)
		}
	}
	if b, _ := os.ReadFile(target); string(b) != "GET body\nmore\n" {
		t.Errorf("a failure changed the file: %q", b)
	}
}

func TestKeyRegen(t *testing.T) {
	h := newHouse(t)
	h.deps.PKIDir = filepath.Dir(filepath.Join(h.deps.Keys.(interface{ Dir() string }).Dir(), "x"))
	h.deps.Cluster = &Clustering{}
	var err error
	if h.reg, err = fn.NewRegistry(nil, New(h.deps)...); err != nil {
		t.Fatal(err)
	}
	files := func() (n int) {
		filepath.WalkDir(h.deps.PKIDir, func(_ string, e os.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				n++
			}
			return nil
		})
		return n
	}
	before := files()
	if o := h.call("manage.key_regen"); o.Err == nil || files() != before || before == 0 {
		t.Errorf("in a cluster: %v, %d files of %d", o.Return, files(), before)
	}
	h.deps.Cluster = nil
	if h.reg, err = fn.NewRegistry(nil, New(h.deps)...); err != nil {
		t.Fatal(err)
	}
	if got := value.Str(h.call("manage.key_regen").Return); !strings.HasPrefix(got, "The minion and master keys have been deleted.  Restart the Salt\n") ||
		files() != 0 {
		t.Errorf("%s, %d files are left", got, files())
	}
}

// theTokens knows one password and one token.
type theTokens struct{}

func (theTokens) NewToken(_ context.Context, creds *value.Dict) (*value.Dict, error) {
	if creds.Str("password") != "right" {
		return nil, nil
	}
	return value.DictOf("token", "abc", "name", creds.At("username")), nil
}
func (theTokens) DropToken(token string) (bool, error) { return token == "abc", nil }
func (theTokens) Grants() []Grant {
	return []Grant{{Source: "external_auth: x", Who: "ops", Group: true, Entries: []any{"test.*"}}}
}

func (theTokens) Roles() []RoleView {
	return []RoleView{{Name: "web", Description: "restarts", Entries: []any{"service.*"}, Who: theTokens{}.Grants(), Cannot: []string{"x"}, Partly: []string{"y"}}}
}

func (theTokens) Rules(q Question) (rules []Rule, forbidden string) {
	if q.User == "ann" && q.Form == FormMinions && q.Fun == "test.ping" {
		rules = []Rule{{Source: "external_auth: x", Entry: "test.*"}}
	}
	if q.User == "bob" {
		rules = []Rule{{Source: "external_auth: x", Entry: "test.*", Role: "web"}}
	}
	if len(q.Groups) > 1 {
		forbidden = "too many groups"
	}
	return rules, forbidden
}

func TestTokensRunner(t *testing.T) {
	h := newHouse(t)
	h.deps.Tokens = theTokens{}
	var err error
	if h.reg, err = fn.NewRegistry(nil, New(h.deps)...); err != nil {
		t.Fatal(err)
	}
	h.want("auth.mk_token username=ann password=right eauth=x", "{'token': 'abc', 'name': 'ann'}")
	h.want("auth.mk_token username=ann password=wrong eauth=x", "{}")
	h.want("auth.del_token abc", "True")
	h.want("auth.del_token def", "False")
	h.want("auth.permissions", "[{'source': 'external_auth: x', 'who': 'ops', 'group': True, 'entries': ['test.*']}]")
	h.want("auth.roles", "[{'name': 'web', 'description': 'restarts', 'entries': ['service.*'], "+
		"'who': [{'source': 'external_auth: x', 'who': 'ops', 'group': True}], "+
		"'cannot': ['x'], 'partly': ['y']}]")
	h.want("auth.can user=bob fun=test.ping", "{'allowed': True, 'rules': [{'source': 'external_auth: x', 'entry': 'test.*', 'role': 'web'}]}")
	h.want("auth.can user=ann fun=test.ping", "{'allowed': True, 'rules': [{'source': 'external_auth: x', 'entry': 'test.*'}]}")
	h.want("auth.can user=ann fun=test.ping groups=a,b",
		"{'allowed': False, 'rules': [{'source': 'external_auth: x', 'entry': 'test.*'}], 'forbidden': 'too many groups'}")
	h.want("auth.can user=ann fun=test.ping form=wheel", "{'allowed': False, 'rules': []}")
}
