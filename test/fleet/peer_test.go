package fleet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/base/salt"
	"brine/internal/daemons/master"
	"brine/internal/net/channel"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/test/eventually"
)

const grants = `
peer:
  w1: [test.*, {w1: [grains.get]}, {db*: [cmd.run]}]
  w2.*: ['.*']
peer_run:
  w1: [test.arg, jobs.list_jobs]
nodegroups: {workers: 'w1 or w2'}
`

func peerMaster(t *testing.T, tr string) *theMaster {
	t.Helper()
	v, err := yaml.Load([]byte(grants), "grants")
	if err != nil {
		t.Fatal(err)
	}
	o := v.(*value.Dict)
	return startMaster(t, "one", tr, func(cfg *master.Config) {
		cfg.Keys.AutoAccept = true
		cfg.Options.Peer, cfg.Options.PeerRun, cfg.Options.Nodegroups = o.At("peer"), o.At("peer_run"), o.Dict("nodegroups")
	})
}

func TestMinionsPublish(t *testing.T) {
	m := peerMaster(t, "tcp")
	starts := m.events("salt/minion/")
	for _, id := range []string{"w1", "w2"} {
		startMinion(t, id, "tcp", []*theMaster{m}, nil)
		m.awaitStart(starts, id)
	}
	for _, c := range []struct {
		on, fun string
		arg     []any
		want    string
	}{
		{"w1", "publish.publish", []any{"w2", "test.echo", "hi"}, "{'w2': 'hi'}"},
		{"w1", "publish.publish", []any{"w2", "test.kwarg", value.ListOf("a=b")}, "{'w2': {'a': 'b'}}"},
		{"w1", "publish.full_data", []any{"w2", "test.echo", "hi"}, "{'w2': {'ret': 'hi'}}"},
		{"w1", "publish.publish", []any{"workers", "test.echo", "hi", "nodegroup"}, "{'w1': 'hi', 'w2': 'hi'}"},
		{"w1", "publish.publish", []any{"w2", "test.echo,test.ping", value.ListOf("hi", "")}, "{'w2': {'test.echo': 'hi', 'test.ping': True}}"},
		{"w1", "publish.publish", []any{"w1", "grains.get", "role"}, "{'w1': 'web'}"},
		{"w1", "publish.publish", []any{"w*", "grains.get", "role"}, "{}"},
		{"w1", "publish.publish", []any{"w2", "cmd.run", "id"}, "{}"},
		{"w1", "publish.publish", []any{"w2", "test.ping,cmd.run", value.ListOf("", "id")}, "{}"},
		{"w1", "publish.publish", []any{"no-such", "test.ping"}, "{}"},
		{"w2", "publish.publish", []any{"w1", "cmd.run", "echo 7"}, "{'w1': '7'}"},
		{"w2", "publish.publish", []any{"w1", "publish.publish", value.ListOf("w2", "test.ping")}, "{}"},
		{"w2", "publish.publish", []any{"w1", "test.ping,publish.publish", value.ListOf("", "w2 test.ping")}, "{}"},
		{"w2", "publish.publish", []any{"I@secret:x*", "test.ping", nil, "compound"}, "{}"},
		{"w1", "publish.runner", []any{"test.arg", value.ListOf("1", "a=b")}, "{'args': [1], 'kwargs': {'a': 'b'}}"},
		{"w1", "publish.runner", []any{"manage.up"}, "{}"},
		{"w2", "publish.runner", []any{"test.arg"}, "{}"},
		{"w1", "publish.publish", []any{"w2", "test.ping", nil, "glob", "", 5, "10.9.8.7"},
			"'ERROR: cannot publish: no master \"10.9.8.7\" is connected; the option master names those there are'"},
	} {
		ret := m.command("glob", c.on, c.fun, 1, c.arg...)[c.on].At("return")
		if d, ok := ret.(*value.Dict); ok && len(c.arg) > 1 && c.arg[1] == "test.kwarg" {
			for _, k := range d.Dict("w2").Keys() {
				if strings.HasPrefix(k.(string), "__pub_") {
					d.Dict("w2").Delete(k)
				}
			}
		}
		if d, ok := ret.(*value.Dict); ok && d.Len() == 2 && d.Has("w1") {
			ret = value.DictOf("w1", d.At("w1"), "w2", d.At("w2"))
		}
		if got := value.Repr(ret); got != c.want {
			t.Errorf("%s: %s %v: %s\nwant %s", c.on, c.fun, c.arg, got, c.want)
		}
	}
}

