package master

import "sync"

// slots bound the concurrent requests, in total and per peer, so that one peer
// cannot block the others.
type slots struct {
	all   chan struct{}
	share int // for one peer

	mu sync.Mutex
	of map[string]*share
}

// share tracks the slots of one peer while it has requests.
type share struct {
	taken chan struct{}
	users int // requests that occupy or wait for a slot
}

// newSlots returns total slots, of which one peer can occupy up to each.
func newSlots(total, each int) *slots {
	return &slots{all: make(chan struct{}, total), share: each, of: map[string]*share{}}
}

// enter waits for a slot for a peer and returns a function that frees it. The
// wait delays the calling connection only.
func (s *slots) enter(peer string) (leave func()) {
	s.mu.Lock()
	sh := s.of[peer]
	if sh == nil {
		sh = &share{taken: make(chan struct{}, s.share)}
		s.of[peer] = sh
	}
	sh.users++
	s.mu.Unlock()

	// Take the peer's own slot first: a peer that waits for it must not occupy one that another
	// peer could use.
	sh.taken <- struct{}{}
	s.all <- struct{}{}
	return func() {
		<-s.all
		<-sh.taken
		s.mu.Lock()
		defer s.mu.Unlock()
		if sh.users--; sh.users == 0 {
			delete(s.of, peer)
		}
	}
}
