package link

import (
	"sync/atomic"

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

// Opts are the options with the name of this master.
func (c *Link) Opts() *value.Dict {
	all := c.cfg.Opts
	if _, several := all.At("master").(*value.List); !several {
		return all
	}
	if d := c.view.opts.Load(); d != nil {
		return d
	}
	d := all.Clone()
	d.Set("master", c.Addr.Host)
	c.view.opts.Store(d)
	return d
}

// Grains are the grains of this moment with the name of this master.
func (c *Link) Grains() *value.Dict {
	base := c.cfg.Grains()
	if !c.cfg.NamesMaster() || c.Addr.Host == base.At("master") {
		return base
	}
	if v := c.view.grains.Load(); v != nil && v.base == base {
		return v.shown
	}
	d := base.Clone()
	d.Set("master", c.Addr.Host)
	c.view.grains.Store(&grainView{base, d})
	return d
}
