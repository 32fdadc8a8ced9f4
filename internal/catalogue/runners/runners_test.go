package runners

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/call/fn/fntest"
	"brine/internal/call/output"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/job"
	"brine/internal/store/keystore"
	"brine/internal/store/lastrun"
)

// house holds a master's stores, with alpha and beta up and gamma down.
type house struct {
	t    *testing.T
	deps Deps
	reg  *fn.Registry
	bus  *event.Bus
	jobs *job.Store
	// running is what saltutil.running returns, by minion.
	running map[string]any
	runs    []*value.Dict // active runners
	version map[string]string
	// standing is what minions have reported about their masters.
	standing map[string]Standing
	states   *lastrun.Store
}

func newHouse(t *testing.T) *house {
	t.Helper()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	h := &house{t: t, bus: event.NewBus(0), version: map[string]string{"alpha": "3007.10+0.g3b3728bd2b", "beta": "3006.9"}}
	keys, err := keystore.Open(filepath.Join(dir, "pki"), log)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"alpha", "beta", "gamma"} {
		if err := os.WriteFile(filepath.Join(keys.Dir(), keystore.Accepted.DirName(), id), []byte("a key"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := cache.New(filepath.Join(dir, "cache"), cache.Options{MinionDataCache: true}, log)
	for _, id := range []string{"alpha", "beta"} {
		m := cache.Minion{Grains: value.DictOf("id", id, "ipv4", value.ListOf("127.0.0.1", "192.0.2.2")), Pillar: value.DictOf("motd", "hi "+id)}
		if err := c.StoreMinion(id, m); err != nil {
			t.Fatal(err)
		}
	}
	if h.jobs, err = job.Open(filepath.Join(dir, "jobs"), job.Options{JobCache: true, KeepJobsSeconds: 0}, log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.jobs.Close() })
	if h.states, err = lastrun.Open(filepath.Join(dir, "runs")); err != nil {
		t.Fatal(err)
	}
	in := &client.InProcess{Publish: h.publish, Events: h.bus, User: "root"}
	o := client.Options{Timeout: 100 * time.Millisecond, GatherJobTimeout: 100 * time.Millisecond}
	h.deps = Deps{
		Wheels: func() *value.Dict { return value.DictOf("key.accept", "Accept keys.") },
		Jobs:   JobStores{Jobs: h.jobs, Running: func() []*value.Dict { return h.runs }}, Keys: keys, Cache: c, Minions: theMinions{h}, Targets: theTargets{},
		Client: client.New(o, "master", in, in, log), Bus: h.bus,
		Console: Console{States: h.states, KeyOf: func(id string) string { return "finger of " + id }, Beacons: func(string) map[string]BeaconEvents {
			at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			return map[string]BeaconEvents{"load": {Count: 3, Last: at}, "own": {Count: 1, Last: at}}
		}},
	}
	if h.reg, err = fn.NewRegistry(nil, New(h.deps)...); err != nil {
		t.Fatal(err)
	}
	return h
}

type theMinions struct{ *house }

func (theMinions) Connected() map[string]bool                                { return map[string]bool{"beta": true, "alpha": true} }
func (theMinions) Holders() map[string][]string                              { return nil }
func (m theMinions) Standings(context.Context, []string) map[string]Standing { return m.standing }

type theTargets struct{}

func (theTargets) Nodegroups() target.Nodegroups             { return target.Nodegroups{"web": "L@alpha,beta"} }
func (theTargets) Matches(string, any, string) (bool, error) { return false, nil }

// publish stands in for a master whose minions alpha and beta answer at once.
func (h *house) publish(load *value.Dict) *value.Dict {
	m, err := target.Parse(load.Str("tgt_type"), load.At("tgt"), "")
	if err != nil {
		h.t.Error(err)
	}
	ids, missing := m.Expected([]string{"alpha", "beta", "gamma"}, nil)
	if len(ids) == 0 {
		return value.DictOf("enc", "clear", "load", value.DictOf("jid", nil, "minions", &value.List{}))
	}
	jid := "20261121050505050505"
	if load.Str("fun") == "saltutil.find_job" {
		jid = "20261121050505050506"
	}
	for _, id := range ids {
		var ret any = true
		switch load.Str("fun") {
		case "saltutil.find_job":
			ret = value.NewDict(0)
		case "saltutil.running":
			ret = h.running[id]
		case "test.version":
			ret = h.version[id]
		case "sys.doc":
			ret = value.DictOf(id+".f", "doc")
		}
		if id != "gamma" {
			h.bus.Fire("salt/job/"+jid+"/ret/"+id, value.DictOf("id", id, "jid", jid, "return", ret, "retcode", 0))
		}
	}
	return value.DictOf("enc", "clear", "load", value.DictOf("jid", jid, "minions", ids, "missing", missing))
}

// call runs a runner as salt-run would.
func (h *house) call(line string) fn.Outcome {
	h.t.Helper()
	words := shellWords(line)
	args, kwargs := fn.ParseWords(words[1:], nil)
	c := &fn.Call{ID: "vm_master",
		Config: fn.Tree{Dict: value.DictOf("interface", "127.0.0.1", "file_roots", value.DictOf("base", value.ListOf("/srv/salt")))}}
	return Run(h.t.Context(), h.reg, c, fn.Job{Fun: words[0], Arg: fn.Wire(args, kwargs)})
}

func shellWords(s string) []string {
	var out []string
	for _, m := range regexp.MustCompile(`(?:'[^']*'|[^' ])+`).FindAllString(s, -1) {
		out = append(out, strings.ReplaceAll(m, "'", ""))
	}
	return out
}

func (h *house) want(line, want string) {
	h.t.Helper()
	o := h.call(line)
	if got := value.Repr(o.Return); got != want {
		h.t.Errorf("%s\ngot  %s\nwant %s", line, got, want)
	}
}

// add stores a job of the recordings.
func (h *house) add(jid, fun string, tgt any, typ string, minions []string, load *value.Dict, returns map[string]*value.Dict) {
	h.t.Helper()
	l := value.DictOf("cmd", "publish", "tgt", tgt, "tgt_type", typ, "fun", fun, "arg", &value.List{}, "jid", jid, "user", "root")
	l.Update(load)
	if err := h.jobs.NewJob(l, minions); err != nil {
		h.t.Fatal(err)
	}
	for _, id := range slices.Sorted(maps.Keys(returns)) {
		r := value.DictOf("cmd", "_return", "id", id, "jid", jid, "fun", fun)
		r.Update(returns[id])
		if _, err := h.jobs.Return(r); err != nil {
			h.t.Fatal(err)
		}
	}
}

func ok() *value.Dict { return value.DictOf("return", true, "retcode", 0, "success", true) }

const jid1 = "20261121040156486143"

func (h *house) addPing() {
	h.add(jid1, "test.ping", value.ListOf("alpha", "beta"), "list", []string{"beta", "alpha"}, nil, map[string]*value.Dict{"alpha": ok(), "beta": ok()})
}

// recorded returns what Salt's program wrote.
func recorded(t *testing.T, name string) (line, stdout string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../../testdata/golden/cli", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "-- cmd --\nsalt-run ")
	line, rest, _ = strings.Cut(rest, "\n")
	_, rest, _ = strings.Cut(rest, "-- stdout --\n")
	stdout, _, _ = strings.Cut(rest, "-- stderr --\n")
	return line, stdout
}

func TestRecordings(t *testing.T) {
	h := newHouse(t)
	h.addPing()
	for _, name := range []string{
		"run_jobs_list_job", "run_jobs_list_job_missing", "run_jobs_print_job", "run_jobs_exit_success", "run_jobs_lookup", "run_jobs_lookup_missing",
		"run_manage_up", "run_manage_status", "run_manage_down", "run_manage_alived", "run_test_arg", "run_config", "run_event_send", "run_unknown",
	} {
		line, want := recorded(t, name)
		line = strings.ReplaceAll(line, "timeout=3 gather_job_timeout=3", "timeout=.1 gather_job_timeout=.1")
		var b strings.Builder
		if err := output.New(output.Options{}, slog.New(slog.DiscardHandler)).Print(&b, "nested", h.call(line).Return, output.Call{}); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Errorf("%s: salt-run %s\ngot\n%s\nwant\n%s", name, line, b.String(), want)
		}
	}
}

