package state

import (
	"context"
	"fmt"

	"brine/internal/py/value"
)

// Plan is what a state found out. No steps mean that everything is as it was
// declared.
type Plan struct {
	// Comment is the comment of the result when there are no steps, and also
	// after steps that leave no comment of their own.
	Comment string
	// Steps are carried out in their order, up to the first that fails.
	Steps []Step
	// Warnings are shown with the result in any case, also beside an error.
	Warnings []string
	// SkipWatch keeps mod_watch from running although something that the state
	// watches has changed.
	SkipWatch bool
	// Extra holds further keys of the result, beside Salt's usual ones.
	Extra *value.Dict
	// Forecast replaces what test=True shows: by default a result of None
	// with the changes and comments of the steps, or, without steps, the
	// same as a real run.
	Forecast *Result
	// Whole, if set, stands for all of the above: it carries the state out, or
	// in a test finds out what would be done, and returns the result. It is for
	// states that are done elsewhere, by minions or other masters' functions;
	// what is done here uses Steps, so that a test shows what a run follows.
	Whole func(ctx context.Context, test bool) Result
}

// Step is one change that is due.
type Step struct {
	// Change predicts what Do will change; this is shown by test=True.
	Change Change
	// Do carries the step out and returns what it has changed, which may be
	// more than was predicted. A nil Diff and an empty Comment stand for
	// themselves: they are not taken from the predicted change. An error makes
	// the state fail with the error's text as its comment; the change that is
	// returned beside it is kept.
	Do func(ctx context.Context) (Change, error)
}

// Change is a change that a state makes or made.
type Change struct {
	// Diff is merged into the result's changes, for example {"mode": "0644"}
	// or {"nginx": {"old": "", "new": "1.2"}}.
	Diff *value.Dict
	// Comment is a sentence for the user. Those of several steps are shown
	// as several lines.
	Comment string
}

// Verdict is the outcome of a state.
type Verdict int8

// The outcomes. Undecided is Python's None: a test found something to do.
const (
	Undecided Verdict = iota
	Succeeded
	Failed
)

// Value returns the verdict as results hold it: true, false or nil.
func (v Verdict) Value() any {
	switch v {
	case Succeeded:
		return true
	case Failed:
		return false
	}
	return nil
}

// Result is the outcome of a state, as the engine puts it among the results
// of a run.
type Result struct {
	Verdict  Verdict
	Comment  string
	Changes  *value.Dict // nil for none
	Warnings []string
	// SkipWatch keeps mod_watch from running.
	SkipWatch bool
	Extra     *value.Dict
}

// Errorf makes the error of a state or step that fails. Its text is shown to
// users as it is, so it begins and ends as Salt's comments do.
func Errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }
