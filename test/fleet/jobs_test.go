package fleet

import (
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/daemons/master"
	"brine/internal/daemons/minion"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/test/eventually"
)

var nilLog = slog.New(slog.DiscardHandler)

func portOf(t *testing.T, a net.Addr) int {
	t.Helper()
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		t.Fatalf("%v is no TCP address", a)
	}
	return tcp.Port
}

// pair is a master and a minion that are connected.
func pair(t *testing.T, change func(*minion.Config)) (*theMaster, *theMinion) {
	t.Helper()
	m := startMaster(t, "one", "zeromq", func(cfg *master.Config) { cfg.Keys.AutoAccept = true })
	starts := m.events("salt/minion/")
	w := startMinion(t, "w1", "zeromq", []*theMaster{m}, change)
	m.awaitStart(starts, "w1")
	return m, w
}

func TestFindAndKillJob(t *testing.T) {
	m, _ := pair(t, nil)
	for _, how := range []string{"saltutil.kill_job", "saltutil.term_job"} {
		events := m.events("salt/job/")
		jid := m.publish("glob", "*", "cmd.run", "", "sleep 600")
		eventually.Nil(t, eventually.Limit, "the job is found", func() error {
			ret := m.command("glob", "*", "saltutil.find_job", 1, jid)["w1"]
			if ret.Dict("return").Str("jid") != jid {
				return errNotYet
			}
			if ret.Dict("return").Str("fun") != "cmd.run" || ret.Dict("return").Int("pid") == 0 {
				t.Errorf("find_job: %v", value.Repr(ret))
			}
			return nil
		})
		if ret := m.command("glob", "*", how, 1, jid)["w1"]; !strings.Contains(value.Str(ret.At("return")), "sent to job "+jid) {
			t.Errorf("%s: %v", how, value.Repr(ret))
		}
		ret := m.await(events, jid, 1)["w1"]
		if ret.Bool("success") || ret.Int("retcode") == 0 {
			t.Errorf("the killed job returned %v", value.Repr(ret))
		}
		if ret := m.command("glob", "*", "saltutil.running", 1)["w1"]; len(ret.List("return")) != 0 {
			t.Errorf("still running: %v", value.Repr(ret))
		}
	}
}

var errNotYet = notYet{}

type notYet struct{}

func (notYet) Error() string { return "not yet" }

func TestProcessCountMax(t *testing.T) {
	m, _ := pair(t, func(c *minion.Config) { c.Options.ProcessCountMax = 1 })
	events := m.events("salt/job/")
	first := m.publish("glob", "*", "cmd.run", "", "sleep 1; date +%s%N")
	second := m.publish("glob", "*", "cmd.run", "", "date +%s%N")
	// Even a busy minion answers queries about jobs.
	eventually.Nil(t, eventually.Limit, "the first job is found", func() error {
		if m.command("glob", "*", "saltutil.find_job", 1, first)["w1"].Dict("return").Len() == 0 {
			return errNotYet
		}
		return nil
	})
	var at [2]string
	for i, jid := range []string{first, second} {
		at[i] = m.await(events, jid, 1)["w1"].Str("return")
	}
	if at[0] == "" || at[1] == "" || at[0] > at[1] {
		t.Errorf("the second job ran beside the first: %v", at)
	}
}

func TestSeveralFunctionsInOneJob(t *testing.T) {
	m, _ := pair(t, nil)
	rep := m.Publish(value.DictOf("fun", value.ListOf("test.echo", "test.ping", "no.such"), "arg", value.ListOf(value.ListOf("a"), value.ListOf(), value.ListOf()),
		"tgt", "*", "tgt_type", "glob", "ret", "", "user", "root", "kwargs", value.NewDict(0)))
	jid := rep.Dict("load").Str("jid")
	eventually.Nil(t, eventually.Limit, "the return is stored", func() error {
		rets, err := m.JobReturns(jid)
		if err != nil || rets["w1"] == nil {
			return errNotYet
		}
		got := rets["w1"].Dict("return")
		if got.Str("test.echo") != "a" || got.At("test.ping") != true || got.Str("no.such") != "'no.such' is not available." {
			t.Errorf("return: %v", value.Repr(rets["w1"]))
		}
		return nil
	})
}