func TestJobs(t *testing.T) {
	h := newHouse(t)
	h.want("jobs.list_jobs", "{}")
	h.want("jobs.last_run", "False")
	h.addPing()
	h.add("20261121040157000000", "saltutil.find_job", value.ListOf("gamma"), "list", []string{"gamma"}, nil, nil)
	state := value.DictOf("return", value.DictOf("x", 1), "retcode", 2, "success", false, "out", "highstate")
	h.add("20261121050000000000", "state.apply", "al*", "glob", []string{"alpha"},
		value.DictOf("kwargs", value.DictOf("metadata", value.DictOf("ticket", 42))),
		map[string]*value.Dict{"alpha": state})
	list := func(jids ...string) string {
		d := h.call("jobs.list_jobs").Return.(*value.Dict)
		out := value.NewDict(0)
		for _, j := range jids {
			out.Set(j, d.At(j))
		}
		return value.Repr(out)
	}
	h.want("jobs.list_jobs search_function=test.*", list(jid1))
	h.want("jobs.list_jobs search_function='[test.ping, state.*]'", list(jid1, "20261121050000000000"))
	h.want("jobs.list_jobs search_target=gam*", list("20261121040157000000"))
	h.want("jobs.list_jobs search_metadata='{ticket: 42}'", list("20261121050000000000"))
	h.want("jobs.list_jobs start_time='2026, Nov 21 04:01:57'", list("20261121040157000000", "20261121050000000000"))
	h.want("jobs.list_jobs start_time=2026-11-21T04:01:57 end_time='2026-11-21 04:30'", list("20261121040157000000"))
	h.want("jobs.list_jobs start_time=yesterday",
		`'Exception occurred in runner jobs.list_jobs: cannot parse time "yesterday": write it as 2026-11-21 15:04 or 2026, Nov 21 15:04'`)
	h.want("jobs.list_jobs outputter=json search_function=none", "{'outputter': 'json', 'data': {}}")
	h.want("jobs.lookup_jid 20261121050000000000", "{'outputter': 'highstate', 'data': {'alpha': {'x': 1}}}")
	h.want("jobs.lookup_jid 20261121040157000000 missing=True", "{'gamma': 'Minion did not return'}")
	h.want("jobs.lookup_jid "+jid1+" returned=False", "{}")
	h.want("jobs.exit_success 20261121040157000000", "{'gamma': False}")
	h.want("jobs.list_jobs_filter 5",
		"[{'Function': 'test.ping', 'Arguments': [], 'Target': ['alpha', 'beta'], 'Target-type': 'list', 'User': 'root', 'JID': '"+jid1+
			"', 'StartTime': '2026, Nov 21 04:01:56.486143'}, {'Function': 'state.apply', 'Arguments': [], 'Target': 'al*', 'Target-type': 'glob', "+
			"'User': 'root', "+
			"'Metadata': {'ticket': 42}, 'JID': '20261121050000000000', 'StartTime': '2026, Nov 21 05:00:00.000000'}]")
	if d := h.call("jobs.last_run function=test.*").Return.(*value.Dict); d.Len() != 1 || !d.Has(jid1) {
		t.Errorf("last_run: %s", value.Repr(d))
	}
	if l := h.call("jobs.list_jobs_filter 2 filter_find_job=False").Return.(*value.List); l.Len() != 2 ||
		l.Items[0].(*value.Dict).Str("JID") != "20261121040157000000" {
		t.Errorf("list_jobs_filter: %s", value.Repr(l))
	}
}

