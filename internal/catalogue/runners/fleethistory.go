package runners

import (
	"context"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/store/lastrun"
)

// History has the runs of states of some time.
type History interface {
	// Days returns the days with runs since a time, the oldest first.
	Days(ctx context.Context, since time.Time) ([]lastrun.Day, Source, error)
	// Runs returns a page of runs, and where the next one begins.
	Runs(ctx context.Context, q lastrun.Query) (rows []lastrun.Past, next string, source Source, err error)
}

// Source says where an answer comes from.
type Source struct {
	Name string
	// Problem is why it is not the better one, "" if it is.
	Problem string
}

func (s Source) dict() *value.Dict {
	d := value.DictOf("source", s.Name)
	if s.Problem != "" {
		d.Set("problem", s.Problem)
	}
	return d
}

// errNoHistory is the error where no master runs.
var errNoHistory = salt.Errorf(salt.Unavailable, "only a running master has a history of runs of states")

// maxHistoryDays bounds the days of an answer.
const maxHistoryDays = 3660

type pastArgs struct {
	Outcome string `salt:"outcome" doc:"failed, drift, changed or clean; empty: all" default:""`
	After   string `salt:"after" doc:"next of the page before; empty: the first page" default:""`
	Limit   int    `salt:"limit" doc:"maximum number of runs, up to 1000" default:"100"`
}

type historyArgs struct {
	Days int    `salt:"days" doc:"number of days until today, up to 3660" default:"30"`
	Day  string `salt:"day" doc:"a day, such as 2026-03-01, for its runs; empty: the numbers of all days" default:""`
	pastArgs
}

func (f fleet) history(ctx context.Context, _ *fn.Call, a historyArgs) (*value.Dict, error) {
	if f.console.History == nil {
		return nil, errNoHistory
	}
	if a.Day != "" {
		return f.past(ctx, lastrun.Query{Day: a.Day, Outcome: a.Outcome, After: a.After, Limit: a.Limit})
	}
	n, now := min(max(a.Days, 1), maxHistoryDays), time.Now()
	days, source, err := f.console.History.Days(ctx, now.AddDate(0, 0, 1-n))
	if err != nil {
		return nil, err
	}
	rows := &value.List{}
	for _, d := range days[max(0, len(days)-n-1):] {
		rows.Append(value.DictOf("day", d.Day, "failed", d.Failed, "drift", d.Drift, "changed", d.Changed, "clean", d.Clean))
	}
	out := source.dict()
	out.Set("today", lastrun.DayOf(now))
	out.Set("asked", int64(n))
	out.Set("days", rows)
	return out, nil
}

type pastOfArgs struct {
	ID string `salt:"id" doc:"id of the minion"`
	pastArgs
}

func (f fleet) runsOfMinion(ctx context.Context, _ *fn.Call, a pastOfArgs) (*value.Dict, error) {
	switch {
	case f.console.History == nil:
		return nil, errNoHistory
	case salt.CheckID(a.ID) != nil:
		return nil, salt.Errorf(salt.Invalid, "%.100q is not the id of a minion", a.ID)
	}
	return f.past(ctx, lastrun.Query{Minion: a.ID, Outcome: a.Outcome, After: a.After, Limit: a.Limit})
}

// past returns a page of runs.
func (f fleet) past(ctx context.Context, q lastrun.Query) (*value.Dict, error) {
	found, next, source, err := f.console.History.Runs(ctx, q)
	if err != nil {
		return nil, err
	}
	rows := &value.List{}
	for _, r := range found {
		d := value.DictOf("id", r.Minion, "jid", r.JID, "time", stamp(r.Time), "fun", r.Fun, "test", r.Test, "outcome", r.Outcome(), "ok", r.OK, "changed", r.Changed,
			"failed", r.Failed, "would_change", r.Would, "ms", r.MS)
		if len(r.Mods) > 0 {
			d.Set("mods", value.Strings(r.Mods))
		}
		if r.Broken {
			d.Set("broken", true)
		}
		rows.Append(d)
	}
	out := source.dict()
	out.Set("rows", rows)
	out.Set("next", orNil(next))
	return out, nil
}
