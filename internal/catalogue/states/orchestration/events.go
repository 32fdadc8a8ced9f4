package orchestration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"brine/internal/base/target"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

type waitArgs struct {
	Name    string        `salt:"name" doc:"glob of the tags"`
	IDList  []any         `salt:"id_list" doc:"what the events have to tell of"`
	EventID string        `salt:"event_id" doc:"field of the events that names an item, or a list of items" default:"id"`
	Timeout time.Duration `salt:"timeout" doc:"seconds to wait" default:"300"`
	Node    string        `salt:"node" doc:"whose events: minion or master" default:"master"`
}

func (m mod) waitForEvent(_ context.Context, e *state.Env, a waitArgs) (state.Plan, error) {
	return state.Plan{Whole: func(ctx context.Context, test bool) state.Result {
		if test {
			return forecast(fmt.Sprintf("Orchestration would wait for event '%s'", a.Name))
		}
		return m.await(ctx, a)
	}}, nil
}

// await removes items from the list as events report them. As in Salt, an
// empty list also waits for an event.
func (m mod) await(ctx context.Context, a waitArgs) state.Result {
	limited, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	began := time.Now()
	left := slices.Clone(a.IDList)
	seen := &value.List{}
	end := func(r state.Result) state.Result {
		if seen.Len() > 0 {
			r.Changes = value.DictOf("minions_seen", seen)
		}
		return r
	}
	glob := target.ParseGlob(a.Name)
	for ev, err := range m.Listen(limited, a.Node, "") {
		if err != nil {
			if errors.Is(limited.Err(), context.DeadlineExceeded) {
				break
			}
			return end(outcome(false, fmt.Sprintf("cannot wait for events: %v", err)))
		}
		if glob.Match(ev.Tag) {
			for _, item := range named(ev.Data, a.EventID) {
				if i := slices.IndexFunc(left, func(v any) bool { return value.Equal(v, item) }); i >= 0 {
					left = slices.Delete(left, i, i+1)
					seen.Append(item)
				}
			}
		}
		if len(left) == 0 {
			return end(outcome(true, fmt.Sprintf("All events seen in %s seconds.", value.Str(time.Since(began).Seconds()))))
		}
	}
	if ctx.Err() != nil {
		return end(outcome(false, "The wait was interrupted: "+context.Cause(ctx).Error()))
	}
	return end(outcome(false, "Timeout value reached."))
}

// named returns the items that an event reports.
func named(data *value.Dict, field string) []any {
	v := data.At(field)
	if v == nil {
		v = data.Dict("data").At(field)
	}
	switch x := v.(type) {
	case nil:
		return nil
	case *value.List:
		return x.Items
	}
	return []any{v}
}
