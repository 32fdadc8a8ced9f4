package minion

import (
	"context"
	"strings"
	"sync"

	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/pillar"
	"brine/internal/sls/pillar/gitpillar"
)

// ownPillar is the pillar of a minion that makes it itself (file_client:
// local), from its own pillar_roots. It is made when somebody first asks for
// it, and again by refresh.
type ownPillar struct {
	m        *Minion
	cfg      *Config
	compiler *pillar.Compiler

	mu   sync.Mutex
	kept *value.Dict
}

// newOwnPillar returns the pillar by a configuration, the minion's or one that
// was made of it. call makes calls by the same configuration.
func newOwnPillar(m *Minion, cfg *Config, call func() *fn.Call) *ownPillar {
	p := &ownPillar{m: m, cfg: cfg}
	o := cfg.Opts
	groups := target.Nodegroups{}
	for k, v := range o.Dict("nodegroups").All() {
		groups[value.Str(k)] = v
	}
	p.compiler = pillar.New(pillar.Config{
		Options: cfg.Pillar, Top: cfg.Top, Renderer: m.renderer, Default: o.Str("renderer"),
		Whitelist: listed(o.At("renderer_whitelist")), Blacklist: listed(o.At("renderer_blacklist")),
		Git:  gitpillar.New(cfg.GitPillar, gitpillar.Config{CacheDir: cfg.CacheDir, HashType: cfg.Handshake.HashType, Alone: true, Log: m.log}),
		Opts: o, Nodegroups: groups, Funcs: m.funcs, CacheDir: cfg.CacheDir, Version: o.Str("saltversion"), Log: m.log,
		Call: func() *fn.Call {
			c := call()
			c.Pillar = fn.Tree{Dict: value.NewDict(0)} // it is being made
			return c
		},
	})
	return p
}

// listed returns the texts of an option that is a list.
func listed(v any) []string {
	var out []string
	if l, ok := v.(*value.List); ok && l != nil {
		for _, it := range l.Items {
			out = append(out, value.Str(it))
		}
	}
	return out
}

// compile makes a pillar anew.
func (p *ownPillar) compile(ctx context.Context, q fn.PillarQuery) (*value.Dict, error) {
	return p.compiler.Compile(ctx, pillar.Request{
		ID: p.cfg.ID, Grains: value.DeepCopy(p.m.Grains()).(*value.Dict), Saltenv: q.Saltenv, Pillarenv: q.Pillarenv, Override: q.Override,
		Extra: p.cfg.extraData(), External: q.External, CleanCache: q.CleanCache,
	})
}

// extraData are the options that the option pass_to_ext_pillars names, by
// their paths, for external sources of the pillar.
func (cfg *Config) extraData() *value.Dict {
	out := value.NewDict(0)
	for _, path := range listed(cfg.Opts.At("pass_to_ext_pillars")) {
		keys := strings.Split(path, ":")
		v, ok := any(cfg.Opts), true
		for _, k := range keys {
			d, isDict := v.(*value.Dict)
			if v, ok = d.Get(k); !ok || !isDict {
				ok = false
				break
			}
		}
		if !ok {
			continue
		}
		for i := len(keys) - 1; i >= 0; i-- {
			d := value.NewDict(1)
			d.Set(keys[i], v)
			v = d
		}
		out = pillar.Merge(out, v.(*value.Dict), true)
	}
	return out
}

// refresh makes the kept pillar anew, clean even if pillar_cache has it.
func (p *ownPillar) refresh(ctx context.Context, clean bool) error {
	d, err := p.compile(ctx, fn.PillarQuery{Saltenv: text(p.cfg.Opts.At("saltenv")), Pillarenv: text(p.cfg.Opts.At("pillarenv")), CleanCache: clean})
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = d
	return nil
}

func text(v any) string {
	if v == nil {
		return ""
	}
	return value.Str(v)
}

// All implements fn.Reader.
func (p *ownPillar) All() *value.Dict {
	p.mu.Lock()
	d := p.kept
	p.mu.Unlock()
	if d != nil {
		return d
	}
	if err := p.refresh(p.m.run, false); err != nil {
		p.m.log.Error("cannot compile the pillar", "err", err)
		return value.NewDict(0)
	}
	return p.All()
}

// Get implements fn.Reader.
func (p *ownPillar) Get(key string) any { return p.All().At(key) }
