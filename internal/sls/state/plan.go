package state

import (
	"context"
	"fmt"

	"brine/internal/py/value"
)

// Plan is what a state has to do. No steps mean that nothing has to change.
type Plan struct {
	// Comment is the comment of the result if there are no steps, or if no step
	// leaves a comment.
	Comment string
	// Steps are executed in order, up to the first failure.
	Steps []Step
	// Warnings are always shown with the result, also with an error.
	Warnings []string
	// SkipWatch suppresses mod_watch although a watched state has changed.
	SkipWatch bool
	// Extra has further keys of the result, besides Salt's usual ones.
	Extra *value.Dict
	// Forecast replaces the result of test=True: by default a result of None with
	// the changes and comments of the steps, or, without steps, the same as a real
	// run.
	Forecast *Result
	// Whole, if set, replaces all of the above: it executes the state, or in test
	// mode predicts it, and returns the result. It is for states that run
	// elsewhere, on minions or by functions of other masters; local states use
	// Steps, so that a test shows what a run does.
	Whole func(ctx context.Context, test bool) Result
}

// Step is one change to make.
type Step struct {
	// Change predicts the effect of Do; test=True shows it.
	Change Change
	// Do executes the step and returns the actual change, which may be larger than
	// predicted. A nil Diff and an empty Comment mean none: they are not taken from
	// the prediction. An error makes the state fail with the error's text as its
	// comment; the change returned with it is kept.
	Do func(ctx context.Context) (Change, error)
}

// Change is a change by a state.
type Change struct {
	// Diff is merged into the result's changes, for example {"mode": "0644"}
	// or {"nginx": {"old": "", "new": "1.2"}}.
	Diff *value.Dict
	// Comment is a sentence for the user. Those of several steps become several
	// lines.
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

// Value returns the verdict as in results: true, false or nil.
func (v Verdict) Value() any {
	switch v {
	case Succeeded:
		return true
	case Failed:
		return false
	}
	return nil
}

// Result is the result of a state, as stored by the engine.
type Result struct {
	Verdict  Verdict
	Comment  string
	Changes  *value.Dict // nil for none
	Warnings []string
	// SkipWatch suppresses mod_watch.
	SkipWatch bool
	Extra     *value.Dict
}

// Errorf creates the error of a failing state or step. Its text is shown to
// users unchanged, so it begins and ends like Salt's comments.
func Errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }
