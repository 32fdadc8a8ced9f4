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

// Exit codes of a minion that no master accepts, as in Salt.
const (
	ExitFinger   = 42 // no master has the required fingerprint
	ExitRejected = 77 // all masters have rejected the key
)

// Unwanted is the error of Run when the configuration requires the process to end: every
// master has permanently refused this minion, or has another fingerprint than required. An
// unreachable master does not end the process.
type Unwanted struct {
	Code int
	err  error
}

func (e *Unwanted) Error() string { return fmt.Sprintf("all masters refuse this minion: %v", e.err) }

// Unwrap returns the last master's error.
func (e *Unwanted) Unwrap() error { return e.err }

// ExitCode is the exit code of the process.
func (e *Unwanted) ExitCode() int { return e.Code }

// fatalCode returns the exit code for err, 0 if it never ends the process.
func (s *Set) fatalCode(err error) int {
	switch {
	case errors.Is(err, handshake.ErrFinger):
		return ExitFinger
	case errors.Is(err, handshake.ErrRejected) && !s.RejectedRetry:
		return ExitRejected
	}
	return 0
}

// refusedBy records how a session of c ended; err may be a refusal. When all masters have
// refused, the minion ends.
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

// Set has the links of one minion. Links are added but never removed.
type Set struct {
	// ID is the minion's id.
	ID string
	// OneAtATime means that one master is used at a time; Use sets it.
	OneAtATime bool
	// RejectedRetry is the option of that name.
	RejectedRetry bool
	// Stop ends the minion; it is called with an *Unwanted.
	Stop func(error)

	// Direct is the link of salt-call, which sends without a queue; otherwise nil.
	Direct *Link

	list     atomic.Pointer[[]*Link]
	refusals sync.Mutex // guards Link.fatal
	// current is the index of the current or last active master. told is the index, plus
	// one, of the last master that got the start event; 0 means none.
	current, told atomic.Int32
}

// Add adds a link. Calls must not be concurrent.
func (s *Set) Add(c *Link) {
	all := s.All()
	c.Index = len(all)
	next := append(slices.Clone(all), c)
	s.list.Store(&next)
}

// All returns the links. The slice is never modified.
func (s *Set) All() []*Link {
	if p := s.list.Load(); p != nil {
		return *p
	}
	return nil
}

// Use sets the active master, if one is used at a time.
func (s *Set) Use(i int) { s.current.Store(int32(i)) }

// Greeted reports whether master i was the last one that got the start event. It is for one
// master at a time.
func (s *Set) Greeted(i int) bool { return s.told.Load() == int32(i)+1 }

// Send sends a message to all receivers.
func (s *Set) Send(load *value.Dict) {
	for _, c := range s.Receivers() {
		c.Out.Put(load)
	}
}

// Fire sends an event to all receivers.
func (s *Set) Fire(tag string, data any) {
	s.Send(value.DictOf("id", s.ID, "cmd", "_minion_event", "pretag", nil, "data", data, "tag", tag))
}

// WithPillar returns the first receiver that has sent a pillar, or nil.
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

// active returns the active master if one is used at a time, otherwise nil.
func (s *Set) active() *Link {
	if s.OneAtATime {
		if all := s.Receivers(); len(all) > 0 {
			return all[0]
		}
	}
	return nil
}

// Receivers returns the masters that get the messages for all masters: all of them, or only
// the active one if one is used at a time.
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

// toGreet reports whether c must get the start event: at its first connection,
// or again after another master was used.
func (s *Set) toGreet(c *Link) bool {
	if !s.OneAtATime {
		return !c.greeted
	}
	return !s.Greeted(c.Index)
}

// markGreeted records that c got the start event.
func (s *Set) markGreeted(c *Link) {
	c.greeted = true
	if s.OneAtATime {
		s.told.Store(int32(c.Index) + 1)
	}
}

// tellRefused reports to the other masters that one of them refuses this minion or has a
// wrong key, so that an operator sees it. Standby masters get the report, too, because the
// active one may fail before it is delivered.
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
