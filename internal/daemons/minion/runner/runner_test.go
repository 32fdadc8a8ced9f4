package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"brine/internal/base/field"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/address"
	"brine/internal/daemons/minion/background"
	"brine/internal/daemons/minion/calls"
	"brine/internal/daemons/minion/grains"
	"brine/internal/daemons/minion/jobs"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/daemons/minion/returners"
	"brine/internal/net/channel"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/net/transport/zeromq"
	"brine/internal/py/value"
	"brine/internal/store/returner"
	"brine/test/eventually"
)

var testKey = sync.OnceValues(func() (*crypt.PrivateKey, error) { return crypt.GenerateKey(2048) })

type noArgs struct{}

type echoArgs struct {
	Text string `salt:"text" doc:"what to return"`
}

// floor is a runner with its own functions and two masters that do not exist.
type floor struct {
	*Runner
	a, b    *link.Link
	running atomic.Int32
	most    atomic.Int32
	proceed chan struct{}
}

func newFloor(t *testing.T, change func(*Config)) *floor {
	t.Helper()
	f := &floor{proceed: make(chan struct{})}
	log := slog.New(slog.DiscardHandler)
	var o outbox.Options
	if err := field.Defaults(&o); err != nil {
		t.Fatal(err)
	}
	links := &link.Set{ID: "w1"}
	group := background.New(t.Context())
	box := outbox.New(outbox.Config{Options: o, ID: "w1", Dir: t.TempDir(), Fire: links.Fire, Log: log})
	g := grains.New(grains.Config{ID: "w1", Collect: func(context.Context) *value.Dict { return value.DictOf("os", "x") }, Background: group})
	g.Collect(t.Context())
	key, err := testKey()
	if err != nil {
		t.Fatal(err)
	}
	lc := &link.Config{ID: "w1", Transport: zeromq.New(log), Opts: value.NewDict(0), Grains: g.Grains, NamesMaster: g.NamesMaster, Outbox: box, Links: links,
		Log: log}
	sign := handshake.Minion{ID: "w1", Key: key, Trust: channel.NewFileTrust(filepath.Join(t.TempDir(), "master.pub"))}
	for _, options := range []any{&lc.Options, &sign.Options} {
		if err := field.Defaults(options); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		c, err := link.New(lc, address.Master{Text: name, Host: name, Port: 4506}, &sign)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Client.Close)
		links.Add(c)
	}
	f.a, f.b = links.All()[0], links.All()[1]
	funcs, err := fn.NewRegistry(g.Reader(nil), fn.Module{Name: "t", Doc: "Tests.", Funcs: []fn.Func{
		fn.Of("echo", func(_ context.Context, _ *fn.Call, a echoArgs) (string, error) { return a.Text, nil }, "Return a string."),
		fn.Of("fail", func(context.Context, *fn.Call, noArgs) (string, error) { return "", errors.New("no") }, "Fail."),
		fn.Of("wait", func(ctx context.Context, _ *fn.Call, _ noArgs) (string, error) {
			n := f.running.Add(1)
			defer f.running.Add(-1)
			if n > f.most.Load() {
				f.most.Store(n)
			}
			select {
			case <-f.proceed:
				return "done", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}, "Wait."),
	}})
	if err != nil {
		t.Fatal(err)
	}
	get := func() *fn.Registry { return funcs }
	cfg := Config{
		Options: Options{ModuleExecutors: directCall}, ID: "w1", Jobs: jobs.New(0, box.Knows),
		Notes: &jobs.Notes{Dir: filepath.Join(t.TempDir(), "proc"), Log: log}, Outbox: box, Links: links,
		Returners: returners.New(returners.Config{Options: returner.MinionOptions{}, ID: "w1", Dir: t.TempDir(), Opts: value.NewDict(0), Background: group,
			Log: log}),
		Calls: calls.NewFactory(calls.Config{ID: "w1", Opts: value.NewDict(0), Grains: g, Funcs: get, Log: log}),
		Funcs: get, Grains: g.Grains, Background: group, Log: log,
	}
	if change != nil {
		change(&cfg)
	}
	f.Runner = New(cfg)
	return f
}

func aJob(jid string, fun any, arg ...any) *value.Dict {
	return value.DictOf("jid", jid, "fun", fun, "arg", value.ListOf(arg...), "tgt", "*")
}

// ret waits for all jobs and returns the return of one.
func (f *floor) ret(t *testing.T, jid string) *value.Dict {
	t.Helper()
	f.cfg.Background.Wait()
	d, ok := f.cfg.Jobs.Returned(jid)
	if !ok {
		t.Fatalf("job %s has not returned", jid)
	}
	return d
}

const jid1, jid2, jid3 = "20261123000000000001", "20261123000000000002", "20261123000000000003"

