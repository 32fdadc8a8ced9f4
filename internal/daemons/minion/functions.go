package minion

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/catalogue"
	"brine/internal/catalogue/modules/control"
	"brine/internal/catalogue/modules/core"
	"brine/internal/catalogue/runners"
	"brine/internal/daemons/minion/background"
	"brine/internal/daemons/minion/beacons"
	"brine/internal/daemons/minion/grains"
	"brine/internal/daemons/minion/jobs"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/localbus"
	"brine/internal/daemons/minion/mine"
	"brine/internal/daemons/minion/refresh"
	"brine/internal/daemons/minion/schedule"
	"brine/internal/daemons/minion/status"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
)

// buildFunctions builds the execution modules.
func (m *Minion) buildFunctions() error {
	var err error
	if m.stock, err = m.stockModules(); err != nil {
		return err
	}
	if err := m.buildStates(); err != nil {
		return err
	}
	o := &m.cfg.Options
	r, err := fn.NewRegistry(m.grains.Reader(nil), permitted(m.catalogue(), o.DisableModules, o.WhitelistModules, m.grains.Reader(nil))...)
	if err == nil {
		if m.stock != nil {
			r.Attach(m.stock.Source(m.user.Source()))
		} else {
			r.Attach(m.user.Source())
		}
		r.Document("states", m.states.Declarations)
		r.Document("runners", runnerDocs)
	}
	m.funcs = r
	return err
}

// runnerDocs returns the documentation of a master's runners.
var runnerDocs = sync.OnceValue(func() *fn.Registry {
	r, err := fn.NewRegistry(nil, runners.New(runners.Deps{})...)
	if err != nil {
		panic(err) // two functions of one name
	}
	return r
})

// Catalogue returns the modules of every minion for documentation, not for
// calls.
func Catalogue() []fn.Module {
	m := &Minion{log: slog.New(slog.DiscardHandler), background: background.New(context.Background())}
	m.cfg.Options.Master = Masters{"salt"} // so that no files of this machine are served
	m.buildServices()
	return m.catalogue()
}

// catalogue returns the module families, and the modules that need the daemon itself.
func (m *Minion) catalogue() []fn.Module {
	masters := messenger{links: m.links, bus: m.bus, mine: m.mine, masterless: m.cfg.Options.Masterless()}
	refresher := refresh.Functions{Server: m.refresh}
	return append(catalogue.Modules(),
		core.Grains(grainFunctions{m.grains, refresher}),
		control.Saltutil(control.Deps{Jobs: jobFunctions{m.jobs, m.notes}, Refresh: refresher, Keys: keys{&m.cfg, m.log}, Masters: masters,
			Local: catalogue.LocalMaster{Open: m.cfg.openLocalMaster}, Modules: m.user}),
		control.Event(masters, m.bus),
		control.Mine(masters),
		control.Publish(masters),
		control.Schedule(schedule.Functions{Schedule: m.schedule, Bus: m.bus}),
		control.Beacons(beacons.Functions{Scheduler: m.beacons, Bus: m.bus}),
		m.stateModule(),
	)
}

// openLocalMaster opens the connection to the master on this machine.
func (cfg *Config) openLocalMaster() (*client.Client, func(), error) {
	if cfg.LocalMaster == nil {
		return nil, nil, salt.Errorf(salt.Unavailable, "there is no configuration of a master")
	}
	return cfg.LocalMaster()
}

// grainFunctions lets functions change the grains.
type grainFunctions struct {
	*grains.Store
	refresher refresh.Functions
}

// Refresh collects the grains, and optionally the pillar, again.
func (s grainFunctions) Refresh(ctx context.Context, pillar bool) error {
	what := control.RefreshModules
	if pillar {
		what = control.RefreshPillar
	}
	return s.refresher.Refresh(ctx, what, false, false)
}

// messenger sends messages for functions: over the queues of all connections,
// or, in salt-call, directly to its master.
type messenger struct {
	links      *link.Set
	bus        *localbus.Bus
	mine       *mine.Mine
	masterless bool
}

// Request sends a request to one connected master.
func (s messenger) Request(ctx context.Context, load *value.Dict) (any, error) {
	if s.links.Direct != nil {
		return s.links.Direct.Client.Request(ctx, load)
	}
	for _, c := range s.links.All() {
		if c.Is(status.Connected) {
			return c.Client.Request(ctx, load)
		}
	}
	return nil, salt.Errorf(salt.Unavailable, "no master is connected")
}

