package master

import (
	"slices"
	"testing"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

func (p *parts) eventsOf() *events {
	return &events{settings: p.settings, bus: p.bus, queue: p.queue, addresses: p.Master.addresses, syndics: p.syndics, jobs: p.jobs, log: discard,
		refused: p.limited}
}

func ofSyndics(c *Config) { c.Options.OrderMasters = true }

// TestSyndicIsNoMinion: a job does not wait for the id of a syndic, unless a minion has the same id,
// also after a restart of the master.
func TestSyndicIsNoMinion(t *testing.T) {
	p := newParts(t, []string{"m1", "site", "both"}, ofSyndics)
	minions := func() []string {
		reply := p.publisher.publish(value.DictOf("fun", "test.ping", "tgt", "*")).Dict("load")
		return value.OnlyTexts(reply.At("minions"))
	}
	if got := minions(); !slices.Equal(got, []string{"both", "m1", "site"}) {
		t.Fatalf("before: %v", got)
	}
	for _, id := range []string{"site", "both"} {
		ask(t, p.eventsOf().take, id, "_minion_event", value.DictOf("tag", "syndic/"+id+"/start", "data", "up"))
	}
	ask(t, p.eventsOf().take, "site", "_minion_event", value.DictOf("tag", "syndic/m1/start", "data", "up"))
	if got := minions(); !slices.Equal(got, []string{"m1"}) {
		t.Errorf("two ids are those of syndics: %v", got)
	}
	r := p.returns()
	r.syndics = p.syndics
	ask(t, r.take, "both", "_return", value.DictOf("jid", "20260101000000000001", "return", true, "fun", "test.ping"))
	for range 2 {
		if got := minions(); !slices.Equal(got, []string{"both", "m1"}) {
			t.Errorf("one of them is also a minion: %v", got)
		}
		p.syndics = openSyndics(p.cfg.CacheDir, discard)
		p.publisher.syndics = p.syndics
	}
}

// TestMinionsBelow: the minions that a syndic reports are those of the job; events whose own tags
// belong to others are fired under the syndic's tag.
func TestMinionsBelow(t *testing.T) {
	p := newParts(t, []string{"site"}, ofSyndics)
	jid := p.publisher.publish(value.DictOf("fun", "test.ping", "tgt", "low*")).Dict("load").Str("jid")
	p.tags()
	event := func(tag string, data *value.Dict) *value.Dict { return value.DictOf("tag", tag, "data", data) }
	ask(t, p.eventsOf().take, "site", "_minion_event", value.DictOf("pretag", "syndic/site", "events", value.ListOf(
		event(jid, value.DictOf("jid", jid, "minions", value.ListOf("low1", "low2", "../x", 3))),
		event("salt/job/"+jid+"/new", value.DictOf("jid", jid, "minions", value.ListOf("low3"))),
		event("salt/minion/low1/start", value.DictOf("id", "low1")),
		event("20260101000000000009", value.DictOf("jid", "20260101000000000009", "minions", value.ListOf("low1"))),
	)))
	if ids, err := p.jobs.Minions(jid); err != nil || !slices.Equal(ids, []string{"low1", "low2", "low3"}) {
		t.Errorf("the job has %v, %v", ids, err)
	}
	if load, err := p.jobs.Load("20260101000000000009"); load != nil || err != nil {
		t.Errorf("an unknown job is recorded: %v, %v", load, err)
	}
	want := []string{jid, "syndic/site/" + jid, "syndic/site/salt/job/" + jid + "/new", "syndic/site/salt/minion/low1/start", "20260101000000000009",
		"syndic/site/20260101000000000009"}
	if got := p.tags(); !slices.Equal(got, want) {
		t.Errorf("events %q", got)
	}
	// No minion of this master or of another syndic, and no tag of theirs.
	p = newParts(t, []string{"site", "evil", "near"}, ofSyndics)
	cfg := p.cfg
	if err := cfg.Options.SyndicMinions.SetValue(value.DictOf("site", "low*", "evil", "bad*")); err != nil {
		t.Fatal(err)
	}
	p.settings.set(cfg)
	jid = p.publisher.publish(value.DictOf("fun", "test.ping", "tgt", "low*")).Dict("load").Str("jid")
	named := func(id string, minions ...any) *value.Dict {
		return value.DictOf("pretag", "syndic/"+id, "events", value.ListOf(event(jid, value.DictOf("jid", jid, "minions", value.ListOf(minions...)))))
	}
	ask(t, p.eventsOf().take, "site", "_minion_event", named("site", "low1"))
	ask(t, p.eventsOf().take, "evil", "_minion_event", named("evil", "low1", "near", "bad1"))
	if ids, err := p.jobs.Minions(jid); err != nil || !slices.Equal(slices.Sorted(slices.Values(ids)), []string{"bad1", "low1"}) {
		t.Errorf("the job has %v, %v", ids, err)
	}
	p.tags()
	for _, tag := range []string{"salt/beacon/low1/load", "salt/beacon/near/load", "salt/job/" + jid + "/prog/low1/1", "syndic/site/x", "salt/beacon/bad1/load"} {
		ask(t, p.eventsOf().take, "evil", "_minion_event", value.DictOf("tag", tag, "data", "x"))
	}
	if got := p.tags(); !slices.Equal(got, []string{"salt/beacon/bad1/load"}) {
		t.Errorf("events of others: %q", got)
	}
}

// TestForgedReturnsOfSyndics: a syndic may not return for minions of this master, nor, with
// syndic_minions, for those of another syndic.
func TestForgedReturnsOfSyndics(t *testing.T) {
	p := newParts(t, []string{"site", "evil", "near"}, ofSyndics)
	r := p.returns()
	r.syndics = p.syndics
	send := func(syndic, jid, minion, result string) any {
		t.Helper()
		entry := value.DictOf("jid", jid, "fun", "test.echo", "return", value.DictOf(minion, value.DictOf("return", result)))
		return ask(t, r.takeSyndic, syndic, "_syndic_return", value.DictOf("load", value.ListOf(entry)))
	}
	stored := func(jid, minion string) any {
		t.Helper()
		rets, err := p.jobs.Returns(jid)
		if err != nil {
			t.Fatal(err)
		}
		return rets[minion].At("return")
	}
	const jid, later = "20260101000000000001", "20260101000000000002"
	if v := send("site", jid, "low1", "true"); v != nil || stored(jid, "low1") != "true" {
		t.Fatalf("its own minion: %s", value.Repr(v))
	}
	if v, ok := send("evil", jid, "near", "forged").(*value.Dict); !ok || !v.Has(salt.KeepReturn) || stored(jid, "near") != nil {
		t.Error("a minion of this master is accepted, or its return dropped")
	}
	if v := send("evil", jid, "low1", "forged"); v != nil || stored(jid, "low1") != "true" {
		t.Errorf("a return that is here already: %s", value.Repr(v))
	}
	if v := send("site", later, "site", "mine"); v != nil || stored(later, "site") != "mine" {
		t.Errorf("the minion on the syndic's machine: %s", value.Repr(v))
	}
	// A minion may have masters at two sites, of which one has lost it.
	if v := send("evil", later, "low1", "other way"); v != nil || stored(later, "low1") != "other way" {
		t.Errorf("a minion below two syndics: %s", value.Repr(v))
	}

	// The option decides alone.
	cfg := p.cfg
	if err := cfg.Options.SyndicMinions.SetValue(value.DictOf("evil", value.ListOf("near", "e*"), "si*", "low*")); err != nil {
		t.Fatal(err)
	}
	p.settings.set(cfg)
	const third = "20260101000000000003"
	for _, c := range []struct {
		syndic, minion string
		want           any
	}{{"evil", "near", "x"}, {"evil", "e1", "x"}, {"evil", "low2", nil}, {"site", "low3", "x"}, {"other", "o1", nil}} {
		send(c.syndic, third, c.minion, "x")
		if got := stored(third, c.minion); got != c.want {
			t.Errorf("%s returns for %s: %v, want %v", c.syndic, c.minion, got, c.want)
		}
	}
	for _, bad := range []any{"x", value.ListOf("x"), value.DictOf("site", 3), value.DictOf(3, "x"), value.DictOf("site", &value.List{})} {
		if err := new(SyndicMinions).SetValue(bad); err == nil {
			t.Errorf("%s is accepted", value.Repr(bad))
		}
	}
}

// TestMissedBySyndic: a syndic that was unreachable gets each job that has not expired, also one
// that targets no minion that is known here, or to which all have returned.
func TestMissedBySyndic(t *testing.T) {
	p := newParts(t, []string{"m1"}, ofSyndics)
	q := &queueRequests{id: "boss", states: p.states, access: p.access}
	var jids []string
	for _, tgt := range []string{"m1", "low*"} {
		jids = append(jids, p.publisher.publish(value.DictOf("fun", "test.ping", "tgt", tgt)).Dict("load").Str("jid"))
	}
	ask(t, p.returns().take, "m1", "_return", value.DictOf("jid", jids[0], "return", true, "fun", "test.ping"))
	missed := func(id string, syndic bool) (out []string) {
		for _, j := range value.Items(answer(t, q.missed, id, "_brine_missed", value.DictOf("after", 0, "syndic", syndic)).At("jobs")) {
			out = append(out, j.(*value.Dict).Str("jid"))
		}
		return out
	}
	for range 2 {
		if got := missed("site", true); !slices.Equal(got, jids) {
			t.Errorf("the syndic missed %v, not %v", got, jids)
		}
	}
	if got := missed("m1", false); len(got) > 0 {
		t.Errorf("the minion missed %v", got)
	}
	p = newParts(t, []string{"m1"}, nil)
	q = &queueRequests{id: "boss", states: p.states, access: p.access}
	p.publisher.publish(value.DictOf("fun", "test.ping", "tgt", "m1"))
	if got := missed("site", true); len(got) > 0 {
		t.Errorf("without order_masters a syndic gets %v", got)
	}
}

// TestJobsOfTheMasterBelow: a syndic describes jobs that were published below; a known job keeps its
// record.
func TestJobsOfTheMasterBelow(t *testing.T) {
	p := newParts(t, nil, ofSyndics)
	known := p.publisher.publish(value.DictOf("fun", "test.ping", "tgt", "*", "user", "ann")).Dict("load").Str("jid")
	own := "20260101000000000001"
	for _, jid := range []string{own, known} {
		load := value.DictOf("fun", "cmd.run", "tgt", "web*", "user", "eve", "key", "secret", "jid", "other")
		entry := value.DictOf("jid", jid, "fun", "cmd.run", "out", "txt", "load", load, "return", value.DictOf("web1", value.DictOf("return", "x")))
		if v := ask(t, p.returns().takeSyndic, "site", "_syndic_return", value.DictOf("load", value.ListOf(entry))); v != nil {
			t.Errorf("%s: %s", jid, value.Repr(v))
		}
	}
	load, err := p.jobs.Load(own)
	if err != nil || load.Str("user") != "eve" || load.Str("jid") != own || load.Has("key") {
		t.Errorf("the job below is recorded as %s, %v", value.Repr(load), err)
	}
	if load, err := p.jobs.Load(known); err != nil || load.Str("user") != "ann" {
		t.Errorf("the job above is recorded as %s, %v", value.Repr(load), err)
	}
	if rets, err := p.jobs.Returns(own); err != nil || rets["web1"].Str("out") != "txt" {
		t.Errorf("the return is %v, %v", rets, err)
	}
}
