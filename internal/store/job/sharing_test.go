package job

import (
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/store/oplog"
)

type sharingStore struct {
	*Store
	mu    sync.Mutex
	taken []Taken
}

func openSharing(t *testing.T, dir, id string) *sharingStore {
	t.Helper()
	h := &sharingStore{}
	s, err := OpenSharing(dir, id, Options{KeepJobsSeconds: 86400, KeepJobs: 24, JobCache: true}, func(ts []Taken) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.taken = append(h.taken, ts...)
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	h.Store = s
	t.Cleanup(func() { s.Close() })
	return h
}

// exchange sends to the store what it lacks of from, a few items at a time.
func exchange(t *testing.T, from, to oplog.Stream) {
	t.Helper()
	mine, err := from.Vector()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := to.Vector()
	if err != nil {
		t.Fatal(err)
	}
	for origin := range mine {
		for at := theirs[origin]; at < mine[origin]; {
			b, err := from.Read(origin, at, 3, 1<<20)
			if err == nil {
				err = to.Apply(b)
			}
			if err != nil {
				t.Fatal(err)
			}
			at = b.To
		}
	}
}

func allOf(t *testing.T, s *Store) map[string]any {
	t.Helper()
	out := map[string]any{}
	jobs, err := s.List(Filter{Returned: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		rets, err := s.Returns(j.JID)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(j.Minions)
		texts := map[string]string{}
		for id, d := range rets {
			texts[id] = fmt.Sprint(value.Str(d.At("return")), d.At("retcode"))
		}
		out[j.JID] = []any{value.Str(j.Load.At("fun")), j.Load.Has("return"), j.Minions, texts}
	}
	return out
}

// TestSharing checks that three masters converge after exchanging conflicting changes in any order, also
// through a third, and that each change from another master is reported once.
func TestSharing(t *testing.T) {
	dir := t.TempDir()
	a, b, c := openSharing(t, dir+"/a", "a"), openSharing(t, dir+"/b", "b"), openSharing(t, dir+"/c", "c")
	now := time.Now()
	jid := func(i int) string { return now.Format("20060102150405") + fmt.Sprintf("%06d", i) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ret := func(s *sharingStore, i int, id, text string) {
		t.Helper()
		_, err := s.Return(value.DictOf("jid", jid(i), "id", id, "fun", "test.echo", "return", text, "retcode", 0))
		must(err)
	}
	for i := range 10 {
		must([]*sharingStore{a, b}[i%2].NewJobUntil(value.DictOf("jid", jid(i), "fun", "test.echo"), []string{"m1", "m2"}, now.Add(time.Minute)))
	}
	ret(a, 0, "m1", "one")
	ret(b, 0, "m1", "another") // to both while they were disconnected
	ret(b, 0, "m2", "two")     // of a job that b does not know yet
	ret(c, 3, "m2", "two")
	must(a.AddMinions(jid(0), []string{"m3"}))
	for _, pair := range [][2]*sharingStore{{b, a}, {a, c}, {c, b}, {b, c}, {c, a}, {a, b}} { // a and c also get b's changes through each other
		exchange(t, pair[0].Stream(), pair[1].Stream())
	}
	want := allOf(t, a.Store)
	if len(want) != 10 {
		t.Fatalf("%v", want)
	}
	for _, s := range []*sharingStore{b, c} {
		if got := allOf(t, s.Store); !reflect.DeepEqual(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	}
	if got := want[jid(0)]; !reflect.DeepEqual(got, []any{"test.echo", false, []string{"m1", "m2", "m3"}, map[string]string{"m1": "one0", "m2": "two0"}}) {
		t.Errorf("job 0: %v", got)
	}
	told := map[string]int{}
	for _, s := range c.taken {
		told[s.JID+"/"+s.ID]++
	}
	for k, n := range told {
		if n != 1 {
			t.Errorf("%s was reported %d times", k, n)
		}
	}
	if len(told) != 12 {
		t.Errorf("%d changes were reported at c: %v", len(told), slices.Sorted(maps.Keys(told)))
	}
	queued, err := c.Queued(now, 100)
	must(err)
	if len(queued) != 10 {
		t.Errorf("%d jobs wait for minions at c, not 10", len(queued))
	}
	// Nothing is left to send, and a gap is refused without side effects.
	if err := c.Stream().Apply(oplog.Batch{Origin: a.Stream().Self(), From: 1000, To: 1001}); err == nil {
		t.Error("a gap was accepted")
	}
	va, _ := a.Stream().Vector()
	vc, _ := c.Stream().Vector()
	if !reflect.DeepEqual(va, vc) {
		t.Errorf("%v, %v", va, vc)
	}
}

// TestUnreadableItem checks that the items before one that cannot be decoded are stored, and that
// this item is not acknowledged, and applied once it can be decoded.
func TestUnreadableItem(t *testing.T) {
	a, b := openSharing(t, t.TempDir(), "a"), openSharing(t, t.TempDir(), "b")
	for i := range 3 {
		if err := a.NewJobUntil(value.DictOf("jid", salt.NewJID(time.Now()), "fun", fmt.Sprint("test.f", i)), []string{"m1"}, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	batch, err := a.Stream().Read(a.Stream().Self(), 0, 10, 1<<20)
	if err != nil || len(batch.Items) != 3 {
		t.Fatal(batch, err)
	}
	bad := batch
	bad.Items = slices.Clone(batch.Items)
	for _, data := range [][]byte{nil, {0xc1}, {0x94, 1, 2, 3, 4}} {
		bad.Items[1].Data = data
		if err := b.Stream().Apply(bad); err == nil {
			t.Errorf("% x was taken", data)
		}
		if v, err := b.Stream().Vector(); err != nil || v[a.Stream().Self()] != batch.Items[0].Number {
			t.Errorf("known: %v, %v", v, err)
		}
	}
	batch.From = batch.Items[0].Number
	batch.Items = batch.Items[1:]
	if err := b.Stream().Apply(batch); err != nil {
		t.Fatal(err)
	}
	if all := allOf(t, b.Store); len(all) != 3 || len(b.taken) != 3 {
		t.Errorf("%v, told of %d", all, len(b.taken))
	}
}

// TestSharingForgets checks that pruned jobs leave the log, and that batches of other masters about them are
// empty.
func TestSharingForgets(t *testing.T) {
	dir := t.TempDir()
	a, b := openSharing(t, dir+"/a", "a"), openSharing(t, dir+"/b", "b")
	old := time.Now().Add(-50 * time.Hour)
	a.now = func() time.Time { return old }
	if err := a.NewJob(value.DictOf("jid", old.Format("20060102150405")+"000000", "fun", "test.ping"), []string{"m1"}); err != nil {
		t.Fatal(err)
	}
	a.now = time.Now
	if n, err := a.Prune(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	batch, err := a.Stream().Read(a.Stream().Self(), 0, 10, 1<<20)
	if err != nil || len(batch.Items) != 0 || batch.To != 1 {
		t.Fatalf("%+v, %v", batch, err)
	}
	exchange(t, a.Stream(), b.Stream())
	if v, _ := b.Stream().Vector(); v[a.Stream().Self()] != 1 {
		t.Errorf("%v", v)
	}
}

// TestSharingJobAgain checks that a job that is published a second time, to other minions, has the
// same minions on all masters.
func TestSharingJobAgain(t *testing.T) {
	dir := t.TempDir()
	a, b := openSharing(t, dir+"/a", "a"), openSharing(t, dir+"/b", "b")
	jid := salt.NewJID(time.Now())
	for _, minion := range []string{"m1", "m2"} {
		if err := a.NewJob(value.DictOf("jid", jid, "fun", "test.ping"), []string{minion}); err != nil {
			t.Fatal(err)
		}
		exchange(t, a.Stream(), b.Stream())
	}
	for _, s := range []*sharingStore{a, b} {
		got, err := s.Minions(jid)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, []string{"m1", "m2"}) {
			t.Errorf("a master has the minions %q of the job (%v)", got, err)
		}
	}
}
