// Package masters determines which masters a minion uses, and in which order: from the
// option master with master_type and random_master, from DNS services, from a function, or
// by a search of the network.
package masters

import (
	"cmp"
	"context"
	"errors"
	"hash/crc32"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"brine/internal/base/field"
	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/address"
	"brine/internal/net/discovery"
	"brine/internal/py/value"
)

// Options are the options of the minion that this package uses.
type Options struct {
	Master          Names             `salt:"master" default:"salt" doc:"the master, or a list of masters, as name, host:port, [v6]:port or name of a DNS service (_salt._tcp.example.com)" change:"restart"`
	MasterType      string            `salt:"master_type" default:"str" doc:"str (all masters of the list at once), failover (one, the next when it is lost), distributed (as failover, each minion begins with another one), cluster (as failover, the masters of a Brine cluster are learned from those named), func (master names a function that returns the masters) or disable" change:"restart"`
	RandomMaster    bool              `salt:"random_master" default:"false" doc:"shuffle the list of masters; with failover and master_failback the first one stays" change:"restart"`
	MasterShuffle   bool              `salt:"master_shuffle" default:"false" doc:"old name of random_master" change:"restart"`
	MasterPort      int               `salt:"master_port" default:"4506" doc:"the masters' request port" change:"restart"`
	MasterURIFormat string            `salt:"master_uri_format" default:"default" doc:"default splits host:port, ip_only takes the value as an address" change:"restart"`
	Discovery       discovery.Options `salt:"discovery" default:"false" doc:"where master is not set, ask the network for masters by broadcast: False, True, or a map with attempts (3), pause (5 seconds), port (4520, UDP), match (any or all) and mapping (what a master must say about itself)" change:"restart"`
}

// Names is the list of masters, written as a string or a list.
type Names []string

// SetValue accepts a string, a list of strings or nil. A number, or a list with one, is an
// error.
func (m *Names) SetValue(v any) error {
	switch x := v.(type) {
	case nil:
		*m = nil
		return nil
	case string:
		*m = Names{x}
		return nil
	case *value.List:
		out := make(Names, 0, x.Len())
		for _, it := range x.Items {
			s, ok := it.(string)
			if !ok || s == "" {
				return salt.Errorf(salt.Invalid, "expected names of masters, got %s in the list", value.Repr(it))
			}
			out = append(out, s)
		}
		*m = out
		return nil
	}
	return salt.Errorf(salt.Invalid, "expected the name of a master or a list of names, got %s", value.TypeName(v))
}

var _ field.Setter = (*Names)(nil)

// Finder determines the names of the masters.
type Finder struct {
	Options *Options
	// ID is the minion's id.
	ID string
	// Failback is the option master_failback.
	Failback bool
	Resolver *net.Resolver
	// InUse returns the masters that the running daemon of this minion uses.
	InUse func() []string
	// Call calls an execution function.
	Call func(ctx context.Context, job fn.Job) fn.Outcome
	Log  *slog.Logger
}

// The values of the option master_type.
const (
	TypeStr         = "str"
	TypeFailover    = "failover"
	TypeDistributed = "distributed"
	TypeFunc        = "func"
	TypeDisable     = "disable"
	// TypeCluster exists only in Brine.
	TypeCluster = "cluster"
)

// CheckType rejects values of master_type that Salt does not have. With master_type disable
// it empties the list of masters.
func (o *Options) CheckType() error {
	switch o.MasterType {
	case TypeStr, TypeFailover, TypeDistributed, TypeFunc, TypeCluster:
		if len(o.Master) == 0 {
			return salt.Errorf(salt.Invalid, "no master is named; set the option master")
		}
		return nil
	case TypeDisable:
		o.Master = nil
		return nil
	}
	return salt.Errorf(salt.Invalid, "master_type %q is not str, failover, distributed, cluster, func or disable", o.MasterType)
}

// Names returns the masters in order of preference: the option master, changed by
// master_type and random_master.
func (m *Finder) Names(ctx context.Context) (Names, error) {
	o := m.Options
	names := slices.Clone(o.Master)
	if o.MasterType == TypeFunc {
		var err error
		if names, err = m.askFunction(ctx, names); err != nil {
			return nil, err
		}
	}
	if m.Searches() {
		names = m.search(ctx)
	}
	names = m.expandServices(ctx, names)
	if len(names) < 2 {
		if o.MasterType == TypeDistributed || o.shuffle() {
			m.Log.Warn("master_type distributed and random_master need more than one master")
		}
		return names, nil
	}
	switch {
	case o.MasterType == TypeDistributed:
		// Each minion's id determines its preferred master, the same one at each start.
		n := int(crc32.ChecksumIEEE([]byte(m.ID)) % uint32(len(names)))
		names = append(names[n:len(names):len(names)], names[:n]...)
	case o.shuffle() && o.MasterType == TypeFailover && m.Failback:
		if len(names) == 2 {
			m.Log.Warn("master_shuffle has no effect with master_failback and two masters: the minion always returns to the first", "masters",
				strings.Join(names, ", "))
		}
		shuffle(names[1:]) // the minion always returns to the first one
	case o.shuffle():
		shuffle(names)
	}
	return names, nil
}

