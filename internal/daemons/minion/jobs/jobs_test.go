package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/daemons/minion/link"
	"brine/internal/host/proc"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

func load(jid string) *value.Dict {
	return value.DictOf("jid", jid, "fun", "test.ping", "arg", value.ListOf(), "tgt", "*")
}

func TestJobFromTwoMastersRunsOnce(t *testing.T) {
	tab := New(0, nil)
	a, b := &link.Link{}, &link.Link{}
	j, ready, _ := tab.Admit(load("1"), a)
	if j == nil || ready != nil {
		t.Fatal("the first master's job was not admitted")
	}
	if again, ready, _ := tab.Admit(load("1"), a); again != nil || ready != nil {
		t.Error("a job that one master sent twice was admitted twice")
	}
	if other, ready, _ := tab.Admit(load("1"), b); other != nil || ready != nil {
		t.Error("a job that another master sent too was admitted again")
	}
	ret := value.DictOf("return", true)
	if to := tab.Finish(j, ret); len(to) != 2 || to[0] != a || to[1] != b {
		t.Errorf("the return goes to %v, want both masters", to)
	}
	c := &link.Link{}
	if again, ready, _ := tab.Admit(load("1"), c); again != nil || ready != ret {
		t.Error("a master that publishes a finished job must get its return")
	}
	if again, ready, _ := tab.Admit(load("1"), a); again != nil || ready != nil {
		t.Error("a replay by the same master must do nothing")
	}
}

// TestJobWithTheIDOfAnother: a different job with the id of a known one is not run, and its
// master does not get the return of the known one.
func TestJobWithTheIDOfAnother(t *testing.T) {
	tab := New(0, nil)
	a, b, c := &link.Link{}, &link.Link{}, &link.Link{}
	args := func(v ...any) *value.Dict {
		d := load("1")
		d.Set("arg", value.ListOf(v...))
		return d
	}
	first := args("x", value.DictOf("__kwarg__", true, "k", int64(1)))
	j, _, err := tab.Admit(first, a)
	if j == nil || err != nil {
		t.Fatal(err)
	}
	other := first.Clone()
	other.Set("fun", "test.fib")
	for name, l := range map[string]*value.Dict{
		"another function": other, "other arguments": args("y"), "another keyword": args("x", value.DictOf("__kwarg__", true, "k", int64(2))), "none": args(),
	} {
		for _, from := range []*link.Link{a, b} {
			again, ready, err := tab.Admit(l, from)
			taken, ok := errors.AsType[*Taken](err)
			if again != nil || ready != nil || !ok || taken.JID != "1" || taken.Fun != "test.ping" || taken.Other != (from == b) {
				t.Errorf("%s: %v, %v, %+v", name, again, ready, err)
			}
		}
	}
	// A running function may change its arguments.
	first.List("arg")[1].(*value.Dict).Delete("__kwarg__")
	same := args([]byte("x"), value.DictOf("k", int64(1), "__kwarg__", true))
	same.Set("tgt", "narrowed")
	if again, ready, err := tab.Admit(same, c); again != nil || ready != nil || err != nil {
		t.Errorf("the same job: %v, %v, %v", again, ready, err)
	}
	ret := value.DictOf("return", true)
	if to := tab.Finish(j, ret); !slices.Equal(to, []*link.Link{a, c}) {
		t.Errorf("the return goes to %d masters", len(to))
	}
	if again, ready, err := tab.Admit(other, b); again != nil || ready != nil || err == nil {
		t.Errorf("after the end: %v, %v, %v", again, ready, err)
	}
}

func TestJobTableForgetsOldJobsButNoneThatRuns(t *testing.T) {
	tab := New(100, nil)
	running, _, _ := tab.Admit(load("running"), &link.Link{})
	for i := range 500 {
		j, _, _ := tab.Admit(load(fmt.Sprint(i)), &link.Link{})
		tab.Finish(j, value.NewDict(0))
	}
	if n := len(tab.jobs); n != 101 {
		t.Errorf("%d jobs are remembered, want 100 and the running one", n)
	}
	if tab.find("running") == nil {
		t.Error("the running job is forgotten")
	}
	if got := tab.List("running"); len(got) != 0 {
		t.Errorf("running besides itself: %v", got)
	}
	tab.Finish(running, value.NewDict(0))
	if tab.find("running") != nil {
		t.Error("a finished job is listed as running")
	}
}

