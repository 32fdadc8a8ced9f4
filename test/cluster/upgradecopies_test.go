package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// words are jobs whose returns contain a word and are long enough to be stored on some masters only.
type words struct {
	t       *testing.T
	minions int

	mu   sync.Mutex
	jobs map[string]string // words by job id
	seen map[string]bool   // MASTER/JID: that master has shown all returns of the job
}

func newWords(t *testing.T, minions int) *words {
	return &words{t: t, minions: minions, jobs: map[string]string{}, seen: map[string]bool{}}
}

// publish publishes a job at a master.
func (w *words) publish(at *node) error {
	w.mu.Lock()
	word := fmt.Sprintf("word-%d-%s", len(w.jobs), strings.Repeat(".", 300))
	w.mu.Unlock()
	out, errs, _ := at.Run(brine, "salt", "--async", "*", "test.echo", word)
	jid := jidIn(out)
	if jid == "" {
		return fmt.Errorf("no job: %s%s", out, errs)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs[jid] = word
	return nil
}

// read compares the returns that a master shows of a job.
func (w *words) read(at *node, jid string) error {
	w.mu.Lock()
	word := w.jobs[jid]
	w.mu.Unlock()
	var out, errs string
	for out == "" { // a program that finds no master shows nothing
		out, errs, _ = at.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
		if out == "" && !strings.Contains(errs, "Unable to connect") {
			break
		}
	}
	shown := map[string]any{}
	if err := json.Unmarshal([]byte(out), &shown); err != nil {
		return fmt.Errorf("%s, job %s: %w %s%s", at.Name, jid, err, out, errs)
	}
	for id, ret := range shown {
		if ret != word {
			return fmt.Errorf("%s, job %s: %s returned %.300v", at.Name, jid, id, ret)
		}
	}
	if len(shown) != w.minions {
		return fmt.Errorf("%s, job %s: %d returns: %s", at.Name, jid, len(shown), errs)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[at.Name+"/"+jid] = true
	return nil
}

// all waits until some masters show all returns of all jobs.
func (w *words) all(at ...*node) {
	w.t.Helper()
	for _, m := range at {
		for _, jid := range w.ids() {
			eventually.Nil(w.t, soon, m.Name+" shows all returns", func() error { return w.read(m, jid) })
		}
	}
}

func (w *words) ids() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for jid := range w.jobs {
		ids = append(ids, jid)
	}
	slices.Sort(ids)
	return ids
}

// still checks that masters show what they have shown before. A return may also be the error allowed, if it is not "".
func (w *words) still(what, allowed string, at ...*node) {
	w.t.Helper()
	for _, m := range at {
		for _, jid := range w.ids() {
			w.mu.Lock()
			seen := w.seen[m.Name+"/"+jid]
			w.mu.Unlock()
			if !seen {
				continue
			}
			err := w.read(m, jid)
			if err != nil && (allowed == "" || !strings.Contains(err.Error(), allowed)) {
				w.t.Errorf("%s: %v", what, err)
			}
		}
	}
}

// TestUpgradeToCopies: a cluster of five masters of a version that stores all returns on all masters (BRINE_PREVIOUS) is upgraded member
// by member, and downgraded again, while jobs run. Each master shows all returns that it has shown before, at every moment.
func TestUpgradeToCopies(t *testing.T) {
	tools.Slow(t)
	t.Parallel()
	within := previous(t)
	a := newApart(t, 5, "auto_accept: true\n")
	for _, m := range a.masters {
		m.Within = within
	}
	a.start()
	ids := []string{"m0", "m1"}
	for i, id := range ids {
		daemontest.NewMinion(t, brine, id, []string{a.masters[i].Host, a.masters[4-i].Host}, "").Start()
	}
	for _, m := range a.masters {
		eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(brine, ids...) })
	}
	w := newWords(t, len(ids))
	publish := func(at ...*node) {
		t.Helper()
		for _, m := range at {
			eventually.Nil(t, soon, "a job of "+m.Name, func() error { return w.publish(m) })
		}
	}
	// An older version finds the contents of short returns by comparing itself with the others, and shows an error until then.
	change := func(i int, to []string, allowed string) {
		t.Helper()
		n, rest := a.masters[i], but(a.masters, a.masters[i])
		n.Signal(syscall.SIGTERM)
		n.Wait(60 * time.Second)
		publish(rest[0], rest[2])
		w.still("while "+n.Name+" is down", "", rest...)
		n.Within = to
		n.Start()
		w.still("after the start of "+n.Name, allowed, n)
		eventually.Nil(t, soon, "all answer to "+n.Name, func() error { return n.PingAll(brine, ids...) })
		publish(n)
		w.all(a.masters...)
	}
	publish(a.masters...)
	w.all(a.masters...)
	for i := range a.masters {
		change(i, nil, "")
	}
	awaitCopies(t, a.masters[0], 5, "3 of 5")
	publish(a.masters...)
	w.all(a.masters...)
	for i := range a.masters {
		change(i, within, "ERROR: The master has this return but cannot read")
	}
	w.still("downgraded", "", a.masters...)
	a.equal(a.masters[0], 5, nil)
	for _, m := range a.masters {
		m.Kill()
		m.Within = nil
	}
	for _, m := range a.masters {
		m.Launch()
	}
	for _, m := range a.masters {
		m.Await()
	}
	w.all(a.masters...)
	t.Logf("%d jobs", len(w.ids()))
}
