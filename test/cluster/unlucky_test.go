package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// kept copies a directory; back restores it.
func kept(t *testing.T, dir string) (back func()) {
	t.Helper()
	copied := filepath.Join(daemontest.ShortDir(t), "copy")
	must(t, os.CopyFS(copied, os.DirFS(dir)))
	return func() {
		t.Helper()
		must(t, os.RemoveAll(dir))
		must(t, os.CopyFS(dir, os.DirFS(copied)))
	}
}

// TestHalfRestored: of a member's disk only the keys, or only the records of decisions, are restored from a backup. Keys that were deleted
// since do not come back.
func TestHalfRestored(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "").start()
	one := a.masters[0]
	var gone, since []string
	for i := range 6 {
		gone, since = append(gone, fmt.Sprint("gone", i)), append(since, fmt.Sprint("since", i))
	}
	a.pend(one, append(gone, since...)...)
	one.Accept(gone...)
	for _, m := range a.masters {
		isState(t, m, "gone5", "minions")
		isState(t, m, "since5", "minions_pre")
	}
	for what, dir := range map[string]string{"its keys": "cluster", "its records": "var/cache/salt/master/brine"} {
		one.Kill()
		back := kept(t, one.Path(dir))
		one.Start()
		half := gone[:3]
		gone = gone[3:]
		for _, id := range half {
			a.deleteKey(one, id)
		}
		one.Accept(since[:3]...)
		for _, m := range a.masters {
			isState(t, m, half[2], "")
			isState(t, m, since[2], "minions")
		}
		one.Kill()
		back()
		one.Start()
		eventually.Nil(t, soon, "all are equal", func() error {
			r, err := check(one)
			if err == nil && (!r.Equal || len(r.Masters) != 3) {
				err = fmt.Errorf("%+v", r)
			}
			return err
		})
		for _, m := range a.masters {
			for _, id := range half {
				if s := state(m, id); s != "" {
					t.Errorf("%s after a restore of %s: %s is in %q", m.Name, what, id, s)
				}
			}
			for _, id := range since[:3] {
				if s := state(m, id); s != "minions" {
					t.Errorf("%s after a restore of %s: %s is in %q", m.Name, what, id, s)
				}
			}
		}
		since = since[3:]
	}
}

// TestDamagedKeyFiles: key files of a member that was stopped are damaged, as after a power failure. That is no decision: no master loses the
// key of the minion, and the member gets it back.
func TestDamagedKeyFiles(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "").start()
	one := a.masters[0]
	var ids []string
	for i := range 3 {
		ids = append(ids, fmt.Sprint("k", i))
	}
	a.pend(one, ids...)
	one.Accept(ids...)
	for _, m := range a.masters {
		isState(t, m, ids[2], "minions")
	}
	path := func(m *node, id string) string { return m.Path("cluster/minions/" + id) }
	want := map[string]string{}
	for _, id := range ids {
		b, err := os.ReadFile(path(one, id))
		must(t, err)
		want[id] = string(b)
	}
	one.Kill()
	for i, id := range ids {
		b := want[id]
		damaged := []string{"", b[:len(b)/2], strings.Repeat("\x00", len(b))}[i]
		must(t, os.WriteFile(path(one, id), []byte(damaged), 0o644))
	}
	one.Start()
	a.equal(one, 3, map[string]int{"key": len(ids)})
	a.haveKeys(path, want)
}

// haveKeys waits until all masters have these key files, by id.
func (a *apart) haveKeys(path func(m *node, id string) string, want map[string]string) {
	a.t.Helper()
	for _, m := range a.masters {
		for id, text := range want {
			eventually.Nil(a.t, soon, m.Name+" has the key of "+id, func() error {
				b, err := os.ReadFile(path(m, id))
				if err == nil && string(b) != text {
					err = fmt.Errorf("%q", b)
				}
				return err
			})
		}
	}
}

// TestDamagedWhileRunning: key files of a member are damaged while it runs, or something else takes their place. That is no decision,
// either: no master loses a key, and the member gets its files back. A key that cannot be read delays no other decision.
func TestDamagedWhileRunning(t *testing.T) {
	t.Parallel()
	a := newApart(t, 2, "").start()
	one := a.masters[0]
	ids := []string{"empty", "half", "zero", "dir", "link"}
	a.pend(one, ids...)
	one.Accept(ids...)
	for _, m := range a.masters {
		isState(t, m, "link", "minions")
	}
	path := func(m *node, id string) string { return m.Path("cluster/minions/" + id) }
	want := map[string]string{}
	for _, id := range ids {
		b, err := os.ReadFile(path(one, id))
		must(t, err)
		want[id] = string(b)
	}
	for _, id := range ids {
		switch p := path(one, id); id {
		case "dir":
			must(t, os.Remove(p))
			must(t, os.MkdirAll(p+"/more", 0o755))
		case "link":
			must(t, os.Remove(p))
			must(t, os.Symlink("/nonexistent", p))
		default:
			damaged := map[string]string{"half": want[id][:len(want[id])/2], "zero": strings.Repeat("\x00", len(want[id]))}[id]
			must(t, os.WriteFile(p, []byte(damaged), 0o644))
		}
	}
	a.pend(one, "another") // makes the master look at the directory
	isState(t, a.masters[1], "another", "minions_pre")
	a.haveKeys(path, want)
	a.equal(one, 2, map[string]int{"key": len(ids) + 1})
	one.Logged("writing what is recorded")
	// A decision is a decision, also about a key that was damaged.
	a.deleteKey(one, "dir")
	must(t, os.Remove(path(one, "link")))
	for _, m := range a.masters {
		isState(t, m, "dir", "")
		isState(t, m, "link", "")
	}
}

// TestTwoRestored: the disks of two of three members are restored from backups at once. What was decided since stays decided.
func TestTwoRestored(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "").start()
	one, two := a.masters[0], a.masters[1]
	a.pend(one, "gone0", "gone1", "since")
	one.Accept("gone0", "gone1")
	for _, m := range a.masters {
		isState(t, m, "gone1", "minions")
	}
	one.Kill()
	two.Kill()
	backOne, backTwo := disk(t, one), disk(t, two)
	one.Start()
	two.Start()
	a.deleteKey(one, "gone0")
	a.deleteKey(two, "gone1")
	one.Accept("since")
	decided := func() {
		t.Helper()
		for _, m := range a.masters {
			isState(t, m, "gone0", "")
			isState(t, m, "gone1", "")
			isState(t, m, "since", "minions")
		}
	}
	decided()
	one.Kill()
	two.Kill()
	backOne()
	backTwo()
	if s := state(one, "gone0"); s != "minions" {
		t.Fatalf("this is no backup: gone0 is in %q", s)
	}
	one.Start()
	two.Start()
	a.equal(one, 3, map[string]int{"key": 1})
	decided()
}
