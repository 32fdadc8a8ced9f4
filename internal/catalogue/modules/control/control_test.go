package control

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/call/fn/fntest"
	"brine/internal/catalogue/modules/core"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/py/value"
)

// daemon stands in for a minion and records the requests to it.
type daemon struct {
	jobs       []RunningJob
	cached     map[string]*value.Dict
	asked      []string
	fail       error
	answer     any
	masterless bool
	block      bool // Refresh waits until the context ends
}

func (d *daemon) note(parts ...string) error {
	d.asked = append(d.asked, strings.Join(parts, " "))
	return d.fail
}

func (d *daemon) Running() []RunningJob { return slices.Clone(d.jobs) }

func (d *daemon) Signal(jid string, sig syscall.Signal) error {
	return d.note("signal", jid, value.Str(int64(sig)))
}

func (d *daemon) Cached(jid string) (*value.Dict, bool) { r, ok := d.cached[jid]; return r, ok }

func (d *daemon) Refresh(ctx context.Context, what string, clean, wait bool) error {
	if d.block && wait {
		<-ctx.Done()
		return ctx.Err()
	}
	return d.note("refresh", what, value.Str(clean), value.Str(wait))
}

func (d *daemon) Regenerate(context.Context) error { return d.note("keys") }

func (d *daemon) Request(_ context.Context, load *value.Dict) (any, error) {
	return d.answer, d.note("request", value.Repr(load))
}

func (d *daemon) Send(_ context.Context, load *value.Dict) error {
	return d.note("send", value.Repr(load))
}

func (d *daemon) Fire(_ context.Context, tag string, data *value.Dict) error {
	return d.note("fire", tag, value.Repr(data))
}

// choice picks a daemon as the only master, or none.
type choice struct{ d *daemon }

func (c choice) Pick(_ context.Context, host string) (Asker, error) {
	if c.d.masterless {
		return nil, ErrMasterless
	}
	return c.d, c.d.note("pick", host)
}

// localMaster is a daemon as the master on this machine.
type localMaster struct{ *daemon }

func (l localMaster) Run(_ context.Context, fun string, args []any, kwargs *value.Dict, jid string) (*value.Dict, error) {
	d, _ := l.answer.(*value.Dict)
	return d, l.note("run", fun, value.Repr(value.ListOf(args...)), value.Repr(kwargs), jid)
}

func (l localMaster) Wheel(_ context.Context, fun string, args []any, kwargs *value.Dict) (*value.Dict, error) {
	d, _ := l.answer.(*value.Dict)
	return d, l.note("wheel", fun, value.Repr(value.ListOf(args...)), value.Repr(kwargs))
}

func (l localMaster) Command(_ context.Context, o Order) iter.Seq2[*value.Dict, error] {
	return func(yield func(*value.Dict, error) bool) {
		words := []string{"command", value.Repr(o.Target), o.Type, value.Repr(o.Fun), value.Repr(value.ListOf(o.Arg...)), value.Repr(o.Kwargs), o.Ret,
			o.Timeout.String()}
		if o.Batch != "" {
			words = append(words, "batch", o.Batch)
		}
		if o.Subset != 0 {
			words = append(words, "subset", strconv.Itoa(o.Subset))
		}
		err := l.note(words...)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, id := range []string{"w1", "w2"} {
			if !yield(value.DictOf(id, value.DictOf("ret", true)), nil) {
				return
			}
		}
	}
}

func modules(d *daemon) []fn.Module {
	return []fn.Module{Saltutil(Deps{Jobs: d, Refresh: d, Keys: d, Masters: d, Local: localMaster{d}}), Event(d, d), Mine(d), Publish(choice{d})}
}

