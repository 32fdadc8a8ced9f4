package minion

import (
	"context"
	"net"
	"path/filepath"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/address"
	"brine/internal/daemons/minion/failover"
	"brine/internal/daemons/minion/jobs"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/masters"
	"brine/internal/daemons/minion/members"
	"brine/internal/daemons/minion/ownpillar"
	"brine/internal/daemons/minion/roles"
	"brine/internal/daemons/minion/status"
	"brine/internal/py/value"
)

// buildLinks determines the masters and builds a link to each.
func (m *Minion) buildLinks(ctx context.Context) error {
	o := &m.cfg.Options
	if len(o.Master) == 0 {
		return nil // no key pair is needed
	}
	signer, fingerprint, err := LoadSigner(m.cfg, m.log)
	if err != nil {
		return err
	}
	m.identity = signer
	finder := m.finder()
	names, err := finder.Names(ctx)
	if err != nil {
		return err
	}
	if o.Learns() {
		m.members = members.New(members.Config{
			ID: m.cfg.ID, Transport: m.cfg.Transport.Name(), Path: filepath.Join(m.cfg.CacheDir, "brine", "members"),
			KeyPath: filepath.Join(m.cfg.PKIDir, "minion_master.pub"), Zone: m.zone, Log: m.log,
		})
	}
	m.linkCfg = &link.Config{
		Options: o.LinkOptions, ID: m.cfg.ID, Fingerprint: fingerprint, Transport: m.cfg.Transport, Dial: m.cfg.Dial, SubscribeDial: m.cfg.SubscribeDial,
		Resolver: finder.Resolver, Opts: m.cfg.Opts, ExtraPillarData: func() *value.Dict { return ownpillar.ExtraData(m.cfg.Opts) }, Grains: m.grains.Grains,
		NamesMaster: m.grains.NamesMaster,
		Outbox:      m.outbox, Links: m.links, Jobs: m.runner, Status: m.status, Members: m.members,
		Learned: func() { m.failover.Learned() },
		Notify: func(e roles.Event) {
			if m.failover != nil {
				m.failover.Notify(e)
			}
		},
		Ready: m.ready, PillarChanged: func() { m.schedule.Changed(); m.beacons.Changed() }, Report: m.bus.Report, Log: m.log,
	}
	found, faults := finder.Addresses(names)
	several := len(names) > 1 && !o.Learns()
	for _, addr := range found {
		if _, err := m.addLink(addr, several); err != nil {
			return err
		}
	}
	if m.members != nil {
		m.members.Recall()
	}
	if faults != nil {
		return salt.Errorf(salt.Invalid, "%w", faults)
	}
	m.assign()
	return nil
}

// finder determines the names of the masters.
func (m *Minion) finder() *masters.Finder {
	f := &masters.Finder{
		Options: &m.cfg.Options.MasterOptions, ID: m.cfg.ID, Failback: m.cfg.Options.Failback, Resolver: m.cfg.Resolver, Log: m.log, InUse: m.cfg.inUse,
		Call: func(ctx context.Context, j fn.Job) fn.Outcome { return m.funcs.Run(ctx, m.calls.New(nil, ""), j) },
	}
	if f.Resolver == nil {
		f.Resolver = net.DefaultResolver
	}
	return f
}

// statusFile is the file with the daemon's connection status.
func (cfg *Config) statusFile() string { return filepath.Join(cfg.CacheDir, "brine", "masters.json") }

// inUse returns the masters that the running daemon of this minion uses.
func (cfg *Config) inUse() []string { return status.InUse(cfg.statusFile(), jobs.RunsJobs) }

// addLink adds a link to a master and returns its index. several means that the masters
// have different keys, so each key has its own file.
func (m *Minion) addLink(addr address.Master, several bool) (int, error) {
	signer := *m.identity
	signer.Trust = m.cfg.trustIn(addr, several)
	c, err := link.New(m.linkCfg, addr, &signer)
	if err != nil {
		return 0, err
	}
	m.links.Add(c)
	if m.begin != nil {
		m.begin(c)
	}
	return c.Index, nil
}

// assign makes all links active or, if one master is used at a time, builds the failover
// that assigns the roles.
func (m *Minion) assign() {
	if !m.links.OneAtATime {
		for _, c := range m.links.All() {
			c.SetRole(roles.Active)
		}
		return
	}
	if len(m.links.All()) == 0 {
		return
	}
	o := &m.cfg.Options
	m.failover = failover.New(failover.Config{
		Options: o.FailoverOptions, ID: m.cfg.ID, AliveInterval: o.AliveInterval, MasterPort: o.MasterPort, Links: m.links, Members: m.members,
		Add: func(a address.Master) (int, error) { return m.addLink(a, false) }, Busy: m.jobs.Busy, Status: m.status, Log: m.log,
	})
}

// newStatus builds the connection status, which the daemon reports.
func (m *Minion) newStatus() *status.Status {
	if m.bus.Outside() {
		return nil
	}
	return status.New(status.Config{
		ID: m.cfg.ID, Path: m.cfg.statusFile(), OneAtATime: func() bool { return m.links.OneAtATime }, Log: m.log,
		Masters: func() (out []status.Master) {
			for _, c := range m.links.All() {
				out = append(out, c.State())
			}
			return out
		},
	})
}

// zone returns the minion's location.
func (m *Minion) zone() string {
	if z := m.cfg.Options.Zone; z != "" {
		return z
	}
	return value.Str(orEmpty(m.grains.Grains().At("zone")))
}

func orEmpty(v any) any {
	if v == nil {
		return ""
	}
	return v
}
