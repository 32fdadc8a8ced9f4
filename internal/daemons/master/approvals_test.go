package master

import (
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/shared"
)

// TestApprovals: an approval is good for one job, for what was approved, and only for who asked.
func TestApprovals(t *testing.T) {
	p := newParts(t, []string{"web1", "web2", "db1"}, nil)
	store, err := shared.Open(t.TempDir(), "boss")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	a := &approvals{access: p.access, store: store, now: func() time.Time { return now }}
	ann := &caller{how: byToken, name: "ann", list: []any{"test.*"}}
	bob := &caller{how: byToken, name: "bob", list: []any{"test.*"}}
	eve := &caller{how: byToken, name: "eve", list: []any{value.DictOf("web*", value.ListOf("test.*"))}}
	call := func(who *caller, fun string, kwarg *value.Dict, want salt.Kind) *value.Dict {
		t.Helper()
		d, err := a.answer(who, fun, kwarg)
		if (err != nil || want != 0) && salt.KindOf(err) != want {
			t.Errorf("%s %s: %v, want %v", who.name, fun, err, want)
		}
		return d
	}
	id, batch := strings.Repeat("ab", 20), strings.Repeat("cd", 20)
	job := func(id, tgt string, more ...any) *value.Dict {
		return value.DictOf("id", id, "chunk", value.DictOf(append([]any{"tgt", tgt, "fun", "test.echo", "arg", value.ListOf("x"), "token", "secret"}, more...)...))
	}
	call(ann, "ask", job("short", "*"), salt.Invalid)
	call(&caller{how: byToken, name: "ann"}, "ask", job(id, "*"), salt.Denied)
	if d := call(ann, "ask", job(id, "*"), 0); d.Str("state") != "waiting" || !strings.Contains(d.Str("reason"), "3 minions") || d.Has("token") {
		t.Errorf("asked: %s", value.Repr(d))
	}
	call(bob, "ask", job(id, "*"), salt.Invalid) // the id is in use
	call(ann, "approve", value.DictOf("id", id), salt.Invalid)
	twin := &caller{how: byToken, name: "Ann ", list: []any{"test.*"}}
	call(twin, "approve", value.DictOf("id", id), salt.Invalid) // the same person
	call(eve, "approve", value.DictOf("id", id), salt.NotFound) // not for all of its minions
	if d := call(eve, "list", nil, 0); len(d.List("approvals")) != 0 {
		t.Errorf("eve sees %s", value.Repr(d))
	}
	use := func(who *caller, id, fun, jid, arg string, minions ...string) string {
		t.Helper()
		o := &order{}
		o.Tgt, o.Fun, o.Arg, o.JID = "*", fun, value.ListOf(arg), jid
		by, err := a.use(who, id, o, minions)
		if err != nil && salt.KindOf(err) != salt.Denied {
			t.Error(err)
		}
		return by
	}
	if by := use(ann, id, "test.echo", "", "x", "web1"); by != "" {
		t.Errorf("used before it was approved, by %s", by)
	}
	call(bob, "approve", value.DictOf("id", id), 0)
	call(bob, "approve", value.DictOf("id", id), salt.Invalid)
	for _, c := range []struct {
		what string
		by   string
	}{
		{"another user", use(bob, id, "test.echo", "", "x", "web1")}, {"another function", use(ann, id, "test.ping", "", "x", "web1")},
		{"other arguments", use(ann, id, "test.echo", "", "y", "web1")}, {"another minion", use(ann, id, "test.echo", "", "x", "web3")},
		{"another id", use(ann, batch, "test.echo", "", "x", "web1")},
	} {
		if c.by != "" {
			t.Errorf("%s: approved by %s", c.what, c.by)
		}
	}
	if by := use(ann, id, "test.echo", "", "x", "web1", "web2", "db1"); by != "bob" {
		t.Errorf("the job is approved by %q", by)
	}
	if by := use(ann, id, "test.echo", "", "x", "web1"); by != "" {
		t.Errorf("used twice, by %s", by)
	}
	call(bob, "done", value.DictOf("id", id, "state", "approved"), salt.NotFound)
	call(ann, "done", value.DictOf("id", id, "state", "waiting"), salt.NotFound)
	if d := call(ann, "done", value.DictOf("id", id, "state", "approved", "jid", "20260101000000000000"), 0); d.Str("by") != "bob" {
		t.Errorf("done: %s", value.Repr(d))
	}

	// The parts of a batch have the same job id, and it looks for its minions first.
	call(ann, "ask", job(batch, "web*", "batch", "1"), 0)
	call(eve, "approve", value.DictOf("id", batch), 0)
	const jid, otherJID = "20260101000000000000", "20260101000000000001"
	for i, by := range []string{
		use(ann, batch, "test.ping", jid, "", "web1", "web2"), use(ann, batch, "test.echo", jid, "x", "web1"),
		use(ann, batch, "test.echo", otherJID, "x", "web2"), use(ann, batch, "test.echo", jid, "x", "db1"),
	} {
		if want := []string{"eve", "eve", "", ""}[i]; by != want {
			t.Errorf("part %d of the batch: approved by %q, want %q", i, by, want)
		}
	}

	// Jobs do not wait for ever, and their records expire.
	third := strings.Repeat("ef", 20)
	call(ann, "ask", job(third, "*"), 0)
	now = now.Add(approvalTime + time.Second)
	call(bob, "approve", value.DictOf("id", third), salt.Invalid)
	now = now.Add(approvalTime)
	if err := a.sweep(); err != nil {
		t.Fatal(err)
	}
	if all, err := store.All(); err != nil || len(all) != 0 {
		t.Errorf("%d records, %v", len(all), err)
	}
}

