package ha

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// mounted gives a master a cachedir that other masters use, too.
func mounted(t *testing.T, n *daemontest.Node, cachedir string) {
	t.Helper()
	path := n.Path("var/cache/salt/master")
	for _, dir := range []string{filepath.Dir(path), cachedir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(cachedir, path); err != nil {
		t.Fatal(err)
	}
}

// sharingCache starts two hot masters with one cachedir and a minion of both.
func sharingCache(t *testing.T) (s *setup, cachedir string) {
	t.Helper()
	cachedir = filepath.Join(daemontest.ShortDir(t), "cache")
	s = &setup{t: t}
	for i := range 2 {
		s.add(fmt.Sprintf("m%d", i+1), "", func(n *daemontest.Node) {
			mounted(t, n, cachedir)
			if i > 0 {
				shareKeys(t, s.sites[0].Node, n)
			}
		})
		waitKeys(t, s.sites[i].Node)
	}
	s.minion = daemontest.NewMinion(t, daemontest.Brine, "w1", s.hosts(), "").Start()
	s.usable(0)
	s.usable(1)
	return s, cachedir
}

// echo runs a job through a master, and returns its id.
func echo(t *testing.T, x *site, text string) string {
	t.Helper()
	out, stderr, code := x.Run(daemontest.Brine, "salt", "w1", "test.echo", text, "--out=json", "--static", "--show-jid")
	if code != 0 || !strings.Contains(out, text) {
		t.Fatalf("%s: %d: %s%s", x.Name, code, out, stderr)
	}
	for line := range strings.Lines(out + stderr) {
		if jid, ok := strings.CutPrefix(strings.TrimSpace(line), "jid: "); ok {
			return jid
		}
	}
	t.Fatalf("no job id: %s%s", out, stderr)
	return ""
}

// knows waits until a master shows a job of any master with its return.
func knows(t *testing.T, x *site, jid, text string) {
	t.Helper()
	eventually.Nil(t, within, fmt.Sprintf("%s shows job %s", x.Name, jid), func() error {
		out, stderr, _ := x.Run(daemontest.Brine, "salt-run", "jobs.lookup_jid", jid, "--out=json")
		if !strings.Contains(out, text) {
			return fmt.Errorf("jobs.lookup_jid: %s%s", out, stderr)
		}
		out, stderr, _ = x.Run(daemontest.Brine, "salt-run", "jobs.list_jobs", "--out=json")
		if !strings.Contains(out, jid) {
			return fmt.Errorf("jobs.list_jobs: %s%s", out, stderr)
		}
		return nil
	})
}

// stop terminates a master regularly.
func stop(x *site) {
	x.Signal(syscall.SIGTERM)
	x.Wait(within)
}

// TestSharedCacheDir: two hot masters use one cachedir, as in Salt's tutorial for several masters.
func TestSharedCacheDir(t *testing.T) {
	t.Parallel()
	s, cachedir := sharingCache(t)
	a, b := s.sites[0], s.sites[1]
	jobs := map[string]string{}
	for i, x := range s.sites {
		text := fmt.Sprintf("of-%s-%d", x.Name, i)
		jobs[echo(t, x, text)] = text
	}
	all := func() {
		t.Helper()
		for _, x := range s.sites {
			for jid, text := range jobs {
				knows(t, x, jid, text)
			}
		}
	}
	all()

	// One is killed; the other one continues, and shows the first one's jobs.
	group(t, a.Node, syscall.SIGKILL)
	a.Wait(within)
	for jid, text := range jobs {
		knows(t, b, jid, text)
	}
	jobs[echo(t, b, "while-m1-is-dead")] = "while-m1-is-dead"
	a.Start()
	s.usable(0)
	jobs[echo(t, a, "after-the-death")] = "after-the-death"
	all()

	// Both restart in the other order: each finds its own data again.
	for _, x := range []*site{a, b} {
		stop(x)
	}
	for _, x := range []*site{b, a} {
		x.Start()
	}
	s.usable(0)
	s.usable(1)
	all()
	entries, err := os.ReadDir(filepath.Join(cachedir, "brine", "hot"))
	if err != nil || len(entries) != 1 || entries[0].Name() != "m2" {
		t.Errorf("%v %v", entries, err)
	}
	for _, x := range s.sites {
		out, stderr, code := x.Run(daemontest.Brine, "salt-key", "-L", "--out=json")
		if code != 0 || !strings.Contains(out, "w1") {
			t.Errorf("%s: %d: %s%s", x.Name, code, out, stderr)
		}
	}
}

// TestSharedCacheDirTwice: a second process with the id of a running master is refused, and a
// renamed master keeps its jobs.
func TestSharedCacheDirTwice(t *testing.T) {
	t.Parallel()
	cachedir := filepath.Join(daemontest.ShortDir(t), "cache")
	s := &setup{t: t}
	a := s.add("m1", "", func(n *daemontest.Node) { mounted(t, n, cachedir) })
	waitKeys(t, a.Node)
	again := daemontest.NewMaster(t, daemontest.Brine, "m1", daemontest.Host(), "")
	mounted(t, again, cachedir)
	shareKeys(t, a.Node, again)
	again.Launch()
	again.Wait(within)
	if log := again.Log(); !strings.Contains(log, "jobs.db is in use by another process") || !strings.Contains(log, "an id of its own") {
		t.Errorf("%s", log)
	}
	s.minion = daemontest.NewMinion(t, daemontest.Brine, "w1", s.hosts(), "").Start()
	s.usable(0)
	jid := echo(t, a, "before-the-renaming")
	stop(a)
	a.Write("master", strings.Replace(a.Read("master"), "id: m1\n", "id: other\n", 1))
	a.Start()
	knows(t, a, jid, "before-the-renaming")
	if _, err := os.Stat(filepath.Join(cachedir, "brine", "hot")); !os.IsNotExist(err) {
		t.Errorf("the renamed master has a second place for its data: %v", err)
	}
}
