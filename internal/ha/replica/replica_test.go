package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
	"brine/internal/store/oplog"
	"brine/test/fuzztest"
)

const pem = "-----BEGIN PUBLIC KEY-----\n%s\n-----END PUBLIC KEY-----\n"

// site is the keys and tokens of one master.
type site struct {
	t      *testing.T
	dir    string
	store  *Store
	keys   *keystore.Store
	mirror *Mirror
	tokens *Mirror
}

func newSite(t *testing.T, dir, id string) *site {
	t.Helper()
	s := &site{t: t, dir: dir}
	s.open(id)
	t.Cleanup(func() { s.store.Close() })
	return s
}

func (s *site) open(id string) {
	s.t.Helper()
	log := slog.New(slog.DiscardHandler)
	var err error
	if s.keys, err = keystore.Open(filepath.Join(s.dir, "pki"), log); err != nil {
		s.t.Fatal(err)
	}
	for _, d := range []string{"db", "tokens"} {
		if err := os.MkdirAll(filepath.Join(s.dir, d), 0o700); err != nil {
			s.t.Fatal(err)
		}
	}
	if s.store, err = Open(filepath.Join(s.dir, "db"), id, Ranks{"key": KeyRank}, log); err != nil {
		s.t.Fatal(err)
	}
	s.mirror = NewMirror(s.store, "key", &Keys{Store: s.keys})
	s.tokens = NewMirror(s.store, "token", &Files{Path: filepath.Join(s.dir, "tokens"), Mode: 0o600, Keep: func(string) bool { return true }})
	s.sync()
}

func (s *site) reopen(id string, between func()) {
	s.t.Helper()
	s.store.Close()
	between()
	s.open(id)
}

