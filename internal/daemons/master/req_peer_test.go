package master

import (
	"context"
	"testing"
	"time"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

func (p *parts) peers() *peers {
	return &peers{
		ctx: p.life.context, cacheDir: p.cfg.CacheDir, user: "root", opts: p.cfg.Opts, settings: p.settings, targets: p.targets, publisher: p.publisher,
		runners: p.runners, jobs: p.jobs, bus: p.bus, background: &p.background, log: discard, rateLimitedLog: p.limited, slots: newSlots(4, 2),
	}
}

func peerJobOf(fun any, tgt string, args ...any) *value.Dict {
	return value.DictOf("fun", fun, "arg", value.ListOf(args...), "tgt", tgt, "tgt_type", "glob", "ret", "")
}

// TestPeersPublish: a minion may publish what the option peer grants it, and get
// the returns of its own jobs.
func TestPeersPublish(t *testing.T) {
	p := newParts(t, []string{"web1", "web2", "db1"}, func(c *Config) {
		c.Options.Peer = value.DictOf("web.*", value.ListOf("test.*", value.DictOf("db*", value.ListOf("cmd.*"))), "db1", value.ListOf("publish.publish"))
		c.Options.Nodegroups = value.DictOf("all", "web* or db*")
	})
	h := p.peers()
	p.data("db1", value.DictOf("os", "Debian"), value.DictOf("secret", "abc"))
	for _, c := range []struct {
		name, id string
		load     *value.Dict
		granted  bool
	}{
		{"a function that is granted", "web1", peerJobOf("test.ping", "*"), true},
		{"several functions", "web1", peerJobOf("test.ping,test.echo", "*", "", "x"), true},
		{"one of several is not granted", "web1", peerJobOf("test.ping,cmd.run", "*", "", "x"), false},
		{"granted for other minions", "web1", peerJobOf("cmd.run", "web2", "ls"), false},
		{"granted for these", "web1", peerJobOf("cmd.run", "db*", "ls"), true},
		{"another minion", "db1", peerJobOf("test.ping", "*"), false},
		{"publishing again", "db1", peerJobOf("publish.publish", "*"), false},
		{"no function", "web1", peerJobOf("", "*"), false},
		{"no target", "web1", value.DictOf("fun", "test.ping", "arg", &value.List{}, "ret", ""), false},
		{"too many functions", "web1", value.DictOf("fun", string(make([]byte, 0)), "tgt", "*"), false},
	} {
		d := answer(t, h.publish, c.id, "minion_pub", c.load)
		if (d.Str("jid") != "") != c.granted {
			t.Errorf("%s: %s", c.name, value.Repr(d))
		}
	}
	group := peerJobOf("test.ping", "all")
	group.Set("tgt_type", "nodegroup")
	if d := answer(t, h.publish, "web1", "minion_pub", group); len(d.List("minions")) != 3 {
		t.Errorf("a nodegroup: %s", value.Repr(d))
	}
	for typ, tgt := range map[string]string{"pillar": "secret:a*", "compound": "I@secret:a*"} {
		load := peerJobOf("test.ping", tgt)
		load.Set("tgt_type", typ)
		if d := answer(t, h.publish, "web1", "minion_pub", load); d.Has("jid") {
			t.Errorf("a pattern of another minion's pillar, %s: %s", typ, value.Repr(d))
		}
	}
	jid := answer(t, h.publish, "web1", "minion_pub", peerJobOf("test.ping", "db1")).Str("jid")
	if _, err := p.store.Return(value.DictOf("jid", jid, "id", "db1", "return", "pong", "out", "txt")); err != nil {
		t.Fatal(err)
	}
	if d := answer(t, h.collect, "web1", "pub_ret", value.DictOf("jid", jid)); d.Dict("db1").Str("ret") != "pong" || d.Dict("db1").Str("out") != "txt" {
		t.Errorf("the returns are %s", value.Repr(d))
	}
	if d := answer(t, h.collect, "web2", "pub_ret", value.DictOf("jid", jid)); d.Len() != 0 {
		t.Errorf("another minion gets the returns %s", value.Repr(d))
	}
	if d := answer(t, h.collect, "web1", "pub_ret", value.DictOf("jid", "../../x")); d.Len() != 0 {
		t.Errorf("a bad job id: %s", value.Repr(d))
	}
	if v := ask(t, h.collect, "web1", "pub_ret", value.DictOf("jid", "20260101000000000000")); v != "" {
		t.Errorf("an unknown job: %s", value.Repr(v))
	}
	h.forget(time.Now(), time.Hour)
	if v, _ := ask(t, h.collect, "web1", "pub_ret", value.DictOf("jid", jid)).(*value.Dict); v.Len() == 0 {
		t.Error("a new job is forgotten")
	}
	h.forget(time.Now().Add(2*time.Hour), time.Hour)
	if v := ask(t, h.collect, "web1", "pub_ret", value.DictOf("jid", jid)); v != "" {
		t.Errorf("an old job is not forgotten: %s", value.Repr(v))
	}
}

// TestPeersWait: a waiting minion gets the returns at the timeout, or as soon
// as all minions have returned.
func TestPeersWait(t *testing.T) {
	p := newParts(t, []string{"web1", "db1"}, func(c *Config) { c.Options.Peer = value.DictOf(".*", value.ListOf("test.*")) })
	p.begin()
	h := p.peers()
	returned := p.bus.Subscribe(10, "salt/job/")
	defer returned.Close()
	go func() {
		for e := range returned.C {
			if jid := e.Data.Str("jid"); e.Data.Str("tgt") == "db1" {
				p.store.Return(value.DictOf("jid", jid, "id", "db1", "return", "pong"))
				p.bus.Fire("salt/job/"+jid+"/ret/db1", value.DictOf("jid", jid, "id", "db1"))
			}
		}
	}()
	load := peerJobOf("test.ping", "db1")
	load.Set("timeout", int64(60))
	if d := answer(t, h.long(h.publishAndWait), "web1", "minion_publish", load.Clone()); d.Str("db1") != "pong" {
		t.Errorf("the answer is %s", value.Repr(d))
	}
	load.Set("form", "full")
	if d := answer(t, h.publishAndWait, "web1", "minion_publish", load.Clone()); d.Dict("db1").Str("ret") != "pong" || d.Str("__jid__") == "" {
		t.Errorf("the full answer is %s", value.Repr(d))
	}
	none := peerJobOf("test.ping", "web1")
	none.Set("tmo", int64(0))
	if d := answer(t, h.publishAndWait, "web1", "minion_publish", none); d.Len() != 0 {
		t.Errorf("without returns: %s", value.Repr(d))
	}
	none.Set("timeout", "text")
	if d := answer(t, h.publishAndWait, "web1", "minion_publish", none); d.Len() != 0 {
		t.Errorf("a bad timeout: %s", value.Repr(d))
	}
	p.background.Wait()
}

type echoArgs struct {
	Text string `salt:"text" doc:"what to return"`
}

// echoRunner is a registry with one runner.
func echoRunner(t *testing.T) *fn.Registry {
	t.Helper()
	r, err := fn.NewRegistry(nil, fn.Module{Name: "test", Doc: `Test.`, Funcs: []fn.Func{
		fn.Of("echo", func(_ context.Context, _ *fn.Call, a echoArgs) (string, error) { return a.Text, nil }, `Return a text.`),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPeersRun: a minion may run the runners that peer_run grants it.
func TestPeersRun(t *testing.T) {
	p := newParts(t, []string{"web1"}, func(c *Config) {
		c.Options.PeerRun = value.DictOf("web1", value.ListOf("test.*", value.DictOf("*", value.ListOf("other.*"))))
	})
	p.begin()
	p.runners.registry = echoRunner(t)
	h := p.peers()
	load := value.DictOf("fun", "test.echo", "arg", value.ListOf("5"), "no_parse", &value.List{})
	if v := ask(t, h.runner, "web1", "minion_runner", load); v != "5" {
		t.Errorf("the answer is %s", value.Repr(v))
	}
	for _, fun := range []string{"other.x", "nosuch"} {
		if d := answer(t, h.runner, "web1", "minion_runner", value.DictOf("fun", fun, "arg", &value.List{})); d.Len() != 0 {
			t.Errorf("%s: %s", fun, value.Repr(d))
		}
	}
	if d := answer(t, h.runner, "web2", "minion_runner", load); d.Len() != 0 {
		t.Errorf("another minion: %s", value.Repr(d))
	}
}

// TestRunsOfUsers: a runner request is answered at once with its tag, and the
// result is fired and stored.
func TestRunsOfUsers(t *testing.T) {
	p := newParts(t, nil, nil)
	p.begin()
	p.runners.registry = echoRunner(t)
	r := &runs{access: p.access, recorder: p.recorder, calls: p.runners, bus: p.bus, background: &p.background, opts: p.cfg.Opts, rateLimitedLog: p.limited}
	load := value.DictOf("fun", "test.echo", "kwarg", value.DictOf("text", "hello"), "key", "root's key", "user", "root")
	d := answer(t, r.start, "", "runner", load)
	p.background.Wait()
	jid := d.Str("jid")
	var done *value.Dict
	for len(p.events.C) > 0 {
		if e := <-p.events.C; e.Tag == d.Str("tag")+"/ret" {
			done = e.Data
		}
	}
	if done.Str("return") != "hello" || !done.Bool("success") || done.Str("fun") != "runner.test.echo" {
		t.Errorf("the end is %s", value.Repr(done))
	}
	if stored, err := p.jobs.Returns(jid); err != nil || stored["boss"].Dict("return").Str("return") != "hello" {
		t.Errorf("stored: %v, %v", stored, err)
	}
	if len(p.runners.running.list()) != 0 {
		t.Error("a runner that has ended is in the list")
	}
	load.Set("key", "x")
	if d := answer(t, r.start, "", "runner", load); !d.Has("error") {
		t.Errorf("a wrong key: %s", value.Repr(d))
	}
	load.Set("key", "root's key")
	load.Set("cluster", true)
	d = answer(t, r.start, "", "runner", load)
	if d.Dict("error").Str("name") != "SaltMasterError" {
		t.Errorf("without a cluster: %s", value.Repr(d))
	}
}
