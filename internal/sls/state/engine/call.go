package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"brine/internal/base/log/redact"
	"brine/internal/base/target"
	"brine/internal/base/textedit"
	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

var allRequisites = append(slices.Clone(state.Requisites), state.RequisitesIn...)

// call runs one state function, or only asks for its plan, and returns its
// result. attempt counts from 1.
func (r *run) call(u *unit, low *value.Dict, attempt int) *value.Dict {
	began := r.now()
	f, mask, faults := r.verify(low)
	if len(faults) > 0 {
		res := value.DictOf("result", false, "name", low.At("name"), "changes", value.NewDict(0),
			"comment", strings.Join(faults, "\n")+"\n", "__run_num__", r.next())
		r.log(low, res)
		u.refused = u.prereq && f == nil
		return res
	}
	if r.deps.Watch != nil && !u.prereq {
		r.deps.Watch.Started(low)
	}
	res := r.evaluate(u, f, low, mask)
	if u.prereq {
		u.prereq = false
		return res
	}
	res.Set("__sls__", low.At("__sls__"))
	res.Set("__run_num__", r.next())
	r.log(low, res)
	r.reload(low, res)
	res.Set("start_time", clock(began))
	res.Set("duration", milliseconds(r.now().Sub(began)))
	res.Set("__id__", low.At("__id__"))
	if low.Has("retry") && !low.Has("parallel") {
		res = r.retry(u, low, res, attempt)
	}
	return res
}

// verify looks whether a chunk can be called. faults are in Salt's words; f is
// nil if there is nothing to call or no arguments for it.
func (r *run) verify(low *value.Dict) (f *state.Func, mask *int, faults []string) {
	if name := low.At("name"); value.Truth(name) && value.TypeName(name) != "str" {
		in := ""
		if low.Has("__sls__") {
			in = fmt.Sprintf("in SLS '%s' ", value.Str(low.At("__sls__")))
		}
		faults = append(faults, fmt.Sprintf("ID '%s' %sis not formed as a string, but is a %s", value.Str(name), in, value.TypeName(name)))
	}
	if v, ok := low.Get("umask"); ok {
		n, err := strconv.ParseUint(value.Str(v), 8, 12)
		if err != nil {
			faults = append(faults, "Invalid umask: "+value.Str(v))
		}
		m := int(n)
		mask = &m
	}
	if faults = append(faults, forms(low)...); len(faults) > 0 {
		return nil, nil, faults
	}
	full := value.Str(low.At("state")) + "." + value.Str(low.At("fun"))
	f, err := r.deps.States.Lookup(full)
	if err != nil {
		if !low.Has("__sls__") {
			return nil, nil, []string{fmt.Sprintf("Specified state '%s' was not found", full)}
		}
		faults := []string{fmt.Sprintf("State '%s' was not found in SLS '%s'", full, value.Str(low.At("__sls__"))), "Reason: " + err.Error()}
		if _, refused := r.deps.States.Declarations().Missing()[value.Str(low.At("state"))]; !refused && r.deps.Where != nil {
			if more := r.unknown(full); more != "" {
				faults = append(faults, strings.TrimSuffix(more+"\n"+r.deps.Where(r.ctx, low), "\n"))
			}
		}
		return nil, nil, faults
	}
	params := f.Params()
	for i := range params { // they are large, and many
		if p := &params[i]; !p.Optional && !low.Has(p.Name) {
			faults = append(faults, fmt.Sprintf("Missing parameter %s for state %s", p.Name, full))
		}
	}
	incomplete := len(faults) > 0
	if faults = append(faults, r.selfRequired(low)...); incomplete {
		f = nil
	}
	return f, mask, faults
}

// unknown says what there is in place of a state that Brine has not got. It is
// empty for a module that Salt has not got either and that is like no other: then
// Salt's words say all.
func (r *run) unknown(full string) string {
	names := r.deps.States.Declarations().Names()
	if near := textedit.Nearest(full, names); len(near) > 0 {
		return "Brine has no state " + full + "; did you mean " + strings.Join(near, " or ") + "?"
	}
	module, _, _ := strings.Cut(full, ".")
	own := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, module+".") })
	if len(own) > 0 {
		return "Brine has no state " + full + "; it has " + strings.Join(own, ", ")
	}
	if state.Unsupported(module) {
		return "Brine does not have the states of Salt's module " + module
	}
	return ""
}

