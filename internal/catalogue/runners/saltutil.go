package runners

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// synced are the kinds of modules that Salt's runner fetches from the file
// server, in its order.
var synced = []string{"clouds", "modules", "states", "grains", "renderers", "returners", "output", "proxymodules", "runners", "wheel", "engines", "thorium",
	"queues", "pillar", "utils", "sdb", "cache", "fileserver", "tops", "eauth_tokens", "serializers", "executors", "roster", "wrapper"}

func init() { runners.Register("saltutil", func(Deps) fn.Module { return saltutilModule() }) }

func saltutilModule() fn.Module {
	m := fn.Module{Name: "saltutil", Doc: `Syncing of custom Python modules, which Brine does not run: nothing is ever fetched.`, Funcs: []fn.Func{
		fn.Of("sync_all", syncAll, `Return an empty list for each kind of module: Brine runs no Python modules.`,
			fn.Example("salt-run saltutil.sync_all")),
	}}
	for _, kind := range synced {
		m.Funcs = append(m.Funcs, fn.Of("sync_"+kind, syncNone, `Return an empty list: Brine runs no Python modules.`,
			fn.Example("salt-run saltutil.sync_"+kind)))
	}
	return m
}

type extmodArgs struct {
	Saltenv   any `salt:"saltenv" ignored:"modules are part of the program" default:"base"`
	Whitelist any `salt:"extmod_whitelist" ignored:"modules are part of the program" default:"null"`
	Blacklist any `salt:"extmod_blacklist" ignored:"modules are part of the program" default:"null"`
}

func syncNone(context.Context, *fn.Call, extmodArgs) (*value.List, error) { return &value.List{}, nil }

func syncAll(context.Context, *fn.Call, extmodArgs) (*value.Dict, error) {
	out := value.NewDict(len(synced))
	for _, kind := range synced {
		out.Set(kind, &value.List{})
	}
	return out, nil
}
