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

// newReactor builds the reactor of the option reactor, nil if that is empty.
func newReactor(o reactor.Options, t *templates, calls *insideCalls, c *cluster.Cluster) (*reactor.Reactor, error) {
	inside := within{calls, reactor.User, "reactor"}
	orders := inside.client()
	call := func() *fn.Call {
		return (&fn.Call{ID: t.id, Files: t.ownFiles(), Log: t.log, Funcs: t.funcs, SDB: t.user.SDB(), Config: fn.Tree{Dict: t.settings.current().opts}}).Prepare()
	}
	grains := &ownGrains{id: t.id, ctx: t.ctx, log: t.log}
	return reactor.New(o, reactor.Deps{
		Bus: calls.bus, Log: t.log.With("component", "reactor"),
		// The master that received an event reacts to it, so that there is one
		// reaction.
		Foreign: func(e *event.Event) bool { return c != nil && e.Data.Has(cluster.PeerID) },
		Read:    func(ctx context.Context, url string) ([]byte, error) { return t.ownFiles().Read(ctx, url, "base") },
		Render: func(ctx context.Context, path string, source []byte, vars *value.Dict) (any, error) {
			limited, cancel := context.WithTimeout(ctx, renderTime)
			defer cancel()
			k := call()
			return t.renderer.Render(limited, render.Request{
				Source: source, Path: path, Saltenv: "base", Default: t.settings.current().opts.Str("renderer"), Context: vars,
				Funcs: boundFunctions{t.funcs, k}, Grains: grains.All(), Opts: t.settings.current().opts.Clone(), Loader: fileclient.Templates{Files: k.Files},
			})
		},
		Low: orders.LowTrusted,
		Call: func(ctx context.Context, fun string, args []any, kwargs *value.Dict) error {
			inside.record("caller", value.DictOf("fun", fun), "", resultDone)
			_, err := t.funcs.Call(ctx, call(), fun, args, kwargs)
			return err
		},
	})
}

// renderTime bounds the rendering of one reaction.
const renderTime = 30 * time.Second
