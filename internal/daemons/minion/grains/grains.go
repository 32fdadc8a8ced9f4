// Package grains stores the current grains of one minion. They are collected at the start
// or when a function first reads them, and again at each refresh; functions can change
// them. Package catalogue/grains collects them.
package grains

import (
	"context"
	"sync"
	"sync/atomic"

	"brine/internal/call/fn"
	"brine/internal/daemons/minion/background"
	"brine/internal/daemons/minion/link"
	"brine/internal/py/value"
)

// Config is the configuration of a Store.
type Config struct {
	// ID is the minion's id, which is a grain.
	ID string
	// Collect collects the grains.
	Collect func(context.Context) *value.Dict
	// Late delays Collect until a function reads a grain.
	Late bool
	// Background has the context in which late grains are collected.
	Background *background.Group
	// Master is the option master; First returns the host of one of its names.
	Master any
	First  func(name string) (host string, err error)
}

// Store stores the grains.
type Store struct {
	cfg         Config
	current     atomic.Pointer[value.Dict]
	gather      sync.Once   // collects late grains
	namesMaster atomic.Bool // the grain master is the name of one of several masters
}

// New returns a Store without grains.
func New(c Config) *Store { return &Store{cfg: c} }

// Grains returns the current grains, which the caller must not modify.
func (s *Store) Grains() *value.Dict {
	if g := s.current.Load(); g != nil {
		return g
	}
	s.gather.Do(func() {
		if s.current.Load() == nil {
			s.Collect(s.cfg.Background.Context())
		}
	})
	return s.current.Load()
}

// Collected reports whether the grains were collected before.
func (s *Store) Collected() bool { return s.current.Load() != nil }

// Collect collects the grains again.
func (s *Store) Collect(ctx context.Context) {
	g := s.cfg.Collect(ctx)
	g.Set("id", s.cfg.ID)
	s.oneMaster(g)
	s.current.Store(g)
}

// Change sets and removes top-level grains.
func (s *Store) Change(set *value.Dict, remove []string) {
	for {
		old := s.Grains()
		g := old.Clone()
		g.Update(set)
		for _, k := range remove {
			g.Delete(k)
		}
		if s.current.CompareAndSwap(old, g) {
			return
		}
	}
}

// NamesMaster reports whether the grain master is the name of one of several masters.
func (s *Store) NamesMaster() bool { return s.namesMaster.Load() }

// oneMaster replaces the grain master by the first name, if the grain is the list of
// masters and not the operator's own value. All masters get this name with the grains: in a
// cluster they share one record of the minion.
func (s *Store) oneMaster(g *value.Dict) {
	list, ok := g.At("master").(*value.List)
	if !ok || !value.Equal(list, s.cfg.Master) || list.Len() == 0 {
		return
	}
	if host, err := s.cfg.First(value.Str(list.Items[0])); err == nil {
		g.Set("master", host)
		s.namesMaster.Store(true)
	}
}

// Reader gives functions the grains for one master, or the current ones if from is nil.
// They may be late.
func (s *Store) Reader(from *link.Link) fn.Reader {
	if s.cfg.Late {
		return lateGrains{s, from}
	}
	return fn.Tree{Dict: s.grainsFor(from)}
}

func (s *Store) grainsFor(from *link.Link) *value.Dict {
	if from == nil {
		return s.Grains()
	}
	return from.Grains()
}

// lateGrains gives functions grains that are collected when first read.
type lateGrains struct {
	s    *Store
	from *link.Link
}

// Late implements fn.Late.
func (lateGrains) Late() {}

// Get returns one grain, or nil.
func (l lateGrains) Get(key string) any { return l.s.grainsFor(l.from).At(key) }

// All returns all grains.
func (l lateGrains) All() *value.Dict { return l.s.grainsFor(l.from) }
