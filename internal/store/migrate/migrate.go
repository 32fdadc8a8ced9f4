// Package migrate copies the data of masters (keys, jobs, minion data) from one place to another while
// masters use both.
//
// A copy only adds. Different data at the target stays, unless it is a cache value older than the source's.
// Each item is written as a whole or not at all, and a job becomes visible when it is complete. So the next
// copy finishes one that was interrupted. Afterwards everything is read again at the target and compared.
package migrate

import (
	"context"
	"fmt"
)

// Report counts the items of one kind by outcome.
type Report struct {
	// Found are the items at the source; each has one of the outcomes Copied to Failed.
	Found int
	// Copied are new at the target, or replaced something older. In a dry run they would be.
	Copied int
	// Same already existed at the target.
	Same int
	// Kept have a different version at the target that was not replaced, because it is newer or of
	// unknown age.
	Kept int
	// Expired are jobs too old for the target.
	Expired int
	// Failed could not be read or written, or differed afterwards.
	Failed int
	// Verified were read at the target afterwards: the same, or a version to keep.
	Verified int
	// Notes name the kept and failed items with the reasons, at most maxNotes.
	Notes []string
}

// maxNotes bounds the notes of a report.
const maxNotes = 100

func (r *Report) note(format string, args ...any) {
	switch {
	case len(r.Notes) < maxNotes:
		r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
	case len(r.Notes) == maxNotes:
		r.Notes = append(r.Notes, "and more")
	}
}

func (r *Report) keep(format string, args ...any) {
	r.Kept++
	r.note(format, args...)
}

func (r *Report) fail(format string, args ...any) {
	r.Failed++
	r.note(format, args...)
}

// Options control a copy.
type Options struct {
	// DryRun only reports.
	DryRun bool
	// Progress, unless nil, is called with the number of finished items; total is 0 while it is unknown.
	Progress func(what string, done, total int)
}

func (o Options) progress(what string, done, total int) {
	if o.Progress != nil {
		o.Progress(what, done, total)
	}
}

// ended returns the error of an interrupted copy.
func ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted; run it again to go on: %w", ctx.Err())
	}
	return nil
}
