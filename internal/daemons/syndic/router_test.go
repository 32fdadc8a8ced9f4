package syndic

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"brine/internal/base/field"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// testRouter is a router with the masters of masters a, b and c, of which c is not connected.
func testRouter(t *testing.T, set func(*Options)) *router {
	t.Helper()
	o := &Options{}
	if err := field.Defaults(o); err != nil {
		t.Fatal(err)
	}
	o.Failover = failoverOrdered
	if set != nil {
		set(o)
	}
	log := slog.New(slog.DiscardHandler)
	b := openBook(filepath.Join(t.TempDir(), "journal"), time.Now, log)
	t.Cleanup(b.close)
	var uppers []*outgoing
	for _, name := range []string{"c", "a", "b"} {
		uppers = append(uppers, &outgoing{name: name, connected: func() bool { return name != "c" }, wake: func() {}, log: log})
	}
	return newRouter("site", "low", o, b, uppers, log)
}

// sent lists the events that wait: MASTER TAG.
func (r *router) sent() (out []string) {
	for _, u := range r.uppers {
		events, _ := u.take()
		for _, e := range events {
			out = append(out, u.name+" "+e.Str("tag"))
		}
	}
	slices.Sort(out)
	return out
}

func retEvent(jid, id string) (string, *value.Dict) {
	return "salt/job/" + jid + "/ret/" + id, value.DictOf("jid", jid, "id", id, "return", 7, "retcode", 0, "success", true, "fun", "test.ping",
		"fun_args", &value.List{}, "cmd", "_return", "_stamp", "x", "out", "txt", "master_id", "low")
}

// TestCommandsOfMasters: a malformed command, and one of this master itself, is ignored.
func TestCommandsOfMasters(t *testing.T) {
	r := testRouter(t, nil)
	own, odd := testCommand(jid(1), "*"), testCommand("../x", "*")
	own.Set("master_id", "low")
	for _, load := range []*value.Dict{own, odd, value.DictOf("jid", jid(2))} {
		if news, _ := r.command("a", load); news {
			t.Errorf("%s is news", value.Repr(load))
		}
	}
	if news, _ := r.command("a", testCommand(jid(3), "*")); !news || len(r.book.commands()) != 1 {
		t.Error("a command is not news")
	}
}

// TestWhereEventsGo: what belongs to a job goes to the master that asked, the rest to one connected
// master, or to all.
func TestWhereEventsGo(t *testing.T) {
	asked, own := jid(1), jid(2)
	for _, c := range []struct {
		name string
		set  func(*Options)
		want []string
		own  string // where the return of an own job goes
	}{
		{"by default", nil, []string{"a my/news", "a salt/job/" + own + "/new", "b " + asked, "b salt/job/" + asked + "/new", "b syndic/deep/" + asked}, "a"},
		{"all events", func(o *Options) { o.ForwardAllEvents = true }, []string{"a my/news", "a salt/job/" + own + "/new", "b " + asked, "b my/news",
			"b salt/job/" + asked + "/new", "b salt/job/" + own + "/new", "b syndic/deep/" + asked, "c my/news", "c salt/job/" + own + "/new"}, "a"},
		{"cluster", func(o *Options) { o.Mode = modeCluster }, []string{"b " + asked, "b salt/job/" + asked + "/new", "b syndic/deep/" + asked}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := testRouter(t, c.set)
			r.command("b", testCommand(asked, "*"))
			commands := r.book.commands()
			r.published(&commands[0], []string{"m1", "m2"}, nil)
			r.event("salt/job/"+asked+"/new", value.DictOf("jid", asked, "minions", value.ListOf("m1", "m2")))
			r.event("syndic/deep/"+asked, value.DictOf("jid", asked, "minions", value.ListOf("m3")))
			r.event("salt/job/"+own+"/new", value.DictOf("jid", own, "minions", value.ListOf("m1"), "tgt", "m1", "fun", "test.ping"))
			r.event("my/news", value.DictOf("a", 1))
			r.event("other", value.DictOf("retcode", 0))                                                     // as in Salt
			r.event("salt/run/"+jid(5)+"/ret", value.DictOf("fun", "runner.jobs.list_job", "return", "big")) // its own question
			for _, ids := range [][2]string{{asked, "m1"}, {asked, "m3"}, {own, "m1"}} {
				r.event(retEvent(ids[0], ids[1]))
				r.event(retEvent(ids[0], ids[1]))
			}
			r.event("salt/job/"+asked+"/ret/m1", value.DictOf("jid", own, "id", "m1", "return", "forged"))
			r.event("salt/job/"+asked+"/ret/..", value.DictOf("jid", asked, "id", "../x", "return", "forged"))
			for _, u := range r.uppers {
				want := []string{}
				if u.name == "b" {
					want = append(want, asked+"/m1=7", asked+"/m3=7")
				}
				if u.name == c.own {
					want = append(want, own+"/m1=7")
				}
				expect(t, "returns for "+u.name, append([]string{}, waits(t, r.book, u.name)...), want...)
			}
			expect(t, "events", r.sent(), c.want...)
			expect(t, "the job lacks", r.book.open(9), asked) // m2
		})
	}
}

// TestMessages have the form of Salt's: one entry for each job; only the first message about an own
// job describes it.
func TestMessages(t *testing.T) {
	r := testRouter(t, nil)
	r.command("a", testCommand(jid(1), "*"))
	r.event("salt/job/"+jid(2)+"/new", value.DictOf("jid", jid(2), "minions", value.ListOf("m1"), "tgt", "m*", "fun", "test.ping", "user", "ann"))
	for _, ids := range [][2]string{{jid(1), "m1"}, {jid(1), "m2"}, {jid(2), "m1"}} {
		r.event(retEvent(ids[0], ids[1]))
	}
	parcels, more := r.book.parcels("a")
	if more {
		t.Error("there is more")
	}
	load := r.returnsMessage(parcels)
	var in wire.SyndicReturn
	if err := wire.Decode(load, &in); err != nil || in.Cmd != "_syndic_return" || in.ID != "site" {
		t.Fatalf("%s, %v", value.Repr(load), err)
	}
	var got []string
	for _, e := range value.Items(in.Load) {
		var entry wire.SyndicEntry
		if err := wire.Decode(e.(*value.Dict), &entry); err != nil {
			t.Fatal(err)
		}
		rets := entry.Return.(*value.Dict)
		got = append(got, fmt.Sprint(entry.JID, entry.Fun, entry.MasterID, rets.Len(), value.Repr(rets.At("m1")), entry.Load.Str("user")))
	}
	item := "{'return': 7, 'retcode': 0, 'success': True, 'fun_args': [], 'out': 'txt'}"
	expect(t, "entries", got, jid(1)+"test.ping"+"low"+"2"+item, jid(2)+"test.ping"+"low"+"1"+item+"ann")
	r.book.delivered("a", parcels)
	r.event(retEvent(jid(2), "m9"))
	parcels, _ = r.book.parcels("a")
	if l := r.returnsMessage(parcels); value.Items(l.At("load"))[0].(*value.Dict).Dict("load").Len() != 0 {
		t.Errorf("the job is described twice: %s", value.Repr(l))
	}
	m := r.eventsMessage([]*value.Dict{value.DictOf("tag", "x", "data", value.NewDict(0))})
	if m.Str("pretag") != "syndic/site" || m.Str("cmd") != "_minion_event" || len(value.Items(m.At("events"))) != 1 {
		t.Errorf("events: %s", value.Repr(m))
	}
}

// TestFailOver: returns of own jobs for an unreachable master go to another one.
func TestFailOver(t *testing.T) {
	r := testRouter(t, nil)
	r.command("c", testCommand(jid(1), "*"))
	r.book.returned(jid(1), "m", testReturn(1), "")
	r.book.returned(jid(2), "m", testReturn(2), "c")
	r.failOver()
	expect(t, "for c, which asked", waits(t, r.book, "c"), jid(1)+"/m=1")
	expect(t, "for a", waits(t, r.book, "a"), jid(2)+"/m=2")
}

// TestFound: returns that the lower master stored are sent unless they were sent before.
func TestFound(t *testing.T) {
	r := testRouter(t, nil)
	r.command("a", testCommand(jid(1), "*"))
	commands := r.book.commands()
	r.published(&commands[0], []string{"m1", "m2"}, nil)
	r.event(retEvent(jid(1), "m1"))
	take(r.book, "a")
	stored := func(n int) *value.Dict { return value.DictOf("return", n, "success", true, "retcode", 0) }
	r.found(jid(1), "test.ping", map[string]*value.Dict{"m1": stored(1), "m2": stored(2), "../x": stored(3)})
	expect(t, "found", waits(t, r.book, "a"), jid(1)+"/m2=2")
	expect(t, "open", r.book.open(9))
}

// TestEventLimit: the oldest events are dropped, and those that could not be sent stay in order.
func TestEventLimit(t *testing.T) {
	r := testRouter(t, nil)
	for n := range maxEvents + 2 {
		r.send(fmt.Sprint(n), value.NewDict(0), []string{"a"})
	}
	a := r.uppers[1]
	events, more := a.take()
	if len(events) != eventBatch || !more || events[0].Str("tag") != "2" {
		t.Errorf("%d events, the first is %s", len(events), events[0].Str("tag"))
	}
	a.putBack(events)
	if events, _ := a.take(); events[0].Str("tag") != "2" || events[eventBatch-1].Str("tag") != fmt.Sprint(eventBatch+1) {
		t.Errorf("after an error the first is %s", events[0].Str("tag"))
	}
}

// TestOptionsCheck: values that a syndic cannot use are named.
func TestOptionsCheck(t *testing.T) {
	good := Options{Masters: []string{"top"}, Failover: failoverRandom, Mode: modeSync}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for _, set := range []func(*Options){
		func(o *Options) { o.Masters = nil }, func(o *Options) { o.Failover = "x" }, func(o *Options) { o.Mode = "x" }, func(o *Options) { o.MasterPort = 70000 },
	} {
		o := good
		set(&o)
		if o.Check() == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}
