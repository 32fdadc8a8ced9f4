package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/eventually"
)

// TestSharedDirectoryIsLeft: two masters on a shared directory become a cluster without one, by a
// command at each, while their fleet runs. The fleet can always be commanded, no key must be
// accepted again, and both have all earlier decisions and returns.
func TestSharedDirectoryIsLeft(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "", brine, brine).start()
	one, two := f.masters[0], f.masters[1]
	a := &apart{t: t, masters: f.masters}
	m := a.minion("m0", one, two)
	process := m.PID()
	eventually.Nil(t, soon, "m0 is seen", func() error {
		if s := state(two, "m0"); s != "minions_pre" {
			return errors.New(s)
		}
		return nil
	})
	one.Accept("m0")
	eventually.Nil(t, soon, "it answers", func() error { return errors.Join(one.PingAll(brine, "m0"), two.PingAll(brine, "m0")) })
	out, errs, _ := one.Run(brine, "salt", "m0", "test.echo", "from before", "--async")
	before := jidIn(out + errs)
	returned := func(at *node, jid, text string) func() error {
		return func() error {
			out, errs, _ := at.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
			if !strings.Contains(out, text) {
				return errors.New(out + errs)
			}
			return nil
		}
	}
	eventually.Nil(t, soon, "it has returned", returned(two, before, "from before"))

	for want, args := range map[string][]string{
		"is in the shared directory": {"--pki-dir", filepath.Join(f.shared, "pki", "own")},
		"is not an absolute path":    {"--cache-dir", "here"},
	} {
		if _, errs, code := one.Run(brine, "cluster", append([]string{"unshare"}, args...)...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%q: %d %s", args, code, errs)
		}
	}
	for i, x := range f.masters {
		other := f.masters[1-i]
		x.Signal(syscall.SIGTERM)
		x.Wait(30 * time.Second)
		eventually.Nil(t, soon, "it answers to the other one", func() error { return other.PingAll(brine, "m0") })
		args := []string{"unshare"}
		if i == 1 {
			args = append(args, "--pki-dir", x.Path("own/pki"), "--cache-dir", x.Path("own/cache"))
		}
		if out, errs, code := x.Run(brine, "cluster", args...); code != 0 || !strings.Contains(out, "1 minion keys") {
			t.Fatal(code, out, errs)
		}
		if _, errs, code := x.Run(brine, "cluster", "unshare"); code == 0 || !strings.Contains(errs, "has no shared directory") {
			t.Errorf("twice: %d %s", code, errs)
		}
		x.Start()
		for _, at := range f.masters {
			eventually.Nil(t, soon, "it answers to "+at.Name, func() error { return at.PingAll(brine, "m0") })
		}
	}
	for _, path := range []string{one.Path("etc/salt/pki/master/cluster/minions/m0"), one.Path("var/cache/salt/master-own/minions/m0"),
		two.Path("own/pki/minions/m0"), two.Path("own/cache/minions/m0")} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	a.equal(two, 2, map[string]int{"key": 1, "peer": 2, "secret": 2, "minion": 1})
	for _, x := range f.masters {
		if got := state(x, "m0"); got != "minions" {
			t.Errorf("m0 is in %q at %s", got, x.Name)
		}
	}
	out, errs, _ = two.Run(brine, "salt", "m0", "test.echo", "from now", "--async")
	now := jidIn(out + errs)
	eventually.Nil(t, soon, "what is returned now is at both", func() error {
		return errors.Join(returned(one, now, "from now")(), returned(two, now, "from now")())
	})
	if out, errs, code := one.Run(brine, "migrate", "jobs", "--from", "local_cache:"+filepath.Join(f.shared, "cache"), "--to", "brine"); code != 0 {
		t.Fatal(out, errs)
	}
	for _, x := range f.masters {
		eventually.Nil(t, soon, "what was returned before is at "+x.Name, returned(x, before, "from before"))
	}
	a.equal(one, 2, nil)
	if !m.Alive() || m.PID() != process {
		t.Error("the minion is another process")
	}
}
