package control

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("event", func() state.Module {
		return state.Module{Name: "event", Doc: `Fire events during a run.`, Funcs: []state.Func{
			state.Of("send", sendEvent, `Fire an event on the masters. Further keywords are those of the function event.send.`),
			state.Of("fire_master", sendEvent, `Same as event.send.`),
			state.Of("wait", waitToSend, `Fire an event if something that this state watches has changed.`),
			state.Of("mod_watch", sendEvent, `Fire the event of a state that watches.`),
		}}
	})
}

type sendArgs struct {
	Name       string    `salt:"name" doc:"tag of the event"`
	Data       any       `salt:"data" doc:"map with the data of the event" default:"null"`
	Preload    any       `salt:"preload" doc:"map that is laid over the message to the master" default:"null"`
	WithEnv    any       `salt:"with_env" doc:"add the environment, or the variables of a list" default:"false"`
	WithGrains any       `salt:"with_grains" doc:"add the grains, or those of a list" default:"false"`
	WithPillar any       `salt:"with_pillar" doc:"add the pillar, or the keys of a list" default:"false"`
	Show       bool      `salt:"show_changed" doc:"count the event as a change" default:"true"`
	Kwargs     fn.Kwargs `salt:"kwargs"`
}

func sendEvent(_ context.Context, e *state.Env, a sendArgs) (state.Plan, error) {
	return whole(func(ctx context.Context, test bool) state.Result {
		r := undecided("Event would have been fired")
		if !test {
			kw := a.Kwargs.Clone()
			for k, v := range value.DictOf("data", a.Data, "preload", a.Preload, "with_env", a.WithEnv, "with_grains", a.WithGrains, "with_pillar", a.WithPillar).All() {
				kw.Set(k, v)
			}
			fired, err := e.Exec(ctx, "event.send", kw, a.Name)
			switch {
			case err != nil:
				r = failed("%v", err)
			case fired != true:
				// Salt's comment is "Event fired" even then.
				r = failed("The event could not be fired: the log of the minion says why")
			default:
				r = succeeded("Event fired")
			}
		}
		if a.Show {
			r.Changes = value.DictOf("tag", a.Name, "data", a.Data)
		}
		return r
	})
}

type waitArgs struct {
	Name string `salt:"name" doc:"tag of the event"`
	Sfun any    `salt:"sfun" doc:"function of the state that watches" default:"null"`
	Data any    `salt:"data" doc:"map with the data of the event" ignored:"mod_watch gets it" default:"null"`
}

func waitToSend(context.Context, *state.Env, waitArgs) (state.Plan, error) {
	return state.Plan{}, nil
}
