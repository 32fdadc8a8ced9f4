package minion

import (
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/link"
	"brine/internal/py/value"
)

// oneMaster puts the first master's name in the place of the list, if the grain
// is that list and not the operator's own. Hot masters all get this name with
// the grains: in a cluster they keep one record of the minion.
func (m *Minion) oneMaster(g *value.Dict) {
	list, ok := g.At("master").(*value.List)
	if !ok || !value.Equal(list, m.cfg.Opts.At("master")) || list.Len() == 0 {
		return
	}
	o := &m.cfg.Options
	if first, err := o.Parse(value.Str(list.Items[0])); err == nil {
		g.Set("master", first.Host)
		m.namesMaster.Store(true)
	}
}

// grainReader shows the grains to functions that a master, or nil, asks for:
// those of this moment, or late ones.
func (m *Minion) grainReader(from *link.Link) fn.Reader {
	if m.cfg.LateGrains {
		return lateGrains{m, from}
	}
	return fn.Tree{Dict: m.grainsFor(from)}
}

func (m *Minion) grainsFor(from *link.Link) *value.Dict {
	if from == nil {
		return m.Grains()
	}
	return from.Grains()
}

// lateGrains are gathered when they are asked for.
type lateGrains struct {
	m    *Minion
	from *link.Link
}

// Late implements fn.Late.
func (lateGrains) Late() {}

// Get returns one grain, or nil.
func (l lateGrains) Get(key string) any { return l.m.grainsFor(l.from).At(key) }

// All returns all grains.
func (l lateGrains) All() *value.Dict { return l.m.grainsFor(l.from) }
