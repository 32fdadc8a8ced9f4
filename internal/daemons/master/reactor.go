package master

import (
	"context"
	"time"

	"brine/internal/call/fn"
	"brine/internal/catalogue/reactor"
	"brine/internal/files/fileclient"
	"brine/internal/ha/cluster"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/sls/render"
)

// newReactor wires what the option reactor says; it is nil if that is nothing.
func (m *Master) newReactor() (*reactor.Reactor, error) {
	inside := within{m, reactor.User, "reactor"}
	c := inside.client()
	call := func() *fn.Call {
		return (&fn.Call{ID: m.cfg.ID, Files: m.ownFiles(), Log: m.log, Funcs: m.templateFuncs, Config: fn.Tree{Dict: m.live.Load().opts}}).Prepare()
	}
	grains := &ownGrains{m: m}
	return reactor.New(m.cfg.Reactor, reactor.Deps{
		Bus: m.bus, Log: m.log.With("component", "reactor"),
		// The master that an event came to answers it, so that it is answered once.
		Foreign: func(e *event.Event) bool { return m.cluster != nil && e.Data.Has(cluster.PeerID) },
		Read:    func(ctx context.Context, url string) ([]byte, error) { return m.ownFiles().Read(ctx, url, "base") },
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
			inside.record("caller", value.DictOf("fun", fun), "", resultDone)
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
