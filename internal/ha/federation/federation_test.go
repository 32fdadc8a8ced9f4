package federation

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"brine/internal/net/crypt"
	"brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/boltfile"
	"brine/internal/store/keystore"
	"brine/test/fuzztest"
)

func TestSiteTarget(t *testing.T) {
	for _, c := range []struct {
		tgt, site, want string
		possible        bool
	}{
		{"site:eu", "eu", "*", true},
		{"site:eu", "us", "E@^$", false},
		{"site:eu", "", "E@^$", false},
		{"site:e* and web*", "eu", "* and web*", true},
		{"site:e* and web*", "us", "E@^$ and web*", false},
		{"not site:eu", "us", "not E@^$", true},
		{"not site:eu", "eu", "not *", false},
		{"not site:eu", "", "not E@^$", true},
		{"site:eu or web*", "us", "E@^$ or web*", true},
		{"( site:eu or site:us ) and G@os:Debian", "us", "( E@^$ or * ) and G@os:Debian", true},
		{"( site:eu or site:us ) and G@os:Debian", "asia", "( E@^$ or E@^$ ) and G@os:Debian", false},
		{"web* and not ( site:eu )", "eu", "web* and not ( * )", false},
		{"web*", "eu", "web*", true},
		{"web* site:eu", "us", "web* E@^$", false},
	} {
		_, got, possible := SiteTarget(c.site, "compound", c.tgt)
		if got != c.want || possible != c.possible {
			t.Errorf("%q at %q: %q %v, want %q %v", c.tgt, c.site, got, possible, c.want, c.possible)
		}
	}
	if _, got, possible := SiteTarget("us", "glob", "site:eu"); got != "site:eu" || !possible {
		t.Errorf("a glob became %v", got)
	}
}

// FuzzSiteTarget: no target makes the reader fail, and what has no word of a site stays as it is.
func FuzzSiteTarget(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add("site:eu and ( not web* or site:u* )")
	f.Add(strings.Repeat("( ", 200) + "not not not )")
	f.Fuzz(func(t *testing.T, tgt string) {
		_, got, possible := SiteTarget("eu", "compound", tgt)
		if !NamesSites("compound", tgt) && (got != tgt || !possible) {
			t.Errorf("%q became %v", tgt, got)
		}
		if NamesSites("compound", got) {
			t.Errorf("%q has a word of a site", got)
		}
	})
}

func TestSplitName(t *testing.T) {
	if id, site, ok := splitName("a@b@eu"); !ok || id != "a@b" || site != "eu" {
		t.Errorf("%q %q %v", id, site, ok)
	}
	for _, name := range []string{"a", "@eu", "a@", "a@b.c"} {
		if _, _, ok := splitName(name); ok {
			t.Errorf("%q has a site", name)
		}
	}
}

func TestTally(t *testing.T) {
	y := newTally()
	ids := make([]string, 0, 3000)
	for i := range 3000 {
		id := fmt.Sprintf("m%04d", i)
		ids = append(ids, id)
		ret := value.DictOf("return", true, "retcode", int64(0))
		switch {
		case i < 5:
			ret = value.DictOf("return", "broken", "retcode", int64(1))
		case i < 7:
			ret = value.DictOf("return", value.DictOf("x", value.DictOf("result", true, "changes", value.DictOf("a", "b"))))
		case i < 9:
			ret = value.DictOf("return", strings.Repeat("x", maxSample+1))
		case i == 9:
			continue
		}
		if !y.add(id, ret) || y.add(id, ret) {
			t.Fatalf("%s is not counted once", id)
		}
	}
	s := y.summary("20260101000000000000", ids)
	if s.Targeted != 3000 || s.OK != 2994 || s.Failed != 5 || s.Changed != 2 || s.FailedIDs.Len() != 5 || s.AbsentIDs.Len() != 1 || s.Groups.Len() != 4 {
		t.Errorf("%+v", s)
	}
	first, ok := s.Groups.Items[0].(*value.Dict)
	if !ok || first.At("count") != int64(2990) || first.At("return") != true {
		t.Errorf("the first group is %v", s.Groups.Items[0])
	}
	var back wire.SiteSummary
	if err := wire.Decode(wire.Encode(s), &back); err != nil {
		t.Error(err)
	}
}

func TestBook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	b, err := openBook(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		b.later(jobsBucket, fmt.Sprint("a/", i), value.DictOf("n", int64(i)))
	}
	if err := b.put(jobsBucket, "b/1", value.DictOf("n", "x")); err != nil {
		t.Fatal(err)
	}
	b.remove(jobsBucket, "a/7")
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	if b, err = openBook(path, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	defer b.close()
	n := 0
	if err := b.each(jobsBucket, "a/", func(key string, d *value.Dict) {
		if n++; key == "a/7" || d.At("n") == nil {
			t.Errorf("%s: %v", key, d)
		}
	}); err != nil || n != 99 {
		t.Errorf("%d records: %v", n, err)
	}
}

