package cluster

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// TestReadOnlyDisk: the disk of one of three masters, with its keys and data, becomes read-only while it runs. It refuses jobs and decisions
// with a clear error, and runs nothing of them. The others command the fleet and name it. A return that it could not store reaches it later.
// With the disk repaired all masters have the same decisions, jobs and returns.
func TestReadOnlyDisk(t *testing.T) {
	tools.Slow(t)
	t.Parallel()
	a := newApart(t, 3, "")
	one, two, broken := a.masters[0], a.masters[1], a.masters[2]
	must(t, os.MkdirAll(broken.Path("var/cache/salt"), 0o755))
	disk := daemontest.NewFailingDisk(t, broken.Path("disk"))
	for path, name := range map[string]string{"cluster": "pki", "var/cache/salt/master": "cache"} {
		must(t, os.Mkdir(broken.Path("disk/"+name), 0o700))
		must(t, os.Symlink(broken.Path("disk/"+name), broken.Path(path)))
	}
	a.start()
	a.pend(one, "c0", "c1", "c2")
	own, both := a.minion("own", broken), a.minion("both", one, broken)
	ids := []string{"own", "both"}
	for _, id := range ids {
		one.Accept(id)
	}
	for _, m := range a.masters {
		eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(brine, ids...) })
		isState(t, m, "c2", "minions_pre")
	}
	shell := func(at *node, target, word, script string) (out string, code int) {
		t.Helper()
		out, errs, code := at.Run(brine, "salt", "--async", target, "cmd.run", "echo "+word+" >> /proc/$PPID/cwd/ran; "+script, "shell=/bin/bash")
		return out + errs, code
	}
	ran := func(m *node) []string {
		b, _ := os.ReadFile(m.Path("ran"))
		return strings.Fields(string(b))
	}
	text, _ := shell(broken, "*", "slow", "while [ ! -e /proc/$PPID/cwd/go ]; do sleep 0.1; done; echo done-slow")
	slow := jidIn(text)
	if slow == "" {
		t.Fatal(text)
	}
	for _, m := range []*node{own, both} {
		eventually.True(t, m.Name+" runs the job", func() bool { return len(ran(m)) == 1 })
	}

	disk.Fail()
	for range 3 {
		if text, code := shell(broken, "*", "refused", "true"); code == 0 || !strings.Contains(text, "read-only file system") {
			t.Errorf("a job at the master with the read-only disk: exit code %d, %s", code, text)
		}
	}
	for _, args := range [][]string{{"-a", "c0"}, {"-r", "c1"}, {"-d", "c2"}} {
		out, errs, code := broken.Run(brine, "salt-key", append([]string{"-y"}, args...)...)
		if code == 0 || !strings.Contains(out+errs, "read-only file system") {
			t.Errorf("salt-key %v: exit code %d, %s%s", args, code, out, errs)
		}
	}
	if out, errs, code := one.Run(brine, "salt-key", "-y", "-r", "c1"); code != 0 {
		t.Fatal(out, errs)
	}
	isState(t, two, "c1", "minions_rejected")
	for _, m := range []*node{two, broken} {
		eventually.Nil(t, soon, "the status at "+m.Name+" shows it", func() error {
			all, code, err := states(m)
			if !containsAll(all[broken.Name], "cannot store changes of other masters: ", "read-only file system") || code != 1 {
				return fmt.Errorf("%v, exit code %d, %w", all, code, err)
			}
			return nil
		})
	}
	finds(t, two, "disk", broken.Name, "it cannot store changes of other masters: ")
	for _, m := range []*node{own, both} {
		m.Write("go", "")
	}
	eventually.Nil(t, soon, "the minion of two masters answers", func() error { return two.PingOnly(brine, "both") })
	if text, code := shell(two, "both", "good", "echo done-good"); code != 0 {
		t.Fatal(text)
	}
	eventually.True(t, "it runs the job", func() bool { return len(ran(both)) == 2 })
	if !broken.Alive() {
		t.Error("the master with the read-only disk has ended")
	}

	broken.Kill()
	disk.Mend()
	broken.Start()
	a.equal(one, 3, map[string]int{"key": 5})
	for _, m := range a.masters {
		for id, want := range map[string]string{"c0": "minions_pre", "c1": "minions_rejected", "c2": "minions_pre"} {
			isState(t, m, id, want)
		}
		eventually.Nil(t, soon, m.Name+" has the returns of the job that ran meanwhile", func() error {
			out, errs, _ := m.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", slow)
			if strings.Count(out, "done-slow") != 2 {
				return errors.New(out + errs)
			}
			return nil
		})
		eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(brine, ids...) })
	}
	for m, want := range map[*node][]string{own: {"slow"}, both: {"slow", "good"}} {
		if got := ran(m); !slices.Equal(got, want) {
			t.Errorf("%s ran %q, want %q", m.Name, got, want)
		}
	}
}
