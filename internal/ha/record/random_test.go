package record

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/remote/rows"
	"brine/internal/store/keystore"
	"brine/internal/store/oplog"
	"brine/test/tools"
)

// randomRun is masters whose exchange with a real server is driven step by step. The first one keeps
// its disk.
type randomRun struct {
	t       *testing.T
	r       *rand.Rand
	masters []*master
	disks   []map[int]string // copies, by master
	backups [][]rows.Row
	steps   []string
}

func (x *randomRun) logf(format string, args ...any) {
	x.steps = append(x.steps, fmt.Sprintf(format, args...))
}

// cut is a connection that is lost after some transactions. The last one may have been made.
type cut struct {
	rows.Store
	left int // -1: it is not lost
	made bool
}

func (c *cut) Commit(ctx context.Context, conditions []rows.Condition, changes []rows.Change) (bool, error) {
	if c.left != 0 {
		c.left--
		return c.Store.Commit(ctx, conditions, changes)
	}
	if c.made {
		c.Store.Commit(ctx, conditions, changes)
	}
	return false, salt.Errorf(salt.Unavailable, "the connection is lost")
}

// hasty makes a master's exchange independent of time.
func hasty(m *master) {
	m.store.times.hearsay, m.store.times.sweepOver, m.store.times.stuck = 0, 0, 0
	m.store.rows = &cut{Store: m.store.rows, left: -1}
}

// round does one exchange of the records of a master. It may be interrupted.
func (x *randomRun) round(m *master) {
	x.t.Helper()
	c, _ := m.store.rows.(*cut)
	if c.left = -1; x.r.IntN(2) == 0 {
		c.left, c.made = x.r.IntN(6), x.r.IntN(2) == 0
	}
	x.logf("round of %s, %d transactions", m.id, c.left)
	x.whole(m)
	c.left = -1
}

// whole does one exchange of the records of a master.
func (x *randomRun) whole(m *master) {
	x.t.Helper()
	m.sync()
	f := m.store.follower("records")
	f.generation = nil // its time to look has come
	err := f.round(context.Background())
	if err != nil {
		x.logf("%s: %v", m.id, err)
	}
	if err != nil && salt.KindOf(err) != salt.Unavailable {
		x.t.Fatalf("%v\n%s", err, strings.Join(x.steps, "\n"))
	}
	m.sync()
}

// settle exchanges everything.
func (x *randomRun) settle() {
	x.t.Helper()
	for range 12 {
		for _, m := range x.masters {
			m.store.follower("records").audited = time.Time{}
			x.whole(m)
		}
	}
	first := x.masters[0].all()
	for _, m := range x.masters[1:] {
		if got := m.all(); !maps.Equal(first, got) {
			for _, m := range x.masters {
				v, _ := m.records.Vector()
				g, _ := m.records.Forgotten()
				f := m.store.follower("records")
				x.t.Logf("%s: %v\nknows %v forgot %v there %v forgot there %v", m.id, slices.Sorted(maps.Keys(m.all())), v, g, f.have, f.forgot)
			}
			x.t.Fatalf("masters differ after\n%s", strings.Join(x.steps, "\n"))
		}
	}
}

// decide makes a random decision on a random master.
func (x *randomRun) decide() {
	m := x.masters[x.r.IntN(len(x.masters))]
	id := fmt.Sprintf("m%d", x.r.IntN(6))
	keys := m.keys
	switch x.r.IntN(5) {
	case 0:
		name := fmt.Sprintf("token%d", x.r.IntN(3))
		if os.Remove(m.dir+"/tokens/"+name) != nil {
			m.token(name)
		}
		x.logf("%s changes %s", m.id, name)
	default:
		for _, st := range keystore.States {
			if _, err := keys.Read(st, id); err != nil {
				continue
			}
			to := []keystore.State{keystore.Accepted, keystore.Rejected, keystore.None, keystore.None, keystore.None}[x.r.IntN(5)]
			if to == keystore.None {
				m.must(keys.Delete(st, id))
			} else if to != st {
				m.must(keys.Move(id, st, to))
			}
			x.logf("%s moves %s from %s to %s", m.id, id, st, to)
			m.sync()
			return
		}
		m.pend(id)
		x.logf("%s gets %s", m.id, id)
	}
	m.sync()
}

// fault loses a disk or the rows of the server, or replaces them by older ones.
func (x *randomRun) fault() {
	i := 1 + x.r.IntN(len(x.masters)-1)
	m := x.masters[i]
	switch x.r.IntN(7) {
	case 6:
		if len(x.disks) > 0 { // both at once
			n := x.r.IntN(len(x.disks))
			x.logf("%s gets disk %d, and the server backup %[2]d", m.id, n)
			m.replace(func() {
				m.dir = x.t.TempDir()
				m.must(os.CopyFS(m.dir, os.DirFS(x.disks[n][i])))
			})
			hasty(m)
			m.reset(x.backups[n])
		}
	case 0:
		x.logf("%s is wiped", m.id)
		m.wipe()
		hasty(m)
	case 1:
		if len(x.disks) > 0 {
			n := x.r.IntN(len(x.disks))
			x.logf("%s gets disk %d", m.id, n)
			m.replace(func() {
				m.dir = x.t.TempDir()
				m.must(os.CopyFS(m.dir, os.DirFS(x.disks[n][i])))
			})
			hasty(m)
		}
	case 2:
		x.logf("the server is emptied")
		m.reset(nil)
	case 3, 4:
		if len(x.backups) > 0 {
			n := x.r.IntN(len(x.backups))
			x.logf("the server gets backup %d", n)
			m.reset(x.backups[n])
		}
	default:
		x.logf("%s restarts", m.id)
		m.replace(func() {})
		hasty(m)
	}
}

