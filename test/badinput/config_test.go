package badinput

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/test/daemontest"
)

// users are the programs that read a configuration, each with arguments with which it exits.
var users = map[string][][]string{
	"master": {{"salt-master", "--check-config"}, {"salt-master"}, {"salt-master", "-d"}, {"salt", "*", "test.ping"}, {"salt-key", "-L"},
		{"salt-run", "jobs.active"}},
	"minion": {{"salt-minion", "--check-config"}, {"salt-minion"}, {"salt-minion", "-d"}, {"salt-call", "--local", "test.ping"}},
}

// TestBrokenConfiguration expects the file, the line and the key of each error, and Salt's exit
// code, from every program.
func TestBrokenConfiguration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		main string
		more map[string]string // further files; KIND stands for master or minion
		want []string          // DIR and KIND are replaced
	}{
		"tab":           {main: "nodegroups:\n\tweb: x\n", want: []string{"DIR/KIND:4: ", "YAML does not allow tabs", "web: x"}},
		"indentation":   {main: "grains:\n    a: b\n  c: d\n", want: []string{"DIR/KIND:5: ", "c: d"}},
		"duplicate key": {main: "timeout: 1\ntimeout: 2\n", want: []string{"DIR/KIND:4: ", "'timeout'"}},
		"wrong type": {main: "log_level: [a]\nhash_type: what\npki_dir: {a: b}\n",
			want: []string{"DIR/KIND:3: log_level: expected ", "DIR/KIND:4: hash_type: expected sha256, ", `"what"`, "DIR/KIND:5: pki_dir: expected "}},
		"id with a slash":  {main: "id: a/b\n", want: []string{"DIR/KIND:3: id: ", `"a/b"`}},
		"id with a dot":    {main: "id: .ssh\n", want: []string{"DIR/KIND:3: id: ", "begins with a dot"}},
		"id of dots":       {main: "id: ..\n", want: []string{"DIR/KIND:3: id: ", "begins with a dot"}},
		"id with a nul":    {main: "id: \"a\\0b\"\n", want: []string{"DIR/KIND:3: id: ", "control character"}},
		"id of two lines":  {main: "id: \"a\\nb\"\n", want: []string{"DIR/KIND:3: id: ", "control character"}},
		"id with a bslash": {main: "id: a\\b\n", want: []string{"DIR/KIND:3: id: ", "backslash"}},
		"id too long":      {main: "id: " + strings.Repeat("x", 300) + "\n", want: []string{"DIR/KIND:3: id: ", "longer than 255 bytes"}},
		"broken include": {main: "include: extra/*.conf\n", more: map[string]string{"extra/a.conf": "id: x\n", "extra/b.conf": "a: [1\nb: 2\n"},
			want: []string{"DIR/extra/b.conf:2: "}},
		"broken KIND.d": {main: "", more: map[string]string{"KIND.d/a.conf": "user: x\n- y\n"}, want: []string{"DIR/KIND.d/a.conf:2: "}},
		"list in an include": {main: "include: a.conf\n", more: map[string]string{"a.conf": "- a\n- b\n"},
			want: []string{"DIR/a.conf:1: ", `"name: value"`, "list"}},
		"include loop": {main: "include: a.conf\n", more: map[string]string{"a.conf": "include: b.conf\n", "b.conf": "x.y: 1\ninclude: a.conf\n"},
			want: []string{"DIR/b.conf:2: include: ", "DIR/a.conf -> DIR/b.conf -> DIR/a.conf"}},
		"include of itself": {main: "include: KIND\n", want: []string{"include: ", "without end"}},
		"folder":            {main: "include: sub\n", more: map[string]string{"sub/x": ""}, want: []string{"DIR/sub: ", "is a directory"}},
		"binary":            {main: "id: \x00\x01\xff\xfe\n", want: []string{"DIR/KIND"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, programs := range users {
				dir := daemontest.ShortDir(t)
				put := func(file, text string) {
					path := filepath.Join(dir, strings.ReplaceAll(file, "KIND", kind))
					must(t, os.MkdirAll(filepath.Dir(path), 0o755))
					must(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "KIND", kind)), 0o644))
				}
				put("KIND", "root_dir: "+dir+"\n# "+name+"\n"+c.main)
				for file, text := range c.more {
					put(file, text)
				}
				for _, p := range programs {
					out, code := program(t, p[0], append([]string{"-c", dir}, p[1:]...)...)
					if code != 1 {
						t.Errorf("%q: exit code %d: %s", p, code, out)
					}
					for _, want := range c.want {
						demand(t, strings.Join(p, " "), out, strings.NewReplacer("DIR", dir, "KIND", kind).Replace(want))
					}
				}
				if _, err := os.Stat(filepath.Join(dir, "etc")); err == nil {
					t.Error("a directory was made although the configuration is broken")
				}
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestUnreadableConfiguration runs the programs as a user without permission to read it.
func TestUnreadableConfiguration(t *testing.T) {
	t.Parallel()
	mustBeRoot(t, "become another user")
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip(err)
	}
	for kind, programs := range users {
		dir := daemontest.ShortDir(t)
		must(t, os.WriteFile(filepath.Join(dir, kind), []byte("id: x\n"), 0o600))
		must(t, os.Chmod(dir, 0o755))
		for _, p := range programs {
			c := brine.Command(t.Context(), t, p[0], append([]string{"-c", dir}, p[1:]...)...)
			// Others cannot enter the directory of the binary either.
			c.Path = setpriv
			bin := openToAll(t, c.Args[0])
			c.Args = append([]string{"setpriv", "--reuid", "65534", "--clear-groups", bin}, c.Args[1:]...)
			out, err := c.CombinedOutput()
			if c.ProcessState == nil {
				t.Fatal(err)
			}
			if code := c.ProcessState.ExitCode(); code != 77 {
				t.Errorf("%q: exit code %d", p, code)
			}
			demand(t, strings.Join(p, " "), string(out), filepath.Join(dir, kind)+": cannot read the configuration: permission denied")
		}
	}
}

// openToAll links a file into a directory that everybody may enter.
func openToAll(t *testing.T, file string) string {
	t.Helper()
	dir := daemontest.ShortDir(t)
	must(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, filepath.Base(file))
	if err := os.Link(file, path); err != nil {
		t.Skip(err)
	}
	return path
}

// TestUnknownOptions: unknown options cause a warning with the probable name, and stop nothing.
func TestUnknownOptions(t *testing.T) {
	t.Parallel()
	for kind, programs := range users {
		dir := daemontest.ShortDir(t)
		file := filepath.Join(dir, kind)
		must(t, os.WriteFile(file, []byte("root_dir: "+dir+
			"\nid: x\nmaster: 127.0.0.1\ntimeuot: 3\nlog_fiel: x\nsomething_of_my_own: 1\nmodule.option: 2\ninterface: "+daemontest.Host()+"\n"), 0o644))
		check := programs[0]
		out, code := program(t, check[0], append([]string{"-c", dir}, check[1:]...)...)
		if code != 0 {
			t.Errorf("%q: exit code %d", check, code)
		}
		demand(t, check[0], out, "did you mean timeout?", "option=timeuot at="+file+":4", "did you mean log_file?", "at="+file+":5",
			"unknown option; keeping it for config.get option=something_of_my_own at="+file+":6", "OK: the configuration in "+file+" is fine.")
		if strings.Contains(out, "module.option") {
			t.Error("an option of a module is complained about")
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Errorf("--check-config left something: %v", entries)
		}
	}
	dir := daemontest.ShortDir(t)
	must(t, os.WriteFile(filepath.Join(dir, "minion"), []byte("root_dir: "+dir+"\nmaster: 127.0.0.1\n"), 0o644))
	if out, code := program(t, "salt-minion", "-c", dir, "--check-config"); code != 0 {
		t.Error(code, out)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("--check-config kept the guessed id: %v", entries)
	}
}

// TestCheckSeesWhatEndsAStart: --check-config finds errors that would end a start after the
// configuration was read. It also reports options of Salt that have no effect here.
func TestCheckSeesWhatEndsAStart(t *testing.T) {
	t.Parallel()
	place := "interface: " + daemontest.Host() + "\n" // whose ports are free
	for _, c := range []struct{ kind, text, want string }{
		{"master", "cache: reddis\n", `unknown value "reddis" of the option cache`},
		{"master", "master_job_cache: sseapi\n", `there is no returner "sseapi"`},
		{"master", "ext_job_cache: sseapi\n", `there is no returner "sseapi"`},
		{"master", "master_sign_pubkey: true\nmaster_use_pubkey_signature: true\n", "the signature cannot be read"},
		{"minion", "master: \"a, b\"\n", `master "a, b" is not a host name or address`},
		{"minion", "master: 127.0.0.1\nverify_master_pubkey_sign: true\n", "verify_master_pubkey_sign needs the masters' signing key"},
	} {
		dir := daemontest.ShortDir(t)
		must(t, os.WriteFile(filepath.Join(dir, c.kind), []byte("root_dir: "+dir+"\nid: x\n"+place+c.text), 0o644))
		if out, code := program(t, "salt-"+c.kind, "-c", dir, "--check-config"); code == 0 || !strings.Contains(out, c.want) {
			t.Errorf("%s%d %s, want %s", c.text, code, out, c.want)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Errorf("%s: --check-config left something: %v", c.text, entries)
		}
	}
	for kind, options := range map[string][2]string{
		"master": {"worker_threads: 9\nhgfs_remotes: [x]\nlog_granular_levels: {}\n", "worker_threads hgfs_remotes"},
		"minion": {"master: 127.0.0.1\nminion_restart_command: [x]\nsudo_user: ''\nmultiprocessing: false\n", "minion_restart_command multiprocessing"},
	} {
		dir := daemontest.ShortDir(t)
		must(t, os.WriteFile(filepath.Join(dir, kind), []byte("root_dir: "+dir+"\nid: x\n"+place+options[0]), 0o644))
		out, code := program(t, "salt-"+kind, "-c", dir, "--check-config")
		if code != 0 || strings.Contains(out, "sudo_user") || strings.Contains(out, "log_granular_levels") {
			t.Errorf("%d %s", code, out)
		}
		for _, name := range strings.Fields(options[1]) {
			demand(t, kind, out, "this option of Salt has no effect in Brine: ", "option="+name)
		}
	}
}
