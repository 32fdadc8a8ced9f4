package replica

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"brine/internal/store/keystore"
	"brine/internal/store/oplog"
	"brine/test/tools"
)

// heard has the changes that all sites have, and those that any site has.
type heard struct{ all, any oplog.Vector }

func known(t *testing.T, sites ...*site) heard {
	t.Helper()
	l := heard{any: oplog.Vector{}}
	for i, s := range sites {
		v, err := s.store.Vector()
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			l.all = v.Clone()
		}
		l.any.Merge(v)
		for o, n := range l.all {
			l.all[o] = min(n, v[o])
		}
	}
	return l
}

func (s *site) forget(l heard) int {
	s.t.Helper()
	n, err := s.store.ForgetDeleted("key", time.Now().Add(time.Hour), l.all, l.any)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *site) remove(id string) {
	s.t.Helper()
	for _, st := range keystore.States {
		if _, err := s.keys.Read(st, id); err == nil {
			s.must(s.keys.Delete(st, id))
		}
	}
	s.sync()
}

// keep returns a function that restores the present state of a site.
func (s *site) keep() (setBack func()) {
	s.t.Helper()
	old := s.t.TempDir()
	if err := os.CopyFS(filepath.Join(old, "x"), os.DirFS(s.dir)); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		s.reopen(s.store.id, func() {
			for _, d := range []string{"db", "pki", "tokens"} {
				if err := os.RemoveAll(filepath.Join(s.dir, d)); err != nil {
					s.t.Fatal(err)
				}
			}
			if err := os.CopyFS(s.dir, os.DirFS(filepath.Join(old, "x"))); err != nil {
				s.t.Fatal(err)
			}
		})
	}
}

// TestForget: a deletion that all masters know is dropped once it is old. Afterwards the id may be
// used again, also on masters that have not dropped it yet.
func TestForget(t *testing.T) {
	a, b := newSite(t, t.TempDir(), "a"), newSite(t, t.TempDir(), "b")
	a.add("m1", "one")
	a.move("m1", keystore.Pending, keystore.Accepted)
	meet(t, a, b)
	b.remove("m1")
	if n := b.forget(known(t, a, b)); n != 0 {
		t.Fatalf("forgotten while a master does not know it: %d", n)
	}
	meet(t, a, b)
	if n, err := a.store.ForgetDeleted("key", time.Now().Add(-time.Hour), known(t, a, b).all, nil); n != 0 || err != nil {
		t.Fatalf("forgotten too soon: %d %v", n, err)
	}
	if n := a.forget(known(t, a, b)); n != 1 {
		t.Fatalf("forgotten: %d", n)
	}
	if r, err := a.store.Get("key", "m1"); r != nil || err != nil {
		t.Fatal(r, err)
	}
	meet(t, a, b)
	if all := a.all(); len(all) != 0 {
		t.Fatal(all)
	}
	// The id is used again on a master that has dropped the deletion.
	a.reopen("a", func() {})
	a.add("m1", "two")
	meet(t, a, b)
	a.move("m1", keystore.Pending, keystore.Accepted)
	meet(t, a, b)
	if st, _, _ := b.keys.Lookup("m1"); st != keystore.Accepted {
		t.Fatalf("m1 is %v", st)
	}
	// A third master that joins gets this record, and nothing else.
	c := newSite(t, t.TempDir(), "c")
	meet(t, a, b, c)
	if n := len(c.all()); n != 1 {
		t.Fatal(c.all())
	}
}

