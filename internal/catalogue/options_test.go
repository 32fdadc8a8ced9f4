package catalogue

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// TestHyphens calls functions with values that look like options. The programs are scripts that print
// their arguments: such a value comes after "--", or the function refuses it and runs nothing.
func TestHyphens(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	log := filepath.Join(dir, "log")
	const refused = "refused"
	for _, c := range []struct {
		program, fun string
		args         []any
		want         string
	}{
		{"helm", "helm.install", []any{"web", "--post-renderer=/x", "namespace=n"}, "install web --namespace n -- --post-renderer=/x"},
		{"helm", "helm.repo_add", []any{"-n", "https://x"}, "repo add -- -n https://x"},
		{"helm", "helm.uninstall", []any{"web"}, "uninstall web"},
		{"ipset", "ipset.delete_set", []any{"-file"}, refused},
		{"ipset", "ipset.add", []any{"s", "10.0.0.1 -file /x"}, refused},
		{"semanage", "selinux.fcontext_add_policy", []any{"-x", "sel_type=t"}, "fcontext --add --type t -- -x"},
		{"setsebool", "selinux.setsebool", []any{"-N", "on", "persist=true"}, "-P -- -N on"},
		{"restorecon", "selinux.fcontext_apply_policy", []any{"-f"}, "-v -F -- -f"},
		{"gem", "gem.uninstall", []any{"--config-file=x"}, refused},
		{"gem", "gem.update", []any{"rake"}, "update rake"},
		{"gem", "gem.install", []any{"rake", "proxy=--config-file=x"}, refused},
		{"a2dismod", "apache.a2dismod", []any{"--purge"}, refused},
		{"a2ensite", "apache.a2ensite", []any{"-m"}, refused},
		{"npm", "npm.uninstall", []any{"--prefix=/x", "dir=" + dir}, "uninstall -- --prefix=/x"},
		{"git", "git.ls_remote", []any{dir, "remote=--upload-pack=x"}, "ls-remote -- --upload-pack=x"},
		{"git", "git.remote_refs", []any{"--upload-pack=x", "heads=true"}, "ls-remote --heads -- --upload-pack=x"},
		{"git", "git.fetch", []any{dir, "remote=--upload-pack=x"}, "fetch -- --upload-pack=x"},
		{"git", "git.push", []any{dir, "--receive-pack=x", "main"}, "push -- --receive-pack=x main"},
		{"git", "git.branch", []any{dir, "-D"}, "branch -- -D"},
		{"hg", "hg.update", []any{dir, "-1"}, "update -- -1"},
		{"hg", "hg.clone", []any{dir, "--config=x"}, "clone -- --config=x " + dir},
		{"htpasswd", "webutil.userdel", []any{"-c", "joe"}, "-D -- -c joe"},
		{"rabbitmqctl", "rabbitmq.delete_user", []any{"-n"}, refused},
		{"pg_dropcluster", "postgres.cluster_remove", []any{"15", "--stop"}, refused},
		{"vgremove", "lvm.vgremove", []any{"--config=x"}, "--yes -- --config=x"},
		{"lvcreate", "lvm.lvcreate", []any{"a", "--config=x", "size=1"}, "-n a -L 1 -qq -- --config=x"},
		{"pvcreate", "lvm.pvcreate", []any{"--config=x"}, "--yes -- --config=x"},
		{"zip", "archive.cmd_zip", []any{"-TT", "/x"}, refused},
		{"unzip", "archive.cmd_unzip", []any{"-Z", "/x"}, refused},
		{"zip", "archive.cmd_zip", []any{"/x.zip", "-TT"}, "-r /x.zip -- -TT"},
	} {
		t.Run(c.fun, func(t *testing.T) {
			at := t.TempDir()
			t.Setenv("PATH", at+":/usr/bin:/bin")
			names := []string{"semanage", "setsebool", "semodule", "restorecon", "lvm", "pvdisplay", "ipset", c.program}
			write(t, filepath.Join(dir, "-c"), "")
			write(t, filepath.Join(dir, "--config=x"), "")
			for _, name := range names {
				script := "#!/bin/sh\n"
				if name == c.program {
					script += "echo \"$*\" >>" + log + "\n"
				}
				write(t, filepath.Join(at, name), script)
			}
			write(t, log, "")
			r, err := fn.NewRegistry(fn.Tree{Dict: value.DictOf("os_family", "Debian", "kernel", "Linux")}, Modules()...)
			if err != nil {
				t.Fatal(err)
			}
			o := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: c.fun, Arg: c.args})
			said, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(string(said)), "\n")
			switch last := lines[len(lines)-1]; {
			case c.want != refused:
				if last != c.want {
					t.Errorf("ran %q, want %q; %v", lines, c.want, o.Return)
				}
			case o.Success || !strings.Contains(value.Str(o.Return), "begin with a hyphen"):
				t.Errorf("returned %v", o.Return)
			case strings.Contains(string(said), value.Str(c.args[len(c.args)-1])):
				t.Errorf("ran %q", lines)
			}
		})
	}
}

// TestRealHyphens shows that real programs take "--" as Operands needs it.
func TestRealHyphens(t *testing.T) {
	m := &host.Machine{}
	for _, c := range []struct{ program, want string }{{"hg", "-x"}, {"vgs", "-x"}, {"htpasswd", "-x"}} {
		if m.Which(c.program) == "" {
			continue
		}
		args := map[string][]string{"hg": {"clone"}, "vgs": nil, "htpasswd": {"-bv"}}[c.program]
		out, err := m.Do(t.Context(), c.program, append(args, host.Operands("-x", "joe", "p")...)...)
		if text := out.Stdout + out.Stderr; err != nil || out.Exit == 0 || strings.Contains(text, "invalid option") || strings.Contains(text, "Usage") {
			t.Errorf("%s: %v %s", c.program, err, text)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}