func TestScheduleAndMine(t *testing.T) {
	m, _ := pair(t, func(c *minion.Config) {
		c.Options.Schedule = value.DictOf("beat", value.DictOf("function", "test.echo", "seconds", 1, "args", value.ListOf("tick")))
		c.Options.MineFunctions = value.DictOf("roles", value.ListOf(value.DictOf("mine_function", "grains.get"), "role"))
	})
	events := m.events("salt/job/")
	timeout := time.After(time.Minute)
	for n := 0; n < 2; {
		select {
		case e := <-events:
			if e.Data.Str("schedule") == "beat" {
				if n++; e.Data.Str("return") != "tick" {
					t.Errorf("return: %v", value.Repr(e.Data))
				}
			}
		case <-timeout:
			t.Fatal("the schedule does not run")
		}
	}
	eventually.Nil(t, eventually.Limit, "the mine has the role", func() error {
		v := m.command("glob", "*", "mine.get", 1, "*", "roles")["w1"]
		if v.Dict("return").Str("w1") != "web" {
			return errNotYet
		}
		return nil
	})
}

func TestPresenceEvents(t *testing.T) {
	m := startMaster(t, "one", "tcp", func(cfg *master.Config) {
		cfg.Keys.AutoAccept = true
		cfg.Options.PresenceEvents = true
		cfg.Options.LoopInterval = time.Second
	})
	events := m.events("salt/presence/")
	w := startMinion(t, "w1", "tcp", []*theMaster{m}, nil)
	await := func(key string) {
		t.Helper()
		timeout := time.After(time.Minute)
		for {
			select {
			case e := <-events:
				if l := e.Data.List(key); len(l) == 1 && l[0] == "w1" {
					return
				}
			case <-timeout:
				t.Fatalf("no presence event with %s: [w1]", key)
			}
		}
	}
	await("new")
	await("present")
	w.stop()
	await("lost")
}

// TestTwoJobsWithOneID: two masters publish different jobs with one id. The first one runs. The
// other master gets an error, and not the return of the first job.
func TestTwoJobsWithOneID(t *testing.T) {
	first := startMaster(t, "first", "zeromq", func(cfg *master.Config) { cfg.Keys.AutoAccept = true })
	second := startMaster(t, "second", "zeromq", func(cfg *master.Config) {
		cfg.Keys.AutoAccept = true
		sameKey(first)(cfg)
	})
	masters := []*theMaster{first, second}
	var starts, events []<-chan *event.Event
	for _, m := range masters {
		starts = append(starts, m.events("salt/minion/"))
		events = append(events, m.events("salt/job/"))
	}
	w := startMinion(t, "w1", "zeromq", masters, nil)
	for i, m := range masters {
		m.awaitStart(starts[i], "w1")
	}
	const jid = "20260101000000000000"
	secret := func(m *theMaster) any {
		return m.await(events[slices.Index(masters, m)], m.publish("glob", "*", "test.echo", jid, "secret of "+m.cfg.ID), 1)["w1"].At("return")
	}
	if got := secret(first); got != "secret of first" {
		t.Errorf("the first returned %v", got)
	}
	got := value.Str(secret(second))
	if strings.Contains(got, "secret") || !strings.Contains(got, jid) || !strings.Contains(got, "test.echo") || !strings.Contains(got, "run the command again") {
		t.Errorf("the second returned %q", got)
	}
	if log := w.log.String(); !strings.Contains(log, "another job has its id") {
		t.Errorf("the minion logged: %s", log)
	}
	if err := first.returned(jid, "w1", "secret of first"); err != nil {
		t.Error(err)
	}
	if ret := second.command("glob", "*", "test.ping", 1)["w1"]; ret.At("return") != true {
		t.Error("the second does not command the minion")
	}
}
