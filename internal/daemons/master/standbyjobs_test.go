package master

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

func sampleRecord(jid string) wire.JobRecord {
	return wire.JobRecord{JID: jid, Master: "other", Fun: "cmd.run", Arg: value.ListOf("ls"), Tgt: "web*", TgtType: "glob", User: "root",
		Metadata: value.DictOf("a", "b")}
}

func sealed(t testing.TB, r wire.JobRecord, key *crypt.PrivateKey) []byte {
	t.Helper()
	b, err := sealRecord(r, key)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRecordOfAnotherMaster: a record signed by a master with this key creates a job
// here. A record that a minion forged, changed, or got for another job or minion
// does not, and no record changes a known job.
func TestRecordOfAnotherMaster(t *testing.T) {
	p := newParts(t, []string{"web1", "web2", "db1"}, nil)
	key, err := testKey()
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	jid := func(n int) string { return salt.FormatJID(now.Add(time.Duration(n) * time.Second)) }
	give := func(id, jid string, record any) {
		t.Helper()
		ask(t, p.handlers().returns.take, id, "_return", value.DictOf("jid", jid, "id", id, "return", "r", "retcode", int64(0), "fun", "test.echo",
			salt.JobRecord, record))
		ret, err := p.jobs.Returns(jid)
		if err != nil || ret[id].Str("return") != "r" || ret[id].Has(salt.JobRecord) {
			t.Errorf("the return of %s: %v, %v", id, ret[id], err)
		}
	}
	load := func(jid string) *value.Dict {
		t.Helper()
		d, err := p.jobs.Load(jid)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}

	good := sealed(t, sampleRecord(jid(1)), key)
	give("web1", jid(1), good)
	d := load(jid(1))
	if d.Str("fun") != "cmd.run" || d.Str("tgt") != "web*" || d.Str("user") != "root" || d.Dict("kwargs").Dict("metadata").Str("a") != "b" ||
		d.List("arg")[0] != "ls" {
		t.Errorf("the job: %s", value.Repr(d))
	}
	if ids, err := p.jobs.Minions(jid(1)); err != nil || strings.Join(ids, " ") != "web1 web2" {
		t.Errorf("its minions: %v, %v", ids, err)
	}
	give("web2", jid(1), good)

	forged := sampleRecord(jid(2))
	changed := bytes.Replace(sealed(t, forged, key), []byte("cmd.run"), []byte("cmd.rum"), 1)
	for i, record := range []any{sealed(t, forged, foreign), changed, good, good[:40], []byte{}, bytes.Repeat([]byte{0x91}, 1<<20), "text",
		value.DictOf("record", "x")} {
		id := jid(10 + i)
		if i < 2 {
			id = jid(2)
		}
		give("web1", id, record)
		if d := load(id); d.Str("fun") == "cmd.run" || d.Has("tgt") {
			t.Errorf("forgery %d made a job: %s", i, value.Repr(d))
		}
	}
	b := sealed(t, sampleRecord(jid(3)), key)
	if err := p.standbyJobs.store(jid(3), "db1", b); salt.KindOf(err) != salt.Denied {
		t.Errorf("the record of a job for others: %v", err)
	}
	if err := p.standbyJobs.store(jid(3), "web1", good); salt.KindOf(err) != salt.Denied {
		t.Errorf("the record of another job: %v", err)
	}
	old := salt.FormatJID(now.AddDate(-1, 0, 0))
	if err := p.standbyJobs.store(old, "web1", sealed(t, sampleRecord(old), key)); err == nil {
		t.Error("a job that has expired was stored")
	}

	// A job of this master does not change, not even by a valid record.
	if err := p.jobs.NewJobUntil(value.DictOf("cmd", "publish", "jid", jid(4), "fun", "test.ping", "tgt", "web1", "tgt_type", "glob", "arg", value.ListOf(),
		"user", "ann"), []string{"web1"}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	give("web1", jid(4), sealed(t, sampleRecord(jid(4)), key))
	if d := load(jid(4)); d.Str("fun") != "test.ping" || d.Str("user") != "ann" {
		t.Errorf("a job of this master became %s", value.Repr(d))
	}
	// A job that a minion claims to have started itself is replaced by the record.
	ask(t, p.handlers().returns.take, "web2", "_return", value.DictOf("jid", jid(5), "id", "web2", "return", "x", "fun", "test.echo", "fun_args",
		value.ListOf("x"), "tgt", "web2"))
	if d := load(jid(5)); d.Str("fun") != "test.echo" {
		t.Fatalf("%s", value.Repr(d))
	}
	give("web1", jid(5), sealed(t, sampleRecord(jid(5)), key))
	if d := load(jid(5)); d.Str("fun") != "cmd.run" {
		t.Errorf("the claim of a minion has stayed: %s", value.Repr(d))
	}
}

// TestGiveRecord: a minion gets only records of jobs that were published to it.
func TestGiveRecord(t *testing.T) {
	p := newParts(t, []string{"web1", "db1"}, nil)
	key, err := testKey()
	if err != nil {
		t.Fatal(err)
	}
	reply := p.publisher.publish(value.DictOf("cmd", "publish", "fun", "test.ping", "tgt", "web1", "tgt_type", "glob", "arg", value.ListOf(), "ret", "",
		"jid", "", "user", "root"))
	jid := reply.Dict("load").Str("jid")
	for range 2 { // the second one is cached
		d := answer(t, p.standbyJobs.give, "web1", "_brine_published", value.DictOf("jid", jid))
		r, err := openRecord(d.Bytes("record"), key.Public())
		if err != nil || r.JID != jid || r.Fun != "test.ping" || r.User != "root" || r.Master != "boss" {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if d := answer(t, p.standbyJobs.give, "db1", "_brine_published", value.DictOf("jid", jid)); d.Len() != 0 {
		t.Errorf("another minion got %s", value.Repr(d))
	}
	report := value.DictOf("mode", "failover", "masters", value.ListOf(
		value.DictOf("master", "a", "state", "standby", "you", true, "jobs", true), value.DictOf("master", "b", "state", "connected")))
	if d := answer(t, p.reports.take, "web1", "_brine_standing", report); !d.Bool(salt.StandbyJobs) {
		t.Errorf("the answer: %s", value.Repr(d))
	}
	if d := p.reports.elsewhere([]string{"web1"}); d.Len() != 0 {
		t.Errorf("commanded elsewhere: %s", value.Repr(d))
	}
	if got := p.reports.commanded(map[string]bool{"web1": true, "db1": true}); len(got) != 1 || !got["db1"] {
		t.Errorf("commanded here: %v", got)
	}
}

func FuzzOpenRecord(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	key, err := testKey()
	if err != nil {
		f.Fatal(err)
	}
	b := sealed(f, sampleRecord("20261124000000000000"), key)
	var outer wire.SignedRecord
	if err := decodeRecord(b, &outer); err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(outer.Record)
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := openRecord(b, key.Public()); err == nil && (r.JID != "20261124000000000000" || r.Fun != "cmd.run" || r.User != "root") {
			t.Fatalf("another record is believed: %+v", r)
		}
		var r wire.JobRecord
		if err := decodeRecord(b, &r); err != nil {
			return
		}
		if len(r.JID) > 64 || len(r.User) > 1024 || len(r.TgtType) > 64 {
			t.Fatalf("%+v", r)
		}
		loadOf(&r)
	})
}
