package runners

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/pillar"
)

// Pillars compiles the pillars of minions.
type Pillars interface {
	Compile(ctx context.Context, q pillar.Request) (*value.Dict, error)
	// Top returns the merged top file and its errors.
	Top(ctx context.Context, q pillar.Request) (*value.Dict, []string)
	// Cached and ClearCache access the data of the option pillar_cache.
	Cached(id, pillarenv string) *value.Dict
	ClearCache(id string)
}

var _ Pillars = (*pillar.Compiler)(nil)

// PillarSource returns the pillar compiler for the current configuration.
type PillarSource interface {
	Pillars() Pillars
}

type pillars struct {
	selection
	PillarSource
}

func init() { runners.Register("pillar", pillarModule) }

func pillarModule(d Deps) fn.Module {
	p := pillars{d.selection(), d.Serves}
	return fn.Module{Name: "pillar", Doc: `The pillar that this master compiles.`, Funcs: []fn.Func{
		fn.Of("show_top", p.showTop, `Return the merged top files of the pillar for a minion.`, fn.Example("salt-run pillar.show_top")),
		fn.Of("show_pillar", p.show, `Return the pillar of a minion, or the pillar of all minions.
			Further keywords are used as grains.`, fn.Example("salt-run pillar.show_pillar web1")),
		fn.Of("clear_pillar_cache", p.clear, `Delete pillars from the cache of the option pillar_cache.`, fn.Example("salt-run pillar.clear_pillar_cache web1")),
		fn.Of("show_pillar_cache", p.cached, `Return pillars from the cache of the option pillar_cache.`, fn.Example("salt-run pillar.show_pillar_cache web1")),
	}}
}

// request returns a pillar request for the minion with an id, or for the first
// minion with cached data.
func (p pillars) request(minion any) pillar.Request {
	q := pillar.Request{}
	if value.Truth(minion) {
		q.ID = value.Str(minion)
	} else if ids, err := p.cache.List("minions"); err == nil && len(ids) > 0 {
		q.ID = ids[0]
	}
	if g := p.cache.MinionData(q.ID).Grains; g != nil {
		q.Grains = value.DeepCopy(g).(*value.Dict)
	} else {
		q.Grains = value.DictOf("fqdn", q.ID)
	}
	return q
}

type showTopArgs struct {
	Minion  any `salt:"minion" doc:"id of the minion" default:"null"`
	Saltenv any `salt:"saltenv" doc:"environment of its states" default:"base"`
}

func (p pillars) showTop(ctx context.Context, _ *fn.Call, a showTopArgs) (any, error) {
	q := p.request(a.Minion)
	q.Saltenv = value.Str(a.Saltenv)
	tops, faults := p.Pillars().Top(ctx, q)
	if len(faults) > 0 {
		return value.Strings(faults), nil
	}
	return tops, nil
}

type showPillarArgs struct {
	Minion any       `salt:"minion" doc:"id of the minion; *: the pillar of all minions" default:"'*'"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (p pillars) show(ctx context.Context, _ *fn.Call, a showPillarArgs) (any, error) {
	q := p.request(a.Minion)
	q.Saltenv = "base"
	for k, v := range a.Kwargs.Clean().All() {
		switch value.Str(k) {
		case "saltenv":
			q.Saltenv = value.Str(v)
		case "pillarenv":
			q.Pillarenv = value.Str(v)
		default:
			q.Grains.Set(k, v)
		}
	}
	d, err := p.Pillars().Compile(ctx, q)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return d, nil
}

type pillarCacheArgs struct {
	Minion any       `salt:"minion" doc:"pattern for ids of minions" default:"'*'"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (p pillars) clear(_ context.Context, c *fn.Call, a pillarCacheArgs) (any, error) {
	return p.each(c, a, func(id string) { p.Pillars().ClearCache(id) })
}

func (p pillars) cached(_ context.Context, c *fn.Call, a pillarCacheArgs) (any, error) {
	return p.each(c, a, func(string) {})
}

// each calls a function for each minion and returns the cached pillars
// afterwards.
func (p pillars) each(c *fn.Call, a pillarCacheArgs, do func(id string)) (any, error) {
	if !value.Truth(c.Config.Get("pillar_cache")) {
		return false, nil
	}
	ids, err := p.minions(a.Minion, "glob")
	if err != nil {
		return nil, err
	}
	env := ""
	if v := a.Kwargs.At("pillarenv"); value.Truth(v) {
		env = value.Str(v)
	}
	out := value.NewDict(len(ids))
	for _, id := range ids {
		do(id)
		if d := p.Pillars().Cached(id, env); d != nil {
			out.Set(id, d)
		}
	}
	return out, nil
}
