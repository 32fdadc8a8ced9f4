package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"

	"brine/internal/base/log/redact"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// performer runs the functions of states, concurrently for parallel states, so
// it holds no mutable state of the run.
type performer struct {
	log      *slog.Logger
	states   *state.Registry
	slots    slots
	shared   *state.Run
	template func(ctx context.Context, c *fn.Call, t state.Template) (string, error)
}

// perform requests the state's plan, and executes it unless in test mode.
func (p *performer) perform(ctx context.Context, f *state.Func, c *fn.Call, low *value.Dict, mask *int, test bool) *value.Dict {
	var out state.Result
	name := low.At("name")
	withUmask(mask, func() {
		defer func() {
			if cause := recover(); cause != nil {
				p.log.Error("state panicked", "state", f.Name(), "id", value.Str(low.At("__id__")), "err", cause, "stack", string(debug.Stack()))
				out = state.Result{Verdict: state.Failed, Comment: fmt.Sprintf("An exception occurred in this state: %v", cause)}
			}
		}()
		out = p.plan(ctx, f, c, low, test, &name)
	})
	// Errors of functions and programs quote the URLs that they were given.
	out.Comment = redact.Text(out.Comment)
	for i, w := range out.Warnings {
		out.Warnings[i] = redact.Text(w)
	}
	res := value.NewDict(10)
	res.Set("name", name)
	res.Set("changes", out.Changes)
	if out.Changes == nil {
		res.Set("changes", value.NewDict(0))
	}
	res.Set("result", out.Verdict.Value())
	res.Set("comment", out.Comment)
	if len(out.Warnings) > 0 {
		res.Set("warnings", value.Strings(out.Warnings))
	}
	if out.SkipWatch {
		res.Set("skip_watch", true)
	}
	res.Update(out.Extra)
	return res
}

// plan requests the plan and follows it. name is set to the state's name, which
// a slot may determine.
func (p *performer) plan(ctx context.Context, f *state.Func, c *fn.Call, low *value.Dict, test bool, name *any) state.Result {
	full := value.Str(low.At("state")) + "." + value.Str(low.At("fun"))
	kwargs, extra := f.Arguments(low)
	misspelt := f.Misspelt(low)
	if len(extra) > 0 {
		return state.Result{Verdict: state.Failed, Comment: invalidArguments(full, extra), Warnings: misspelt}
	}
	filled, err := p.slots.fill(ctx, c, kwargs)
	if err != nil {
		return state.Result{Verdict: state.Failed, Comment: err.Error()}
	}
	if filled != kwargs {
		dropNulls(f, kwargs, filled)
		kwargs = filled
	}
	if v, ok := kwargs.Get("name"); ok {
		*name = v
	}
	plan, err := f.Plan(ctx, p.env(c, low), kwargs)
	out := carryOut(ctx, plan, err, test)
	out.Warnings = append(misspelt, out.Warnings...)
	return out
}

// env returns the environment of a state.
func (p *performer) env(c *fn.Call, low *value.Dict) *state.Env {
	env := &state.Env{Call: c, Low: low, Run: p.shared, Saltenv: state.SaltenvOf(low)}
	env.Template = func(ctx context.Context, t state.Template) (string, error) {
		if p.template == nil {
			return "", errors.New("there is no template engine")
		}
		return p.template(ctx, c, t)
	}
	env.State = func(ctx context.Context, full string, args []any, kwargs *value.Dict, test bool) (*value.Dict, error) {
		return p.other(ctx, env, full, args, kwargs, test)
	}
	return env
}

// other runs a state function on behalf of the state of env.
func (p *performer) other(ctx context.Context, env *state.Env, full string, args []any, kwargs *value.Dict, test bool) (*value.Dict, error) {
	f, err := p.states.Lookup(full)
	if err != nil {
		return nil, err
	}
	module, function, _ := strings.Cut(full, ".")
	low := value.DictOf("state", module, "fun", function)
	for i, prm := range f.Params() {
		if i < len(args) {
			low.Set(prm.Name, args[i])
		}
	}
	low.Update(kwargs)
	low.Set("__id__", low.At("name"))
	for _, k := range []string{"__sls__", "__env__"} {
		low.Set(k, env.Low.At(k))
	}
	return p.perform(ctx, f, env.Call, low, nil, test), nil
}

func invalidArguments(full string, names []string) string {
	if len(names) == 1 {
		return fmt.Sprintf("'%s' is an invalid keyword argument for '%s'", names[0], full)
	}
	last := len(names) - 1
	return fmt.Sprintf("'%s' and '%s' are invalid keyword arguments for '%s'", strings.Join(names[:last], "', '"), names[last], full)
}

// carryOut creates the result of a plan.
func carryOut(ctx context.Context, p state.Plan, err error, test bool) state.Result {
	if err == nil && p.Whole != nil {
		return p.Whole(ctx, test)
	}
	out := state.Result{Verdict: state.Succeeded, Warnings: p.Warnings, Extra: p.Extra, SkipWatch: p.SkipWatch}
	switch {
	case test && p.Forecast != nil:
		out.Verdict, out.Comment, out.Changes = p.Forecast.Verdict, p.Forecast.Comment, p.Forecast.Changes
		if p.Forecast.Extra != nil {
			out.Extra = p.Forecast.Extra
		}
		return out
	case err != nil:
		out.Verdict, out.Comment = state.Failed, err.Error()
		return out
	case len(p.Steps) == 0:
		out.Comment = p.Comment
		return out
	}
	var comments []string
	out.Changes = value.NewDict(len(p.Steps))
	add := func(c state.Change) {
		out.Changes.Update(c.Diff)
		if c.Comment != "" {
			comments = append(comments, c.Comment)
		}
	}
	for _, s := range p.Steps {
		if test {
			add(s.Change)
			continue
		}
		var c state.Change
		c, err = s.Do(ctx)
		add(c)
		if err != nil {
			out.Verdict = state.Failed
			comments = append(comments, err.Error())
			break
		}
	}
	if test {
		out.Verdict = state.Undecided
	}
	if len(comments) == 0 {
		comments = append(comments, p.Comment)
	}
	out.Comment = strings.Join(comments, "\n")
	return out
}
