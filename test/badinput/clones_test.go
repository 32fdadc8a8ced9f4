package badinput

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// copyOf copies the keys of a node to another one.
func copyOf(t *testing.T, from, to *node) {
	t.Helper()
	kind := strings.TrimPrefix(from.Program, "salt-")
	dir := "etc/salt/pki"
	must(t, os.MkdirAll(to.Path(dir), 0o700))
	if out, err := exec.Command("cp", "-a", from.Path(dir+"/"+kind), to.Path(dir)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestClonedMinion: two machines have one minion id. With the same key both are served, the master
// reports it when their results differ, and each job has one return. Another key is denied, with a
// message on both sides, and the first minion keeps working.
func TestClonedMinion(t *testing.T) {
	t.Parallel()
	m := master(t, "")
	first := minion(t, "w", "", m)
	clone := daemontest.NewMinion(t, brine, "w", []string{m.Host}, "")
	copyOf(t, first, clone)
	clone.Start()
	eventually.Nil(t, waitLimit, "the master tells of the clone", func() error {
		rets, err := m.SaltJSON(brine, "-t", "5", "w", "config.get", "pidfile")
		if err != nil || rets["w"] == nil {
			t.Errorf("no return: %v %v", rets, err)
		}
		if !strings.Contains(m.Log(), "two machines may use its id and key") {
			return errors.New("nothing is said")
		}
		return nil
	})
	mustPing(t, m, "w")
	clone.Kill()
	mustPing(t, m, "w")

	stranger := daemontest.NewMinion(t, brine, "w", []string{m.Host}, "")
	stranger.Launch()
	m.Logged("minion=w")
	eventually.Nil(t, waitLimit, "the stranger is denied", func() error {
		keys, err := m.Keys()
		if err == nil && len(keys["minions_denied"]) != 1 {
			err = fmt.Errorf("keys: %v", keys)
		}
		if err == nil && !strings.Contains(stranger.Log(), "denied") && !strings.Contains(stranger.Log(), "rejected") {
			err = errors.New("it does not say so")
		}
		return err
	})
	mustPing(t, m, "w")
}

// TestClonedMaster: two masters have one id and key, as after a copy of the machine, and a minion
// uses both. Each commands it and gets its own returns.
func TestClonedMaster(t *testing.T) {
	t.Parallel()
	one := master(t, "")
	two := newMaster(t, "")
	copyOf(t, one, two)
	two.Start()
	minion(t, "w", "", one, two)
	for i, m := range []*node{one, two, one, two} {
		other := []*node{two, one}[i%2]
		out, errs, code := m.Run(brine, "salt", "-t", "20", "w", "test.echo", fmt.Sprintf("job-%d", i), "-v")
		if code != 0 || !strings.Contains(out, fmt.Sprintf("job-%d", i)) {
			t.Fatalf("%d %s%s", code, out, errs)
		}
		jobs, errs, code := other.Run(brine, "salt-run", "jobs.list_jobs")
		if code != 0 || strings.Contains(jobs, fmt.Sprintf("job-%d", i)) {
			t.Errorf("the other master has it: %s%s", jobs, errs)
		}
	}
}

// TestClocksOfOtherDays: the clock of a minion, and then of a master, is three days off for a
// while. The minion is commanded, a kept job runs, and nothing is refused or lost. It runs only if
// BRINE_CLOCK is set (daemontest.Off).
func TestClocksOfOtherDays(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"ahead": 72 * time.Hour, "behind": -72 * time.Hour} {
		within := daemontest.Off(t, off)
		for _, who := range []string{"minion", "master"} {
			t.Run(who+" "+name, func(t *testing.T) {
				m := master(t, "")
				w := minion(t, "w", "", m)
				wrong := map[string]*node{"minion": w, "master": m}[who]
				change := func(to []string) {
					t.Helper()
					wrong.Kill()
					wrong.Within = to
					wrong.Start()
					answers(t, m, "w")
				}
				work := func(when string) {
					t.Helper()
					kept := w.Path("kept-" + when)
					w.Kill()
					if out, errs, code := m.Run(brine, "salt", "--async", "--expire", "2m", "w", "file.touch", kept); code != 0 {
						t.Fatal(out, errs)
					}
					w.Start()
					eventually.Nil(t, waitLimit, "the job that was kept "+when, func() error {
						_, err := os.Stat(kept)
						return err
					})
				}
				work("before")
				change(within)
				work("meanwhile")
				change(nil)
				work("after")
				out, errs, _ := m.Run(brine, "salt-run", "--out=json", "jobs.list_jobs", "search_function=file.touch")
				for _, when := range []string{"before", "meanwhile", "after"} {
					if !strings.Contains(out, "kept-"+when) {
						t.Errorf("the job %s is lost: %s%s", when, out, errs)
					}
				}
			})
		}
	}
}
