package orchestration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// orderArgs say which minions get a job, and how it is sent.
type orderArgs struct {
	Name      string `salt:"name" doc:"name of the state; of salt.function the function"`
	Tgt       any    `salt:"tgt" doc:"target"`
	SSH       bool   `salt:"ssh" doc:"must be false: there is no salt-ssh" default:"false"`
	TgtType   string `salt:"tgt_type" doc:"type of the target" default:"glob"`
	Ret       any    `salt:"ret" doc:"returners for the minions to use, as a list or with commas" default:"''"`
	RetConfig any    `salt:"ret_config" doc:"configuration of the returners" default:"null"`
	RetKwargs any    `salt:"ret_kwargs" doc:"options of the returners" default:"null"`
	Expect    bool   `salt:"expect_minions" doc:"fail if minions do not return" default:"true"`
	FailOn    any    `salt:"fail_minions" doc:"minions that may fail, as a list or with commas" default:"null"`
	Timeout   any    `salt:"timeout" doc:"seconds to wait for minions; null: as configured" default:"null"`
	Batch     any    `salt:"batch" doc:"how many minions work at a time, as a number or percentage; null: all" default:"null"`
	Subset    any    `salt:"subset" doc:"of how many minions, chosen at random, it is asked; null: all" default:"null"`
	Failhard  any    `salt:"failhard" doc:"start no more of a batch when one has failed; null: as configured" default:"null"`
}

// keywords returns the keywords for saltutil.cmd.
func (a orderArgs) keywords(e *state.Env) *value.Dict {
	kw := value.DictOf("tgt_type", a.TgtType, "ret", strings.Join(value.Split(a.Ret), ","), "timeout", a.Timeout, "ssh", a.SSH, "expect_minions", a.Expect)
	for k, v := range map[string]any{"ret_config": a.RetConfig, "ret_kwargs": a.RetKwargs} {
		if value.Truth(v) {
			kw.Set(k, v)
		}
	}
	if a.Batch != nil {
		kw.Set("batch", value.Str(a.Batch))
	}
	if a.Subset != nil {
		kw.Set("subset", a.Subset)
	}
	if a.Failhard == true || value.Truth(e.Config.Get("failhard")) {
		kw.Set("failhard", true)
	}
	return kw
}

// mayFail returns the minions whose failure is ignored.
func (a orderArgs) mayFail() (ids []string, warning string) {
	switch a.FailOn.(type) {
	case nil:
		return nil, ""
	case string, *value.List:
		for _, id := range value.Split(a.FailOn) {
			ids = append(ids, strings.TrimSpace(id))
		}
		return ids, ""
	}
	return nil, "'fail_minions' needs to be a list or a comma separated string. Ignored."
}

// command runs a function on minions and returns their returns.
func command(ctx context.Context, e *state.Env, tgt any, fun string, kw *value.Dict) (*value.Dict, error) {
	v, err := e.Exec(ctx, "saltutil.cmd", kw, tgt, fun)
	if err != nil {
		return nil, err
	}
	d, _ := v.(*value.Dict)
	return d, nil
}

type stateArgs struct {
	orderArgs
	Highstate  any       `salt:"highstate" doc:"apply all that the top file gives" default:"null"`
	SLS        any       `salt:"sls" doc:"names of SLS files, as a list or with commas" default:"null"`
	Top        any       `salt:"top" doc:"name of a top file" default:"null"`
	Saltenv    any       `salt:"saltenv" doc:"environment" default:"null"`
	Test       any       `salt:"test" doc:"only show what would be done; null: as this run does" default:"null"`
	Pillar     any       `salt:"pillar" doc:"pillar to merge over that of the minions" default:"null"`
	Pillarenv  any       `salt:"pillarenv" doc:"environment of the pillar" default:"null"`
	Exclude    any       `salt:"exclude" doc:"SLS files, or maps of sls or id, that are left out" default:"null"`
	AllowFail  any       `salt:"allow_fail" doc:"how many minions may fail" default:"0"`
	Concurrent any       `salt:"concurrent" doc:"run beside other state runs" default:"false"`
	Queue      any       `salt:"queue" doc:"wait for other state runs" default:"false"`
	Kwargs     fn.Kwargs `salt:"kwargs"`
}

