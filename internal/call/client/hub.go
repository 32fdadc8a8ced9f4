package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"brine/internal/net/event"
)

// hub shares one connection to an event bus among subscriptions.
type hub struct {
	reader *event.Reader
	stop   context.CancelFunc
	done   chan struct{} // closed when the connection has ended
	err    error         // the reason; read only after done is closed

	mu   sync.Mutex
	subs []*stream
}

func newHub(r *event.Reader, stop context.CancelFunc) *hub {
	h := &hub{reader: r, stop: stop, done: make(chan struct{})}
	go h.read(r)
	return h
}

// read distributes events to the subscriptions until the connection ends. It blocks on a
// subscription that is not read; the master buffers the rest, up to its bound.
func (h *hub) read(r *event.Reader) {
	defer close(h.done)
	defer r.Close()
	for e, err := range r.Events() {
		if err != nil {
			h.err = err
			return
		}
		h.mu.Lock()
		subs := h.subs
		h.mu.Unlock()
		for _, s := range subs {
			s.put(e)
		}
	}
}

func (h *hub) ended() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

func (h *hub) subscribe(prefixes []string) *stream {
	s := &stream{hub: h, prefixes: prefixes, c: make(chan *event.Event, 1024), closed: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subs = append(slices.Clip(h.subs), s)
	return s
}

func (h *hub) remove(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subs = slices.DeleteFunc(slices.Clone(h.subs), func(o *stream) bool { return o == s })
}

// close ends the connection and waits for the reader.
func (h *hub) close() {
	h.stop()
	h.mu.Lock()
	for _, s := range h.subs {
		s.once.Do(func() { close(s.closed) })
	}
	h.mu.Unlock()
	<-h.done
}

// stream is one subscription.
type stream struct {
	hub      *hub
	prefixes []string
	c        chan *event.Event
	closed   chan struct{}
	once     sync.Once
}

func (s *stream) put(e *event.Event) {
	if !slices.ContainsFunc(s.prefixes, func(p string) bool { return strings.HasPrefix(e.Tag, p) }) {
		return
	}
	select {
	case s.c <- e:
	case <-s.closed:
	}
}

var errEnded = constError("the stream of events has ended")

// Next implements Events. Events received before the connection ended are still returned.
func (s *stream) Next(ctx context.Context) (*event.Event, error) {
	select {
	case e := <-s.c:
		return e, nil
	default:
	}
	select {
	case e := <-s.c:
		return e, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.closed:
		return nil, errEnded
	case <-s.hub.done:
		select {
		case e := <-s.c:
			return e, nil
		default:
			return nil, errors.Join(errEnded, s.hub.err)
		}
	}
}

// Close implements Events.
func (s *stream) Close() error {
	s.once.Do(func() { close(s.closed) })
	s.hub.remove(s)
	return nil
}
