package shared

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/test/fuzztest"
)

func open(t testing.TB, by string) *Store {
	t.Helper()
	s, err := Open(t.TempDir(), by)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Store) put(t testing.TB, owner, name, data string) Record {
	t.Helper()
	r, err := s.Put(Record{Kind: "view", Owner: owner, Name: name, Data: json.RawMessage(data)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// shown returns the names and data of all records.
func (s *Store) shown(t testing.TB) string {
	t.Helper()
	all, err := s.All()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range all {
		out = append(out, r.Name+"="+string(r.Data))
	}
	return strings.Join(out, " ")
}

// exchange gives the records of each store to the other.
func exchange(t testing.TB, a, b *Store) {
	t.Helper()
	for _, pair := range [][2]*Store{{a, b}, {b, a}} {
		_, records, err := pair[0].Export("")
		if err != nil {
			t.Fatal(err)
		}
		if err := pair[1].Merge(records); err != nil {
			t.Fatal(err)
		}
	}
}

// TestExchange changes and deletes records at two masters.
func TestExchange(t *testing.T) {
	a, b := open(t, "m1"), open(t, "m2")
	at := time.Now()
	a.now, b.now = func() time.Time { return at }, func() time.Time { return at }
	one := a.put(t, "ann", "one", `1`)
	b.put(t, "bob", "two", `2`)
	exchange(t, a, b)
	for _, s := range []*Store{a, b} {
		if got := s.shown(t); got != "one=1 two=2" {
			t.Errorf("%s has %s", s.by, got)
		}
	}
	ra, _, _ := a.Export("")
	rb, none, err := b.Export(ra)
	if err != nil || ra != rb || none != nil {
		t.Errorf("revisions %s and %s, %d records, %v", ra, rb, len(none), err)
	}
	// A change at the same moment: both end with the same version, and a later one replaces it.
	a.put(t, "ann", "one", `"a"`)
	b.put(t, "ann", "one", `"b"`)
	exchange(t, a, b)
	if x, y := a.shown(t), b.shown(t); x != y || x != `one="b" two=2` {
		t.Errorf("%s and %s", x, y)
	}
	a.put(t, "ann", "one", `"c"`)
	exchange(t, b, a)
	if x := b.shown(t); x != `one="c" two=2` {
		t.Errorf("after a later change: %s", x)
	}
	// A deleted record does not come back.
	_, old, _ := b.Export("")
	if _, err := a.Remove(one.ID, func(r *Record) bool { return r.Owner == "bob" }); salt.KindOf(err) != salt.NotFound {
		t.Errorf("a record of another user: %v", err)
	}
	if _, err := a.Remove(one.ID, func(r *Record) bool { return r.Owner == "ann" }); err != nil {
		t.Fatal(err)
	}
	if err := a.Merge(old); err != nil {
		t.Fatal(err)
	}
	exchange(t, a, b)
	if x, y := a.shown(t), b.shown(t); x != "two=2" || x != y {
		t.Errorf("after a removal: %s and %s", x, y)
	}
	// Its name can be used again, and its mark stays.
	b.put(t, "ann", "one", `"d"`)
	exchange(t, a, b)
	if x := a.shown(t); x != `one="d" two=2` {
		t.Errorf("saved again: %s", x)
	}
	if _, err := b.Remove(one.ID, func(*Record) bool { return true }); err != nil {
		t.Fatal(err)
	}
	at = at.Add(400 * 24 * time.Hour)
	if err := b.Sweep(); err != nil {
		t.Fatal(err)
	}
	exchange(t, a, b)
	if x := b.shown(t); x != "two=2" {
		t.Errorf("after a year: %s", x)
	}
}

// TestWrongClocks: a master whose clock is days ahead or years behind changes, saves and deletes records, and its clock is right again. What
// was changed or deleted knowing another version counts, and of independent changes a deletion. No change is refused for its time.
func TestWrongClocks(t *testing.T) {
	const day = 24 * time.Hour
	for _, off := range []time.Duration{3 * day, 400 * day, -3 * day, -400 * day} {
		t.Run(off.String(), func(t *testing.T) {
			a, b := open(t, "m1"), open(t, "m2")
			at := time.Now()
			b.now = func() time.Time { return at }
			clock := func(off time.Duration) { a.now = func() time.Time { return at.Add(off) } }
			clock(0)
			remove := func(s *Store, name string) {
				t.Helper()
				if _, err := s.Remove(ID("view", "ann", name), func(*Record) bool { return true }); err != nil {
					t.Fatal(err)
				}
			}
			same := func(what, want string) {
				t.Helper()
				exchange(t, a, b)
				exchange(t, a, b)
				if x, y := a.shown(t), b.shown(t); x != want || y != want {
					t.Errorf("%s: %s and %s, want %s", what, x, y, want)
				}
				ra, _, _ := a.Export("")
				if rb, _, _ := b.Export(""); ra != rb {
					t.Errorf("%s: the revisions differ", what)
				}
			}
			for _, name := range []string{"changed", "gone", "gone2", "late"} {
				a.put(t, "ann", name, `1`)
			}
			same("at first", "changed=1 gone=1 gone2=1 late=1")
			clock(off)
			a.put(t, "ann", "changed", `2`)
			a.put(t, "ann", "new", `2`)
			remove(a, "gone")
			a.put(t, "ann", "gone2", `2`) // while the other master deletes it
			remove(b, "gone2")
			for _, s := range []*Store{a, b} {
				if err := s.Sweep(); err != nil {
					t.Fatal(err)
				}
			}
			same("with the wrong clock", "changed=2 late=1 new=2")
			clock(0)
			b.put(t, "ann", "changed", `3`)
			b.put(t, "ann", "new", `3`)
			remove(b, "late")
			same("with the right clock", "changed=3 new=3")
			a.put(t, "ann", "gone", `4`)
			b.put(t, "ann", "gone2", `4`)
			same("saved again", "changed=3 gone=4 gone2=4 new=3")
		})
	}
}

// TestOldCopy: the disk of a master is set back to before deletions and changes. It brings back nothing, and what it changes afterwards counts.
func TestOldCopy(t *testing.T) {
	a, b := open(t, "m1"), open(t, "m2")
	a.put(t, "ann", "gone", `1`)
	a.put(t, "ann", "kept", `1`)
	a.put(t, "ann", "other", `1`)
	exchange(t, a, b)
	old := t.TempDir()
	if err := os.CopyFS(old, os.DirFS(a.dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Remove(ID("view", "ann", "gone"), func(*Record) bool { return true }); err != nil {
		t.Fatal(err)
	}
	a.put(t, "ann", "kept", `2`)
	exchange(t, a, b)
	at := time.Now().Add(500 * 24 * time.Hour)
	b.now = func() time.Time { return at }
	if err := b.Sweep(); err != nil {
		t.Fatal(err)
	}
	back, err := Open(old, "m1")
	if err != nil {
		t.Fatal(err)
	}
	if x := back.shown(t); x != "gone=1 kept=1 other=1" {
		t.Fatalf("this is no old copy: %s", x)
	}
	back.put(t, "ann", "other", `2`)
	exchange(t, back, b)
	for _, s := range []*Store{back, b} {
		if x := s.shown(t); x != "kept=2 other=2" {
			t.Errorf("%s has %s", s.by, x)
		}
	}
}

// TestRanks: of independent versions the one of higher rank counts, whatever the clocks say, and also in files that masters replicate.
func TestRanks(t *testing.T) {
	a, b, c := open(t, "m1"), open(t, "m2"), open(t, "m3")
	all := []*Store{a, b, c}
	put := func(s *Store, rank int, data string) {
		t.Helper()
		if _, err := s.Put(Record{Kind: "view", Owner: "ann", Name: "x", Rank: rank, Data: json.RawMessage(data)}); err != nil {
			t.Fatal(err)
		}
	}
	put(a, 0, `"waits"`)
	exchange(t, a, b)
	exchange(t, a, c)
	put(a, 4, `"started"`)
	ahead := time.Now().Add(72 * time.Hour)
	c.now = func() time.Time { return ahead }
	put(b, 3, `"rejected"`)
	put(c, 1, `"granted"`)
	file := func(s *Store) int {
		b, err := os.ReadFile(filepath.Join(s.dir, ID("view", "ann", "x")))
		if err != nil {
			t.Fatal(err)
		}
		return Rank(b)
	}
	if file(a) <= file(b) || file(b) <= file(c) || file(c) <= Rank(nil) || Rank([]byte("{")) != Rank(nil) {
		t.Error("the ranks of the files are in another order")
	}
	for range 2 {
		exchange(t, b, c)
		exchange(t, a, c)
		exchange(t, a, b)
	}
	for _, s := range all {
		if x := s.shown(t); x != `x="started"` {
			t.Errorf("%s has %s", s.by, x)
		}
	}
	put(b, 0, `"again"`)
	for range 2 {
		exchange(t, b, c)
		exchange(t, a, c)
	}
	for _, s := range all {
		if x := s.shown(t); x != `x="again"` {
			t.Errorf("%s has %s after a change that knew all", s.by, x)
		}
	}
}

// TestManyMarks: masters keep the same marks of the last deletions.
func TestManyMarks(t *testing.T) {
	a, b := open(t, "m1"), open(t, "m2")
	const most = 20
	a.marks, b.marks = most, most
	for i := range most + 10 {
		name := fmt.Sprint(i)
		r := Record{ID: ID("view", "ann", name), Kind: "view", Owner: "ann", Name: name, Changed: int64(i + 1), By: "m1", Deleted: true}
		if err := a.write(&r); err != nil {
			t.Fatal(err)
		}
	}
	_, records, err := a.Export("")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Merge(records), a.Sweep()); err != nil {
		t.Fatal(err)
	}
	exchange(t, a, b)
	for _, s := range []*Store{a, b} {
		files, err := os.ReadDir(s.dir)
		if err != nil || len(files) != most {
			t.Errorf("%s has %d files: %v", s.by, len(files), err)
		}
		if _, err := os.Stat(filepath.Join(s.dir, ID("view", "ann", "9"))); err == nil {
			t.Errorf("%s has one of the first marks", s.by)
		}
	}
	ra, _, _ := a.Export("")
	if rb, _, _ := b.Export(""); ra != rb {
		t.Error("the masters have different marks")
	}
}

// TestExchangeAtRandom: masters with wrong clocks and disks that are set back change, delete and exchange records in any order. Then all have
// the same.
func TestExchangeAtRandom(t *testing.T) {
	for seed := range uint64(12) {
		rnd := rand.New(rand.NewPCG(seed, 21))
		var all []*Store
		for i := range 3 {
			s := open(t, fmt.Sprint("m", i))
			off := time.Duration(rnd.IntN(7)-3) * 24 * time.Hour
			s.now = func() time.Time { return time.Now().Add(off) }
			all = append(all, s)
		}
		old := t.TempDir()
		for step := range 60 {
			s, name := all[rnd.IntN(3)], fmt.Sprint(rnd.IntN(3))
			switch rnd.IntN(5) {
			case 0, 1:
				s.put(t, "ann", name, fmt.Sprint(step))
			case 2:
				_, err := s.Remove(ID("view", "ann", name), func(*Record) bool { return true })
				if err != nil && salt.KindOf(err) != salt.NotFound {
					t.Fatal(err)
				}
			case 3:
				exchange(t, s, all[rnd.IntN(3)])
			default:
				switch step {
				case 20, 21, 22:
					old = filepath.Join(t.TempDir(), "copy")
					if err := os.CopyFS(old, os.DirFS(all[0].dir)); err != nil {
						t.Fatal(err)
					}
				case 40, 41, 42:
					if files, _ := os.ReadDir(old); len(files) > 0 {
						all[0].dir, all[0].known = old, map[string]entry{}
					}
				}
			}
		}
		for range 3 {
			exchange(t, all[0], all[1])
			exchange(t, all[1], all[2])
			exchange(t, all[0], all[2])
		}
		first, _, _ := all[0].Export("")
		for _, s := range all[1:] {
			if at, _, _ := s.Export(""); at != first || s.shown(t) != all[0].shown(t) {
				t.Fatalf("seed %d: %s has %s, %s has %s", seed, all[0].by, all[0].shown(t), s.by, s.shown(t))
			}
		}
	}
}

// TestBounds refuses what is too large, too much or invalid.
func TestBounds(t *testing.T) {
	s := open(t, "m1")
	for _, r := range []Record{
		{Kind: "view", Owner: "ann", Data: json.RawMessage(`1`)}, {Kind: "view", Name: "x", Data: json.RawMessage(`1`)},
		{Kind: "view", Owner: "ann", Name: "x\x1b[31m", Data: json.RawMessage(`1`)},
		{Kind: "view", Owner: "ann", Name: strings.Repeat("x", MaxName+1), Data: json.RawMessage(`1`)},
		{Kind: "view", Owner: "ann", Name: "x", Data: json.RawMessage(`"` + strings.Repeat("x", MaxData) + `"`)},
		{Kind: "view", Owner: "ann", Name: "x", Data: json.RawMessage(`{`)},
	} {
		if _, err := s.Put(r); salt.KindOf(err) != salt.Invalid {
			t.Errorf("%.100v: %v", r, err)
		}
	}
	for i := range MaxOfOwner {
		s.put(t, "ann", fmt.Sprint(i), `1`)
	}
	if _, err := s.Put(Record{Kind: "view", Owner: "ann", Name: "more", Data: json.RawMessage(`1`)}); salt.KindOf(err) != salt.Invalid {
		t.Errorf("too many: %v", err)
	}
	s.put(t, "ann", "0", `2`) // replaces
	s.put(t, "bob", "0", `1`)
	// A damaged file hides itself alone.
	id := ID("view", "bob", "0")
	if err := os.WriteFile(filepath.Join(s.dir, id), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := s.All(); err != nil || len(all) != MaxOfOwner {
		t.Errorf("%d records, %v", len(all), err)
	}
	s.put(t, "bob", "0", `3`)
	if all, err := s.All(); err != nil || len(all) != MaxOfOwner+1 {
		t.Errorf("%d records, %v", len(all), err)
	}
}

// FuzzMerge gives a store records of another master: it keeps only valid ones, and those that it has stay readable.
func FuzzMerge(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	a := open(tf, "m2")
	a.put(tf, "ann", "one", `{"x": 1}`)
	_, records, err := a.Export("")
	if err != nil {
		tf.Fatal(err)
	}
	f.Add(records[0])
	f.Add(`{"id":"../../x","kind":"view"}`)
	f.Add(`{`)
	f.Fuzz(func(t *testing.T, text string) {
		s := open(t, "m1")
		own := s.put(t, "bob", "two", `2`)
		if err := s.Merge([]string{text}); err != nil {
			t.Fatal(err)
		}
		all, err := s.All()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if r.check() != nil {
				t.Errorf("%+v", r)
			}
		}
		files, _ := os.ReadDir(s.dir)
		for _, f := range files {
			if !ValidID(f.Name()) {
				t.Errorf("file %s", f.Name())
			}
		}
		if _, err := s.Remove(own.ID, func(*Record) bool { return true }); err != nil && len(all) < 1 {
			t.Error(err)
		}
	})
}