func TestAccept(t *testing.T) {
	f := newFloor(t, nil)
	f.Accept(f.a, aJob(jid1, "t.echo", "x"))
	f.Accept(f.b, aJob(jid1, "t.echo", "x"))
	if d := f.ret(t, jid1); d.Str("return") != "x" || !d.Bool("success") || d.Int("retcode") != 0 || d.Str("id") != "w1" {
		t.Errorf("%s", value.Repr(d))
	}
	if got := strings.Join(f.cfg.Outbox.Waiting(jid1), " "); got != "a b" {
		t.Errorf("returned to %q", got)
	}
	f.Accept(f.a, aJob(jid2, "t.fail"))
	if d := f.ret(t, jid2); d.Bool("success") || d.Int("retcode") == 0 {
		t.Errorf("a failure: %s", value.Repr(d))
	}
	f.Accept(f.a, aJob(jid3, value.ListOf("t.echo", "t.fail"), value.ListOf("y"), value.ListOf()))
	if d := f.ret(t, jid3); d.Dict("return").Str("t.echo") != "y" || !d.Dict("success").Bool("t.echo") || d.Dict("success").Bool("t.fail") {
		t.Errorf("two functions: %s", value.Repr(d))
	}
}

func TestNotForThisMinion(t *testing.T) {
	f := newFloor(t, nil)
	for i, load := range []*value.Dict{
		value.DictOf("jid", jid1), aJob("../etc", "t.echo", "x"),
		value.DictOf("jid", jid1, "fun", "t.echo", "arg", value.ListOf("x"), "tgt", "w2"),
		value.DictOf("jid", jid1, "fun", "t.echo", "arg", value.ListOf("x"), "tgt", "os:y", "tgt_type", "grain"),
		value.DictOf("jid", jid1, "fun", "t.echo", "arg", value.ListOf("x"), "tgt", "(", "tgt_type", "pcre"),
	} {
		f.Accept(f.a, load)
		f.cfg.Background.Wait()
		if _, ok := f.cfg.Jobs.Returned(jid1); ok {
			t.Fatalf("%d was run", i)
		}
	}
	f.Accept(f.a, value.DictOf("jid", jid1, "fun", "t.echo", "arg", value.ListOf("x"), "tgt", "os:x", "tgt_type", "grain"))
	f.ret(t, jid1)
}

func TestProcessCountMax(t *testing.T) {
	f := newFloor(t, func(c *Config) { c.Options.ProcessCountMax = 1 })
	f.Accept(f.a, aJob(jid1, "t.wait"))
	f.Accept(f.a, aJob(jid2, "t.wait"))
	f.proceed <- struct{}{}
	f.proceed <- struct{}{}
	if f.ret(t, jid1); f.most.Load() != 1 {
		t.Errorf("%d jobs at the same time", f.most.Load())
	}
}

// TestJobsWaitInOrder: jobs that wait for a slot run in the order in which they arrived,
// and one that is killed while it waits does not run.
func TestJobsWaitInOrder(t *testing.T) {
	f := newFloor(t, func(c *Config) { c.Options.ProcessCountMax = 1 })
	f.Accept(f.a, aJob(jid1, "t.wait"))
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprintf("202611210700000001%02d", i))
		f.Accept(f.a, value.DictOf("jid", ids[i], "fun", "t.echo", "arg", value.ListOf("x"), "tgt", "*", "tgt_type", "glob"))
	}
	eventually.Nil(t, eventually.Limit, "the last job is killed", func() error { return f.cfg.Jobs.Signal(ids[19], 15) })
	f.proceed <- struct{}{}
	last := ""
	for i, jid := range ids {
		d := f.ret(t, jid)
		if stamp := d.Str("_stamp"); i < 19 && (stamp < last || d.Str("return") != "x") {
			t.Errorf("job %d: %s after %s: %s", i, stamp, last, value.Repr(d))
		} else if i < 19 {
			last = stamp
		}
		if i == 19 && d.Int("retcode") != 143 {
			t.Errorf("the killed job: %s", value.Repr(d))
		}
	}
}

func TestKilledJob(t *testing.T) {
	f := newFloor(t, nil)
	f.Accept(f.a, aJob(jid1, "t.wait"))
	for f.running.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := f.cfg.Jobs.Signal(jid1, 15); err != nil {
		t.Fatal(err)
	}
	if d := f.ret(t, jid1); d.Str("return") != "ERROR: the job was ended by signal 15" || d.Int("retcode") != 143 {
		t.Errorf("%s", value.Repr(d))
	}
}

