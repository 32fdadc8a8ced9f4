package cluster

import (
	"maps"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/limitlog"
)

// peerSet is the other masters of a cluster, by id.
type peerSet struct {
	self string
	dir  string // directory of the public keys
	log  *limitlog.Log
	make func(id string) *peer

	now atomic.Pointer[map[string]*peer] // replaced, never modified
	mu  sync.Mutex
	run func(*peer) // starts the loops of a peer; nil until Run
}

func newPeerSet(self, dir string, log *limitlog.Log, make func(id string) *peer) *peerSet {
	s := &peerSet{self: self, dir: dir, log: log, make: make}
	s.now.Store(&map[string]*peer{})
	return s
}

// all returns the peers. The map is immutable.
func (s *peerSet) all() map[string]*peer { return *s.now.Load() }

// begin starts the loops of all peers, and later those of new peers.
func (s *peerSet) begin(run func(*peer)) {
	s.mu.Lock()
	s.run = run
	s.mu.Unlock()
	for _, p := range s.all() {
		run(p)
	}
}

// begun reports whether the loops run.
func (s *peerSet) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run != nil
}

// takeUp creates a peer for each master whose key exists.
func (s *peerSet) takeUp() {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		s.log.Warn("peers", "cannot list the members of the cluster", "err", err)
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".pub")
		if ok && id != s.self && salt.CheckID(id) == nil && s.all()[id] == nil {
			s.adopt(id)
		}
	}
}

// adopt creates a peer and starts it.
func (s *peerSet) adopt(id string) *peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.all()[id]; p != nil {
		return p
	}
	next := maps.Clone(s.all())
	p := s.make(id)
	next[id] = p
	s.now.Store(&next)
	if s.run != nil {
		s.run(p)
	}
	return p
}

// first reports whether this master has the lowest id of the reachable ones. Without a shared directory that master
// does work of the leader for which it is harmless if two masters do it.
func (s *peerSet) first() bool {
	for _, p := range s.all() {
		if m := p.member(); m.Up && m.ID < s.self {
			return false
		}
	}
	return true
}
