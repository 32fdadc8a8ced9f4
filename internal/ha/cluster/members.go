package cluster

import (
	"context"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/store/oplog"
)

// Isolated reports whether the masters share no directory.
func (c *Cluster) Isolated() bool { return c.cfg.Options.Isolated }

// Share replicates changes of a store to the other masters. It must be called before Run, with the same names on all masters.
func (c *Cluster) Share(name string, s oplog.Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams[name] = s
}

// Answer sets the function that answers queries with a name (Ask). It must be called before Run.
func (c *Cluster) Answer(name string, fn func() *value.Dict) {
	c.AnswerWith(name, func(*value.Dict) *value.Dict { return fn() })
}

// AnswerWith is Answer for queries with an argument; it is nil if missing.
func (c *Cluster) AnswerWith(name string, fn func(arg *value.Dict) *value.Dict) { c.answers[name] = fn }

// AskOne queries one master. The error is of kind Unavailable if it is unreachable.
func (c *Cluster) AskOne(ctx context.Context, id, name string, arg *value.Dict) (*value.Dict, error) {
	p := c.peers.all()[id]
	if p == nil {
		return nil, salt.Errorf(salt.NotFound, "there is no master %s in the cluster", id)
	}
	return p.ask(ctx, name, arg)
}

// CaughtUp reports whether this master has all changes of a stream that the reachable masters have, and whether it has tried to reach each.
// A peer that has never answered and is still being tried does not count as unreachable.
func (c *Cluster) CaughtUp(stream string) bool {
	c.mu.Lock()
	s := c.streams[stream]
	c.mu.Unlock()
	if s == nil || !c.peers.begun() {
		return false
	}
	mine, err := s.Vector()
	if err != nil {
		return false
	}
	for _, p := range c.peers.all() {
		p.mu.Lock()
		f, tried := p.fed[stream], p.tried || p.gone
		p.mu.Unlock()
		if f == nil && !tried {
			return false
		}
		if f == nil {
			continue
		}
		f.mu.Lock()
		behind := false
		for origin, n := range f.have {
			behind = behind || mine[origin] < n
		}
		f.mu.Unlock()
		if behind {
			return false
		}
	}
	return true
}

// Ask queries all reachable masters, and returns their answers.
func (c *Cluster) Ask(ctx context.Context, name string) map[string]*value.Dict {
	return c.AskAbout(ctx, name, nil)
}

// AskAbout is Ask with an argument.
func (c *Cluster) AskAbout(ctx context.Context, name string, arg *value.Dict) map[string]*value.Dict {
	out := map[string]*value.Dict{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, p := range c.peers.all() {
		wg.Go(func() {
			d, err := p.ask(ctx, name, arg)
			if err != nil {
				c.log.Debug("a peer does not answer", "peer", p.id, "about", name, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out[p.id] = d
		})
	}
	wg.Wait()
	return out
}
