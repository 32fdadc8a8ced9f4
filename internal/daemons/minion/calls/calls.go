package calls

import (
	"log/slog"
	"sync"

	"brine/internal/call/fn"
	"brine/internal/catalogue/runners"
	"brine/internal/daemons/minion/grains"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/ownpillar"
	"brine/internal/files/fileclient"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
	"brine/internal/sls/render"
)

// Config is what a Factory needs.
type Config struct {
	// ID is the minion's id.
	ID string
	// Opts are all options under their names.
	Opts     *value.Dict
	Grains   *grains.Store
	Renderer *render.Renderer
	// Source is where files are kept; Server serves them with file_client: local,
	// else it is nil.
	Source FileSource
	Server *fileserver.Server
	// Funcs returns the functions that can be called, States the documentation of
	// the state functions.
	Funcs  func() *fn.Registry
	States func() *fn.Registry
	Log    *slog.Logger
}

// Factory makes calls.
type Factory struct {
	cfg   Config
	own   *ownpillar.Pillar // of file_client: local, else nil
	trees fileclient.Trees  // that jobs have fetched
}

// NewFactory returns a Factory of calls without a pillar of this machine.
func NewFactory(c Config) *Factory { return &Factory{cfg: c} }

// SetOwnPillar has calls see the pillar that this machine compiles.
func (m *Factory) SetOwnPillar(p *ownpillar.Pillar) { m.own = p }

// New prepares what a function sees of this minion and of one master.
func (m *Factory) New(from *link.Link, jid string) *fn.Call {
	pillar, opts := value.NewDict(0), m.cfg.Opts
	if from != nil {
		opts = from.Opts()
		if p := from.Pillar(); p != nil {
			pillar = p
		}
	}
	c := &fn.Call{
		ID: m.cfg.ID, JID: jid, Log: m.cfg.Log,
		Grains: m.cfg.Grains.Reader(from), Pillar: fn.Tree{Dict: pillar}, Config: fn.Tree{Dict: opts},
		Files: m.files(from), Template: m.template, Render: m.render, Catalogues: map[string]*fn.Registry{"states": m.cfg.States(), "runners": runnerDocs()},
	}
	switch {
	case m.own != nil:
		c.Pillar, c.CompilePillar = m.own, m.own.Compile
	case from != nil:
		c.CompilePillar = from.AskPillar
	}
	return c
}

// runnerDocs returns the runners of a master, for their documentation.
var runnerDocs = sync.OnceValue(func() *fn.Registry {
	r, err := fn.NewRegistry(nil, runners.New(runners.Deps{})...)
	if err != nil {
		panic(err) // two functions of one name
	}
	return r
})
