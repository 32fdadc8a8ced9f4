package migrate

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"brine/internal/net/crypt"
	"brine/internal/py/value"
	"brine/internal/store/job"
	"brine/internal/store/keystore"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func files(t *testing.T) *job.LocalCache {
	t.Helper()
	c, err := job.NewLocalCache(t.TempDir(), "")
	must(t, err)
	return c
}

// TestJobsThatComeMeanwhile checks that jobs and returns that arrive at the source during copying and
// comparing are copied, and not reported as failures.
func TestJobsThatComeMeanwhile(t *testing.T) {
	from, to := files(t), files(t)
	jid := func(i int) string { return time.Now().UTC().Format("20060102150405") + fmt.Sprintf("%06d", i) }
	put := func(jid string, minions ...string) {
		t.Helper()
		w := &job.Whole{Job: job.Job{JID: jid, Load: value.DictOf("jid", jid, "fun", "test.ping")}, Returns: map[string]*value.Dict{}}
		for _, id := range minions {
			w.Returns[id] = value.DictOf("return", true)
		}
		must(t, from.Put(w))
	}
	jids := []string{jid(0), jid(1), jid(2), jid(3), jid(4)}
	for _, j := range jids[:3] {
		put(j, "a")
	}
	did := map[string]bool{}
	r, err := CopyJobs(t.Context(), Files{from}, Files{to}, Options{Progress: func(what string, done, total int) {
		step := fmt.Sprint(what, done)
		if did[step] {
			return
		}
		did[step] = true
		switch step {
		case "jobs3": // all are copied
			put(jids[0], "b")
			put(jids[3], "a")
		case "jobs: compared1": // then the next one arrives
			put(jids[0], "c")
			put(jids[3], "b")
		}
	}})
	if err != nil || r.Failed != 0 || r.Found != 4 || r.Copied != 4 || r.Verified != 4 {
		t.Fatalf("%+v %v", r, err)
	}
	for i, want := range []int{3, 1, 1, 2} {
		if w, err := to.Lookup(jids[i]); err != nil || w == nil || len(w.Returns) != want {
			t.Errorf("job %d: %+v %v", i, w, err)
		}
	}
	put(jids[4], "a")
	put(jids[1], "b")
	if r, err := CopyJobs(t.Context(), Files{from}, Files{to}, Options{}); err != nil || r.Found != 5 || r.Copied != 2 || r.Same != 3 || r.Verified != 5 {
		t.Fatalf("%+v %v", r, err)
	}
}

// lossy is a target that stores nothing.
type lossy struct{ Files }

func (lossy) Put(context.Context, *job.Whole) error { return nil }

// TestJobsThatAreNotTaken checks that a target that does not store jobs is detected in bounded
// time.
func TestJobsThatAreNotTaken(t *testing.T) {
	from, to := files(t), files(t)
	jid := "20261122170000000001"
	must(t, from.Put(&job.Whole{Job: job.Job{JID: jid, Load: value.DictOf("jid", jid, "fun", "test.ping")}}))
	r, err := CopyJobs(t.Context(), Files{from}, lossy{Files{to}}, Options{})
	if err != nil || r.Found != 1 || r.Failed != 1 || r.Verified != 0 {
		t.Fatalf("%+v %v", r, err)
	}
}

// TestKeysThatComeMeanwhile checks that keys that arrive or change state during the copy have the same state
// at the target.
func TestKeysThatComeMeanwhile(t *testing.T) {
	open := func() *keystore.Store {
		s, err := keystore.Open(t.TempDir(), slog.New(slog.DiscardHandler))
		must(t, err)
		return s
	}
	from, to := open(), open()
	k, err := crypt.GenerateKey(2048)
	must(t, err)
	pub := string(k.Public().PEM())
	must(t, from.Add(keystore.Accepted, "a", pub))
	must(t, from.Add(keystore.Pending, "late", pub))
	must(t, from.Add(keystore.Pending, "later", pub))
	done := 0
	r, err := Keys(t.Context(), from, to, Options{Progress: func(string, int, int) {
		switch done++; done {
		case 1: // a is copied; the acceptance of another was missed
			must(t, from.Move("late", keystore.Pending, keystore.Accepted))
			must(t, from.Add(keystore.Accepted, "new", pub))
		case 2: // later is copied as pending
			must(t, from.Move("later", keystore.Pending, keystore.Accepted))
		}
	}})
	if err != nil || r.Failed != 0 || r.Found != 4 || r.Copied != 4 || r.Verified != 4 {
		t.Errorf("%+v %v", r, err)
	}
	for _, id := range []string{"a", "late", "later", "new"} {
		if st, _, err := to.Lookup(id); st != keystore.Accepted || err != nil {
			t.Errorf("%s is %s: %v", id, st, err)
		}
	}
}