// TestBookFails: a change that no caller waits for is stored after a failed flush, even if a change of
// the same record was in it for which a caller waits. That one is not stored: the caller repeats it.
func TestBookFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	b, err := openBook(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.put(jobsBucket, "gone", value.DictOf("by", "before")), b.close()); err != nil {
		t.Fatal(err)
	}
	later := func(key, by string) change {
		c := change{place: place{jobsBucket, key}}
		if by != "" {
			c.content, err = msgpack.Marshal(value.DictOf("by", by), msgpack.NewSpec)
			if err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	var waits []chan error
	put := func(key string) change {
		c := later(key, "put")
		c.done = make(chan error, 1)
		waits = append(waits, c.done)
		return c
	}
	w := newWaiting()
	for _, c := range []change{
		later("first", "later"), put("first"),
		put("last"), later("last", "later"),
		later("both", "older"), put("both"), later("both", "later"), put("both"),
		put("alone"),
		put("gone"), later("gone", ""),
	} {
		w.add(c)
	}
	if b.flush(w) == nil { // the file is closed
		t.Fatal("a failed flush is not repeated")
	}
	for _, done := range waits {
		if err := <-done; err == nil {
			t.Error("a caller that waits does not get the error")
		}
	}
	if b.file, err = boltfile.Open(path, bolt.Options{Timeout: time.Second}); err != nil {
		t.Fatal(err)
	}
	defer b.file.Close()
	if b.flush(w) != nil || len(w.content)+len(w.kept) > 0 {
		t.Error("the second flush fails")
	}
	got := map[string]string{}
	if err := b.each(jobsBucket, "", func(key string, d *value.Dict) { got[key] = value.Str(d.At("by")) }); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"first": "later", "last": "later", "both": "later"}; !maps.Equal(got, want) {
		t.Errorf("stored: %v, not %v", got, want)
	}
}

// TestNewer: masters of a site number their summaries each for itself, so that the count decides.
func TestNewer(t *testing.T) {
	for _, c := range []struct {
		before summed
		in     wire.SiteSummary
		want   bool
	}{
		{summed{}, wire.SiteSummary{Version: 1}, true},
		{summed{4, 1, false}, wire.SiteSummary{Version: 2, OK: 2, Final: true}, true},
		{summed{2, 2, true}, wire.SiteSummary{Version: 9, OK: 1, Final: true}, false},
		{summed{2, 2, true}, wire.SiteSummary{Version: 9, OK: 1, Failed: 1}, false},
		{summed{2, 1, false}, wire.SiteSummary{Version: 1, OK: 1, Final: true}, true},
		{summed{2, 1, false}, wire.SiteSummary{Version: 2, OK: 1}, false},
		{summed{2, 1, false}, wire.SiteSummary{Version: 3, OK: 1}, true},
	} {
		if got := newer(&c.before, &c.in); got != c.want {
			t.Errorf("%+v after %+v: %v", c.in, c.before, got)
		}
	}
}

// TestAnswer: answers of several masters of a site, and of one whose disk was restored.
func TestAnswer(t *testing.T) {
	p := &sitePart{state: StateWaiting}
	step := func(in wire.SiteStored, minions []string, state string, count int) {
		t.Helper()
		p.answer(&in, minions)
		if p.state != state || len(p.minions) != count {
			t.Errorf("after %+v: %s with %v", in, p.state, p.minions)
		}
	}
	step(wire.SiteStored{Refused: "no", Master: "a"}, nil, StateRefused, 0)
	step(wire.SiteStored{Master: "b", More: true}, []string{"m1", "m2"}, StateStored, 2)
	step(wire.SiteStored{Master: "b"}, []string{"m2", "m3"}, StateStored, 3)
	step(wire.SiteStored{Refused: "expired", Master: "a"}, nil, StateStored, 3)
	step(wire.SiteStored{Refused: "expired", Master: "b"}, nil, StateLost, 3)
	step(wire.SiteStored{Master: "b"}, []string{"m3"}, StateStored, 3)
	p.final = true
	step(wire.SiteStored{Refused: "expired", Master: "b"}, nil, StateStored, 3)
}

