package runner

import (
	"log/slog"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/daemons/minion/jobs"
	"brine/internal/py/value"
)

// TestSplayShare: the shares are those that Salt's executor computes.
func TestSplayShare(t *testing.T) {
	for id, want := range map[string]float64{"alpha": 4522, "beta": 4020, "web1.example.com": 4266, "ü": 4720} {
		if got := splayShare(id) * 8192; got != want {
			t.Errorf("%s: %v, want %v", id, got, want)
		}
	}
}

func TestExecutors(t *testing.T) {
	list := func(names ...any) any { return value.ListOf(names...) }
	m := New(Config{ID: "alpha", Log: slog.New(slog.DiscardHandler)})
	for i, c := range []struct {
		conf, job, opts any
		want            any
	}{
		{directCall, nil, nil, "called"},
		{directCall, list(), nil, "called"},
		{directCall, "direct_call", nil, "called"},
		{directCall, list("nope", "direct_call"), nil, "ERROR executing 'f': Executor 'nope' is not available"},
		{directCall, value.DictOf("a", "b"), nil, "ERROR executing 'f': Wrong executors specification: {'a': 'b'}. String or non-empty list expected"},
		{directCall, list("splay", "direct_call"), value.DictOf("splaytime", int64(1)), "called"},
		{directCall, "splay", value.DictOf("splaytime", int64(1)), nil},
		{directCall, "splay", value.DictOf("splaytime", int64(0)), "ERROR executing 'f': splaytime must be a positive integer"},
		{directCall, "splay", value.DictOf("splaytime", "x"), "ERROR executing 'f': splaytime must be a positive integer"},
		{list("nope"), nil, nil, "ERROR executing 'f': Executor 'nope' is not available"},
		{list("nope"), "direct_call", nil, "called"},
	} {
		m.cfg.Options.ModuleExecutors = c.conf
		load := value.NewDict(2)
		if c.job != nil {
			load.Set("module_executors", c.job)
		}
		if c.opts != nil {
			load.Set("executor_opts", c.opts)
		}
		j := jobs.NewJob(load)
		if o := m.Through(t.Context(), j, "saltutil.find_job", func() fn.Outcome { return fn.Outcome{Return: "asked"} }); o.Return != "asked" {
			t.Errorf("%d: find_job: %+v", i, o)
		}
		o := m.Through(t.Context(), j, "f", func() fn.Outcome { return fn.Outcome{Return: "called", Success: true} })
		if o.Return != c.want || o.Success != (c.want == "called" || c.want == nil) {
			t.Errorf("%d: got %+v, want %v", i, o, c.want)
		}
	}
}
