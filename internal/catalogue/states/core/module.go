package core

import (
	"context"
	"errors"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

type module struct{}

func init() {
	units.Declare("module", func() state.Module {
		return state.Module{Name: "module", Doc: `Call execution functions.`, Funcs: []state.Func{
			state.Of("run", module{}.run,
				`Call functions. Keywords with a dot are functions, each with a list of its arguments; without such, the name is the function and the `+
					`keywords are its arguments.`),
			state.Of("wait", module{}.wait, `Call functions when something that the state watches has changed.`),
			state.Of("watch", module{}.wait, `Same as module.wait.`),
			state.Of("mod_watch", module{}.run, `Call the functions of a state that watches.`),
		}}
	})
}

func (module) wait(context.Context, *state.Env, anyArgs) (state.Plan, error) {
	return state.Plan{}, nil
}

func (m module) run(_ context.Context, e *state.Env, a anyArgs) (state.Plan, error) {
	kw := a.Kwargs.Clean() // without __reqs__, which mod_watch gets
	kw.Delete("sfun")
	var calls []string
	legacy := kw.Len() == 0
	for k := range kw.All() {
		name := value.Str(k)
		legacy = legacy || !strings.Contains(name, ".")
		calls = append(calls, name)
	}
	if legacy {
		return m.named(e, a.Name, kw)
	}
	return m.several(e, calls, kw)
}

// several returns the plan for keywords that are functions. A suffix after a
// colon distinguishes two calls of one function.
func (m module) several(e *state.Env, calls []string, kw *value.Dict) (state.Plan, error) {
	var missing, known []string
	for _, key := range calls {
		if fun, _, _ := strings.Cut(key, ":"); e.Can(fun) {
			known = append(known, fun)
		} else {
			missing = append(missing, fun)
		}
	}
	text := func(before string, list []string, after string) string {
		if len(list) == 0 {
			return ""
		}
		if len(list) > 1 {
			before += "s"
		}
		return before + joined(after, list)
	}
	predicted := text("Function", known, " % to be executed.")
	name := value.DictOf("name", value.Strings(calls)) // name in the result, as in Salt
	if len(missing) > 0 {
		problem := text("Unavailable function", missing, ": %.")
		return state.Plan{Extra: name, Forecast: &state.Result{Verdict: state.Failed, Comment: strings.TrimSpace(problem + " " + predicted)}},
			fn.Errorf("%s", problem)
	}
	return state.Plan{Extra: name, Steps: []state.Step{{
		Change: state.Change{Comment: predicted},
		Do: func(ctx context.Context) (state.Change, error) {
			c := state.Change{Diff: value.NewDict(len(calls))}
			var failures, good []string
			for _, key := range calls {
				fun, _, _ := strings.Cut(key, ":")
				v, err := m.call(ctx, e, fun, kw.At(key))
				d, _ := v.(*value.Dict)
				switch {
				case err != nil:
					failures = append(failures, "'"+key+"' failed: "+err.Error())
				case worked(v):
					said := value.Str(v)
					if d != nil {
						said = value.Str(orElse(d.At("comment"), "Success"))
					}
					good = append(good, key+": "+said)
					c.Diff.Set(key, v)
				case d != nil:
					failures = append(failures, "'"+key+"' failed: "+value.Str(orElse(d.At("comment"), "(error message N/A)")))
				default:
					failures = append(failures, "'"+key+"': "+value.Str(v))
				}
			}
			comment := strings.Join(append(failures, good...), ", ")
			if len(failures) > 0 {
				return c, errors.New(comment)
			}
			c.Comment = comment
			return c, nil
		},
	}}}, nil
}

// joined replaces % in text by the comma-separated names.
func joined(text string, names []string) string {
	return strings.Replace(text, "%", strings.Join(names, ", "), 1)
}

func orElse(v, otherwise any) any {
	if v == nil {
		return otherwise
	}
	return v
}

// call calls a function with a list of arguments. Maps in it are keywords.
func (module) call(ctx context.Context, e *state.Env, fun string, given any) (any, error) {
	var args []any
	kw := value.NewDict(2)
	switch v := given.(type) {
	case nil:
	case *value.Dict:
		kw.Update(v)
	case *value.List:
		for _, it := range v.Items {
			if d, ok := it.(*value.Dict); ok {
				kw.Update(d)
			} else {
				args = append(args, it)
			}
		}
	default:
		args = append(args, v)
	}
	f, err := e.Funcs.Lookup(fun)
	if err != nil {
		return nil, err
	}
	var missing []string
	for i, p := range f.Params() {
		if !p.Optional && i >= len(args) && !kw.Has(p.Name) {
			missing = append(missing, p.Name)
		}
	}
	if len(missing) > 0 {
		return nil, fn.Invalidf("Missing arguments: %s", strings.Join(missing, ", "))
	}
	return e.Exec(ctx, fun, kw, args...)
}

// worked reports whether a function succeeded. It failed if it returned false,
// or a map that has a failure at any depth.
func worked(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case *value.Dict:
		for k, it := range v.All() {
			if k == "result" && it == false || k == "retcode" && !value.Equal(it, int64(0)) {
				return false
			}
			if d, ok := it.(*value.Dict); ok && !worked(d) {
				return false
			}
		}
	}
	return true
}

