// Package orchestration holds the state module salt, with which an SLS runs
// jobs on minions and masters. It is intended for the runner state.orchestrate,
// and also works on a minion beside a master. Without a master, salt.state
// applies states to the minion itself.
//
// Jobs are sent with the execution module saltutil, which can reach the master.
package orchestration

import (
	"context"
	"iter"

	"brine/internal/call/fn"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// Deps is what the module needs from its environment.
type Deps struct {
	// Listen yields all events of the bus of a "minion" or "master" until ctx
	// ends. sockDir is the directory of its sockets; "" means the configured
	// one.
	Listen func(ctx context.Context, node, sockDir string) iter.Seq2[*event.Event, error]
	// Fire fires an event on the bus of the master that runs the SLS. It is nil
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

// outcome returns a result.
func outcome(ok bool, comment string) state.Result {
	r := state.Result{Verdict: state.Failed, Comment: comment}
	if ok {
		r.Verdict = state.Succeeded
	}
	return r
}

// forecast returns the result of a test run for a state that cannot be tried.
func forecast(comment string) state.Result {
	return state.Result{Verdict: state.Undecided, Comment: comment}
}

// tell fires an event on the master's bus with the arguments of the job that a
// state is about to send.
func (m mod) tell(e *state.Env, data *value.Dict) {
	if m.Fire == nil {
		return
	}
	if err := m.Fire("salt/run/"+e.JID+"/args", data); err != nil {
		e.Log.Warn("cannot fire event", "err", err)
	}
}

// jidOf returns the part of a result with the id of the job, nil if there is
// none.
func jidOf(about *value.Dict) *value.Dict {
	if jid, ok := about.Get("jid"); ok {
		return value.DictOf("__jid__", jid)
	}
	return nil
}
