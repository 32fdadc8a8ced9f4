package engine_test

import (
	"strings"
	"testing"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/internal/sls/state/engine"
)

// TestFormsOfKeywords checks that values without a meaning cause a
// clear error.
func TestFormsOfKeywords(t *testing.T) {
	for _, c := range []struct {
		arg  string
		want string // expected part of the failed state's comment; "" if it runs
	}{
		{"unless: {args: [1]}", ""},
		{"onlyif: [{}]", ""},
		{"unless: [{}]", ""},
		{"onlyif: {fun: 5}", "names no function"},
		{"onlyif: 'true'", ""},
		{"onlyif: [{fun: test.ping}, 'true']", ""},
		{"unless: null", ""},
		{"creates: 5", "creates: 5 is a int, where the path of a file is expected"},
		{"creates: [/nonexistent/a, /nonexistent/b]", ""},
		{"check_cmd: 1", "check_cmd: 1 is a int, where a command is expected"},
	} {
		v, err := yaml.Load([]byte("{state: test, fun: succeed_without_changes, name: a, __id__: a, __sls__: s, __env__: base, order: 1, "+c.arg+"}"), "low")
		if err != nil {
			t.Fatal(err)
		}
		results := engine.New(deps(t), engine.Options{}).Run(t.Context(), []*value.Dict{v.(*value.Dict)})
		res := results.Dict("test_|-a_|-a_|-succeed_without_changes")
		if ran := res.At("result") == true; ran != (c.want == "") || !strings.Contains(res.Str("comment"), c.want) {
			t.Errorf("%s: %s, want %q", c.arg, value.Repr(res), c.want)
		}
		if res.Has("warnings") {
			t.Errorf("%s: warnings %s", c.arg, value.Repr(res.At("warnings")))
		}
	}
}

// TestRetryOfOtherForms checks that an unusable setting is reported, and that
// the default is used, as in Salt.
func TestRetryOfOtherForms(t *testing.T) {
	const usual = "every 30 seconds (with a splay of up to 0 seconds) a maximum of 2 times or until a result of True "
	for _, c := range []struct {
		arg, warning string // "" for none
		plan         string // comment in test mode
	}{
		{"often", "retry: 'often' is not True, nor a mapping of attempts, interval, splay and until", usual},
		{"3", "retry: 3 is not True", usual},
		{"null", "retry: None is not True", usual},
		{"true", "", usual},
		{"{}", "", usual},
		{"{attempts: '3', interval: 5}", "retry: attempts is '3', but must be a whole number; the default is used",
			"every 5 seconds (with a splay of up to 0 seconds) a maximum of 2 times "},
		{"{attempts: 3, interval: 0.5}", "retry: interval is 0.5, but must be a whole number",
			"every 30 seconds (with a splay of up to 0 seconds) a maximum of 3 times "},
		{"{splay: '1'}", "retry: splay is '1', but must be a whole number", usual},
		{"{attempts: 3, interval: 1, splay: 1, until: true}", "", "every 1 seconds (with a splay of up to 1 seconds) a maximum of 3 times "},
		{"{until: 1}", "retry: until is 1, but must be True or False", usual},
		{"{attemps: 3}", "retry has no setting 'attemps'; it has attempts, interval, splay and until", usual},
	} {
		v, err := yaml.Load([]byte("{state: test, fun: succeed_without_changes, name: a, __id__: a, __sls__: s, __env__: base, order: 1, retry: "+c.arg+"}"),
			"low")
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range []bool{true, false} {
			res := engine.New(deps(t), engine.Options{Test: test}).Run(t.Context(),
				[]*value.Dict{v.(*value.Dict)}).Dict("test_|-a_|-a_|-succeed_without_changes")
			if res.At("result") != true || res.Has("warnings") != (c.warning != "") || !strings.Contains(warning(res), c.warning) {
				t.Errorf("%s: %s, want the warning %q", c.arg, value.Repr(res), c.warning)
			}
			if test && !strings.Contains(res.Str("comment"), c.plan) {
				t.Errorf("%s: %s, want %q", c.arg, res.Str("comment"), c.plan)
			}
		}
	}
}

// warning is the first warning of a result.
func warning(res *value.Dict) string {
	if l, ok := res.At("warnings").(*value.List); ok && len(l.Items) > 0 {
		return value.Str(l.Items[0])
	}
	return ""
}

// TestConditionThatIsNone checks that a condition that a template made True,
// False or a number has no effect, as in Salt, but is reported.
func TestConditionThatIsNone(t *testing.T) {
	for _, arg := range []string{"onlyif", "unless"} {
		for _, v := range []any{true, false, int64(0), 2.5} {
			low := value.DictOf("state", "test", "fun", "succeed_with_changes", "name", "a", "__id__", "a", "__sls__", "s", "order", int64(1), arg, v)
			res := engine.New(deps(t), engine.Options{}).Run(t.Context(), []*value.Dict{low}).Dict("test_|-a_|-a_|-succeed_with_changes")
			if res.At("result") != true || res.Dict("changes").Len() == 0 ||
				!strings.Contains(value.Str(res.At("warnings")), arg+": "+value.Str(v)+" is no command") {
				t.Errorf("%s: %v: %s", arg, v, value.Repr(res))
			}
		}
	}
}

// TestSlotWithoutValue checks that a slot that yields null leaves an argument
// at its default, as Salt's functions accept None, and that a required
// argument fails.
func TestSlotWithoutValue(t *testing.T) {
	const null = "'__slot__:salt:test.arg(x).no.such'"
	for _, c := range []struct {
		low    string
		result bool
		want   string // in the comment
	}{
		{"state: test, fun: configurable_test_state, name: a, changes: false, result: true, comment: " + null, true, ""},
		{"state: test, fun: show_notification, name: a, text: " + null, false, "text"},
		{"state: test, fun: nop, name: " + null, false, "argument 'name': expected a string, got null"},
	} {
		v, err := yaml.Load([]byte("{"+c.low+", __id__: a, __sls__: s, __env__: base, order: 1}"), "low")
		if err != nil {
			t.Fatal(err)
		}
		results := engine.New(deps(t), engine.Options{}).Run(t.Context(), []*value.Dict{v.(*value.Dict)})
		_, res := results.Entry(0)
		if d := res.(*value.Dict); d.At("result") != c.result || !strings.Contains(d.Str("comment"), c.want) {
			t.Errorf("%s: %s", c.low, value.Repr(d))
		}
	}
}
