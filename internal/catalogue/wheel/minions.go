package wheel

import (
	"context"
	"slices"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

type minions struct{ Deps }

func init() { modules.Register("minions", minionsModule) }

func minionsModule(d Deps) fn.Module {
	return fn.Module{Name: "minions", Doc: `The minions of the master.`, Funcs: []fn.Func{
		fn.Of("connected", minions{d}.connected, `Return the minions that are connected now, sorted.`),
	}}
}

func (m minions) connected(context.Context, *fn.Call, none) (*value.List, error) {
	var ids []string
	for id, there := range m.Connected() {
		if there {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return value.Strings(ids), nil
}
