package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// stateRun is a state run that waits in the middle, and then fetches a file from a master.
type stateRun struct {
	f         *fleet
	name, dir string
	jid       string
	ids       []string
}

// begin starts a run at a master and returns when all minions are in the middle of it.
func (f *fleet) begin(at *node, roots, name string, ids []string) *stateRun {
	t := f.t
	t.Helper()
	r := &stateRun{f: f, name: name, dir: t.TempDir(), ids: ids}
	r.write(roots, name+".sls", fmt.Sprintf(`
middle:
  cmd.run:
    - name: 'touch %[1]s/{{ grains.id }}.begun; for i in $(seq 3000); do test -e %[1]s/go && exit; sleep 0.1; done; exit 1'
late:
  file.managed:
    - name: %[1]s/{{ grains.id }}.late
    - source: salt://%[2]s.txt
    - require: [{cmd: middle}]
`, r.dir, name))
	r.write(roots, name+".txt", "text of "+name)
	r.jid = f.publish(at, "*", "state.apply", name)
	eventually.Nil(t, soon, "all are in the middle of "+name, func() error {
		for _, id := range ids {
			if _, err := os.Stat(filepath.Join(r.dir, id+".begun")); err != nil {
				return err
			}
		}
		return nil
	})
	return r
}

func (r *stateRun) write(dir, file, text string) {
	r.f.t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
		r.f.t.Fatal(err)
	}
}

// goOn lets the run continue.
func (r *stateRun) goOn() { r.write(r.dir, "go", "") }

// doneAt expects masters to show the results of all minions.
func (r *stateRun) doneAt(masters ...*node) {
	t := r.f.t
	t.Helper()
	eventually.Nil(t, soon, "all have returned "+r.name, func() error {
		for _, id := range r.ids {
			if !r.f.returned(r.jid, id) {
				return errors.New(id + " has not")
			}
		}
		return nil
	})
	for _, id := range r.ids {
		if b, err := os.ReadFile(filepath.Join(r.dir, id+".late")); err != nil || string(b) != "text of "+r.name {
			t.Errorf("%s: the file of a master is %q: %v", id, b, err)
		}
	}
	for _, m := range masters {
		eventually.Nil(t, soon, m.Name+" shows the results of "+r.name, func() error {
			out, errs, _ := m.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", r.jid)
			if strings.Count(out, `"result": true`) != 2*len(r.ids) || strings.Contains(out, `"result": false`) {
				return errors.New(out + errs)
			}
			return nil
		})
	}
}

// TestStateRunLosesItsMaster: behind HAProxy, a long state run was started at the master that holds
// a minion's subscription. This master is killed during the run and stays down or returns, or all
// masters are killed. The run continues, gets its files from any reachable master, and its results
// are on all masters.
func TestStateRunLosesItsMaster(t *testing.T) {
	t.Parallel()
	stateRuns(t, brine)
}

// TestSaltsStateRunLosesItsMaster is TestStateRunLosesItsMaster with stock minions.
func TestSaltsStateRunLosesItsMaster(t *testing.T) {
	t.Parallel()
	daemontest.StockTree(t)
	stateRuns(t, stock)
}

func stateRuns(t *testing.T, k kind) {
	haproxyProgram(t)
	roots := t.TempDir()
	f := newFleet(t, fmt.Sprintf("auto_accept: true\nfile_roots: {base: [%s]}\n", roots), brine, brine, brine).start()
	host := f.balance()
	ids := []string{"m0", "m1"}
	for _, id := range ids {
		f.minion(k, id, host, "")
	}
	answer := func() {
		t.Helper()
		for _, m := range f.masters {
			eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(brine, ids...) })
		}
	}
	answer()
	holder := func(i int) *node {
		if k == stock { // unknown
			return f.masters[i]
		}
		return f.holder(f.masters[0], ids[i])
	}

	at := holder(0)
	r := f.begin(at, roots, "away", ids)
	at.Kill()
	r.goOn()
	for _, m := range f.masters {
		if m != at {
			r.doneAt(m)
		}
	}
	at.Start()
	r.doneAt(at)
	answer()

	at = holder(1)
	r = f.begin(at, roots, "back", ids)
	at.Kill()
	at.Start()
	r.goOn()
	r.doneAt(f.masters...)
	answer()

	r = f.begin(f.masters[1], roots, "all", ids)
	for _, m := range f.masters {
		m.Kill()
	}
	for _, m := range f.masters {
		m.Launch()
	}
	for _, m := range f.masters {
		m.Await()
	}
	r.goOn()
	r.doneAt(f.masters...)
	answer()
}
