package job

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

func openShared(t *testing.T, dir, id string) *Shared {
	t.Helper()
	s, err := OpenShared(dir, id, "sha256", Options{KeepJobsSeconds: 3600, JobCache: true}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func giveReturn(s *Shared, load *value.Dict) (dup bool, err error) {
	done := make(chan struct{})
	s.ReturnAsync(load, func(d bool, e error) { dup, err = d, e; close(done) })
	<-done
	return dup, err
}

// TestSharedByTwo checks that masters see each other's changes, and that exactly one of several that receive
// a return stores it first.
func TestSharedByTwo(t *testing.T) {
	dir := t.TempDir()
	a, b := openShared(t, dir, "a"), openShared(t, dir, "b")
	const jid, later = "20260101000000000001", "20260101000000000002"
	until := time.Now().Add(time.Hour)
	for _, j := range []string{jid, later} {
		if err := a.NewJobUntil(value.DictOf("jid", j, "fun", "test.ping", "tgt", "*"), []string{"m2", "m1"}, until); err != nil {
			t.Fatal(err)
		}
	}
	load, err := b.Load(jid)
	if err != nil || load.Str("fun") != "test.ping" {
		t.Fatalf("%v %v", value.Repr(load), err)
	}
	if ids, err := b.Minions(jid); err != nil || !slices.Equal(ids, []string{"m1", "m2"}) {
		t.Errorf("%v %v", ids, err)
	}
	var first atomic.Int32
	var wg sync.WaitGroup
	for i := range 20 {
		s := []*Shared{a, b}[i%2]
		wg.Go(func() {
			dup, err := giveReturn(s, value.DictOf("jid", jid, "id", "m1", "return", true, "retcode", int64(0), "out", "nested", "_stamp", "x"))
			if err != nil {
				t.Error(err)
			}
			if !dup {
				first.Add(1)
			}
		})
	}
	wg.Wait()
	if first.Load() != 1 {
		t.Errorf("%d of 20 were first, want 1", first.Load())
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "jobs", "*", "*", "m1", ".*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	rets, err := b.Returns(jid)
	if err != nil || len(rets) != 1 || rets["m1"].At("return") != true || rets["m1"].Str("out") != "nested" || rets["m1"].Has("_stamp") {
		t.Errorf("%v %v", rets, err)
	}
	if !b.Returned(jid, "m1") || b.Returned(jid, "m2") || b.Returned("../x", "m1") || b.Returned(jid, "../m1") {
		t.Error("wrong list of returned minions")
	}
	queued, err := b.Queued(time.Now(), 10)
	if err != nil || len(queued) != 2 || queued[0].From != "a" || !queued[0].Until.Equal(until.Truncate(time.Millisecond)) {
		t.Fatalf("%v %v", queued, err)
	}
	if q := queued[slices.IndexFunc(queued, func(q Queued) bool { return q.JID == jid })]; !slices.Equal(q.Returned, []string{"m1"}) {
		t.Errorf("%v", q.Returned)
	}
	list, err := b.List(Filter{Limit: 1})
	if err != nil || len(list) != 1 || list[0].JID != later {
		t.Errorf("%v %v", list, err)
	}
	if list, err = b.List(Filter{Oldest: true, Returned: true}); err != nil || len(list) != 2 || list[0].JID != jid || len(list[0].Returned) != 1 {
		t.Errorf("%v %v", list, err)
	}
	if list, err = b.List(Filter{Keep: func(j *Job) bool { return len(j.Missing()) == 2 }}); err != nil || len(list) != 2 {
		t.Errorf("%v %v", list, err)
	}

	// An unknown job: its return is all that is stored.
	if _, err := giveReturn(b, value.DictOf("jid", "20260101000000000003", "id", "m1", "return", "r", "fun", "test.x")); err != nil {
		t.Fatal(err)
	}
	if load, err := a.Load("20260101000000000003"); err != nil || load.Str("fun") != "test.x" {
		t.Errorf("%v %v", value.Repr(load), err)
	}
	if err := a.Note(Notes{Speakers: map[string]bool{"m1": true, "m2": true}}); err != nil {
		t.Fatal(err)
	}
	if err := b.Note(Notes{Speakers: map[string]bool{"m2": false, "m3": false}}); err != nil {
		t.Fatal(err)
	}
	if ids, err := b.Speakers(); err != nil || !slices.Equal(ids, []string{"m1"}) {
		t.Errorf("%v %v", ids, err)
	}
}

// TestSharedHalfWritten checks that the file of a master that died while writing a return does not prevent
// storing the return.
func TestSharedHalfWritten(t *testing.T) {
	dir := t.TempDir()
	s := openShared(t, dir, "a")
	const jid = "20260101000000000001"
	if err := s.NewJobUntil(value.DictOf("jid", jid), []string{"m"}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	for _, half := range []string{"", "\x82\xa6retu"} {
		own := filepath.Join(s.c.jobDir(jid), "m")
		if err := errors.Join(os.RemoveAll(own), os.Mkdir(own, 0o700), os.WriteFile(filepath.Join(own, "return.p"), []byte(half), 0o600)); err != nil {
			t.Fatal(err)
		}
		if dup, err := giveReturn(s, value.DictOf("jid", jid, "id", "m", "return", "whole")); err != nil || dup {
			t.Errorf("%q: %v %v", half, dup, err)
		}
		if rets, err := s.Returns(jid); err != nil || rets["m"].Str("return") != "whole" {
			t.Errorf("%v %v", rets, err)
		}
	}
}

// TestSharedPrune checks that pruning removes expired jobs with their marks.
func TestSharedPrune(t *testing.T) {
	s := openShared(t, t.TempDir(), "a")
	for i := range 3 {
		jid := fmt.Sprintf("2026010100000000000%d", i)
		if err := s.NewJobUntil(value.DictOf("jid", jid), []string{"m"}, time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.Prune(); err != nil || n != 0 {
		t.Fatalf("%d %v", n, err)
	}
	s.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	if n, err := s.Prune(); err != nil || n != 3 {
		t.Fatalf("%d %v", n, err)
	}
	if list, err := s.List(Filter{}); err != nil || len(list) != 0 {
		t.Errorf("%v %v", list, err)
	}
	if q, err := s.Queued(time.Now(), 10); err != nil || len(q) != 0 {
		t.Errorf("%v %v", q, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := giveReturn(s, value.DictOf("jid", "20260101000000000001", "id", "m", "return", 1)); err == nil {
		t.Error("it accepts returns after Close")
	}
}

// TestSharedRefused: a job whose record cannot be completed is not listed.
func TestSharedRefused(t *testing.T) {
	s := openShared(t, t.TempDir(), "one")
	must(t, s.NewJobUntil(load(jid), []string{"m1"}, time.Now().Add(time.Hour)))
	must(t, os.Rename(s.marks, s.marks+".away"))
	other := salt.NewJID(time.Now())
	if err := s.NewJobUntil(load(other), []string{"m1"}, time.Now().Add(time.Hour)); err == nil {
		t.Fatal("the job was stored without its mark")
	}
	if err := s.NewJobUntil(load(jid), []string{"m1"}, time.Now().Add(time.Hour)); err == nil {
		t.Fatal("the job was stored again without its mark")
	}
	if l, err := s.Load(other); l != nil || err != nil {
		t.Error("the refused job can be looked up:", l, err)
	}
	jobs, err := s.List(Filter{})
	if err != nil || len(jobs) != 1 || jobs[0].JID != jid {
		t.Errorf("listed: %v, %v", jobs, err)
	}
}

// TestSharedFlushFails: while the flush of a return fails, another master gets the return again, and confirms it. The return stays.
func TestSharedFlushFails(t *testing.T) {
	dir := t.TempDir()
	one, two := openShared(t, dir, "one"), openShared(t, dir, "two")
	must(t, one.NewJobUntil(load(jid), []string{"m1"}, time.Time{}))
	sync := flush
	t.Cleanup(func() { flush = sync })
	flush = func(*os.File) error {
		if dup, err := giveReturn(two, ret(jid, "m1", "x")); !dup || err != nil {
			t.Error("at the other master:", dup, err)
		}
		return syscall.EIO
	}
	if dup, err := giveReturn(one, ret(jid, "m1", "x")); dup || err != nil {
		t.Error(dup, err)
	}
	if rs, err := two.Returns(jid); len(rs) != 1 || err != nil {
		t.Errorf("a confirmed return is lost: %v, %v", rs, err)
	}
}
