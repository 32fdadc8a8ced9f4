// Package migrate copies what masters keep (keys, jobs, what is known of
// minions) from one place to another while masters use both.
//
// A copy adds. What is at the target and differs stays, unless it is a value
// of the cache that is older than that of the source. Each thing is written as
// a whole or not at all, and a job is to be seen when all of it is there, so
// that a copy that was cut off is finished by the next one. Afterwards
// everything is read again at the target and compared.
package migrate

import (
	"context"
	"fmt"
)

// Report counts what was done with things of one sort.
type Report struct {
	// Found are those at the source; each is one of the following.
	Found int
	// Copied are new at the target, or replaced something older. In a dry run
	// they would be.
	Copied int
	// Same were there already.
	Same int
	// Kept are those of which the target has another, newer or of unknown age,
	// that stays.
	Kept int
	// Expired are jobs too old for the target.
	Expired int
	// Failed could not be read or written, or were not the same afterwards.
	Failed int
	// Verified are those that were found at the target afterwards: the same, or
	// what was to be kept.
	Verified int
	// Notes say which were kept or failed and why, at most maxNotes.
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

// Options say how to copy.
type Options struct {
	// DryRun only looks.
	DryRun bool
	// Progress, unless nil, is told how many of how many things are done; total
	// is 0 while it is not known.
	Progress func(what string, done, total int)
}

func (o Options) tell(what string, done, total int) {
	if o.Progress != nil {
		o.Progress(what, done, total)
	}
}

// ended is the error of a copy that was interrupted.
func ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted; run it again to go on: %w", ctx.Err())
	}
	return nil
}
