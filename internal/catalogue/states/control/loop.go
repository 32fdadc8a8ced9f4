package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("loop", func() state.Module {
		return state.Module{Name: "loop", Doc: `Call a function until it returns what is wanted.`, Funcs: []state.Func{
			state.Of("until", until, `Wait until a condition holds for what a function returns.
			The condition is an expression of Jinja, in which m_ret is what the function returned; Salt has one of Python there.`),
			state.Of("until_no_eval", untilNoEval, `Wait until a function returns what is expected.`),
		}}
	})
}

type untilArgs struct {
	Name      string      `salt:"name" doc:"name of the function"`
	Args      []any       `salt:"m_args" doc:"its arguments" default:"null"`
	Kwargs    *value.Dict `salt:"m_kwargs" doc:"its keywords" default:"null"`
	Condition any         `salt:"condition" doc:"expression that has to hold; m_ret is what the function returned" default:"null"`
	Period    any         `salt:"period" doc:"seconds between two calls" default:"1"`
	Timeout   any         `salt:"timeout" doc:"seconds after which the state fails" default:"60"`
}

// times reads period and timeout.
func times(period, timeout any) (every, limit time.Duration, fault string) {
	seconds := func(v any) (time.Duration, bool) {
		switch v := v.(type) {
		case int64:
			return time.Duration(v) * time.Second, true
		case float64:
			return time.Duration(v * float64(time.Second)), true
		}
		return 0, false
	}
	every, ok := seconds(period)
	if !ok {
		return 0, 0, "Period must be specified as a float in seconds"
	}
	if limit, ok = seconds(timeout); !ok {
		return 0, 0, "Timeout must be specified as a float in seconds"
	}
	return every, limit, ""
}

func until(_ context.Context, e *state.Env, a untilArgs) (state.Plan, error) {
	return whole(func(ctx context.Context, test bool) state.Result {
		every, limit, fault := times(a.Period, a.Timeout)
		switch {
		case !e.Can(a.Name):
			return failed("Cannot find module %s", a.Name)
		case a.Condition == nil:
			return failed("An exit condition must be specified")
		case fault != "":
			return failed("%s", fault)
		case test:
			return undecided("The execution module %s will be run", a.Name)
		}
		condition := value.Str(a.Condition)
		met := false
		_, err := repeated(ctx, every, limit, func(int) (bool, error) {
			got, err := e.Exec(ctx, a.Name, a.Kwargs, a.Args...)
			if err != nil {
				return true, err
			}
			met, err = holds(ctx, e, condition, got)
			return met, err
		})
		switch {
		case err != nil:
			return failed("%v", err)
		case !met:
			return failed("Timed out while waiting for condition %s", condition)
		}
		return succeeded("Condition %s was met", condition)
	})
}

// holds evaluates a condition with the template engine, which is safe, unlike
// Python.
func holds(ctx context.Context, e *state.Env, condition string, got any) (bool, error) {
	out, err := e.Template(ctx, state.Template{
		Engine: "jinja", Source: "{% if " + condition + " %}yes{% endif %}", Name: "condition", Saltenv: e.Saltenv, Context: value.DictOf("m_ret", got),
	})
	if err != nil {
		reason, _, _ := strings.Cut(err.Error(), "\n")
		return true, fmt.Errorf("the condition %s cannot be evaluated: %s: it has to be an expression of Jinja (m_ret|length in place of len(m_ret))",
			condition, reason)
	}
	return out == "yes", nil
}

// repeated calls do until it is done, fails, or the time limit is over, and
// returns the number of attempts.
func repeated(ctx context.Context, every, limit time.Duration, do func(attempt int) (done bool, err error)) (attempts int, err error) {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		attempts++
		if done, err := do(attempts); done || err != nil {
			return attempts, err
		}
		if !wait.Sleep(ctx, every) {
			return attempts, fmt.Errorf("the wait was interrupted: %w", context.Cause(ctx))
		}
	}
	return attempts, nil
}

