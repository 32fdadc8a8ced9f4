package fleet

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"brine/internal/call/auth"
	"brine/internal/call/client"
	"brine/internal/daemons/master"
	"brine/internal/daemons/minion"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/test/eventually"
	"brine/test/tools"
)

// pythonMaster is a master whose file server has modules in Python.
func pythonMaster(t *testing.T, change ...func(*master.Config)) *theMaster {
	t.Helper()
	tools.NeedPython(t, "python3", "marshal")
	a, err := txtar.ParseFile("testdata/masterpython.txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
	for _, f := range a.Files {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, path, string(f.Data))
	}
	return startMaster(t, "one", "tcp", func(cfg *master.Config) {
		cfg.Keys.AutoAccept = true
		defaults(t, &cfg.Files, &cfg.Pillar, &cfg.Top, &cfg.Client)
		cfg.ExtensionModules = filepath.Join(cfg.CacheDir, "extmods")
		cfg.Files.FileRoots = value.DictOf("base", value.ListOf(filepath.Join(dir, "files")))
		cfg.Pillar.Roots = value.DictOf("base", value.ListOf(filepath.Join(dir, "pillar")))
		cfg.Pillar.External = yamlDict(t, "x: [{mine: {prefix: ab, count: 2}}, {broken: milk}, {needs: 1}, {asks: 1}]").At("x")
		cfg.Options.MasterTops = value.DictOf("where", "from_top")
		cfg.Opts.Update(value.DictOf("master_tops", cfg.Options.MasterTops, "conf_file", "/none", "renderer", "jinja|yaml", "pki_dir", cfg.PKIDir,
			"minion_data_cache", true))
		for _, f := range change {
			f(cfg)
		}
	})
}

// local is a client on the master's machine.
func (m *theMaster) local() *client.Client {
	m.t.Helper()
	l, _ := newLog(m.t, "client")
	at := client.Place{Interface: "127.0.0.1", Sockets: m.cfg.Events.Sockets(), CacheDir: m.cfg.CacheDir, User: "root", Transport: "tcp",
		RetPort: requestPort(m.t, m.req)}
	local, err := client.NewLocal(at, "root", l)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { local.Close() })
	return client.New(client.Options{Timeout: time.Minute, GatherJobTimeout: time.Minute}, "", local, local, l)
}