func registry(t *testing.T, d *daemon) *fn.Registry {
	t.Helper()
	r, err := fn.NewRegistry(nil, append(core.Modules(), modules(d)...)...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCatalogue(t *testing.T) { fntest.Catalogue(t, modules(&daemon{})) }

const table, signatures = "testdata/jobs.json", "testdata/signatures.json"

func TestSignatures(t *testing.T) { stocktest.Signatures(t, signatures, modules(&daemon{}), nil) }

func TestLikeSalt(t *testing.T) {
	opts := stocktest.Options(t, table)
	opts.Set("file_client", "local")
	opts.Set("cachedir", t.TempDir())
	stocktest.Compare(t, table, registry(t, &daemon{}), func() *fn.Call { return &fn.Call{Config: fn.Tree{Dict: opts}} })
}

func TestRecordingIsTrue(t *testing.T) {
	stocktest.Verify(t, signatures)
	stocktest.Verify(t, table)
}

// check runs a job and compares its return and the recorded requests.
func check(t *testing.T, d *daemon, c *fn.Call, fun string, arg []any, want string, asked ...string) {
	t.Helper()
	d.asked = nil
	c.ID = "alpha"
	o := registry(t, d).Run(t.Context(), c, fn.Job{Fun: fun, Arg: arg, Pub: value.DictOf("jid", c.JID)})
	if got := value.Str(o.Return); got != want {
		t.Errorf("%s %v: got %s\nwant %s", fun, arg, got, want)
	}
	if !slices.Equal(d.asked, asked) {
		t.Errorf("%s %v: asked for %q\nwant %q", fun, arg, d.asked, asked)
	}
}

func two() *daemon {
	return &daemon{jobs: []RunningJob{
		{JID: "3", Fun: "saltutil.running", PID: 7, Load: value.DictOf("jid", "3", "fun", "saltutil.running")},
		{JID: "2", Fun: value.ListOf("a.b", "state.apply"), PID: 7, Load: value.DictOf("jid", "2", "fun", value.ListOf("a.b", "state.apply"))},
		{JID: "1", Fun: "test.sleep", PID: 7, Load: value.DictOf("jid", "1", "fun", "test.sleep", "arg", value.ListOf(9))},
	}}
}

func TestJobs(t *testing.T) {
	const (
		first  = "{'pid': 7, 'jid': '1', 'fun': 'test.sleep', 'arg': [9]}"
		second = "{'pid': 7, 'jid': '2', 'fun': ['a.b', 'state.apply']}"
	)
	d := two()
	call := func() *fn.Call { return &fn.Call{JID: "3"} }
	check(t, d, call(), "saltutil.running", nil, "["+first+", "+second+"]")
	check(t, d, call(), "saltutil.find_job", []any{"1"}, first)
	check(t, d, call(), "saltutil.find_job", []any{"3"}, "{}")
	check(t, d, call(), "saltutil.is_running", []any{"test.*"}, "["+first+"]")
	check(t, d, call(), "saltutil.is_running", []any{"state.*"}, "["+second+"]")
	check(t, d, call(), "saltutil.term_job", []any{"1"}, "Signal 15 sent to job 1 at pid 7", "signal 1 15")
	check(t, d, call(), "saltutil.kill_job", []any{"1"}, "Signal 9 sent to job 1 at pid 7", "signal 1 9")
	check(t, d, call(), "saltutil.signal_job", []any{"2", 10}, "Signal 10 sent to job 2 at pid 7", "signal 2 10")
	check(t, d, call(), "saltutil.signal_job", []any{"1", 0}, "ERROR executing 'saltutil.signal_job': 0 is not the number of a signal")
	check(t, d, call(), "saltutil.term_job", []any{"3"}, "") // never the calling job
	check(t, d, call(), "saltutil.term_all_jobs", nil, "['Signal 15 sent to job 1 at pid 7', 'Signal 15 sent to job 2 at pid 7']", "signal 1 15",
		"signal 2 15")
	d.fail = salt.Errorf(salt.NotFound, "gone")
	check(t, d, call(), "saltutil.term_job", []any{"1"}, "Job 1 was not running and job data has been cleaned up", "signal 1 15")
	d.fail = errors.New("not permitted")
	check(t, d, call(), "saltutil.kill_job", []any{"1"}, "ERROR: cannot signal job 1: not permitted", "signal 1 9")
}

func TestCachedJob(t *testing.T) {
	d := &daemon{cached: map[string]*value.Dict{"1": value.DictOf("return", true)}}
	keeps := &fn.Call{Config: fn.Tree{Dict: value.DictOf("cache_jobs", true, "cachedir", "/c")}}
	check(t, d, keeps, "saltutil.find_cached_job", []any{"1"}, "{'return': True}")
	check(t, d, keeps, "saltutil.find_cached_job", []any{"2"}, "Local jobs cache directory /c/minion_jobs/2 not found")
}

func TestRefresh(t *testing.T) {
	d := &daemon{}
	for _, tt := range []struct {
		fun   string
		arg   []any
		want  string
		asked string
	}{
		{"saltutil.refresh_pillar", nil, "True", "refresh pillar True False"},
		{"saltutil.pillar_refresh", []any{"clean_cache=false", "wait=true"}, "True", "refresh pillar False True"},
		{"saltutil.refresh_grains", nil, "True", "refresh pillar False False"},
		{"saltutil.refresh_grains", []any{"refresh_pillar=false"}, "True", "refresh modules False False"},
		{"saltutil.refresh_grains", []any{"clean_pillar_cache=true"}, "True", "refresh pillar True False"},
		{"saltutil.refresh_modules", nil, "True", "refresh modules False False"},
		{"saltutil.refresh_modules", []any{"async=false"}, "True", "refresh modules False True"},
		{"saltutil.refresh_beacons", nil, "True", "refresh beacons False False"},
		{"saltutil.refresh_matchers", nil, "True", "refresh matchers False False"},
		{"saltutil.sync_modules", nil, "[]", "refresh modules False False"},
		{"saltutil.sync_grains", []any{"clean_pillar_cache=true"}, "[]", "refresh pillar True False"},
	} {
		check(t, d, &fn.Call{}, tt.fun, tt.arg, tt.want, tt.asked)
	}
	o := registry(t, d).Run(t.Context(), &fn.Call{}, fn.Job{Fun: "saltutil.sync_all", Arg: []any{"refresh=false"}})
	if all, ok := o.Return.(*value.Dict); !ok || all.Len() != 17 || all.Has("outputters") {
		t.Errorf("sync_all: %+v", o)
	}
	d.fail = errors.New("no master")
	check(t, d, &fn.Call{}, "saltutil.refresh_pillar", nil, "ERROR: cannot refresh the pillar: no master", "refresh pillar True False")
}

// TestSync calls the sync functions on a minion without a master.
func TestSync(t *testing.T) {
	d, alone := &daemon{}, &fn.Call{Config: fn.Tree{Dict: value.DictOf("file_client", "local")}}
	check(t, d, &fn.Call{}, "saltutil.sync_tops", nil, "ERROR: Master top modules can only be synced to masterless minions")
	check(t, d, &fn.Call{}, "saltutil.sync_pillar", nil, "ERROR: Pillar modules can only be synced to masterless minions")
	check(t, d, &fn.Call{}, "saltutil.sync_wrapper", nil, "ERROR: Wrapper modules can only be synced to masterless minions")
	check(t, d, alone, "saltutil.sync_tops", nil, "[]")
	check(t, d, alone, "saltutil.sync_pillar", []any{"clean_pillar_cache=true"}, "[]", "refresh pillar True False")
	check(t, d, alone, "saltutil.sync_wrapper", []any{"refresh=false"}, "[]")
	o := registry(t, d).Run(t.Context(), alone, fn.Job{Fun: "saltutil.sync_all", Arg: []any{"refresh=false"}})
	all, _ := o.Return.(*value.Dict)
	if keys := all.Keys(); len(keys) != 20 || keys[0] != "tops" || keys[1] != "clouds" || keys[19] != "wrapper" {
		t.Errorf("sync_all: %+v", keys)
	}
}

func TestLocalMaster(t *testing.T) {
	d := &daemon{answer: value.DictOf("fun", "runner.test.arg", "return", "x", "success", true)}
	check(t, d, &fn.Call{}, "saltutil.runner", []any{"test.arg", "arg=[1, a]", "kwarg={k: v}", "z=2"}, "x", "run test.arg [1, 'a'] {'k': 'v', 'z': 2} ")
	check(t, d, &fn.Call{}, "saltutil.runner", []any{"test.arg", "full_return=true", "saltenv=dev", "jid='7'"},
		"{'fun': 'runner.test.arg', 'return': 'x', 'success': True}", "run test.arg [] {'saltenv': 'dev'} 7")
	check(t, d, &fn.Call{}, "saltutil.cmd", []any{"w*", "test.echo", "arg=[x]", "kwarg={a: 1}", "timeout=3"}, "{'w1': {'ret': True}, 'w2': {'ret': True}}",
		"command 'w*' glob 'test.echo' ['x'] {'a': 1}  3s")
	check(t, d, &fn.Call{}, "saltutil.cmd_iter", []any{value.ListOf("w1"), "test.ping", "tgt_type=list"}, "[{'w1': {'ret': True}}, {'w2': {'ret': True}}]",
		"command ['w1'] list 'test.ping' [] {}  0s")
	check(t, d, &fn.Call{}, "saltutil.cmd", []any{"*", "test.ping", "ssh=true"}, "ERROR: there is no salt-ssh yet: leave ssh out")
	check(t, d, &fn.Call{}, "saltutil.cmd", []any{"*", "test.ping", "batches=1"},
		"ERROR: saltutil.cmd does not know the argument 'batches'; arguments of the function go into kwarg")
	check(t, d, &fn.Call{}, "saltutil.cmd", []any{"*", "test.ping", "batch=10%", "subset=3"}, "{'w1': {'ret': True}, 'w2': {'ret': True}}",
		"command '*' glob 'test.ping' [] {}  0s batch 10%")
	check(t, d, &fn.Call{}, "saltutil.cmd_iter", []any{"*", "test.ping", "subset=1", "batch=false"}, "[{'w1': {'ret': True}}, {'w2': {'ret': True}}]",
		"command '*' glob 'test.ping' [] {}  0s subset 1")
	check(t, d, &fn.Call{}, "saltutil.wheel", []any{"key.accept", "w1", "include_denied=true"}, "{'fun': 'runner.test.arg', 'return': 'x', 'success': True}",
		"wheel key.accept ['w1'] {'include_denied': True}")
	d.fail = errors.New("refused")
	const none = "ERROR: no master on this machine could be asked, and this function needs one: refused"
	check(t, d, &fn.Call{}, "saltutil.runner", []any{"test.arg"}, none, "run test.arg [] {} ")
	check(t, d, &fn.Call{}, "saltutil.wheel", []any{"key.list_all"}, none, "wheel key.list_all [] {}")
	check(t, d, &fn.Call{}, "saltutil.cmd", []any{"*", "f"}, none, "command '*' glob 'f' [] {}  0s")
	check(t, d, &fn.Call{}, "saltutil.cmd_iter", []any{"*", "f"}, none, "command '*' glob 'f' [] {}  0s")
	d.fail = salt.Errorf(salt.Invalid, "batch must be a number")
	check(t, d, &fn.Call{}, "saltutil.cmd", []any{"*", "f"}, "ERROR: batch must be a number", "command '*' glob 'f' [] {}  0s")
}

func TestRefreshPillarWaitsNoLonger(t *testing.T) {
	check(t, &daemon{block: true}, &fn.Call{}, "saltutil.refresh_pillar", []any{"wait=true", "timeout=0.01"}, "True")
}

func TestClearCache(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "kept")
	for _, f := range []string{filepath.Join(deep, "f"), outside} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	check(t, &daemon{}, &fn.Call{Config: fn.Tree{Dict: value.DictOf("cachedir", dir)}}, "saltutil.clear_cache", nil, "True")
	if _, err := os.Stat(filepath.Join(deep, "f")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
	if _, err := os.Stat(deep); err != nil {
		t.Errorf("the directory is gone: %v", err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("a file outside the cache is gone: %v", err)
	}
	for _, bad := range []any{nil, "", "relative", "/", "//.."} {
		o := registry(t, &daemon{}).Run(t.Context(), &fn.Call{Config: fn.Tree{Dict: value.DictOf("cachedir", bad)}}, fn.Job{Fun: "saltutil.clear_cache"})
		if o.Success {
			t.Errorf("cachedir %v was cleared", bad)
		}
	}
}

func TestClearJobCache(t *testing.T) {
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{"old": 25 * time.Hour, "new": 23 * time.Hour} {
		p := filepath.Join(dir, "minion_jobs", name)
		if err := os.MkdirAll(p, 0o700); err != nil {
			t.Fatal(err)
		}
		when := time.Now().Add(-age)
		if err := os.Chtimes(p, when, when); err != nil {
			t.Fatal(err)
		}
	}
	check(t, &daemon{}, &fn.Call{Config: fn.Tree{Dict: value.DictOf("cachedir", dir)}}, "saltutil.clear_job_cache", nil, "True")
	left, err := os.ReadDir(filepath.Join(dir, "minion_jobs"))
	if err != nil || len(left) != 1 || left[0].Name() != "new" {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestKeys(t *testing.T) {
	d := &daemon{}
	check(t, d, &fn.Call{}, "saltutil.regen_keys", nil, "None", "keys")
	check(t, d, &fn.Call{}, "saltutil.revoke_auth", nil, "True", "send {'cmd': 'revoke_auth', 'id': 'alpha', 'preserve_minion_cache': False}")
	check(t, d, &fn.Call{}, "saltutil.mmodule", []any{"base", "test.echo", "x"}, "x")
	d.fail = errors.New("no master")
	check(t, d, &fn.Call{}, "saltutil.regen_keys", nil, "ERROR: cannot make new keys: no master", "keys")
	check(t, d, &fn.Call{}, "saltutil.revoke_auth", []any{true}, "False", "send {'cmd': 'revoke_auth', 'id': 'alpha', 'preserve_minion_cache': True}")
}

func TestEvent(t *testing.T) {
	d := &daemon{}
	call := func(opts ...any) *fn.Call {
		return &fn.Call{JID: "5", Config: fn.Tree{Dict: value.DictOf(opts...)}, Grains: fn.Tree{Dict: value.DictOf("os", "Debian", "x", 1)},
			Pillar: fn.Tree{Dict: value.DictOf("p", 2)}}
	}
	data := value.DictOf("a", 1)
	check(t, d, call(), "event.fire", []any{data, "my/tag"}, "True", "fire my/tag {'a': 1}")
	check(t, d, call(), "event.fire", []any{"text", "my/tag"}, "False")
	check(t, d, call(), "event.fire_master", []any{data, "my/tag"}, "True", "send {'id': 'alpha', 'tag': 'my/tag', 'data': {'a': 1}, 'cmd': '_minion_event'}")
	check(t, d, call(), "event.fire_master", []any{data, "my/tag", "preload={id: other}"}, "True",
		"send {'id': 'other', 'tag': 'my/tag', 'data': {'a': 1}, 'cmd': '_minion_event'}")
	check(t, d, call("local", true), "event.fire_master", []any{data, "my/tag"}, "False")
	check(t, d, call(), "event.send", []any{"my/tag", data, "with_grains=[os, none]", "with_pillar=true", "with_env_opts=true", "k=v"}, "True",
		"send {'id': 'alpha', 'tag': 'my/tag', 'data': {'grains': {'os': 'Debian'}, 'pillar': {'p': 2}, 'saltenv': 'base', 'pillarenv': None, 'k': "+
			"'v', '__pub_jid': '5', 'a': 1}, 'cmd': '_minion_event'}")
	check(t, d, call("file_client", "local"), "event.send", []any{"my/tag"}, "True", "fire my/tag {'__pub_jid': '5'}")
	check(t, d, call("file_client", "local", "use_master_when_local", true), "event.send", []any{"t"}, "True",
		"send {'id': 'alpha', 'tag': 't', 'data': {'__pub_jid': '5'}, 'cmd': '_minion_event'}")
	d.fail = errors.New("no master")
	check(t, d, call(), "event.fire", []any{data, "t"}, "False", "fire t {'a': 1}")
	check(t, d, call(), "event.fire_master", []any{data, "t"}, "False", "send {'id': 'alpha', 'tag': 't', 'data': {'a': 1}, 'cmd': '_minion_event'}")
}

// The messages have the same keys as those that real minions sent.
func TestMine(t *testing.T) {
	d := &daemon{answer: value.DictOf("alpha", 1, "beta", 2)}
	call := func() *fn.Call {
		return &fn.Call{Config: fn.Tree{Dict: value.DictOf("mine_functions",
			value.DictOf("test.ping", value.ListOf(), "e", value.ListOf(value.DictOf("mine_function", "test.echo"), "x"), "no.such", nil))}}
	}
	check(t, d, call(), "mine.get", []any{"*", "test.ping"}, "{'alpha': 1, 'beta': 2}",
		"request {'cmd': '_mine_get', 'id': 'alpha', 'tgt': '*', 'fun': 'test.ping', 'tgt_type': 'glob'}")
	check(t, d, call(), "mine.get", []any{"*", "test.ping", "list", true}, "{'beta': 2}",
		"request {'cmd': '_mine_get', 'id': 'alpha', 'tgt': '*', 'fun': 'test.ping', 'tgt_type': 'list'}")
	check(t, d, call(), "mine.send", []any{"test.ping"}, "True", "send {'cmd': '_mine', 'data': {'test.ping': True}, 'id': 'alpha', 'clear': False}")
	check(t, d, call(), "mine.send", []any{"me", "hello", "mine_function=test.echo", "allow_tgt=web*", "allow_tgt_type=glob"}, "True",
		"send {'cmd': '_mine', 'data': {'me': {'__data__': 'hello', '__saltmine_acl__': 1, 'allow_tgt': 'web*', 'allow_tgt_type': 'glob'}}, 'id': "+
			"'alpha', 'clear': False}")
	check(t, d, call(), "mine.send", []any{"no.such"}, "False")
	check(t, d, call(), "mine.update", []any{"clear=true"}, "True",
		"send {'cmd': '_mine', 'data': {'test.ping': True, 'e': 'x'}, 'id': 'alpha', 'clear': True}")
	check(t, d, call(), "mine.update", []any{"mine_functions=[test.true]"}, "True",
		"send {'cmd': '_mine', 'data': {'test.true': True}, 'id': 'alpha', 'clear': False}")
	check(t, d, &fn.Call{}, "mine.update", nil, "None")
	check(t, d, call(), "mine.delete", []any{"test.ping"}, "True", "send {'cmd': '_mine_delete', 'id': 'alpha', 'fun': 'test.ping'}")
	check(t, d, call(), "mine.flush", nil, "True", "send {'cmd': '_mine_flush', 'id': 'alpha'}")
	d.fail = errors.New("no master")
	check(t, d, call(), "mine.flush", nil, "ERROR: no master takes the mine's data: no master", "send {'cmd': '_mine_flush', 'id': 'alpha'}")
	masterless := &fn.Call{Config: fn.Tree{Dict: value.DictOf("file_client", "local")}}
	check(t, d, masterless, "mine.flush", nil, "ERROR: the mine is kept by a master, and this minion works without one (file_client is local)")
}

func TestPublish(t *testing.T) {
	const ask = "request {'cmd': 'minion_pub', 'fun': 'test.ping', 'arg': [], 'tgt': 'w*', 'tgt_type': 'glob', 'ret': '', 'tmo': 0, 'form': 'clean', " +
		"'id': 'alpha', 'no_parse': []}"
	d := &daemon{answer: value.DictOf("jid", "7", "minions", value.ListOf(), "w1", value.DictOf("ret", true))}
	check(t, d, &fn.Call{}, "publish.publish", []any{"w*", "test.ping", "timeout=0"}, "{'w1': True}",
		"pick ", ask, "request {'cmd': 'pub_ret', 'id': 'alpha', 'jid': '7'}")
	check(t, &daemon{answer: ""}, &fn.Call{}, "publish.publish", []any{"w*", "test.ping", "timeout=0", "via_master=m1"}, "{}", "pick m1", ask)
	check(t, d, &fn.Call{}, "publish.publish", []any{"w*", "publish.publish"}, "{}")
	check(t, d, &fn.Call{}, "publish.publish", []any{"w*", "test.ping", "timeout=soon"},
		"ERROR executing 'publish.publish': timeout must be a number of seconds, not 'soon'")
	check(t, &daemon{answer: 5}, &fn.Call{}, "publish.runner", []any{"manage.up", "1"}, "5",
		"pick ", "request {'cmd': 'minion_runner', 'fun': 'manage.up', 'arg': [1], 'tmo': 5, 'id': 'alpha', 'no_parse': []}")
	none := &daemon{masterless: true}
	check(t, none, &fn.Call{}, "publish.runner", []any{"manage.up"}, "No access to master. If using salt-call with --local, please remove.")
	check(t, none, &fn.Call{}, "publish.full_data", []any{"*", "test.ping"}, "{}")
	v, err := late(salt.Errorf(salt.Timeout, "slow"), "test.ping", "publish")
	if v != "'test.ping' publish timed out" || err != nil {
		t.Errorf("%v, %v", v, err)
	}
}