// keep makes copies of the disks and the rows.
func (x *randomRun) keep() {
	x.logf("disks %d, backup %d", len(x.disks), len(x.backups))
	copies := map[int]string{}
	for i, m := range x.masters {
		m.replace(func() {
			copies[i] = x.t.TempDir()
			m.must(os.CopyFS(copies[i], os.DirFS(m.dir)))
		})
		hasty(m)
	}
	x.disks = append(x.disks, copies)
	x.backups = append(x.backups, x.masters[0].rowsOf(""))
}

// forget makes all masters forget the deletions that all of them and the server know.
func (x *randomRun) forget() {
	x.logf("all forget")
	var acked oplog.Vector
	seen := oplog.Vector{}
	have, _ := x.masters[0].store.Known("records")
	all := []oplog.Vector{have}
	for _, m := range x.masters {
		v, err := m.records.Vector()
		m.must(err)
		all = append(all, v)
	}
	for _, v := range all {
		seen.Merge(v)
	}
	acked = seen.Clone()
	for _, v := range all {
		for origin := range acked {
			acked[origin] = min(acked[origin], v[origin])
		}
	}
	for _, m := range x.masters {
		for _, kind := range []string{"key", "token"} {
			n, err := m.records.ForgetDeleted(kind, time.Now().Add(time.Hour), acked, seen)
			m.must(err)
			x.logf("%s forgets %d of %s", m.id, n, kind)
		}
	}
}

// TestStoreAtRandom: whatever happens to disks and to the server, and in whatever order masters exchange
// with it, nothing changes without a decision, and in the end all masters have the same. One master
// keeps its disk.
func TestStoreAtRandom(t *testing.T) {
	t.Parallel()
	srv := startEtcd(t)
	runs, phases := 4, 5
	if testing.Short() || tools.Race {
		runs, phases = 1, 3
	}
	for run := range runs {
		seed := uint64(run) + 1
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			x := &randomRun{t: t, r: rand.New(rand.NewPCG(seed, 7))}
			for _, id := range []string{"a", "b", "c"} {
				m := newMaster(t, srv, id)
				hasty(m)
				x.masters = append(x.masters, m)
			}
			x.masters[0].reset(nil)
			for phase := range phases {
				for range 10 {
					if x.decide(); x.r.IntN(2) == 0 {
						x.round(x.masters[x.r.IntN(3)])
					}
				}
				x.settle()
				want := x.masters[0].all()
				if x.r.IntN(2) == 0 {
					x.keep()
				}
				if x.r.IntN(2) == 0 {
					x.forget()
				}
				for range 6 {
					x.fault()
					for range x.r.IntN(4) {
						x.round(x.masters[x.r.IntN(3)])
					}
				}
				x.settle()
				if got := x.masters[0].all(); !maps.Equal(got, want) {
					t.Fatalf("phase %d: %v became %v\n%s", phase, want, got, strings.Join(x.steps, "\n"))
				}
			}
		})
	}
}

// TestSweepInterrupted: a master that lost its connection at any point while it removed outdated entries
// brings nothing back on a master with an old disk.
func TestSweepInterrupted(t *testing.T) {
	t.Parallel()
	srv := startEtcd(t)
	x := &randomRun{t: t, r: rand.New(rand.NewPCG(1, 1))}
	for _, id := range []string{"a", "b"} {
		m := newMaster(t, srv, id)
		hasty(m)
		x.masters = append(x.masters, m)
	}
	a, b := x.masters[0], x.masters[1]
	a.pend("gone", "kept")
	a.move("gone", keystore.Pending, keystore.Accepted)
	x.settle()
	x.keep()
	a.must(a.keys.Delete(keystore.Accepted, "gone"))
	x.settle()
	want := a.all()
	x.forget()
	if v, err := a.records.Forgotten(); err != nil || len(v) == 0 {
		t.Fatalf("nothing was forgotten: %v, %v", v, err)
	}
	x.keep() // what a knows
	for left := range 12 {
		a.reset(x.backups[0])
		for i, m := range x.masters {
			m.replace(func() {
				m.dir = t.TempDir()
				m.must(os.CopyFS(m.dir, os.DirFS(x.disks[1-i][i]))) // b has the old one
			})
			hasty(m)
		}
		if b.all()["key gone"] == "" {
			t.Fatal("this is no old disk")
		}
		x.whole(b)
		a.store.follower("records").audited = time.Now() // the next one is not due
		c, _ := a.store.rows.(*cut)
		c.left = left
		x.whole(a)
		c.left = -1
		x.whole(b)
		x.settle()
		if got := b.all(); !maps.Equal(got, want) {
			t.Errorf("after %d transactions: %v", left, got)
		}
	}
}
