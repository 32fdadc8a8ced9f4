package runners

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

type events struct{ bus Firer }

func init() { runners.Register("event", eventModule) }

func eventModule(d Deps) fn.Module {
	return fn.Module{Name: "event", Doc: `The master's event bus.`, Funcs: []fn.Func{
		fn.Of("send", events{d.Bus}.send, `Fire an event on the master's bus.`, fn.Example(`salt-run event.send my/custom/event '{"foo": "bar"}'`)),
	}}
}

type sendArgs struct {
	Tag  string `salt:"tag" doc:"tag of the event"`
	Data any    `salt:"data" doc:"map with the event's data" default:"null"`
}

func (e events) send(_ context.Context, _ *fn.Call, a sendArgs) (bool, error) {
	d, ok := a.Data.(*value.Dict)
	if !ok && value.Truth(a.Data) {
		return false, fn.Errorf("the data of an event must be a map, not %s", value.TypeName(a.Data))
	}
	if d == nil {
		d = value.NewDict(0)
	}
	if err := e.bus.Fire(a.Tag, d); err != nil {
		return false, err
	}
	return true, nil
}
