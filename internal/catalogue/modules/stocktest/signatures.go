package stocktest

import (
	"slices"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Signatures compares the arguments of all functions with those of Salt's
// functions: the same names in the same order, with the same defaults. The
// jobs of the table are sys.argspec of each module. It fails for a function
// that Salt lacks or that differs, unless differ has it with the reason.
func Signatures(t *testing.T, path string, modules []fn.Module, differ map[string]string) {
	t.Helper()
	specs := value.NewDict(0)
	for _, j := range read(t, path) {
		if d, ok := j.At("return").(*value.Dict); ok {
			specs.Update(d)
		}
	}
	used := map[string]bool{}
	for _, m := range modules {
		for i := range m.Funcs {
			full := m.Name + "." + m.Funcs[i].Name()
			used[full] = true
			_, excused := differ[full]
			switch wrong := signature(&m.Funcs[i], specs.Dict(full)); {
			case wrong == "" && excused:
				t.Errorf("%s is like Salt's after all", full)
			case wrong != "" && !excused:
				t.Errorf("%s: %s", full, wrong)
			}
		}
	}
	for name, why := range differ {
		if !used[name] || why == "" {
			t.Errorf("%s: no such function, or no reason why it differs", name)
		}
	}
	var missing []string
	for k := range specs.All() {
		if !used[value.Str(k)] {
			missing = append(missing, value.Str(k))
		}
	}
	slices.Sort(missing)
	t.Logf("Salt's functions that Brine lacks: %s", strings.Join(missing, " "))
}

// signature returns how a function differs from a specification, "" if it does
// not.
func signature(f *fn.Func, spec *value.Dict) string {
	if spec == nil {
		return "Salt has no such function"
	}
	want, defaults := spec.List("args"), spec.List("defaults")
	var got []any
	for _, p := range f.Params() {
		got = append(got, p.Name)
		at := len(got) - 1 - (len(want) - len(defaults))
		if len(got) > len(want) || got[len(got)-1] != want[len(got)-1] {
			break
		}
		if p.Optional != (at >= 0) {
			return "argument " + p.Name + " is optional in one only"
		}
		if at >= 0 && !value.Equal(p.Default, defaults[at]) && !empty(p.Default, defaults[at]) {
			return "argument " + p.Name + " is " + value.Repr(p.Default) + ", not " + value.Repr(defaults[at])
		}
	}
	if !slices.EqualFunc(got, want, value.Equal) {
		return "takes " + value.Repr(&value.List{Items: got}) + ", not " + value.Repr(&value.List{Items: want})
	}
	if f.TakesArgs() != (spec.At("varargs") != nil) || f.TakesKwargs() != (spec.At("kwargs") != nil) {
		return "*args or **kwargs of one only"
	}
	return ""
}

// empty reports whether both values mean that nothing was given.
func empty(a, b any) bool {
	text, _ := b.(string)
	return (a == nil || a == "") && (b == nil || b == "") || strings.HasPrefix(text, "<Constant")
}