// own lists arguments of functions that a state uses itself. For the function
// they are given with the prefix m_.
var own = []string{"name", "fun", "names", "state", "saltenv"}

func rename(arg string) string {
	if slices.Contains(own, arg) {
		return "m_" + arg
	}
	return arg
}

// named returns the plan of a state whose name is the function.
func (module) named(e *state.Env, fun string, kw *value.Dict) (state.Plan, error) {
	f, err := e.Funcs.Lookup(fun)
	if err != nil {
		return state.Plan{}, fn.Errorf("Module function %s is not available", fun)
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "Module function " + fun + " is set to execute"},
		Do: func(ctx context.Context) (state.Change, error) {
			args, more, err := arguments(f, kw)
			if err != nil {
				return state.Change{}, err
			}
			v, err := e.Exec(ctx, fun, more, args...)
			if err != nil {
				return state.Change{}, fn.Errorf("Module function %s threw an exception. Exception: %w", fun, err)
			}
			c := state.Change{Diff: value.DictOf("ret", v)}
			text := "Module function " + fun + " executed"
			if !worked(v) {
				return c, fn.Errorf("%s", text)
			}
			c.Comment = text
			return c, nil
		},
	}}}, nil
}

// arguments selects a function's arguments from the keywords of a state.
func arguments(f *fn.Func, kw *value.Dict) (args []any, more *value.Dict, err error) {
	more = value.NewDict(4)
	missing := ""
	for _, p := range f.Params() {
		v, ok := kw.Get(rename(p.Name))
		if !ok && p.Optional && p.Name == "names" {
			v, ok = kw.Get(p.Name)
		}
		switch {
		case ok:
			more.Set(p.Name, v)
		case !p.Optional:
			missing += " " + rename(p.Name)
		}
	}
	if missing != "" {
		return nil, nil, fn.Errorf("The following arguments are missing:%s", missing)
	}
	rest, keywords := f.Variadic()
	if v, ok := kw.Get(rename(rest)); ok && rest != "" {
		l, isList := v.(*value.List)
		if !isList {
			return nil, nil, fn.Errorf("'%s' must be a list.", rest)
		}
		// Further positional arguments must come after all declared ones.
		for _, p := range f.Params() {
			if p.Keyword {
				continue
			}
			v, given := more.Get(p.Name)
			if !given {
				v = p.Default
			}
			args = append(args, v)
			more.Delete(p.Name)
		}
		args = append(args, l.Items...)
	}
	if v, ok := kw.Get(keywords); ok && keywords != "" {
		d, isDict := v.(*value.Dict)
		if !isDict {
			return nil, nil, fn.Errorf("'%s' must be a dict.", keywords)
		}
		more.Update(d)
	}
	return args, more, nil
}