// TestApprovalsOfMasters: masters that learn of each other's changes late accept an approval once, let a rejection win, and lose no waiting job
// by a clock that is wrong for a moment.
func TestApprovalsOfMasters(t *testing.T) {
	p := newParts(t, []string{"web1", "web2"}, nil)
	now := time.Now()
	all := map[string]*approvals{}
	ahead := map[string]time.Duration{}
	for _, id := range []string{"m1", "m2", "m3"} {
		store, err := shared.Open(t.TempDir(), id)
		if err != nil {
			t.Fatal(err)
		}
		all[id] = &approvals{access: p.access, store: store, now: func() time.Time { return now.Add(ahead[id]) }}
	}
	exchange := func(ids ...string) {
		t.Helper()
		for range 2 {
			for _, from := range ids {
				_, records, err := all[from].store.Export("")
				if err != nil {
					t.Fatal(err)
				}
				for _, to := range ids {
					if err := all[to].store.Merge(records); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	users := map[string]*caller{}
	for _, name := range []string{"ann", "bob", "carol"} {
		users[name] = &caller{how: byToken, name: name, list: []any{"test.*"}}
	}
	call := func(at, who, fun string, kwarg *value.Dict) {
		t.Helper()
		if _, err := all[at].answer(users[who], fun, kwarg); err != nil {
			t.Errorf("%s at %s: %v", fun, at, err)
		}
	}
	ask := func(digits string) string {
		t.Helper()
		id := strings.Repeat(digits, 20)
		call("m1", "ann", "ask", value.DictOf("id", id, "chunk", value.DictOf("tgt", "*", "fun", "test.echo", "arg", value.ListOf("x"))))
		return id
	}
	use := func(at, id string) bool {
		t.Helper()
		o := &order{}
		o.Tgt, o.Fun, o.Arg = "*", "test.echo", value.ListOf("x")
		_, err := all[at].use(users["ann"], id, o, []string{"web1", "web2"})
		if err != nil && salt.KindOf(err) != salt.Denied {
			t.Error(err)
		}
		return err == nil
	}

	// Approved at another master: only the one that was asked accepts that, once.
	first := ask("ab")
	exchange("m1", "m2", "m3")
	call("m2", "bob", "approve", value.DictOf("id", first))
	exchange("m1", "m2")
	if use("m2", first) {
		t.Error("another master has accepted the approval")
	}
	if !use("m1", first) || use("m1", first) {
		t.Error("the master that was asked has not accepted the approval once")
	}
	// A third one, whose clock is ahead, does not know of that and approves it again.
	ahead["m3"] = 30 * time.Minute
	call("m3", "carol", "approve", value.DictOf("id", first))
	exchange("m1", "m3")
	exchange("m1", "m2", "m3")
	for id := range all {
		if use(id, first) {
			t.Errorf("%s has accepted the approval again", id)
		}
	}

	// Approved and rejected at the same time.
	second := ask("cd")
	exchange("m1", "m2", "m3")
	call("m2", "bob", "reject", value.DictOf("id", second))
	call("m3", "carol", "approve", value.DictOf("id", second))
	exchange("m1", "m3")
	exchange("m1", "m2", "m3")
	for id, a := range all {
		if _, d, err := a.find(second); err != nil || d == nil || d.State != "rejected" || use(id, second) {
			t.Errorf("at %s: %+v, %v", id, d, err)
		}
	}

	// A clock is days ahead, and then days behind, for a moment.
	third := ask("ef")
	exchange("m1", "m2")
	for _, off := range []time.Duration{3 * 24 * time.Hour, -3 * 24 * time.Hour, 0} {
		ahead["m2"] = off
		if err := all["m2"].sweep(); err != nil {
			t.Fatal(err)
		}
	}
	call("m2", "bob", "approve", value.DictOf("id", third))
	exchange("m1", "m2")
	if !use("m1", third) {
		t.Error("the job no longer waits")
	}

	// While the master that was asked can be reached, it decides: of an approval and a rejection before their records have arrived one is
	// refused, and a rejection is refused once the job has started.
	reachable := true
	for _, a := range all {
		a.ask = func(master string, in wire.ApprovalDecision) (*value.Dict, error) {
			if !reachable {
				return nil, salt.Errorf(salt.Unavailable, "%s is unreachable", master)
			}
			return all[master].decideHere(wire.Encode(in)), nil
		}
	}
	refuses := func(at, who, fun, id string) {
		t.Helper()
		if _, err := all[at].answer(users[who], fun, value.DictOf("id", id)); salt.KindOf(err) != salt.Invalid {
			t.Errorf("%s at %s: %v", fun, at, err)
		}
	}
	fourth := ask("12")
	exchange("m1", "m2", "m3")
	call("m2", "bob", "approve", value.DictOf("id", fourth))
	refuses("m3", "carol", "reject", fourth)
	if !use("m1", fourth) {
		t.Error("the approved job does not start")
	}
	refuses("m3", "carol", "reject", fourth)
	fifth := ask("34")
	exchange("m1", "m2", "m3")
	call("m3", "carol", "reject", value.DictOf("id", fifth))
	refuses("m2", "bob", "approve", fifth)
	if use("m1", fifth) {
		t.Error("a job starts whose rejection was acknowledged")
	}
	exchange("m1", "m2", "m3")
	for id, a := range all {
		for approval, want := range map[string]string{fourth: approvalUsed, fifth: "rejected"} {
			if _, d, err := a.find(approval); err != nil || d == nil || d.State != want {
				t.Errorf("at %s: %+v, %v, want %s", id, d, err, want)
			}
		}
	}
	// If it cannot be reached, the records decide when they arrive.
	reachable = false
	sixth := ask("56")
	exchange("m1", "m2", "m3")
	call("m3", "carol", "reject", value.DictOf("id", sixth))
	exchange("m1", "m3")
	if use("m1", sixth) {
		t.Error("a rejected job starts")
	}
}
