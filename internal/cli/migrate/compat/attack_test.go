package compat

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/tools"
)

// minionOf writes the master's cached data of a minion.
func minionOf(t *testing.T, dir, id string) {
	t.Helper()
	data, err := msgpack.Marshal(value.DictOf("grains", value.DictOf("id", id), "pillar", value.NewDict(0)), msgpack.Wire)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "var/cache/salt/master/minions/"+id+"/data.p", string(data))
}

// attacks returns SLS files that try to run a program that creates a file ran-NAME, to connect to
// an address, or to wait forever.
func attacks(address string) map[string]string {
	host, port, _ := strings.Cut(address, ":")
	files := map[string]string{
		"py":     "#!py\nimport os\nos.system('touch DIR/ran-py')\ndef run():\n    return {}\n",
		"pipe":   "#!jinja|py\nimport os\nos.system('touch DIR/ran-pipe')\ndef run():\n    return {}\n",
		"gpg":    "#!yaml|gpg\nx:\n  test.nop:\n    - y: |\n        -----BEGIN PGP MESSAGE-----\n\n        aaaa\n        -----END PGP MESSAGE-----\n",
		"mako":   "#!mako|yaml\n<% import os; os.system('touch DIR/ran-mako') %>\nx:\n  test.nop: []\n",
		"conf":   "#!stateconf -o py . mako\nimport os\nos.system('touch DIR/ran-conf')\ndef run():\n    return {}\n",
		"call":   "{% set x = salt['cmd.run']('touch DIR/ran-call') %}\nx:\n  test.nop: []\n",
		"real":   "{% set x = salt.real['cmd.run']('touch DIR/ran-real') %}\nx:\n  test.nop: []\n",
		"loader": "{% set x = salt['grains.get'].loader['cmd.run']('touch DIR/ran-loader') %}\nx:\n  test.nop: []\n",
		"map":    "{% set x = salt['jinja.load_map']('map.jinja', 'x') %}\nx:\n  test.nop: []\n",
		"http":   "{% set x = 'http://" + address + "/' | http_query %}\nx:\n  test.nop: []\n",
		"dns":    "{% set x = '" + host + "' | dns_check(" + port + ") %}\nx:\n  test.nop: []\n",
		"fifo":   "{% set x = 'DIR/fifo' | file_hashsum %}\nx:\n  test.nop: []\n",
		"zero":   "{% set x = '/dev/zero' | file_hashsum %}\nx:\n  test.nop: []\n",
		"list":   "{% set x = '/' | list_files %}\nx:\n  test.nop: []\n",
		"slot":   "x:\n  test.nop:\n    - y: __slot__:salt:cmd.run(touch DIR/ran-slot)\n",
		"sdb":    "x:\n  test.nop:\n    - y: {{ salt['config.get']('sdb://own/x') }}\n",
		"url":    "{% import_text 'http://" + address + "/x' as x %}\nx:\n  test.nop:\n    - y: {{ x }}\n",
		"both":   "include: [http://" + address + "/y]\nx:\n  test.nop: []\n",
	}
	out := map[string]string{"salt/map.jinja": "{% set x = salt['cmd.run']('touch DIR/ran-map') %}\n",
		"salt/_modules/own.py":   "import os\nos.system('touch DIR/ran-module')\ndef go():\n    pass\n",
		"salt/_renderers/own.py": "import os\nos.system('touch DIR/ran-renderer')\ndef render(*a, **k):\n    return {}\n"}
	var names []string
	for name, text := range files {
		out["salt/"+name+".sls"], out["pillar/"+name+".sls"] = text, text
		names = append(names, name)
	}
	slices.Sort(names)
	top := "base:\n  '*': [" + strings.Join(names, ", ") + "]\n"
	out["salt/top.sls"], out["pillar/top.sls"] = top, top
	out["etc/master"] = "root_dir: DIR\nfile_roots: {base: [DIR/salt]}\npillar_roots: {base: [DIR/pillar]}\n" +
		"master_tops: {ext_nodes: DIR/program}\next_pillar: [{cmd_yaml: DIR/program}]\n" +
		"own: {driver: sqlite3, database: DIR/ran-sdb, create_table: true}\nexternal_auth: {pam: {root: [.*]}}\n"
	return out
}