// TestHostilePeers: minions claim to be others, and request data of others.
func TestHostilePeers(t *testing.T) {
	m := peerMaster(t, "zeromq")
	starts := m.events("salt/minion/")
	startMinion(t, "w2", "zeromq", []*theMaster{m}, nil)
	m.awaitStart(starts, "w2")
	w1, evil := signedIn(t, m, "w1"), signedIn(t, m, "evil")
	ask := func(c *channel.Client, load ...any) any {
		t.Helper()
		v, err := c.Request(t.Context(), value.DictOf(load...))
		if err != nil {
			t.Fatalf("%v: %v", load, err)
		}
		return v
	}
	pub := []any{"cmd", "minion_pub", "fun", "test.ping", "arg", value.ListOf(), "tgt", "w2", "ret", ""}
	if got := value.Repr(ask(evil, pub...)); got != "{}" {
		t.Errorf("who has no grant gets %s", got)
	}
	job, _ := ask(w1, pub...).(*value.Dict)
	jid := job.Str("jid")
	if !salt.ValidJID(jid) || value.Repr(job.At("minions")) != "['w2']" {
		t.Fatalf("published: %v", value.Repr(job))
	}
	eventually.Nil(t, eventually.Limit, "the owner gets the return", func() error {
		if d, ok := ask(w1, "cmd", "pub_ret", "jid", jid).(*value.Dict); !ok || d.Dict("w2").At("ret") != true {
			return errNotYet
		}
		return nil
	})
	other := m.publish("glob", "w2", "test.echo", "", "secret")
	for _, c := range []struct {
		why  string
		from *channel.Client
		load []any
		want string
	}{
		{"another's job", evil, []any{"cmd", "pub_ret", "jid", jid}, "{}"},
		{"the operator's job", w1, []any{"cmd", "pub_ret", "jid", other}, "''"},
		{"a path", w1, []any{"cmd", "pub_ret", "jid", "../.root_key"}, "{}"},
		{"no jid", w1, []any{"cmd", "pub_ret"}, "{}"},
		{"a map as function", w1, append([]any{"cmd", "minion_pub", "fun", value.DictOf("a", 1)}, pub[4:]...), "{}"},
		{"a list as function", w1, append([]any{"cmd", "minion_pub", "fun", value.ListOf("cmd.run")}, pub[4:]...), "{}"},
		{"a target of no kind", w1, []any{"cmd", "minion_pub", "fun", "test.ping", "arg", nil, "tgt", value.DictOf(), "tgt_type", "compound", "ret", ""},
			"{}"},
		{"no target", w1, []any{"cmd", "minion_pub", "fun", "test.ping", "arg", nil, "ret", ""}, "{}"},
		{"a runner without arguments", w1, []any{"cmd", "minion_runner", "fun", "test.arg"}, "{}"},
		{"a bad time", w1, append([]any{"cmd", "minion_publish", "tmo", "soon"}, pub[2:]...), "{}"},
		{"what the old command gives", w1, append([]any{"cmd", "minion_publish", "tmo", 5}, pub[2:]...), "{'w2': True}"},
		{"the old command without grant", evil, append([]any{"cmd", "minion_publish", "tmo", 5}, pub[2:]...), "{}"},
	} {
		if got := value.Repr(ask(c.from, c.load...)); got != c.want {
			t.Errorf("%s: %s, want %s", c.why, got, c.want)
		}
	}
	// The channel refuses an id that is not the sender's. If it did not, the permissions must still
	// be those of the sender.
	if v, err := evil.Request(t.Context(), value.DictOf(append(pub, "id", "w1")...)); err == nil && value.Repr(v) != "{}" {
		t.Errorf("evil as w1: %s", value.Repr(v))
	}
	if b, err := os.ReadFile(filepath.Join(m.cfg.CacheDir, "publish_auth", jid)); err != nil || string(b) != "w1" {
		t.Errorf("the job belongs to %q, %v", b, err)
	}
}
