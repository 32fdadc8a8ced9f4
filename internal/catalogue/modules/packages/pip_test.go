package packages

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/shell"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/host"
	"brine/internal/py/value"
)

// pips answers as pip does, by its arguments, and records calls of cmd.run_all
// with their keywords.
type pips struct {
	m       *host.Machine
	r       *fn.Registry
	answers map[string]string
	calls   []string
}

type runArgs struct {
	Cmd    *value.List `salt:"cmd" doc:"words"`
	Kwargs fn.Kwargs   `salt:"kwargs"`
}

func newPips(t *testing.T, version string) *pips {
	t.Helper()
	p := &pips{m: &host.Machine{Root: t.TempDir()}, answers: map[string]string{"--version": "pip " + version + " from /x (python 3.11)"}}
	for _, path := range []string{"/usr/bin/python3", "/srv/venv/bin/python", "/opt/pip3.9", "/opt/empty/x"} {
		if err := p.m.WriteFile(path, nil); err != nil {
			t.Fatal(err)
		}
		if err := p.m.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := fn.Module{Name: "cmd", Doc: `x`, Funcs: []fn.Func{fn.Of("run_all", func(_ context.Context, _ *fn.Call, a runArgs) (*value.Dict, error) {
		var words []string
		for _, it := range a.Cmd.Items {
			words = append(words, value.Str(it))
		}
		p.calls = append(p.calls, strings.Join(words, " ")+" "+value.Repr(a.Kwargs.Clean()))
		_, asked, ok := strings.Cut(strings.Join(words, " "), "pip ")
		if !ok {
			_, asked, _ = strings.Cut(strings.Join(words, " "), "pip3.9 ")
		}
		out, ok := p.answers[asked]
		if !ok {
			return value.DictOf("pid", 1, "retcode", 1, "stdout", "", "stderr", "pip is sad"), nil
		}
		return value.DictOf("pid", 1, "retcode", 0, "stdout", out, "stderr", ""), nil
	}, `x`)}}
	var err error
	if p.r, err = fn.NewRegistry(nil, append(Modules(p.m), cmd)...); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pips) run(t *testing.T, fun string, arg ...any) fn.Outcome {
	t.Helper()
	p.calls = nil
	opts := value.DictOf("proxy_host", "proxy", "proxy_port", 3128)
	return p.r.Run(t.Context(), &fn.Call{Config: fn.Tree{Dict: opts}}, fn.Job{Fun: fun, Arg: arg})
}

func TestPipReading(t *testing.T) {
	p := newPips(t, "23.0.1")
	p.answers["list --format=json"] = `[{"name": "pip", "version": "23.0.1"}, {"name": "PyYAML", "version": "6.0"}]`
	p.answers["list --outdated --format=json"] = `[{"name": "PyYAML", "version": "6.0", "latest_version": "6.1", "latest_filetype": "wheel"}]`
	p.answers["freeze --all"] = "# a note\n-f /links\n-e git+https://h/a@1b#egg=edit\npip==23.0.1\nPyYAML===6.0\nodd @ file:///x"
	p.answers["index versions x --index-url https://i/"] = "x (2.0)\nAvailable versions: 2.0, 1.10, 1.10rc1, 1.9, 1.9.1a2, 1.9b1"
	for _, c := range []struct {
		fun  string
		arg  []any
		want string
	}{
		{"pip.version", nil, "'23.0.1'"},
		{"pip.list", nil, "{'pip': '23.0.1', 'PyYAML': '6.0'}"},
		{"pip.list", []any{"py"}, "{'PyYAML': '6.0'}"},
		{"pip.is_installed", []any{"pyyaml"}, "True"},
		{"pip.is_installed", []any{"pyya"}, "False"},
		{"pip.freeze", nil, "['# a note', '-f /links', '-e git+https://h/a@1b#egg=edit', 'pip==23.0.1', 'PyYAML===6.0', 'odd @ file:///x']"},
		{"pip.list_freeze_parse", nil, "{'pip': '23.0.1', 'edit': 'git+https://h/a@1b', 'PyYAML': '6.0'}"},
		{"pip.list_freeze_parse", []any{"py"}, "{'PyYAML': '6.0'}"},
		{"pip.list_upgrades", nil, "{'PyYAML': '6.1 [wheel]'}"},
		{"pip.upgrade_available", []any{"PyYAML"}, "True"},
		{"pip.upgrade_available", []any{"pip"}, "False"},
		{"pip.list_all_versions", []any{"x", "index_url=https://i/"}, "['1.9', '1.10', '2.0']"},
		{"pip.list_all_versions", []any{"x", "index_url=https://i/", "include_rc=true", "include_beta=true"}, "['1.9b1', '1.9', '1.10rc1', '1.10', '2.0']"},
		{"pip.list_all_versions", []any{"y"}, "None"},
		{"pip.list_all_versions", []any{"-y"}, `'ERROR executing \'pip.list_all_versions\': "-y" is no package; options go into extra_args'`},
		{"pip.version", []any{"/opt/empty"}, `"Command required for 'pip.version' not found: Could not find a pip binary in virtualenv /opt/empty"`},
		{"pip.version", []any{"/none"}, `"Command required for 'pip.version' not found: Access denied to /none, could not find a pip binary"`},
	} {
		if got := value.Repr(p.run(t, c.fun, c.arg...).Return); got != c.want {
			t.Errorf("%s %v: got  %s\nwant %s", c.fun, c.arg, got, c.want)
		}
	}
	delete(p.answers, "freeze --all")
	if o := p.run(t, "pip.freeze"); o.Return != "ERROR: pip is sad" {
		t.Errorf("%+v", o)
	}
	old := newPips(t, "8.1")
	old.answers["freeze --all"] = "a==1"
	old.answers["list --outdated"] = "a (1) - Latest: 2 [wheel]\nodd"
	if o := old.run(t, "pip.list"); value.Repr(o.Return) != "{'pip': '8.1', 'a': '1'}" {
		t.Errorf("%v", value.Repr(o.Return))
	}
	if o := old.run(t, "pip.list_upgrades"); value.Repr(o.Return) != "{'a': '2 [wheel]'}" {
		t.Errorf("%v", value.Repr(o.Return))
	}
}

func TestPipInstall(t *testing.T) {
	p := newPips(t, "23.0.1")
	log := filepath.Join(t.TempDir(), "log")
	const plain = "/usr/bin/python3 -m pip install"
	for _, c := range []struct {
		arg  []any
		want string
	}{
		{[]any{"a,b==1", "proxy=false"}, plain + " a b==1 {'python_shell': False}"},
		{[]any{"a>1;<2"}, plain + " --proxy http://proxy:3128 a>1,<2 {'python_shell': False}"},
		{[]any{value.ListOf("a", "b"), "bin_env=/srv/venv", "upgrade=true", "proxy=false", "user=root", "env_vars={N: 1}", "timeout=5"},
			"/srv/venv/bin/python -m pip install --timeout 5 --upgrade a b {'python_shell': False, 'runas': 'root', 'env': {'N': '1', 'VIRTUAL_ENV': " +
				"'/srv/venv'}}"},
		{[]any{"a", "bin_env=/opt/pip3.9", "proxy=http://p", "cwd=/srv", "no_binary=':all:'", "cache_dir=/c", "target=/t", "exists_action=w",
			"extra_args=[{--x: 1}, --y]", "pre_releases=true", "use_wheel=true", "log=" + log},
			"/opt/pip3.9 install --no-binary :all: --log " + log +
				" --proxy http://p --target /t --cache-dir /c --exists-action w --pre a --x 1 --y {'python_shell': False, 'cwd': '/srv'}"},
		{[]any{"requirements=/r.txt", "proxy=false", "index_url=https://i", "find_links=/,http://l"},
			plain + " --requirement /r.txt --find-links / --find-links http://l --index-url https://i {'python_shell': False}"},
		{[]any{"editable=git+https://h/x#egg=x", "proxy=false", "ignore_retcode=true"},
			plain + " --editable git+https://h/x#egg=x {'ignore_retcode': True, 'python_shell': False}"},
	} {
		o := p.run(t, "pip.install", c.arg...)
		if last := p.calls[len(p.calls)-1]; last != c.want {
			t.Errorf("%v: ran  %s\nwant %s\n%+v", c.arg, last, c.want, o)
		}
	}
	for _, c := range []struct {
		arg  []any
		want string
	}{
		{nil, "{'retcode': 0, 'stdout': 'No packages to install.'}"},
		{[]any{"-x"}, `'ERROR executing \'pip.install\': "-x" is no package; options go into extra_args'`},
		{[]any{"a", "index_url=x"}, `"ERROR: 'x' is not a valid URL"`},
		{[]any{"a", "no_index=true", "index_url=https://i"}, `"ERROR: 'no_index' and ('index_url' or 'extra_index_url') are mutually exclusive."`},
		{[]any{"a", "find_links=nowhere"}, `"ERROR: 'nowhere' is not a valid URL or path"`},
		{[]any{"a", "timeout=1.5"}, `"ERROR: '1.5' is not a valid timeout, must be an integer"`},
		{[]any{"a", "exists_action=x"}, `"ERROR: The exists_action pip option only supports the values s, i, w, and b. 'x' is not valid."`},
		{[]any{"a", "mirrors=http://m"}, "'ERROR: pip >= 7.0.0 does not support mirror argument: use index_url and/or extra_index_url instead'"},
		{[]any{"editable=git+https://h/x"}, "'ERROR: You must specify an egg for this editable'"},
		{[]any{"a", "log=/"}, `"ERROR: '/' is a directory. Use --log path_to_file"`},
		{[]any{"a", "env_vars=x"}, "'ERROR: env_vars x is not a dictionary'"},
		{[]any{"requirements=salt://none.txt"}, "{'result': False, 'comment': \"pip requirements file 'salt://none.txt' not found\"}"},
	} {
		if got := value.Repr(p.run(t, "pip.install", c.arg...).Return); got != c.want {
			t.Errorf("%v: got  %s\nwant %s", c.arg, got, c.want)
		}
	}
	p.run(t, "pip.uninstall", "a,b", "proxy=false", "bin_env=/srv/venv")
	if want := "/srv/venv/bin/python -m pip uninstall -y a b {'python_shell': False, 'env': {'VIRTUAL_ENV': '/srv/venv'}}"; p.calls[0] != want {
		t.Errorf("ran %q", p.calls)
	}
}

func TestPipUpgrade(t *testing.T) {
	p := newPips(t, "23.0.1")
	p.answers["list --format=json"] = `[{"name": "a", "version": "1"}]`
	p.answers["list --outdated --format=json"] = `[{"name": "a", "version": "1", "latest_version": "2", "latest_filetype": "wheel"}]`
	if got := value.Repr(p.run(t, "pip.upgrade").Return); got != "{'changes': {}, 'result': False, 'comment': 'pip is sad'}" {
		t.Errorf("%s", got)
	}
}

// TestPipRequirements copies a file for a user who cannot read the cache.
func TestPipRequirements(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	p := newPips(t, "23.0.1")
	for path, text := range map[string]string{"/etc/passwd": "fred:x:1234:1234::/:/bin/sh\n", "/q/r.txt": "a # -r none.txt\n-r more/s.txt\n",
		"/q/more/s.txt": "-r s.txt\nb\n"} {
		if err := p.m.WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	p.answers["--version"] = "pip 23.0.1"
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	p.run(t, "pip.install", "requirements=/q/r.txt", "user=fred", "proxy=false")
	_, rest, _ := strings.Cut(p.calls[len(p.calls)-1], "--requirement ")
	file, _, _ := strings.Cut(rest, " ")
	if filepath.Base(file) != "r.txt" || !strings.HasPrefix(file, dir) {
		t.Errorf("ran %q", p.calls)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if o := p.run(t, "pip.install", "requirements=/q/none.txt", "user=fred"); o.Success {
		t.Errorf("%+v", o)
	}
	copied, remove, err := pip{p.m}.copyFor(t.Context(), "fred", "/q", "r.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	for _, name := range []string{"r.txt", "s.txt"} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(copied), name)); err != nil {
			t.Error(err)
		}
	}
}

// TestPipLikeSaltHere compares what Salt and Brine report about the pip of
// this machine.
func TestPipLikeSaltHere(t *testing.T) {
	const python = "/usr/bin/python3"
	jobs := [][]any{{"pip.version", python}, {"pip.list", "bin_env=" + python}, {"pip.list", "p", python}, {"pip.freeze", python},
		{"pip.list_freeze_parse", "p", python}, {"pip.is_installed", "pip", python},
		{"pip.is_installed", "no-such-package", python}, {"pip.install", "bin_env=" + python}, {"pip.version", "/no/such"},
		{"pip.install", "x", "bin_env=" + python, "index_url=nonsense"}}
	recorded := stocktest.Ask(t, nil, jobs...)
	if _, ok := recorded[1].At("return").(*value.Dict); !ok {
		t.Skip("this machine has no pip")
	}
	r, err := fn.NewRegistry(nil, append(Modules(&host.Machine{}), shell.Modules()...)...)
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range recorded {
		if got := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: j.Str("fun"), Arg: jobs[i][1:]}); !value.Equal(got.Return, j.At("return")) {
			t.Errorf("%v: returns %s\nSalt: %s", jobs[i], value.Repr(got.Return), value.Repr(j.At("return")))
		}
	}
}