func TestScheduled(t *testing.T) {
	f := newFloor(t, nil)
	f.Scheduled("nightly", "t.echo", value.DictOf("args", value.ListOf("x"), "metadata", value.DictOf("a", 1)))
	queued := func() (out []*value.Dict) {
		spy := f.cfg.Outbox.NewQueue("spy", func(_ context.Context, load *value.Dict) (any, error) {
			out = append(out, load)
			return nil, nil
		}, func() bool { return false }, f.cfg.Log)
		for _, jid := range f.jids(t) {
			ret, _ := f.cfg.Jobs.Returned(jid)
			f.cfg.Outbox.Also(ret, spy)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		spy.Run(ctx)
		return out
	}()
	if len(queued) != 1 || queued[0].Str("schedule") != "nightly" || queued[0].Str("return") != "x" || !queued[0].Dict("metadata").Has("_TS") ||
		queued[0].Str("tgt") != "w1" {
		t.Errorf("returned %v", queued)
	}
	f.Scheduled("dry", "t.echo", value.DictOf("dry_run", true))
	f.Scheduled("quiet", "t.echo", value.DictOf("args", value.ListOf("x"), "return_job", false))
	for _, jid := range f.jids(t)[1:] {
		if got := f.cfg.Outbox.Waiting(jid); len(got) != 0 {
			t.Errorf("a quiet job is returned to %v", got)
		}
	}
}

// TestScheduledUnknown: each run of a scheduled job whose function does not exist is logged, since its result is
// only a string that the master stores.
func TestScheduledUnknown(t *testing.T) {
	var out bytes.Buffer
	f := newFloor(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&out, nil)) })
	f.Scheduled("nightly", "t.ehco", value.NewDict(0))
	f.Scheduled("daily", "t.echo", value.DictOf("args", value.ListOf("x")))
	if s := out.String(); strings.Count(s, "names a function that does not exist") != 1 || !strings.Contains(s, "job=nightly fun=t.ehco") {
		t.Errorf("logged %q", s)
	}
}

// jids returns the ids of the finished jobs in order.
func (f *floor) jids(t *testing.T) (out []string) {
	t.Helper()
	return f.cfg.Jobs.Finished()
}

func TestStartup(t *testing.T) {
	for _, c := range []struct {
		o   Options
		fun string
		bad bool
	}{
		{Options{}, "", false}, {Options{StartupStates: "highstate"}, "state.highstate", false}, {Options{StartupStates: "sls"}, "", true},
		{Options{StartupStates: "sls", SLSList: []string{"a"}}, "state.sls", false}, {Options{StartupStates: "top"}, "", true},
		{Options{StartupStates: "top", TopFile: "x"}, "state.top", false}, {Options{StartupStates: "y"}, "", true},
	} {
		load, err := c.o.startupLoad("w1", time.Now())
		if (err != nil) != c.bad || load.Str("fun") != c.fun {
			t.Errorf("%+v: %s, %v", c.o, value.Repr(load), err)
		}
	}
	f := newFloor(t, func(c *Config) { c.Options.StartupStates = "highstate" })
	f.Startup(f.a)
	f.cfg.Background.Wait()
	if got := f.jids(t); len(got) != 1 || len(f.cfg.Outbox.Waiting(got[0])) != 1 {
		t.Errorf("jobs %v", got)
	}
}

func TestInterruptedAndTooLarge(t *testing.T) {
	f := newFloor(t, nil)
	d := f.Interrupted(value.DictOf("jid", jid1, "fun", "t.wait", "user", "root"), "ERROR: stopped")
	if !d.Bool("interrupted") || d.Str("return") != "ERROR: stopped" || d.Str("user") != "root" || d.Int("retcode") != 1 {
		t.Errorf("%s", value.Repr(d))
	}
	o := fitting(fn.Outcome{Return: strings.Repeat("x", outbox.MaxReturn+1), Success: true})
	if o.Success || o.Retcode != 1 || !strings.Contains(o.Return.(string), "more than 60 MiB") {
		t.Errorf("%.100v", o.Return)
	}
}

// TestNoRoomForNotes: a job that neither the minion nor a master can record does not run,
// and its return names the file.
func TestNoRoomForNotes(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16k"); err != nil {
		t.Skip("cannot mount a small file system:", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	for n := 4096; n > 0; n /= 2 {
		for i := 0; os.WriteFile(filepath.Join(dir, fmt.Sprint(n, "-", i)), make([]byte, n), 0o600) == nil; i++ {
		}
	}
	f := newFloor(t, func(c *Config) {
		var o outbox.Options
		if err := field.Defaults(&o); err != nil {
			t.Fatal(err)
		}
		c.Outbox = outbox.New(outbox.Config{Options: o, ID: "w1", Dir: filepath.Join(dir, "brine"), Fire: c.Links.Fire, Log: c.Log})
		c.Outbox.Recall(nil)
	})
	f.Accept(f.a, aJob(jid1, "t.echo", "x"))
	if d := f.ret(t, jid1); d.Bool("success") || d.Int("retcode") != 1 || !strings.Contains(d.Str("return"), "was not run") ||
		!strings.Contains(d.Str("return"), dir) {
		t.Errorf("%s", value.Repr(d))
	}
}
