package compat

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// TestHostileTree: an endless or too large file is a finding, and the rest of the tree is checked.
func TestHostileTree(t *testing.T) {
	dir := installation(t, map[string]string{
		"etc/master":            "root_dir: DIR\nfile_roots: {base: [DIR/salt]}\npillar_roots: {base: [DIR/pillar]}\n",
		"salt/good.sls":         "x:\n  rvm.installed: []\n",
		"salt/sub/deep.sls":     "x:\n  rvm.installed: []\n",
		"salt/_modules/own.py":  "def go():\n    pass\n",
		"salt/bomb.sls":         "a: &a [x, x, x, x, x, x, x, x, x]\n" + aliases("abcdefghij"),
		"salt/nest.sls":         strings.Repeat("[", 100_000) + "\n",
		"salt/indent.sls":       indented(20_000),
		"salt/jinja.sls":        "{% for a in range(10**9) %}{% for b in range(10**9) %}{{ a }}{% endfor %}{% endfor %}\n",
		"salt/grow.sls":         "{% set x = ['y'] %}{% for a in range(60) %}{% set _ = x.extend(x) %}{% endfor %}a: {{ x }}\n",
		"salt/open.sls":         strings.Repeat("{{ ", 50_000) + "\n" + strings.Repeat("{% if ", 50_000),
		"salt/bytes.sls":        "a:\n  \xff\xfe: x\n",
		"salt/top.sls":          "base:\n  '*': [jinja, grow, bomb, nest, loop, good]\n",
		"salt/loop.sls":         "include: [loop]\n",
		"salt/line\x1b[2J.sls":  "x:\n  rvm.removed: []\n",
		"salt/new\nline.sls":    "x:\n  rvm.gemset_present: []\n",
		"pillar/jinja.sls":      "{% for a in range(10**9) %}{% for b in range(10**9) %}{{ a }}{% endfor %}{% endfor %}\n",
		"pillar/top.sls":        "base:\n  '*': [jinja, fifo]\n",
		"salt/_states/big.py":   "",
		"etc/master.d/own.conf": "timeout: 7\n",
	})
	link := func(to, from string) {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	link(".", "salt/self")
	link("..", "salt/sub/up")
	link("circle", "salt/circle")
	link("/nonexistent", "salt/gone.sls")
	link("sub", "salt/again")
	link("/dev/zero", "salt/zero.sls")
	for _, name := range []string{"salt/fifo.sls", "salt/fifo.jinja", "salt/_modules/fifo.py", "pillar/fifo.sls", "etc/roster", "etc/master.d/fifo.conf"} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"salt/huge.sls", "salt/huge.jinja", "salt/_states/big.py"} { // sparse files
		if err := os.Truncate(touch(t, dir, name), 1<<40); err != nil {
			t.Fatal(err)
		}
	}
	data, err := msgpack.Marshal(value.DictOf("grains", value.DictOf("id", "m"), "pillar", value.NewDict(0)), msgpack.Wire)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"m", "n"} {
		write(t, dir, "var/cache/salt/master/minions/"+id+"/data.p", string(data))
	}
	if err := os.MkdirAll(filepath.Join(dir, "var/cache/salt/master/minions/f"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "var/cache/salt/master/minions/f/data.p"), 0o600); err != nil {
		t.Fatal(err)
	}

	// The configuration includes a FIFO; that is its only error.
	r := checkIn(t, Config{ConfigDir: dir + "/etc"})
	if got := lines(r, dir); len(got) == 0 || !strings.Contains(r.Text(), "fifo.conf: cannot read the configuration: it is not a regular file") {
		t.Errorf("the configuration is not found to be unreadable: %s", r.Text())
	}
	if err := os.Remove(dir + "/etc/master.d/fifo.conf"); err != nil {
		t.Fatal(err)
	}
	r = checkIn(t, Config{ConfigDir: dir + "/etc", Minions: true})
	text := r.Text()
	got := lines(r, dir)
	for _, want := range []string{
		"missing unread " + dir + "/salt/fifo.sls salt/fifo.sls",
		"missing unread " + dir + "/salt/_modules/fifo.py salt/_modules/fifo.py", "missing unread " + dir + "/pillar/fifo.sls pillar/fifo.sls",
		"missing unread " + dir + "/salt/huge.sls salt/huge.sls", "missing unread " + dir + "/salt/_states/big.py salt/_states/big.py",
		"missing unread " + dir + "/salt/zero.sls salt/zero.sls", "missing unread " + dir + "/salt/gone.sls salt/gone.sls",
		"missing unread " + dir + "/etc/roster etc/roster", "missing render bytes.sls salt/bytes.sls:2", "missing render bomb.sls salt/bomb.sls:0",
		"missing state rvm.installed salt/good.sls:2", "missing state rvm.removed salt/line\x1b[2J.sls:2", "note f var/cache/salt/master",
	} {
		if !slices.ContainsFunc(got, func(s string) bool {
			return s == want || strings.HasPrefix(want, "missing render bomb") && strings.HasPrefix(s, want[:25])
		}) {
			t.Errorf("no %q", want)
		}
	}
	for _, want := range []string{"jinja", "grow"} {
		if !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind == KindRender && strings.Contains(f.Name, want) }) {
			t.Errorf("%s.sls renders", want)
		}
	}
	if n := strings.Count(text, "sub/deep.sls:2") + strings.Count(text, "again/deep.sls:2"); n != 1 {
		t.Errorf("a directory with two names counts %d times", n)
	}
	if strings.ContainsAny(text, "\x1b\x00") || strings.Contains(text, "new\nline") {
		t.Error("a name of a file reaches the terminal with its control characters")
	}
	if t.Failed() {
		t.Log(strings.Join(got, "\n"))
	}
}

// checkIn is check with a timeout.
func checkIn(t *testing.T, cfg Config) *Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cfg.Getenv, cfg.Log = func(string) string { return "" }, slog.New(slog.DiscardHandler)
	r, err := Check(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func touch(t *testing.T, dir, name string) string {
	t.Helper()
	write(t, dir, name, "")
	return filepath.Join(dir, name)
}

// aliases returns YAML lists, each with nine aliases of the one before it.
func aliases(names string) string {
	var b strings.Builder
	for i := 1; i < len(names); i++ {
		prev := "*" + names[i-1:i]
		b.WriteString(names[i:i+1] + ": &" + names[i:i+1] + " [" + strings.Repeat(prev+", ", 8) + prev + "]\n")
	}
	return b.String()
}

// indented returns nested keys.
func indented(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i%500) + "a:\n")
	}
	return b.String()
}

// FuzzOutline: for any input, the lines of the outline are in the input and in order.
func FuzzOutline(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"a:\n  pkg.installed:\n    - name: x\n", "a: |\n  b: c\nd:\n- e: f\n- - g\n",
		"{% if x %}\n'a': \"b\" # c\n{% endif %}{{ d\n }}: x", "- - - a: b: c\n",
		"extend:\n  a:\n    file:\n    - managed\n    - {x: y}\n", "a:\n b:\n  - onlyif:\n    - fun: x.y\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		last, count := 0, strings.Count(s, "\n")+1
		outline(s, func(l line) {
			if l.number < last || l.number > count {
				t.Fatalf("line %d after %d of %d", l.number, last, count)
			}
			last = l.number
		})
		(&text{}).read(s)
	})
}
