package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"brine/internal/base/log/redact"
	"brine/internal/base/wait"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

var allRequisites = append(slices.Clone(state.Requisites), state.RequisitesIn...)

// call runs one state function, or only requests its plan, and returns its
// result. attempt counts from 1.
func (r *run) call(u *unit, low *value.Dict, attempt int) *value.Dict {
	began := r.now()
	f, mask, faults := r.verifier.verify(low)
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

// evaluate checks unless, onlyif and creates, runs the function, and runs
// check_cmd.
func (r *run) evaluate(u *unit, f *state.Func, low *value.Dict, mask *int) *value.Dict {
	c := r.deps.Call().Prepare()
	if s, ok := low.At("runas").(string); ok {
		c.RunAs = s
	}
	var res *value.Dict
	if low.Has("unless") || low.Has("onlyif") || low.Has("creates") {
		if check := r.conditions.unmet(c, low); check != nil {
			res = value.DictOf("result", false, "name", low.At("name"), "changes", value.NewDict(0))
			res.Update(check)
		}
	}
	switch {
	case res != nil:
	case r.opts.Mock:
		res = value.DictOf("name", low.At("name"), "comment", "Not called, mocked", "changes", value.NewDict(0), "result", true)
	case !r.conditions.global(c, low):
		res = value.DictOf("name", low.At("name"), "comment", "Failed to meet global state conditions. State not called.",
			"changes", value.NewDict(0), "result", nil)
	case value.Truth(low.At("parallel")) && !u.prereq:
		res = r.start(u, f, c, low, mask)
	default:
		res = r.performer.perform(r.ctx, f, c, low, mask, r.opts.Test || u.prereq)
	}
	if _, own := f.Param("check_cmd"); low.Has("check_cmd") && !own {
		res.Update(r.conditions.checkCmd(c, low))
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

// reload collects again what the state requests.
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

// retryData are the settings of retry. A setting of the wrong type gets its
// default, as in Salt.
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

// retry repeats a state until it has the result that retry waits for.
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
