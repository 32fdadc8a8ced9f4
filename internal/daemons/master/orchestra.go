package master

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/catalogue"
	"brine/internal/catalogue/modules/control"
	"brine/internal/catalogue/modules/core"
	modstates "brine/internal/catalogue/modules/states"
	"brine/internal/catalogue/states/orchestration"
	"brine/internal/files/fileclient"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/sls/highstate"
	"brine/internal/sls/pillar"
	"brine/internal/sls/render"
	"brine/internal/sls/state"
)

// orchestra executes execution functions and states on the master's machine for
// orchestrations, which may command minions and this master. It is built at
// first use.
type orchestra struct {
	id        string
	cacheDir  string
	ctx       func() context.Context
	settings  *settings
	templates *templates
	runners   func() *fn.Registry
	bus       *event.Bus
	// orders returns a client that commands minions and this master.
	orders func() *client.Client
	log    *slog.Logger

	once sync.Once
	err  error

	grains *ownGrains
	states *state.Registry
	funcs  *fn.Registry
}

func (o *orchestra) build() error {
	o.grains = &ownGrains{id: o.id, ctx: o.ctx, log: o.log}
	var err error
	if o.states, err = state.NewRegistry(o.grains, catalogue.States(orchestration.Deps{
		Listen: control.OnlyOwn("master", o.events), Fire: o.bus.Fire,
	})...); err != nil {
		return err
	}
	open := func() (*client.Client, func(), error) {
		return o.orders(), func() {}, nil
	}
	o.funcs, err = fn.NewRegistry(o.grains, append(catalogue.Modules(),
		core.Grains(givenGrains{}),
		control.Orders(catalogue.LocalMaster{Open: open}),
		modstates.Module(modstates.Deps{
			Deps: highstate.Deps{
				Renderer: o.templates.renderer, States: o.states, Grains: o.grains.All, PillarIsFresh: false,
				Fire: func(_ context.Context, tag string, data *value.Dict) {
					if err := o.bus.Fire(tag, data); err != nil {
						o.log.Warn("cannot fire event", "tag", tag, "err", err)
					}
				},
			},
			Configured: func(*fn.Call, string) (*fn.Call, error) {
				return nil, salt.Errorf(salt.Invalid, "a master has no localconfig: leave it out")
			},
		}),
	)...)
	if err != nil {
		return err
	}
	o.funcs.Document("states", o.states.Declarations)
	o.funcs.Document("runners", o.runners)
	return nil
}

// Call runs an execution function on the master's machine, as part of the job
// jid.
func (o *orchestra) Call(ctx context.Context, jid, fun string, args []any, kwargs *value.Dict) (any, error) {
	o.once.Do(func() { o.err = o.build() })
	if o.err != nil {
		return nil, fmt.Errorf("cannot build the functions of the master: %w", o.err)
	}
	return o.funcs.Call(ctx, o.call(jid), fun, args, kwargs)
}

func (o *orchestra) call(jid string) *fn.Call {
	live := o.settings.current()
	opts := live.opts.Clone()
	opts.Set("id", o.id)
	opts.Set("__role", "master")
	opts.Set("file_client", "local")
	compile := func(ctx context.Context, q fn.PillarQuery) (*value.Dict, error) {
		return live.pillar.Compile(ctx, pillar.Request{
			ID: o.id, Grains: value.DeepCopy(o.grains.All()).(*value.Dict), Saltenv: q.Saltenv, Pillarenv: q.Pillarenv, Override: q.Override, External: q.External,
		})
	}
	return (&fn.Call{
		ID: o.id, JID: jid, Log: o.log, Funcs: o.funcs, Config: fn.Tree{Dict: opts}, Grains: o.grains, Pillar: fn.NewPillar(nil, compile),
		Files:     fileclient.New(ownSource{o.settings}, fileclient.Options{CacheDir: o.cacheDir, HashType: o.settings.options().HashType}, o.log),
		Templates: orchestraTemplates{o}, SDB: o.templates.user.SDB(),
	}).Prepare()
}

// orchestraTemplates renders the templates of the master's own states.
type orchestraTemplates struct{ *orchestra }

func (o orchestraTemplates) request(c *fn.Call, pipe string, t fn.Template) render.Request {
	return render.Request{
		Source: t.Source, Path: t.Path, Saltenv: t.Saltenv, Default: pipe, Funcs: boundFunctions{o.funcs, c}, Grains: c.Grains.All(), Pillar: c.Pillar.All(),
		Opts: c.Config.All(), Context: t.Context, Loader: fileclient.Templates{Files: c.Files},
	}
}

// Text implements fn.Templates.
func (o orchestraTemplates) Text(ctx context.Context, c *fn.Call, t fn.Template) (string, error) {
	return o.templates.renderer.Text(ctx, t.Engine, o.request(c, "", t))
}

// Data implements fn.Templates.
func (o orchestraTemplates) Data(ctx context.Context, c *fn.Call, pipe string, t fn.Template) (any, error) {
	return o.templates.renderer.Render(ctx, o.request(c, pipe, t))
}

// ownSource serves the master's own states from its file server.
type ownSource struct{ settings *settings }

// Request implements fileclient.Source.
func (s ownSource) Request(ctx context.Context, load *value.Dict) (any, error) {
	var in wire.MasterOpts
	wire.View(load, &in)
	switch in.Cmd {
	case "_master_tops":
		return value.NewDict(0), nil // those exist only for minions
	case "_master_opts":
		return s.settings.stateOptions(in.EnvOnly), nil
	case "_file_recv":
		return nil, salt.Errorf(salt.Unavailable, "a master does not push files to itself")
	}
	return s.settings.fileServer().Request(ctx, load)
}

// events yields the events of the master's bus.
func (o *orchestra) events(ctx context.Context) iter.Seq2[*event.Event, error] {
	return control.Subscribed(ctx, o.bus.Subscribe)
}
