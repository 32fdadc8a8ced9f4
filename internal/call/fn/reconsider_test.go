package fn_test

import (
	"context"
	"testing"

	"brine/internal/call/fn"
)

// TestReconsider installs a required program after the registry was created.
func TestReconsider(t *testing.T) {
	there := false
	tool := fn.Module{Name: "tool", When: func(fn.Reader) (string, bool) { return "tool is not installed", there },
		Funcs: []fn.Func{fn.Of("run", func(context.Context, *fn.Call, struct{}) (string, error) { return "ran", nil }, `Run it.`)}}
	r, err := fn.NewRegistry(nil, tool)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Lookup("tool.run"); err == nil || err.Error() != "'tool' __virtual__ returned False: tool is not installed" {
		t.Errorf("before: %v", err)
	}
	there = true
	if v, err := r.Call(t.Context(), &fn.Call{}, "tool.run", nil, nil); v != "ran" || err != nil {
		t.Errorf("after: %v, %v", v, err)
	}
	if r.Has("tool.none") {
		t.Error("found an undeclared function")
	}
}