func TestActive(t *testing.T) {
	h := newHouse(t)
	h.want("jobs.active", "{}")
	h.addPing()
	job := func(pid int) *value.Dict {
		return value.DictOf("jid", jid1, "fun", "test.sleep", "arg", value.ListOf(9), "tgt", "*", "tgt_type", "glob", "user", "admin", "ret", "", "pid", pid)
	}
	h.running = map[string]any{"alpha": value.ListOf(job(11)), "beta": value.ListOf(job(22), "rubbish")}
	h.want("jobs.active", "{'"+jid1+"': {'Function': 'test.sleep', 'Arguments': [9], 'Target': '*', 'Target-type': 'glob', 'User': 'admin', "+
		"'StartTime': '2026, Nov 21 04:01:56.486143', 'Running': [{'alpha': 11}, {'beta': 22}], 'Returned': ['alpha', 'beta']}}")
}

func TestManage(t *testing.T) {
	h := newHouse(t)
	h.want("manage.status tgt=alpha", "{'up': ['alpha'], 'down': []}")
	h.want("manage.status tgt=web tgt_type=nodegroup", "'Exception occurred in runner manage.status: Node group web unavailable in master'")
	h.want("manage.up tgt=nobody", "[]")
	h.want("manage.present subset='[beta, x]'", "['beta']")
	h.want("manage.present show_ip=True", "{'alpha': '192.0.2.2', 'beta': '192.0.2.2'}")
	h.want("manage.not_alived", "['gamma']")
	h.want("manage.not_alived subset=alpha", "[]")
	h.want("manage.versions", "{'Up to date': {'alpha': '3007.10+0.g3b3728bd2b'}, 'Minion requires update': {'beta': '3006.9'}, 'Minion offline': "+
		"{'gamma': False}, 'Master': '3007.10 (Brine "+salt.BrineVersion+")'}")
	if err := h.deps.Cache.StoreMinion("alpha", cache.Minion{Grains: value.DictOf("id", "alpha", "brine_version", "0.0.9")}); err != nil {
		t.Fatal(err)
	}
	h.want("manage.versions", "{'Up to date': {'alpha': '3007.10+0.g3b3728bd2b (Brine 0.0.9)'}, 'Minion requires update': {'beta': '3006.9'}, 'Minion offline': "+
		"{'gamma': False}, 'Master': '3007.10 (Brine "+salt.BrineVersion+")'}")
	h.version["beta"] = "3008.0rc1"
	if d := h.call("manage.versions").Return.(*value.Dict); !d.Has("Minion newer than master") {
		t.Errorf("versions: %s", value.Repr(d))
	}
	events := h.bus.Subscribe(10, "salt/key")
	h.want("manage.down removekeys=True", "['gamma']")
	ids, err := h.deps.Keys.Accepted()
	if err != nil || !slices.Equal(ids, []string{"alpha", "beta"}) {
		t.Errorf("keys after removekeys: %v, %v", ids, err)
	}
	if e := <-events.C; e.Data.Str("id") != "gamma" || e.Data.Str("act") != "delete" {
		t.Errorf("event %s", value.Repr(e.Data))
	}
}

