package master

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

func (p *parts) returns() *returns {
	return &returns{
		settings: p.settings, rules: &returnRules{p.settings, p.queue, p.jobs}, jobs: p.jobs, bus: p.bus, queue: p.queue, sinks: p.sinks, stock: p.stock,
		log: discard, rateLimitedLog: p.limited, own: quota{now: time.Now}, runs: p.lastRuns,
		repeat: func(string, *value.Dict) {},
	}
}

// TestReturns: a return is stored and its event fired once, and the answer is
// nil; a refused return is answered with an empty string.
func TestReturns(t *testing.T) {
	p := newParts(t, []string{"web1", "db1"}, nil)
	r := p.returns()
	jid := p.publisher.publish(value.DictOf("fun", "test.ping", "tgt", "web*")).Dict("load").Str("jid")
	ret := func(jid any) *value.Dict {
		return value.DictOf("jid", jid, "return", true, "fun", "test.ping", "id", "forged")
	}
	p.tags()
	var repeats []string
	r.repeat = func(tag string, _ *value.Dict) { repeats = append(repeats, tag) }
	for _, times := range []string{"once", "twice"} {
		if v := ask(t, r.take, "web1", "_return", ret(jid)); v != nil {
			t.Errorf("%s: the answer is %s", times, value.Repr(v))
		}
	}
	if tags := p.tags(); !slices.Equal(tags, []string{salt.Tag("job", jid, "ret", "web1")}) {
		t.Errorf("events %v", tags)
	} else if !slices.Equal(repeats, tags) {
		t.Errorf("other programs may have missed %v, but only %v was repeated", tags, repeats)
	}
	stored, err := p.jobs.Returns(jid)
	if err != nil || len(stored) != 1 || stored["web1"].At("return") != true {
		t.Errorf("stored %v, %v", stored, err)
	}
	for name, load := range map[string]*value.Dict{"of another minion's job": ret(jid), "with a bad job id": ret("../x"),
		"without a job id": value.DictOf("return", true)} {
		if v := ask(t, r.take, "db1", "_return", load); v != "" {
			t.Errorf("a return %s is answered by %s", name, value.Repr(v))
		}
	}
	if tags := p.tags(); len(tags) > 0 {
		t.Errorf("events of refused returns: %v", tags)
	}
	// A job that the minion started itself gets an id, a load and an event.
	if v := ask(t, r.take, "db1", "_return", ret("req")); v != nil {
		t.Errorf("the answer is %s", value.Repr(v))
	}
	tags := p.tags()
	if len(tags) != 1 {
		t.Fatalf("events %v", tags)
	}
	minted := tags[0][len("salt/job/"):][:20]
	if load, err := p.jobs.Load(minted); err != nil || load.Str("tgt") != "db1" {
		t.Errorf("its load is %s, %v", value.Repr(load), err)
	}
	if v := ask(t, r.take, "db1", "_return", ret("nocache")); v != nil {
		t.Errorf("a return that is not to be kept: %s", value.Repr(v))
	}
}

// TestReturnOfCallSentAgain: a return of salt-call is one job however often it is
// sent, also after a restart of the master. The proposed id counts only for the
// minion's own job.
func TestReturnOfCallSentAgain(t *testing.T) {
	p := newParts(t, []string{"web1", "db1"}, nil)
	published := p.publisher.publish(value.DictOf("fun", "test.ping", "tgt", "*")).Dict("load").Str("jid")
	p.tags()
	const called = "20260101000000000001"
	send := func(id, jid string) (events []string) {
		t.Helper()
		load := value.DictOf("jid", "req", "call_jid", jid, "return", true, "fun", "test.echo", "fun_args", value.ListOf("a"))
		if v := ask(t, p.returns().take, id, "_return", load); v != nil {
			t.Errorf("%s: the answer is %s", id, value.Repr(v))
		}
		return p.tags()
	}
	if tags := send("web1", called); !slices.Equal(tags, []string{salt.Tag("job", called, "ret", "web1")}) {
		t.Errorf("events %v", tags)
	}
	if tags := send("web1", called); len(tags) != 0 {
		t.Errorf("sent again: events %v", tags)
	}
	for id, jid := range map[string]string{"db1": called, "web1": published} {
		tags := send(id, jid)
		if len(tags) != 1 || strings.Contains(tags[0], jid) {
			t.Errorf("the id of another job: events %v", tags)
		}
	}
	if tags := send("web1", "../x"); len(tags) != 1 || strings.Contains(tags[0], "..") {
		t.Errorf("an invalid id: events %v", tags)
	}
}

