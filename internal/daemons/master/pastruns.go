package master

import (
	"context"
	"fmt"
	"time"

	"brine/internal/catalogue/runners"
	"brine/internal/store/lastrun"
)

// pastRuns answers consoles about the history of runs of states: from the console_store, where several masters have theirs,
// or this master's own file without one, or while it is unreachable.
type pastRuns struct {
	own     *lastrun.History
	console *consoleStore
}

var _ runners.History = pastRuns{}

// from calls one of two functions.
func (p pastRuns) from(ctx context.Context, server func(context.Context) error, own func() error) (source runners.Source, err error) {
	if p.console != nil {
		within, cancel := context.WithTimeout(ctx, consoleAnswer)
		defer cancel()
		if err = server(within); err == nil {
			return runners.Source{Name: "console_store"}, nil
		}
		source.Problem = fmt.Sprintf("the console_store does not answer; this is what this master knows: %.300s", err)
	}
	source.Name = "master"
	return source, own()
}

// Days implements runners.History.
func (p pastRuns) Days(ctx context.Context, since time.Time) (days []lastrun.Day, source runners.Source, err error) {
	source, err = p.from(ctx, func(ctx context.Context) error { days, err = p.console.db.Days(ctx, since); return err },
		func() error { days, err = p.own.Days(since); return err })
	return days, source, err
}

// Runs implements runners.History.
func (p pastRuns) Runs(ctx context.Context, q lastrun.Query) (rows []lastrun.Past, next string, source runners.Source, err error) {
	source, err = p.from(ctx, func(ctx context.Context) error { rows, next, err = p.console.db.Runs(ctx, q); return err },
		func() error { rows, next, err = p.own.Runs(q); return err })
	return rows, next, source, err
}