// TestDecisions: a decision replaces those that it has seen, in whatever order decisions arrive, how
// often, and also after a restart. Of those that did not see each other, the strictest counts.
func TestDecisions(t *testing.T) {
	dir := t.TempDir()
	pem := func() string {
		k, err := crypt.GenerateKey(2048)
		if err != nil {
			t.Fatal(err)
		}
		return string(k.Public().PEM())
	}
	pub, other := pem(), pem()
	var b *book
	open := func(where string) *decisions {
		t.Helper()
		var err error
		if b, err = openBook(filepath.Join(dir, where, "x.db"), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		d := &decisions{book: b}
		if d.keys, err = keystore.Open(filepath.Join(dir, where, "sites"), slog.New(slog.DiscardHandler)); err == nil {
			err = d.load()
		}
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	made := map[string]wire.HubKey{
		"accept":   {ID: "accept", Pub: pub, State: "accepted"},
		"reject":   {ID: "reject", Pub: pub, State: "rejected", Seen: []string{"accept"}},
		"again":    {ID: "again", Pub: pub, State: "accepted", Seen: []string{"reject", "accept"}},
		"apart":    {ID: "apart", Pub: pub, State: "rejected", Seen: []string{"accept"}},
		"another":  {ID: "another", Pub: other, State: "accepted", Seen: []string{"again", "apart", "reject", "accept"}},
		"deleted":  {ID: "deleted", Pub: other, State: "", Seen: []string{"another", "again", "apart", "reject", "accept"}},
		"rejected": {ID: "rejected", Pub: other, State: "rejected", Seen: []string{"another", "again", "apart", "reject", "accept"}},
	}
	// All orders of these decisions, each also repeated, come to the same.
	places := 0
	check := func(ids []string, want keystore.State, key string) {
		t.Helper()
		for i, order := range permutations(ids) {
			places++
			d := open(fmt.Sprint(places))
			for _, id := range slices.Concat(order, order[:1]) {
				in := made[id]
				in.Name = "eu"
				if err := d.learn(in); err != nil {
					t.Fatal(err)
				}
			}
			st, is, err := d.keys.Lookup("eu")
			if err != nil || st != want || is != key {
				t.Errorf("%v: %s, %t, %v", order, st, is == key, err)
			}
			if err := b.close(); err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				continue
			}
			d = open(fmt.Sprint(places)) // what was learned is remembered
			in := made[order[0]]
			in.Name = "eu"
			if err := d.learn(in); err != nil {
				t.Fatal(err)
			}
			if st, is, err := d.keys.Lookup("eu"); err != nil || st != want || is != key {
				t.Errorf("%v after a restart: %s, %t, %v", order, st, is == key, err)
			}
			if err := b.close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	check([]string{"accept", "reject"}, keystore.Rejected, pub)
	check([]string{"accept", "reject", "again"}, keystore.Accepted, pub)
	check([]string{"accept", "reject", "again", "apart"}, keystore.Rejected, pub)
	check([]string{"again", "apart", "another"}, keystore.Accepted, other)
	check([]string{"again", "another", "deleted"}, keystore.None, "")
	check([]string{"deleted", "another", "rejected"}, keystore.Rejected, other)

	d := open("decide")
	defer func() { b.close() }()
	if err := d.learn(wire.HubKey{ID: "x", Name: "../eu", Pub: pub, State: "accepted"}); err == nil {
		t.Error("a bad name is accepted")
	}
	for _, id := range []string{"again", "apart"} {
		in := made[id]
		in.Name = "eu"
		if err := d.learn(in); err != nil {
			t.Fatal(err)
		}
	}
	decided, err := d.make("eu", pub, "accepted", func() error { return d.keys.Move("eu", keystore.Rejected, keystore.Accepted) })
	if err != nil || !slices.Contains(decided.Seen, "again") || !slices.Contains(decided.Seen, "apart") || !slices.Contains(decided.Seen, "reject") {
		t.Errorf("%v %v", decided, err)
	}
	for _, id := range []string{"again", "apart", "reject"} {
		in := made[id]
		in.Name = "eu"
		if err := d.learn(in); err != nil {
			t.Fatal(err)
		}
	}
	if st, _, err := d.keys.Lookup("eu"); err != nil || st != keystore.Accepted {
		t.Errorf("what the user had seen counts again: %s %v", st, err)
	}
	all, err := d.current()
	if err != nil || len(all) != 1 || all[0].ID != decided.ID {
		t.Errorf("%v %v", all, err)
	}
	// What the keys do not agree with is not spread.
	if err := d.keys.Move("eu", keystore.Accepted, keystore.Rejected); err != nil {
		t.Fatal(err)
	}
	if all, err := d.current(); err != nil || len(all) != 0 {
		t.Errorf("%v %v", all, err)
	}
	// The list of what a decision has seen is bounded.
	for range maxSeen + 5 {
		if decided, err = d.make("eu", pub, "rejected", func() error { return nil }); err != nil || len(decided.Seen) > maxSeen {
			t.Fatalf("%d seen, %v", len(decided.Seen), err)
		}
	}
}

func permutations(all []string) (out [][]string) {
	if len(all) <= 1 {
		return [][]string{all}
	}
	for i := range all {
		rest := slices.Concat(all[:i], all[i+1:])
		for _, p := range permutations(rest) {
			out = append(out, append([]string{all[i]}, p...))
		}
	}
	return out
}
