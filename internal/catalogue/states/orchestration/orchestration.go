// Package orchestration holds the state module salt, by which an SLS orders
// minions and masters: it is meant for the runner state.orchestrate, and works
// on a minion beside a master, too. Without a master salt.state applies states
// to the minion itself.
//
// What is ordered uses the execution module saltutil, which knows the way
// to the master.
package orchestration

import (
	"context"
	"iter"

	"brine/internal/call/fn"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// Deps are what the module needs of where it runs.
type Deps struct {
	// Listen yields all events of a bus until ctx ends: of "minion" or
	// "master", whose sockets are in sockDir, or as configured if that is "".
	Listen func(ctx context.Context, node, sockDir string) iter.Seq2[*event.Event, error]
	// Fire puts an event on the bus of the master that runs the SLS. It is nil
	// on minions.
	Fire func(tag string, data *value.Dict) error
}

type mod struct{ Deps }

// Modules returns the state modules of this family.
func Modules(d Deps) []state.Module {
	m := mod{d}
	return []state.Module{{Name: "salt", Doc: `Order minions and masters about.`, Funcs: []state.Func{
		state.Of("state", m.state, `Have minions apply SLS files, a top file, or their highstate.`),
		state.Of("function", m.function, `Have minions call an execution function.`, fn.Default("expect_minions", "false")),
		state.Of("runner", m.runner, `Have the master call a runner. All further keywords go to it.`),
		state.Of("parallel_runners", m.parallelRunners, `Have the master call several runners at once.
			runners maps names to lists of name (if the runner is called otherwise) and kwarg.`),
		state.Of("wheel", m.wheel, `Have the master call a function that manages it. All further keywords go to it.`),
		state.Of("wait_for_event", m.waitForEvent, `Wait for events that tell of all items of a list.`),
	}}}
}

// outcome is what a state came to.
func outcome(ok bool, comment string) state.Result {
	r := state.Result{Verdict: state.Failed, Comment: comment}
	if ok {
		r.Verdict = state.Succeeded
	}
	return r
}

// forecast is what a test shows of a state that cannot be tried.
func forecast(comment string) state.Result {
	return state.Result{Verdict: state.Undecided, Comment: comment}
}

// tell puts on the master's bus what a state of its is about to order.
func (m mod) tell(e *state.Env, data *value.Dict) {
	if m.Fire == nil {
		return
	}
	if err := m.Fire("salt/run/"+e.JID+"/args", data); err != nil {
		e.Log.Warn("cannot fire event", "err", err)
	}
}

// jidOf is the part of a result that names the job of the minions or the
// master; nil if there is none.
func jidOf(about *value.Dict) *value.Dict {
	if jid, ok := about.Get("jid"); ok {
		return value.DictOf("__jid__", jid)
	}
	return nil
}