// selfRequired finds a state that requires itself.
func (r *run) selfRequired(low *value.Dict) (faults []string) {
	kind := ""
	if low.Has("require") {
		kind = "require"
	}
	if low.Has("watch") {
		r.adoptWatch(low)
		if kind = "require"; low.Has("watch") {
			kind = "watch"
		}
	}
	for _, it := range low.List(kind) {
		d, _ := it.(*value.Dict)
		if d.Len() == 0 {
			continue
		}
		k, v := d.Entry(0)
		pattern, ok := v.(string)
		if !ok || !value.Equal(k, low.At("state")) {
			continue
		}
		if g := target.ParseGlob(pattern); g.Match(value.Str(low.At("name"))) || g.Match(value.Str(low.At("__id__"))) {
			faults = append(faults, fmt.Sprintf("Recursive require detected in SLS %s for require %s in ID %s",
				value.Str(low.At("__sls__")), value.Repr(d), value.Str(low.At("__id__"))))
		}
	}
	return faults
}

// evaluate uses unless, onlyif and creates, runs the function, and uses
// check_cmd.
func (r *run) evaluate(u *unit, f *state.Func, low *value.Dict, mask *int) *value.Dict {
	c := r.deps.Call().Prepare()
	if s, ok := low.At("runas").(string); ok {
		c.RunAs = s
	}
	var res *value.Dict
	if low.Has("unless") || low.Has("onlyif") || low.Has("creates") {
		if check := r.conditions(c, low); check != nil {
			res = value.DictOf("result", false, "name", low.At("name"), "changes", value.NewDict(0))
			res.Update(check)
		}
	}
	switch {
	case res != nil:
	case r.opts.Mock:
		res = value.DictOf("name", low.At("name"), "comment", "Not called, mocked", "changes", value.NewDict(0), "result", true)
	case !r.conditionsHold(c, low):
		res = value.DictOf("name", low.At("name"), "comment", "Failed to meet global state conditions. State not called.",
			"changes", value.NewDict(0), "result", nil)
	case value.Truth(low.At("parallel")) && !u.prereq:
		res = r.start(u, f, c, low, mask)
	default:
		res = r.perform(r.ctx, f, c, low, mask, r.opts.Test || u.prereq)
	}
	if _, own := f.Param("check_cmd"); low.Has("check_cmd") && !own {
		res.Update(r.checkCmd(c, low))
	}
	if warnings := idle(low); len(warnings) > 0 {
		all := value.Strings(warnings)
		if own := res.At("warnings"); own != nil {
			all.Items = append(slices.Clone(items(own)), all.Items...)
		}
		res.Set("warnings", all)
	}
	return res
}

