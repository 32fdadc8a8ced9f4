package cli

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestRunners calls every runner through the real salt-run, with a master, two minions and, at the
// end, the key of a minion that is down, for which runners wait.
func TestRunners(t *testing.T) {
	t.Parallel() // it mostly waits
	master, _, work := stateFleet(t, daemontest.Brine, daemontest.Brine)
	master.Run(daemontest.Brine, "salt", "*", "mine.send", "test.ping")
	jid := regexp.MustCompile(`\d{20}`).FindString(first(master.Run(daemontest.Brine, "salt", "--show-jid", "-L", "alpha,beta", "test.echo", "word")))
	states := regexp.MustCompile(`\d{20}`).FindString(first(master.Run(daemontest.Brine, "salt", "--show-jid", "alpha", "state.apply", "pillared")))
	failed := regexp.MustCompile(`\d{20}`).FindString(first(master.Run(daemontest.Brine, "salt", "--show-jid", "alpha", "test.false")))
	if jid == "" || states == "" || failed == "" {
		t.Fatalf("job ids %q %q %q", jid, states, failed)
	}
	new(field).write(t, filepath.Join(work, "salt/sub/one"), "1")
	new(field).write(t, filepath.Join(work, "macs"), "00:11:22:33:44:55\n")
	fill := strings.NewReplacer("JID", jid, "STATES", states, "FAILED", failed, "WORK", work)
	const list = `(- \S+\n)+`
	for _, c := range []struct {
		line, want string // the arguments, and the whole output
		code       int
	}{
		{"manage.up", "- alpha\n- beta\n", 0},
		{"manage.present", "- alpha\n- beta\n", 0},
		{"manage.joined", "- alpha\n- beta\n", 0},
		{"manage.alived", "- alpha\n- beta\n", 0},
		{"manage.list_state subset=[alpha]", "- alpha\n", 0},
		{"jobs.active", "", 0},
		{"jobs.master", "", 0},
		{"jobs.lookup_jid JID", "alpha:\n    word\nbeta:\n    word\n", 0},
		{"jobs.lookup_jid JID missing=True returned=False", "", 0},
		{"jobs.lookup_jid JID display_progress=True --out=txt",
			`(?s)suffix: progress\n.*Querying returner: local_cache.*'message': 'alpha'.*alpha: word\nbeta: word\n`, 0},
		{"jobs.lookup_jid STATES", `(?s)alpha:\n-+\n +ID: show\n.*Failed: +1\n.*`, 0},
		{"jobs.list_job JID", `(?s)Arguments:\n    - word\nFunction:\n    test.echo\nMinions:\n    - alpha\n    - beta\n.*`, 0},
		{"jobs.print_job JID", `(?s)JID:\n    -+\n    Arguments:\n        - word\n.*`, 0},
		{"jobs.exit_success FAILED", "alpha:\n    False\n", 0},
		{"jobs.exit_success JID", "alpha:\n    True\nbeta:\n    True\n", 0},
		{"jobs.list_jobs search_function=test.echo --out=json", `(?s)\{\n    "JID": \{\n.*`, 0},
		{"jobs.list_jobs search_function=nope", "", 0},
		{"jobs.list_jobs_filter 1 --out=json", `(?s)\[\n    \{\n.*"StartTime": .*`, 0},
		{"jobs.last_run function=test.echo", `(?s)JID:\n.*`, 0},
		{"cache.grains alpha --out=json", `(?s)\{\n    "alpha": \{.*"role": "web".*`, 0},
		{"cache.pillar alpha", `(?s)alpha:\n    -+\n    motd:\n        welcome\n.*`, 0},
		{"cache.mine alpha", `(?s)alpha:\n    -+\n    test.ping:\n.*`, 0},
		{"cache.store bank key value", "None\n", 0},
		{"cache.list bank", "- key\n", 0},
		{"cache.fetch bank key", "value\n", 0},
		{"cache.flush bank key", "True\n", 0},
		{"cache.list bank", "", 0},
		{"cache.clear_mine_func alpha clear_mine_func_flag=test.ping", "True\n", 0},
		{"cache.clear_mine alpha", "True\n", 0},
		{"cache.clear_pillar alpha", "True\n", 0},
		{"doc.runner --out=json", `(?s)\{\n.*\n    "cache\..*`, 0},
		{"doc.wheel --out=json", `(?s)\{\n    "config\..*\n    "key\.accept": .*`, 0},
		{"audit.list limit=1 --out=json", `(?s)\[\n    \{\n.*`, 0},
		{"doc.execution --out=json", `(?s)\{\n    ".*"test.ping": .*`, 0},
		{"error.error", "", 0},
		{"error.error Exception said", "Exception occurred in runner error.error: Exception: said\n", 1},
		{"network.wol 00:11:22:33:44:55 bcast=127.0.0.1", "True\n", 0},
		{"network.wollist WORK/macs bcast=127.0.0.1", `(?s).*Waking up 00:11:22:33:44:55.*- 00:11:22:33:44:55\n`, 0},
		{"network.wolmatch nobody", "", 0},
		{"pillar.show_pillar alpha", `(?s)motd:\n    welcome\nports:\n    - 80\n.*`, 0},
		{"pillar.show_top", "(?s).*base:\n.*common\n", 0},
		{"fileserver.envs", "- base\n", 0},
		{"fileserver.file_list", list, 0},
		{"fileserver.dir_list", "- sub\n", 0},
		{"fileserver.empty_dir_list", "", 0},
		{"fileserver.symlink_list", "", 0},
		{"fileserver.update", "True\n", 0},
		{"salt.cmd test.arg 1 a=2", "args:\n    - 1\nkwargs:\n    -+\n    a:\n        2\n", 0},
		{"salt.execute alpha test.echo arg=[word]", "alpha:\n    word\n", 0},
		{"state.event salt/never count=0 nonsense=1", `(?s)\nPassed invalid arguments: .*`, 0},
		{"test.arg 1 a=b", "args:\n    - 1\nkwargs:\n    -+\n    a:\n        b\n", 0},
		{"test.raw_arg 1", `(?s)args:\n    - 1\nkwargs:\n.*`, 0},
		{"test.metasyntactic locality=uk", "- wibble\n- wobble\n- wubble\n- flob\n", 0},
		{"test.sleep 0", "True\n", 0},
		{"test.get_opts --out=json", `(?s).*"publish_port": 24505.*`, 0},
		{"config.get publish_port", "24505\n", 0},
		{"event.send my/tag {a:1}", "True\n", 0},
		{"", "", 0}, // gamma is known and down
		{"manage.status", "down:\n    - gamma\nup:\n    - alpha\n    - beta\n", 0},
		{"manage.not_present", "- gamma\n", 0},
		{"manage.not_alived", "- gamma\n", 0},
		{"manage.list_not_state", "- gamma\n", 0},
		{"manage.versions", `(?s)Master:\n.*Minion offline:\n.*gamma:\n.*Up to date:\n.*alpha:\n.*beta:\n.*`, 0},
		{"cache.clear_grains beta", "True\n", 0},
		{"cache.clear_all beta", "True\n", 0},
	} {
		if c.line == "" {
			downMinion(t, master)
			continue
		}
		out, errs, code := master.Run(daemontest.Brine, "salt-run", words(fill.Replace(c.line))...)
		if code != c.code || errs != "" || !regexp.MustCompile(`^(?:`+fill.Replace(c.want)+`)$`).MatchString(out) {
			t.Errorf("salt-run %s: code %d\ngot  %s%s\nwant %s", c.line, code, out, errs, c.want)
		}
	}
}