func (m mod) state(_ context.Context, e *state.Env, a stateArgs) (state.Plan, error) {
	return state.Plan{Whole: func(ctx context.Context, test bool) state.Result { return m.applyStates(ctx, e, a, test) }}, nil
}

func (m mod) applyStates(ctx context.Context, e *state.Env, a stateArgs, test bool) state.Result {
	allowed, err := strconv.Atoi(strings.TrimSpace(value.Str(a.AllowFail)))
	if err != nil {
		return outcome(false, "Passed invalid value for 'allow_fail', must be an int")
	}
	var fun, what string
	kwargs := value.NewDict(8)
	switch {
	case value.Truth(a.Highstate):
		fun = "state.highstate"
	case value.Truth(a.Top):
		fun, what = "state.top", "topfn"
		kwargs.Set(what, value.Str(a.Top))
	case value.Truth(a.SLS):
		fun, what = "state.sls", "mods"
		kwargs.Set(what, strings.Join(value.Split(a.SLS), ","))
	default:
		return outcome(false, "No highstate or sls specified, no execution made")
	}
	if a.Test == nil && test {
		a.Test = true
	}
	for _, kv := range []struct {
		key  string
		v    any
		have bool
	}{
		{"test", a.Test, a.Test != nil}, {"pillar", a.Pillar, value.Truth(a.Pillar)}, {"pillarenv", a.Pillarenv, a.Pillarenv != nil},
		{"saltenv", a.Saltenv, a.Saltenv != nil}, {"exclude", a.Exclude, a.Exclude != nil}, {"queue", a.Queue, true}, {"concurrent", a.Concurrent, true},
	} {
		if kv.have {
			kwargs.Set(kv.key, kv.v)
		}
	}
	if _, ok := a.Concurrent.(bool); !ok {
		return outcome(false, "Must pass in boolean for value of 'concurrent'")
	}
	var returned *value.Dict
	if e.Config.Get("__role") == "minion" && e.Config.Get("file_client") == "local" {
		ret, err := e.Exec(ctx, fun, kwargs)
		if err != nil {
			return outcome(false, err.Error())
		}
		returned = value.DictOf(e.ID, value.DictOf("ret", ret, "out", "highstate"))
	} else {
		kw := a.keywords(e)
		args := &value.List{}
		if what != "" {
			args.Append(kwargs.At(what))
			kwargs.Delete(what)
		}
		kw.Set("arg", args)
		kw.Set("kwarg", kwargs)
		m.tell(e, value.DictOf("type", "state", "tgt", a.Tgt, "name", a.Name, "args", kw))
		if returned, err = command(ctx, e, a.Tgt, fun, kw); err != nil {
			return outcome(false, err.Error())
		}
	}
	res := a.judge(returned, allowed)
	if (value.Truth(a.Test) || test) && res.Verdict == state.Succeeded && res.Changes.Len() > 0 {
		res.Verdict = state.Undecided
	}
	return res
}

// judge computes the result from the returns of minions.
func (a stateArgs) judge(returned *value.Dict, allowed int) state.Result {
	if returned.Len() == 0 && a.Expect {
		return outcome(false, "No minions returned")
	}
	mayFail, warning := a.mayFail()
	changes := value.NewDict(0)
	var failed, changed, unchanged []string
	var extra *value.Dict
	for k, v := range returned.All() {
		id := value.Str(k)
		about, _ := v.(*value.Dict)
		if extra == nil {
			extra = jidOf(about)
		}
		ret, ok := about.Get("ret")
		results, _ := ret.(*value.Dict)
		if !ok || !state.AllSucceeded(results, true, nil) {
			if !ok {
				ret = false
			}
			if !slices.Contains(mayFail, id) {
				failed = append(failed, id)
			}
			changes.Set(id, ret)
			changed = append(changed, id)
			continue
		}
		if hasChanges(results) {
			changes.Set(id, ret)
			changed = append(changed, id)
		} else {
			unchanged = append(unchanged, id)
		}
	}
	var res state.Result
	if len(failed) > allowed {
		res = outcome(false, "Run failed on minions: "+strings.Join(failed, ", "))
	} else {
		text := "States ran successfully."
		if len(changed) > 0 {
			text += " Updating " + strings.Join(changed, ", ") + "."
		}
		if len(unchanged) > 0 {
			text += " No changes made to " + strings.Join(unchanged, ", ") + "."
		}
		res = outcome(true, text)
	}
	if changes.Len() > 0 {
		res.Changes = value.DictOf("out", "highstate", "ret", changes)
	}
	if warning != "" {
		res.Warnings = []string{warning}
	}
	res.Extra = extra
	return res
}

