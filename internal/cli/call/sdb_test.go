package call

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/test/tools"
)

// sdbTree returns the configuration of a minion with a driver of its own and the profiles that use
// it and built-in ones.
func sdbTree(t *testing.T) string {
	t.Helper()
	dir := userTree(t, "usermodules.txtar", `
store: {driver: own, file: DIR/store}
osenv: {driver: env}
files: {driver: yaml, files: [DIR/one.yaml, DIR/absent.yaml, DIR/two.yaml, DIR/list.yaml]}
plain: {driver: nothing}
deep: {list: [{secret: 'sdb://store/first'}, 'sdb://files/a:b']}
number: sdb://files/a:c
none: sdb://store/absent
extension_modules: DIR/ext
`)
	files := map[string]string{
		"store":    `{"first": "of the store", "late": "later"}`,
		"one.yaml": "a: {b: 1, c: 2}\n", "two.yaml": "a: {c: [3, x]}\n", "list.yaml": "[1]\n",
		"srv/_sdb/own.py": `import json

__func_alias__ = {"set_": "set"}


def __virtual__():
    return "own"


def _load(profile):
    with open(profile["file"]) as file:
        return json.load(file)


def get(key, service=None, profile=None):
    if key == "raises":
        raise ValueError("no such place")
    if key == "salt":
        return [__salt__["hashutil.base64_b64encode"]("hi"), __opts__["id"]]
    return _load(profile).get(key)


def set_(key, value, service=None, profile=None):
    data = _load(profile)
    data[key] = value
    with open(profile["file"], "w") as file:
        json.dump(data, file)
    return "stored"


def delete(key, service=None, profile=None):
    data = _load(profile)
    del data[key]
    with open(profile["file"], "w") as file:
        json.dump(data, file)
    return True
`,
		"srv/_modules/asks.py": `import salt.utils.sdb


def both(uri):
    other = dict(__opts__)
    other["else"] = other.pop("store")
    return [__utils__["sdb.sdb_get"](uri, __opts__), salt.utils.sdb.sdb_get("sdb://else/first", other),
            salt.utils.sdb.sdb_get("sdb://store/first", other), salt.utils.sdb.sdb_get(7, __opts__)]
`,
		"pillar/more.sls": "kept: {driver: own, file: DIR/store}\nlate: sdb://store/late\nlisted: [sdb://store/late]\n" +
			"in_sls: {{ salt['sdb.get']('sdb://store/first') }}\n",
		"pillar/top.sls": "base: {'*': [more]}\n",
	}
	config, err := os.ReadFile(filepath.Join(dir, "minion"))
	if err != nil {
		t.Fatal(err)
	}
	files["minion"] = string(config)
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// sdbCalls are calls in their order, with the result as JSON. They are the same with stock Salt; see
// TestSDBOfStock.
var sdbCalls = [][2]string{
	{"config.get deep", `{"list":[{"secret":"of the store"},1]}`},
	{"config.get number", `[3,"x"]`},
	{"config.get none", `null`},
	{"config.get late", `"later"`}, // of the pillar
	{"config.get listed", `["sdb://store/late"]`},
	{"pillar.get late", `"sdb://store/late"`},
	{"pillar.get in_sls", `"of the store"`},
	{"sdb.get sdb://kept/first", `"of the store"`}, // the profile is in the pillar
	{"sdb.get sdb://store/salt", `["aGk=","alpha"]`},
	{"sdb.get sdb://files/a:b", `1`},
	{"sdb.get sdb://files/b", `null`},
	{"sdb.get sdb://nowhere/x", `"sdb://nowhere/x"`},
	{"sdb.get sdb://store", `"sdb://store"`},
	{"sdb.get plain", `"plain"`},
	{"sdb.get 5", `5`},
	{"sdb.set sdb://store/new 4", `"stored"`},
	{"sdb.get sdb://store/new", `4`},
	{"sdb.delete sdb://store/new", `true`},
	{"sdb.get sdb://store/new", `null`},
	{"sdb.set new 4", `false`},
	{"sdb.delete sdb://nowhere/x", `false`},
	{"sdb.get_or_set_hash sdb://store/made 3 z", `"zzz"`},
	{"sdb.get sdb://store/made", `"zzz"`},
	{"sdb.get_or_set_hash made", `false`},
	{"sdb.get sdb://osenv/SDB_OF_TEST", `"of the environment"`},
	{"sdb.set sdb://osenv/SDB_OF_TEST x", `"of the environment"`},
	{"sdb.get sdb://osenv/NO_SUCH_VARIABLE", `null`},
	{"asks.both sdb://store/first", `["of the store","of the store","sdb://store/first",7]`},
}

// TestSDB looks up references in options, pillar and calls, with drivers of the user and built-in ones.
func TestSDB(t *testing.T) {
	t.Setenv("SDB_OF_TEST", "of the environment")
	dir := sdbTree(t)
	if v, r := local(t, dir, "saltutil.sync_all"); v == nil { // before the driver is fetched, options keep their references
		t.Fatalf("%+v", r)
	}
	for _, c := range sdbCalls {
		if v, r := local(t, dir, strings.Fields(c[0])...); jsonText(v) != c[1] {
			t.Errorf("%s: %s, want %s; %+v", c[0], jsonText(v), c[1], r)
		}
	}
	for call, want := range map[string]string{
		"sdb.get sdb://store/raises":             "ValueError: no such place",
		"sdb.get sdb://nowhere/x strict=True":    `SDB profile "nowhere" wasnt found in the minion configuration`,
		"sdb.get sdb://nowhere strict=True":      "SDB uri must have a profile name as a first part of the uri before the /",
		"sdb.get x strict=True":                  `SDB uri must start with "sdb://"`,
		"sdb.get sdb://plain/x":                  `there is no driver "nothing"`,
		"sdb.delete sdb://osenv/SDB_OF_TEST":     "the driver env for sdb:// references has no function delete",
		"sdb.get_or_set_hash sdb://store/raises": "ValueError: no such place",
	} {
		if _, r := local(t, dir, strings.Fields(call)...); r.code == 0 || !strings.Contains(r.stdout+r.stderr, want) {
			t.Errorf("%s: no %q in %+v", call, want, r)
		}
	}
	// An option whose value cannot be looked up is an error with its place.
	config, err := os.ReadFile(filepath.Join(dir, "minion"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "minion"), append(config, "failing: [sdb://store/raises]\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, r := local(t, dir, "test.ping"); r.code == 0 || !strings.Contains(r.stderr, "failing: cannot look up sdb://store/raises: ") {
		t.Errorf("%+v", r)
	}
}

// TestSDBOfStock makes the calls of TestSDB with stock Salt.
func TestSDBOfStock(t *testing.T) {
	salt, python := tools.StockSalt(t)
	t.Setenv("SDB_OF_TEST", "of the environment")
	dir := sdbTree(t)
	call := func(args ...string) (any, string) {
		cmd := exec.CommandContext(t.Context(), python, "-W", "ignore", salt+"/scripts/salt-call", "-c", dir, "--local", "--out", "json", "-l", "error")
		cmd.Args = append(cmd.Args, args...)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+salt)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		var whole map[string]any
		if e := json.Unmarshal(out, &whole); e != nil {
			return nil, fmt.Sprint(string(out), stderr.String(), err)
		}
		return whole["local"], stderr.String()
	}
	// Salt reads no configuration before the driver is there.
	if err := os.MkdirAll(filepath.Join(dir, "ext/sdb"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "srv/_sdb/own.py"), filepath.Join(dir, "ext/sdb/own.py")); err != nil {
		t.Fatal(err)
	}
	if v, text := call("saltutil.sync_modules"); v == nil {
		t.Fatal(text)
	}
	for _, c := range sdbCalls {
		if v, text := call(strings.Fields(c[0])...); jsonText(v) != c[1] {
			t.Errorf("%s: %s, want %s; %s", c[0], jsonText(v), c[1], text)
		}
	}
}
