package shared

import (
	"encoding/json"
	"fmt"
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
	// Its name can be used again, and its mark expires.
	b.put(t, "ann", "one", `"d"`)
	exchange(t, a, b)
	if x := a.shown(t); x != `one="d" two=2` {
		t.Errorf("saved again: %s", x)
	}
	if _, err := b.Remove(one.ID, func(*Record) bool { return true }); err != nil {
		t.Fatal(err)
	}
	at = at.Add(keepMarks + time.Hour)
	if err := b.Sweep(); err != nil {
		t.Fatal(err)
	}
	if files, _ := os.ReadDir(b.dir); len(files) != 1 {
		t.Errorf("%d files", len(files))
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