// Pick returns the master with a host name or address, or any connected one.
// salt-call signs in to the master if it does not use it already.
func (s messenger) Pick(ctx context.Context, host string) (control.Asker, error) {
	if len(s.links.All()) == 0 || s.masterless {
		return nil, control.ErrMasterless
	}
	if s.links.Direct != nil && (host == "" || s.links.Direct.Addr.Is(host)) {
		return s.links.Direct.Client, nil
	}
	for _, c := range s.links.All() {
		if host != "" && !c.Addr.Is(host) {
			continue
		}
		if s.links.Direct != nil {
			return c.Client, c.SignIn(ctx)
		}
		if c.Is(status.Connected) || host != "" && c.Is(status.Standby) {
			return c.Client, nil
		}
	}
	if host == "" {
		return nil, salt.Errorf(salt.Unavailable, "no master is connected")
	}
	return nil, salt.Errorf(salt.Unavailable, "no master %q is connected; the option master names those there are", host)
}

// Send sends a message to every master; it is queued for an unreachable one.
func (s messenger) Send(ctx context.Context, load *value.Dict) error {
	if s.links.Direct != nil {
		copied := load.Clone()
		_, err := s.links.Direct.Client.Request(ctx, load)
		if err == nil && mine.IsRequest(copied) && len(s.links.Receivers()) > 1 {
			// The daemon sends it to the other masters, as in Salt.
			err = localbus.IgnoreNoDaemon(s.bus.Fire(ctx, mine.TagMine, copied))
		}
		return err
	}
	if len(s.links.All()) == 0 {
		return salt.Errorf(salt.Unavailable, "this minion has no master")
	}
	if mine.IsRequest(load) {
		s.mine.Pass(load)
		return nil
	}
	if cmd, _ := load.Get("cmd"); cmd == "_minion_event" && !load.Has("pretag") {
		load.Set("pretag", nil) // as in events that stock daemons forward
	}
	s.links.Send(load)
	return nil
}

// jobFunctions returns the running jobs: those of this process, and those that
// other processes of this minion (the daemon, or salt-call) recorded.
type jobFunctions struct {
	table *jobs.Table
	notes *jobs.Notes
}

// Running implements control.Jobs.
func (j jobFunctions) Running() []control.RunningJob {
	var out []control.RunningJob
	own := map[string]bool{}
	for _, r := range j.table.List("") {
		own[r.JID] = true
		out = append(out, control.RunningJob{JID: r.JID, Fun: r.Fun, PID: os.Getpid(), Load: r.Describe()})
	}
	for _, r := range j.notes.Others() {
		if !own[r.JID] {
			out = append(out, control.RunningJob{JID: r.JID, Fun: r.Fun, PID: int(r.Pub.PID), Load: r.Load})
		}
	}
	return out
}

// Signal implements control.Jobs. It signals only jobs of this process: the pid recorded by
// another process is that of a whole daemon.
func (j jobFunctions) Signal(jid string, sig syscall.Signal) error { return j.table.Signal(jid, sig) }

// Cached implements control.Jobs.
func (j jobFunctions) Cached(jid string) (*value.Dict, bool) { return j.table.Returned(jid) }

// keys replaces the key pair of the minion.
type keys struct {
	cfg *Config
	log *slog.Logger
}

// Regenerate implements control.Keys. It replaces the pair on disk. This process keeps
// using the old pair, so that masters still accept the return of this job and later
// messages until the operator restarts the minion. The stored master key stays. Stock
// minions remove it, and then trust the first master that answers.
func (k keys) Regenerate(context.Context) error {
	cfg := k.cfg
	key, err := crypt.GenerateKey(max(cfg.Keysize, 2048))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.PKIDir, 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(cfg.PKIDir, "minion.pem"), key.PEM(), 0o400, true); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(cfg.PKIDir, "minion.pub"), key.Public().PEM(), 0o644, true); err != nil {
		return err
	}
	k.log.Warn("created a new key pair, used from the next start; masters deny the minion until its old key is deleted there (salt-key -d, "+
		"or saltutil.revoke_auth) and the new one accepted",
		"fingerprint", crypt.Fingerprint(key.Public().PEM(), cfg.Handshake.HashType))
	return nil
}
