package runner

import (
	"slices"
	"sync"
)

// slots bounds how many jobs run at the same time (process_count_max). Further jobs wait,
// and run in the order in which they arrived. It is safe for concurrent use.
type slots struct {
	mu      sync.Mutex
	free    int
	waiting []chan struct{} // one for each waiting job, oldest first
}

// enter queues a job. The channel is closed when the job may run.
func (s *slots) enter() (turn chan struct{}) {
	turn = make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, turn)
	s.next()
	return turn
}

// leave removes a job, whether it has run or not.
func (s *slots) leave(turn chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, turn); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		return
	}
	s.free++
	s.next()
}

// count returns the number of waiting jobs.
func (s *slots) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// next starts waiting jobs while slots are free; mu is held.
func (s *slots) next() {
	for s.free > 0 && len(s.waiting) > 0 {
		close(s.waiting[0])
		s.waiting = slices.Delete(s.waiting, 0, 1)
		s.free--
	}
}
