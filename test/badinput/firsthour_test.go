package badinput

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// mistake is a command line with a typical mistake, and the expected message.
type mistake struct {
	args []string
	want []string
}

// TestFirstHour makes the typical mistakes of new users with a real master and a real minion. Each
// message says what is wrong and, if possible, what to type.
func TestFirstHour(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	for name, text := range map[string]string{
		"mode.sls":   "x:\n  file.managed:\n    - name: " + tree + "/out\n    - mdoe: '644'\n    - contents: a\n",
		"typo.sls":   "x:\n  file.manged:\n    - name: /nowhere\n",
		"tab.sls":    "x:\n  file.managed:\n\t- name: a\n",
		"undef.sls":  "# first line\nx: {{ grains.nosuch.deep }}\n",
		"loop.sls":   "include:\n  - nosuch\n",
		"vault.sls":  "x:\n  vault.policy_present: []\n",
		"twice.sls":  "x:\n  test.nop: []\nx:\n  test.nop: []\n",
		"needs.sls":  "x:\n  test.nop:\n    - require:\n      - file: nothing\n",
		"python.sls": "#!py\ndef run(:\n",
		"one.sls":    "same:\n  test.nop: []\n",
		"two.sls":    "same:\n  test.nop: []\n",
		"latin.sls":  "x:\n  test.nop: []\n# \xe4\n",
		"ring1.sls":  "include: [ring2]\nr1:\n  test.nop: []\n",
		"ring2.sls":  "include: [ring1]\nr2:\n  test.nop: []\n",
		"list.sls":   "- a\n- b\n",
		"colon.sls":  "x:\n  test.nop\n  pkg.installed\n",
		"a/b/c.sls":  "x:\n\ttest.nop: []\n",
	} {
		put(t, filepath.Join(tree, name), []byte(text), 0o600)
	}
	m := daemontest.NewMaster(t, brine, "boss", daemontest.Host(),
		"gather_job_timeout: 1\ntimeout: 5\nnodegroups: {web: 'web*'}\nfile_roots: {base: ["+tree+"]}\n"+
			"pillar_roots: {base: ["+filepath.Dir(tree)+"/pillar]}\n").Start()
	w := daemontest.NewMinion(t, brine, "web1", []string{m.Host}, "").Start()
	eventually.True(t, "the key is pending", func() bool {
		_, err := os.Stat(m.Path("etc/salt/pki/master/minions_pre/web1"))
		return err == nil
	})
	try := func(mistakes []mistake) {
		t.Helper()
		for _, k := range mistakes {
			dir := m.Dir
			if k.args[0] == "on the minion" {
				dir, k.args = w.Dir, k.args[1:]
			}
			if k.args[0] == "salt-call" || k.args[0] == "salt-minion" {
				dir = w.Dir
			}
			out, _ := program(t, k.args[0], append([]string{"-c", dir}, k.args[1:]...)...)
			demand(t, strings.Join(k.args, " "), out, k.want...)
		}
	}
	accept := "salt-key -a web1"
	try([]mistake{
		{[]string{"salt", "*", "test.ping"}, []string{"No minions matched the target", "The keys of minions are pending", accept}},
		{[]string{"salt", "web1", "test.ping"}, []string{accept}},
		{[]string{"salt-call", "test.ping"}, []string{"the key is pending: accept it on the master with: " + accept}},
		{[]string{"salt-key", "-y", "-a", "web2"}, []string{"The key glob 'web2' does not match any unaccepted keys."}},
	})
	if out, code := program(t, "salt-key", "-c", m.Dir, "-y", "-a", "web1"); code != 0 {
		t.Fatal(out)
	}
	eventually.True(t, "the minion answers", func() bool { return m.PingAll(brine, "web1") == nil })
	// Minions that wait or were refused beside one that is accepted.
	for id, state := range map[string]string{"web2": "minions_pre", "web3": "minions_rejected", "web4": "minions_denied"} {
		put(t, m.Path("etc/salt/pki/master/"+state+"/"+id), newKey(t).Public().PEM(), 0o644)
	}
	try([]mistake{
		{[]string{"salt", "web2", "test.ping"}, []string{"No minions matched the target", "are pending", "salt-key -a web2"}},
		{[]string{"salt", "web3", "test.ping"}, []string{"The key of web3 is rejected. Accept it with: salt-key -a web3 --include-rejected"}},
		{[]string{"salt", "web4", "test.ping"}, []string{"The key of web4 is denied. Accept it with: salt-key -a web4 --include-denied"}},
	})
	for id, state := range map[string]string{"web2": "minions_pre", "web3": "minions_rejected", "web4": "minions_denied"} {
		must(t, os.Remove(m.Path("etc/salt/pki/master/"+state+"/"+id)))
	}
	wrongPython := "Rendering SLS python failed, render error: invalid syntax"
	if _, err := exec.LookPath("python3"); err != nil {
		wrongPython = "there is no python3; install it, or name one with the option python"
	}
	state := func(name string) []string { return []string{"salt", "web1", "state.apply", name} }
	try([]mistake{
		{[]string{"salt", "wbe1", "test.ping"}, []string{"There is no minion wbe1. Did you mean web1?"}},
		{[]string{"salt", "web1", "tset.ping"}, []string{"'tset.ping' is not available.", "Did you mean test.ping?"}},
		{[]string{"salt-call", "--local", "tset.ping"}, []string{"'tset.ping' is not available.", "Did you mean test.ping?"}},
		{[]string{"salt-run", "manage.stauts"}, []string{"There is no runner manage.stauts. Did you mean manage.status"}},
		{[]string{"salt", "-C", "G@os:Debian and (web*", "test.ping"}, []string{"the target G@os:Debian and (web* of type compound is malformed", `"(web*"`}},
		{[]string{"salt", "-E", "[", "test.ping"}, []string{"the target [ of type pcre is malformed"}},
		{[]string{"salt", "-S", "10.0.0.0/99", "test.ping"}, []string{"the target 10.0.0.0/99 of type ipcidr is malformed"}},
		{[]string{"salt", "-L", "web1,wbe1", "test.ping"}, []string{"There is no minion wbe1. Did you mean web1?"}},
		{[]string{"salt", "-N", "wbe", "test.ping"}, []string{"Node group wbe unavailable in", "Did you mean web?"}},
		{[]string{"salt", "--out=jsn", "web1", "test.ping"}, []string{"Invalid outputter jsn specified", "did you mean json?"}},
		{[]string{"salt", "-t", "abc", "web1", "test.ping"}, []string{"option -t: invalid integer value: 'abc'"}},
		{[]string{"salt", "web1", "test.sleep", "abc"}, []string{`argument 'length': expected a number of seconds, got the string "abc"`}},
		{[]string{"salt-key", "-y", "-A"}, []string{"The key glob '*' does not match any unaccepted keys."}},
		{[]string{"salt-key", "-f", "wbe1"}, []string{"The key glob 'wbe1' does not match any keys."}},
		{[]string{"salt", "web1"}, []string{"Incomplete options passed."}},
		{[]string{"salt", "--ouput=json", "web1", "test.ping"}, []string{"--output"}},
		{state("mode"), []string{"mdoe is no argument of this state and has no effect; did you mean"}},
		{state("typo"), []string{"State 'file.manged' was not found in SLS 'typo'", "did you mean file.managed", "(typo.sls, line 1)"}},
		{state("tab"), []string{"Rendering SLS 'base:tab' failed", "line 3", "a tab"}},
		{state("undef"), []string{"Rendering SLS 'base:undef' failed", "'nosuch'", "line 2"}},
		{append(state("mode"), "tst=True"), []string{"state.sls has no argument tst; did you mean test? Nothing was done"}},
		{state("modee"), []string{"No matching sls found for 'modee' in env 'base'", "Did you mean mode?"}},
		{state("mode.sls"), []string{"No matching sls found for 'mode.sls' in env 'base'", "Did you mean mode?"}},
		{[]string{"salt", "web1", "state.apply"}, []string{"No Top file or master_tops data matches found."}},
		{state("nosuch"), []string{"No matching sls found for 'nosuch' in env 'base'"}},
		{state("loop"), []string{"nosuch"}},
		{state("vault"), []string{"Brine does not have the states of Salt's module vault"}},
		{state("twice"), []string{"x", "conflicting ID"}},
		{state("needs"), []string{"The following requisites were not found", "nothing"}},
		{state("python"), []string{wrongPython}},
		{state("one,two"), []string{"The conflicting ID is 'same' and is found in SLS 'base:one' and SLS 'base:two'", "(two.sls, line 1)"}},
		{state("latin"), []string{"Rendering SLS 'base:latin' failed", "not valid UTF-8; line 3"}},
		{state("ring1"), []string{"r1", "r2", "Succeeded: 2"}}, // includes in a circle are no mistake
		{state("list"), []string{"SLS list does not render to a dictionary", "it is a list", "list.sls"}},
		{state("colon"), []string{`missing a ":"`, "colon.sls, line 1"}},
		{state("a.b.c"), []string{"Rendering SLS 'base:a.b.c' failed", "(line 2, column 1: a tab)"}},
		{append(state("one"), "saltenv=prod"), []string{"No matching salt environment for environment 'prod' found"}},
		{[]string{"salt-cp", "web1", tree + "/one.sls", "/nowhere/at/all/"}, []string{"Destination unavailable"}},
		{[]string{"salt-key", "-y", "-d", "wbe1"}, []string{"The key glob 'wbe1' does not match any"}},
		{[]string{"on the minion", "salt", "*", "test.ping"}, []string{"Is master running?", "run salt on the master, or salt-call here"}},
		{[]string{"salt-minion"}, []string{"an instance is already running: process "}},
		{[]string{"salt-master"}, []string{"an instance is already running: process "}},
	})

	must(t, os.WriteFile(filepath.Join(tree, "top.sls"), []byte("bsae:\n  '*': [one]\n"), 0o600))
	pillar := filepath.Dir(tree) + "/pillar"
	must(t, os.MkdirAll(pillar, 0o700))
	must(t, os.WriteFile(filepath.Join(pillar, "top.sls"), []byte("base:\n  '*': [bad]\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(pillar, "bad.sls"), []byte("a: {{ nosuch.x }}\n"), 0o600))
	try([]mistake{
		{[]string{"salt", "web1", "state.apply"}, []string{"Pillar failed to render", "Rendering SLS 'bad' failed. Please see master log for details."}},
		{[]string{"salt-master", "--check-config"}, []string{"top file bsae: no root directory is configured for this environment; did you mean base?"}},
	})
	m.Logged("Rendering SLS 'bad' failed", "Jinja variable 'nosuch' is undefined; line 1")
	must(t, os.Remove(filepath.Join(pillar, "bad.sls")))
	must(t, os.Remove(filepath.Join(pillar, "top.sls")))
	try([]mistake{
		{[]string{"salt", "web1", "state.apply"}, []string{"No matching salt environment for environment 'bsae' found"}},
	})

	twin := daemontest.NewMinion(t, brine, "web1", []string{m.Host}, "").Start()
	twin.Logged("if another minion has this id, set the option id of one of them")
	m.Logged("if two minions have this id, set the option id of one of them")
}
