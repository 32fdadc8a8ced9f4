package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"brine/internal/base/salt"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// root is the directory of this source tree.
const root = "../.."

// otherVersion returns a program of another version: BRINE_PREVIOUS is its path, or a revision of this repository to build. Without it,
// the program is this one with another number.
func otherVersion(t *testing.T) (program string) {
	t.Helper()
	name := os.Getenv("BRINE_PREVIOUS")
	if filepath.IsAbs(name) {
		return name
	}
	tree, err := filepath.Abs(root)
	must(t, err)
	program = filepath.Join(t.TempDir(), "brine")
	args := []string{"build", "-o", program, "-ldflags", "-X brine/internal/base/salt.BrineVersion=0.0.9", "./cmd/brine"}
	if name != "" {
		sources := t.TempDir()
		c := exec.Command("sh", "-c", `git -C "$1" archive "$2" | tar -x -C "$3"`, "sh", tree, name, sources)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("BRINE_PREVIOUS=%s is neither an absolute path nor a revision: %v\n%s", name, err, out)
		}
		tree, args = sources, []string{"build", "-o", program, "./cmd/brine"}
	}
	c := exec.Command("go", args...)
	c.Dir, c.Env = tree, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the other version: %v\n%s", err, out)
	}
	return program
}

// counted publishes numbered jobs at masters in turn, all the time. Each job appends its number to a
// file of each minion.
type counted struct {
	ledger string
	ids    []string
	stop   chan struct{}
	done   sync.WaitGroup

	mu      sync.Mutex
	jids    map[int]string // the jobs that a master has acknowledged
	tried   int
	refused int
}

func countJobs(t *testing.T, ids []string, masters ...*node) *counted {
	t.Helper()
	c := &counted{ledger: t.TempDir(), ids: ids, stop: make(chan struct{}), jids: map[int]string{}}
	c.done.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-c.stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			// A master that is not running acknowledges nothing.
			out, _, _ := masters[i%len(masters)].Run(brine, "salt", "--async", "--expire=5m", "-t", "1", "-L", joined(ids), "cmd.run",
				fmt.Sprintf("echo %d >> %s/{{grains.id}}", i, c.ledger), "python_shell=True", "template=jinja")
			c.mu.Lock()
			c.tried++
			if jid := jidIn(out); jid != "" {
				c.jids[i] = jid
			} else {
				c.refused++
			}
			c.mu.Unlock()
		}
	})
	return c
}

func (c *counted) acknowledged() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.jids)
}

// end stops the load and checks that each minion ran each acknowledged job once, and no job twice.
func (c *counted) end(t *testing.T) {
	t.Helper()
	close(c.stop)
	c.done.Wait()
	for _, id := range c.ids {
		eventually.Nil(t, soon, id+" has run all jobs", func() error {
			times := c.times(id)
			for i, jid := range c.jids {
				if times[i] == 0 {
					return fmt.Errorf("job %d (%s) was lost", i, jid)
				}
			}
			return nil
		})
	}
}

// times returns how often a minion ran each job.
func (c *counted) times(id string) map[int]int {
	b, _ := os.ReadFile(filepath.Join(c.ledger, id))
	times := map[int]int{}
	for _, word := range strings.Fields(string(b)) {
		n, err := strconv.Atoi(word)
		if err != nil {
			n = -1
		}
		times[n]++
	}
	return times
}

// returnsOnDisk returns which returns the job store of a stopped master has, as JID/ID.
func returnsOnDisk(t *testing.T, m *node) map[string]bool {
	t.Helper()
	db, err := bolt.Open(m.Path("var/cache/salt/master/brine/masters/"+m.Name+"/jobs.db"), 0o600, &bolt.Options{ReadOnly: true})
	must(t, err)
	defer db.Close()
	all := map[string]bool{}
	must(t, db.View(func(tx *bolt.Tx) error {
		hours := tx.Bucket([]byte("hours"))
		return hours.ForEach(func(k, _ []byte) error {
			return hours.Bucket(k).ForEach(func(k, _ []byte) error {
				if jid, id, ok := strings.Cut(string(k), "\x00r"); ok {
					all[jid+"/"+id] = true
				}
				return nil
			})
		})
	}))
	return all
}

