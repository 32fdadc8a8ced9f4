// Package failover drives the state machine of package roles: it gives each link to a
// master its role when the minion uses one master at a time (master_type failover,
// distributed and cluster).
package failover

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"brine/internal/base/wait"
	"brine/internal/daemons/minion/address"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/members"
	"brine/internal/daemons/minion/roles"
	"brine/internal/daemons/minion/status"
	"brine/internal/ha/roster"
	"brine/internal/py/value"
)

// Options are the options of the minion that this package uses.
type Options struct {
	Failback         bool          `salt:"master_failback" default:"false" doc:"with failover, go back to the first master when it is good again" change:"restart"`
	FailbackInterval time.Duration `salt:"master_failback_interval" default:"0" doc:"seconds that the first master must have been good for that; it doubles when the master is lost again soon; 0 is master_alive_interval, or 30" change:"restart"`
	Rebalance        time.Duration `salt:"master_rebalance" default:"300" least:"0" doc:"with master_type cluster, seconds over which minions go to a preferred master that has joined or come back; 0 is never (Brine only)" change:"restart"`
}

// Config is the configuration of a Failover.
type Config struct {
	Options Options
	// ID is the minion's id.
	ID string
	// AliveInterval and MasterPort are the options of these names.
	AliveInterval time.Duration
	MasterPort    int
	Links         *link.Set
	// Members is the list of masters; nil unless the minion learns it.
	Members *members.Members
	// Add adds a link to a master that the configuration does not name, and returns
	// its index.
	Add func(address.Master) (int, error)
	// Busy reports whether a job that a master published runs, or waits for its turn.
	Busy   func(*link.Link) bool
	Status *status.Status
	Log    *slog.Logger
}

// Failover selects the master that a minion uses.
type Failover struct {
	cfg     Config
	ways    int // number of configured masters, which are the first links
	machine *roles.Machine
	events  chan roles.Event
	news    wait.Wakeup // there is a new list of masters
	ended   chan struct{}
	held    bool
	classes map[string]int // classes that the current order is based on, see slower
}

// masterPatience is how long a master may take to answer before the next one is tried as
// well.
const masterPatience = 2 * time.Second

// Limits of learned data.
const (
	// leaveSpread is the time over which the minions of a draining master leave it.
	leaveSpread = 5 * time.Second
	// slowly divides master_rebalance: the result is the minimum wait of a minion.
	slowly = 10
	// maxMasters bounds the number of masters that one process remembers.
	maxMasters = 4 * roster.MaxMembers
)

// drainTime bounds how long a failback waits for the jobs of the master that
// the minion leaves.
const drainTime = 5 * time.Minute

// usualFailback is how long the preferred master must have been reachable before a
// failback, by default.
const usualFailback = 30 * time.Second

// commandingStandbys is the number of standby masters if their jobs are run. It is small
// because each one is another connection of every minion.
const commandingStandbys = 3

// New returns a Failover that has assigned no roles yet. The links are those of
// the configuration.
func New(c Config) *Failover {
	o := &c.Options
	back := time.Duration(0)
	if o.Failback {
		if back = o.FailbackInterval; back <= 0 {
			back = c.AliveInterval
		}
		if back <= 0 {
			back = usualFailback
		}
	}
	if c.Members != nil {
		back = o.rebalance()
	}
	f := &Failover{cfg: c, ways: len(c.Links.All()), events: make(chan roles.Event, 64), news: wait.NewWakeup(), ended: make(chan struct{}),
		machine: roles.New(roles.Options{
			Masters: len(c.Links.All()), Failback: back, Patience: masterPatience, Drain: drainTime, Leave: wait.Jitter(leaveSpread),
		})}
	if c.Members != nil {
		f.arrange(time.Now())
	}
	return f
}

// Notify reports an event of a link.
func (f *Failover) Notify(e roles.Event) {
	select {
	case f.events <- e:
	case <-f.ended:
	}
}

// Run assigns roles until ctx ends, for the first time after a delay.
func (f *Failover) Run(ctx context.Context, delay time.Duration) {
	defer close(f.ended)
	if !wait.Sleep(ctx, delay) {
		return
	}
	f.step(roles.Event{})
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-f.events:
			f.step(e)
		case <-f.news.C():
			f.arrange(time.Now())
			f.step(roles.Event{})
		case <-timer.C:
			f.step(roles.Event{})
		}
		if f.cfg.Members != nil && !maps.Equal(f.classes, f.slower()) {
			f.Learned() // the response time of a master has changed or expired
		}
		pause := time.Minute
		now := time.Now()
		if at, ok := f.machine.Wake(now); ok {
			pause = min(pause, max(at.Sub(now), time.Millisecond))
			if f.held {
				pause = min(pause, time.Second) // until the jobs end
			}
		}
		timer.Reset(pause)
	}
}

