package keystore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/base/salt"
	"brine/test/fuzztest"
)

func keysOf(t *testing.T, s *Store, id string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, st := range States {
		pub, err := s.Read(st, id)
		if err == nil {
			out[st.DirName()] = pub
		} else if salt.KindOf(err) != salt.NotFound {
			t.Fatal(err)
		}
	}
	return out
}

// TestDecisions checks that the last of several changes since the previous round is reported, also
// of other processes, and that none is reported twice.
func TestDecisions(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(filepath.Join(dir, "pki"), quiet)
	if err != nil {
		t.Fatal(err)
	}
	if NoteBeside(dir, quiet) != nil {
		t.Error("no directory for notes")
	}
	d, err := OpenDecisions(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	beside := NoteBeside(dir, quiet)
	var was map[string]string
	who := func(want string) {
		t.Helper()
		is := keysOf(t, s, "m")
		who, how := d.Who("m", was, is)
		d.Looked()
		if got := strings.TrimSpace(who + " " + how); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		was = is
	}
	by := func(name string) *Store { return s.As(d.Note, name, "here") }
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(by("ann").Add(Pending, "m", "K"))
	who("ann here")
	who("")
	ok(s.As(beside, "bob", "there").Move("m", Pending, Accepted))
	ok(by("cat").Move("m", Accepted, Rejected))
	who("cat here")
	ok(s.As(beside, "bob\x1b[2J\n", strings.Repeat("ü", 1000)).Move("m", Rejected, Accepted))
	is := keysOf(t, s, "m")
	name, how := d.Who("m", was, is)
	if d.Looked(); name != "bob[2J" || len(how) > maxWho || !strings.HasPrefix(how, "üüü") {
		t.Errorf("%q %q", name, how)
	}
	was = is
	// A decision without effect is not reported for later changes.
	d.Note(Decision{ID: "m", From: "minions", To: "minions_rejected", Sum: sumOf("another"), Who: "eve"})
	d.Note(Decision{ID: "m", From: "minions_pre", To: "minions", Sum: sumOf("K"), Who: "eve"}) // already in effect
	ok(s.Move("m", Accepted, Rejected))
	who("")
	// Two steps, with a round in between.
	ok(by("fay").Put(Accepted, "m", "K"))
	who("fay here")
	ok(by("fay").Delete(Rejected, "m"))
	who("fay here")
	ok(s.As(beside, "gil", "there").Delete(Accepted, "m"))
	who("gil there")
	if left, _ := os.ReadDir(DecisionsDir(dir)); len(left) > 0 {
		t.Error(left)
	}
	var none *Decisions
	none.Note(Decision{ID: "m"})
	if who, how := none.Who("m", nil, nil); who+how != "" {
		t.Error(who, how)
	}
	none.Looked()
	// More notes than the bound.
	for range maxNotes + 10 {
		d.Note(Decision{ID: "n"})
	}
	if d.count != maxNotes {
		t.Error(d.count)
	}
}

func FuzzNote(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add([]byte(`{"id":"m","from":"minions_pre","to":"minions","sum":"` + sumOf("K") + `","who":"ann","how":"salt-key"}`))
	f.Add([]byte(`{"id":"..","to":"minions"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := parseNote(b)
		if err != nil {
			return
		}
		if salt.CheckID(n.ID) != nil || n.From == n.To || len(n.Sum) != 64 {
			t.Errorf("%+v", n)
		}
		if who := CleanName(n.Who); len(who) > maxWho || strings.ContainsAny(who, "\n\x00\x1b") {
			t.Errorf("%q", who)
		}
	})
}