// TestForgottenStaysDeleted: a master's disk is restored from before a deletion that all others
// have dropped. The master drops the deleted records, also from its directory and if it crashes
// meanwhile. It undoes nothing on others, and keeps its own unsent decisions.
func TestForgottenStaysDeleted(t *testing.T) {
	a, b := newSite(t, t.TempDir(), "a"), newSite(t, t.TempDir(), "b")
	for i := range 5 {
		a.add(fmt.Sprint("m", i), "one")
		a.move(fmt.Sprint("m", i), keystore.Pending, keystore.Accepted)
	}
	meet(t, a, b)
	back := b.keep()
	a.remove("m1")
	a.move("m2", keystore.Accepted, keystore.Rejected)
	a.remove("m3")
	meet(t, a, b)
	for _, s := range []*site{a, b} {
		if n := s.forget(known(t, a, b)); n != 2 {
			t.Fatal(n)
		}
	}
	a.add("m3", "another")
	back()
	b.add("own", "x")
	if st, _, _ := b.keys.Lookup("m1"); st != keystore.Accepted {
		t.Fatal("this is no old disk")
	}
	// It receives the current records, and crashes before its directory matches them.
	mine, _ := a.store.Vector()
	for origin := range mine {
		l, err := a.store.ReadLive(origin, 0)
		if err == nil {
			err = b.store.ApplyLive(l)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b.reopen("b", func() {})
	if st, _, _ := b.keys.Lookup("m1"); st != keystore.None {
		t.Fatalf("m1 is %v", st)
	}
	meet(t, a, b)
	want := map[string]keystore.State{"m0": keystore.Accepted, "m1": keystore.None, "m2": keystore.Rejected, "m3": keystore.Pending, "m4": keystore.Accepted,
		"own": keystore.Pending}
	for id, st := range want {
		if got, _, _ := a.keys.Lookup(id); got != st {
			t.Errorf("%s is %v, not %v", id, got, st)
		}
	}
	for _, bad := range [][]byte{{0}, {0x80}, {1, 0}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 5}} {
		if b.store.ApplyLive(oplog.Batch{Origin: "x", To: 9, Live: bad}) == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}

// TestForgetConverges: deletions are dropped at any time when all masters know them, and disks are
// restored. Masters that have exchanged changes are equal afterwards. A record deleted while all
// are connected never comes back.
func TestForgetConverges(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() || tools.Race {
		seeds = 3
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		sites := []*site{newSite(t, t.TempDir(), "a"), newSite(t, t.TempDir(), "b"), newSite(t, t.TempDir(), "c")}
		back := sites[1].keep()
		last := known(t, sites...)
		for step := range 120 {
			s := sites[r.IntN(len(sites))]
			id := fmt.Sprint("m", r.IntN(6))
			st, _, _ := s.keys.Lookup(id)
			switch n := r.IntN(10); {
			case n < 3 && st == keystore.None:
				s.add(id, fmt.Sprint(step))
			case n < 5 && (st == keystore.Pending || st == keystore.Rejected):
				s.move(id, st, keystore.Accepted)
			case n < 6 && st == keystore.Accepted:
				s.move(id, st, keystore.Rejected)
			case n < 7:
				s.remove(id)
			case n < 9:
				if o := sites[r.IntN(len(sites))]; o != s {
					give(t, s, o)
				}
			default:
				s.forget(last)
				last = known(t, sites...)
			}
			if step == 40 {
				back = sites[1].keep()
			}
		}
		meet(t, sites...)
		gone := map[string]bool{}
		for i := range 3 {
			id := fmt.Sprint("m", i)
			sites[i].remove(id)
			gone[id] = true
		}
		meet(t, sites...)
		for _, s := range sites {
			s.forget(known(t, sites...))
		}
		back()
		b := sites[1]
		all := known(t, sites[0], sites[2]).any
		if v, _ := b.store.Vector(); all[b.store.Self()] > v[b.store.Self()] { // a feed sends these, too
			if err := b.store.Renew(); err != nil {
				t.Fatal(err)
			}
		}
		meet(t, sites...)
		for id := range gone {
			for _, s := range sites {
				if st, _, _ := s.keys.Lookup(id); st != keystore.None {
					t.Errorf("seed %d: %s is %v again on %s", seed, id, st, s.store.id)
				}
			}
		}
	}
}
