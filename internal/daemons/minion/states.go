package minion

import (
	"context"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/catalogue"
	modstates "brine/internal/catalogue/modules/states"
	"brine/internal/catalogue/states/orchestration"
	"brine/internal/py/value"
	"brine/internal/sls/highstate"
	"brine/internal/sls/state"
)

// buildStates builds the state functions.
func (m *Minion) buildStates() error {
	r, err := state.NewRegistry(m.grains.Reader(nil), catalogue.States(orchestration.Deps{Listen: m.bus.Watcher().Listen})...)
	if err == nil {
		if m.stock != nil {
			r.Attach(m.stock.States(m.user.States()))
		} else {
			r.Attach(m.user.States())
		}
	}
	m.states = r
	return err
}

// stateModule builds the execution module that runs states.
func (m *Minion) stateModule() fn.Module {
	mod := modstates.Module(modstates.Deps{
		Deps: highstate.Deps{
			Renderer: m.renderer, States: m.states, Fire: m.fireMasters, Watch: m.cfg.StateWatch,
			PillarIsFresh: m.cfg.LateGrains, Grains: m.grains.Grains,
			Reload: func(ctx context.Context, what string) error {
				if what == "grains" {
					m.grains.Collect(ctx)
				}
				if what == "modules" {
					m.user.Rescan()
				}
				return nil
			},
		},
		Configured: m.configured,
		Autoload:   m.user.Autoload(),
		Running: func() []modstates.Job {
			var out []modstates.Job
			for _, j := range (jobFunctions{m.jobs, m.notes}).Running() {
				out = append(out, modstates.Job{JID: j.JID, Fun: value.Str(j.Fun), PID: j.PID})
			}
			return out
		},
	})
	mod.Funcs = append(mod.Funcs, m.bus.Watcher().Event())
	return mod
}

// configured returns a copy of c with the options of the file path on top of the minion's
// own. With file_client: local the files and the pillar also use these options. The masters
// and connections stay the same.
func (m *Minion) configured(c *fn.Call, path string) (*fn.Call, error) {
	if m.cfg.Overlaid == nil {
		return nil, salt.Errorf(salt.Unavailable, "this minion has no configuration that a file could be laid over")
	}
	cfg, err := m.cfg.Overlaid(path)
	if err != nil {
		return nil, err
	}
	call := func() *fn.Call {
		d := *c
		d.ID, d.Config = cfg.ID, fn.Tree{Dict: cfg.Opts}
		if cfg.local() {
			d.Files = m.fileSource(&cfg).Local(m.log)
		}
		return &d
	}
	d := call()
	if cfg.local() {
		own := cfg.ownPillar(m.renderer, m.funcs, m.user, call, m.grains, m.background, m.log)
		d.Pillar = own
	}
	return d, nil
}

// fireMasters sends an event to the masters.
func (m *Minion) fireMasters(ctx context.Context, tag string, data *value.Dict) {
	if m.links.Direct == nil && len(m.links.All()) == 0 {
		return
	}
	load := value.DictOf("id", m.cfg.ID, "cmd", "_minion_event", "pretag", nil, "tag", tag, "data", data)
	if err := (messenger{links: m.links, bus: m.bus}).Send(ctx, load); err != nil {
		m.log.Warn("cannot send event", "tag", tag, "err", err)
	}
}
