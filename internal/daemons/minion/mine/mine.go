// Package mine sends a minion's mine data to its masters: the results of mine_functions, at
// intervals, and data from other programs on the host, which arrives as events.
package mine

import (
	"context"
	"log/slog"

	"brine/internal/call/fn"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// TagMine is the event on the minion's own bus that carries a mine request.
const TagMine = "_minion_mine"

// Mine forwards mine data.
type Mine struct {
	// ID is the minion's id.
	ID string
	// Call calls a function.
	Call func(ctx context.Context, job fn.Job) fn.Outcome
	// Fire fires an event on the minion's own bus, which passes it to ByEvent.
	Fire func(tag string, data *value.Dict) error
	// Send sends a message to all masters.
	Send func(load *value.Dict)
	Log  *slog.Logger
}

// ByEvent forwards mine data to all masters.
func (m *Mine) ByEvent(e *event.Event) {
	load := e.Data.Clone()
	if !IsRequest(load) {
		m.Log.Warn("dropped event of another program: not a mine request", "tag", e.Tag)
		return
	}
	load.Delete("_stamp")
	load.Delete("tok") // the sender's token; each master gets its own
	load.Set("id", m.ID)
	m.Send(load)
}

// Pass sends a request to all masters through an event on the bus, as in Salt, so that
// other programs on the host see what the minion sends. A request that is too large for an
// event is sent directly.
func (m *Mine) Pass(load *value.Dict) {
	if err := m.Fire(TagMine, load); err != nil {
		m.Log.Warn("cannot fire mine event", "tag", TagMine, "err", err)
		m.Send(load)
	}
}

// Update runs the mine functions and sends their results to all masters.
func (m *Mine) Update(ctx context.Context, funcs *value.Dict) {
	data := value.NewDict(funcs.Len())
	for k, v := range funcs.All() {
		alias := value.Str(k)
		fun, args := mineCall(alias, v)
		o := m.Call(ctx, fn.Job{Fun: fun, Arg: args})
		if o.Err != nil {
			m.Log.Warn("mine function failed", "fun", fun, "err", o.Err)
			continue
		}
		data.Set(alias, o.Return)
	}
	if data.Len() == 0 {
		return
	}
	m.Pass(value.DictOf("cmd", "_mine", "data", data, "id", m.ID, "clear", false))
}

// mineCall reads one entry of mine_functions: a list of arguments, a map of
// keywords, or an alias with mine_function.
func mineCall(alias string, v any) (fun string, args []any) {
	fun = alias
	kw := value.NewDict(0)
	switch x := v.(type) {
	case *value.Dict:
		kw.Update(x)
	case *value.List:
		for _, it := range x.Items {
			if d, ok := it.(*value.Dict); ok {
				kw.Update(d)
			} else {
				args = append(args, it)
			}
		}
	}
	if f := kw.Str("mine_function"); f != "" {
		fun = f
		kw.Delete("mine_function")
	}
	if kw.Len() > 0 {
		fn.Mark(kw)
		args = append(args, kw)
	}
	return fun, args
}

// IsRequest reports whether an event is a mine request.
func IsRequest(load *value.Dict) bool {
	cmd, _ := load.Get("cmd")
	return cmd == "_mine" || cmd == "_mine_delete" || cmd == "_mine_flush"
}
