package replica

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"brine/internal/base/salt"
)

// watched are some masters that compare their records. Time advances with each step.
type watched struct {
	t       *testing.T
	now     time.Time
	stores  []*Store
	watches []*Watch
	found   []string
	away    map[int]bool
	old     int // a master whose version does not compare; -1: none
}

func newWatched(t *testing.T, n int) *watched {
	x := &watched{t: t, now: time.Unix(1_800_000_000, 0), away: map[int]bool{}, old: -1}
	for i := range n {
		s, err := Open(t.TempDir(), fmt.Sprint(i), Ranks{"key": func(v []byte) int { return len(v) }}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		x.stores = append(x.stores, s)
		x.watches = append(x.watches, &Watch{
			Source: s, Kinds: []string{"thing", "key"}, Log: slog.New(slog.DiscardHandler),
			Peers: func() (ids []string, members int) {
				for j := range n {
					if j != i && !x.away[j] {
						ids = append(ids, fmt.Sprint(j))
					}
				}
				return ids, n
			},
			Ask: func(_ context.Context, peer string, q []byte) ([]byte, error) {
				j := int(peer[0] - '0')
				if x.away[j] {
					return nil, salt.Errorf(salt.Unavailable, "it is unreachable")
				}
				if j == x.old {
					return nil, nil
				}
				return x.watches[j].Answer(q), nil
			},
			Found: func(d Difference) { x.found = append(x.found, fmt.Sprintf("%d: %s %s %s", i, d.Kind, d.Name, d.Peer)) },
		})
	}
	return x
}

// exchange gives all masters all changes.
func (x *watched) exchange() {
	x.t.Helper()
	for _, from := range x.stores {
		for _, to := range x.stores {
			mine, err := from.Vector()
			if err != nil {
				x.t.Fatal(err)
			}
			theirs, err := to.Vector()
			if err != nil {
				x.t.Fatal(err)
			}
			for origin := range mine {
				for at := theirs[origin]; at < mine[origin]; {
					b, err := from.Read(origin, at, 100, 1<<20)
					if err == nil {
						err = to.Apply(b)
					}
					if err != nil {
						x.t.Fatal(err)
					}
					at = b.To
				}
			}
		}
	}
}

func (x *watched) pass(d time.Duration) {
	for end := x.now.Add(d); x.now.Before(end); x.now = x.now.Add(StepTime) {
		for i, w := range x.watches {
			if !x.away[i] {
				w.Step(x.t.Context(), x.now)
			}
		}
	}
}

func (x *watched) value(i int, kind, name string) string {
	x.t.Helper()
	r, err := x.stores[i].Get(kind, name)
	if err != nil {
		x.t.Fatal(err)
	}
	if r == nil {
		return "none"
	}
	if r.Value == nil {
		return "deleted"
	}
	return string(r.Value)
}

// set changes the versions on a master without recording a change.
func (x *watched) set(i int, kind, name string, fn func(all []*Record) []*Record) {
	x.t.Helper()
	err := x.stores[i].db.Update(func(tx *bolt.Tx) error {
		all, err := load(tx, kind, name)
		if err != nil {
			return err
		}
		if all = fn(all); len(all) == 0 {
			return tx.Bucket(recordsBucket).Delete(recordKey(kind, name))
		}
		return save(tx, kind, name, all)
	})
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *watched) put(i int, kind, name, value string) {
	x.t.Helper()
	var b []byte
	if value != "" {
		b = []byte(value)
	}
	if err := x.stores[i].Put(kind, name, b); err != nil {
		x.t.Fatal(err)
	}
}

func lose([]*Record) []*Record { return nil }

// TestWatch: lost and damaged records on one of three masters, old versions, and deleted records that came back are found, reported once by each
// master, and repaired by the rules. A record that a majority lacks is reported, and left for the operator.
func TestWatch(t *testing.T) {
	x := newWatched(t, 3)
	changes := make([][]change, 3)
	for i := range 2*chunkThings + 10 {
		changes[i%3] = append(changes[i%3], change{kind: "thing", name: fmt.Sprintf("t%04d", i), value: []byte("content")},
			change{kind: "key", name: fmt.Sprintf("k%04d", i), value: []byte("aa")})
	}
	for i, s := range x.stores {
		if _, err := s.put(changes[i]); err != nil {
			t.Fatal(err)
		}
	}
	x.exchange()
	x.pass(3 * time.Minute)
	if len(x.found) > 0 {
		t.Fatalf("found in equal masters: %v", x.found)
	}
	var before []*Record // versions of a record that is then deleted, and of one that is then changed
	x.set(2, "thing", "t0030", func(all []*Record) []*Record { before = all; return all })
	var deleted []*Record
	x.set(2, "key", "k0040", func(all []*Record) []*Record { deleted = all; return all })
	x.put(0, "thing", "t0030", "newer")
	x.put(1, "key", "k0040", "")
	x.exchange()

	x.set(1, "thing", "t0000", lose) // the first record, one in the middle, the last
	x.set(1, "key", "k0300", lose)
	x.set(1, "key", fmt.Sprintf("k%04d", 2*chunkThings+9), lose)
	x.set(0, "thing", "t0020", func(all []*Record) []*Record { all[0].Value = []byte("damaged"); return all })
	x.set(2, "thing", "t0030", func([]*Record) []*Record { return before })
	x.set(2, "key", "k0040", func([]*Record) []*Record { return deleted })
	x.set(0, "thing", "t0050", lose)
	x.set(1, "thing", "t0050", lose)
	x.pass(5 * time.Minute)
	for i := range x.stores {
		for _, c := range [][3]string{{"thing", "t0000", "content"}, {"key", "k0300", "aa"}, {"key", fmt.Sprintf("k%04d", 2*chunkThings+9), "aa"},
			{"thing", "t0020", "content"}, {"thing", "t0030", "newer"}, {"key", "k0040", "deleted"}} {
			if v := x.value(i, c[0], c[1]); v != c[2] {
				t.Errorf("%s of %d: %q, not %q", c[1], i, v, c[2])
			}
		}
		for _, d := range x.watches[i].Differences() {
			if d.Name != "t0050" {
				t.Errorf("%d: %+v", i, d)
			}
		}
	}
	if a, b, c := x.value(0, "thing", "t0050"), x.value(1, "thing", "t0050"), x.value(2, "thing", "t0050"); a+b+c != "nonenonecontent" {
		t.Errorf("what a majority lacks: %s, %s, %s", a, b, c)
	}
	all := strings.Join(x.found, "\n")
	for _, want := range []string{"1: thing t0000", "1: key k0300", "0: thing t0020", "2: thing t0050 0", "2: thing t0050 1", "0: thing t0050 2"} {
		if strings.Count(all, want) == 0 {
			t.Errorf("%q was not told", want)
		}
	}
	if n := strings.Count(all, "0: thing t0050 2"); n != 1 {
		t.Errorf("it was told %d times", n)
	}
	// The log sends a repaired record to a new master.
	if vector, err := x.stores[1].Vector(); err != nil || len(vector) == 0 {
		t.Fatal(vector, err)
	}
	fresh := newWatched(t, 1)
	fresh.stores = append(fresh.stores, x.stores[1])
	fresh.exchange()
	if v := fresh.value(0, "thing", "t0000"); v != "content" {
		t.Errorf("a new master has %q", v)
	}
	x.put(2, "thing", "t0050", "again") // the operator decides
	x.exchange()
	x.pass(2 * time.Minute)
	for i, w := range x.watches {
		if l := w.Differences(); len(l) > 0 {
			t.Errorf("%d: %+v", i, l)
		}
	}
}

// TestWatchUnderway: changes in transit are not differences, however long they take. Nor are missing answers of a master that is unreachable or of
// an older version.
func TestWatchUnderway(t *testing.T) {
	x := newWatched(t, 3)
	x.put(0, "thing", "a", "1")
	x.exchange()
	for i := range 20 {
		x.put(i%3, "thing", "a", fmt.Sprint(i))
		x.put(i%3, "key", fmt.Sprint(i), "x")
		x.pass(30 * time.Second)
		x.away[2] = i%5 == 0
	}
	x.exchange()
	x.pass(time.Minute)
	x.away[2] = false
	if x.pass(time.Minute); len(x.found) > 0 {
		t.Fatalf("%v", x.found)
	}
	x.old = 1
	x.set(1, "thing", "a", lose)
	x.watches[2].Kinds = []string{"key"} // an older version
	x.set(2, "key", "3", lose)
	x.pass(2 * time.Minute)
	if all := strings.Join(x.found, "\n"); strings.Contains(all, "0: thing") || !strings.Contains(all, "0: key 3 2") {
		t.Error(all)
	}
}

// TestWatchAnswer: a question from another master is answered within bounds.
func TestWatchAnswer(t *testing.T) {
	x := newWatched(t, 1)
	x.put(0, "thing", "a", "1")
	x.put(0, "secret", "s", "1")
	for q, want := range map[string]string{
		`{`:                                  `"why"`,
		`{"kind":"secret"}`:                  `are not compared`,
		`{"kind":"secret","whole":"s"}`:      `are not compared`,
		`{"kind":"thing","total":"x"}`:       `"sums":{"a"`,
		`{"kind":"thing","names":["a","b"]}`: `"before"`,
		`{"kind":"thing","whole":"b"}`:       `{}`,
	} {
		if got := string(x.watches[0].Answer([]byte(q))); !strings.Contains(got, want) {
			t.Errorf("%s: %s", q, got)
		}
	}
	if _, err := x.stores[0].Take("thing", "a", []Version{{"o", 1, []byte("x")}}, false); err == nil {
		t.Error("a version that is none is taken")
	}
}