// TestMastersPython: a master fetches the user's own modules, and uses them as sources of pillar
// and of top data, as renderers and as runners.
func TestMastersPython(t *testing.T) {
	m := pythonMaster(t, func(cfg *master.Config) {
		cfg.Options.MasterTops = value.DictOf("where", "from_top", "odd", 1, "broken", 1, "again", 1)
		cfg.Opts.Set("master_tops", cfg.Options.MasterTops)
	})
	starts := m.events("salt/minion/")
	for _, id := range []string{"web1", "db1"} {
		startMinion(t, id, "tcp", []*theMaster{m}, nil)
		m.awaitStart(starts, id)
	}
	c := m.local()

	if got := m.runner(c, "site.hello"); !strings.Contains(got, "site.hello") || !strings.Contains(got, "not available") {
		t.Errorf("before the modules were fetched: %s", got)
	}
	all, err := c.Run(t.Context(), client.Runner{Fun: "saltutil.sync_all"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	fetched, _ := all.At("return").(*value.Dict)
	for kind, want := range map[string]string{
		"pillar": "pillar.asks pillar.broken pillar.needs pillar.own", "modules": "modules.tools", "tops": "tops.again tops.broken tops.odd tops.where",
		"runners": "runners.deep runners.site",
		"states":  ""} {
		names := value.Texts(fetched.At(kind))
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("fetched of %s: %q, want %q (%s)", kind, got, want, value.Repr(all.At("return")))
		}
	}
	if got := m.runner(c, "saltutil.sync_pillar"); got != "[]" {
		t.Errorf("fetched again: %s", got)
	}
	for call, want := range map[string]string{
		"site.hello":     "'hello you'",
		"site.hello Ann": "'hello Ann'",
		"site.cross":     "['hello Bob', 'a', False]",
		"site.ping web1": "{'web1': True}",
		"site.shares":    "'hi X'", // a module in utils, by its name and by __utils__
	} {
		words := strings.Fields(call)
		args := make([]any, 0, 1)
		for _, w := range words[1:] {
			args = append(args, w)
		}
		if got := m.runner(c, words[0], args...); got != want {
			t.Errorf("%s: %s, want %s", call, got, want)
		}
	}
	if got := m.runner(c, "site.fails"); !strings.Contains(got, "Exception occurred in runner site.fails") || !strings.Contains(got, "out of order") {
		t.Errorf("a runner that fails: %s", got)
	}
	if got := m.runner(c, "doc.runner"); !strings.Contains(got, "Greet somebody.") {
		t.Errorf("doc.runner lacks the runner in Python: %.300s", got)
	}

	pillar, _ := m.command("glob", "web1", "pillar.items", 1)["web1"].At("return").(*value.Dict)
	if got, want := value.Repr(pillar.At("ext")), "{'id': 'web1', 'role': 'web', 'seen': 'yes it is', 'prefix': 'abab', 'echo': 'x', 'mine': 4, "+
		"'opts': 'one', 'extra': None}"; got != want {
		t.Errorf("ext_pillar: %s, want %s", got, want)
	}
	if got := value.Repr(value.ListOf(pillar.At("asked"), pillar.At("options"), pillar.At("_errors"))); got !=
		"[[{'n': 1}, True], [1, 'one', True], None]" {
		t.Errorf("the cache of the master in ext_pillar, and the errors: %s", got)
	}
	if got, want := value.Repr(pillar.At("by_py")), "['web1', 'web1', 8]"; got != want {
		t.Errorf("a pillar file of the renderer py: %s, want %s", got, want)
	}
	failing, _ := m.command("glob", "db1", "pillar.items", 1)["db1"].At("return").(*value.Dict)
	if got := value.Repr(failing.At("_errors")); got != "['Failed to load ext_pillar broken: no milk today']" {
		t.Errorf("the errors of the pillar: %s", got)
	}
	if got := value.Repr(m.command("glob", "web1", "state.show_top", 1)["web1"].At("return")); got !=
		"{'base': ['again', 'web1', 'from_top.web'], 'dev': ['True.jinja-yaml'], 'keys': ['grains', 'opts']}" {
		t.Errorf("master_tops: %s", got)
	}
}

// TestTemplatesCommandMinions: a pillar file queries minions with saltutil.cmd, as modules in Python
// do.
func TestTemplatesCommandMinions(t *testing.T) {
	dir := shortDir(t)
	write(t, filepath.Join(dir, "top.sls"), "ask:\n  web1: [ask]\n")
	write(t, filepath.Join(dir, "ask.sls"), "ret: {{ salt['saltutil.cmd']('db1', 'test.echo', arg=['hi']).db1 | tojson }}\n"+
		"each: {{ salt.saltutil.cmd_iter('db1', 'no.such')[0].db1.retcode }}\nnobody: {{ salt['saltutil.cmd']('x', 'test.ping') }}\n")
	m := startMaster(t, "one", "tcp", func(cfg *master.Config) {
		cfg.Keys.AutoAccept = true
		defaults(t, &cfg.Files, &cfg.Pillar, &cfg.Top, &cfg.Client)
		cfg.Pillar.Roots = value.DictOf("ask", value.ListOf(dir))
		cfg.Opts.Update(value.DictOf("renderer", "jinja|yaml"))
	})
	starts := m.events("salt/minion/")
	for _, id := range []string{"web1", "db1"} {
		startMinion(t, id, "tcp", []*theMaster{m}, nil)
		m.awaitStart(starts, id)
	}
	got, _ := m.command("glob", "web1", "pillar.items", 1, "pillarenv=ask")["web1"].At("return").(*value.Dict)
	ret := got.Dict("ret")
	if ret.At("ret") != "hi" || ret.At("retcode") != int64(0) || ret.At("jid") == nil || got.At("each") != int64(1) || got.Dict("nobody").Len() != 0 {
		t.Errorf("%s", value.Repr(got))
	}
}

// TestWheelModules calls the user's own wheel functions as a program with a password, from a runner
// and from the reactor. They need the same permissions as built-in ones.
func TestWheelModules(t *testing.T) {
	dir := shortDir(t)
	write(t, filepath.Join(dir, "react.sls"), "look:\n  wheel.site.keys:\n    - args: {match: 'db*'}\n")
	m := pythonMaster(t, func(cfg *master.Config) {
		cfg.Auth = auth.Options{SharedSecret: "s3cret", TokenExpire: time.Hour, External: yamlDict(t, `
sharedsecret:
  admin: ['@wheel']
  some: [{'@wheel': [{'site.keys': {kwargs: {match: 'web.*'}}}]}]
  other: [{'@wheel': [key.list_all]}]
`)}
		cfg.Reactor.Reactor, cfg.Reactor.Threads, cfg.Reactor.Queue = yamlDict(t, "x: [my/tag: ["+dir+"/react.sls]]").At("x"), 1, 10
	})
	starts := m.events("salt/minion/")
	for _, id := range []string{"web1", "db1"} {
		startMinion(t, id, "tcp", []*theMaster{m}, nil)
		m.awaitStart(starts, id)
	}
	c := m.local()
	if got := m.runner(c, "saltutil.sync_wheel"); got != "['wheel.site']" {
		t.Fatal(got)
	}
	m.runner(c, "saltutil.sync_runners")
	ask := m.askerBy("tcp")
	wheel := func(who, fun string, more ...any) string {
		t.Helper()
		load := value.DictOf("cmd", "wheel", "fun", fun, "eauth", "sharedsecret", "username", who, "password", "s3cret")
		load.Update(value.DictOf(more...))
		reply, _ := ask.ask(load).(*value.Dict)
		if e := reply.Dict("error"); e != nil {
			return e.Str("name")
		}
		return value.Repr(reply.Dict("data").At("success")) + " " + value.Repr(reply.Dict("data").At("return"))
	}
	if got := wheel("other", "site.keys", "match", "web1"); got != "EauthAuthenticationError" {
		t.Errorf("a user without the permission: %s", got)
	}
	if _, err := os.Stat(filepath.Join(m.cfg.PKIDir, "loaded")); err == nil {
		t.Error("the module was loaded for a user without the permission")
	}
	for _, x := range []struct{ got, want string }{
		{wheel("admin", "site.keys", "match", "*"), "True [False, ['db1', 'web1']]"},
		{wheel("admin", "site.keys", "arg", value.ListOf("web*", true)), "True [True, ['web1']]"},
		{wheel("some", "site.keys", "match", "web*"), "True [False, ['web1']]"},
		{wheel("some", "site.keys", "match", "db*"), "EauthAuthenticationError"},
		{wheel("some", "site.keys", "match", "web*", "kwarg", value.DictOf("match", "db*")), "EauthAuthenticationError"},
		{wheel("other", "site.fails"), "EauthAuthenticationError"},
		{wheel("admin", "key.finger", "match", "nothing"), "True {}"},
		{m.runner(c, "site.accepted"), "[['db1', 'web1'], [True, ['web1']]]"},
	} {
		if x.got != x.want {
			t.Errorf("%s, want %s", x.got, x.want)
		}
	}
	if got := wheel("admin", "site.fails"); !strings.Contains(got, "False") || !strings.Contains(got, "Exception occurred in wheel site.fails") ||
		!strings.Contains(got, "Traceback") || !strings.Contains(got, "out of keys") {
		t.Errorf("a wheel function that fails: %s", got)
	}
	if got := wheel("admin", "site.nothing"); !strings.Contains(got, "False") || !strings.Contains(got, "site.nothing") {
		t.Errorf("a wheel function that is not there: %s", got)
	}
	if got := m.runner(c, "doc.wheel"); !strings.Contains(got, "List accepted keys.") {
		t.Errorf("doc.wheel lacks the functions in Python: %.300s", got)
	}
	events := m.events("salt/wheel/")
	m.command("glob", "web1", "event.send", 1, "my/tag")
	for e := range events {
		if strings.HasSuffix(e.Tag, "/ret") && e.Data.Str("fun") == "wheel.site.keys" {
			if got := value.Repr(e.Data.At("return")) + e.Data.Str("user"); got != "[False, ['db1']]Reactor" {
				t.Errorf("called by the reactor: %s", got)
			}
			break
		}
	}
}

// TestAuthOfTheUser: users sign in with a module in Python, which also grants permissions. A
// failure of the module refuses the user, and no log contains the password.
func TestAuthOfTheUser(t *testing.T) {
	m := pythonMaster(t, func(cfg *master.Config) {
		cfg.Auth = auth.Options{TokenExpire: time.Hour, External: yamlDict(t, `
ticket: {tom: [test.ping]}
mine: {ann: [test.ping], staff%: [test.echo], lost: [.*], granted: [.*], odd: [.*]}
`)}
		cfg.Opts.Set("word", "s3cret\u00e9\x00")
	})
	c := m.local()
	ask := m.askerBy("tcp")
	login := func(name, password, fun string) string {
		t.Helper()
		return ask.verdict(publication("*", fun, value.ListOf(), "eauth", "mine", "username", name, "password", password))
	}
	if got := login("ann", "s3cret\u00e9\x00ann", "test.ping"); got != "AuthenticationError" {
		t.Errorf("before the module was fetched: %s", got)
	}
	if got := m.runner(c, "saltutil.sync_auth"); got != "['auth.own', 'auth.ticket']" {
		t.Fatal(got)
	}
	m.Reload(m.cfg)
	for _, x := range []struct{ name, fun, want string }{
		{"ann", "test.ping", "no match"},
		{"ann", "cmd.run", "AuthorizationError"},
		{"sam", "test.echo", "no match"}, // by a group
		{"sam", "test.ping", "AuthorizationError"},
		{"granted", "test.arg", "no match"},
		{"granted", "test.ping", "AuthorizationError"}, // only what the module grants
		{"lost", "test.ping", "AuthenticationError"},
		{"odd", "test.ping", "AuthenticationError"},
		{"boom", "test.ping", "AuthenticationError"},
		{"dies", "test.ping", "AuthenticationError"},
		{"ann\x00", "test.ping", "AuthorizationError"},
		{"'); drop(\u202e\"", "test.ping", "AuthorizationError"},
	} {
		if got := login(x.name, "s3cret\u00e9\x00"+x.name, x.fun); got != x.want {
			t.Errorf("%q, %s: %s, want %s", x.name, x.fun, got, x.want)
		}
	}
	for _, password := range []string{"", "s3cret\u00e9\x00", strings.Repeat("x", 1<<17), "s3cret\xff"} {
		if got := login("ann", password, "test.ping"); got != "AuthenticationError" {
			t.Errorf("the password %.20q: %s", password, got)
		}
	}
	token := func(name string) string {
		t.Helper()
		d, _ := ask.ask(value.DictOf("cmd", "mk_token", "eauth", "mine", "username", name, "password", "s3cret\u00e9\x00"+name)).(*value.Dict)
		return d.Str("token")
	}
	for name, can := range map[string]string{"ann": "test.ping", "granted": "test.arg", "sam": "test.echo"} {
		tok := token(name)
		for _, fun := range []string{"test.ping", "test.arg", "test.echo"} {
			want := "AuthorizationError"
			if fun == can {
				want = "no match"
			}
			if got := ask.verdict(publication("*", fun, value.ListOf(), "token", tok)); got != want {
				t.Errorf("%s by a token, %s: %s, want %s", name, fun, got, want)
			}
		}
	}
	// A module that takes a token in place of a password, and other fields.
	for ticket, want := range map[string]bool{"tick": true, "tack": false} {
		d, _ := ask.ask(value.DictOf("cmd", "mk_token", "eauth", "ticket", "username", "tom", "token", ticket, "realm", "r")).(*value.Dict)
		if (d.Str("token") != "") != want {
			t.Errorf("a login with the token %s: %s", ticket, value.Repr(d))
		}
	}
	text := m.log.String()
	for _, want := range []string{"raised builtins.ValueError at File", "raised builtins.RuntimeError at File", "not a list of permissions", "exit status 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	if strings.Contains(text, "s3cret") {
		t.Error("the log has a password")
	}
}

// TestBeaconOfTheUser: a minion uses a beacon in Python that it fetches while it runs. The module
// keeps its state, an exception costs only one check, and close is called.
func TestBeaconOfTheUser(t *testing.T) {
	m := pythonMaster(t)
	dir := shortDir(t)
	starts := m.events("salt/minion/")
	startMinion(t, "web1", "tcp", []*theMaster{m}, func(cfg *minion.Config) {
		cfg.ExtensionModules = filepath.Join(cfg.CacheDir, "extmods")
		cfg.Options.PythonOptions.Idle = 1 // a restarted helper would report everything as new
		cfg.Options.Beacons = value.DictOf("watched", value.ListOf(value.DictOf("dir", dir), value.DictOf("beacon_module", "counted")),
			"wrong", value.ListOf(value.DictOf("beacon_module", "counted")))
	})
	m.awaitStart(starts, "web1")
	write(t, filepath.Join(dir, "first"), "")
	events := m.events("salt/beacon/")
	if got := value.Repr(m.command("glob", "web1", "saltutil.sync_beacons", 1)["web1"].At("return")); got != "['beacons.counts']" {
		t.Fatal(got)
	}
	next := func(name string, seen int, several bool) {
		t.Helper()
		select {
		case e := <-events:
			want := value.Repr(value.DictOf("seen", seen, "as", "watched", "role", "web", "echo", name, "several", several, "id", "web1"))
			if got := value.Repr(e.Data.At("data")); e.Tag != "salt/beacon/web1/watched/"+name || got != want {
				t.Errorf("%s %s, want %s", e.Tag, got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no event of %s", name)
		}
	}
	next("first", 1, false)
	write(t, filepath.Join(dir, "fail"), "")
	eventually.Nil(t, eventually.Limit, "the module fails once", func() error {
		if _, err := os.Stat(filepath.Join(dir, "fail")); err == nil {
			return errors.New("it has not looked")
		}
		return nil
	})
	write(t, filepath.Join(dir, "second"), "")
	next("second", 2, true)
	check := func(settings *value.List, want string) {
		t.Helper()
		got := value.Repr(m.command("glob", "web1", "beacons.add", 1, "other", settings)["web1"].At("return"))
		if !strings.Contains(got, want) {
			t.Errorf("beacons.add: %s, want %s", got, want)
		}
	}
	check(value.ListOf(value.DictOf("beacon_module", "counted")), "it needs dir")
	if got := value.Repr(m.command("glob", "web1", "beacons.list_available", 1)["web1"].At("return")); !strings.Contains(got, "counted") {
		t.Errorf("beacons.list_available: %s", got)
	}
	m.command("glob", "web1", "beacons.delete", 1, "watched")
	eventually.Nil(t, eventually.Limit, "the beacon is closed", func() error {
		_, err := os.Stat(filepath.Join(dir, "closed"))
		return err
	})
}

// TestReturnerOfTheUser: a minion sends results to a returner in Python that the option return
// names and that is fetched only while the minion runs.
func TestReturnerOfTheUser(t *testing.T) {
	m := pythonMaster(t)
	path := filepath.Join(shortDir(t), "returned")
	starts := m.events("salt/minion/")
	startMinion(t, "web1", "tcp", []*theMaster{m}, func(cfg *minion.Config) {
		defaults(t, &cfg.Returners)
		cfg.Returners.Return = value.ListOf("filed")
		cfg.ExtensionModules = filepath.Join(cfg.CacheDir, "extmods")
		cfg.Opts.Update(value.DictOf("returned_to", path))
	})
	m.awaitStart(starts, "web1")
	if got := value.Repr(m.command("glob", "web1", "saltutil.sync_returners", 1)["web1"].At("return")); got != "['returners.filed']" {
		t.Fatal(got)
	}
	m.command("glob", "web1", "test.echo", 1, "one")
	m.command("glob", "web1", "test.echo", 1, "two")
	eventually.Nil(t, eventually.Limit, "both results are handed over", func() error {
		got, err := os.ReadFile(path)
		lines := strings.Fields(string(got))
		slices.Sort(lines)
		if err != nil || strings.Join(lines, " ") != "web1=one web1=two" {
			return fmt.Errorf("%q, %v", got, err)
		}
		return nil
	})
}

// TestJobCacheOfTheUser: a master sends jobs, returns and events to a returner in Python. A failure
// there affects only its own call, not the master's own store.
func TestJobCacheOfTheUser(t *testing.T) {
	dir := shortDir(t)
	module, err := os.ReadFile("testdata/jobcache.py")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "jobs", "20260101000000000000"), 0o755); err != nil {
		t.Fatal(err)
	}
	// A job that another master has stored.
	write(t, filepath.Join(dir, "jobs", "20260101000000000000", ".load"), `[{"fun": "test.arg", "arg": [1], "tgt": "far*", "user": "ann"}, ["far1"]]`)
	write(t, filepath.Join(dir, "jobs", "20260101000000000000", "far1"), `{"return": "of another master"}`)
	m := pythonMaster(t, func(cfg *master.Config) {
		path := filepath.Join(cfg.ExtensionModules, "returners", "files.py")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, path, string(module))
		defaults(t, &cfg.Returners, &cfg.Jobs)
		cfg.Returners.JobCache, cfg.EventReturn.Returners, cfg.EventReturn.Whitelist = "kept", "kept", value.ListOf("my/*")
		cfg.Opts.Update(value.DictOf("kept.dir", dir))
		broken := *cfg
		broken.Returners.JobCache = "nosuch"
		off := *cfg
		off.Options.PythonOptions.Helper = false
		for c, want := range map[*master.Config]string{&broken: "saltutil.sync_returners", &off: "python_helper"} {
			if got := errors.Join(master.CheckStart(c, slog.New(slog.DiscardHandler))...); got == nil || !strings.Contains(got.Error(), want) {
				t.Errorf("the check before the start: %v, want %s", got, want)
			}
		}
		if got := master.CheckStart(cfg, slog.New(slog.DiscardHandler)); len(got) > 0 {
			t.Errorf("the check before the start: %v", got)
		}
	})
	starts := m.events("salt/minion/")
	startMinion(t, "web1", "tcp", []*theMaster{m}, nil)
	m.awaitStart(starts, "web1")
	stored := func(jid string) string {
		text, _ := os.ReadFile(filepath.Join(dir, "jobs", jid, "web1"))
		return string(text)
	}
	jids := map[string]string{}
	for _, word := range []string{"poison", "exit", "later", "fine"} {
		events := m.events("salt/job/")
		jids[word] = m.publish("glob", "web1", "test.echo", "", word)
		m.await(events, jids[word], 1)
		if err := m.returned(jids[word], "web1", word); err != nil {
			t.Errorf("the master's own store lacks %s: %v", word, err)
		}
	}
	eventually.Nil(t, eventually.Limit, "the log names what was not stored", func() error {
		text := m.log.String()
		for _, want := range []string{"this one is poisoned", "Traceback", "exit status 3", "the server is down", "returner unreachable"} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("the log lacks %q", want)
			}
		}
		return nil
	})
	write(t, filepath.Join(dir, "up"), "")
	eventually.Nil(t, eventually.Limit, "the job cache has what it took", func() error {
		for word, want := range map[string]string{"poison": "", "exit": "", "later": `"later"`, "fine": `"fine"`} {
			if got := stored(jids[word]); want == "" && got != "" || !strings.Contains(got, want) || want != "" && !strings.Contains(got, `"by": "one"`) {
				return fmt.Errorf("%s: %q", word, got)
			}
		}
		return nil
	})

	c := m.local()
	if got := m.runner(c, "jobs.lookup_jid", "20260101000000000000"); got != "{'far1': 'of another master'}" {
		t.Errorf("a job of another master: %s", got)
	}
	if got := m.runner(c, "jobs.list_jobs"); !strings.Contains(got, "'20260101000000000000': {'Arguments': [], 'Function': 'test.arg'") &&
		!strings.Contains(got, "'20260101000000000000': {'Function': 'test.arg'") {
		t.Errorf("the list of jobs: %s", got)
	}
	for i, tag := range []string{"my/one", "my/poison", "other", "my/two"} {
		m.command("glob", "web1", "event.send", 1, tag, value.DictOf("__kwarg__", true, "n", i))
	}
	eventually.Nil(t, eventually.Limit, "events are stored, but for the one that fails", func() error {
		got, err := os.ReadFile(filepath.Join(dir, "events"))
		if err != nil || string(got) != "my/one 0\nmy/two 3\n" {
			return fmt.Errorf("%q, %v", got, err)
		}
		return nil
	})
	if text := m.log.String(); !strings.Contains(text, "this event is poisoned") {
		t.Error("the log does not name the event that was not stored")
	}
}

