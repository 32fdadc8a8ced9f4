package master

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/catalogue"
	"brine/internal/catalogue/grains"
	"brine/internal/catalogue/modules/control"
	"brine/internal/catalogue/modules/core"
	"brine/internal/daemons/usermodules"
	"brine/internal/files/fileclient"
	"brine/internal/py/value"
	"brine/internal/sls/pillar"
	"brine/internal/sls/pillar/gitpillar"
	"brine/internal/sls/render"
)

// templates renders the templates of the master itself: pillars and reactions.
type templates struct {
	id       string
	cacheDir string
	opts     *value.Dict
	ctx      func() context.Context
	settings *settings
	renderer *render.Renderer
	// user are the user's own modules.
	user *usermodules.Modules
	// runners returns the runners that templates can call.
	runners func() *fn.Registry
	// orders returns a client that commands minions; nil: no master is running.
	orders func() *client.Client
	// grains are those of the master's machine.
	grains *ownGrains
	// funcs are the execution functions that templates can call.
	funcs *fn.Registry
	log   *slog.Logger
}

func newTemplates(t templates, cfg *Config) (*templates, error) {
	made := &t
	t.grains = &ownGrains{id: t.id, ctx: t.ctx, log: t.log}
	t.user = userModules(cfg, usermodules.MasterKinds, made.call, serves{runners: t.runners}, t.log)
	if t.renderer == nil {
		t.renderer = render.New(render.Options{Log: t.log, Local: t.local, Python: t.user, Limits: cfg.Templates})
	}
	var err error
	if t.funcs, err = t.functions(); err != nil {
		return nil, err
	}
	t.funcs.Attach(t.user.Source())
	return made, nil
}

// functions returns the execution functions that pillar templates can call.
// They run on the master; grains and pillar are those of the minion that the
// pillar is for.
func (t *templates) functions() (*fn.Registry, error) {
	all := catalogue.Modules()
	all = append(all, core.Grains(givenGrains{}), t.askMaster())
	return fn.NewRegistry(t.grains, all...)
}

// givenGrains gives templates read-only access to a minion's grains.
type givenGrains struct{}

// Grains implements core.GrainStore.
func (givenGrains) Grains() *value.Dict { return value.NewDict(0) }

// Change implements core.GrainStore.
func (givenGrains) Change(*value.Dict, []string) {}

// Refresh implements core.GrainStore.
func (givenGrains) Refresh(context.Context, bool) error {
	return salt.Errorf(salt.Denied, "a template of the pillar cannot change a minion's grains")
}