// TestNothingRuns: the check of a hostile tree runs nothing, connects to nothing and ends.
func TestNothingRuns(t *testing.T) {
	l, dir := trap(t)
	r := checkIn(t, Config{ConfigDir: dir + "/etc", Minions: true})
	sprung(t, l, dir)
	for _, name := range []string{"dns", "fifo", "zero", "list", "http", "call", "map"} {
		if !slices.ContainsFunc(r.Findings, func(f Finding) bool {
			return f.Kind == KindNote && f.Name == name && strings.Contains(f.Why, "depends on the minion's machine")
		}) {
			t.Errorf("no note that %s.sls was not rendered", name)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(lines(r, dir), "\n"), r.Findings)
	}
}

// TestNothingRunsWithStockSalt: the compilation by stock Salt runs nothing either.
func TestNothingRunsWithStockSalt(t *testing.T) {
	tree, python := tools.StockSalt(t)
	l, dir := trap(t)
	r := checkIn(t, Config{ConfigDir: dir + "/etc", Minions: true, Stock: python, StockPath: tree})
	sprung(t, l, dir)
	if r.Stock == "" {
		t.Errorf("nothing was compared: %s", r.Text())
	}
}

// trap writes a hostile tree. It returns the listener to which the tree tries to connect.
func trap(t *testing.T) (net.Listener, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	dir := installation(t, attacks(l.Addr().String()))
	minionOf(t, dir, "m")
	for _, name := range []string{"bin/gpg", "program"} {
		write(t, dir, name, fmt.Sprintf("#!/bin/sh\ntouch %s/ran-%s\n", dir, strings.ReplaceAll(name, "/", "-")))
		if err := os.Chmod(dir+"/"+name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+"/bin:"+os.Getenv("PATH"))
	if err := syscall.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	return l, dir
}

// sprung reports what the hostile tree achieved.
func sprung(t *testing.T, l net.Listener, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "ran") {
			t.Errorf("the tree has achieved %s", e.Name())
		}
	}
	l.(*net.TCPListener).SetDeadline(time.Now().Add(10 * time.Millisecond))
	if conn, err := l.Accept(); err == nil {
		conn.Close()
		t.Error("the tree has made a connection")
	}
}

// TestLinesAreBounded: the search for the lines of many states ends.
func TestLinesAreBounded(t *testing.T) {
	dir := t.TempDir()
	const n = 50_000
	write(t, dir, "x.sls", strings.Repeat("other:\n", n))
	var index lineIndex
	for range 2 * maxLooked / n {
		index.of(dir+"/x.sls").find("nosuch", "nosuch.x")
	}
	if looked := index.of(dir + "/x.sls").looked; looked > maxLooked {
		t.Errorf("%d comparisons", looked)
	}
}

// TestPlacesAreBounded: the places of one finding are bounded, and all are counted.
func TestPlacesAreBounded(t *testing.T) {
	c := &checker{findings: map[string]*Finding{}}
	for range 2 {
		for i := range maxPlaces {
			c.add(Finding{Kind: KindState, Name: "x.y", Places: at("a.sls", i)})
		}
	}
	if f := c.findings["state x.y"]; len(f.Places) != maxPlaces || f.Uses < maxPlaces {
		t.Errorf("%d places of %d uses", len(f.Places), f.Uses)
	}
}

// TestNamesOfPython: no name of a Python module makes the check fail.
func TestNamesOfPython(t *testing.T) {
	dir := installation(t, map[string]string{
		"etc/master":   "root_dir: DIR\nfile_roots: {base: [DIR/salt]}\npillar_roots: {base: [DIR/pillar]}\n",
		"salt/top.sls": "base:\n  '*': [x]\n", "salt/x.sls": "x:\n  test.nop: []\n",
		"salt/_modules/a.b.py": "def go():\n    pass\n", "salt/_modules/.py": "def go():\n    pass\n", "salt/_modules/é -.py": "def go():\n    pass\n",
		"salt/_modules/test.py":      "def ping():\n    pass\ndef ping():\n    pass\ndef _():\n    pass\n",
		"salt/_modules/new\nline.py": "def a_():\n    pass\ndef a():\n  pass\n",
		"salt/_modules/v.py":         "__virtualname__ = 'cmd'\ndef run():\n    pass\n",
	})
	minionOf(t, dir, "m")
	r := checkIn(t, Config{ConfigDir: dir + "/etc", Minions: true})
	if r.Rendered != 1 || r.Failed != 0 {
		t.Errorf("%d of %d rendered: %s", r.Rendered-r.Failed, r.Rendered, r.Text())
	}
}
