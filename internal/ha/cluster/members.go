package cluster

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/keys"
	"brine/internal/py/value"
	"brine/internal/store/oplog"
)

// all returns the peers. The map is immutable.
func (c *Cluster) all() map[string]*peer { return *c.peers.Load() }

// PeersDir is the directory with the masters' public keys, ID.pub. In a cluster without a shared directory these keys define the members.
func (c *Cluster) PeersDir() string { return filepath.Join(c.cfg.Options.PKIDir, keys.PeersDir) }

// AESFile is the file of the key of publications.
func (c *Cluster) AESFile() string { return filepath.Join(c.cfg.Options.PKIDir, keys.AESName) }

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
	p := c.all()[id]
	if p == nil {
		return nil, salt.Errorf(salt.NotFound, "there is no master %s in the cluster", id)
	}
	return p.ask(ctx, name, arg)
}

// CaughtUp reports whether this master has all changes of a stream that the reachable masters have, and whether it has tried to reach each.
// A peer that has never answered and is still being tried does not count as unreachable.
func (c *Cluster) CaughtUp(stream string) bool {
	c.mu.Lock()
	s, runs := c.streams[stream], c.begin != nil
	c.mu.Unlock()
	if s == nil || !runs {
		return false
	}
	mine, err := s.Vector()
	if err != nil {
		return false
	}
	for _, p := range c.all() {
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
	for _, p := range c.all() {
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

// takeUp creates a peer for each master whose key exists.
func (c *Cluster) takeUp() {
	entries, err := os.ReadDir(c.PeersDir())
	if err != nil {
		c.rateLimitedLog.Warn("peers", "cannot list the members of the cluster", "err", err)
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".pub")
		if ok && id != c.cfg.ID && salt.CheckID(id) == nil && c.all()[id] == nil {
			c.adopt(id)
		}
	}
}

// adopt creates a peer and starts it.
func (c *Cluster) adopt(id string) *peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.all()[id]; p != nil {
		return p
	}
	next := maps.Clone(c.all())
	p := newPeer(c, id)
	next[id] = p
	c.peers.Store(&next)
	if c.begin != nil {
		c.begin(p)
	}
	return p
}

// first reports whether this master has the lowest id of the reachable ones. In a cluster without a shared directory it does the work of
// which one master is in charge; two doing it is harmless.
func (c *Cluster) first() bool {
	for _, p := range c.all() {
		if m := p.member(); m.Up && m.ID < c.cfg.ID {
			return false
		}
	}
	return true
}