type askRunnerArgs struct {
	Name   string    `salt:"name" doc:"name of the runner"`
	Args   fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// askMaster lets templates call runners and command minions.
func (t *templates) askMaster() fn.Module {
	run := func(ctx context.Context, c *fn.Call, a askRunnerArgs) (any, error) {
		args, kwargs := []any(a.Args), a.Kwargs.Clean()
		if l, ok := kwargs.At("arg").(*value.List); ok {
			args = append(args, l.Items...)
			kwargs.Delete("arg")
		}
		if d, ok := kwargs.At("kwarg").(*value.Dict); ok {
			kwargs.Delete("kwarg")
			kwargs.Update(d)
		}
		return t.runners().Call(ctx, (&fn.Call{ID: t.id, Config: fn.Tree{Dict: t.opts}, Log: t.log, Funcs: t.runners(),
			SDB: t.user.SDBOfRunners()}).Prepare(), a.Name, args, kwargs)
	}
	open := func() (*client.Client, func(), error) {
		if t.orders == nil {
			return nil, nil, salt.Errorf(salt.Unavailable, "the master does not run")
		}
		return t.orders(), func() {}, nil
	}
	commands := slices.DeleteFunc(control.Orders(catalogue.LocalMaster{Open: open}).Funcs, func(f fn.Func) bool {
		return f.Name() != "cmd" && f.Name() != "cmd_iter"
	})
	return fn.Module{Name: "saltutil", Doc: `Ask the master and its minions.`, Funcs: append(commands,
		fn.Of("runner", run, `Run a runner of this master and return its result.`))}
}

// ownGrains are the grains of the master's machine, which decide which
// functions exist. They are collected when a template first needs them.
type ownGrains struct {
	id   string
	ctx  func() context.Context
	log  *slog.Logger
	once sync.Once
	d    *value.Dict
}

// Late implements fn.Late.
func (*ownGrains) Late() {}

// Get returns one grain, or nil.
func (g *ownGrains) Get(key string) any { return g.All().At(key) }

// All returns all grains.
func (g *ownGrains) All() *value.Dict {
	g.once.Do(func() {
		d, err := grains.Collect(g.ctx(), grains.Options{ID: g.id, NoDNS: true}, g.log)
		if err != nil {
			g.log.Warn("cannot collect some grains of the master's machine", "err", err)
		}
		g.d = d
	})
	return g.d
}

// compiler returns the pillar compiler of a configuration.
func (t *templates) compiler(cfg Config, git *gitpillar.Source, groups target.Nodegroups) *pillar.Compiler {
	renderer := cfg.Opts.Str("renderer")
	return pillar.New(pillar.Config{
		Options: cfg.Pillar, Top: cfg.Top, Renderer: t.renderer, Default: renderer, Whitelist: value.ListTexts(cfg.Opts.At("renderer_whitelist")),
		Blacklist: value.ListTexts(cfg.Opts.At("renderer_blacklist")), Opts: cfg.Opts, Nodegroups: groups, Funcs: t.funcs, Python: t.user.Pillars(),
		Call: func() *fn.Call { return &fn.Call{Files: t.ownFiles(), Templates: ownTemplates{t}, SDB: t.user.SDB()} },
		Git:  git, CacheDir: t.cacheDir, Version: cfg.Opts.Str("saltversion"), Log: t.log,
	})
}

// local reads files that templates import by absolute path: only files that the
// master serves to all minions anyway, because minions can influence the path.
func (t *templates) local(_, path string) ([]byte, error) {
	f, ok := t.settings.fileServer().FindLocal(path, "")
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return os.ReadFile(f.Path)
}

// boundFunctions are the functions that a template calls.
type boundFunctions struct {
	*fn.Registry
	c *fn.Call
}

// Call implements render.Functions.
func (f boundFunctions) Call(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error) {
	return f.Registry.Call(ctx, f.c, name, args, kwargs)
}

// ownTemplates renders texts for the user's modules, and for functions that the master's templates
// call.
type ownTemplates struct{ *templates }

func (t ownTemplates) request(c *fn.Call, pipe string, of fn.Template) render.Request {
	return render.Request{
		Source: of.Source, Path: of.Path, Saltenv: of.Saltenv, Default: pipe, Funcs: boundFunctions{t.funcs, c}, Grains: c.Grains.All(), Pillar: c.Pillar.All(),
		Opts: c.Config.All(), Context: of.Context, Loader: fileclient.Templates{Files: c.Files},
	}
}

// Text implements fn.Templates.
func (t ownTemplates) Text(ctx context.Context, c *fn.Call, of fn.Template) (string, error) {
	return t.renderer.Text(ctx, of.Engine, t.request(c, "", of))
}

// Data implements fn.Templates.
func (t ownTemplates) Data(ctx context.Context, c *fn.Call, pipe string, of fn.Template) (any, error) {
	return t.renderer.Render(ctx, t.request(c, pipe, of))
}

// ownFiles gives the functions in the master's templates access to its own
// files.
func (t *templates) ownFiles() *fileclient.Client {
	return fileclient.New(t.settings.fileServer(), fileclient.Options{CacheDir: t.cacheDir, HashType: t.settings.options().HashType}, t.log)
}