func (s *site) sync() {
	s.t.Helper()
	for _, m := range []*Mirror{s.mirror, s.tokens} {
		if err := m.Sync(); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	s.sync()
}

func (s *site) add(id, text string) {
	s.t.Helper()
	s.must(s.keys.Add(keystore.Pending, id, fmt.Sprintf(pem, text)))
}
func (s *site) move(id string, from, to keystore.State) {
	s.t.Helper()
	s.must(s.keys.Move(id, from, to))
}

func (s *site) all() map[string]string {
	s.t.Helper()
	out := map[string]string{}
	l, err := s.keys.List()
	if err != nil {
		s.t.Fatal(err)
	}
	for st, ids := range l {
		for _, id := range ids {
			pub, _ := s.keys.Read(st, id)
			out[st.String()+" "+id] = pub
		}
	}
	return out
}

func give(t *testing.T, from, to *site) {
	t.Helper()
	mine, err := from.store.Vector()
	if err != nil {
		t.Fatal(err)
	}
	theirs, _ := to.store.Vector()
	if forgotten, err := from.store.Forgotten(); err != nil {
		t.Fatal(err)
	} else if !covers(theirs, forgotten) {
		for origin := range mine {
			for at := uint64(0); at < mine[origin]; {
				b, err := from.store.ReadLive(origin, at)
				if err == nil {
					err = to.store.ApplyLive(b)
				}
				if err != nil {
					t.Fatal(err)
				}
				at = b.To
			}
		}
	}
	for origin := range mine {
		for at := theirs[origin]; at < mine[origin]; {
			b, err := from.store.Read(origin, at, 2, 1<<20)
			if err == nil {
				err = to.store.Apply(b)
			}
			if err != nil {
				t.Fatal(err)
			}
			at = b.To
		}
	}
	to.sync()
}

func covers(v, w oplog.Vector) bool {
	for o, n := range w {
		if v[o] < n {
			return false
		}
	}
	return true
}

func meet(t *testing.T, sites ...*site) {
	t.Helper()
	for range 2 { // a site forwards the changes of others
		for _, a := range sites {
			for _, b := range sites {
				if a != b {
					give(t, a, b)
				}
			}
		}
	}
	want := sites[0].all()
	for _, s := range sites[1:] {
		if got := s.all(); !reflect.DeepEqual(got, want) {
			t.Fatalf("masters that have met differ:\n%v\n%v", got, want)
		}
	}
}

// TestDecisionsPrevail: concurrent decisions and old copies never undo a decision.
func TestDecisionsPrevail(t *testing.T) {
	a, b := newSite(t, t.TempDir(), "a"), newSite(t, t.TempDir(), "b")
	expect := func(s *site, id string, want keystore.State) {
		t.Helper()
		got, _, err := s.keys.Lookup(id)
		if err != nil || got != want {
			t.Fatalf("%s is %v at %s, not %v (%v)", id, got, s.store.id, want, err)
		}
	}
	for _, id := range []string{"m1", "m2", "m3", "m4", "m5"} {
		a.add(id, "one")
		a.move(id, keystore.Pending, keystore.Accepted)
	}
	meet(t, a, b)
	expect(b, "m1", keystore.Accepted)
	b.move("m1", keystore.Accepted, keystore.Rejected)
	meet(t, a, b)
	expect(a, "m1", keystore.Rejected)

	// Concurrent: rejected on a, deleted on b and pending again; accepted later.
	a.move("m2", keystore.Accepted, keystore.Rejected)
	b.must(b.keys.Delete(keystore.Accepted, "m2"))
	b.add("m2", "two")
	b.move("m2", keystore.Pending, keystore.Accepted)
	a.must(a.keys.Delete(keystore.Accepted, "m3")) // deleted here, still accepted there: the old copy does not come back
	b.reopen("b", func() {})
	meet(t, a, b)
	expect(b, "m2", keystore.Rejected)
	expect(b, "m3", keystore.None)
	// A master that knows both decisions may decide differently.
	b.move("m2", keystore.Rejected, keystore.Accepted)
	meet(t, a, b)
	expect(a, "m2", keystore.Accepted)

	// Two first keys for one id at the same time: the first wins.
	a.add("new", "first")
	time.Sleep(time.Millisecond)
	b.add("new", "second")
	meet(t, a, b)
	if _, pub, _ := b.keys.Lookup("new"); pub != fmt.Sprintf(pem, "first") {
		t.Errorf("%q", pub)
	}

	// A program changes the files while the master is down.
	a.reopen("a", func() {
		if err := a.keys.Delete(keystore.Accepted, "m4"); err != nil {
			t.Fatal(err)
		}
	})
	meet(t, a, b)
	expect(b, "m4", keystore.None)

	// A missing directory deletes nothing.
	before := b.all()
	a.reopen("a", func() {
		if err := os.RemoveAll(filepath.Join(a.dir, "pki")); err != nil {
			t.Fatal(err)
		}
	})
	meet(t, a, b)
	if got := a.all(); !reflect.DeepEqual(got, before) {
		t.Errorf("%v\n%v", got, before)
	}

	// Lost records come back from the other masters. The files undo no decision made meanwhile.
	b.move("m5", keystore.Accepted, keystore.Rejected)
	a.reopen("a", func() {
		if err := os.Remove(filepath.Join(a.dir, "db", fileName)); err != nil {
			t.Fatal(err)
		}
	})
	meet(t, a, b)
	expect(a, "m5", keystore.Rejected)
}

// TestTokens: tokens are created and deleted on all masters.
func TestTokens(t *testing.T) {
	a, b := newSite(t, t.TempDir(), "a"), newSite(t, t.TempDir(), "b")
	path := func(s *site) string { return filepath.Join(s.dir, "tokens", "0123") }
	a.must(os.WriteFile(path(a), []byte("x"), 0o600))
	meet(t, a, b)
	if got, err := os.ReadFile(path(b)); err != nil || string(got) != "x" {
		t.Fatalf("%q %v", got, err)
	}
	b.must(os.Remove(path(b)))
	meet(t, a, b)
	if _, err := os.Stat(path(a)); !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

// TestOldCopy: a master restored from an old copy of its disk uses a new origin, loses nothing, and
// undoes nothing.
func TestOldCopy(t *testing.T) {
	a, b := newSite(t, t.TempDir(), "a"), newSite(t, t.TempDir(), "b")
	a.add("m1", "one")
	meet(t, a, b)
	old, err := os.ReadFile(filepath.Join(a.dir, "db", fileName))
	if err != nil {
		t.Fatal(err)
	}
	a.move("m1", keystore.Pending, keystore.Rejected)
	meet(t, a, b)
	a.reopen("a", func() {
		if err := os.WriteFile(filepath.Join(a.dir, "db", fileName), old, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := a.keys.Move("m1", keystore.Rejected, keystore.Pending); err != nil {
			t.Fatal(err)
		}
	})
	meet(t, a, b)
	if st, _, _ := a.keys.Lookup("m1"); st != keystore.Rejected {
		t.Errorf("m1 is %v", st)
	}
}

// TestRestoredDiskDecidesApart: a master is restored from a backup of its whole
// disk, starts without a connection to the others, and makes more changes than
// the backup lacks. When they meet again, no deleted record is back and no
// decision is lost, although as many changes were made as were lost.
func TestRestoredDiskDecidesApart(t *testing.T) {
	for _, more := range []int{5, 20, 60} { // fewer, as many and more changes than were lost
		t.Run(fmt.Sprint(more), func(t *testing.T) {
			a, b := newSite(t, t.TempDir(), "a"), newSite(t, t.TempDir(), "b")
			for i := range 20 {
				id := fmt.Sprint("gone", i)
				a.add(id, "key")
				a.move(id, keystore.Pending, keystore.Accepted)
			}
			for i := range more {
				a.add(fmt.Sprint("new", i), "key")
			}
			meet(t, a, b)
			backup := t.TempDir()
			a.reopen("a", func() {}) // nothing was written yet under the origin in the backup
			a.reopen("a", func() { copyTree(t, a.dir, backup) })
			for i := range 20 {
				a.must(a.keys.Delete(keystore.Accepted, fmt.Sprint("gone", i)))
			}
			meet(t, a, b)
			a.reopen("a", func() {
				if err := os.RemoveAll(a.dir); err != nil {
					t.Fatal(err)
				}
				copyTree(t, backup, a.dir)
			})
			for i := range more {
				a.move(fmt.Sprint("new", i), keystore.Pending, keystore.Accepted)
			}
			meet(t, a, b)
			for i := range 20 {
				if st, _, err := a.keys.Lookup(fmt.Sprint("gone", i)); err != nil || st != keystore.None {
					t.Errorf("gone%d is %v again (%v)", i, st, err)
				}
			}
			for i := range more {
				if st, _, err := b.keys.Lookup(fmt.Sprint("new", i)); err != nil || st != keystore.Accepted {
					t.Errorf("new%d is %v (%v)", i, st, err)
				}
			}
		})
	}
}

// TestClockAhead: a master's clock is two days ahead for a moment. Its decisions
// from then and later reach the others, also after a restart, and the times
// shown are those of its clock.
func TestClockAhead(t *testing.T) {
	a, b := newSite(t, t.TempDir(), "a"), newSite(t, t.TempDir(), "b")
	for _, id := range []string{"m1", "m2", "m3"} {
		a.add(id, "key")
		a.move(id, keystore.Pending, keystore.Accepted)
	}
	meet(t, a, b)
	a.store.now = func() time.Time { return time.Now().Add(48 * time.Hour) }
	a.move("m1", keystore.Accepted, keystore.Rejected)
	a.store.now = time.Now
	a.must(a.keys.Delete(keystore.Accepted, "m2"))
	meet(t, a, b)
	a.reopen("a", func() {})
	a.move("m3", keystore.Accepted, keystore.Rejected)
	meet(t, a, b)
	b.move("m3", keystore.Rejected, keystore.Accepted) // a master that has seen a decision may decide otherwise
	meet(t, a, b)
	for id, want := range map[string]keystore.State{"m1": keystore.Rejected, "m2": keystore.None, "m3": keystore.Accepted} {
		for _, s := range []*site{a, b} {
			if got, _, err := s.keys.Lookup(id); err != nil || got != want {
				t.Errorf("%s is %v at %s, not %v (%v)", id, got, s.store.id, want, err)
			}
			r, err := s.store.Get("key", id)
			if err != nil {
				t.Fatal(err)
			}
			if made := time.Until(r.Made()); id != "m1" && made > time.Hour || id == "m1" && made < 47*time.Hour {
				t.Errorf("%s was decided in %v, says %s", id, made, s.store.id)
			}
		}
	}
}

// TestUnreadableRecord: a record that cannot be decoded is not acknowledged as
// stored.
func TestUnreadableRecord(t *testing.T) {
	s := newSite(t, t.TempDir(), "a").store
	for _, data := range [][]byte{{0xc1}, {0x90}, []byte("text")} {
		if err := s.Apply(oplog.Batch{Origin: "other", From: 0, To: 1, Items: []oplog.Item{{Number: 1, Data: data}}}); err == nil {
			t.Errorf("% x was taken", data)
		}
	}
	// A record whose number leaves no room for later ones is rejected, too.
	far, err := msgpack.Marshal(&value.List{Items: []any{"key", "m1", []byte("x"), int64(maxAt), "b", value.NewDict(0)}}, msgpack.NewSpec)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint64{0, 1, 7} { // and a number that is not in the batch
		if err := s.Apply(oplog.Batch{Origin: "other", From: 0, To: 1, Items: []oplog.Item{{Number: n, Data: far}}}); err == nil {
			t.Errorf("number %d was taken", n)
		}
		if err := s.Apply(oplog.Batch{Origin: "other", From: 0, To: 1, Items: []oplog.Item{{Number: n, Data: []byte{0xc1}}}}); err == nil {
			t.Errorf("number %d was taken", n)
		}
	}
	if v, err := s.Vector(); err != nil || v["other"] != 0 {
		t.Errorf("%v, %v", v, err)
	}
}

// TestRejectionDuringWrite: a key is rejected on a master while that master
// writes another master's decision. The rejection stays.
func TestRejectionDuringWrite(t *testing.T) {
	if keystore.MirrorMark != markFile+"key" {
		t.Fatalf("salt-key looks for %s", keystore.MirrorMark)
	}
	a, b := newSite(t, t.TempDir(), "a"), newSite(t, t.TempDir(), "b")
	a.add("m1", "key")
	a.must(os.WriteFile(filepath.Join(a.dir, "tokens", "t1"), []byte("old"), 0o600))
	meet(t, a, b)
	b.move("m1", keystore.Pending, keystore.Accepted)
	b.must(os.WriteFile(filepath.Join(b.dir, "tokens", "t1"), []byte("new"), 0o600))
	batch, err := b.store.Read(b.store.Self(), 0, 100, 1<<20)
	if err == nil {
		err = a.store.Apply(batch)
	}
	if err != nil {
		t.Fatal(err)
	}
	// The mirror has just read the files, and is about to write them.
	if err := a.keys.Move("m1", keystore.Pending, keystore.Rejected); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a.dir, "tokens", "t1"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Mirror{a.mirror, a.tokens} {
		if _, err := m.apply(); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(2 * settled)
	a.sync()
	meet(t, a, b)
	for _, s := range []*site{a, b} {
		if st, _, err := s.keys.Lookup("m1"); err != nil || st != keystore.Rejected {
			t.Errorf("m1 is %v at %s (%v)", st, s.store.id, err)
		}
		if got, err := os.ReadFile(filepath.Join(s.dir, "tokens", "t1")); err != nil || string(got) != "mine" {
			t.Errorf("the token is %q at %s (%v)", got, s.store.id, err)
		}
	}
}

// TestChangeInPlaceDuringWrite: a key file is rewritten in place, which does not change its
// directory. Another master's decision is written anyway.
func TestChangeInPlaceDuringWrite(t *testing.T) {
	a, b := newSite(t, t.TempDir(), "a"), newSite(t, t.TempDir(), "b")
	a.add("m1", "key")
	a.move("m1", keystore.Pending, keystore.Accepted)
	meet(t, a, b)
	time.Sleep(2 * settled)
	b.sync()
	if err := os.WriteFile(filepath.Join(b.dir, "pki", "minions", "m1"), fmt.Appendf(nil, pem, "other"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.must(a.keys.Delete(keystore.Accepted, "m1"))
	for range 2 {
		give(t, a, b)
		give(t, b, a)
	}
	for _, s := range []*site{a, b} {
		if st, _, err := s.keys.Lookup("m1"); err != nil || st != keystore.None {
			t.Errorf("m1 is %v at %s (%v)", st, s.store.id, err)
		}
	}
}

// TestRejectionsWhileOthersAccept: hundreds of keys are rejected on one master
// while another accepts them. A reported rejection is final.
func TestRejectionsWhileOthersAccept(t *testing.T) {
	a, b := newSite(t, t.TempDir(), "a"), newSite(t, t.TempDir(), "b")
	const n = 200
	for i := range n {
		if err := a.keys.Add(keystore.Pending, fmt.Sprint("m", i), "key"); err != nil {
			t.Fatal(err)
		}
	}
	a.sync()
	meet(t, a, b)
	rejected := make(chan []string)
	go func() {
		var ids []string
		for i := range n {
			id := fmt.Sprint("m", i)
			if a.keys.Move(id, keystore.Pending, keystore.Rejected) == nil {
				ids = append(ids, id)
			}
		}
		rejected <- ids
	}()
	for i := n - 1; i >= 0; i-- {
		if err := b.keys.Move(fmt.Sprint("m", i), keystore.Pending, keystore.Accepted); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			b.sync()
			give(t, b, a)
		}
	}
	ids := <-rejected
	time.Sleep(2 * settled)
	a.sync()
	meet(t, a, b)
	for _, id := range ids {
		if st, _, err := b.keys.Lookup(id); err != nil || st != keystore.Rejected {
			t.Errorf("%s was rejected and is %v (%v)", id, st, err)
		}
	}
	t.Logf("%d of %d were rejected", len(ids), n)
}

// copyTree copies a directory of files and directories.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// TestConvergence: after concurrent changes, exchanged in any order and through any master, all
// masters are equal.
func TestConvergence(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	var sites []*site
	for i := range 3 {
		sites = append(sites, newSite(t, filepath.Join(dir, fmt.Sprint(i)), fmt.Sprint(i)))
	}
	states := []keystore.State{keystore.Accepted, keystore.Rejected, keystore.Pending}
	for step := range 120 {
		s := sites[r.IntN(3)]
		id := fmt.Sprint("m", r.IntN(4))
		st, _, err := s.keys.Lookup(id)
		if err != nil {
			t.Fatal(err)
		}
		switch to := states[r.IntN(3)]; {
		case r.IntN(3) == 0:
			give(t, s, sites[r.IntN(3)])
		case st == keystore.None:
			s.add(id, fmt.Sprint(step))
		case r.IntN(4) == 0:
			s.must(s.keys.Delete(st, id))
		case to != st:
			s.move(id, st, to)
		}
	}
	meet(t, sites...)
	for _, s := range sites {
		if same, err := s.mirror.Equal(); err != nil || !same {
			t.Errorf("seed %d: files and records of %s differ (%v)", seed, s.store.id, err)
		}
		if names, _ := s.store.todo("key"); len(names) != 0 {
			t.Errorf("seed %d: not written: %q", seed, names)
		}
	}
	v0, _ := sites[0].store.Vector()
	for _, s := range sites[1:] {
		if v, _ := s.store.Vector(); !reflect.DeepEqual(v, v0) {
			t.Errorf("seed %d: %v, %v", seed, v, v0)
		}
	}
}

// TestRanks: rejecting wins over deleting, deleting over accepting.
func TestRanks(t *testing.T) {
	s := newSite(t, t.TempDir(), "a")
	var got []int
	for _, st := range []keystore.State{keystore.Denied, keystore.Pending, keystore.Accepted, keystore.None, keystore.Rejected} {
		if st != keystore.None {
			s.must(s.keys.Put(st, st.String(), "x"))
		}
		b, err := (&Keys{Store: s.keys}).Read(st.String())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, KeyRank(b))
	}
	if !slices.Equal(got, []int{0, 1, 2, 3, 4}) {
		t.Errorf("%v", got)
	}
}

func FuzzApply(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	s, err := Open(f.TempDir(), "a", Ranks{"key": KeyRank}, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	defer s.Close()
	if err := s.Put("key", "m1", []byte("x")); err != nil {
		f.Fatal(err)
	}
	b, err := s.Read(s.Self(), 0, 10, 1<<20)
	if err != nil || len(b.Items) != 1 {
		f.Fatal(b, err)
	}
	f.Add(b.Items[0].Data)
	n := uint64(0)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, bad := readItem(data)
		if bad == nil && r.At > s.latestPlace() {
			bad = errors.New("too far")
		}
		err := s.Apply(oplog.Batch{Origin: "other", From: n, To: n + 1, Items: []oplog.Item{{Number: n + 1, Data: data}}})
		if (err == nil) != (bad == nil) {
			t.Fatal(err, bad)
		}
		if err == nil {
			n++
		}
	})
}

// TestMovedWhileLookedAt: a key that keeps moving between directories is never recorded as deleted.
func TestMovedWhileLookedAt(t *testing.T) {
	s := newSite(t, t.TempDir(), "a")
	s.must(s.keys.Put(keystore.Pending, "m", fmt.Sprintf(pem, "x")))
	done, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		from, to := keystore.Pending, keystore.Accepted
		for {
			select {
			case <-done:
				stopped <- nil
				return
			default:
			}
			if err := s.keys.Move("m", from, to); err != nil {
				stopped <- err
				return
			}
			from, to = to, from
		}
	}()
	for range 300 {
		s.sync()
		if r, err := s.store.Get("key", "m"); err != nil || r.Value == nil {
			t.Fatalf("%+v %v", r, err)
		}
	}
	close(done)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}

// TestDamagedRecord: the error names the record, the file, and the remedy.
func TestDamagedRecord(t *testing.T) {
	s := newSite(t, t.TempDir(), "a")
	err := s.store.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(recordsBucket).Put(recordKey("key", "web1"), []byte{0xc1}) })
	if err != nil {
		t.Fatal(err)
	}
	_, get := s.store.Get("key", "web1")
	for _, err := range []error{get, s.store.Each("key", func(*Record) {})} {
		if err == nil || !strings.Contains(err.Error(), `key "web1" in replica.db`) || !strings.Contains(err.Error(), "move the file away") {
			t.Error(err)
		}
	}
}
