package master

import (
	"log/slog"
	"maps"
	"testing"
	"time"

	"brine/internal/base/field"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// TestQueueOutlivesItsProcess: the next process restores all job states from the store, also
// those of stock minions, which must not get a job twice; and a minion that has changed to
// stock Salt no longer counts as a Brine minion.
func TestQueueOutlivesItsProcess(t *testing.T) {
	var o job.Options
	if err := field.Defaults(&o); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	clock := func() time.Time { return now }
	store, err := job.Open(t.TempDir(), o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ids := []string{"asked", "away", "back", "gone", "old", "ran", "runs", "stock"}
	begin := func() *queue {
		s := &jobStates{queue: newQueue(clock), jobs: store}
		if err := s.load(); err != nil {
			t.Fatal(err)
		}
		return s.queue
	}
	q := begin()
	const jid, other = "20260101000000000001", "20260101000000000002"
	publish := func(jid string, absent []string, d time.Duration) {
		load := value.DictOf("jid", jid, "fun", "test.ping", "tgt", "*")
		if err := store.NewJobUntil(load, ids, now.Add(d)); err != nil {
			t.Fatal(err)
		}
		q.add(load, jid, ids, absent, now.Add(d))
	}
	for _, id := range []string{"away", "asked", "old", "ran", "runs"} {
		q.missed(id, 0, 10)
	}
	publish(jid, []string{"back", "gone"}, time.Hour)
	publish(other, []string{"gone"}, time.Minute)
	q.missed("asked", 0, 10)
	q.runs(jid, "runs")
	q.runs(jid, "ran")
	if _, err := store.Return(value.DictOf("jid", jid, "id", "ran", "return", true)); err != nil {
		t.Fatal(err)
	}
	q.returned(jid, "ran")
	if got := q.arrived(map[string]bool{"back": true}, 10); len(got["back"]) != 1 {
		t.Fatalf("for the one that came: %v", got)
	}
	q.started("old") // asked before
	q.started("old") // did not ask: a stock minion has this id now
	check := func(when string) {
		t.Helper()
		states, handed, _, known := q.states(jid)
		want := map[string]string{"asked": "delivered", "away": "queued", "back": "delivered", "gone": "queued", "old": "sent",
			"ran": "returned", "runs": "running", "stock": "sent"}
		if !known || !maps.Equal(states, want) || len(handed) != 2 {
			t.Errorf("%s: %v %v, want %v", when, states, handed, want)
		}
		states, _, _, _ = q.states(other)
		if states["gone"] != "expired" || states["away"] != "expired" || states["stock"] != "sent" {
			t.Errorf("%s, of a job whose time is over: %v", when, states)
		}
	}
	now = now.Add(2 * time.Minute)
	check("before")
	for _, when := range []string{"afterwards", "once more"} {
		if notes, any := q.unstored(); any {
			if err := store.Note(notes); err != nil {
				t.Fatal(err)
			}
		}
		if _, any := q.unstored(); any {
			t.Error("there is still something to store")
		}
		q = begin()
		check(when)
	}
	got := q.arrived(map[string]bool{"back": true, "gone": true, "stock": true}, 10)
	if len(got) != 1 || len(got["gone"]) != 1 || got["gone"][0].jid != jid {
		t.Errorf("for stock minions after the restart: %v", got)
	}
	now = now.Add(2 * time.Hour)
	if q = begin(); len(q.jobs) != 0 {
		t.Errorf("hours later %d jobs are remembered", len(q.jobs))
	}
}

// TestNotesThatAreNotStored: job states that could not be written to a full disk are written
// again, and do not replace newer ones.
func TestNotesThatAreNotStored(t *testing.T) {
	now := time.Now()
	q := newQueue(func() time.Time { return now })
	const jid = "20260101000000000001"
	q.missed("a", 0, 10)
	q.missed("b", 0, 10)
	q.add(value.DictOf("jid", jid), jid, []string{"a", "b"}, nil, now.Add(time.Hour))
	q.runs(jid, "a")
	refused, any := q.unstored()
	if !any || len(refused.States) != 1 || !refused.Speakers["b"] {
		t.Fatalf("nothing was due: %+v", refused)
	}
	q.started("b") // it has asked before
	q.started("b") // now it is a stock minion
	q.notStored(refused)
	again, any := q.unstored()
	if st := again.States[jid]; !any || len(st.Running) != 1 || st.Running[0] != "a" || !again.Speakers["a"] || again.Speakers["b"] {
		t.Errorf("due again: %+v", again)
	}
}
