// Package ownpillar compiles the pillar of a minion with file_client: local from
// its own pillar_roots.
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

// Config is the configuration of a Pillar.
type Config struct {
	// ID is the minion's id, CacheDir and HashType the options of these names.
	ID, CacheDir, HashType string
	Pillar                 pillar.Options
	Git                    gitpillar.Options
	Top                    top.Options
	// Opts are all options by name.
	Opts     *value.Dict
	Renderer *render.Renderer
	Funcs    *fn.Registry
	// Python runs ext_pillar modules in Python.
	Python pillar.Python
	// Call builds the functions' view for the compilation.
	Call func() *fn.Call
	// Grains returns the grains.
	Grains func() *value.Dict
	// Background has the context of the first compilation.
	Background *background.Group
	Log        *slog.Logger
}

// Pillar is compiled when a function first reads it, and again by Refresh.
type Pillar struct {
	cfg      Config
	compiler *pillar.Compiler
	git      *gitpillar.Source

	mu   sync.Mutex
	kept *value.Dict
}

// New returns a pillar that is not compiled yet.
func New(cfg Config) *Pillar {
	p := &Pillar{cfg: cfg, git: gitpillar.New(cfg.Git, gitpillar.Config{CacheDir: cfg.CacheDir, HashType: cfg.HashType, Alone: true, Log: cfg.Log})}
	o := cfg.Opts
	groups := target.Nodegroups{}
	for k, v := range o.Dict("nodegroups").All() {
		groups[value.Str(k)] = v
	}
	p.compiler = pillar.New(pillar.Config{
		Options: cfg.Pillar, Top: cfg.Top, Renderer: cfg.Renderer, Default: o.Str("renderer"),
		Whitelist: value.ListTexts(o.At("renderer_whitelist")), Blacklist: value.ListTexts(o.At("renderer_blacklist")),
		Git: p.git, Opts: o, Nodegroups: groups, Funcs: cfg.Funcs, Python: cfg.Python, CacheDir: cfg.CacheDir, Version: o.Str("saltversion"), Log: cfg.Log,
		Call: func() *fn.Call {
			c := cfg.Call()
			c.Pillar = fn.Tree{Dict: value.NewDict(0)} // there is none yet: this call compiles it
			return c
		},
	})
	return p
}

// Check logs sources of ext_pillar that are misconfigured.
func (p *Pillar) Check() {
	pillar.LogMisconfigured(p.compiler, p.cfg.Log)
	for _, entry := range pillar.Entries(p.cfg.Pillar, "git") {
		if _, err := p.git.Add(entry); err != nil && p.cfg.Git.Verify {
			pillar.LogGit(err, p.cfg.Log)
		}
	}
}

// Compile compiles a pillar.
func (p *Pillar) Compile(ctx context.Context, q fn.PillarQuery) (*value.Dict, error) {
	return p.compiler.Compile(ctx, pillar.Request{
		ID: p.cfg.ID, Grains: value.DeepCopy(p.cfg.Grains()).(*value.Dict), Saltenv: q.Saltenv, Pillarenv: q.Pillarenv, Override: q.Override,
		Extra: ExtraData(p.cfg.Opts), External: q.External, CleanCache: q.CleanCache,
	})
}

// Refresh compiles the pillar again. clean ignores what pillar_cache has.
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

// ExtraData returns the options that pass_to_ext_pillars names, by path, for external
// pillar sources.
func ExtraData(opts *value.Dict) *value.Dict {
	out := value.NewDict(0)
	for _, path := range value.ListTexts(opts.At("pass_to_ext_pillars")) {
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

// name returns the value of an option that names an environment, or "".
func name(v any) string {
	if v == nil {
		return ""
	}
	return value.Str(v)
}
