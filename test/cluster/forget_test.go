package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"brine/test/eventually"
)

// forgotten waits until masters have no record of a key, not even that it was deleted.
func forgotten(t *testing.T, id string, masters ...*node) {
	t.Helper()
	for _, m := range masters {
		eventually.Nil(t, soon, m.Name+" has forgotten "+id, func() error {
			all, err := keyRecords(m)
			if err == nil && all[id].State != "" {
				err = fmt.Errorf("%+v", all[id])
			}
			return err
		})
	}
}

func isState(t *testing.T, m *node, id, want string) {
	t.Helper()
	eventually.Nil(t, soon, fmt.Sprintf("%s is in %q on %s", id, want, m.Name), func() error {
		if s := state(m, id); s != want {
			return errors.New(s)
		}
		return nil
	})
}

func (a *apart) deleteKey(at *node, id string) {
	a.t.Helper()
	if _, errs, code := at.Run(brine, "salt-key", "-y", "-d", id); code != 0 {
		a.t.Fatal(errs)
	}
}

// disk copies a master's cluster data; back restores the copy.
func disk(t *testing.T, m *node) (back func()) {
	t.Helper()
	old := t.TempDir()
	copyAll := func(from, to string) {
		t.Helper()
		if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	parts := map[string]string{"cluster": "pki", "var/cache/salt/master": "cache"}
	for p, name := range parts {
		copyAll(m.Path(p), filepath.Join(old, name))
	}
	return func() {
		t.Helper()
		for p, name := range parts {
			if err := os.RemoveAll(m.Path(p)); err != nil {
				t.Fatal(err)
			}
			copyAll(filepath.Join(old, name), m.Path(p))
		}
	}
}

// TestDeletionsAreForgotten: a deletion is forgotten when all masters know of it, and not before.
// The deleted record is not restored by a master that was unreachable, by one whose disk is older
// than the deletion, or by one that was removed and joins again with its old data.
func TestDeletionsAreForgotten(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "cluster_keep_deleted_seconds: 1\n").start()
	one, two, three := a.masters[0], a.masters[1], a.masters[2]
	ids := []string{"m0", "m1", "m2", "m3", "m4"}
	a.pend(one, ids...)
	one.Accept(ids...)
	for _, m := range a.masters {
		isState(t, m, "m4", "minions")
	}
	a.deleteKey(two, "m0")
	forgotten(t, "m0", a.masters...)

	// One is unreachable.
	three.Kill()
	a.deleteKey(one, "m1")
	isState(t, two, "m1", "")
	time.Sleep(4 * time.Second) // several checks: this must never happen
	for _, m := range []*node{one, two} {
		if all, err := keyRecords(m); err != nil || all["m1"].State != "deleted" {
			t.Errorf("%s has forgotten m1, which a master that is unreachable has: %+v %v", m.Name, all, err)
		}
	}
	three.Start()
	isState(t, three, "m1", "")
	forgotten(t, "m1", a.masters...)

	// Its disk is an old one. A newer key with the same id stays.
	three.Kill()
	back := disk(t, three)
	three.Start()
	a.deleteKey(one, "m2")
	forgotten(t, "m2", a.masters...)
	three.Kill()
	back()
	if s := state(three, "m2"); s != "minions" {
		t.Fatalf("this is no old disk: m2 is in %q", s)
	}
	three.Start()
	isState(t, three, "m2", "")
	a.equal(one, 3, map[string]int{"key": 2})
	for _, m := range a.masters {
		isState(t, m, "m2", "")
		isState(t, m, "m3", "minions")
	}
	one.Write("cluster/minions_pre/m2", one.Read("cluster/minions/m3"))
	for _, m := range a.masters {
		isState(t, m, "m2", "minions_pre")
	}

	// It was removed, and joins again with its old data.
	three.Kill()
	if _, errs, code := one.Run(brine, "salt-run", "cluster.remove", three.Name, "keep_secret=True"); code != 0 {
		t.Fatal(errs)
	}
	a.deleteKey(two, "m3")
	forgotten(t, "m3", one, two)
	three.Launch()
	if code := three.Wait(time.Minute); code == 0 {
		t.Error("a master that was removed goes on")
	}
	if out, errs, code := one.Run(brine, "cluster", "readmit", three.Name); code != 0 {
		t.Fatal(out, errs)
	}
	if err := os.Remove(three.Path("cluster/cluster.pem")); err != nil {
		t.Fatal(err)
	}
	three.Start()
	a.equal(one, 3, map[string]int{"key": 2, "peer": 3})
	for _, m := range a.masters {
		isState(t, m, "m3", "")
		isState(t, m, "m4", "minions")
		isState(t, m, "m2", "minions_pre")
	}
	if old, _ := filepath.Glob(three.Path("cluster/earlier.before-join-*/minions/m3")); len(old) != 1 {
		t.Error("what it had was not put aside")
	}
}
