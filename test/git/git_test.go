// Package git runs masters and minions whose files and pillar come from git.
package git

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/gittest"
)

func TestMain(m *testing.M) { daemontest.Main(m) }

// commit commits files to a repository, which it creates if necessary.
func commit(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if _, err := os.Stat(dir); err != nil {
		gittest.Run(t, filepath.Dir(dir), "init", "--quiet", "--initial-branch=main", dir)
	}
	gittest.Write(t, dir, files)
	gittest.Run(t, dir, "add", "-A")
	gittest.Run(t, dir, "commit", "--quiet", "-m", "x")
}

// run runs a runner and returns its result.
func run(t *testing.T, n *daemontest.Node, args ...string) any {
	t.Helper()
	out, errs, code := n.Run(daemontest.Brine, "salt-run", append([]string{"--out=json"}, args...)...)
	var v any
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v: %v (%d)\n%s%s", args, err, code, out, errs)
	}
	return v
}

// TestStatesFromGit: a minion runs states whose files and pillar come from git, gets pushed
// changes, and continues while the repositories are unreachable. Two masters share the fetched
// data.
func TestStatesFromGit(t *testing.T) {
	t.Parallel()
	base, shared := t.TempDir(), t.TempDir()
	files, pillar := base+"/files", base+"/pillar"
	target := filepath.Join(base, "target")
	commit(t, files, map[string]string{"top.sls": "base:\n  '*': [web]\n", "web/init.sls": target +
		":\n  file.managed:\n    - source: salt://web/text\n    - template: jinja\n", "web/text": "one {{ pillar['who'] }}\n"})
	commit(t, pillar, map[string]string{"top.sls": "base:\n  '*': [who]\n", "who.sls": "who: alice\n"})
	conf := fmt.Sprintf(`
fileserver_backend: [git, roots]
fileserver_events: True
gitfs_base: main
gitfs_update_interval: 1
gitfs_remotes: ['file://%s']
git_pillar_base: main
git_pillar_update_interval: 1
ext_pillar:
  - git:
    - main file://%s
`, files, pillar)
	var masters []*daemontest.Node
	for _, name := range []string{"one", "two"} {
		m := daemontest.NewMaster(t, daemontest.Brine, name, daemontest.Host(), conf)
		// The masters share the directories of git, as on a shared cachedir.
		cache := m.Path("var/cache/salt/master")
		if err := os.MkdirAll(cache, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{"gitfs", "git_pillar"} {
			if err := os.MkdirAll(filepath.Join(shared, dir), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(shared, dir), filepath.Join(cache, dir)); err != nil {
				t.Fatal(err)
			}
		}
		masters = append(masters, m.Start())
	}
	events := masters[0].Events()
	daemontest.NewMinion(t, daemontest.Brine, "web1", []string{masters[0].Host}, "").Start()
	masters[0].Accept("web1")
	const waitLimit = 2 * time.Minute
	applied := func(m *daemontest.Node, want string) {
		t.Helper()
		eventually.Nil(t, waitLimit, "the file is "+want, func() error {
			out, errs, code := m.Run(daemontest.Brine, "salt", "web1", "state.apply", "--out=json")
			got, err := os.ReadFile(target)
			if err != nil || string(got) != want || code != 0 {
				return fmt.Errorf("it is %q (%v), code %d\n%s%s", got, err, code, out, errs)
			}
			return nil
		})
	}
	applied(masters[0], "one alice\n")
	commit(t, files, map[string]string{"web/text": "two {{ pillar['who'] }}\n"})
	commit(t, pillar, map[string]string{"who.sls": "who: bob\n"})
	applied(masters[0], "two bob\n")
	// Files fetched by one master are served by the other one without an update.
	var told []string
	for _, m := range masters {
		d := run(t, m, "fileserver.remotes").(map[string]any)["git"].(map[string]any)["file://"+files].(map[string]any)
		told = append(told, fmt.Sprint(d["commits"], d["serial"]))
	}
	if told[0] != told[1] {
		t.Error(told)
	}

	if got := run(t, masters[0], "fileserver.envs"); fmt.Sprint(got) != "[base]" {
		t.Error(got)
	}
	if got := run(t, masters[0], "fileserver.file_list", "backend=gitfs"); fmt.Sprint(got) != "[top.sls web/init.sls web/text]" {
		t.Error(got)
	}
	if got := run(t, masters[0], "fileserver.update", "backend=git"); got != true {
		t.Error(got)
	}
	if got := fmt.Sprint(run(t, masters[0], "git_pillar.update")); got != "map[main file://"+pillar+":<nil>]" {
		t.Error(got)
	}
	// An update in progress may hold the lock.
	eventually.Nil(t, waitLimit, "the lock is set by hand", func() error {
		if got := fmt.Sprint(run(t, masters[0], "fileserver.lock")); !strings.Contains(got, "locked:[Set update lock for gitfs remote 'file://"+files+"'") {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	for _, m := range masters {
		if got := fmt.Sprint(run(t, m, "fileserver.remotes")); !strings.Contains(got, "by hand, until") {
			t.Error(got)
		}
	}
	if got := fmt.Sprint(run(t, masters[1], "cache.clear_git_lock", "gitfs")); !strings.Contains(got,
		"cleared:[Removed update lock for gitfs remote 'file://"+files+"'") {
		t.Error(got)
	}
	// The lock of an update in progress is not a manual lock.
	eventually.Nil(t, waitLimit, "nothing is locked", func() error {
		if got := run(t, masters[1], "fileserver.clear_lock"); got != "No locks were removed" {
			return fmt.Errorf("%v", got)
		}
		return nil
	})

	// The repositories are unreachable; a master that starts now uses the data fetched before.
	for _, dir := range []string{files, pillar} {
		if err := os.Rename(dir, dir+".away"); err != nil {
			t.Fatal(err)
		}
	}
	eventually.Nil(t, waitLimit, "events of faults", func() error {
		if got := events(); !strings.Contains(got, "salt/fileserver/gitfs/fault") || !strings.Contains(got, "salt/pillar/git/fault") {
			return fmt.Errorf("there are:\n%s", got)
		}
		return nil
	})
	if out, _, code := masters[0].Run(daemontest.Brine, "salt-run", "fileserver.update"); code == 0 || !strings.Contains(out, files) {
		t.Errorf("the runner does not say what is wrong: %d\n%s", code, out)
	}
	masters[0].Kill()
	masters[0].Start()
	if err := os.Remove(target); err != nil {
		t.Fatal(err)
	}
	applied(masters[0], "two bob\n")
	if got := fmt.Sprint(run(t, masters[1], "fileserver.clear_cache")); got != "map[cleared:[The git fileserver cache was successfully cleared]]" {
		t.Error(got)
	}
}

// TestMasterless: salt-call fetches states and pillar from git itself.
func TestMasterless(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	commit(t, base+"/files", map[string]string{"x.sls": base + "/target:\n  file.managed:\n    - contents: {{ pillar['who'] }}\n"})
	commit(t, base+"/pillar", map[string]string{"top.sls": "base:\n  '*': [who]\n", "who.sls": "who: alice\n"})
	n := daemontest.NewMinion(t, daemontest.Brine, "alone", []string{"127.0.0.1"}, fmt.Sprintf(`
file_client: local
fileserver_backend: [gitfs]
gitfs_base: main
gitfs_remotes: ['file://%[1]s/files']
git_pillar_base: main
ext_pillar: [{git: ['main file://%[1]s/pillar']}]
`, base))
	out, errs, code := n.Run(daemontest.Brine, "salt-call", "--local", "state.apply", "x")
	if got, err := os.ReadFile(base + "/target"); code != 0 || err != nil || string(got) != "alice\n" {
		t.Errorf("%d %q %v\n%s%s", code, got, err, out, errs)
	}
}

// TestMasterTops: a program determines the states of a minion.
func TestMasterTops(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"classify":     "#!/bin/sh\nprintf 'environment: base\\nclasses: {told: {}}\\nparameters: {who: %s}\\n' \"$2\"\n",
		"srv/told.sls": dir + "/target:\n  file.managed:\n    - contents: told\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m := daemontest.NewMaster(t, daemontest.Brine, "tops", daemontest.Host(),
		fmt.Sprintf("file_roots: {base: [%[1]s/srv]}\nmaster_tops:\n  ext_nodes: %[1]s/classify -x\n", dir)).Start()
	daemontest.NewMinion(t, daemontest.Brine, "web1", []string{m.Host}, "").Start()
	m.Accept("web1")
	eventually.Nil(t, 2*time.Minute, "the told state is applied", func() error {
		out, errs, _ := m.Run(daemontest.Brine, "salt", "web1", "state.apply")
		if got, err := os.ReadFile(dir + "/target"); err != nil || string(got) != "told\n" {
			return fmt.Errorf("%q %v\n%s%s", got, err, out, errs)
		}
		return nil
	})
}