func hasChanges(results *value.Dict) bool {
	for _, v := range results.All() {
		if d, ok := v.(*value.Dict); ok && value.Truth(d.At("changes")) {
			return true
		}
	}
	return false
}

type functionArgs struct {
	orderArgs
	FailFunction string    `salt:"fail_function" doc:"execution function that is given what each minion returned, and returns whether that is good" default:"null"`
	Arg          any       `salt:"arg" doc:"arguments, as a list" default:"null"`
	Kwarg        any       `salt:"kwarg" doc:"named arguments" default:"null"`
	Kwargs       fn.Kwargs `salt:"kwargs"`
}

func (m mod) function(_ context.Context, e *state.Env, a functionArgs) (state.Plan, error) {
	return state.Plan{Whole: func(ctx context.Context, test bool) state.Result {
		var warnings []string
		if s, ok := a.Arg.(string); ok {
			warnings = []string{"Please specify 'arg' as a list of arguments."}
			a.Arg = value.Strings(strings.Fields(s))
		}
		res := m.callFunction(ctx, e, a, test)
		res.Warnings = append(warnings, res.Warnings...)
		return res
	}}, nil
}

func (m mod) callFunction(ctx context.Context, e *state.Env, a functionArgs, test bool) state.Result {
	if test {
		return forecast(fmt.Sprintf("Function %s would be executed on target %s", a.Name, value.Str(a.Tgt)))
	}
	kw := a.keywords(e)
	if kw.Set("arg", a.Arg); a.Arg == nil {
		kw.Set("arg", &value.List{})
	}
	if kw.Set("kwarg", a.Kwarg); a.Kwarg == nil {
		kw.Set("kwarg", value.NewDict(0))
	}
	m.tell(e, value.DictOf("type", "function", "tgt", a.Tgt, "name", a.Name, "args", kw))
	returned, err := command(ctx, e, a.Tgt, a.Name, kw)
	switch {
	case err != nil:
		return outcome(false, err.Error())
	case returned.Len() == 0:
		return outcome(false, "No minions responded")
	}
	mayFail, warning := a.mayFail()
	changes := value.NewDict(returned.Len())
	var failed, ran []string
	var extra *value.Dict
	for k, v := range returned.All() {
		id := value.Str(k)
		about, _ := v.(*value.Dict)
		if extra == nil {
			extra = jidOf(about)
		}
		ret, ok := about.Get("ret")
		good := ok && ret != false
		if !ok {
			ret = false
		}
		if ok && a.FailFunction != "" {
			v, err := e.Exec(ctx, a.FailFunction, nil, ret)
			if err != nil {
				return outcome(false, fmt.Sprintf("fail_function %s: %v", a.FailFunction, err))
			}
			good = good && value.Truth(v)
		}
		if value.Truth(about.At("retcode")) || !good && !slices.Contains(mayFail, id) {
			failed = append(failed, id)
		}
		changes.Set(id, ret)
		ran = append(ran, id)
	}
	res := outcome(true, "Function ran successfully.")
	if len(failed) > 0 {
		res = outcome(false, fmt.Sprintf("Running function %s failed on minions: %s", a.Name, strings.Join(failed, ", ")))
	}
	res.Comment += fmt.Sprintf(" Function %s ran on %s.", a.Name, strings.Join(ran, ", "))
	res.Changes = value.DictOf("ret", changes)
	res.Extra = extra
	if warning != "" {
		res.Warnings = []string{warning}
	}
	return res
}
