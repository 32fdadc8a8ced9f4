package calls

import (
	"log/slog"

	"brine/internal/call/fn"
	"brine/internal/daemons/minion/grains"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/ownpillar"
	"brine/internal/files/fileclient"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
	"brine/internal/sls/render"
)

// Config is the configuration of a Factory.
type Config struct {
	// ID is the minion's id.
	ID string
	// Opts are all options by name.
	Opts     *value.Dict
	Grains   *grains.Store
	Renderer *render.Renderer
	// Source is the location of files; Server serves them with file_client: local,
	// otherwise it is nil.
	Source FileSource
	Server *fileserver.Server
	// Funcs returns the callable functions.
	Funcs func() *fn.Registry
	// SDB has the user's drivers for sdb:// references, or is nil.
	SDB fn.SDB
	Log *slog.Logger
}

// Factory creates calls.
type Factory struct {
	cfg   Config
	own   *ownpillar.Pillar // nil unless file_client is local
	trees fileclient.Trees  // file trees that jobs have fetched
}

// NewFactory returns a Factory whose calls get the pillar of a master; see SetOwnPillar.
func NewFactory(c Config) *Factory { return &Factory{cfg: c} }

// SetOwnPillar sets the pillar that this machine compiles.
func (m *Factory) SetOwnPillar(p *ownpillar.Pillar) { m.own = p }

// New prepares a function's view of this minion and of one master.
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
		Files: m.files(from), Templates: templates{m.cfg.Renderer, m.cfg.Funcs}, SDB: m.cfg.SDB,
	}
	switch {
	case m.own != nil:
		c.Pillar = m.own
	case from != nil:
		c.Pillar = fn.NewPillar(pillar, from.AskPillar)
	}
	return c
}

// files returns the files for a job of one master: only from that master, or from
// this machine.
func (m *Factory) files(from *link.Link) *fileclient.Client {
	var src fileclient.Source
	switch {
	case m.cfg.Server != nil:
		src = localFiles{m.cfg.Server, m.cfg.Opts}
	case from != nil:
		src = from.Client
	}
	o := m.cfg.Source.options()
	o.Trees = &m.trees
	return fileclient.New(src, o, m.cfg.Log)
}
