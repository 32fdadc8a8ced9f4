package minion

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/daemons/minion/address"
	"brine/internal/ha/roster"
	"brine/internal/net/channel"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
)

// With master_type cluster the masters are learned: the option master names one
// or more ways in, and whoever answers there has the list of all masters,
// signed by the key that they have in common (package roster). It is kept over
// restarts, and an older one is never taken for a newer one. From then on they
// are masters as with failover, in an order of this minion's own.

// members is the list of masters that a minion has learned.
type members struct {
	m *Minion

	mu      sync.Mutex
	list    roster.List
	refused int64 // the version that a master had last and that was of no use
}

// Times of what is learned.
const (
	// membersPause is how often the active master is asked whether there is
	// another list. One that stands by tells it with each sign of life.
	membersPause = 30 * time.Second
	// leaveSpread is the time over which the minions of a master leave it that
	// drains.
	leaveSpread = 5 * time.Second
	// slowly is the part of master_rebalance that a minion waits at least.
	slowly = 10
	// maxMasters bounds the masters that one process gets to know.
	maxMasters = 4 * roster.MaxMembers
)

func (m *Minion) membersFile() string { return filepath.Join(m.cfg.CacheDir, "brine", "members") }

// learns reports whether this minion learns of its masters.
func (o *Options) learns() bool { return o.MasterType == typeCluster }

// masterKey is the key that the minion's masters have in common.
func (m *Minion) masterKey() (*crypt.PublicKey, error) {
	pem, ok := channel.NewFileTrust(filepath.Join(m.cfg.PKIDir, "minion_master.pub")).Known()
	if !ok {
		return nil, salt.Errorf(salt.Unavailable, "no master's key is known yet")
	}
	return crypt.ParsePublic([]byte(pem))
}

// recallMembers takes up the list that an earlier process has left.
func (m *Minion) recallMembers() {
	fi, err := os.Stat(m.membersFile())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var b []byte
	if err == nil && fi.Size() <= roster.MaxBytes {
		b, err = os.ReadFile(m.membersFile())
	}
	if err == nil {
		_, err = m.members.take(b)
	}
	if err != nil {
		m.log.Warn("the list of masters that was kept is not used; a master will give it anew", "file", m.membersFile(), "err", err)
	}
}

// take checks a list, and reports whether it is a newer one.
func (s *members) take(signed []byte) (news bool, err error) {
	key, err := s.m.masterKey()
	if err != nil {
		return false, err
	}
	l, err := roster.Open(signed, key)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.Version <= s.list.Version || len(l.Members) == 0 {
		return false, nil
	}
	s.list = l
	return true, nil
}

// wants reports whether a version is news that was not refused already.
func (s *members) wants(version int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return version > s.list.Version && version != s.refused
}

func (s *members) refuse(version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = version
}

// zone is where this minion is.
func (m *Minion) zone() string {
	if z := m.cfg.Options.Zone; z != "" {
		return z
	}
	return value.Str(orEmpty(m.Grains().At("zone")))
}

func orEmpty(v any) any {
	if v == nil {
		return ""
	}
	return v
}

// preferred is the addresses of the masters in the order in which this minion
// uses them, and those of them that it is to leave if it can. What the option
// master names and the list does not is a way in only: a balancer, or a master
// that is gone.
func (m *Minion) preferred(classes map[string]int) (addrs, avoid []string) {
	m.members.mu.Lock()
	l := m.members.list
	m.members.mu.Unlock()
	transport := m.cfg.Transport.Name()
	class := func(id string) int {
		i := slices.IndexFunc(l.Members, func(x roster.Member) bool { return x.ID == id })
		return classes[l.Members[i].Address(transport)]
	}
	for _, x := range roster.Prefer(l.Members, m.cfg.ID, m.zone(), class) {
		a := x.Address(transport)
		if a == "" || slices.Contains(addrs, a) {
			continue
		}
		addrs = append(addrs, a)
		if x.Draining {
			avoid = append(avoid, a)
		}
	}
	return addrs, avoid
}

// classes are those of the masters, by their addresses, that have shown how
// quickly they answer, and are slower than the first class.
func (m *Minion) classes() map[string]int {
	out := map[string]int{}
	for _, c := range m.masters() {
		if class, known := c.latency.class(time.Now()); known && class > 0 {
			out[c.addr.Endpoint().String()] = class
		}
	}
	return out
}

// latency is what is known of how quickly a master answers.
type latency struct {
	mu sync.Mutex
	l  roster.Latency
}

