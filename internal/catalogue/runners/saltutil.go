package runners

import (
	"context"
	"slices"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// ModuleSource copies the user's own modules from the master's file server to its directory
// extension_modules.
type ModuleSource interface {
	// SyncModules copies modules of some kinds, and returns the names of new and changed ones
	// by kind. Nil for whitelist and blacklist means those of the options.
	SyncModules(ctx context.Context, kinds, envs []string, whitelist, blacklist any) (map[string][]string, error)
}

// synced lists the kinds of modules that Salt's runner fetches from the file server, in order.
var synced = []string{"clouds", "modules", "states", "grains", "renderers", "returners", "output", "proxymodules", "runners", "wheel", "engines", "thorium",
	"queues", "pillar", "utils", "sdb", "cache", "fileserver", "tops", "eauth_tokens", "serializers", "executors", "wrapper", "roster"}

// dirOf maps kinds to their directory, where its name differs from the function's.
var dirOf = map[string]string{"proxymodules": "proxy", "eauth_tokens": "tokens"}

// keyOf maps kinds to their key in the result of sync_all, where it differs from the
// function's name.
var keyOf = map[string]string{"eauth_tokens": "tokens"}

func init() {
	runners.Register("saltutil", func(d Deps) fn.Module { return saltutilModule(ownFiles{d.Serves}) })
}

func saltutilModule(o ownFiles) fn.Module {
	m := fn.Module{Name: "saltutil", Doc: `Fetch the user's own modules from the file server to this master.`, Funcs: []fn.Func{
		fn.Of("sync_all", o.syncAll, `Fetch modules of all kinds.
			The result has the names of new and changed ones by kind.`, fn.Example("salt-run saltutil.sync_all")),
	}}
	for _, kind := range append(slices.Clone(synced), "auth") { // Salt has no function for auth
		m.Funcs = append(m.Funcs, fn.Of("sync_"+kind, o.sync(kind), `Fetch modules of this kind, and return the names of new and changed ones.`,
			fn.Example("salt-run saltutil.sync_"+kind)))
	}
	return m
}

type extmodArgs struct {
	Saltenv   any `salt:"saltenv" doc:"environments to fetch from, as a list or with commas" default:"base"`
	Whitelist any `salt:"extmod_whitelist" doc:"the only modules to fetch: names with commas, or a map by kind; null: as configured" default:"null"`
	Blacklist any `salt:"extmod_blacklist" doc:"modules that are not fetched, given likewise" default:"null"`
}

// ownFiles copies the user's own modules.
type ownFiles struct{ source ModuleSource }

func (o ownFiles) fetch(ctx context.Context, a extmodArgs, kinds []string) (map[string][]string, error) {
	if o.source == nil {
		return nil, nil // a machine that never had a master has no files
	}
	dirs := make([]string, len(kinds))
	for i, kind := range kinds {
		dirs[i] = orName(dirOf, kind)
	}
	return o.source.SyncModules(ctx, dirs, value.Split(a.Saltenv), a.Whitelist, a.Blacklist)
}

func orName(names map[string]string, kind string) string {
	if name, ok := names[kind]; ok {
		return name
	}
	return kind
}

func (o ownFiles) sync(kind string) func(context.Context, *fn.Call, extmodArgs) (*value.List, error) {
	return func(ctx context.Context, _ *fn.Call, a extmodArgs) (*value.List, error) {
		names, err := o.fetch(ctx, a, []string{kind})
		return value.Strings(names[orName(dirOf, kind)]), err
	}
}

func (o ownFiles) syncAll(ctx context.Context, _ *fn.Call, a extmodArgs) (*value.Dict, error) {
	names, err := o.fetch(ctx, a, synced)
	if err != nil {
		return nil, err
	}
	out := value.NewDict(len(synced))
	for _, kind := range synced {
		out.Set(orName(keyOf, kind), value.Strings(names[orName(dirOf, kind)]))
	}
	return out, nil
}
