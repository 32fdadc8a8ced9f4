package runners

import (
	"context"
	"iter"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/control"
	"brine/internal/net/event"
)

// State returns the module state. salt-run uses its own one, which prints the
// events; in the master, print is nil.
func State(listen func(context.Context) iter.Seq2[*event.Event, error], print func(line string) error) fn.Module {
	w := control.Watcher{Node: "master", Program: "salt-run", Listen: control.OnlyOwn("master", listen), Print: print}
	return fn.Module{Name: "state", Doc: `Follow what happens.`, Funcs: []fn.Func{w.Event()}}
}
