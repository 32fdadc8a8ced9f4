// Package event is the event bus of a master or minion: events are fired
// under a tag, and subscribers to a prefix of the tag receive them.
//
// Inside the process a Bus carries events as values. Firing never blocks: each
// subscriber has a queue, and a slow one misses events and can count them. A
// handler runs on the goroutine that fires, so it misses nothing; it must be quick.
//
// For other programs, above all Salt's command line and readers of events,
// Server offers the bus on two sockets in Salt's framing. Reader and Push are the
// clients. A frame is a new-spec msgpack map,
//
//	{"head": {}, "body": bin}     body: TAG LF LF {data}
//
// with new-spec data, which always has the time of firing in _stamp. Readers
// send nothing, writers get no answer. An event is encoded once, and only if
// such a reader is there.
package event

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"brine/internal/base/salt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Event is one event. It is shared by all subscribers.
type Event struct {
	Tag string
	// Data must not be written to. It has the key _stamp.
	Data *value.Dict

	maxSize  int
	once     sync.Once
	body     []byte // a part of frame, if there is one
	frame    []byte
	frameErr error
}

const tagEnd = "\n\n"

// Frame returns the event as other programs receive it. It is encoded at the first call. Values
// that make it larger than the limit are replaced.
func (e *Event) Frame() ([]byte, error) {
	e.once.Do(func() {
		if e.body != nil { // it came from another program
			e.frame = append(beginFrame(len(e.body)), e.body...)
			return
		}
		var data []byte
		if data, e.frameErr = encodeData(e.Data, e.maxSize); e.frameErr == nil {
			b := beginFrame(len(e.Tag) + len(tagEnd) + len(data))
			begin := len(b)
			b = append(append(append(b, e.Tag...), tagEnd...), data...)
			e.frame, e.body = b, b[begin:]
		}
	})
	return e.frame, e.frameErr
}

// Body returns the content of the frame: tag, two line feeds, data.
func (e *Event) Body() ([]byte, error) {
	_, err := e.Frame()
	return e.body, err
}

// parseBody decodes an event that another program sent.
func parseBody(body []byte) (*Event, error) {
	tag, data, ok := bytes.Cut(body, []byte(tagEnd))
	if !ok || len(tag) == 0 || !utf8.Valid(tag) {
		return nil, errors.New("the event has no tag")
	}
	v, err := msgpack.UnmarshalTyped(data)
	if err != nil {
		return nil, fmt.Errorf("the event %.100q cannot be read: %w", tag, err)
	}
	d, ok := v.(*value.Dict)
	if !ok {
		return nil, fmt.Errorf("the data of event %.100q is a %s, not a dict", tag, value.TypeName(v))
	}
	return &Event{Tag: string(tag), Data: d, body: body}, nil
}

// stampLayout is Python's isoformat; the fraction is absent when it is zero.
const stampLayout = "2006-01-02T15:04:05"

// Stamp formats a time for _stamp: UTC, to the microsecond, without zone.
func Stamp(t time.Time) string {
	t = t.UTC()
	if t.Nanosecond() < 1000 {
		return t.Format(stampLayout)
	}
	return t.Format(stampLayout + ".000000")
}

// Bus carries events inside a process. It is safe for concurrent use. Every subscriber sees the
// events of one goroutine in their order.
type Bus struct {
	maxSize int

	mu        sync.Mutex // to change listeners
	listeners atomic.Pointer[[]*listener]

	fired, dropped atomic.Uint64
}

// listener is a subscription or a handler.
type listener struct {
	prefixes []string
	handle   func(*Event)
}

func (l *listener) wants(tag string) bool {
	if len(l.prefixes) == 0 {
		return true
	}
	for _, p := range l.prefixes {
		if strings.HasPrefix(tag, p) {
			return true
		}
	}
	return false
}

// NewBus returns a bus whose events, encoded for other programs, are trimmed
// to maxEventSize bytes of data; 0 means never.
func NewBus(maxEventSize int) *Bus {
	b := &Bus{maxSize: maxEventSize}
	b.listeners.Store(new([]*listener))
	return b
}

// Fire sends an event to all listeners. Data is copied and gets the time in _stamp; nested values
// are shared and must not change any more. Fire returns after all handlers. The tag must not be
// empty or contain two consecutive line feeds.
func (b *Bus) Fire(tag string, data *value.Dict) error {
	if tag == "" || strings.Contains(tag, tagEnd) || !utf8.ValidString(tag) {
		return salt.Errorf(salt.Invalid, "%q is not a valid tag of an event", tag)
	}
	b.fired.Add(1)
	var e *Event
	for _, l := range *b.listeners.Load() {
		if !l.wants(tag) {
			continue
		}
		if e == nil {
			d := data.Clone()
			d.Set("_stamp", Stamp(time.Now()))
			e = &Event{Tag: tag, Data: d, maxSize: b.maxSize}
		}
		l.handle(e)
	}
	return nil
}

// Relay is Fire for an event from elsewhere: data keeps its _stamp. Data must not change any more.
func (b *Bus) Relay(tag string, data *value.Dict) error {
	if tag == "" || strings.Contains(tag, tagEnd) || !utf8.ValidString(tag) {
		return salt.Errorf(salt.Invalid, "%.80q is not a valid tag of an event", tag)
	}
	if !data.Has("_stamp") {
		return b.Fire(tag, data)
	}
	b.forward(&Event{Tag: tag, Data: data, maxSize: b.maxSize})
	return nil
}

// forward sends an event of another program to all listeners.
func (b *Bus) forward(e *Event) {
	b.fired.Add(1)
	for _, l := range *b.listeners.Load() {
		if l.wants(e.Tag) {
			l.handle(e)
		}
	}
}

// Handle calls fn for every event whose tag begins with one of the prefixes, or for all events if
// there is none, on the goroutine that fires. fn must not block. remove ends it; fn may still be
// running then.
func (b *Bus) Handle(fn func(*Event), prefixes ...string) (remove func()) {
	l := &listener{prefixes: prefixes, handle: fn}
	b.mu.Lock()
	defer b.mu.Unlock()
	next := append(slices.Clone(*b.listeners.Load()), l)
	b.listeners.Store(&next)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		next := slices.DeleteFunc(slices.Clone(*b.listeners.Load()), func(o *listener) bool { return o == l })
		b.listeners.Store(&next)
	}
}

// Subscription is a queue of events.
type Subscription struct {
	// C yields the events, and is closed by Close.
	C <-chan *Event

	bus     *Bus
	remove  func()
	mu      sync.Mutex
	c       chan *Event
	closed  bool
	dropped atomic.Uint64
}

// Subscribe queues up to size events whose tags begin with one of the prefixes, or all events if
// there is none. While the queue is full, further events are dropped.
func (b *Bus) Subscribe(size int, prefixes ...string) *Subscription {
	c := make(chan *Event, max(size, 1))
	s := &Subscription{C: c, c: c, bus: b}
	s.remove = b.Handle(s.put, prefixes...)
	return s
}

func (s *Subscription) put(e *Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	select {
	case s.c <- e:
	default:
		s.dropped.Add(1)
		s.bus.dropped.Add(1)
	}
}

// Dropped counts the events lost because the queue was full.
func (s *Subscription) Dropped() uint64 { return s.dropped.Load() }

// Close ends the subscription. Queued events can still be read.
func (s *Subscription) Close() {
	s.remove()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.c)
	}
}
