package compat

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/tools"
)

// write creates a file below dir.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// installation writes a small Salt installation and returns its directory.
func installation(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		write(t, dir, name, strings.ReplaceAll(text, "DIR", dir))
	}
	return dir
}

func check(t *testing.T, cfg Config) *Report {
	t.Helper()
	cfg.Getenv, cfg.Log = func(string) string { return "" }, slog.New(slog.DiscardHandler)
	r, err := Check(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lines returns the findings as KIND NAME FILE:LINE, with the prefix "missing" where it applies.
func lines(r *Report, dir string) (out []string) {
	for _, f := range r.Findings {
		for _, p := range f.Places {
			s := f.Kind + " " + f.Name + " " + strings.TrimPrefix(p.String(), dir+"/")
			if f.Missing {
				s = "missing " + s
			}
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

func compare(t *testing.T, got, want []string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

const masterConf = `root_dir: DIR
file_roots: {base: [DIR/salt]}
pillar_roots: {base: [DIR/pillar]}
worker_threads: 20
ext_pillar: [{vault: x}, {own: x}]
engines: [{stalekey: {}}, {first: {engine_module: own}}, reactor]
timeuot: 3
external_auth: {sso: {ann: [test.ping]}, ldaps: {}}
master_job_cache: kept
event_return: [kept, nowhere]
output: own
`

// TestTexts: options, renderers, states, functions and Python files are found, with their places,
// without rendering. What Brine has is not reported.
func TestTexts(t *testing.T) {
	tools.NeedPython(t, "python3", "sys") // it looks for imported packages
	dir := installation(t, map[string]string{
		"etc/master":        masterConf,
		"etc/minion":        "root_dir: DIR\nmaster: m1\nfips_mode: true\nfile_client: remote\nbeacons: {own: []}\nmodule_executors: [own, docker]\n",
		"salt/_auth/own.py": "__virtualname__ = 'sso'\n", "salt/_returners/kept.py": "", "salt/_wheel/site.py": "def x():\n    __salt__['no.such']()\n",
		"salt/_beacons/own.py": "", "salt/_output/own.py": "", "salt/_engines/own.py": "", "salt/_executors/own.py": "",
		"salt/_fileserver/own.py": "__virtualname__ = 'ownfs'\n",
		"salt/good.sls":           "{% set x = salt['grains.get']('os') %}\n/etc/motd:\n  file.managed:\n    - contents: {{ salt.test.echo('x') }}\n",
		"salt/py.sls":             "#!py\n\ndef run():\n    import no_such_package\n    return {}\n",
		"salt/k8s.sls":            "x:\n  kubernetes.namespace_present: []\n\ny:\n  file.shortcut:\n    - name: /x\n",
		"salt/funcs.sls": "{# salt['vault.read_secret']('no') #}\n\n{% set a = salt['vault.read_secret']('x') %}\n" +
			"{% set b = salt.boto_ec2.find_images() %}\nz:\n  test.nop: []\n",
		"salt/own.sls":    "a:\n  mystate.done: []\nb:\n  cmd.run:\n    - name: {{ salt['mymod.go']() }}\n    - cwd: {{ salt['mymod.stop']() }}\n",
		"salt/conf.jinja": "{{ salt['mymod.go']() }}{{ salt['mymod.more']() }}{{ salt['mymod.given']() }}\n",
		"salt/data.bin":   "\x00{{ salt['nosuch.one']() }}",
		"salt/_modules/mymod.py": "import salt.crypt\n\ndef go():\n    \"\"\"__salt__['no.example']\"\"\"\n" +
			"    return salt.crypt.gen_keys(__salt__['pkg_resource.version']('x'))\n",
		"salt/_grains/mine.py": "", "salt/_runners/mine.py": "",
		// Two files with one virtual name: Salt looks up functions in both.
		"salt/_modules/mymore.py": "import os, no_such_package.sub\nfrom x import (\n  given,\n)\n__virtualname__ = 'mymod'\nmore = given(1)\n",
		"salt/_utils/x.py":        "try:\n    import no_such_option\nexcept ImportError:\n    pass\nimport yaml_of_no_package as y; import mymore\n",
		"salt/_pillar/own.py":     "def ext_pillar(minion_id, pillar, x):\n    return {}\n",
		"salt/_states/other.py":   "__virtualname__ = 'mystate'\n\ndef done(name):\n    return {}\n", "pillar/py.sls": "#!py\n",
		// Names of SLS files are not states, and a module for another system is not missing.
		"salt/top.sls":      "base:\n  '*':\n    - vault.server\n",
		"salt/win.sls":      "include:\n  - tls.lego\nx:\n  chocolatey.installed: []\n",
		"pillar/secret.sls": "#!yaml|pass\na: b\n",
		"pillar/top.sls":    "base:\n  '*':\n    - secret\n",
	})
	r := check(t, Config{ConfigDir: filepath.Join(dir, "etc")})
	compare(t, lines(r, dir), []string{
		"missing engine stalekey etc/master:6", "missing pillar source vault etc/master:5", "option timeuot etc/master:7", "option worker_threads etc/master:4",
		"missing option fips_mode etc/minion:3",
		"missing renderer pass pillar/secret.sls:1",
		"missing state kubernetes.namespace_present salt/k8s.sls:2", "missing state file.shortcut salt/k8s.sls:5",
		"missing function vault.read_secret salt/funcs.sls:3", "missing function boto_ec2.find_images salt/funcs.sls:4",
		"missing python mymod.stop salt/own.sls:6", "missing python salt.crypt.gen_keys salt/_modules/mymod.py:5",
		"python _modules/mymod salt/_modules/mymod.py", "python _modules/mymod salt/_modules/mymore.py",
		"python _states/mystate salt/_states/other.py", "python _grains/mine salt/_grains/mine.py",
		"python _runners/mine salt/_runners/mine.py", "python _pillar/own salt/_pillar/own.py", "pillar source own etc/master:5",
		"python _auth/sso salt/_auth/own.py", "python _returners/kept salt/_returners/kept.py", "python _wheel/site salt/_wheel/site.py",
		"python _beacons/own salt/_beacons/own.py", "python _output/own salt/_output/own.py", "python _engines/own salt/_engines/own.py", "engine own etc/master:6",
		"python _executors/own salt/_executors/own.py", "python _fileserver/ownfs salt/_fileserver/own.py", "python _utils/x salt/_utils/x.py",
		"missing python package no_such_package salt/_modules/mymore.py:1", "missing python package no_such_package salt/py.sls:4",
		"missing python package yaml_of_no_package salt/_utils/x.py:5", "python package no_such_option salt/_utils/x.py:2",
		"authentication system sso etc/master:8", "missing authentication system ldaps etc/master:8", "returner kept etc/master:9", "returner kept etc/master:10",
		"missing returner nowhere etc/master:10", "outputter own etc/master:11", "beacon own etc/minion:5",
		"executor own etc/minion:6", "missing executor docker etc/minion:6", "top file vault.server salt/top.sls:3",
	})
	if r.SLS != 10 || r.Good != 5 || !r.Missing() { // good.sls, win.sls, pillar/py.sls and two top.sls
		t.Errorf("%d of %d are good: %s", r.Good, r.SLS, r.Summary())
	}
	for _, want := range []string{
		"5 of 10 SLS files use only what Brine has; 5 need what is missing. Missing: 1 authentication system (ldaps), 1 engine (stalekey), " +
			"1 executor (docker), 2 functions (boto_ec2.find_images, vault.read_secret), ",
		"\n  vault: ext_pillar: there is no \"vault\"; use one of ", "\n      " + dir + "/etc/master:5\n",
	} {
		if !strings.Contains(r.Text(), want) {
			t.Errorf("no %q in\n%s", want, r.Text())
		}
	}
}

// TestNothingMissing: Brine has everything that the installation uses.
func TestNothingMissing(t *testing.T) {
	dir := installation(t, map[string]string{"tree/a.sls": "x:\n  pkg.installed: []\n", "pillar/b.sls": "a: b\n"})
	r := check(t, Config{Trees: []string{dir + "/tree"}, Pillars: []string{dir + "/pillar"}})
	if len(r.Findings) > 0 || r.Missing() || r.Summary() != "2 of 2 SLS files use only what Brine has. Nothing will be missing." {
		t.Errorf("%s %v", r.Summary(), r.Findings)
	}
}

// TestRecordedMinions: the SLS files of the top file are rendered with the grains and the pillar in
// the master's cache. No function runs that inspects a machine.
func TestRecordedMinions(t *testing.T) {
	dir := installation(t, map[string]string{
		"etc/master":   "root_dir: DIR\nfile_roots: {base: [DIR/salt]}\n",
		"salt/top.sls": "base:\n  'os:Debian':\n    - match: grain\n    - web\n  'db*':\n    - db\n",
		"salt/web.sls": "include:\n  - web.base\n/etc/web:\n  file.managed:\n    - mdoe: '644'\n" +
			"    - contents: {{ pillar['text'] }}\nu:\n  user.present:\n    - shel: /bin/sh\n",
		"salt/web/base.sls": "d:\n  docker_container:\n    - running\n",
		"salt/db.sls":       "{% if salt['cmd.run']('touch DIR/ran') %}\n{% endif %}\nx:\n  test.nop: []\n",
		"salt/other.sls":    "{{ nosuch.thing }}\n",
	})
	for id, d := range map[string]*value.Dict{
		"web1": value.DictOf("grains", value.DictOf("id", "web1", "os", "Debian"), "pillar", value.DictOf("text", "hello")),
		"web2": value.DictOf("grains", value.DictOf("id", "web2", "os", "Debian"), "pillar", value.NewDict(0)),
		"db1":  value.DictOf("grains", value.DictOf("id", "db1", "os", "Alpine"), "pillar", value.NewDict(0)),
	} {
		data, err := msgpack.Marshal(d, msgpack.Wire)
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, "var/cache/salt/master/minions/"+id+"/data.p", string(data))
	}
	r := check(t, Config{ConfigDir: dir + "/etc", Minions: true})
	compare(t, lines(r, dir), []string{
		"missing render web salt/web.sls:6", // of web2, which lacks the pillar
		"missing argument user.present shel salt/web.sls:9", "argument file.managed mdoe salt/web.sls:5",
		"missing state docker_container.running salt/web/base.sls:2",
		"note db salt/db.sls",
	})
	if r.Minions != 3 || r.Rendered != 3 {
		t.Errorf("%d SLS files for %d minions", r.Rendered, r.Minions)
	}
	for _, f := range r.Findings {
		if want := map[string]string{KindRender: "web2", KindState: "web1"}[f.Kind]; want != "" && !slices.Equal(f.Minions, []string{want}) {
			t.Errorf("%s concerns %v", f.Name, f.Minions)
		}
	}
	if _, err := os.Stat(dir + "/ran"); err == nil {
		t.Error("a function of a template has run")
	}
	if _, err := os.Stat(dir + "/var/cache/salt/master/brine"); err == nil {
		t.Error("the check has written to the cache of the master")
	}
}

// TestNamesEverywhere: functions, arguments and units are found that SLS files, pillar, reactions
// and options name outside of templates.
func TestNamesEverywhere(t *testing.T) {
	dir := installation(t, map[string]string{
		"etc/master": "root_dir: DIR\nfile_roots: {base: [DIR/salt]}\npillar_roots: {base: [DIR/pillar]}\nreactor:\n  - 'salt/x': [DIR/react/*.sls]\n" +
			"schedule:\n  a: {function: nosuch.run, returner: kafka}\nevent_return: kafka\ncache: mongo\nmaster_job_cache: couchdb\n",
		"etc/minion": "root_dir: DIR\nmaster: m\nmine_functions:\n" +
			"  ip: [{mine_function: vault.addrs}]\n  sa.key: {mine_function: test.ping}\nbeacons: {journald: []}\n" +
			"schedule:\n  a: {function: x509.check}\n",
		"etc/roster": "web1:\n  host: 192.0.2.1\n", "etc/cloud": "# nothing\n", "etc/proxy": "# a\nmaster: m\n",
		"react/a.sls": "go:\n  local.nosuch.go:\n    - tgt: '*'\n  runner.cloud.map_run: []\n  runner.state.orchestrate: []\n  local.test.ping: []\n" +
			"  wheel.key.nosuch: []\n",
		"salt/run.sls": "a:\n  module.run:\n    - name: vault.read\n\nb:\n  module.run:\n    - nosuch.one:\n      - x: 1\n    - test.ping: []\n\n" +
			"c:\n  cmd.run:\n    - onlyif:\n      - fun: nosuch.two\n      - test -e /x\n    - name: __slot__:salt:nosuch.three(a)\n    - cwdd: /x\n" +
			"    - shel: /x\n" +
			"d:\n  pkg: [installed, {verson: 1}]\n  service:\n    - runing\n\nextend:\n  e:\n    rvm.installed:\n      - watch:\n        - pkg: d\n",
		"salt/orch.sls": "{% set x = salt['saltutil.runner']('nosuch.look') %}\nupdate:\n  salt.function:\n    - tgt: '*'\n" +
			"    - name: nosuch.four\n    - ret: mongo\n\n" +
			"r:\n  salt.runner:\n    - name: venafi.gen\n\nnosuch.five:\n  salt.function:\n    - tgt: '*'\n\nf: {% if salt['mine.get']('*', 'x') %}a{% endif %}\n",
		"salt/proxy.sls": "start:\n  salt.function:\n    - tgt: '*'\n    - name: service.running\n",
		"salt/text.sls": "/etc/app.yml:\n  file.serialize:\n    - dataset:\n        http.host: x\n        rvm.installed: y\n/etc/y:\n" +
			"  file.managed:\n    - contents: |\n" +
			"        a:\n          rvm.installed:\n      \n    - template: wempy\n",
		"salt/kw.sls":      "{% if salt['file.file_exists'](path='/x', follow=True) %}\n{% endif %}\n{% if salt.test.echo(text='x', more=1) %}\n{% endif %}\n",
		"salt/jinja.sls":   "a:\n  test.nop: []\n{% if x | nosuchfilter %}\n{% endif %}\n",
		"salt/broken.sls":  "a:\n  test.nop: []\n b: [\n",
		"salt/latin.sls":   "a:\n  test.nop:\n    - name: \xe4\n",
		"salt/unknown.sls": "a:\n  nosuch_state.done: []\n",
		"salt/serial.sls":  "/x:\n  file.serialize:\n    - dataset_pillar: a:b\n/y:\n  file.serialize:\n    - dataset: {}\n",
		"pillar/sched.sls": "schedule:\n  job:\n    function: nosuch.six\n    returner: kafka\nmine_functions:\n  nosuch.seven: []\n  al:\n" +
			"    - mine_function: nosuch.eight\n  ca.crt:\n    mine_function: test.ping\n",
		"pillar/beacon.sls": "beacons:\n  journald: []\n  load: []\n  own:\n    - beacon_module: watchdog\n",
		"pillar/mine.sls":   "x: {{ salt['mine.get']('*', 'y') }}\n",
	})
	r := check(t, Config{ConfigDir: filepath.Join(dir, "etc")})
	got := lines(r, dir)
	for _, want := range []string{
		"missing runner nosuch.run etc/master:7", "missing returner kafka etc/master:7", "missing returner kafka etc/master:8",
		"missing cache mongo etc/master:9",
		"missing returner couchdb etc/master:10", "missing function vault.addrs etc/minion:4", "missing beacon journald etc/minion:6",
		"function x509.check etc/minion:8", "missing program salt-ssh etc/roster:1", "missing program salt-proxy etc/proxy:2",
		"missing function nosuch.go react/a.sls:2", "missing runner cloud.map_run react/a.sls:4", "missing wheel key.nosuch react/a.sls:7",
		"missing function vault.read salt/run.sls:2", "missing function nosuch.one salt/run.sls:7", "missing function nosuch.two salt/run.sls:14",
		"missing function nosuch.three salt/run.sls:16", "argument cmd.run cwdd salt/run.sls:17", "argument cmd.run shel salt/run.sls:18",
		"argument pkg.installed verson salt/run.sls:20", "state service.runing salt/run.sls:21", "missing state rvm.installed salt/run.sls:26",
		"missing runner nosuch.look salt/orch.sls:1", "missing function nosuch.four salt/orch.sls:3", "missing returner mongo salt/orch.sls:6",
		"missing runner venafi.gen salt/orch.sls:9", "missing function nosuch.five salt/orch.sls:13", "missing function mine.get salt/orch.sls:16",
		"missing renderer wempy salt/text.sls:12", "missing argument file.file_exists follow salt/kw.sls:1", "missing argument test.echo more salt/kw.sls:3",
		"missing render jinja.sls salt/jinja.sls:3", "missing render broken.sls salt/broken.sls:3", "missing render latin.sls salt/latin.sls:3",
		"state nosuch_state.done salt/unknown.sls:2", "function service.running salt/proxy.sls:2",
		"missing function nosuch.six pillar/sched.sls:3", "missing returner kafka pillar/sched.sls:4", "missing function nosuch.seven pillar/sched.sls:6",
		"missing function nosuch.eight pillar/sched.sls:8", "missing beacon journald pillar/beacon.sls:2", "missing beacon watchdog pillar/beacon.sls:5",
		"missing function mine.get pillar/mine.sls:1", "difference argument file.serialize dataset_pillar salt/serial.sls:3",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no %q", want)
		}
	}
	for _, line := range got {
		for _, not := range []string{"http.host", "salt/text.sls:5", "salt/text.sls:10", "test.ping", "etc/cloud", "load pillar",
			"runner state", "own pillar", "ca.crt",
			"sa.key"} {
			if strings.Contains(line, not) {
				t.Errorf("%q is there", line)
			}
		}
	}
	if t.Failed() {
		t.Log(strings.Join(got, "\n"))
	}
}

// TestAllPlaces: each place of a missing item is listed, in JSON all of them.
func TestAllPlaces(t *testing.T) {
	files := map[string]string{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		files["tree/"+name+".sls"] = "x:\n  rvm.installed: []\ny:\n  rvm.installed: []\n"
	}
	dir := installation(t, files)
	r := check(t, Config{Trees: []string{dir + "/tree"}})
	if len(r.Findings) != 1 || r.Findings[0].Uses != 14 || len(r.Findings[0].Places) != 14 {
		t.Fatalf("%+v", r.Findings)
	}
	found := r.Data().List("findings")[0].(*value.Dict)
	if places := value.Texts(found.At("places")); len(places) != 14 || places[13] != dir+"/tree/g.sls:4" {
		t.Errorf("JSON has the places %v", places)
	}
	if want := "and at 9 more places"; !strings.Contains(r.Text(), want) {
		t.Errorf("no %q in\n%s", want, r.Text())
	}
}

// TestNoFalseFindings checks that code of Python, documents and attributes of variables are not
// taken for calls of functions, and that a template without an engine is none.
func TestNoFalseFindings(t *testing.T) {
	dir := installation(t, map[string]string{
		"tree/files/check.py":   "import salt.client\nx = '{{ grains.id }}'\nsalt.client.Caller().cmd('x')\nsalt.nosuch.one()\n",
		"tree/files/tool":       "#!/usr/bin/env python3\nimport salt.config\nsalt.config.minion_config('{{ x }}')\n",
		"tree/files/made.py":    "x = '{{ salt.nosuch.two() }}'\n{% set y = salt.nosuch.three() %}\n{% if z %}\nsalt.config.client_config()\n",
		"tree/files/app.conf":   "{% for h in pillar.salt.minion.get('handlers') %}\n{{ h }}{{ salt.nosuch.four() }}\n{% if %}\n",
		"tree/README.md":        "Write `{{ salt['nosuch.five']() }}`.\n",
		"tree/README.rst":       "Write ``{{ salt['nosuch.six']() }}``.\n",
		"tree/a/init.sls":       "/x:\n  file.managed:\n    - template: null\n/y:\n  file.managed:\n    - template: ~\n/z:\n  file.recurse:\n    - template: False\n",
		"tree/b/init.sls":       "/x:\n  file.managed:\n    - template: wempy\n",
		"tree/_modules/own.py":  "import salt.utils.files\ndef f():\n    return salt.utils.files.fopen('x')\n",
		"tree/files/sub/README": "{{ salt['nosuch.seven']() }}",
	})
	got := lines(check(t, Config{Trees: []string{dir + "/tree"}}), dir)
	want := []string{
		"missing function nosuch.four tree/files/app.conf:2", "missing function nosuch.three tree/files/made.py:2",
		"missing function nosuch.two tree/files/made.py:1", "missing renderer wempy tree/b/init.sls:3", "python _modules/own tree/_modules/own.py",
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestMisspelt: misspelt names in options, top files, reactions and pillar are found with their lines and the
// nearest names. What exists, and what may be elsewhere, is not reported.
func TestMisspelt(t *testing.T) {
	files := map[string]string{
		"etc/master": "root_dir: DIR\nfile_roots: {base: [DIR/salt, DIR/none], dev: [DIR/dev]}\npillar_roots: {base: [DIR/pillar]}\n" +
			"reactor:\n  - 'salt/x': [DIR/react/a.sls]\n" +
			"nodegroups: {a: N@b, b: N@a}\npeer:\n  '.*': [tset.ping]\n",
		"etc/minion":  "root_dir: DIR\nmaster: m\nstartup_states: hihgstate\nschedule:\n  a:\n    function: state.highstat\n  b:\n    function: own.run\n",
		"react/a.sls": "go:\n  runer.jobs.active: []\nok:\n  runner.jobs.active: []\n",
		"salt/top.sls": "base:\n  '*':\n    - web\n    - wbe\n    - db*\n    - {{ x }}\n  'G@os:Debian and (':\n    - web\n" +
			"  'os:Debian':\n    - match: grian\n    - web.sls\n  'a':\n    - match: nodegroup\n    - web\n  b: [web, weeb]\ndev:\n  '*':\n    - app.db\n" +
			"prod:\n  '*':\n    - web\n",
		"salt/web.sls": "x:\n  test.nop: []\n", "dev/app/db/init.sls": "x:\n  test.nop: []\n", "salt/_modules/own.py": "def run():\n    pass\n",
		"pillar/top.sls": "base:\n  '*': [data, dta]\n  'x':\n    - ignore_missing: True\n    - later\n  'y': [{ignore_missing: True}, later]\n",
		"pillar/data.sls": "schedule: {a: {function: state.highstat, returner: mysqll}}\nbeacons: {laod: []}\n" +
			"mine_functions: {network.ip_adrs: [], al: [{mine_function: grains.itmes}]}\n",
	}
	dir := installation(t, files)
	r := check(t, Config{ConfigDir: dir + "/etc"})
	compare(t, lines(r, dir), []string{
		"difference option startup_states etc/minion:3", "directory " + dir + "/none etc/master:2",
		"option nodegroups etc/master:6", "option nodegroups etc/master:6", "option peer etc/master:7",
		"option startup_states etc/minion:3", "function state.highstat etc/minion:6", "reaction runer.jobs.active react/a.sls:2",
		"top file wbe salt/top.sls:4", "top file G@os:Debian and ( salt/top.sls:7", "top file os:Debian salt/top.sls:9", "top file web.sls salt/top.sls:11",
		"top file a salt/top.sls:12", "top file weeb salt/top.sls:15", "top file prod salt/top.sls:19", "top file dta pillar/top.sls:2",
		"function state.highstat pillar/data.sls:1", "missing returner mysqll pillar/data.sls:1", "missing beacon laod pillar/data.sls:2",
		"function network.ip_adrs pillar/data.sls:3", "function grains.itmes pillar/data.sls:3",
		"python _modules/own salt/_modules/own.py",
	})
	for _, want := range []string{
		"did you mean state.highstate?", "did you mean network.ip_addrs?", "did you mean grains.items?", "did you mean runner?",
		"in the environment base; did you mean web?",
		"did you mean grain?", "did you mean data?", "no root directory is configured for this environment", "nodegroup \"a\" contains itself",
	} {
		if !strings.Contains(r.Text(), want) {
			t.Errorf("no %q in\n%s", want, r.Text())
		}
	}
	// The SLS files may be in a repository that is not searched.
	files["etc/master"] += "fileserver_backend: [roots, gitfs]\n"
	dir = installation(t, files)
	for _, line := range lines(check(t, Config{ConfigDir: dir + "/etc"}), dir) {
		if strings.HasPrefix(line, "top file w") || strings.HasPrefix(line, "top file prod") {
			t.Error(line)
		}
	}
}