func TestJobsOfAnEarlierProcess(t *testing.T) {
	tab := New(0, func(jid string) bool { return jid == "old" })
	if j, _, _ := tab.Admit(load("old"), &link.Link{}); j != nil {
		t.Error("a job runs again after a restart")
	}
	if j, _, _ := tab.Admit(load("new"), &link.Link{}); j == nil {
		t.Error("a new job does not run")
	}
}

func TestSignal(t *testing.T) {
	tab := New(0, nil)
	a, b := &link.Link{}, &link.Link{}
	if err := tab.Signal("1", syscall.SIGTERM); salt.KindOf(err) != salt.NotFound {
		t.Errorf("no such job: %v", err)
	}
	j, _, _ := tab.Admit(load("1"), a)
	tab.Admit(load("1"), b)
	if err := tab.Signal("1", syscall.SIGTERM); salt.KindOf(err) != salt.Unavailable {
		t.Errorf("before it has begun: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	tab.Start(j, cancel, &proc.Group{})
	if err := tab.Signal("1", syscall.SIGUSR1); err != nil || ctx.Err() != nil {
		t.Errorf("a signal that ends no job: %v, %v", err, ctx.Err())
	}
	if err := tab.Signal("1", syscall.SIGKILL); err != nil || context.Cause(ctx) != (Signalled{syscall.SIGKILL}) ||
		context.Cause(ctx).Error() != "the job was ended by signal 9" {
		t.Errorf("%v, %v", err, context.Cause(ctx))
	}
	if got := tab.RunningFor(b); len(got) != 0 || !tab.Busy(b) {
		t.Errorf("running before it has begun: %v", got)
	}
	tab.Begun(j)
	if got := tab.RunningFor(b); len(got) != 1 || got[0] != "1" {
		t.Errorf("running for the second master: %v", got)
	}
	if got := tab.Origins(j); len(got) != 2 {
		t.Errorf("published by %v", got)
	}
	if _, done := tab.Returned("1"); done {
		t.Error("it has returned before it ended")
	}
	ret := value.NewDict(0)
	tab.Finish(j, ret)
	if got, done := tab.Returned("1"); !done || got != ret || len(tab.RunningFor(a)) != 0 || tab.Busy(a) {
		t.Error("its return is not kept")
	}
}

func TestNotes(t *testing.T) {
	n := &Notes{Dir: filepath.Join(t.TempDir(), "proc"), Log: slog.New(slog.DiscardHandler)}
	forget := n.Record(&Job{JID: "1", Load: value.DictOf("jid", "1", "fun", "test.ping")})
	write := func(name string, v any, age time.Duration) {
		b, err := msgpack.Marshal(v, msgpack.Wire)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(n.Dir, name)
		if err := errors.Join(os.WriteFile(path, b, 0o600), os.Chtimes(path, time.Now(), time.Now().Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	write("2", value.DictOf("jid", "2", "pid", int64(1<<30)), 0) // no such process
	write("3", "no note", time.Hour)
	write("4", "being written", 0)
	if got := n.Others(); len(got) != 0 {
		t.Errorf("jobs of other processes: %v", got)
	}
	names := func() (out []string) {
		entries, _ := os.ReadDir(n.Dir)
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	if got := names(); !slices.Equal(got, []string{"1", "4"}) {
		t.Errorf("left: %v", got)
	}
	forget()
	write("5", value.DictOf("jid", "5", "pid", int64(os.Getpid())), 0) // of a predecessor, as in a container
	if n.Forget(); !slices.Equal(names(), []string{"4"}) {
		t.Errorf("at the start: %v", names())
	}
	if RunsJobs(0) || RunsJobs(1<<30) {
		t.Error("no process runs jobs")
	}
	n.Dir = filepath.Join(n.Dir, "4", "below a file")
	n.Record(&Job{JID: "1", Load: value.NewDict(0)})() // does not fail
}
