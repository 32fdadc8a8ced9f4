package link

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"brine/internal/daemons/minion/roles"
	"brine/internal/net/handshake"
	"brine/internal/py/value"
)

// Exit codes of a minion that no master takes, as Salt's.
const (
	ExitFinger   = 42 // no master has the demanded fingerprint
	ExitRejected = 77 // all masters have rejected the key
)

// Unwanted is the error of Run when the configuration asks for an end: every
// master has said for good that it does not take this minion, or shows another
// fingerprint than demanded. One that is merely away is no reason to end.
type Unwanted struct {
	Code int
	err  error
}

func (e *Unwanted) Error() string { return fmt.Sprintf("every master refuses: %v", e.err) }

// Unwrap returns what the last master said.
func (e *Unwanted) Unwrap() error { return e.err }

// ExitCode is that of the process.
func (e *Unwanted) ExitCode() int { return e.Code }

// fatalCode is the code with which err would end the process, 0 for never.
func (s *Set) fatalCode(err error) int {
	switch {
	case errors.Is(err, handshake.ErrFinger):
		return ExitFinger
	case errors.Is(err, handshake.ErrRejected) && !s.RejectedRetry:
		return ExitRejected
	}
	return 0
}

// refusedBy notes what c's master has said, nil for that it is good. When all
// masters have said the like, the minion ends.
func (s *Set) refusedBy(c *Link, err error) {
	s.refusals.Lock()
	defer s.refusals.Unlock()
	c.fatal = s.fatalCode(err)
	if c.fatal == 0 {
		return
	}
	for _, o := range s.All() {
		if r, _ := o.role.get(); o.fatal == 0 && (r != roles.Off || s.OneAtATime) {
			return
		}
	}
	s.Stop(&Unwanted{Code: c.fatal, err: err})
}

// Set has the links of one minion. It only grows.
type Set struct {
	// ID is the minion's id.
	ID string
	// OneAtATime says that one master is used at a time, which Use names.
	OneAtATime bool
	// RejectedRetry is the option of that name.
	RejectedRetry bool
	// Stop ends the minion; it is called with an *Unwanted.
	Stop func(error)

	// Direct is the link of salt-call, which asks it without a queue; else nil.
	Direct *Link

	list     atomic.Pointer[[]*Link]
	refusals sync.Mutex // guards Link.fatal
	// current is the master that is, or was last, the active one; told the one
	// after the last that was told of this minion's start, 0 for none.
	current, told atomic.Int32
}

// Add adds a link. It is called by one goroutine at a time.
func (s *Set) Add(c *Link) {
	all := s.All()
	c.Index = len(all)
	next := append(slices.Clone(all), c)
	s.list.Store(&next)
}

// All returns the links. The slice does not change any more.
func (s *Set) All() []*Link {
	if p := s.list.Load(); p != nil {
		return *p
	}
	return nil
}

// Use notes which master is used, of one at a time.
func (s *Set) Use(i int) { s.current.Store(int32(i)) }

// Greeted reports whether the master i was the last one that was told of the
// minion's start, of one at a time.
func (s *Set) Greeted(i int) bool { return s.told.Load() == int32(i)+1 }

// Send gives a message to all masters that are told what concerns all.
func (s *Set) Send(load *value.Dict) {
	for _, c := range s.Receivers() {
		c.Out.Put(load)
	}
}

// Fire sends an event to these masters.
func (s *Set) Fire(tag string, data any) {
	s.Send(value.DictOf("id", s.ID, "cmd", "_minion_event", "pretag", nil, "data", data, "tag", tag))
}

// WithPillar returns the first of these masters that has sent a pillar, or nil.
func (s *Set) WithPillar() *Link {
	for _, c := range s.Receivers() {
		if c.Pillar() != nil {
			return c
		}
	}
	return nil
}

// Pillar returns the pillar of WithPillar, or nil.
func (s *Set) Pillar() *value.Dict {
	if c := s.WithPillar(); c != nil {
		return c.Pillar()
	}
	return nil
}

// active is the master that is used, of one at a time; else nil.
func (s *Set) active() *Link {
	if s.OneAtATime {
		if all := s.Receivers(); len(all) > 0 {
			return all[0]
		}
	}
	return nil
}

// Receivers are the masters that are told what concerns all: every one of hot
// masters, else the active one.
func (s *Set) Receivers() []*Link {
	if !s.OneAtATime {
		return s.All()
	}
	i, all := int(s.current.Load()), s.All()
	if i >= len(all) {
		return nil
	}
	return all[i : i+1]
}

// toGreet reports whether c is to be told of the minion's start: a master that
// is connected for the first time, or again after another one was used.
func (s *Set) toGreet(c *Link) bool {
	if !s.OneAtATime {
		return !c.greeted
	}
	return !s.Greeted(c.Index)
}

// markGreeted notes that c was told.
func (s *Set) markGreeted(c *Link) {
	c.greeted = true
	if s.OneAtATime {
		s.told.Store(int32(c.Index) + 1)
	}
}

// tellRefused tells the other masters that one does not take this minion, or
// is not what it should be, so that an operator learns of it. Those that stand by
// hear of it, too: the active one may be lost before it has.
func (s *Set) tellRefused(c *Link, err error) {
	data := value.DictOf("id", s.ID, "master", c.Addr.Text, "reason", reason(err))
	load := value.DictOf("id", s.ID, "cmd", "_minion_event", "pretag", nil,
		"tag", "salt/minion/"+s.ID+"/master_refused", "data", data)
	for _, o := range s.All() {
		if r, _ := o.role.get(); o != c && r != roles.Off {
			o.Out.Put(load)
		}
	}
}
