package consoledb

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestApprovals: of many decisions on one job at once one is recorded, what its home writes does not replace a decision, and rows of others are
// bounded.
func TestApprovals(t *testing.T) {
	t.Parallel()
	s, server := open(t)
	ctx := t.Context()
	server.Exec(t, "salt", "SET ROLE salt;\n"+Schema())
	id := strings.Repeat("ab", 20)
	job := Approval{ID: id, Home: "a", Owner: "ann", State: Waiting, Minions: `["m"]`, Record: "{}", Proof: "p1"}
	versions := func() map[string]int64 {
		t.Helper()
		v, err := s.ApprovalVersions(ctx)
		must(t, err)
		return v
	}
	read := func(ids ...string) (out []Approval) {
		t.Helper()
		must(t, s.EachApproval(ctx, ids, func(a Approval) { out = append(out, a) }))
		return out
	}
	for range 2 {
		must(t, s.AddApproval(ctx, job))
	}
	first := versions()
	if got := read(id); len(first) != 1 || len(got) != 1 || got[0] != job {
		t.Errorf("%v %+v", first, got)
	}
	if ok, err := s.DecideApproval(ctx, Approval{ID: id, State: "granted", By: "bob", Proof: "p3"}, "p2"); ok || err != nil {
		t.Errorf("a decision on another row: %v, %v", ok, err)
	}
	var all sync.WaitGroup
	var done atomic.Int32
	for i := range 8 {
		all.Go(func() {
			ok, err := s.DecideApproval(ctx, Approval{ID: id, Home: "a", Owner: "ann", State: []string{"granted", "rejected"}[i%2], By: fmt.Sprint("user", i),
				Minions: "[]", Record: "{}", Proof: fmt.Sprint("proof", i)}, "p1")
			if err != nil {
				t.Error(err)
			}
			if ok {
				done.Add(1)
			}
		})
	}
	all.Wait()
	if done.Load() != 1 || versions()[id] == first[id] {
		t.Errorf("%d decisions were recorded", done.Load())
	}
	got := read(id)[0]
	if got.By == "" || got.State == Waiting || got.Proof != strings.Replace(got.By, "user", "proof", 1) {
		t.Errorf("%+v", got)
	}
	job.State, job.Record, job.Owner, job.Minions, job.Proof = "failed", `{"x":1}`, "amy", "[]", "p9"
	must(t, s.ChangeApproval(ctx, job, Waiting)) // from a state that is not any more
	if now := read(id)[0]; now != got {
		t.Errorf("replaced: %+v", now)
	}
	other := job
	other.Home = "b"
	must(t, s.ChangeApproval(ctx, other, got.State))
	if now := read(id)[0]; now != got {
		t.Errorf("replaced by another master: %+v", now)
	}
	must(t, s.ChangeApproval(ctx, job, got.State))
	if now := read(id)[0]; now != job {
		t.Errorf("%+v, want %+v", now, job)
	}

	// Old jobs can be neither decided nor seen, and go. Other programs write what they like.
	server.Exec(t, "salt", `INSERT INTO console_approvals (id, home, owner, added, state, decided_by, minions, record) VALUES
			('old', 'a', 'o', now() - interval '59 minutes 1 second', 'waiting', '', '', ''), ('older', 'a', 'o', now() - interval '25 hours', 'waiting', '', '', ''),
			('large', repeat('h', 10000000), repeat('o', 10000000), now(), repeat('w', 10000000), repeat('b', 10000000), repeat('m', 10000000), repeat('r', 10000000));
		INSERT INTO console_approvals (id, home, owner, state, decided_by, minions, record) SELECT i::text, 'x', 'x', 'x', '', '', '' FROM generate_series(1, 1000) AS i;`)
	if ok, err := s.DecideApproval(ctx, Approval{ID: "old", State: "granted", By: "x"}, ""); ok || err != nil {
		t.Errorf("an old job: %v %v", ok, err)
	}
	if v := versions(); len(v) != maxApprovals || v["older"] != 0 {
		t.Errorf("%d rows", len(v))
	}
	if l := read("large", "1", "2"); len(l) != 3 || len(l[0].Home)+len(l[1].Home)+len(l[2].Home) > 310 {
		t.Errorf("%.3000v", l)
	}
	must(t, s.Clean(ctx, 0, time.Now()))
	if len(read("older")) != 0 || len(read("old")) != 1 {
		t.Error("old rows stay, or those that are not old enough go")
	}
}