// TestReturnQuota: returns that belong to no published job are bounded.
func TestReturnQuota(t *testing.T) {
	p := newParts(t, []string{"web1"}, func(c *Config) { c.Options.MinionReturnQuota = 1 })
	r := p.returns()
	r.own.take("web1", 1<<20, 1<<20)
	v := answer(t, r.take, "web1", "_return", value.DictOf("jid", "req", "return", true, "fun", "test.ping"))
	if !v.Has(salt.KeepReturn) {
		t.Errorf("above the quota: %s", value.Repr(v))
	}
}

// TestReturnQuotaOfUnstored: a return that cannot be stored is sent again, and
// counts once it is stored.
func TestReturnQuotaOfUnstored(t *testing.T) {
	p := newParts(t, []string{"web1"}, func(c *Config) { c.Options.MinionReturnQuota = 1 })
	r := p.returns()
	if err := p.jobs.Close(); err != nil { // from now on nothing can be stored
		t.Fatal(err)
	}
	for _, jid := range []string{"req", "20260101000000000001"} {
		v := answer(t, r.take, "web1", "_return", value.DictOf("jid", jid, "return", true, "fun", "test.ping"))
		if !v.Has(salt.KeepReturn) {
			t.Errorf("%s: the answer is %s", jid, value.Repr(v))
		}
	}
	if n := r.own.used["web1"]; n != 0 {
		t.Errorf("%d bytes count that were not stored", n)
	}
}

// TestReturnsOfSyndics are accepted where syndics are configured, and stored
// for the minions that they name.
func TestReturnsOfSyndics(t *testing.T) {
	load := value.DictOf("load", value.ListOf(value.DictOf("jid", "20260101000000000001", "fun", "test.ping", "master_id", "low", "return", value.DictOf(
		"low1", value.DictOf("return", true, "id", "victim", "jid", "../x"), "low2", value.DictOf("return", false), "../evil", value.DictOf("return", true),
		"low3", "text",
	)), value.DictOf("jid", "bad"), "text"))
	p := newParts(t, []string{"syndic"}, nil)
	if v := answer(t, p.returns().takeSyndic, "syndic", "_syndic_return", load); !v.Has(salt.KeepReturn) || len(p.tags()) > 0 {
		t.Errorf("without order_masters: %s", value.Repr(v))
	}
	p = newParts(t, []string{"syndic"}, func(c *Config) { c.Options.OrderMasters = true })
	if v := ask(t, p.returns().takeSyndic, "syndic", "_syndic_return", load); v != nil {
		t.Errorf("the answer is %s", value.Repr(v))
	}
	tags := p.tags()
	slices.Sort(tags)
	if !slices.Equal(tags, []string{"salt/job/20260101000000000001/ret/low1", "salt/job/20260101000000000001/ret/low2"}) {
		t.Errorf("events %v", tags)
	}
	if stored, err := p.jobs.Returns("20260101000000000001"); err != nil || len(stored) != 2 || stored["low1"] == nil || stored["low2"] == nil {
		t.Errorf("stored are %v, %v", stored, err)
	}
}

// TestBoundedSet: the oldest entry is dropped.
func TestBoundedSet(t *testing.T) {
	var b boundedSet
	if !b.add("a") || b.add("a") || !b.remove("a") || b.remove("a") {
		t.Error("one text is entered and taken out once")
	}
	for i := range maxTold + 1 {
		b.add(fmt.Sprint(i))
	}
	if len(b.has) != maxTold || b.remove("0") {
		t.Errorf("%d texts are kept", len(b.has))
	}
}

// TestTwoMachinesOfOneID: a second return of a job with another result is logged and changes
// nothing; a return that was only sent again is not logged.
func TestTwoMachinesOfOneID(t *testing.T) {
	p := newParts(t, []string{"web1"}, nil)
	var told []string
	p.store.OnConflict(func(jid, minion string) { told = append(told, jid+" "+minion) })
	r := p.returns()
	jid := p.publisher.publish(value.DictOf("fun", "test.echo", "tgt", "web*")).Dict("load").Str("jid")
	for i, result := range []any{"one", "one", "two", "one"} {
		load := value.DictOf("jid", jid, "return", result, "retcode", 0, "success", true, "_stamp", fmt.Sprint(i))
		if v := ask(t, r.take, "web1", "_return", load); v != nil {
			t.Errorf("return %d is answered by %s", i, value.Repr(v))
		}
	}
	if want := []string{jid + " web1"}; !slices.Equal(told, want) {
		t.Errorf("told of %q, not of %q", told, want)
	}
	if stored, err := p.jobs.Returns(jid); err != nil || stored["web1"].At("return") != "one" {
		t.Errorf("stored %v, %v", stored, err)
	}
}
