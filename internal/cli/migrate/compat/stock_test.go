package compat

import (
	"slices"
	"strings"
	"testing"

	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/tools"
)

// TestCompareWithStock: the lowstates of recorded minions equal those of stock Salt. An SLS that
// stock Salt does not render either is not reported as missing.
func TestCompareWithStock(t *testing.T) {
	tree, python := tools.StockSalt(t)
	dir := installation(t, map[string]string{
		"etc/master":   "root_dir: DIR\nfile_roots: {base: [DIR/salt], dev: [DIR/dev]}\njinja_trim_blocks: true\n",
		"salt/top.sls": "base:\n  '*': [web, broken, cmd, both]\ndev:\n  'G@os:Debian and web*':\n    - match: compound\n    - other\n",
		"salt/web.sls": "include: [web.base]\n{% for n in salt['pillar.get']('users', []) %}\nuser {{ n }}:\n  user.present:\n    - name: {{ n }}\n" +
			"    - groups: [a, 0644, 1.5, yes]\n    - require_in: [pkg: nginx]\n{% endfor %}\n/etc/x:\n  file.managed:\n    - names:\n      - /a\n" +
			"      - /b: {mode: 0600}\n    - mode: 0644\n    - contents: {{ grains.os | yaml_dquote }}\n    - order: last\n",
		"salt/web/base.sls": "extend:\n  nginx:\n    pkg:\n      - version: 1.2\nnginx:\n  pkg.installed: []\n  service.running:\n    - watch: [pkg: nginx]\n",
		"salt/broken.sls":   "x: {{ nosuch.thing }}\n",
		"salt/cmd.sls":      "{% set x = salt['cmd.run']('touch DIR/ran') %}\ny:\n  test.nop: []\n",
		"salt/both.sls":     "a:\n  cmd.run:\n    - name: {{ salt.grains.filter_by({'Debian': 'apt', 'default': 'x'}, 'os') }}\n    - onlyif: [true]\n",
		"dev/other.sls":     "o:\n  test.succeed_with_changes:\n    - listen_in: [test: p]\np:\n  test.nop: []\n",
	})
	data, err := msgpack.Marshal(value.DictOf("grains", value.DictOf("id", "web1", "os", "Debian", "os_family", "Debian"),
		"pillar", value.DictOf("users", value.ListOf("amy", "bob"))), msgpack.Wire)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "var/cache/salt/master/minions/web1/data.p", string(data))
	r := checkIn(t, Config{ConfigDir: dir + "/etc", Minions: true, Stock: python, StockPath: tree})
	for _, f := range r.Findings {
		if f.Kind == KindLowstate || f.Missing {
			t.Errorf("%s %s: %s", f.Kind, f.Name, f.Why)
		}
	}
	if !strings.HasPrefix(r.Stock, "300") || r.Compared != 4 || !strings.Contains(r.Text(), "it does not render with stock Salt either") {
		t.Errorf("%d lowstates were compared with %q:\n%s", r.Compared, r.Stock, r.Text())
	}
	if isFile(dir + "/ran") {
		t.Error("a function of a template has run")
	}
}

// TestDiffer: each difference of two compilations is described.
func TestDiffer(t *testing.T) {
	low := func(kv ...any) *value.Dict { return value.DictOf(kv...) }
	a := low("state", "file", "fun", "managed", "__id__", "x", "mode", "0644", "order", int64(10))
	for _, c := range []struct {
		ours   compiled
		theirs *value.Dict
		want   string
	}{
		{compiled{chunks: []*value.Dict{a}}, low("low", value.ListOf(low("state", "file", "fun", "managed", "__id__", "x", "mode", "0644",
			"order", int64(11)))), ""},
		{compiled{chunks: []*value.Dict{a}}, low("low", value.ListOf(low("state", "file", "fun", "managed", "__id__", "x", "mode", int64(644)))),
			"file.managed of x has mode: '0644', with stock Salt 644"},
		{compiled{chunks: []*value.Dict{a}}, low("low", value.ListOf(low("state", "file", "fun", "managed", "__id__", "x"))),
			"file.managed of x has mode: '0644', with stock Salt no such argument"},
		{compiled{chunks: []*value.Dict{a}}, low("low", value.ListOf(low("state", "pkg", "fun", "installed", "__id__", "y"))),
			"runs file.managed of x where stock Salt runs pkg.installed of y"},
		{compiled{chunks: []*value.Dict{a}}, low("low", &value.List{}), "stock Salt lacks the state file.managed of x"},
		{compiled{}, low("low", value.ListOf(a)), "the state file.managed of x of stock Salt is missing"},
		{compiled{faults: []string{"why"}}, low("low", value.ListOf(a)), "does not compile: why; stock Salt compiles it"},
		{compiled{chunks: []*value.Dict{a}}, low("faults", value.ListOf("why")), "compiles; with stock Salt it does not: why"},
	} {
		if got := differ(c.ours, c.theirs); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestCovering: few minions are compared, and each SLS for at least one of them.
func TestCovering(t *testing.T) {
	by, ids := map[string][]compiled{}, []string{}
	for _, id := range strings.Split("abcdefghij", "") {
		ids = append(ids, id)
		by[id] = []compiled{{path: "common"}}
	}
	by["j"] = append(by["j"], compiled{path: "special"})
	if got := covering(ids, by); !slices.Equal(got, []string{"a", "b", "c", "j"}) {
		t.Errorf("compares %v", got)
	}
}

// TestCacheOf3008: Salt 3008 stores grains and pillar in separate banks.
func TestCacheOf3008(t *testing.T) {
	dir := installation(t, map[string]string{
		"etc/master": "root_dir: DIR\nfile_roots: {base: [DIR/salt]}\n", "salt/top.sls": "base:\n  'os:Debian':\n    - match: grain\n    - web\n",
		"salt/web.sls": "a:\n  nosuch.{{ pillar.get('x') }}: []\n",
	})
	for bank, d := range map[string]*value.Dict{"grains": value.DictOf("os", "Debian"), "pillar": value.DictOf("x", "there")} {
		text, err := msgpack.Marshal(d, msgpack.Wire)
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, "var/cache/salt/master/"+bank+"/web1.p", string(text))
	}
	r := check(t, Config{ConfigDir: dir + "/etc", Minions: true})
	if got := lines(r, dir); !slices.Equal(got, []string{"missing state nosuch.there salt/web.sls:1"}) {
		t.Errorf("found %q", got)
	}
}