func first(out, _ string, _ int) string { return out }

// TestRunnerReturnsAreKept: the return of a runner, also of an asynchronous one, is stored with the
// returns of minions.
func TestRunnerReturnsAreKept(t *testing.T) {
	t.Parallel()
	m := daemontest.NewMaster(t, daemontest.Brine, "m", daemontest.Host(), "")
	m.Start()
	_, errs, code := m.Run(daemontest.Brine, "salt-run", "--async", "test.arg", "one", "two=2")
	jid := regexp.MustCompile(`\d{20}`).FindString(errs)
	if code != 0 || jid == "" {
		t.Fatalf("salt-run --async: code %d, %q", code, errs)
	}
	want := regexp.MustCompile(`^\{\n    "m": \{\n        "fun": "runner\.test\.arg",\n(?s:.*)"return": \{\n            "args": \[\n                ` +
		`"one"\n(?s:.*)"success": true\n`)
	eventually.Nil(t, time.Minute, "the result is kept", func() error {
		if out, errs, _ := m.Run(daemontest.Brine, "salt-run", "jobs.lookup_jid", jid, "--out=json"); !want.MatchString(out) {
			return fmt.Errorf("%s%s", out, errs)
		}
		return nil
	})
	out, _, _ := m.Run(daemontest.Brine, "salt-run", "jobs.list_jobs", "--out=json")
	if strings.Count(out, `"runner.test.arg"`) != 1 || !strings.Contains(out, `"runner.jobs.lookup_jid"`) {
		t.Errorf("the jobs: %s", out)
	}
	out, _, _ = m.Run(daemontest.Brine, "salt-run", "jobs.list_job",
		regexp.MustCompile(`"(\d{20})": \{\n +"Function": "runner\.jobs`).FindStringSubmatch(out)[1], "--out=json")
	if !strings.Contains(out, `"Result": {}`) {
		t.Errorf("what was read from the job cache is in it again: %s", out)
	}
}

// TestSkipGrainsForgetsNothing: a program on a minion that gathers no grains requests a pillar; the
// master keeps the minion's grains.
func TestSkipGrainsForgetsNothing(t *testing.T) {
	t.Parallel()
	master, alpha := fleet(t, daemontest.Brine, daemontest.Brine)
	if out, errs, code := alpha.Run(daemontest.Brine, "salt-call", "--skip-grains", "grains.get", "role"); code != 0 || strings.Contains(out, "web") {
		t.Fatalf("salt-call --skip-grains: %d %s%s", code, out, errs)
	}
	if out, errs, _ := master.Run(daemontest.Brine, "salt-run", "cache.grains", "alpha"); !strings.Contains(out, "web") {
		t.Errorf("the master has forgotten the grains: %s%s", out, errs)
	}
}
