package minion

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/catalogue"
	"brine/internal/catalogue/modules/control"
	"brine/internal/catalogue/modules/core"
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

// buildFunctions collects the execution modules.
func (m *Minion) buildFunctions() error {
	if err := m.buildStates(); err != nil {
		return err
	}
	o := &m.cfg.Options
	r, err := fn.NewRegistry(m.grains.Reader(nil), permitted(m.catalogue(), o.DisableModules, o.WhitelistModules, m.grains.Reader(nil))...)
	m.funcs = r
	return err
}

// Catalogue returns the modules of every minion, to be described, not called.
func Catalogue() []fn.Module {
	m := &Minion{log: slog.New(slog.DiscardHandler), background: background.New(context.Background())}
	m.cfg.Options.Master = Masters{"salt"} // so that no files of this machine are served
	m.buildServices()
	return m.catalogue()
}

// catalogue names the families of modules, and those modules that need the
// daemon itself.
func (m *Minion) catalogue() []fn.Module {
	masters := messenger{links: m.links, bus: m.bus, mine: m.mine, masterless: m.cfg.Options.Masterless()}
	refresher := refresh.Functions{Server: m.refresh}
	return append(catalogue.Modules(),
		core.Grains(grainFunctions{m.grains, refresher}),
		control.Saltutil(control.Deps{Jobs: jobFunctions{m.jobs, m.notes}, Refresh: refresher, Keys: keys{&m.cfg, m.log}, Masters: masters,
			Local: catalogue.LocalMaster{Open: m.cfg.openLocalMaster}}),
		control.Event(masters, m.bus),
		control.Mine(masters),
		control.Publish(masters),
		control.Schedule(schedule.Functions{Schedule: m.schedule, Bus: m.bus}),
		control.Beacons(beacons.Functions{Scheduler: m.beacons, Bus: m.bus}),
		m.stateModule(),
	)
}

// openLocalMaster opens the way to the master on this machine.
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

// Refresh has the grains, and with pillar the pillar, collected again.
func (s grainFunctions) Refresh(ctx context.Context, pillar bool) error {
	what := control.RefreshModules
	if pillar {
		what = control.RefreshPillar
	}
	return s.refresher.Refresh(ctx, what, false, false)
}

// messenger sends on behalf of functions: over the queues of all connections,
// or, for salt-call, directly to the one master that it uses.
type messenger struct {
	links      *link.Set
	bus        *localbus.Bus
	mine       *mine.Mine
	masterless bool
}

// Request asks one master that the minion is connected to.
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

// Pick returns the master of a host name or address, or any one that the
// minion is connected to. salt-call signs in to the master if that is not the
// one it already uses.
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

// Send gives a message to every master; one that is away gets it later.
func (s messenger) Send(ctx context.Context, load *value.Dict) error {
	if s.links.Direct != nil {
		copied := load.Clone()
		_, err := s.links.Direct.Client.Request(ctx, load)
		if err == nil && mine.IsRequest(copied) && len(s.links.Receivers()) > 1 {
			// The other masters get it from the daemon, as in Salt.
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
		load.Set("pretag", nil) // as in events that Salt's daemons pass on
	}
	s.links.Send(load)
	return nil
}

// jobFunctions shows the running jobs: those of this process, and those that other
// processes of this minion (the daemon, or salt-call) have noted.
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

// Signal implements control.Jobs. Only jobs of this process can be reached:
// the pid of another one's is that of a whole daemon.
func (j jobFunctions) Signal(jid string, sig syscall.Signal) error { return j.table.Signal(jid, sig) }

// Cached implements control.Jobs.
func (j jobFunctions) Cached(jid string) (*value.Dict, bool) { return j.table.Returned(jid) }

// keys makes new keys for the minion.
type keys struct {
	cfg *Config
	log *slog.Logger
}

// Regenerate implements control.Keys. The pair on disk is another one then; this
// process goes on with the old one, so that the job's return and whatever comes
// before the operator is ready still pass. The master's key stays: Salt's removes
// it, too, and then trusts the first that answers.
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
	k.log.Warn("the minion has a new key pair, which counts from its next start on; masters deny it until its old key is deleted there (salt-key -d, "+
		"or saltutil.revoke_auth) and the new one accepted",
		"fingerprint", crypt.Fingerprint(key.Public().PEM(), cfg.Handshake.HashType))
	return nil
}