// TestMastersPythonChanges: a running master uses a changed module from the next fetch on.
func TestMastersPythonChanges(t *testing.T) {
	m := pythonMaster(t)
	c := m.local()
	m.runner(c, "saltutil.sync_runners")
	if got := m.runner(c, "site.hello"); got != "'hello you'" {
		t.Fatal(got)
	}
	roots, _ := m.cfg.Files.FileRoots.(*value.Dict)
	path := filepath.Join(value.Texts(roots.At("base"))[0], "_runners", "site.py")
	write(t, path, "def hello():\n    return 'changed'\n")
	eventually.Nil(t, eventually.Limit, "the file server has the new file", func() error {
		m.runner(c, "fileserver.update")
		m.runner(c, "saltutil.sync_runners")
		if got := m.runner(c, "site.hello"); got != "'changed'" {
			return fmt.Errorf("site.hello returns %s", got)
		}
		return nil
	})
	write(t, filepath.Join(m.cfg.ExtensionModules, "runners", "late.py"), "def x():\n    return 'there'\n")
	eventually.Nil(t, eventually.Limit, "a module that was put there is used", func() error {
		if got := m.runner(c, "late.x"); got != "'there'" {
			return fmt.Errorf("late.x returns %s", got)
		}
		return nil
	})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	eventually.Nil(t, eventually.Limit, "the removed module is not used", func() error {
		m.runner(c, "fileserver.update")
		m.runner(c, "saltutil.sync_runners")
		if got := m.runner(c, "site.hello"); !strings.Contains(got, "not available") {
			return fmt.Errorf("site.hello returns %s", got)
		}
		return nil
	})
}

