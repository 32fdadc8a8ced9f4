package badinput

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestReplays records all messages between a minion and its master and sends them again: the
// requests to the master, the publications to the minion.
func TestReplays(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"zeromq", "tcp", "ws"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			testReplays(t, transport)
		})
	}
}

func testReplays(t *testing.T, transport string) {
	more := "transport: " + transport + "\n"
	m := master(t, more)
	p := newProxy(t, m, daemontest.PublishPort, daemontest.RetPort)
	tags := m.Events()
	w := daemontest.NewMinion(t, brine, "w", []string{p.host}, more).Start()
	answers(t, m, "w")
	eventually.Nil(t, waitLimit, "the start event", func() error { return contains(tags(), "salt/minion/w/start") })

	// A publication: what the minion receives while one job is published.
	sub := p.to(daemontest.PublishPort)
	if len(sub) != 1 {
		t.Fatalf("%d subscriptions", len(sub))
	}
	file := w.Path("runs")
	before := len(sub[0].heard())
	jid, _ := command(t, m, "w", "cmd.run", "echo x >> "+file)
	publication := sub[0].heard()[before:]
	if len(publication) == 0 {
		t.Fatal("no publication went through the proxy")
	}
	for range 3 {
		must(t, sub[0].tell(publication))
		mustPing(t, m, "w")
	}
	if b, _ := os.ReadFile(file); string(b) != "x\n" {
		t.Errorf("the job ran %d times", strings.Count(string(b), "x"))
	}
	w.Logged("a replayed publication")

	// All requests: the sign-in, the pillar, events, returns.
	keys := listing(t, m.Path("etc"))
	for range 2 {
		for _, c := range p.to(daemontest.RetPort) {
			if answer := say(t, m.Requests(), c.said()); len(answer) == 0 {
				t.Error("no answer at all: nothing was said again")
			}
		}
	}
	once(t, tags, jid)
	m.Logged("refused a replayed request")
	if after := listing(t, m.Path("etc")); after != keys {
		t.Errorf("keys before\n%s\nafter\n%s", keys, after)
	}
	mustPing(t, m, "w")

	// A restarted master has forgotten the requests, but not the returns.
	m.Kill()
	m.Start()
	tags = m.Events()
	for _, c := range p.to(daemontest.RetPort) {
		say(t, m.Requests(), c.said())
	}
	answers(t, m, "w")
	if strings.Contains(tags(), jid) {
		t.Errorf("an old return is told again after a restart: %s", tags())
	}
	if rets, err := stored(t, m, jid); err != nil || len(rets) != 1 {
		t.Errorf("stored: %v, %v", rets, err)
	}
}

// once expects the return of a job, and the start of the minion, to be reported once.
func once(t *testing.T, tags func() string, jid string) {
	t.Helper()
	for _, tag := range []string{"salt/job/" + jid + "/ret/w\n", "salt/minion/w/start\n"} {
		if n := strings.Count(tags(), tag); n != 1 {
			t.Errorf("%q was told %d times", tag, n)
		}
	}
}

// TestCutConnections repeatedly breaks connections: every return arrives in the end, and each job
// runs once.
func TestCutConnections(t *testing.T) {
	t.Parallel()
	m := master(t, "")
	p := newProxy(t, m, daemontest.PublishPort, daemontest.RetPort)
	w := daemontest.NewMinion(t, brine, "w", []string{p.host}, "").Start()
	answers(t, m, "w")
	file := w.Path("runs")
	for i := range 5 {
		p.cut()
		out, errs, code := m.Run(brine, "salt", "--async", "--out=json", "w", "cmd.run", fmt.Sprintf("echo %d >> %s", i, file))
		if code != 0 {
			t.Fatal(code, out, errs)
		}
		eventually.Nil(t, waitLimit, "the job runs", func() error {
			if b, _ := os.ReadFile(file); strings.Count(string(b), "\n") != i+1 {
				return errors.New(string(b))
			}
			return nil
		})
	}
	if b, _ := os.ReadFile(file); string(b) != "0\n1\n2\n3\n4\n" {
		t.Errorf("ran %q", b)
	}
	mustPing(t, m, "w")
}

// TestReplayAfterRestart: a request recorded before a restart of the master has no effect after it,
// although the master has forgotten the nonce.
func TestReplayAfterRestart(t *testing.T) {
	t.Parallel()
	m := master(t, "")
	b := newBare(t, m, "w", newKey(t))
	must(t, b.signIn(nil))
	store := func(v string) []byte {
		body, err := msgpack.Marshal(b.sealed(value.DictOf("cmd", "_mine", "data", value.DictOf("x", v), "clear", true), nil), msgpack.NewSpec)
		must(t, err)
		if answer, err := b.open(b.raw(body)); err != nil || answer != true {
			t.Fatalf("mine: %v, %v", answer, err)
		}
		return body
	}
	recorded := store("old")
	store("new")

	for range 2 {
		m.Kill()
		m.Start()
		if answer, err := b.raw(recorded); err != nil || answer != "bad load" {
			t.Errorf("the replay is answered %v, %v", answer, err)
		}
		out, errs, code := m.Run(brine, "salt-run", "--out=json", "mine.get", "w", "x")
		if code != 0 || !strings.Contains(out, "new") || strings.Contains(out, "old") {
			t.Errorf("mine after the replay: %d %s %s", code, out, errs)
		}
	}

	// The minion itself signs in again and continues.
	must(t, b.signIn(nil))
	recorded = store("newer")
	if answer, err := b.raw(recorded); err != nil || answer != "bad load" {
		t.Errorf("a replay without a restart is answered %v, %v", answer, err)
	}
}
