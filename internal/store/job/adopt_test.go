package job

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"brine/internal/py/value"
)

// TestAdoptNew checks that jobs of Salt's files that are missing in the database are added once, and that a
// load made from a return is replaced.
func TestAdoptNew(t *testing.T) {
	c, dir := local(t), t.TempDir()
	s := open(t, dir)
	ctx := t.Context()
	jids := make([]string, 5)
	for i := range jids {
		jids[i] = time.Now().UTC().Format("20060102150405") + fmt.Sprintf("%06d", i)
	}
	whole := func(i int, minions ...string) *Whole {
		w := &Whole{Job: Job{JID: jids[i], Load: load(jids[i]), Minions: minions}, Returns: map[string]*value.Dict{}}
		for _, id := range minions {
			w.Returns[id] = value.DictOf("return", "by "+id, "retcode", 0, "success", true)
		}
		return w
	}
	put := func(w *Whole) {
		t.Helper()
		must(t, c.Put(w))
	}
	added := func(want int) {
		t.Helper()
		if n, err := AdoptNew(ctx, s, c); n != want || err != nil {
			t.Fatal(n, err)
		}
	}
	lookup := func(i int, want ...string) {
		t.Helper()
		w, err := s.Whole(jids[i])
		must(t, err)
		if w == nil || w.Load.Has("return") || !slices.Equal(w.Returned, want) {
			t.Fatalf("job %d: %+v", i, w)
		}
	}
	put(whole(0, "a", "b"))
	put(whole(1))
	// One published here, one with another return, and one known only by a return.
	must(t, s.NewJob(load(jids[2]), []string{"a"}))
	must(t, c.WriteLoad(jids[2], load(jids[2]), []string{"a"}))
	put(whole(3, "a", "b"))
	must(t, s.NewJob(load(jids[3]), []string{"a"}))
	_, err := s.Return(ret(jids[3], "a", "newer"))
	must(t, err)
	put(whole(4, "b"))
	_, err = s.Return(ret(jids[4], "a", "late"))
	must(t, err)
	old := whole(0, "a")
	old.JID = "20010101000000000001"
	put(old)

	stopped, stop := context.WithCancel(ctx)
	stop()
	if n, err := AdoptNew(stopped, s, c); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	added(4)
	lookup(0, "a", "b")
	lookup(1)
	lookup(2)
	lookup(3, "a", "b")
	lookup(4, "a", "b")
	w, err := s.Whole(jids[3])
	must(t, err)
	if got := w.Returns["a"].At("return"); got != "newer" {
		t.Error("the stored return was replaced by", got)
	}
	if w, err := s.Whole(old.JID); w != nil || err != nil {
		t.Error("an expired job was added", w, err)
	}
	added(0)
	must(t, s.Close())
	s = open(t, dir)
	added(0)

	// Unchanged directories are not read, so damage in one does not matter. New returns are found.
	before := time.Now().Add(-time.Hour)
	must(t, os.WriteFile(filepath.Join(c.jobDir(jids[1]), "jid"), []byte("20990101000000000001"), 0o600))
	must(t, os.Chtimes(c.jobDir(jids[1]), before, before))
	put(whole(2, "a"))
	added(1)
	lookup(2, "a")

	// An unreadable job does not stop the others, and is tried again.
	bad := filepath.Join(c.jobDir(jids[0]), ".load.p")
	must(t, os.WriteFile(bad, []byte{0xc1}, 0o600))
	put(whole(0, "c"))
	put(whole(2, "c"))
	for _, want := range []int{1, 0} {
		if n, err := AdoptNew(ctx, s, c); n != want || err == nil {
			t.Fatal(n, err)
		}
	}
	lookup(2, "a", "c")
}