// TestRunnersBesidePillars: pillars that occupy all helpers do not delay a runner.
func TestRunnersBesidePillars(t *testing.T) {
	tools.NeedPython(t, "python3", "marshal")
	dir := shortDir(t)
	m := startMaster(t, "one", "tcp", func(cfg *master.Config) {
		cfg.Keys.AutoAccept = true
		defaults(t, &cfg.Files, &cfg.Pillar, &cfg.Top, &cfg.Client)
		cfg.Options.PythonOptions.Helpers = 1
		cfg.ExtensionModules = filepath.Join(dir, "extmods")
		cfg.Pillar.External = value.ListOf(value.DictOf("slow", dir))
	})
	for name, text := range map[string]string{
		"pillar/slow.py": "import os, time\n\n\ndef ext_pillar(minion_id, pillar, path):\n    open(path + '/begun', 'w').close()\n" +
			"    while not os.path.exists(path + '/go'):\n        time.sleep(0.02)\n    return {'waited': True}\n",
		"runners/site.py": "def hello():\n    return 'hello'\n",
	} {
		path := filepath.Join(dir, "extmods", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, path, text)
	}
	startMinion(t, "web1", "tcp", []*theMaster{m}, nil)
	eventually.Nil(t, eventually.Limit, "the pillar occupies the helper", func() error {
		_, err := os.Stat(filepath.Join(dir, "begun"))
		return err
	})
	if got := m.runner(m.local(), "site.hello"); got != "'hello'" {
		t.Errorf("meanwhile a runner returns %s", got)
	}
	write(t, filepath.Join(dir, "go"), "")
	eventually.Nil(t, eventually.Limit, "the minion has its pillar", func() error {
		v := m.command("glob", "web1", "pillar.get", 1, "waited")["web1"].At("return")
		if v != true {
			return fmt.Errorf("%v", v)
		}
		return nil
	})
}

