// Package pillar compiles the pillar of one minion: the SLS files that the top files below
// pillar_roots assign to it, merged with external sources, and decrypted. A master compiles it for
// its minions, a masterless minion for itself.
//
// # Contract
//
// A Compiler compiles any number of pillars concurrently. The caller has authenticated the minion:
// Request.ID is trusted, and of a minion's request only its grains, the environments and the
// overrides are used.
//
// A pillar is complete or reports that it is not: all errors are in the list under the key _errors,
// in Salt's words, and states refuse to run with it. Unless the option pillar_safe_render_error is
// off, the reasons of a failed rendering are only in the log, because they can contain secrets of
// other minions.
package pillar

import (
	"context"
	"log/slog"
	"strings"

	"brine/internal/base/log/redact"
	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
	"brine/internal/sls/render"
	"brine/internal/sls/top"
)

// Config is the configuration of a Compiler.
type Config struct {
	Options  Options
	Top      top.Options
	Renderer *render.Renderer
	// Default is the option renderer.
	Default string
	// Whitelist and Blacklist are the permitted and the forbidden renderers.
	Whitelist, Blacklist []string
	// Opts are all options, as templates and pillar_opts show them. They are not
	// modified.
	Opts *value.Dict
	// Nodegroups are the named targets.
	Nodegroups target.Nodegroups
	// Funcs are the functions that templates may call; it may be nil.
	Funcs *fn.Registry
	// Call prepares the view of these functions; it may be nil.
	Call func() *fn.Call
	// Python has the sources of ext_pillar that are modules in Python; it may be nil.
	Python Python
	// Git has the repositories of the external source git; it may be nil.
	Git GitDirs
	// CacheDir is the directory of pillar_cache.
	CacheDir string
	// Version is the saltversion in pillar_opts.
	Version string
	Log     *slog.Logger
}

// Compiler compiles pillars.
type Compiler struct {
	c     Config
	o     Options
	roots []fileserver.Root
	files *fileserver.Server
	cache *cache
	log   *slog.Logger
	dbs   databases
}

// New returns a Compiler.
func New(c Config) *Compiler {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Default == "" {
		c.Default = render.DefaultPipe
	}
	if c.Options.Roots == nil {
		c.Options.Roots = UsualRoots()
	}
	p := &Compiler{c: c, o: c.Options, log: c.Log, roots: fileserver.Roots(c.Options.Roots, "/srv/pillar")}
	p.files = fileserver.New(fileserver.Options{FileRoots: c.Options.Roots, Backends: []string{"roots"}, FollowSymlinks: true},
		fileserver.Config{HashType: "sha256"}, c.Log)
	p.cache = newCache(c.Options, c.CacheDir, c.Log)
	return p
}

// Request describes the pillar of one minion.
type Request struct {
	// ID is the authenticated minion.
	ID string
	// Grains are the minion's; the request owns them.
	Grains *value.Dict
	// Saltenv and Pillarenv are environments, "" if not set.
	Saltenv, Pillarenv string
	// Override is merged over the pillar, and available to external sources.
	Override *value.Dict
	// Extra is further data of the minion, for external sources.
	Extra *value.Dict
	// External is an additional source, if on_demand_ext_pillar permits it.
	External any
	// CleanCache drops what pillar_cache has of the minion.
	CleanCache bool
}

// Compile compiles a pillar, or returns it from the cache if pillar_cache is
// set.
func (p *Compiler) Compile(ctx context.Context, q Request) (*value.Dict, error) {
	if !p.o.Cache {
		return p.compile(ctx, q)
	}
	if q.CleanCache {
		p.cache.clear(q.ID)
	}
	if d := p.cache.get(q.ID, q.Pillarenv); d != nil {
		return d, nil
	}
	q.Override = nil // overrides apply to this request only, so they are not cached
	d, err := p.compile(ctx, q)
	if err == nil {
		p.cache.put(q.ID, q.Pillarenv, d)
	}
	return d, err
}

// ClearCache drops what pillar_cache has of a minion.
func (p *Compiler) ClearCache(id string) { p.cache.clear(id) }

// Cached returns what pillar_cache has of a minion, or nil.
func (p *Compiler) Cached(id, pillarenv string) *value.Dict { return p.cache.get(id, pillarenv) }

// run is the compilation of one pillar.
type run struct {
	*Compiler
	q        Request
	env      string // pillarenv
	opts     *value.Dict
	pillar   *value.Dict // that templates see
	external []any
	ignored  map[string]map[string]bool // SLS names by environment that may be missing
	errors   []string
	// topErrors are errors of the top files, which are reported last.
	topErrors []string
	envs      []string // of pillar_roots, base first
	funcs     render.Functions
}