func (l *latency) class(now time.Time) (class int, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.l.Class(now)
}

// answered notes how long the master took for a sign of life.
func (c *connection) answered(took time.Duration) {
	f := c.m.failover
	if f == nil || !c.m.cfg.Options.learns() {
		return
	}
	c.latency.mu.Lock()
	changed := c.latency.l.Add(took, time.Now(), c.m.cfg.Options.bounds())
	class, _ := c.latency.l.Class(time.Now())
	c.latency.mu.Unlock()
	if changed {
		c.log.Info("how quickly the master answers", "class", class, "milliseconds", took.Seconds()*1000)
		f.learned()
	}
}

// getting reports whether it is still to be found out how quickly the master
// answers.
func (c *connection) getting() bool {
	_, known := c.latency.class(time.Now())
	return !known && c.m.cfg.Options.learns() && len(c.m.cfg.Options.Latency) > 0
}

func (o *Options) bounds() (out roster.Bounds) {
	for _, ms := range o.Latency {
		out = append(out, time.Duration(ms*float64(time.Millisecond)))
	}
	return out
}

// learn asks a master for the list if it has a newer one, and uses it.
func (c *connection) learn(ctx context.Context, version int64) {
	s := c.m.members
	if !s.wants(version) || !c.m.cfg.Options.learns() || c.m.failover == nil {
		return
	}
	v, err := c.client.Request(ctx, value.DictOf("cmd", "_brine_members", "id", c.m.cfg.ID))
	d, _ := v.(*value.Dict)
	if err != nil {
		c.log.Debug("the master does not tell which others there are", "err", err)
		return
	}
	signed := d.Bytes("members")
	news, err := s.take(signed)
	if err != nil {
		s.refuse(version)
		c.log.Warn("the list of masters that this one has is not used", "err", err)
		return
	}
	if !news {
		return
	}
	path := c.m.membersFile()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		c.log.Warn("the list of masters is not kept", "err", err)
	} else if err := atomicfile.Write(path, signed, 0o600, true); err != nil {
		c.log.Warn("the list of masters is not kept", "err", err)
	}
	c.m.failover.learned()
}

// arrange has the machine know the masters of the list. It is called by the one
// goroutine that uses the machine.
func (f *failover) arrange(now time.Time) {
	m := f.m
	f.classes = m.classes()
	addrs, avoid := m.preferred(f.classes)
	if len(addrs) == 0 {
		return
	}
	conns := m.masters()
	var order, leave []int
	for _, text := range addrs {
		addr, err := address.Parse(text, m.cfg.Options.MasterPort, false)
		if err != nil {
			m.log.Warn("a master of the list is not used", "master", text, "err", err)
			continue
		}
		i := slices.IndexFunc(conns, func(c *connection) bool { return c.addr.Host == addr.Host && c.addr.Port == addr.Port })
		if i < 0 {
			if len(conns) >= maxMasters {
				m.log.Warn("a master of the list is not used: this process has known too many; restart the minion", "master", text)
				continue
			}
			if i, err = m.addMaster(addr); err != nil {
				m.log.Error("a master of the list is not used", "master", text, "err", err)
				continue
			}
			conns = m.masters()
		}
		order = append(order, i)
		if slices.Contains(avoid, text) {
			leave = append(leave, i)
		}
	}
	for i := range m.ways {
		if !slices.Contains(order, i) {
			order, leave = append(order, i), append(leave, i)
		}
	}
	m.log.Info("the masters of the cluster, by preference", "masters", addrs, "draining", avoid)
	f.machine.Arrange(order, leave, now)
}

// learned says that there is a new list.
func (f *failover) learned() {
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// addMaster adds a connection to a master that the configuration does not name.
func (m *Minion) addMaster(addr address.Master) (int, error) {
	signer := *m.identity
	signer.Trust = m.trustIn(addr, false)
	c, err := m.newConnection(addr, &signer)
	if err != nil {
		return 0, err
	}
	conns := m.masters()
	c.index = len(conns)
	next := append(slices.Clone(conns), c)
	m.conns.Store(&next)
	if m.begin != nil {
		m.begin(c)
	}
	return c.index, nil
}

// rebalance is how long the preferred master must have been good until a minion
// goes to it, another time for each minion of a fleet.
func (o *Options) rebalance() time.Duration {
	if o.Rebalance <= 0 {
		return 0
	}
	least := o.Rebalance / slowly
	return least + rand.N(o.Rebalance-least+1)
}
