package fleet

import (
	"testing"

	"brine/internal/daemons/master"
	"brine/internal/py/value"
)

// TestReturnsOfUnknownJobs: a minion's return of a job that it started itself is stored under its
// own id, and it cannot change a published job.
func TestReturnsOfUnknownJobs(t *testing.T) {
	m := startMaster(t, "one", "zeromq", func(cfg *master.Config) { cfg.Keys.AutoAccept = true })
	evil := signedIn(t, m, "evil")
	signedIn(t, m, "victim")
	events := m.events("salt/job/")
	send := func(load ...any) {
		t.Helper()
		if _, err := evil.Request(t.Context(), value.DictOf(append([]any{"cmd", "_return"}, load...)...)); err != nil {
			t.Fatalf("%v: %v", load, err)
		}
	}
	const tgt = "victim or G@os:x" // evil may return: it may match
	published := m.publish("compound", tgt, "test.echo", "", "x")
	<-events // new
	<-events // publish
	for name, c := range map[string]struct {
		load []any
		tgt  string
	}{
		"salt-call": {[]any{"jid", "req", "fun", "test.echo", "fun_args", value.ListOf("a"), "return", "a"}, "evil"},
		"says it is another": {[]any{"jid", "req", "id", "victim", "tgt", "victim", "tgt_type", "list", "arg", "forged", "fun", "test.echo", "fun_args",
			value.ListOf("a"), "return", "a"}, "evil"},
		"schedule": {[]any{"jid", "20300101000000000001", "schedule", "beat", "fun", "test.echo", "fun_args", value.ListOf("a"), "return", "a"},
			"evil"},
		"startup": {[]any{"jid", "20300101000000000002", "tgt", "evil", "fun", "test.echo", "fun_args", value.ListOf("a"), "return", "a"},
			"evil"},
		"unknown job":         {[]any{"jid", "20300101000000000003", "tgt", "*", "arg", value.ListOf("a"), "fun", "test.echo", "return", "a"}, ""},
		"a job that is known": {[]any{"jid", published, "tgt", "evil", "schedule", "x", "fun", "test.forged", "return", "a"}, ""},
	} {
		send(c.load...)
		e := <-events
		load, err := m.Job(e.Data.Str("jid"))
		if err != nil || load == nil || e.Data.Str("id") != "evil" || e.Data.Str("tgt") != c.tgt {
			t.Fatalf("%s: %v, event %v", name, err, value.Repr(e.Data))
		}
		want := c.tgt
		if e.Data.Str("jid") == published {
			want = tgt
		}
		if load.Str("tgt") != want || load.Str("fun") != "test.echo" || c.tgt == "evil" && value.Repr(load.At("arg")) != "['a']" {
			t.Errorf("%s: %v", name, value.Repr(load))
		}
	}
	send("jid", "nocache", "schedule", "beat", "fun", "test.echo", "return", "only an event")
	if e := <-events; e.Tag != "salt/job/nocache/ret/evil" {
		t.Errorf("%s %v", e.Tag, value.Repr(e.Data))
	}
}