// TestNeedRestart parses the output of checkrestart.
func TestNeedRestart(t *testing.T) {
	f := newFake(t)
	if o := f.run(t, "pkg.services_need_restart"); !strings.HasPrefix(value.Str(o.Return),
		"Command required for 'pkg.services_need_restart' not found: 'checkrestart' is needed.") {
		t.Errorf("%+v", o)
	}
	if err := f.WriteFile("/usr/sbin/checkrestart", nil); err != nil {
		t.Fatal(err)
	}
	if err := f.Chmod("/usr/sbin/checkrestart", 0o755); err != nil {
		t.Fatal(err)
	}
	f.answers["checkrestart --machine --package"] = "PACKAGE: x\nSERVICE:ssh,8,sshd\nSERVICE:cron,9,cron\nSERVICE:ssh,10,sshd"
	if o := f.run(t, "pkg.services_need_restart"); value.Repr(o.Return) != "['cron', 'ssh']" {
		t.Errorf("%v", value.Repr(o.Return))
	}
}

func TestLowpkg(t *testing.T) {
	f := newFake(t)
	f.answers["dpkg-query -f=${db:Status-Status}\t${binary:Package}\t${Version}\n -W bash"] = "installed\tbash\t5\nconfig-files\told\t1"
	if o := f.run(t, "lowpkg.list_pkgs", "bash"); value.Repr(o.Return) != "{'bash': '5'}" {
		t.Errorf("%v", value.Repr(o.Return))
	}
	f.calls = nil
	if o := f.run(t, "lowpkg.list_pkgs", "-x"); o.Success || len(f.calls) != 0 {
		t.Errorf("%+v, ran %q", o, f.calls)
	}
	if o := f.run(t, "lowpkg.list_pkgs", "none"); !strings.HasPrefix(value.Str(o.Return), "Error:  ") {
		t.Errorf("%+v", o)
	}
}