func (f *Failover) step(e roles.Event) {
	now := time.Now()
	f.drain(now)
	if i := f.machine.Active(); i >= 0 {
		// The active master may have begun or ceased to offer standby jobs.
		n := 1
		if f.cfg.Links.All()[i].RunsStandbyJobs() {
			n = commandingStandbys
		}
		f.machine.SetStandbys(n)
	}
	done := f.machine.Step(e, now)
	if i := f.machine.Active(); i >= 0 {
		f.cfg.Links.Use(i)
	}
	for i, c := range f.cfg.Links.All() {
		c.SetRole(f.machine.Role(i))
	}
	if done != nil {
		f.switched(done)
	}
}

// drain reports to the state machine whether jobs of the active master are running.
func (f *Failover) drain(now time.Time) {
	i := f.machine.Active()
	held := i >= 0 && f.cfg.Busy(f.cfg.Links.All()[i])
	if held == f.held {
		return
	}
	f.held = held
	kind := roles.Free
	if held {
		kind = roles.Held
	}
	if i >= 0 {
		f.machine.Step(roles.Event{Kind: kind, Master: i}, now)
	}
}

// switched reports a change to the masters and the log.
func (f *Failover) switched(s *roles.Switch) {
	to := f.cfg.Links.All()[s.To]
	data := value.DictOf("id", f.cfg.ID, "from", nil, "to", to.Addr.Text, "reason", s.Why, "seconds", s.Took.Seconds())
	if s.From >= 0 {
		data.Set("from", f.cfg.Links.All()[s.From].Addr.Text)
	}
	f.cfg.Status.Switched(data)
	if (s.From != s.To || s.Outage) && f.cfg.Links.Greeted(s.To) {
		// Salt then searches for a master as at its start, and sends the start event. If
		// this master has not received that event yet, Link.settle sends it.
		f.cfg.Links.All()[s.To].SendStart()
	}
	if s.From < 0 || s.From == s.To {
		return
	}
	from := f.cfg.Links.All()[s.From]
	f.cfg.Log.Warn("switched to another master", "from", from.Addr.Text, "to", to.Addr.Text,
		"reason", s.Why, "seconds", s.Took.Seconds())
	from.Out.HandOver(to.Out)
	tag := "salt/minion/" + f.cfg.ID + "/master_changed"
	load := value.DictOf("id", f.cfg.ID, "cmd", "_minion_event", "pretag", nil, "tag", tag, "data", data)
	to.Out.Put(load)
	for _, c := range f.cfg.Links.All() {
		if c != to && (c.Is(status.Standby) || c == from) {
			c.Out.Put(load)
		}
	}
}

// arrange passes the order of the masters to the state machine. Only the goroutine that
// uses the machine calls it.
func (f *Failover) arrange(now time.Time) {
	f.classes = f.slower()
	addrs, avoid := f.cfg.Members.Preferred(f.classes)
	if len(addrs) == 0 {
		return
	}
	conns := f.cfg.Links.All()
	var order, leave []int
	for _, text := range addrs {
		addr, err := address.Parse(text, f.cfg.MasterPort, false)
		if err != nil {
			f.cfg.Log.Warn("ignoring a master of the list", "master", text, "err", err)
			continue
		}
		i := slices.IndexFunc(conns, func(c *link.Link) bool { return c.Addr.Host == addr.Host && c.Addr.Port == addr.Port })
		if i < 0 {
			if len(conns) >= maxMasters {
				f.cfg.Log.Warn("ignoring a master of the list: this process has known too many masters; restart the minion", "master", text)
				continue
			}
			if i, err = f.cfg.Add(addr); err != nil {
				f.cfg.Log.Error("ignoring a master of the list", "master", text, "err", err)
				continue
			}
			conns = f.cfg.Links.All()
		}
		order = append(order, i)
		if slices.Contains(avoid, text) {
			leave = append(leave, i)
		}
	}
	for i := range f.ways {
		if !slices.Contains(order, i) {
			order, leave = append(order, i), append(leave, i)
		}
	}
	f.cfg.Log.Info("masters of the cluster in order of preference", "masters", addrs, "draining", avoid)
	f.machine.Arrange(order, leave, now)
}

// Learned reports that the list of masters, or the response time of one, changed.
func (f *Failover) Learned() {
	f.news.Wake()
}

// slower returns the masters that are known to answer more slowly than the first class, as
// a map from address to class.
func (f *Failover) slower() map[string]int {
	out := map[string]int{}
	for _, c := range f.cfg.Links.All() {
		if class, known := c.Class(time.Now()); known && class > 0 {
			out[c.Addr.Endpoint().String()] = class
		}
	}
	return out
}

// rebalance returns how long the preferred master must have been reachable before a minion
// moves to it. It is random, so that a fleet does not move at once.
func (o *Options) rebalance() time.Duration {
	if o.Rebalance <= 0 {
		return 0
	}
	least := o.Rebalance / slowly
	return least + rand.N(o.Rebalance-least+1)
}
