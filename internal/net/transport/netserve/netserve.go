// Package netserve is the listening side of every stream transport. It binds with a helpful error,
// accepts until it is stopped, closes and awaits all connections, bounds the memory of
// unauthenticated peers (Budget), and logs their errors at a limited rate (package ratelimit). It knows no
// protocol.
package netserve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/wait"
)

// Bounds of the pause after a failed accept.
const (
	minPause = 5 * time.Millisecond
	maxPause = time.Second
)

// Server accepts connections from Listener and runs Handle for each.
type Server struct {
	Listener net.Listener
	Log      *slog.Logger
	// Handle serves one connection on its own goroutine. The connection is closed when it returns,
	// or, to make it return, when the server stops; ctx has ended then.
	Handle func(ctx context.Context, c net.Conn)
	// Guests, if set, bounds the connections of this and other listeners.
	Guests *Guests
	// Drain, if set, is called once when the server stops, after the last
	// accept and before connections are closed. It must return by itself.
	Drain func()

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	wg    sync.WaitGroup
}

// Serve accepts until ctx ends, then closes the listener and all connections, awaits every handler
// and returns nil. If the listener fails permanently, it cleans up in the same way and returns the
// error. After a shortage (for example of file descriptors) it retries. It may be called once.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { s.Listener.Close() })
	defer stop()

	err := s.accept(ctx)
	s.Listener.Close()
	if s.Drain != nil {
		s.Drain()
	}
	cancel()
	s.closeAll()
	s.wg.Wait()
	return err
}

// accept is the loop; it returns nil when ctx has ended.
func (s *Server) accept(ctx context.Context) error {
	complaints := ratelimit.NewLog(s.Log, 1, 10*time.Second)
	pause := minPause
	for {
		c, err := s.Listener.Accept()
		switch {
		case err == nil:
			pause = minPause
			leave, ok := s.Guests.enter(c)
			if !ok {
				complaints.Log(slog.LevelWarn, "connection refused: known peers use all connections of this process",
					"addr", s.Listener.Addr().String())
				c.Close()
				continue
			}
			s.start(ctx, c, leave)
		case ctx.Err() != nil:
			return nil
		case !temporary(err):
			return err
		default:
			complaints.Log(slog.LevelWarn, "cannot accept a connection; retrying",
				"addr", s.Listener.Addr().String(), "err", err)
			if !wait.Sleep(ctx, pause) {
				return nil
			}
			pause = min(2*pause, maxPause)
		}
	}
}

func (s *Server) start(ctx context.Context, c net.Conn, leave func()) {
	s.mu.Lock()
	if s.conns == nil {
		s.conns = make(map[net.Conn]struct{})
	}
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	s.wg.Go(func() {
		defer leave()
		defer s.forget(c)
		s.Handle(ctx, c)
	})
}

func (s *Server) forget(c net.Conn) {
	c.Close()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// closeAll runs after the last accept, so no connection can be added after it.
func (s *Server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

// Len is the number of connections open now.
func (s *Server) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// temporary reports whether accepting may work again later.
func temporary(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS,
		syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EINTR, syscall.EAGAIN, syscall.EPERM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