func TestCache(t *testing.T) {
	h := newHouse(t)
	if err := h.deps.Cache.Store("minions/alpha", "mine", value.DictOf("a", 1, "b", 2)); err != nil {
		t.Fatal(err)
	}
	h.want("cache.grains", "\"\\nPassed invalid arguments: grains() missing 1 required positional argument: 'tgt'\\n\\nUsage:\\n"+
		strings.ReplaceAll(strings.Trim(value.Repr(h.doc("cache.grains")), "\"'"), "\\'", "'")+"\"")
	h.want("cache.pillar", "{'alpha': {'motd': 'hi alpha'}, 'beta': {'motd': 'hi beta'}, 'gamma': {}}")
	h.want("cache.pillar al*", "{'alpha': {'motd': 'hi alpha'}}")
	h.want("cache.pillar web tgt_type=nodegroup", "{'alpha': {'motd': 'hi alpha'}, 'beta': {'motd': 'hi beta'}}")
	h.want("cache.mine alpha", "{'alpha': {'a': 1, 'b': 2}}")
	h.want("cache.clear_mine_func alpha clear_mine_func_flag=a", "True")
	h.want("cache.mine alpha", "{'alpha': {'b': 2}}")
	h.want("cache.clear_pillar alpha", "True")
	h.want("cache.pillar alpha", "{'alpha': {}}")
	h.want("cache.grains alpha", "{'alpha': {'id': 'alpha', 'ipv4': ['127.0.0.1', '192.0.2.2']}}")
	h.want("cache.clear_grains alpha", "True")
	h.want("cache.clear_all beta", "True")
	h.want("cache.clear_all", "False")
	h.want("cache.grains '*'", "{'alpha': {}, 'beta': {}, 'gamma': {}}")
	h.want("cache.store b k '{a: 1}'", "None")
	h.want("cache.fetch b k", "{'a': 1}")
	h.want("cache.list b", "['k']")
	h.want("cache.flush b k", "True")
	h.want("cache.fetch b k", "{}")
	h.want("cache.fetch ../x k", "'Exception occurred in runner cache.fetch: \"..\" cannot name a cache bank'")
	h.want("cache.fetch b k cachedir=/etc", "\"Exception occurred in runner cache.fetch: only the master's own cache can be used: leave cachedir out\"")
}

func (h *house) doc(name string) string {
	f, err := h.reg.Lookup(name)
	if err != nil {
		h.t.Fatal(err)
	}
	return f.Doc()
}

func TestOthers(t *testing.T) {
	h := newHouse(t)
	h.want("config.get file_roots:base:0", "'/srv/salt'")
	h.want("config.get none", "''")
	h.want("config.get file_roots,base default=1 delimiter=,", "['/srv/salt']")
	h.want("doc.execution", "{'alpha.f': 'doc', 'beta.f': 'doc'}")
	h.want("doc.wheel", "{'key.accept': 'Accept keys.'}")
	h.want("error.error", "{}")
	h.want("test.raw_arg 1 __x=2", "{'args': (1,), 'kwargs': {'__x': 2}}")
	h.want("test.arg 1 __x=2 y=3", "{'args': (1,), 'kwargs': {'y': 3}}")
	h.want("event.send a/b 5", "'Exception occurred in runner event.send: the data of an event must be a map, not int'")
	for line, want := range map[string]int{"error.error Exception": 1, "no.such": 0, "test.sleep bad=1": 0, "config.get": 0, "test.metasyntactic": 0} {
		if o := h.call(line); o.Retcode != want || o.Success != (line == "test.metasyntactic") {
			t.Errorf("%s: retcode %d, success %v", line, o.Retcode, o.Success)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if o := Run(ctx, h.reg, &fn.Call{}, fn.Job{Fun: "test.sleep"}); o.Err == nil {
		t.Error("a runner goes on after its context has ended")
	}
}

func TestCatalogue(t *testing.T) { fntest.Catalogue(t, New(Deps{})) }