// TestUpgradeUnderLoad: a cluster of three masters of another version (otherVersion) is upgraded to this one, member by member, while
// jobs are published at all masters that run, and then downgraded in the same way. Its minions are of both versions, and one is
// upgraded and downgraded as well. No acknowledged job is lost, none runs twice, and all masters have all returns. The figures are logged.
func TestUpgradeUnderLoad(t *testing.T) {
	tools.Slow(t)
	t.Parallel()
	within := running(otherVersion(t))
	a := newApart(t, 3, "auto_accept: true\n")
	for _, m := range a.masters {
		m.Within = within
	}
	a.start()
	var hosts []string
	for _, m := range a.masters {
		hosts = append(hosts, m.Host)
	}
	ids := []string{"old", "new", "both"}
	minions := map[string]*node{}
	for _, id := range ids {
		n := daemontest.NewMinion(t, brine, id, hosts, "")
		if id != "new" {
			n.Within = within
		}
		minions[id] = n.Start()
	}
	answer := func(m *node) {
		t.Helper()
		eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(brine, ids...) })
	}
	for _, m := range a.masters {
		answer(m)
	}
	old := a.version(a.masters[0])
	jobs := countJobs(t, ids, a.masters...)
	more := func(n int) {
		t.Helper()
		before := jobs.acknowledged()
		eventually.Nil(t, soon, "jobs are acknowledged", func() error {
			if got := jobs.acknowledged() - before; got < n {
				return fmt.Errorf("%d", got)
			}
			return nil
		})
	}
	change := func(n *node, to []string) {
		t.Helper()
		more(5)
		n.Signal(syscall.SIGTERM)
		n.Wait(60 * time.Second)
		more(3)
		n.Within = to
		n.Launch()
	}
	for _, to := range [][]string{nil, within} {
		from, before := time.Now(), jobs.acknowledged()
		for _, m := range a.masters {
			change(m, to)
			m.Await()
			answer(m)
		}
		change(minions["both"], to)
		answer(a.masters[0])
		what, want := "upgraded", salt.BrineVersion
		if to != nil {
			what, want = "downgraded", old
		}
		for _, m := range a.masters {
			if got := a.version(m); got != want {
				t.Errorf("%s to %s: %s has version %s", what, want, m.Name, got)
			}
		}
		t.Logf("%s to %s within %v, %d jobs acknowledged meanwhile", what, want, time.Since(from).Round(time.Millisecond), jobs.acknowledged()-before)
	}
	more(5)
	jobs.end(t)
	n := len(jobs.jids)
	a.equal(a.masters[0], 3, map[string]int{"job": n, "return": n * len(ids)})
	for _, id := range ids {
		for i, times := range jobs.times(id) {
			if i < 0 || i >= jobs.tried || times != 1 {
				t.Errorf("%s ran job %d %d times", id, i, times)
			}
		}
	}
	for _, m := range a.masters {
		m.Kill()
		all := returnsOnDisk(t, m)
		for i, jid := range jobs.jids {
			for _, id := range ids {
				if !all[jid+"/"+id] {
					t.Errorf("%s does not have the return of %s for job %d (%s)", m.Name, id, i, jid)
				}
			}
		}
	}
	t.Logf("%d jobs acknowledged, %d refused by masters that did not run; %d results on each of %d masters", n, jobs.refused, n*len(ids), len(a.masters))
}

// version returns the version of a member as it tells the cluster.
func (a *apart) version(m *node) (version string) {
	a.t.Helper()
	eventually.Nil(a.t, soon, m.Name+" tells its version", func() error {
		rows, _, err := status(m)
		for _, r := range rows {
			if r.ID == m.Name && r.Version != "" {
				version = r.Brine // "" for a version that does not tell it
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("%+v", rows))
	})
	return version
}
