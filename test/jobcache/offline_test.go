package jobcache

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/store/job"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// TestRunnersWithoutMaster: while no master runs, salt-run reads the data on disk, says so, and
// changes nothing.
func TestRunnersWithoutMaster(t *testing.T) {
	t.Parallel()
	srv := t.TempDir()
	for name, text := range map[string]string{"top.sls": "base: {'*': [word]}\n", "word.sls": "word: {{ grains.role }}\n"} {
		if err := os.WriteFile(filepath.Join(srv, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := daemontest.NewMaster(t, daemontest.Brine, "a", daemontest.Host(),
		fmt.Sprintf("auto_accept: True\npillar_roots: {base: [%s]}\nfile_roots: {base: [%[1]s]}\nanswer: 42\n", srv)).Start()
	minion := daemontest.NewMinion(t, daemontest.Brine, "m1", []string{m.Host}, "grains: {role: web}\n").Start()
	eventually.Nil(t, waitLimit, "the minion answers", func() error { return m.PingAll(daemontest.Brine, "m1") })
	out, _, _ := m.Run(daemontest.Brine, "salt", "m1", "test.echo", "kept", "--show-jid", "--out=txt")
	_, jid, _ := strings.Cut(out, "jid: ")
	jid, _, _ = strings.Cut(jid, "\n")
	questions := []struct {
		want string
		args []string
	}{
		{"m1: kept", []string{"jobs.lookup_jid", jid}},
		{"test.echo", []string{"jobs.list_jobs", "search_function=test.echo"}},
		{"test.echo", []string{"jobs.last_run", "function=test.echo"}},
		{"'m1'", []string{"jobs.print_job", jid}},
		{"web", []string{"cache.grains", "m1"}},
		{"42", []string{"config.get", "answer"}},
		{"base", []string{"fileserver.envs"}},
		{"word.sls", []string{"fileserver.file_list"}},
		{"word: web", []string{"pillar.show_pillar", "m1"}},
		{"Passed invalid arguments", []string{"jobs.lookup_jid", "x=1"}},
	}
	var before []string
	ask := func(args []string) (out, stderr string, code int) {
		t.Helper()
		return m.Run(daemontest.Brine, "salt-run", append([]string{"--out=txt"}, args...)...)
	}
	for _, q := range questions {
		out, stderr, code := ask(q.args)
		if code != 0 || stderr != "" || !strings.Contains(out, q.want) {
			t.Errorf("while the master runs: %v: %d %s%s", q.args, code, out, stderr)
		}
		before = append(before, out)
	}
	minion.Kill()
	for _, end := range []func(){func() { m.Kill() }, func() {}} {
		end()
		for i, q := range questions {
			out, stderr, code := ask(q.args)
			if code != 0 || out != before[i] || !strings.Contains(stderr, "no master runs on this machine") {
				t.Errorf("%v: %d %s%s\nbefore: %s", q.args, code, out, stderr, before[i])
			}
		}
	}
	for _, args := range [][]string{{"manage.status"}, {"jobs.active"}, {"salt.cmd", "test.ping"}, {"cache.clear_all"},
		{"-a", "pam", "--username=x", "--password=y", "config.get", "answer"}} {
		if out, stderr, code := ask(args); code != 1 || !strings.Contains(stderr, "Is master running?") {
			t.Errorf("%v: %d %s%s", args, code, out, stderr)
		}
	}
	if out, stderr, code := ask([]string{"--async", "config.get", "answer"}); code != 1 {
		t.Errorf("--async: %d %s%s", code, out, stderr)
	}
	// A process that locks the jobs although no master can be reached.
	held, err := job.Open(m.Path("var/cache/salt/master/brine"), job.Options{JobCache: true}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := ask([]string{"jobs.lookup_jid", jid}); code != 1 || !strings.Contains(stderr, "in use by another process") {
		t.Errorf("held: %d %s%s", code, out, stderr)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	m.Start()
	if out, stderr, code := ask([]string{"jobs.lookup_jid", jid}); code != 0 || stderr != "" || !strings.Contains(out, "kept") {
		t.Errorf("the master is back: %d %s%s", code, out, stderr)
	}
}

// TestRunnersOnAFreshMachine: nothing is created where no master ever ran.
func TestRunnersOnAFreshMachine(t *testing.T) {
	t.Parallel()
	m := daemontest.NewMaster(t, daemontest.Brine, "a", daemontest.Host(), "")
	if out, stderr, code := m.Run(daemontest.Brine, "salt-run", "jobs.list_jobs"); code != 1 || !strings.Contains(stderr, "Is master running?") ||
		!strings.Contains(stderr, "no master's data") {
		t.Errorf("%d %s%s", code, out, stderr)
	}
	for args, want := range map[string]string{"-d jobs.lookup_jid": "jobs.lookup_jid:", "--out=yaml": "jobs.lookup_jid:", "-a pam -d test.arg": "test.arg:",
		"config.get hash_type": "sha256", "doc.runner": "test.arg:", "doc.wheel": "key.accept:", "test.arg one": "one"} {
		if out, stderr, code := m.Run(daemontest.Brine, "salt-run", strings.Fields(args)...); code != 0 || !strings.Contains(out, want) ||
			strings.Contains(stderr, "Is master running?") || strings.Contains(args, "-d") && stderr != "" {
			t.Errorf("salt-run %s: %d %s%s", args, code, out, stderr)
		}
	}
	if _, err := os.Stat(m.Path("var")); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// TestModulesBeforeTheFirstStart fetches the source of ext_pillar, without which the master does
// not start, on a machine on which no master ever ran.
func TestModulesBeforeTheFirstStart(t *testing.T) {
	t.Parallel()
	tools.NeedPython(t, "python3", "marshal")
	files := t.TempDir()
	m := daemontest.NewMaster(t, daemontest.Brine, "a", daemontest.Host(), "file_roots: {base: ["+files+"]}\next_pillar: [{mine: x}]\n")
	if out, stderr, code := m.Run(daemontest.Brine, "salt-master", "--check-config"); code == 0 || !strings.Contains(out+stderr, "salt-run saltutil.sync_pillar") {
		t.Errorf("before: %d %s%s", code, out, stderr)
	}
	if err := os.Mkdir(filepath.Join(files, "_pillar"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := "def ext_pillar(minion_id, pillar, conf):\n    return {'of': minion_id + conf}\n"
	if err := os.WriteFile(filepath.Join(files, "_pillar", "mine.py"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := m.Run(daemontest.Brine, "salt-run", "saltutil.sync_pillar"); code != 0 || !strings.Contains(out, "pillar.mine") {
		t.Fatalf("%d %s%s", code, out, stderr)
	}
	if out, stderr, code := m.Run(daemontest.Brine, "salt-run", "pillar.show_pillar", "web1"); code != 0 || !strings.Contains(out, "web1x") {
		t.Errorf("%d %s%s", code, out, stderr)
	}
	if err := os.Mkdir(filepath.Join(files, "_runners"), 0o755); err != nil {
		t.Fatal(err)
	}
	runner := "def hello():\n    \"\"\"Greet the site.\"\"\"\n    return 'hello'\n"
	if err := os.WriteFile(filepath.Join(files, "_runners", "site.py"), []byte(runner), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := m.Run(daemontest.Brine, "salt-run", "saltutil.sync_runners"); code != 0 || !strings.Contains(out, "runners.site") {
		t.Fatalf("%d %s%s", code, out, stderr)
	}
	if out, stderr, code := m.Run(daemontest.Brine, "salt-run", "-d", "site"); code != 0 || !strings.Contains(out, "Greet the site.") || stderr != "" {
		t.Errorf("-d: %d %s%s", code, out, stderr)
	}
	m.Start()
	if out, stderr, code := m.Run(daemontest.Brine, "salt-run", "pillar.show_pillar", "web2"); code != 0 || !strings.Contains(out, "web2x") {
		t.Errorf("by the master that runs: %d %s%s", code, out, stderr)
	}
}
