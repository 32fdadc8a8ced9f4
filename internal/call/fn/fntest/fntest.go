// Package fntest checks catalogues of functions: each function must be documented and its examples must work.
package fntest

import (
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/host/proc"
)

// Catalogue fails t for each module without description, function without summary or example,
// argument without help, and example that does not parse or has invalid arguments.
func Catalogue(t testing.TB, modules []fn.Module) {
	t.Helper()
	if len(modules) == 0 {
		t.Error("no modules")
	}
	for _, m := range modules {
		if m.Doc == "" {
			t.Errorf("%s: no description", m.Name)
		}
		for i := range m.Funcs {
			function(t, m.Name, &m.Funcs[i])
		}
	}
}

func function(t testing.TB, module string, f *fn.Func) {
	t.Helper()
	full := module + "." + f.Name()
	if s := f.Summary(); s == "" || !strings.HasSuffix(s, ".") {
		t.Errorf("%s: the summary %q is not a sentence", full, s)
	}
	for _, p := range f.Params() {
		if p.Doc == "" && p.Ignored == "" {
			t.Errorf("%s: argument %s has no help", full, p.Name)
		}
	}
	if len(f.Examples()) == 0 {
		t.Errorf("%s: no example", full)
	}
	for _, e := range f.Examples() {
		if err := Example(full, f, e); err != "" {
			t.Errorf("%s: example %q: %s", full, e, err)
		}
	}
}

// Example returns the problem with an example of the function f with the full name full, or "".
func Example(full string, f *fn.Func, line string) string {
	words, err := proc.Split(line)
	if err != nil {
		return err.Error()
	}
	skip := map[string]int{"salt": 2, "salt-call": 1, "salt-run": 1}
	if len(words) == 0 || skip[words[0]] == 0 || len(words) <= skip[words[0]] {
		return "it does not call salt, salt-call or salt-run"
	}
	words = words[skip[words[0]]:]
	if words[0] != full {
		return "it calls " + words[0]
	}
	args, kwargs := fn.ParseWords(words[1:], nil)
	args, kwargs, err = f.Load(fn.Wire(args, kwargs), nil)
	if err != nil {
		return err.Error()
	}
	if _, err := f.Bind(args, kwargs); err != nil {
		return err.Error()
	}
	return ""
}
