package fleet

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/call/auth"
	"brine/internal/call/client"
	"brine/internal/daemons/master"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/internal/store/cache"
)

// requestPort is the port of an address.
func requestPort(t testing.TB, addr string) uint16 {
	t.Helper()
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return a.Port()
}

// runner runs a runner on the master, and returns its result in Python's notation.
func (m *theMaster) runner(c *client.Client, fun string, args ...any) string {
	m.t.Helper()
	d, err := c.Run(m.t.Context(), client.Runner{Fun: fun, Args: args}, nil, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	return value.Repr(d.At("return"))
}

// TestMatchRunner: a minion with permission learns whether another one matches a compound target,
// according to the data that the master knows for certain.
func TestMatchRunner(t *testing.T) {
	conf, err := yaml.Load([]byte("{peer_run: {bob: [match.compound_matches]}, groups: {alice_eve: 'I@name:ali*', alice: L@alice}}"), "conf")
	if err != nil {
		t.Fatal(err)
	}
	o := conf.(*value.Dict)
	m := startMaster(t, "one", "tcp", func(cfg *master.Config) {
		cfg.Keys.AutoAccept = true
		cfg.Options.PeerRun, cfg.Options.Nodegroups = o.At("peer_run"), o.Dict("groups")
	})
	starts := m.events("salt/minion/")
	for _, id := range []string{"alice", "bob", "eve"} {
		startMinion(t, id, "tcp", []*theMaster{m}, nil)
		m.awaitStart(starts, id)
	}
	store := cache.New(m.cfg.CacheDir, m.cfg.Cache, nil)
	for id, name := range map[string]string{"alice": "alice", "eve": "alice_whoops"} {
		if err := store.StoreMinion(id, cache.Minion{Grains: value.DictOf("id", id, "role", "web"), Pillar: value.DictOf("name", name)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ expr, id, want string }{
		{"alice", "alice", "{'res': 'alice'}"},
		{"ali* and not eve", "alice", "{'res': 'alice'}"},
		{"alice", "eve", "{'res': False}"},
		{"G@role:web and I@name:alice", "alice", "{'res': 'alice'}"},
		{"I@name:alice", "eve", "{'res': False}"},
		{"I@name:ali*", "alice", "{'res': False}"}, // only exact matches
		{"J@name:ali.*", "alice", "{'res': False}"},
		{"J@name:alice", "alice", "{'res': 'alice'}"},
		{"J@name:^(alice|bob)$", "alice", "{'res': False}"},
		{"G@role:we* or I@name:ali*", "alice", "{'res': 'alice'}"},
		{"G@role:we* and I@name:ali*", "alice", "{'res': False}"},
		{"G@role:we* and not I@name:alice", "alice", "{'res': False}"},
		{"E@(alice|bob) and P@role:^(web|db)$", "alice", "{'res': 'alice'}"},
		{"L@alice,bob", "bob", "{'res': 'bob'}"},
		{"L@alice,new and G@role:web", "new", "{'res': False}"}, // its data are not known
		{"N@alice", "alice", "{'res': 'alice'}"},
		{"N@alice_eve", "eve", "{'res': False}"},
		{"G@role:*", "nobody", "{'res': False}"},
		{"*", "../alice", "{'res': False}"},
		{"*", "", "{'res': False}"},
		{"(alice", "alice", "{'res': False}"},
	} {
		if got := value.Repr(m.command("glob", "bob", "publish.runner", 1, "match.compound_matches",
			value.ListOf(c.expr, c.id))["bob"].At("return")); got != c.want {
			t.Errorf("%s, %s: %s, want %s", c.expr, c.id, got, c.want)
		}
	}
	// Only the id is known of a minion without cached data.
	if _, err := store.Flush("minions/eve", ""); err != nil {
		t.Fatal(err)
	}
	for expr, want := range map[string]string{"G@role:web": "{'res': False}", "not I@name:alice": "{'res': False}", "L@eve,bob": "{'res': 'eve'}"} {
		if got := value.Repr(m.command("glob", "bob", "publish.runner", 1, "match.compound_matches",
			value.ListOf(expr, "eve"))["bob"].At("return")); got != want {
			t.Errorf("%s of a minion without data: %s, want %s", expr, got, want)
		}
	}
	if got := value.Repr(m.command("glob", "bob", "sys.list_runner_functions", 1, "match")["bob"].At("return")); got != "['match.compound_matches']" {
		t.Errorf("sys.list_runner_functions: %s", got)
	}
	if got := value.Repr(m.command("glob", "eve", "publish.runner", 1, "match.compound_matches",
		value.ListOf("alice", "alice"))["eve"].At("return")); strings.Contains(got, "alice") {
		t.Errorf("a minion without the right: %s", got)
	}
}

// TestMineReactorAndTokensByRunner: runners for the mine, the reactor and tokens.
func TestMineReactorAndTokensByRunner(t *testing.T) {
	dir := shortDir(t)
	write(t, filepath.Join(dir, "note.sls"), "note:\n  runner.test.arg:\n    - args: {saw: '{{ tag }}'}\n")
	m := startMaster(t, "one", "tcp", func(cfg *master.Config) {
		cfg.Keys.AutoAccept = true
		cfg.Auth = auth.Options{SharedSecret: "s3cret", TokenExpire: time.Hour, External: yamlDict(t, rights)}
		cfg.Reactor.Reactor, cfg.Reactor.Threads, cfg.Reactor.Queue = value.ListOf(value.DictOf("never/*", dir+"/note.sls")), 2, 100
		cfg.Jobs.RunnerReturns = true
		defaults(t, &cfg.Client)
	})
	starts := m.events("salt/minion/")
	startMinion(t, "w1", "tcp", []*theMaster{m}, nil)
	m.awaitStart(starts, "w1")
	l, _ := newLog(t, "client")
	at := client.Place{Interface: "127.0.0.1", Sockets: m.cfg.Events.Sockets(), CacheDir: m.cfg.CacheDir, User: "root", Transport: "tcp",
		RetPort: requestPort(t, m.req)}
	local, err := client.NewLocal(at, "root", l)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	c := client.New(client.Options{Timeout: 5 * time.Second, GatherJobTimeout: 5 * time.Second}, "", local, local, l)

	m.command("glob", "w1", "mine.send", 1, "test.echo", "mined")
	if got := m.runner(c, "mine.get", "*", "test.echo"); got != "{'w1': 'mined'}" {
		t.Errorf("mine.get: %s", got)
	}
	if got := m.runner(c, "mine.update", "w1"); got != "{'w1': None}" {
		t.Errorf("mine.update: %s", got)
	}

	events := m.events("salt/run/")
	if got := m.runner(c, "reactor.list"); got != "[{'never/*': '"+dir+"/note.sls'}]" {
		t.Errorf("reactor.list: %s", got)
	}
	if got := m.runner(c, "reactor.add", "my/*", dir+"/note.sls"); !strings.Contains(got, "Reactor added.") {
		t.Errorf("reactor.add: %s", got)
	}
	// noted returns the tags to which the reactor has reacted, once it has reacted to the last one.
	noted := func(last string) string {
		t.Helper()
		m.runner(c, "event.send", last)
		var tags []string
		for e := range events {
			if saw := e.Data.Dict("return").Dict("kwargs").Str("saw"); saw != "" && e.Data.Str("fun") == "runner.test.arg" {
				if tags = append(tags, saw); saw == last {
					break
				}
			}
		}
		return strings.Join(tags, " ")
	}
	if got := noted("my/first"); got != "my/first" {
		t.Errorf("the rule that was added answers %s", got)
	}
	if got := m.runner(c, "reactor.set_leader", false); got != "False" {
		t.Error(got)
	}
	m.runner(c, "event.send", "my/ignored")
	if got := m.runner(c, "reactor.set_leader", true); got != "True" {
		t.Error(got)
	}
	if got := noted("my/second"); got != "my/second" {
		t.Errorf("after a time without leadership the reactor answers %s", got)
	}
	if got := m.runner(c, "reactor.delete", "my/*"); !strings.Contains(got, "Reactor deleted.") {
		t.Error(got)
	}

	d, err := c.Run(t.Context(), client.Runner{Fun: "auth.mk_token",
		Kwargs: value.DictOf("username", "admin", "password", "s3cret", "eauth", "sharedsecret")}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	token := d.Dict("return").Str("token")
	if token == "" || value.Repr(d.At("fun_args")) != "[]" {
		t.Fatalf("auth.mk_token: %v", d)
	}
	err = filepath.WalkDir(m.cfg.CacheDir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if s := string(b); strings.Contains(s, "s3cret") || strings.Contains(s, token) && filepath.Base(path) != token {
			t.Errorf("%s holds the password or the token", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if got := m.runner(c, "auth.del_token", token); got != "True" {
		t.Error(got)
	}
	if got := m.runner(c, "auth.del_token", "../.root_key"); got != "False" {
		t.Error(got)
	}
}