func shuffle(s []string) { rand.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] }) }

func (o *Options) shuffle() bool { return o.RandomMaster || o.MasterShuffle }

// askFunction calls the execution function that the option master names with
// master_type func. It returns one master or a list.
func (m *Finder) askFunction(ctx context.Context, names Names) (Names, error) {
	if len(names) != 1 {
		return nil, salt.Errorf(salt.Invalid, "master_type func: master must be the name of one function, got a list")
	}
	o := m.Call(ctx, fn.Job{Fun: names[0], Reported: true})
	if o.Err != nil {
		return nil, salt.Errorf(salt.Invalid, "master_type func: %s failed: %w", names[0], o.Err)
	}
	var found Names
	if err := found.SetValue(o.Return); err != nil {
		return nil, salt.Errorf(salt.Invalid, "master_type func: %s: %w", names[0], err)
	}
	if len(found) == 0 || slices.Contains(found, "") {
		return nil, salt.Errorf(salt.Invalid, "master_type func: %s names no master", names[0])
	}
	return found, nil
}

// noMaster is the default of the option master.
const noMaster = "salt"

// Searches reports whether to search the network for masters.
func (m *Finder) Searches() bool {
	o := m.Options
	return o.Discovery.On && o.MasterType != TypeFunc && len(o.Master) == 1 && o.Master[0] == noMaster
}

// search searches the network for masters, several times if none answers. salt-call uses
// those that the running daemon uses. If no master is found now, each connection attempt
// searches again.
func (m *Finder) search(ctx context.Context) Names {
	if used := m.InUse(); len(used) > 0 {
		return used
	}
	o := &m.Options.Discovery
	for try := 1; ; try++ {
		found, err := discovery.Search(ctx, o, m.Log)
		if err != nil {
			m.Log.Error("cannot search the network for masters", "err", err)
		}
		if len(found) > 0 {
			var out Names
			for _, f := range found {
				out = append(out, f.String())
			}
			m.Log.Info("found masters", "masters", strings.Join(out, ", "))
			return out
		}
		if try >= o.Attempts || !wait.Sleep(ctx, o.Pause) {
			m.Log.Warn("no master answered the search; searching again with each connection attempt", "port", o.Port)
			return m.Options.Master
		}
	}
}

// SearchAgain searches the network once, for a connection attempt.
func (m *Finder) SearchAgain(ctx context.Context) (out []address.Endpoint) {
	found, err := discovery.Search(ctx, &m.Options.Discovery, m.Log)
	if err != nil {
		m.Log.Debug("cannot search the network for masters", "err", err)
	}
	for _, f := range found {
		out = append(out, address.Endpoint{Host: f.Host, Port: cmp.Or(f.Port, m.Options.MasterPort)})
	}
	return out
}

// serviceTime bounds the look-up of a service at the start.
const serviceTime = 3 * time.Second

// expandServices replaces the name of a DNS service (_salt._tcp.example.com) by its hosts,
// by priority, in random order by weight. A service whose look-up fails stays one entry,
// which each connection attempt looks up again.
func (m *Finder) expandServices(ctx context.Context, names Names) Names {
	var out Names
	for _, name := range names {
		if !address.IsService(name) {
			out = append(out, name)
			continue
		}
		limited, cancel := context.WithTimeout(ctx, serviceTime)
		found, err := address.LookUpService(limited, m.Resolver, name)
		cancel()
		if err != nil {
			m.Log.Warn("cannot look up the masters of a DNS service; retrying with each connection attempt", "service", name, "err", err)
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

// Learns reports whether the minion learns the list of its masters from a master.
func (o *Options) Learns() bool { return o.MasterType == TypeCluster }

// Masterless reports whether the configuration disables masters.
func (o *Options) Masterless() bool { return o.MasterType == TypeDisable }

// OneAtATime reports whether the minion uses one master at a time.
func (o *Options) OneAtATime() bool {
	return o.MasterType == TypeFailover || o.MasterType == TypeDistributed || o.MasterType == TypeCluster
}

// Parse parses the name of a master.
func (o *Options) Parse(name string) (address.Master, error) {
	return address.Parse(name, o.MasterPort, o.MasterURIFormat == "ip_only")
}

// Addresses parses names and drops duplicates. If discovery is on and master has its default,
// each connection attempt searches the network before it looks up the name. Names that cannot
// be parsed are reported in the error.
func (m *Finder) Addresses(names Names) (out []address.Master, err error) {
	for _, text := range names {
		addr, failed := m.Options.Parse(text)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		if slices.ContainsFunc(out, func(a address.Master) bool { return a.Host == addr.Host && a.Port == addr.Port }) {
			m.Log.Warn("ignoring the second entry of a master that is listed twice", "master", text)
			continue
		}
		if text == noMaster && m.Searches() {
			addr.Search = m.SearchAgain
		}
		out = append(out, addr)
	}
	return out, err
}
