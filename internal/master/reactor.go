package master

import (
	"context"
	"time"

	"brine/internal/client"
	"brine/internal/fileclient"
	"brine/internal/fn"
	"brine/internal/reactor"
	"brine/internal/render"
	"brine/internal/salt"
	"brine/internal/value"
)

// newReactor wires what the option reactor says; it is nil if that is nothing.
func (m *Master) newReactor() (*reactor.Reactor, error) {
	here := &client.InProcess{Publish: m.Publish, OnMaster: m.onMaster, Events: m.bus, User: "root"}
	c := client.New(m.cfg.Client, value.Str(m.cfg.Opts.At("conf_file")), here, here, m.log)
	call := func() *fn.Call {
		return (&fn.Call{ID: m.cfg.ID, Files: m.ownFiles(), Log: m.log, Funcs: m.templateFuncs, Config: fn.Tree{Dict: m.live.Load().opts}}).Prepare()
	}
	grains := &ownGrains{m: m}
	return reactor.New(m.cfg.Reactor, reactor.Deps{
		Bus: m.bus, Log: m.log.With("component", "reactor"),
		Read: func(ctx context.Context, url string) ([]byte, error) { return m.ownFiles().Read(ctx, url, "base") },
		Render: func(ctx context.Context, path string, source []byte, vars *value.Dict) (any, error) {
			limited, cancel := context.WithTimeout(ctx, renderTime)
			defer cancel()
			k := call()
			return m.renderer.Render(limited, render.Request{
				Source: source, Path: path, Saltenv: "base", Default: m.live.Load().opts.Str("renderer"), Context: vars,
				Funcs: boundFunctions{m.templateFuncs, k}, Grains: grains.All(), Opts: m.live.Load().opts.Clone(), Loader: fileclient.Templates{Files: k.Files},
			})
		},
		Low: c.LowTrusted,
		Call: func(ctx context.Context, fun string, args []any, kwargs *value.Dict) error {
			_, err := m.templateFuncs.Call(ctx, call(), fun, args, kwargs)
			return err
		},
	})
}

// renderTime bounds the rendering of one reaction.
const renderTime = 30 * time.Second

// boundFunctions are what a template calls.
type boundFunctions struct {
	*fn.Registry
	c *fn.Call
}

// Call implements render.Functions.
func (f boundFunctions) Call(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error) {
	return f.Registry.Call(ctx, f.c, name, args, kwargs)
}

// onMaster runs a function of the master for the reactor: it has been asked
// for by the configuration.
func (m *Master) onMaster(load *value.Dict) *value.Dict {
	fun := load.Str("fun")
	if load.Str("cmd") == "wheel" {
		r := (&wheels{m}).begin(fun, load, reactor.User)
		return value.DictOf("tag", r.tag, "data", r.execute())
	}
	args, kwargs := runnerArgs(load)
	jid := salt.NewJID(time.Now())
	tag := salt.Tag("run", jid)
	m.router.wg.Go(func() { (&runs{m}).run(tag, jid, fun, reactor.User, wire(args, kwargs), m.cfg.Opts) })
	return value.DictOf("tag", tag, "jid", jid)
}