type untilNoEvalArgs struct {
	Name     string      `salt:"name" doc:"name of the function"`
	Expected any         `salt:"expected" doc:"what it has to return"`
	Operator string      `salt:"compare_operator" doc:"eq, ne, lt, le, gt, ge, contains, is_ or is_not; or a function that is called with both and returns whether they fit" default:"eq"`
	Timeout  any         `salt:"timeout" doc:"seconds after which the state fails" default:"60"`
	Period   any         `salt:"period" doc:"seconds between two calls" default:"1"`
	InitWait any         `salt:"init_wait" doc:"seconds to wait before the first call" default:"0"`
	Args     []any       `salt:"args" doc:"its arguments" default:"null"`
	Kwargs   *value.Dict `salt:"kwargs" doc:"its keywords" default:"null"`
}

func untilNoEval(_ context.Context, e *state.Env, a untilNoEvalArgs) (state.Plan, error) {
	return whole(func(ctx context.Context, test bool) state.Result {
		every, limit, fault := times(a.Period, a.Timeout)
		compare := a.comparator(ctx, e)
		switch {
		case test: // as in Salt, for any arguments
			return undecided("Would have waited for \"%s\" to produce \"%s\".", a.Name, value.Str(a.Expected))
		case !e.Can(a.Name):
			return failed("Module.function \"%s\" is unavailable.", a.Name)
		case fault != "":
			return failed("%s", fault)
		case compare == nil:
			return failed("Invalid operator \"%s\" supplied.", a.Operator)
		}
		if first, _, fault := times(a.InitWait, a.Timeout); fault == "" {
			if !wait.Sleep(ctx, first) {
				return failed("the wait was interrupted: %v", context.Cause(ctx))
			}
		}
		fits := false
		n, err := repeated(ctx, every, limit, func(int) (bool, error) {
			got, err := e.Exec(ctx, a.Name, a.Kwargs, a.Args...)
			if err != nil {
				class := ""
				if name := fn.ClassOf(err); name != "" {
					class = "<class '" + name + "'>:"
				}
				return true, state.Errorf("Exception occurred while executing %s: %s%w", a.Name, class, err)
			}
			fits, err = compare(got)
			return fits, err
		})
		switch {
		case err != nil:
			return failed("%v", err)
		case !fits:
			return failed("Call did not produce the expected result after %d attempts", n)
		}
		return succeeded("Call provided the expected results in %d attempts", n)
	})
}

// comparator returns a function that compares a value, nil for an unknown
// operator.
func (a untilNoEvalArgs) comparator(ctx context.Context, e *state.Env) func(got any) (bool, error) {
	if e.Can(a.Operator) {
		return func(got any) (bool, error) {
			v, err := e.Exec(ctx, a.Operator, nil, got, a.Expected)
			return value.Truth(v), err
		}
	}
	equal := func(got any) bool { return value.Equal(got, a.Expected) }
	ordered := func(want func(c int) bool) func(any) (bool, error) {
		return func(got any) (bool, error) {
			c, ok := value.Compare(got, a.Expected)
			if !ok {
				return false, fmt.Errorf("%s cannot be compared with %s by %s", value.Repr(got), value.Repr(a.Expected), a.Operator)
			}
			return want(c), nil
		}
	}
	switch a.Operator {
	case "eq", "is_":
		return func(got any) (bool, error) { return equal(got), nil }
	case "ne", "is_not":
		return func(got any) (bool, error) { return !equal(got), nil }
	case "lt":
		return ordered(func(c int) bool { return c < 0 })
	case "le":
		return ordered(func(c int) bool { return c <= 0 })
	case "gt":
		return ordered(func(c int) bool { return c > 0 })
	case "ge":
		return ordered(func(c int) bool { return c >= 0 })
	case "contains":
		return func(got any) (bool, error) { return contains(got, a.Expected), nil }
	}
	return nil
}

// contains reports whether a list, the keys of a map, or a string contains an
// item.
func contains(v, item any) bool {
	switch v := v.(type) {
	case *value.List:
		return slices.ContainsFunc(v.Items, func(it any) bool { return value.Equal(it, item) })
	case *value.Dict:
		return value.Hashable(item) && v.Has(item)
	case string:
		part, ok := item.(string)
		return ok && strings.Contains(v, part)
	}
	return false
}
