package orchestration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"brine/internal/call/fn"
	"brine/internal/call/output"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

type masterArgs struct {
	Name   string    `salt:"name" doc:"function to call"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// orchestrations lists the runners that run SLS files like the present run.
var orchestrations = []string{"state.orchestrate", "state.orch", "state.sls"}

// callRunner runs a function of the master and returns its full return.
func callRunner(ctx context.Context, e *state.Env, name string, given *value.Dict) (*value.Dict, error) {
	kw := value.NewDict(given.Len() + 3)
	kw.Update(given)
	kw.Set("full_return", true)
	if slices.Contains(orchestrations, name) {
		// The nested orchestration can be paused with this one, and has the
		// same environment.
		kw.Set("orchestration_jid", e.JID)
		if !kw.Has("saltenv") {
			kw.Set("saltenv", e.Saltenv)
		}
	}
	v, err := e.Exec(ctx, "saltutil.runner", kw, name)
	if err != nil {
		return nil, err
	}
	d, _ := v.(*value.Dict)
	return d, nil
}

// done returns the result for a function of the master. kind is Runner or
// Wheel.
func done(kind, name string, about *value.Dict, err error) state.Result {
	if err != nil {
		return outcome(false, err.Error())
	}
	ret := about.At("return")
	ok := about.At("success") == nil || value.Truth(about.At("success"))
	if d, isDict := ret.(*value.Dict); isDict && d.Has("Error") {
		ok = false
	}
	text := "executed"
	if !ok {
		text = "failed"
	}
	res := outcome(ok, fmt.Sprintf("%s function '%s' %s.", kind, name, text))
	res.Changes = value.DictOf("return", ret)
	res.Extra = jidOf(about)
	return res
}

func (m mod) runner(_ context.Context, e *state.Env, a masterArgs) (state.Plan, error) {
	return state.Plan{Whole: func(ctx context.Context, test bool) state.Result {
		if test {
			return forecast(fmt.Sprintf("Runner function '%s' would be executed.", a.Name))
		}
		kw := a.Kwargs.Clean()
		m.tell(e, value.DictOf("type", "runner", "name", a.Name, "args", &value.List{}, "kwargs", kw))
		about, err := callRunner(ctx, e, a.Name, kw)
		return done("Runner", a.Name, about, err)
	}}, nil
}

func (m mod) wheel(_ context.Context, e *state.Env, a masterArgs) (state.Plan, error) {
	return state.Plan{Whole: func(ctx context.Context, test bool) state.Result {
		if test {
			return forecast(fmt.Sprintf("Wheel function '%s' would be executed.", a.Name))
		}
		kw := a.Kwargs.Clean()
		m.tell(e, value.DictOf("type", "wheel", "name", a.Name, "args", kw))
		v, err := e.Exec(ctx, "saltutil.wheel", kw, a.Name)
		about, _ := v.(*value.Dict)
		return done("Wheel", a.Name, about, err)
	}}, nil
}

type parallelArgs struct {
	Name    string    `salt:"name" doc:"name of the state"`
	Runners any       `salt:"runners" doc:"map of names to lists of name and kwarg, or the name of one runner without arguments"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

// job is one of several runners.
type job struct {
	id, name string
	kwargs   *value.Dict
	about    *value.Dict
	err      error
}

// jobs parses the argument runners; ok is false if it is neither a string nor a
// map.
func jobs(v any) (list []*job, ok bool) {
	if s, isText := v.(string); isText {
		return []*job{{id: s, name: s}}, true
	}
	d, ok := v.(*value.Dict)
	for k, conf := range d.All() {
		j := &job{id: value.Str(k), name: value.Str(k)}
		items := []any{conf}
		if l, isList := conf.(*value.List); isList {
			items = l.Items
		}
		for _, it := range items {
			part, _ := it.(*value.Dict)
			if part.Has("name") {
				j.name = value.Str(part.At("name"))
			}
			if kw := part.Dict("kwarg"); kw != nil {
				j.kwargs = kw
			}
		}
		list = append(list, j)
	}
	return list, ok
}

func (m mod) parallelRunners(_ context.Context, e *state.Env, a parallelArgs) (state.Plan, error) {
	list, ok := jobs(a.Runners)
	if !ok {
		return state.Plan{}, state.Errorf("The runners parameter must be a string or dict.")
	}
	return state.Plan{Whole: func(ctx context.Context, test bool) state.Result {
		if test { // Salt runs them even in a test
			return forecast("Runner functions would be executed: " + strings.Join(names(list), ", "))
		}
		var wg sync.WaitGroup
		for _, j := range list {
			wg.Go(func() { j.about, j.err = callRunner(ctx, e, j.name, j.kwargs) })
		}
		wg.Wait()
		return together(list)
	}}, nil
}

func names(list []*job) []string {
	out := make([]string, len(list))
	for i, j := range list {
		out[i] = j.name
	}
	return out
}

// together merges the results of several runners.
func together(list []*job) state.Result {
	states := true // whether all are state runs and are shown as such
	var failed []*job
	for _, j := range list {
		if j.err != nil {
			return outcome(false, fmt.Sprintf("One of the runners raised an exception: %v", j.err))
		}
		ret, _ := j.about.At("return").(*value.Dict)
		states = states && ret.At("outputter") == "highstate" && ret.Has("data")
		if !value.Truth(j.about.At("success")) {
			failed = append(failed, j)
		}
	}
	res := outcome(len(failed) == 0, "All runner functions executed successfully.")
	changes := value.NewDict(len(list))
	for _, j := range list {
		ret := j.about.At("return")
		if !states {
			changes.Set(j.id, ret)
		} else if c := changesOf(ret.(*value.Dict).At("data")); c.Len() > 0 {
			changes.Set(j.id, c)
		}
	}
	switch {
	case len(failed) == 0:
	case states:
		var texts []string
		for _, j := range failed {
			texts = append(texts, fmt.Sprintf("Runner %s failed with return value:\n%s", j.id, indented(output.Nested(j.about.At("return")))))
		}
		res.Comment = strings.Join(texts, "\n")
	case len(failed) == 1:
		res.Comment = fmt.Sprintf("Runner %s failed.", failed[0].id)
	default:
		var ids []string
		for _, j := range failed {
			ids = append(ids, j.id)
		}
		res.Comment = fmt.Sprintf("Runners %s failed.", strings.Join(ids, ", "))
	}
	if res.Changes = changes; !states {
		res.Changes = value.DictOf("ret", changes)
	}
	return res
}

func indented(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
}

// changesOf extracts the changes from state results, including those of
// minions.
func changesOf(v any) *value.Dict {
	d, ok := v.(*value.Dict)
	if !ok {
		return nil
	}
	if changes, ok := d.Get("changes"); ok {
		c, _ := changes.(*value.Dict)
		if ret := c.Dict("ret"); ret != nil && c.At("out") == "highstate" {
			return ret
		}
		return c
	}
	out := value.NewDict(0)
	for k, it := range d.All() {
		if c := changesOf(it); c.Len() > 0 {
			out.Set(k, c)
		}
	}
	return out
}
