package call

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"brine/test/tools"
)

// userTree returns the configuration directory of a minion with the files of an archive in
// testdata.
func userTree(t *testing.T, archive, more string) string {
	t.Helper()
	tools.NeedPython(t, "python3", "marshal")
	a, err := txtar.ParseFile(filepath.Join("testdata", archive))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range a.Files {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text := "root_dir: " + dir + "\nid: alpha\nfile_client: local\nenable_fqdns_grains: false\nskip_grains: true\n" +
		"file_roots: {base: [" + dir + "/srv]}\npillar_roots: {base: [" + dir + "/pillar]}\ngrains: {role: web}\n" + more
	if err := os.WriteFile(filepath.Join(dir, "minion"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// local returns the result of a call as JSON.
func local(t *testing.T, dir string, args ...string) (any, result) {
	t.Helper()
	r := runCall(t.Context(), dir, "", append([]string{"--out", "json"}, args...)...)
	var whole map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &whole); err != nil {
		return nil, r
	}
	return whole["local"], r
}

// TestUserModules calls the user's own modules of every kind. They are available after they were
// fetched, and behave as on stock minions; the archive says what was compared.
func TestUserModules(t *testing.T) {
	dir := userTree(t, "usermodules.txtar", "")
	if v, r := local(t, dir, "mine1.hi"); v != nil || r.code == 0 || !strings.Contains(r.stderr, "'mine1.hi' is not available.") {
		t.Errorf("before they were fetched: %+v", r)
	}
	v, r := local(t, dir, "saltutil.sync_all")
	all, _ := v.(map[string]any)
	for kind, want := range map[string]string{"modules": "[modules.mine1 modules.other modules.refused modules.test]", "states": "[states.mine]",
		"grains": "[grains.own]", "utils": "[utils.helper]", "renderers": "[renderers.upper]", "beacons": "[]"} {
		if got := strings.ReplaceAll(jsonText(all[kind]), `"`, ""); got != strings.ReplaceAll(want, " ", ",") {
			t.Errorf("%s: %s; %+v", kind, got, r)
		}
	}
	for call, want := range map[string]string{
		"saltutil.sync_modules":             `[]`, // nothing has changed
		"saltutil.sync_states saltenv=base": `[]`,
		"saltutil.list_extmods": `{"grains":["own"],"modules":["mine1","other","refused","test"],` +
			`"renderers":["upper"],"states":["mine"],"utils":["helper"]}`,
		"mine1.hi":                           `"hello you"`,
		"mine1.hi Ann":                       `"hello Ann"`,
		"named.where":                        `["alpha","web","from pillar"]`, // __virtualname__
		"named.cross":                        `["x","hello Bob",8]`,
		"test.ping":                          `"not True"`, // by the user's module
		"cmd.run echo x":                     `"x"`,
		"grains.get own":                     `"of Python"`,
		"grains.get role":                    `"web"`, // from the configuration
		"sys.argspec mine1.hi":               `{"mine1.hi":{"args":["name"],"defaults":["you"],"kwargs":null,"varargs":null}}`,
		"sys.list_functions mine1":           `["mine1.boom","mine1.expected","mine1.hi","mine1.list"]`,
		"sys.list_state_functions mine":      `["mine.mod_watch","mine.present","mine.raises"]`,
		"slsutil.renderer salt://up.txt":     `{"A":1}`,
		"slsutil.renderer salt://python.sls": `{"a":{"test.nop":[{"name":"alpha python base"}]}}`,
	} {
		words := strings.SplitN(call, " ", 2)
		if v, r := local(t, dir, words...); jsonText(v) != want {
			t.Errorf("%s: %s; %+v", call, jsonText(v), r)
		}
	}
	if _, r := local(t, dir, "mine1.list"); !strings.Contains(r.stdout, "1180591620717411303424") {
		t.Errorf("%+v", r)
	}
	if _, r := local(t, dir, "sys.doc", "mine1.hi"); !strings.Contains(r.stdout, "Greet somebody.") {
		t.Errorf("%+v", r)
	}
	const managed = `{"file_|-/nonexistent/out_|-/nonexistent/out_|-managed":{` +
		`"__id__":"/nonexistent/out","__run_num__":0,"__sls__":"`
	for call, want := range map[string]string{
		"state.show_sls raises":   "[\"Rendering SLS 'base:raises' failed: Traceback (most recent call last):\\n",
		"state.show_sls refuses":  "[\"Rendering SLS 'base:refuses' failed: Traceback (most recent call last):\\n",
		"state.show_sls norun":    "[\"Rendering SLS 'base:norun' failed: AttributeError: module 'norun' has no attribute 'run'\\n\"]",
		"state.show_sls breaks":   "[\"Rendering SLS breaks failed, render error: 'y'\\nTraceback (most recent call last):\\n",
		"state.apply by_py":       managed + `by_py","changes":{},"comment":"Traceback`,
		"state.apply by_breaking": managed + `by_breaking","changes":{},"comment":"Unable to manage file: 'y'","`,
	} {
		if v, r := local(t, dir, strings.Fields(call)...); !strings.HasPrefix(jsonText(v), want) {
			t.Errorf("%s: %s; %+v", call, jsonText(v), r)
		}
	}
	for call, want := range map[string]string{
		"mine1.boom":     "The minion function caused an exception: Traceback (most recent call last):",
		"mine1.expected": "Error running 'mine1.expected': expected",
		"mine1.hi a b c": "hi() takes from 0 to 1 positional arguments but 3 were given",
		"refused.x":      "'refused' __virtual__ returned False: not on this machine",
		"mine1.no":       "'mine1.no' is not available.",
		"test.echo x":    "'test.echo' is not available.", // the user's module replaces the whole module
	} {
		if _, r := local(t, dir, strings.Fields(call)...); r.code == 0 || !strings.Contains(r.stderr+r.stdout, want) {
			t.Errorf("%s: %+v", call, r)
		}
	}
}

// TestUserStates runs states of the user's modules. The state engine treats their results like any
// other.
func TestUserStates(t *testing.T) {
	dir := userTree(t, "usermodules.txtar", "")
	v, r := local(t, dir, "state.apply") // fetches the modules first
	got, _ := v.(map[string]any)
	for tag, want := range map[string]string{
		"mine_|-a_|-a_|-present": `{"comment":"changed; sub: True","changes":{"env":"base","id":"a","new":"hello SLS"},"result":true}`,
		"mine_|-b_|-b_|-present": `{"comment":"watched by present after [mine_|-a_|-a_|-present]","changes":{"watched":true},"result":true}`,
	} {
		if s := part(got[tag]); s != want {
			t.Errorf("%s: %s; %+v", tag, s, r)
		}
	}
	if s := part(got["mine_|-c_|-c_|-raises"]); !strings.Contains(s, `An exception occurred in this state: Traceback`) || !strings.Contains(s, "KeyError: 'c'") {
		t.Error(s)
	}
	if s := part(got["test_|-d_|-alpha d base_|-nop"]); !strings.Contains(s, `"result":true`) {
		t.Error(got)
	}
	v, r = local(t, dir, "state.single", "mine.present", "name=x", "test=True")
	if s := part(v.(map[string]any)["mine_|-x_|-x_|-present"]); s != `{"comment":"would change","changes":{},"result":null}` {
		t.Errorf("%s; %+v", s, r)
	}
}

func part(v any) string {
	m, _ := v.(map[string]any)
	if m == nil {
		return "nothing"
	}
	return `{"comment":` + jsonText(m["comment"]) + `,"changes":` + jsonText(m["changes"]) + `,"result":` + jsonText(m["result"]) + `}`
}

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return strings.NewReplacer(`\u003e`, ">", `\u003c`, "<").Replace(string(b))
}

// TestUserModulesChange: a module that is changed or removed on the file server is changed or
// removed on the minion by the next fetch.
func TestUserModulesChange(t *testing.T) {
	dir := userTree(t, "usermodules.txtar", "extmod_blacklist: {modules: [other]}\n")
	if v, r := local(t, dir, "saltutil.sync_modules"); jsonText(v) != `["modules.mine1","modules.refused","modules.test"]` {
		t.Fatalf("%+v", r)
	}
	if err := os.WriteFile(filepath.Join(dir, "srv", "_modules", "mine1.py"), []byte("def hi():\n    return 'changed'\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "srv", "_modules", "test.py")); err != nil {
		t.Fatal(err)
	}
	if v, r := local(t, dir, "saltutil.sync_modules"); jsonText(v) != `["modules.mine1"]` {
		t.Errorf("%+v", r)
	}
	if v, r := local(t, dir, "mine1.hi"); v != "changed" {
		t.Errorf("%+v", r)
	}
	if v, r := local(t, dir, "test.ping"); v != true {
		t.Errorf("a removed module still overrides: %+v", r)
	}
}

// TestNoHelper: a minion starts no Python before it needs a user module. If python_helper is off,
// the error for a user function says so.
func TestNoHelper(t *testing.T) {
	dir := userTree(t, "usermodules.txtar", "python: /no/python\n")
	if v, r := local(t, dir, "test.ping"); v != true || strings.Contains(r.stderr, "python") {
		t.Errorf("%+v", r)
	}
	if v, r := local(t, dir, "saltutil.sync_modules"); jsonText(v) == "null" {
		t.Errorf("%+v", r)
	}
	if _, r := local(t, dir, "mine1.hi"); r.code == 0 || !strings.Contains(r.stderr, "cannot run Python modules: the option python names /no/python") {
		t.Errorf("%+v", r)
	}
	if v, r := local(t, dir, "cmd.run", "echo x"); v != "x" {
		t.Errorf("%+v", r)
	}
	dir = userTree(t, "usermodules.txtar", "python_helper: false\n")
	if v, r := local(t, dir, "saltutil.sync_modules"); jsonText(v) == "null" {
		t.Errorf("%+v", r)
	}
	if _, r := local(t, dir, "mine1.hi"); r.code == 0 || !strings.Contains(r.stderr, "the option python_helper is off") {
		t.Errorf("%+v", r)
	}
	if v, r := local(t, dir, "test.ping"); v != true {
		t.Errorf("%+v", r)
	}
}

// TestUserPillar: a masterless minion uses an ext_pillar source of the user.
func TestUserPillar(t *testing.T) {
	dir := userTree(t, "usermodules.txtar", "ext_pillar: [{mine: [a, b]}, {bad: x}, {bare: x}]\n"+
		"ignore_unsupported: [ext_pillar]\n")
	source := "def ext_pillar(minion_id, pillar, *args):\n    return {'own': [minion_id, __grains__['role'], list(args)]}\n"
	if err := os.MkdirAll(filepath.Join(dir, "srv", "_pillar"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "srv", "_pillar", "mine.py"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	if v, r := local(t, dir, "pillar.get", "own"); jsonText(v) != `""` {
		t.Errorf("before it was fetched: %s; %+v", jsonText(v), r)
	}
	if v, r := local(t, dir, "saltutil.sync_pillar"); jsonText(v) != `["pillar.mine"]` {
		t.Errorf("%s; %+v", jsonText(v), r)
	}
	if v, r := local(t, dir, "pillar.get", "own"); jsonText(v) != `["alpha","web",["a","b"]]` {
		t.Errorf("%s; %+v", jsonText(v), r)
	}
	// An unusable source is logged with its file, and the others are used, as in Salt.
	for name, text := range map[string]string{"bad": "def ext_pillar(\n", "bare": "x = 1\n"} {
		path := filepath.Join(dir, "var", "cache", "salt", "minion", "extmods", "pillar", name+".py")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	v, r := local(t, dir, "pillar.get", "own")
	if jsonText(v) != `["alpha","web",["a","b"]]` || !strings.Contains(r.stderr, "bad.py cannot be loaded: SyntaxError in line 1") ||
		!strings.Contains(r.stderr, "bare has no function ext_pillar") {
		t.Errorf("%s; %+v", jsonText(v), r)
	}
}

// TestUserReturner: salt-call passes a result to a returner of the user, and reports its exception.
func TestUserReturner(t *testing.T) {
	dir := userTree(t, "usermodules.txtar", "")
	source := "def returner(ret):\n    if ret['return'] == 'bad':\n        raise ValueError('not this one')\n" +
		"    with open(__opts__['root_dir'] + '/returned', 'w') as f:\n" +
		"        f.write('{} {} {}'.format(ret['id'], ret['fun'], __salt__['test.echo'](ret['return'])))\n"
	if err := os.MkdirAll(filepath.Join(dir, "srv", "_returners"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "srv", "_returners", "mine.py"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	if v, r := local(t, dir, "saltutil.sync_returners"); jsonText(v) != `["returners.mine"]` {
		t.Fatalf("%s; %+v", jsonText(v), r)
	}
	if _, r := local(t, dir, "--return", "mine", "test.echo", "good"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "returned")); err != nil || string(got) != "alpha test.echo good" {
		t.Errorf("handed over: %q, %v", got, err)
	}
	if _, r := local(t, dir, "--return", "mine", "test.echo", "bad"); !strings.Contains(r.stderr, "not this one") {
		t.Errorf("%+v", r)
	}
}

// TestUserOutputters shows a result with the user's own outputters. If one fails, the data is still
// shown.
func TestUserOutputters(t *testing.T) {
	dir := userTree(t, "usermodules.txtar", "output: own\n")
	for name, text := range map[string]string{
		"own": "def output(data, _retcode=0):\n    return '<{}|{}|{}|{}>\\n'.format(data['local'], _retcode, __opts__['id'], __opts__['color'])\n",
		"txt": "from salt.utils.color import get_colors\ndef output(data):\n    return 'mine: ' + get_colors(True)['GREEN'] + data['local']\n",
		"bad": "def output(data):\n    raise ValueError('it does not fit')\n", "none": "def output(data, **kwargs):\n    return None\n",
	} {
		path := filepath.Join(dir, "var/cache/salt/minion/extmods/output", name+".py")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for out, want := range map[string]string{
		"": "<x|0|alpha|False>\n", "--out=txt": "mine: \x1b[0;32mx\n", "--out=bad": "local:\n    x\n", "--out=none": "", "--out=json": "{\n    \"local\": \"x\"\n}\n",
		"--out=nosuch": "local:\n    x\n",
	} {
		args := []string{"test.echo", "x"}
		if out != "" {
			args = append([]string{out}, args...)
		}
		r := runCall(t.Context(), dir, "", args...)
		if r.stdout != want {
			t.Errorf("%s: %q, want %q (%s)", out, r.stdout, want, r.stderr)
		}
		if bad := strings.Contains(r.stderr, "it does not fit"); bad != (out == "--out=bad") {
			t.Errorf("%s: %s", out, r.stderr)
		}
	}
}

// aggregating are two state modules with mod_aggregate, and states of them.
var aggregating = map[string]string{
	"_states/gather.py": `
def mod_aggregate(low, chunks, running):
    if low.get("fun") != "have":
        return low
    low["more"] = []
    for chunk in chunks:
        if chunk.get("state") != "gather" or "__agg__" in chunk or __utils__["state.gen_tag"](chunk) in running:
            continue
        low["more"].append(chunk["name"])
        chunk["__agg__"] = True
        chunk["skip"] = True
    return low


def have(name, more=None, skip=False, **kwargs):
    return {"name": name, "result": True, "changes": {} if skip else {"got": [name] + (more or [])},
            "comment": "{} {} {}".format(sorted(kwargs), __low__.get("__agg__"), __opts__["test"])}
`,
	"_states/odd.py": `
def mod_aggregate(low, chunks, running):
    if low["name"] == "typeerror":
        raise TypeError("x")
    if low["name"] == "boom":
        raise ValueError("it does not fit")
    if low["name"] == "nothing":
        return None
    return dict(low, text="{} of {}".format(len(running), len(chunks)))


def go(name, text="plain", aggregate=None):
    return {"name": name, "result": True, "changes": {}, "comment": text}
`,
	"more.sls": `
z: {test.nop: []}
a: {gather.have: [require: [{test: z}]]}
b: {gather.have: [require: [{test: y}]]}
c: {gather.have: []}
y: {test.nop: []}
o1: {odd.go: [aggregate: true]}
o2: {odd.go: [name: typeerror]}
o3: {odd.go: [aggregate: false]}
o4: {odd.go: [name: boom]}
o5: {odd.go: [name: nothing]}
`,
}

// TestUserAggregate: mod_aggregate of the user's states merges states, as on stock minions. There an
// exception in it ends the run, and a function that does not take __agg__ fails.
func TestUserAggregate(t *testing.T) {
	dir := userTree(t, "usermodules.txtar", "")
	if err := os.Mkdir(filepath.Join(dir, "minion.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range aggregating {
		path := filepath.Join(dir, "srv", name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, r := local(t, dir, "saltutil.sync_all"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	for _, x := range []struct{ option, want string }{
		{"true", `z; y; a ["a","b","c"] ['__agg__'] True False; b ['__agg__'] True False; c ['__agg__'] True False; o1 5 of 10; o2 plain; o3 plain; ` +
			`o4 the function odd.mod_aggregate raised an exception: it does not fit; o5 the function odd.mod_aggregate does not return the state as a dict`},
		{"[gather]", `z; y; a ["a","b","c"] ['__agg__'] True False; b ['__agg__'] True False; c ['__agg__'] True False; o1 5 of 10; o2 plain; o3 plain; ` +
			`o4 plain; o5 plain`},
		{"false", `z; a ["a"] [] None False; y; b ["b"] [] None False; c ["c"] [] None False; o1 5 of 10; o2 plain; o3 plain; o4 plain; o5 plain`},
		{"gather", `z; a ["a"] [] None False; y; b ["b"] [] None False; c ["c"] [] None False; o1 5 of 10; o2 plain; o3 plain; o4 plain; o5 plain`},
	} {
		if err := os.WriteFile(filepath.Join(dir, "minion.d", "aggregate.conf"), []byte("state_aggregate: "+x.option+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		v, r := local(t, dir, "state.sls", "more")
		states, _ := v.(map[string]any)
		lines := make([]string, len(states))
		for _, res := range states {
			d, _ := res.(map[string]any)
			line := d["__id__"].(string)
			changes, _ := d["changes"].(map[string]any)
			if got := changes["got"]; got != nil {
				line += " " + jsonText(got)
			}
			if d["comment"] != "Success!" {
				line += " " + d["comment"].(string)
			}
			lines[int(d["__run_num__"].(float64))] = line
		}
		if got := strings.Join(lines, "; "); got != x.want {
			t.Errorf("state_aggregate: %s\n%s, want\n%s; %s", x.option, got, x.want, r.stderr)
		}
	}
}

// TestUserExecutors calls functions through executors of the user, by the option and by the
// configuration. A configured executor that is not there yet does not prevent that it is fetched.
func TestUserExecutors(t *testing.T) {
	dir := userTree(t, "usermodules.txtar", "module_executors: [adds, wraps]\n")
	for name, text := range map[string]string{
		"adds": "def execute(opts, data, func, args, kwargs):\n    if data['fun'] == 'mine1.hi':\n        args[0] += opts['id']\n",
		"wraps": "def execute(opts, data, func, args, kwargs):\n    more = data.get('executor_opts', {})\n" +
			"    return [func(*args, **kwargs), data['fun'], data['tgt'], more]\n\ndef allow_missing_func(function):\n    return True\n",
		"wrong": "def execute(:\n",
		"other": "import nothing_of_this_name\n\ndef execute(opts, data, func, args, kwargs):\n    return 1\n",
	} {
		path := filepath.Join(dir, "srv/_executors", name+".py")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if v, r := local(t, dir, "test.ping"); v != nil || r.code == 0 || !strings.Contains(r.stderr, "Executor 'adds' is not available") {
		t.Errorf("before they were fetched: %+v", r)
	}
	if v, r := local(t, dir, "--module-executors=direct_call", "saltutil.sync_executors"); jsonText(v) !=
		`["executors.adds","executors.other","executors.wraps","executors.wrong"]` {
		t.Fatalf("%+v", r)
	}
	if _, r := local(t, dir, "saltutil.sync_modules"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	for _, x := range []struct{ args, want string }{
		{"mine1.hi x", `["hello xalpha","mine1.hi","salt-call",{}]`},
		{"--executor-opts={a:~1} mine1.hi x", `["hello xalpha","mine1.hi","salt-call",{"a":1}]`},
		{"--module-executors=adds mine1.hi x", `null`},
		{"--module-executors=[adds,direct_call] mine1.hi x", `"hello xalpha"`},
		{"named.where", `[["alpha","web","from pillar"],"named.where","salt-call",{}]`}, // a function of the user
	} {
		args := strings.Fields(x.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "~", " ")
		}
		if v, r := local(t, dir, args...); jsonText(v) != x.want {
			t.Errorf("%s: %s, want %s; %+v", x.args, jsonText(v), x.want, r)
		}
	}
	for args, want := range map[string]string{
		"--module-executors=wrong test.ping": "wrong.py cannot be loaded: SyntaxError in line 1",
		"--module-executors=other test.ping": "other.py cannot be loaded: ModuleNotFoundError in line 1",
		"no.such":                            "'no.such' is not available.", // as in Salt, allow_missing_func holds for jobs of masters alone
	} {
		if _, r := local(t, dir, strings.Fields(args)...); r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

// sameAsStock compares the rendered file of the archive with stock Salt's result.
func sameAsStock(t *testing.T, dir, name string) {
	t.Helper()
	var want any
	text, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	if v, r := local(t, dir, "slsutil.renderer", "salt://"+name+".sls"); jsonText(v) != jsonText(want) {
		t.Errorf("%s: %s, want %s; %s", name, jsonText(v), jsonText(want), r.stderr)
	}
}

// TestPyobjects renders SLS files with the renderer pyobjects as Salt does.
func TestPyobjects(t *testing.T) {
	dir := userTree(t, "pyobjects.txtar", "")
	sameAsStock(t, dir, "site")
	for file, want := range map[string]string{
		"twice": "two states have the ID 'x' and the function test.nop", "fails": "fails.sls in line 3: there is no file salt://lib/nothing.sls",
	} {
		if _, r := local(t, dir, "slsutil.renderer", "salt://"+file+".sls"); !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %s", file, r.stderr)
		}
	}
	// Brine runs the states.
	v, r := local(t, dir, "state.sls", "plain")
	states, _ := v.(map[string]any)
	if s := part(states["test_|-plain_|-plain_|-succeed_without_changes"]); !strings.Contains(s, `"result":true`) {
		t.Errorf("%s; %+v", s, r)
	}
}

// TestMako renders an SLS file with the renderer mako as Salt does, if Python has the library.
func TestMako(t *testing.T) {
	tools.NeedPython(t, "python3", "mako")
	sameAsStock(t, userTree(t, "pyobjects.txtar", ""), "text")
}

// TestMakoWithoutLibrary: the error names the missing library.
func TestMakoWithoutLibrary(t *testing.T) {
	dir := userTree(t, "pyobjects.txtar", "")
	python := filepath.Join(dir, "python")
	if err := os.WriteFile(python, []byte("#!/bin/sh\nexec /usr/bin/python3 -S \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", "")
	conf := filepath.Join(dir, "minion")
	text, err := os.ReadFile(conf)
	if err == nil {
		err = os.WriteFile(conf, append(text, []byte("python: "+python+"\n")...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, r := local(t, dir, "slsutil.renderer", "salt://text.sls"); !strings.Contains(r.stderr, "install it (python3-mako)") {
		t.Errorf("%+v", r)
	}
}

// TestLoadedFunctions: a module has the same functions as in Salt.
func TestLoadedFunctions(t *testing.T) {
	dir := userTree(t, "loader.txtar", "")
	if _, r := local(t, dir, "saltutil.sync_all"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	for _, x := range []struct{ call, want string }{
		{"sys.list_functions imports", `["imports.other","imports.own","imports.shares"]`},
		{"sys.list_functions broken", `[]`},
		{"sys.list_state_functions around", `["around.nop"]`},
		{"imports.shares", `"b'eA=='"`},
		{"fresh.role", `"web"`},
		{"late.read " + filepath.Join(dir, "pillar/role.sls"), `["role: web\n",true,false,"[1]"]`},
		{`fresh.role pillar_override={"role":"db"}`, `"db"`},
	} {
		if v, r := local(t, dir, strings.Fields(x.call)...); jsonText(v) != x.want {
			t.Errorf("%s: %s, want %s; %s", x.call, jsonText(v), x.want, r.stderr)
		}
	}
	for _, name := range []string{"imports.b64decode", "imports.fopen", "imports.part", "imports.sleep", "broken.hi"} {
		if _, r := local(t, dir, name); !strings.Contains(r.stderr, "'"+name+"' is not available.") && !strings.Contains(r.stderr, "__virtual__") {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if _, r := local(t, dir, "fresh.role", "other"); !strings.Contains(r.stderr, "only this minion's pillar (alpha)") {
		t.Errorf("the pillar of another minion: %+v", r)
	}
	// The first line of a template error is Salt's.
	for sls, want := range map[string]string{
		"nested": "Jinja error: Jinja variable 'nothing' is undefined; line 2", "key": "Jinja error: 'absent'",
		"command": "Problem running salt function in Jinja template: it failed",
	} {
		v, _ := local(t, dir, "state.show_sls", sls)
		errs, _ := v.([]any)
		if len(errs) != 1 {
			t.Fatalf("%s: %v", sls, v)
		}
		if got, _, _ := strings.Cut(errs[0].(string), "\n"); got != "Rendering SLS 'base:"+sls+"' failed: "+want {
			t.Errorf("%s: %s, want %s", sls, got, want)
		}
	}
	v, r := local(t, dir, "state.single", "around.nop", "x")
	if s := jsonText(v); !strings.Contains(s, `"result":true`) {
		t.Errorf("%s; %s", s, r.stderr)
	}
}

// TestPyYAML: modules pass Salt's loader and dumper to the yaml library, if Python has it.
func TestPyYAML(t *testing.T) {
	tools.NeedPython(t, "python3", "yaml")
	dir := userTree(t, "loader.txtar", "")
	if _, r := local(t, dir, "saltutil.sync_all"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	for _, x := range []struct{ text, want string }{
		{"a: 2026-01-01\n---\nb: {c: [1, yes]}\n", `[{"a":"2026-01-01"},{"b":{"c":[1,true]}}]`},
		{"<<: {a: 1}\nb: 2\n", `[{"a":1,"b":2}]`},
	} {
		if v, r := local(t, dir, "pyyaml.load", "text="+strconv.Quote(x.text)); jsonText(v) != x.want {
			t.Errorf("%q: %s, want %s; %s", x.text, jsonText(v), x.want, r.stderr)
		}
	}
	if _, r := local(t, dir, "pyyaml.load", `text="a: 1\na: 2\n"`); !strings.Contains(r.stderr, "found conflicting ID 'a'") {
		t.Errorf("a key that is there twice: %+v", r)
	}
	if v, r := local(t, dir, "pyyaml.dump"); v != "b: 1\na:\n- true\n" {
		t.Errorf("%q; %s", v, r.stderr)
	}
}

// TestPermittedUserModules: disable_modules and whitelist_modules apply to the user's own modules.
func TestPermittedUserModules(t *testing.T) {
	for more, want := range map[string]bool{
		"": true, "disable_modules: [mine1]\n": false, "disable_modules: [other]\n": true, "whitelist_modules: [test]\n": false,
		"whitelist_modules: [test, mine1]\n": true,
	} {
		dir := userTree(t, "usermodules.txtar", "")
		if _, r := local(t, dir, "saltutil.sync_all"); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		path := filepath.Join(dir, "minion")
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, append(text, []byte(more)...), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		v, r := local(t, dir, "mine1.hi")
		if there := !strings.Contains(r.stderr, "'mine1.hi' is not available."); there != want || there != (v != nil) {
			t.Errorf("%q: %v, %+v", more, v, r)
		}
	}
}

// TestStockFallback: if configured, functions and states that Brine lacks run in a stock Salt, but
// never those of disabled modules.
func TestStockFallback(t *testing.T) {
	tree, python := tools.StockSalt(t)
	t.Setenv("PYTHONPATH", tree)
	call := func(more string, args ...string) result {
		t.Helper()
		return runCall(t.Context(), userTree(t, "pyobjects.txtar", "python: "+python+"\n"+more), "", args...)
	}
	const on = "python_fallback: salt\n"
	db := filepath.Join(t.TempDir(), "x.db")
	for _, x := range []struct {
		more string
		args []string
		want string
	}{
		{"", []string{"sqlite3.tables", db}, "'sqlite3.tables' is not available."},
		{on, []string{"state.single", "sqlite3.table_present", "name=things", "db=" + db, "schema=CREATE TABLE things (x TEXT)"}, "Succeeded: 1 (changed=1)"},
		{on, []string{"state.single", "sqlite3.table_present", "name=things", "db=" + db, "schema=CREATE TABLE things (x TEXT)"}, "exists with matching schema"},
		{on, []string{"sqlite3.tables", db}, "- things"},
		{on, []string{"sqlite3.no_such"}, "'sqlite3.no_such' is not available."},
		{on + "disable_modules: [sqlite3]\n", []string{"sqlite3.tables", db}, "'sqlite3.tables' is not available."},
		{on + "whitelist_modules: [test]\n", []string{"sqlite3.tables", db}, "'sqlite3.tables' is not available."},
		{"python_fallback: pepper\n", []string{"test.ping"}, `python_fallback: expected salt or nothing, got the string "pepper"`},
	} {
		if r := call(x.more, x.args...); !strings.Contains(r.stdout+r.stderr, x.want) {
			t.Errorf("%s%v: %+v, want %s", x.more, x.args, r, x.want)
		}
	}
	t.Setenv("PYTHONPATH", "")
	if r := call(on, "sqlite3.version"); !strings.Contains(r.stderr, "does not have Salt's package") && !strings.Contains(r.stdout, ".") {
		t.Errorf("without the package: %+v", r)
	}
}

// TestWrappedModule calls a module of the user's that replaces one of Brine's and calls that one, as
// modules do that add to a function of Salt's.
func TestWrappedModule(t *testing.T) {
	dir := userTree(t, "usermodules.txtar", "")
	text := `
from salt.modules import config
import salt.modules.test as test
from salt.modules.test import *
__proxyenabled__ = config.__proxyenabled__
names = [n for n in dir(test) if not n.startswith("_")]
config.__opts__ = {}
def __virtual__():
    return "test"
def echo(text):
    return "mine: " + test.echo(text)
def known():
    return ["echo" in names, "nosuch" in names, callable(arg), __salt__["test.ping"](), __salt__["test.echo"]("x")]
def ping():
    return "own ping"
`
	if err := os.WriteFile(filepath.Join(dir, "srv", "_modules", "test.py"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	local(t, dir, "saltutil.sync_modules")
	for call, want := range map[string]string{
		"test.echo a": `"mine: a"`,
		"test.known":  `[true,false,true,"own ping","mine: x"]`,
	} {
		if v, r := local(t, dir, strings.Fields(call)...); jsonText(v) != want {
			t.Errorf("%s: %s, want %s; %+v", call, jsonText(v), want, r)
		}
	}
}

// TestProxyModulesSynced checks that modules of _proxy are fetched under the names that Salt returns.
func TestProxyModulesSynced(t *testing.T) {
	dir := userTree(t, "usermodules.txtar", "")
	if err := os.MkdirAll(filepath.Join(dir, "srv", "_proxy"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "srv", "_proxy", "box.py"), []byte("def init(opts):\n    pass\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v, r := local(t, dir, "saltutil.sync_all")
	if all, _ := v.(map[string]any); jsonText(all["proxymodules"]) != `["proxy.box"]` {
		t.Errorf("%s %+v", jsonText(v), r)
	}
	if v, r := local(t, dir, "saltutil.sync_proxymodules"); jsonText(v) != "[]" {
		t.Errorf("fetched again: %s %+v", jsonText(v), r)
	}
	if found, _ := filepath.Glob(filepath.Join(dir, "var/cache/salt/minion/extmods/proxy/box.py")); len(found) != 1 {
		t.Error("the file is not in extmods/proxy")
	}
}
