package engine_test

import (
	"strings"
	"testing"

	"brine/internal/state/engine"
	"brine/internal/value"
	"brine/internal/yaml"
)

// TestFormsOfKeywords holds what Salt passes over in silence to a clear word.
func TestFormsOfKeywords(t *testing.T) {
	for _, c := range []struct {
		arg  string
		want string // in the comment of the failed state; "" if it runs
	}{
		{"onlyif: 5", "onlyif: 5 is a int, where a command is expected, a mapping with fun, or a list of these"},
		{"onlyif: [5, 'true']", "onlyif: 5 is a int"},
		{"unless: 2.5", "unless: 2.5 is a float"},
		{"unless: [[a]]", "unless: ['a'] is a list"},
		{"unless: {args: [1]}", "unless: {'args': [1]} names no function: write it as fun: module.function"},
		{"onlyif: {fun: 5}", "names no function"},
		{"onlyif: 'true'", ""},
		{"onlyif: [{fun: test.ping}, 'true']", ""},
		{"unless: null", ""},
		{"creates: 5", "creates: 5 is a int, where the path of a file is expected"},
		{"creates: [/nonexistent/a, /nonexistent/b]", ""},
		{"check_cmd: 1", "check_cmd: 1 is a int, where a command is expected"},
		{"retry: often", "retry: 'often' is not True, nor a mapping of attempts, interval, splay and until"},
		{"retry: 3", "retry: 3 is not True"},
		{"retry: true", ""},
		{"retry: {attempts: three}", "retry: attempts is 'three', but must be a whole number"},
		{"retry: {attempts: 3, interval: 1, splay: 1, until: true}", ""},
		{"retry: {until: 1}", "retry: until is 1, but must be True or False"},
		{"retry: {attemps: 3}", "retry has no setting 'attemps'; it has attempts, interval, splay and until"},
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

// TestConditionThatIsNone: what a template made True or False decides
// nothing, as with Salt, but is told of.
func TestConditionThatIsNone(t *testing.T) {
	for _, arg := range []string{"onlyif", "unless"} {
		for _, v := range []bool{true, false} {
			low := value.DictOf("state", "test", "fun", "succeed_with_changes", "name", "a", "__id__", "a", "__sls__", "s", "order", int64(1), arg, v)
			res := engine.New(deps(t), engine.Options{}).Run(t.Context(), []*value.Dict{low}).Dict("test_|-a_|-a_|-succeed_with_changes")
			if res.At("result") != true || res.Dict("changes").Len() == 0 || !strings.Contains(value.Str(res.At("warnings")), arg+": "+value.Str(v)+" is no command") {
				t.Errorf("%s: %v: %s", arg, v, value.Repr(res))
			}
		}
	}
}
