package cluster

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/store/oplog"
)

// all returns the peers. The map is not changed any more.
func (c *Cluster) all() map[string]*peer { return *c.peers.Load() }

// PeersDir is the folder with the public keys of the masters, ID.pub. In a
// cluster without a shared folder whoever has one there is a member.
func (c *Cluster) PeersDir() string { return filepath.Join(c.cfg.Options.PKIDir, peersDir) }

// AESFile is the file of the key of publications.
func (c *Cluster) AESFile() string { return filepath.Join(c.cfg.Options.PKIDir, aesFile) }

// Isolated reports whether the masters share no folder.
func (c *Cluster) Isolated() bool { return c.cfg.Options.Isolated }

// Share gives the other masters what changes in a store. It must come before
// Run, and names must be the same on all masters.
func (c *Cluster) Share(name string, s oplog.Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams[name] = s
}

// Answer has fn answer what other masters ask by a name (Ask). It must come
// before Run.
func (c *Cluster) Answer(name string, fn func() *value.Dict) {
	c.AnswerWith(name, func(*value.Dict) *value.Dict { return fn() })
}

// AnswerWith is Answer for questions with something that they are about; it is
// nil where nothing came.
func (c *Cluster) AnswerWith(name string, fn func(arg *value.Dict) *value.Dict) { c.answers[name] = fn }

// AskOne asks one master, which is away if the error is of kind Unavailable.
func (c *Cluster) AskOne(ctx context.Context, id, name string, arg *value.Dict) (*value.Dict, error) {
	p := c.all()[id]
	if p == nil {
		return nil, salt.Errorf(salt.NotFound, "there is no master %s in the cluster", id)
	}
	return p.ask(ctx, name, arg)
}

// CaughtUp reports whether this master knows all that the masters know that can
// be reached, of one stream, and whether there was an attempt to reach each. One
// that has never got an answer and goes on waiting for it is not counted as
// away.
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

// Ask asks all masters that can be reached, and returns their answers.
func (c *Cluster) Ask(ctx context.Context, name string) map[string]*value.Dict {
	return c.AskAbout(ctx, name, nil)
}

// AskAbout is Ask for questions with something that they are about.
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

// takeUp makes a peer of each master whose key is there.
func (c *Cluster) takeUp() {
	entries, err := os.ReadDir(c.PeersDir())
	if err != nil {
		c.rateLimitedLog.warn("peers", "cannot list the members of the cluster", "err", err)
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".pub")
		if ok && id != c.cfg.ID && salt.CheckID(id) == nil && c.all()[id] == nil {
			c.adopt(id)
		}
	}
}

// adopt makes a peer and has it run.
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

// first reports whether this master is the first, by its id, of those that are
// there. In a cluster without a shared folder that one does what should be done
// by one master, and does no harm if two do it.
func (c *Cluster) first() bool {
	for _, p := range c.all() {
		if m := p.member(); m.Up && m.ID < c.cfg.ID {
			return false
		}
	}
	return true
}
