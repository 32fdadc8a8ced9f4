package minion

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"brine/internal/py/value"
	"brine/test/fuzztest"
	"brine/test/fuzztest/conversation"
)

// harmless are the functions that mutated publications may run.
var harmless = map[string]bool{"test.ping": true, "test.echo": true, "test.arg": true, "saltutil.find_job": true, "saltutil.running": true}

// onlyHarmless replaces any other function by one that does not exist.
func onlyHarmless(load *value.Dict) {
	safe := func(v any) any {
		if name, ok := v.(string); ok && !harmless[name] {
			return "no." + name
		}
		return v
	}
	load.Set("module_executors", "direct_call")
	load.Set("ret", "")
	switch fun := load.At("fun").(type) {
	case *value.List:
		for i, it := range fun.Items {
			fun.Items[i] = safe(value.Str(it))
		}
	case string:
		load.Set("fun", safe(fun))
	default:
		load.Set("fun", safe(value.Str(fun)))
	}
}

// FuzzPublicationTalk publishes mutated jobs from one of the minion's masters. Afterwards a
// job from the other master must run once, and its return must go to that master.
func FuzzPublicationTalk(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	m, err := newMinion(f, func(cfg *Config) {
		cfg.Options.Master = []string{"127.0.0.1:1", "127.0.0.1:2"}
		cfg.Options.ReturnQueue = 8 // the masters never connect
	})
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.background.Use(ctx)
	f.Cleanup(func() { cancel(); m.background.Wait() })
	masters := m.links.All()
	if len(masters) != 2 {
		f.Fatalf("%d masters", len(masters))
	}
	evil, good := masters[0], masters[1]
	// As recorded in testdata/vectors/publish_zmq.json.
	job := func(n int, fun any, more ...any) *value.Dict {
		d := value.DictOf("fun", fun, "arg", value.ListOf(), "tgt", "w1", "jid", fmt.Sprintf("20261121%012d", n), "ret", "", "tgt_type", "glob", "user",
			"root", "serial", int64(n))
		d.Update(value.DictOf(more...))
		return d
	}
	talk := []*value.Dict{
		job(1, "test.ping"),
		job(2, "test.arg", "arg", value.ListOf("x", value.DictOf("__kwarg__", true, "cwd", "/tmp", "timeout", int64(7)))),
		job(3, value.ListOf("test.ping", "test.echo"), "arg", value.ListOf(value.ListOf(), value.ListOf("x"))),
		job(4, "test.echo", "arg", value.ListOf("x"), "tgt", value.ListOf("w1", "w2"), "tgt_type", "list"),
		job(5, "test.ping", "tgt", "G@os:x or w1", "tgt_type", "compound", "delimiter", ":"),
		job(6, "saltutil.find_job", "arg", value.ListOf("20261121000000000001"), "metadata", value.DictOf("a", int64(1)), "kwargs", value.NewDict(0)),
	}
	values := conversation.Values("test.ping", "test.echo", "w1", "*", "list", "pcre", "compound", "ipcidr", "nodegroup", "grain", "0.0.0.0/0",
		"20261121000000000001", "w(1|2)*")
	for _, p := range conversation.Seeds(len(talk), values) {
		f.Add(p)
	}
	f.Add([]byte{})
	n := 0
	f.Fuzz(func(t *testing.T, program []byte) {
		var run []string
		for i, load := range conversation.Mutate(program, talk, values) {
			// Each run has new ids, unless the mutation changed them.
			if load.Str("jid") == talk[min(i, len(talk)-1)].Str("jid") {
				n++
				load.Set("jid", fmt.Sprintf("20261122%012d", n))
			}
			onlyHarmless(load)
			m.runner.Accept(evil, load)
			run = append(run, load.Str("jid"))
		}
		n++
		jid := fmt.Sprintf("20261123%012d", n)
		honest := job(n, "test.echo", "arg", value.ListOf(jid), "jid", jid)
		m.runner.Accept(good, honest)
		m.background.Wait()
		ret, done := m.jobs.Returned(jid)
		if !done || ret.Str("return") != jid {
			t.Fatalf("the job of the honest master returns %s", value.Repr(ret))
		}
		if got := m.outbox.Waiting(jid); !slices.Equal(got, []string{good.Addr.Text}) {
			t.Errorf("the job of the honest master is returned to %v", got)
		}
		running := len(m.jobs.List(""))
		if running != 0 {
			t.Errorf("%d jobs run for ever, of %v", running, run)
		}
	})
}
