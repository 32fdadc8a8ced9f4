// Package ownpillar is the pillar of a minion that compiles it itself (file_client:
// local), from its own pillar_roots.
package ownpillar

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/background"
	"brine/internal/py/value"
	"brine/internal/sls/pillar"
	"brine/internal/sls/pillar/gitpillar"
	"brine/internal/sls/render"
	"brine/internal/sls/top"
)

// Config is what a Pillar needs.
type Config struct {
	// ID is the minion's id, CacheDir and HashType the options of these names.
	ID, CacheDir, HashType string
	Pillar                 pillar.Options
	Git                    gitpillar.Options
	Top                    top.Options
	// Opts are all options under their names.
	Opts     *value.Dict
	Renderer *render.Renderer
	Funcs    *fn.Registry
	// Call makes what functions see while a pillar is compiled.
	Call func() *fn.Call
	// Grains returns the grains.
	Grains func() *value.Dict
	// Background has the context in which the pillar is compiled at first.
	Background *background.Group
	Log        *slog.Logger
}

// Pillar is compiled when a function first asks for it, and again by Refresh.
type Pillar struct {
	cfg      Config
	compiler *pillar.Compiler

	mu   sync.Mutex
	kept *value.Dict
}

// New returns a pillar that was not compiled yet.
func New(cfg Config) *Pillar {
	p := &Pillar{cfg: cfg}
	o := cfg.Opts
	groups := target.Nodegroups{}
	for k, v := range o.Dict("nodegroups").All() {
		groups[value.Str(k)] = v
	}
	p.compiler = pillar.New(pillar.Config{
		Options: cfg.Pillar, Top: cfg.Top, Renderer: cfg.Renderer, Default: o.Str("renderer"),
		Whitelist: listed(o.At("renderer_whitelist")), Blacklist: listed(o.At("renderer_blacklist")),
		Git:  gitpillar.New(cfg.Git, gitpillar.Config{CacheDir: cfg.CacheDir, HashType: cfg.HashType, Alone: true, Log: cfg.Log}),
		Opts: o, Nodegroups: groups, Funcs: cfg.Funcs, CacheDir: cfg.CacheDir, Version: o.Str("saltversion"), Log: cfg.Log,
		Call: func() *fn.Call {
			c := cfg.Call()
			c.Pillar = fn.Tree{Dict: value.NewDict(0)} // it is being made
			return c
		},
	})
	return p
}

// Compile compiles a pillar.
func (p *Pillar) Compile(ctx context.Context, q fn.PillarQuery) (*value.Dict, error) {
	return p.compiler.Compile(ctx, pillar.Request{
		ID: p.cfg.ID, Grains: value.DeepCopy(p.cfg.Grains()).(*value.Dict), Saltenv: q.Saltenv, Pillarenv: q.Pillarenv, Override: q.Override,
		Extra: ExtraData(p.cfg.Opts), External: q.External, CleanCache: q.CleanCache,
	})
}

// Refresh compiles the kept pillar again, clean even if pillar_cache has it.
func (p *Pillar) Refresh(ctx context.Context, clean bool) error {
	d, err := p.Compile(ctx, fn.PillarQuery{Saltenv: name(p.cfg.Opts.At("saltenv")), Pillarenv: name(p.cfg.Opts.At("pillarenv")), CleanCache: clean})
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = d
	return nil
}

// All implements fn.Reader.
func (p *Pillar) All() *value.Dict {
	p.mu.Lock()
	d := p.kept
	p.mu.Unlock()
	if d != nil {
		return d
	}
	if err := p.Refresh(p.cfg.Background.Context(), false); err != nil {
		p.cfg.Log.Error("cannot compile the pillar", "err", err)
		return value.NewDict(0)
	}
	return p.All()
}

// Get implements fn.Reader.
func (p *Pillar) Get(key string) any { return p.All().At(key) }

// ExtraData are the options that the option pass_to_ext_pillars names, by
// their paths, for external sources of the pillar.
func ExtraData(opts *value.Dict) *value.Dict {
	out := value.NewDict(0)
	for _, path := range listed(opts.At("pass_to_ext_pillars")) {
		keys := strings.Split(path, ":")
		v, ok := any(opts), true
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

// name is the value of an option that names an environment, "" for none.
func name(v any) string {
	if v == nil {
		return ""
	}
	return value.Str(v)
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
