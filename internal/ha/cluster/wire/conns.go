package wire

import (
	"net"
	"sync"

	"brine/internal/base/wait"
)

// ConnSet holds the open connections, and the channels that signal changes of the wanted events.
type ConnSet struct {
	mu              sync.Mutex
	open            map[net.Conn]bool   // true if the other end dialled
	unauthenticated map[net.Conn]string // address of each connection that is not authenticated yet
	news            map[wait.Wakeup]bool
	ended           bool
}

// maxInbound bounds inbound connections and maxUnauthenticated those without authentication. maxUnauthenticatedFrom bounds the latter per
// address, so that one address cannot keep members out.
const (
	maxInbound             = 256
	maxUnauthenticated     = 128
	maxUnauthenticatedFrom = 16
)

// Add adds a connection. It returns false if a bound forbids that or the set is closed. inbound means that the other end dialled.
func (s *ConnSet) Add(c net.Conn, inbound bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[net.Conn]bool{}
	}
	if s.ended || inbound && (len(s.open) >= maxInbound || !s.admit(c)) {
		return false
	}
	s.open[c] = inbound
	return true
}

// admit counts an unauthenticated connection if the bounds allow it.
func (s *ConnSet) admit(c net.Conn) bool {
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	same := 0
	for _, h := range s.unauthenticated {
		if h == host {
			same++
		}
	}
	if same >= maxUnauthenticatedFrom || len(s.unauthenticated) >= maxUnauthenticated {
		return false
	}
	if s.unauthenticated == nil {
		s.unauthenticated = map[net.Conn]string{}
	}
	s.unauthenticated[c] = host
	return true
}

// Authenticated marks a connection as authenticated.
func (s *ConnSet) Authenticated(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unauthenticated, c)
}

// Remove removes a connection that was closed.
func (s *ConnSet) Remove(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
	delete(s.unauthenticated, c)
}

// CloseAll closes all connections. Later calls of Add return false.
func (s *ConnSet) CloseAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for c := range s.open {
		c.Close()
	}
}

// Changes returns a channel that signals changes.
func (s *ConnSet) Changes() (news wait.Wakeup, end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.news == nil {
		s.news = map[wait.Wakeup]bool{}
	}
	news = wait.NewWakeup()
	s.news[news] = true
	return news, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.news, news)
	}
}

// Notify signals a change to all channels of Changes.
func (s *ConnSet) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.news {
		c.Wake()
	}
}