// perform asks the state for its plan, and carries it out unless this is a
// test. It uses nothing of the run that changes.
func (r *run) perform(ctx context.Context, f *state.Func, c *fn.Call, low *value.Dict, mask *int, test bool) *value.Dict {
	var out state.Result
	name := low.At("name")
	withUmask(mask, func() {
		defer func() {
			if p := recover(); p != nil {
				r.deps.Log.Error("a state panicked", "state", f.Name(), "id", value.Str(low.At("__id__")), "err", p, "stack", string(debug.Stack()))
				out = state.Result{Verdict: state.Failed, Comment: fmt.Sprintf("An exception occurred in this state: %v", p)}
			}
		}()
		out = r.plan(ctx, f, c, low, test, &name)
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

// plan asks for the plan and follows it. name becomes what the state is called,
// which a slot may fill in.
func (r *run) plan(ctx context.Context, f *state.Func, c *fn.Call, low *value.Dict, test bool, name *any) state.Result {
	full := value.Str(low.At("state")) + "." + value.Str(low.At("fun"))
	kwargs, extra := f.Arguments(low)
	if len(extra) > 0 {
		return state.Result{Verdict: state.Failed, Comment: invalidArguments(full, extra)}
	}
	filled, err := r.slots(ctx, c, kwargs)
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
	env := &state.Env{Call: c, Low: low, Run: r.shared, Saltenv: state.SaltenvOf(low)}
	env.Template = func(ctx context.Context, t state.Template) (string, error) {
		if r.deps.Template == nil {
			return "", errors.New("there is no template engine")
		}
		return r.deps.Template(ctx, c, t)
	}
	p, err := f.Plan(ctx, env, kwargs)
	return carryOut(ctx, p, err, test)
}

func invalidArguments(full string, names []string) string {
	if len(names) == 1 {
		return fmt.Sprintf("'%s' is an invalid keyword argument for '%s'", names[0], full)
	}
	last := len(names) - 1
	return fmt.Sprintf("'%s' and '%s' are invalid keyword arguments for '%s'", strings.Join(names[:last], "', '"), names[last], full)
}

// carryOut makes the result of a plan.
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

// conditionsHold uses the option global_state_conditions: of the conditions
// that are about a state, one has to match the minion.
func (r *run) conditionsHold(c *fn.Call, low *value.Dict) bool {
	mod := value.Str(low.At("state"))
	full := mod + "." + value.Str(low.At("fun"))
	asked := false
	for k, v := range r.opts.Conditions.All() {
		if k != "*" && k != full && k != mod {
			continue
		}
		items := []any{v}
		if l, ok := v.(*value.List); ok {
			items = l.Items
		}
		for _, it := range items {
			asked = true
			ok, err := c.Funcs.Call(r.ctx, c, "match.compound", []any{it}, nil)
			if err != nil {
				r.deps.Log.Error("cannot check a global state condition", "condition", value.Str(it), "err", err)
			}
			if value.Truth(ok) {
				return true
			}
		}
	}
	return !asked
}

// reload collects again what the state asks for.
func (r *run) reload(low, res *value.Dict) {
	if r.deps.Reload == nil {
		return
	}
	changes := value.Truth(res.At("changes"))
	for _, what := range []struct {
		name string
		due  bool
	}{
		{"grains", low.Bool("reload_grains")}, {"pillar", low.Bool("reload_pillar")},
		{"modules", changes && low.Bool("reload_modules") || low.Bool("force_reload_modules")},
	} {
		if !what.due {
			continue
		}
		if err := r.deps.Reload(r.ctx, what.name); err != nil {
			r.deps.Log.Error("cannot reload", "what", what.name, "err", err)
		}
	}
}

func (r *run) log(low, res *value.Dict) {
	args := []any{"state", value.Str(low.At("state")) + "." + value.Str(low.At("fun")), "id", redact.Text(value.Str(low.At("__id__"))), "result", res.At("result")}
	if res.At("result") == false {
		r.deps.Log.Error("state failed: "+value.Str(res.At("comment")), args...)
		return
	}
	r.deps.Log.Info("state done", args...)
}

// retryData are the settings of retry. Where one is of another form than it
// must have, the default counts, as with Salt.
type retryData struct {
	until                     bool
	attempts, interval, splay int64
}

func readRetry(v any) retryData {
	d := retryData{until: true, attempts: 2, interval: 30}
	switch x := v.(type) {
	case bool:
		if !x {
			d.attempts = 0
		}
	case *value.Dict:
		if b, ok := x.At("until").(bool); ok {
			d.until = b
		}
		for k, p := range map[string]*int64{"attempts": &d.attempts, "interval": &d.interval, "splay": &d.splay} {
			if n, ok := wholeNumber(x.At(k)); ok {
				*p = n
			}
		}
	}
	return d
}

// wholeNumber reads a setting; True is 1, as in Python.
func wholeNumber(v any) (int64, bool) {
	switch x := v.(type) {
	case int64:
		return x, true
	case bool:
		if x {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

func (d retryData) text() string {
	until := "False"
	if d.until {
		until = "True"
	}
	return fmt.Sprintf("The state would be retried every %d seconds (with a splay of up to %d seconds) a maximum of %d times "+
		"or until a result of %s is returned", d.interval, d.splay, d.attempts, until)
}

func (d retryData) satisfied(res *value.Dict) bool { return res.At("result") == d.until }

// retry repeats a state that did not come to what retry waits for.
func (r *run) retry(u *unit, low, res *value.Dict, attempt int) *value.Dict {
	d := readRetry(low.At("retry"))
	if r.opts.Test {
		res.Set("comment", value.Str(res.At("comment"))+"  "+d.text())
		return res
	}
	if d.satisfied(res) || d.attempts <= int64(attempt) {
		return res
	}
	waited := r.pause(d)
	if r.ctx.Err() != nil {
		return res
	}
	again := r.call(u, low, attempt+1)
	again.Set("comment", fmt.Sprintf("Attempt %d: Returned a result of \"%s\", with the following comment: \"%s\"\n%s",
		attempt, value.Str(res.At("result")), value.Str(res.At("comment")), value.Str(again.At("comment"))))
	again.Set("duration", asFloat(again.At("duration"))+asFloat(res.At("duration"))+waited.Seconds()*1000)
	if attempt == 1 {
		again.Set("start_time", res.At("start_time"))
	}
	return again
}

func asFloat(v any) float64 {
	f, _ := v.(float64)
	return f
}

// pause waits between two attempts.
func (r *run) pause(d retryData) time.Duration {
	delay := time.Duration(d.interval) * time.Second
	if d.splay > 0 {
		delay += time.Duration(random(d.splay+1)) * time.Second
	}
	wait.Sleep(r.ctx, delay)
	return delay
}