// TestRunnersOfTheUser: runners in Python have what Salt's master has: execution functions of its
// machine, keys, minions, events, targets and renderers. The expected values are those of Salt
// 3007.10.
func TestRunnersOfTheUser(t *testing.T) {
	m := pythonMaster(t)
	starts := m.events("salt/minion/")
	for _, id := range []string{"web1", "db1"} {
		startMinion(t, id, "tcp", []*theMaster{m}, nil)
		m.awaitStart(starts, id)
	}
	c := m.local()
	if _, err := c.Run(t.Context(), client.Runner{Fun: "saltutil.sync_all"}, nil, nil); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(m.cfg.PKIDir, "minions", "web1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"p1", "p2", "q"} {
		write(t, filepath.Join(m.cfg.PKIDir, "minions_pre", id), string(key))
	}
	for call, want := range map[string]string{
		"deep.changed": "[{'minions': ['p1', 'p2']}, {'minions': ['p1']}, {'minions_rejected': ['p1']}, " +
			"{'minions': ['db1', 'p2', 'web1'], 'minions_pre': ['q'], 'minions_rejected': ['p1'], 'minions_denied': []}, {'minions_rejected': ['p1']}, " +
			"{'minions': ['p1']}, {'minions': ['q']}, {'minions': ['q']}, {}, {}, {}, " +
			"{'minions': ['db1', 'p2', 'web1'], 'minions_pre': [], 'minions_rejected': [], 'minions_denied': []}, " +
			"{'minions': ['db1', 'p2', 'web1']}, {}, {'minions': ['db1', 'web1']}]",
		"deep.known": "[[['web1', True, 'yes it is'], ['lost', False, None], [None, True, 'yes it is']], ['web1']]",
		"deep.formatted": `['a:\n    - 1\n    |_\n      ----------\n      b:\n          x', ` +
			`'{\n    "a": [\n        1,\n        {\n            "b": "x"\n        }\n    ]\n}', "a: [1, {'b': 'x'}]\n", 'a:\n- 1\n- b: x\n', ` +
			`"{'a': [1, {'b': 'x'}]}", 'a:\n', 'a: 1', '{\n    "a": 1\n}', False]`,
		"deep.loaded": "True",
		"deep.here":   "['x', 'GREETING = \"hi \"', 8, 'Linux']",
		"deep.keys":   "[['db1', 'web1'], False, True, True]",
		"deep.minions": "[{'web1': {'test.ping': True, 'test.echo': 'y'}}, ['web1'], True, [{'db1': True}, {'web1': True}], {'web1': True}, " +
			"'z', {}]",
		"deep.events":  "['deep/two', 2, None]",
		"deep.matches": "[True, False, True, True, True, True, False]",
		"deep.rendered": "[{'a': 1, 'b': 'no b', 'c': 4, 'd': 'a thing', 'e': 10, 'f': True, 'g': 1, 'h': 1, 'i': 'a', 'j': True, 'k': False, " +
			"'l': 'q', 'm': 1, 'n': {'a': 1}}, True, {'own': True, 'sls': 's'}]",
		"deep.dates": `['d: 2024-01-02\nt: 2024-01-02 03:04:00\n', '(datetime.date(2024, 1, 2),)']`,
	} {
		if got := m.runner(c, call); got != want {
			t.Errorf("%s: got %s\nwant %s", call, got, want)
		}
	}

	ret, err := c.Run(t.Context(), client.Runner{Fun: "deep.failed"}, nil, nil)
	if err != nil || ret.At("success") != false || ret.Has("retcode") {
		t.Errorf("a runner with a retcode: %s, %v", value.Repr(ret), err)
	}
	if got := m.runner(c, "deep.refuses"); !strings.Contains(got, "Traceback") || !strings.Contains(got, "salt.exceptions.CommandExecutionError: no luck") {
		t.Errorf("an exception of Salt's in a runner: %s", got)
	}

	var out, errs strings.Builder
	printed := func(e client.RunnerEvent) {
		if e.Name == wire.EventPrint && e.Data.Str("stream") == "stderr" {
			errs.WriteString(e.Data.Str("text"))
		} else if e.Name == wire.EventPrint {
			out.WriteString(e.Data.Str("text"))
		}
	}
	for _, wanted := range []bool{true, false} {
		out.Reset()
		errs.Reset()
		ret, err = c.Run(t.Context(), client.Runner{Fun: "deep.prints", Prints: wanted}, nil, printed)
		if err != nil || value.Repr(ret.At("return")) != "['hidden']" {
			t.Errorf("a runner that prints: %s, %v", value.Repr(ret), err)
		}
		want, wantErrs := "one\ntwo\nargs:\n    - shown\nkwargs:\n    ----------\n", "three\n"
		if !wanted {
			want, wantErrs = "", ""
		}
		if strings.ReplaceAll(out.String(), "----------\nargs", "args") != want || errs.String() != wantErrs {
			t.Errorf("wanted %v: it printed %q and %q", wanted, out.String(), errs.String())
		}
	}
}
