package minion

import (
	"cmp"
	"context"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/address"
	"brine/internal/daemons/minion/roles"
	"brine/internal/net/discovery"
	"brine/internal/py/value"
)

// The words of the option master_type.
const (
	typeStr         = "str"
	typeFailover    = "failover"
	typeDistributed = "distributed"
	typeFunc        = "func"
	typeDisable     = "disable"
	// typeCluster is Brine's own.
	typeCluster = "cluster"
)

// checkMasterType refuses words that Salt does not know.
func checkMasterType(o *Options) error {
	switch o.MasterType {
	case typeStr, typeFailover, typeDistributed, typeFunc, typeCluster:
		if len(o.Master) == 0 {
			return salt.Errorf(salt.Invalid, "no master is named; set the option master")
		}
		return nil
	case typeDisable:
		o.Master = nil
		return nil
	}
	return salt.Errorf(salt.Invalid, "master_type %q is not str, failover, distributed, cluster, func or disable", o.MasterType)
}

// nameMasters is the option master as a list in the order of preference,
// after what master_type and random_master do to it.
func (m *Minion) nameMasters(ctx context.Context) (Masters, error) {
	o := &m.cfg.Options
	names := slices.Clone(o.Master)
	if o.MasterType == typeFunc {
		var err error
		if names, err = m.askFunction(ctx, names); err != nil {
			return nil, err
		}
	}
	if m.searches() {
		names = m.search(ctx)
	}
	names = m.expandServices(ctx, names)
	if len(names) < 2 {
		if o.MasterType == typeDistributed || o.shuffle() {
			m.log.Warn("master_type distributed and random_master need more than one master")
		}
		return names, nil
	}
	switch {
	case o.MasterType == typeDistributed:
		// Every minion has a preferred master by its id, the same at each start.
		n := int(crc32.ChecksumIEEE([]byte(m.cfg.ID)) % uint32(len(names)))
		names = append(names[n:len(names):len(names)], names[:n]...)
	case o.shuffle() && o.MasterType == typeFailover && o.Failback:
		if len(names) == 2 {
			m.log.Warn("master_shuffle does nothing with master_failback and two masters: the minion always goes back to the first", "masters", strings.Join(names, ", "))
		}
		shuffle(names[1:]) // the first one is where it goes back to
	case o.shuffle():
		shuffle(names)
	}
	return names, nil
}

func shuffle(s []string) { rand.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] }) }

func (o *Options) shuffle() bool { return o.RandomMaster || o.MasterShuffle }

// askFunction calls the execution function that the option master names with
// master_type func. It returns the name of a master or a list of them.
func (m *Minion) askFunction(ctx context.Context, names Masters) (Masters, error) {
	if len(names) != 1 {
		return nil, salt.Errorf(salt.Invalid, "master_type func: master must be the name of one function, got a list")
	}
	o := m.funcs.Run(ctx, m.newCall(nil, ""), fn.Job{Fun: names[0], Reported: true})
	if o.Err != nil {
		return nil, salt.Errorf(salt.Invalid, "master_type func: %s failed: %w", names[0], o.Err)
	}
	var found Masters
	if err := found.SetValue(o.Return); err != nil {
		return nil, salt.Errorf(salt.Invalid, "master_type func: %s: %w", names[0], err)
	}
	if len(found) == 0 || slices.Contains(found, "") {
		return nil, salt.Errorf(salt.Invalid, "master_type func: %s names no master", names[0])
	}
	return found, nil
}

// noMaster is the option master where nobody has set it.
const noMaster = "salt"

// searches tells whether the network is to be asked for masters.
func (m *Minion) searches() bool {
	o := &m.cfg.Options
	return o.Discovery.On && o.MasterType != typeFunc && len(o.Master) == 1 && o.Master[0] == noMaster
}

// search asks the network for masters, several times if there is none. Those
// that the running daemon of this minion has found are good for salt-call. If
// there is none now, each attempt to connect asks again.
func (m *Minion) search(ctx context.Context) Masters {
	if used := m.inUse(); len(used) > 0 {
		return used
	}
	o := &m.cfg.Options.Discovery
	for try := 1; ; try++ {
		found, err := discovery.Search(ctx, o, m.log)
		if err != nil {
			m.log.Error("the network cannot be asked for masters", "err", err)
		}
		if len(found) > 0 {
			var out Masters
			for _, f := range found {
				out = append(out, f.String())
			}
			m.log.Info("found masters", "masters", strings.Join(out, ", "))
			return out
		}
		if try >= o.Attempts || !wait.Sleep(ctx, o.Pause) {
			m.log.Warn("no master has answered; the network is asked again with each attempt to connect", "port", o.Port)
			return m.cfg.Options.Master
		}
	}
}

// searchAgain asks the network once more, for an attempt to connect.
func (m *Minion) searchAgain(ctx context.Context) (out []address.Endpoint) {
	found, err := discovery.Search(ctx, &m.cfg.Options.Discovery, m.log)
	if err != nil {
		m.log.Debug("the network cannot be asked for masters", "err", err)
	}
	for _, f := range found {
		out = append(out, address.Endpoint{Host: f.Host, Port: cmp.Or(f.Port, m.cfg.Options.MasterPort)})
	}
	return out
}

// serviceTime bounds the look-up of a service at the start.
const serviceTime = 3 * time.Second

// expandServices puts the hosts of a DNS service (_salt._tcp.example.com) in
// the place of its name, in the order of their priority and, by chance, of
// their weight. A service that cannot be looked up now stays one entry, which
// is looked up at each attempt to connect.
func (m *Minion) expandServices(ctx context.Context, names Masters) Masters {
	var out Masters
	for _, name := range names {
		if !address.IsService(name) {
			out = append(out, name)
			continue
		}
		limited, cancel := context.WithTimeout(ctx, serviceTime)
		found, err := address.LookUpService(limited, m.resolver(), name)
		cancel()
		if err != nil {
			m.log.Warn("the masters of a DNS service are not known yet; it is looked up again with each attempt", "service", name, "err", err)
			out = append(out, name)
		}
		for _, e := range found {
			if s := e.String(); !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return out
}

func (m *Minion) resolver() *net.Resolver {
	if r := m.cfg.Resolver; r != nil {
		return r
	}
	return net.DefaultResolver
}

// assign gives every connection its first role.
func (m *Minion) assign() {
	t := m.cfg.Options.MasterType
	if t == typeFailover || t == typeDistributed || t == typeCluster {
		if len(m.masters()) > 0 {
			m.failover = newFailover(m)
		}
		return
	}
	for _, c := range m.masters() {
		c.role.set(roles.Active)
	}
}

// tellRefused tells the other masters that one does not take this minion, or
// is not what it should be, so that somebody learns of it.
func (m *Minion) tellRefused(c *connection, err error) {
	data := value.DictOf("id", m.cfg.ID, "master", c.addr.Text, "reason", reason(err))
	load := value.DictOf("id", m.cfg.ID, "cmd", "_minion_event", "pretag", nil,
		"tag", "salt/minion/"+m.cfg.ID+"/master_refused", "data", data)
	for _, o := range m.masters() {
		if r, _ := o.role.get(); o != c && r == roles.Active {
			o.out.Put(load)
		}
	}
}
