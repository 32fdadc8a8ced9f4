package minion

import (
	"sync/atomic"

	"brine/internal/call/fn"
	"brine/internal/daemons/minion/address"
	"brine/internal/py/value"
)

// Salt's minions of several masters are one minion for each of them, to which
// the option and the grain master are that one's name. Functions that a master
// asks for, and templates, see its name here, too, and never the list.

// view is the options and grains as they are for one master.
type view struct {
	opts   atomic.Pointer[value.Dict]
	grains atomic.Pointer[grainView]
}

type grainView struct{ base, shown *value.Dict }

// opts are the options with the name of this master.
func (c *connection) opts() *value.Dict {
	all := c.m.cfg.Opts
	if _, several := all.At("master").(*value.List); !several {
		return all
	}
	if d := c.view.opts.Load(); d != nil {
		return d
	}
	d := all.Clone()
	d.Set("master", c.addr.Host)
	c.view.opts.Store(d)
	return d
}

// grains are the grains of this moment with the name of this master.
func (c *connection) grains() *value.Dict {
	base := c.m.Grains()
	if !c.m.namesMaster.Load() || c.addr.Host == base.At("master") {
		return base
	}
	if v := c.view.grains.Load(); v != nil && v.base == base {
		return v.shown
	}
	d := base.Clone()
	d.Set("master", c.addr.Host)
	c.view.grains.Store(&grainView{base, d})
	return d
}

// oneMaster puts the first master's name in the place of the list, if the grain
// is that list and not the operator's own. Hot masters all get this name with
// the grains: in a cluster they keep one record of the minion.
func (m *Minion) oneMaster(g *value.Dict) {
	list, ok := g.At("master").(*value.List)
	if !ok || !value.Equal(list, m.cfg.Opts.At("master")) || list.Len() == 0 {
		return
	}
	o := &m.cfg.Options
	if first, err := address.Parse(value.Str(list.Items[0]), o.MasterPort, o.MasterURIFormat == "ip_only"); err == nil {
		g.Set("master", first.Host)
		m.namesMaster.Store(true)
	}
}

// grainReader shows the grains to functions that a master, or nil, asks for:
// those of this moment, or late ones.
func (m *Minion) grainReader(from *connection) fn.Reader {
	if m.cfg.LateGrains {
		return lateGrains{m, from}
	}
	return fn.Tree{Dict: m.grainsFor(from)}
}

func (m *Minion) grainsFor(from *connection) *value.Dict {
	if from == nil {
		return m.Grains()
	}
	return from.grains()
}

// lateGrains are gathered when they are asked for.
type lateGrains struct {
	m    *Minion
	from *connection
}

// Late implements fn.Late.
func (lateGrains) Late() {}

// Get returns one grain, or nil.
func (l lateGrains) Get(key string) any { return l.m.grainsFor(l.from).At(key) }

// All returns all grains.
func (l lateGrains) All() *value.Dict { return l.m.grainsFor(l.from) }