func (p *Compiler) begin(q Request) *run {
	r := &run{Compiler: p, q: q, pillar: value.NewDict(0), ignored: map[string]map[string]bool{}}
	if r.q.Grains == nil {
		r.q.Grains = value.NewDict(1)
	}
	r.env = q.Pillarenv
	if r.env == "" && p.o.EnvFromSaltenv {
		r.env = q.Saltenv
	}
	if r.env == "" && p.o.Env != nil {
		r.env = value.Str(p.o.Env)
	}
	r.envs = r.listEnvs()
	r.opts = p.c.Opts.Clone()
	if r.opts == nil {
		r.opts = value.NewDict(8)
	}
	r.opts.Set("id", q.ID)
	r.opts.Set("minion_id", q.ID)
	r.opts.Set("grains", r.q.Grains)
	r.opts.Set("file_client", "local")
	r.opts.Set("state_top", "salt://"+p.c.Top.File())
	r.opts.Set("pillarenv", orNil(r.env))
	if q.Saltenv != "" {
		r.opts.Set("saltenv", q.Saltenv)
	}
	r.opts.Set("pillar", r.pillar)
	switch x := p.o.External.(type) {
	case *value.List:
		r.external = append(r.external, x.Items...)
	case nil:
	default:
		r.fail(`The "ext_pillar" option is malformed`)
	}
	r.addOnDemand()
	if p.c.Funcs != nil {
		r.funcs = newFunctions(p.c.Funcs, p.call(r))
	}
	return r
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// call prepares a Call for functions in templates: they see the minion's grains
// and run on the compiling machine.
func (p *Compiler) call(r *run) *fn.Call {
	c := &fn.Call{}
	if p.c.Call != nil {
		c = p.c.Call()
	}
	c.ID, c.Log, c.Funcs = r.q.ID, p.log, p.c.Funcs
	c.Grains, c.Pillar, c.Config = fn.Tree{Dict: r.q.Grains}, fn.Tree{Dict: r.pillar}, fn.Tree{Dict: r.opts}
	return c
}

// fail records an error.
func (r *run) fail(text string) {
	r.errors = append(r.errors, text)
	r.log.Error("Pillar render error: "+text, "minion", r.q.ID)
}

func (p *Compiler) compile(ctx context.Context, q Request) (*value.Dict, error) {
	r := p.begin(q)
	tops := r.top(ctx)
	var pillar *value.Dict
	if p.o.ExternalFirst {
		r.pillar = r.ext(ctx, orEmpty(q.Override))
		r.opts.Set("pillar", r.pillar)
		if p.c.Funcs != nil {
			r.funcs = newFunctions(p.c.Funcs, p.call(r))
		}
		pillar = r.merge(r.pillar, r.render(ctx, r.matches(tops)))
	} else {
		pillar = r.ext(ctx, r.render(ctx, r.matches(tops)))
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, e := range r.topErrors {
		r.fail(e)
	}
	pillar = pillar.Clone()
	if p.o.WithOpts {
		pillar.Set("master", r.masterOpts())
	}
	if len(r.errors) > 0 {
		for i, e := range r.errors {
			r.errors[i] = redact.Text(e)
		}
		pillar.Set("_errors", value.Strings(r.errors))
	}
	if q.Override.Len() > 0 {
		pillar = r.merge(pillar, q.Override)
	}
	return r.decrypt(ctx, pillar), nil
}

func orEmpty(d *value.Dict) *value.Dict {
	if d == nil {
		return value.NewDict(0)
	}
	return d
}

// masterOpts returns the options as pillar_opts shows them.
func (r *run) masterOpts() *value.Dict {
	d := r.opts.Clone()
	d.Delete("grains")
	d.Delete("pillar")
	d.Set("saltversion", r.c.Version)
	return d
}

// Top returns the merged top file as it applies to a minion, and its errors:
// the runner pillar.show_top.
func (p *Compiler) Top(ctx context.Context, q Request) (*value.Dict, []string) {
	r := p.begin(q)
	tops := r.top(ctx)
	out := value.NewDict(len(tops))
	for _, t := range tops {
		d := value.NewDict(len(t.targets))
		for _, g := range t.targets {
			d.Set(g.tgt, &value.List{Items: g.data})
		}
		out.Set(t.env, d)
	}
	return out, r.topErrors
}

// text renders a file of the pillar.
func (r *run) text(ctx context.Context, f fileserver.Found, source []byte, saltenv, sls string, more *value.Dict) (any, error) {
	return r.c.Renderer.Render(ctx, render.Request{
		Source: source, Path: f.Path, SLS: sls, Saltenv: saltenv, Default: r.c.Default, Whitelist: r.c.Whitelist, Blacklist: r.c.Blacklist,
		Funcs: r.funcs, Grains: r.q.Grains, Pillar: r.pillar, Opts: r.opts, Context: more, Loader: loader{r.files}, Local: loader{r.files}.local,
	})
}

// yamlex reports whether the default renderer supports !aggregate.
func (r *run) yamlex() bool {
	return strings.HasSuffix("|"+r.c.Default, "|yamlex") || strings.HasPrefix(r.c.Default, "yamlex_")
}
