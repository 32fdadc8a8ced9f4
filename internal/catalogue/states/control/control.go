// Package control holds the states that manage the minion itself rather than its
// machine, and those that watch or wait without changes: event, schedule,
// beacon, saltutil, loop, process, status and disk. They call the execution
// modules of the same names.
package control

import (
	"context"
	"fmt"
	"strings"

	"brine/internal/catalogue/states"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// units holds the modules, which the files of this package register.
var units = states.Family()

// Modules returns the state modules of this family.
func Modules() []state.Module { return units.Modules(nil) }

// whole returns a plan whose result a function produces as a whole.
func whole(do func(ctx context.Context, test bool) state.Result) (state.Plan, error) {
	return state.Plan{Whole: do}, nil
}

func failed(format string, args ...any) state.Result {
	return state.Result{Verdict: state.Failed, Comment: fmt.Sprintf(format, args...)}
}

func succeeded(format string, args ...any) state.Result {
	return state.Result{Verdict: state.Succeeded, Comment: fmt.Sprintf(format, args...)}
}

func undecided(format string, args ...any) state.Result {
	return state.Result{Verdict: state.Undecided, Comment: fmt.Sprintf(format, args...)}
}

// told returns the comment in an answer of the modules schedule and beacons: a
// string, or lines.
func told(answer *value.Dict) string {
	if l, ok := answer.At("comment").(*value.List); ok {
		return strings.Join(value.Texts(l), "\n")
	}
	return answer.Str("comment")
}
