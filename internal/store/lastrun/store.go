package lastrun

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// maxMinions bounds the minions of a store.
const maxMinions = 200_000

// maxFile bounds the file of a store.
const maxFile = 512 << 20

// Store has the last runs of all minions. It is saved to a file now and then; what a crash loses is in
// the job store.
type Store struct {
	path   string
	bodies Bodies
	past   *History // nil without one

	mu      sync.Mutex
	minions map[string]Minion
	at      map[string]uint64 // the number of the last change of each minion
	changes uint64            // number of changes
	saved   uint64            // changes when it was saved
}

// snapshot is the file of a store.
type snapshot struct {
	Minions map[string]Minion
	Bodies  map[string][]byte // by the hash as text
}

// Open reads a store. A missing or damaged file is an empty store; the error then says what was wrong.
func Open(path string) (*Store, error) {
	s := &Store{path: path, minions: map[string]Minion{}, at: map[string]uint64{}}
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if st.Size() > maxFile {
		return s, fmt.Errorf("%s has %d bytes", path, st.Size())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	return s, s.read(b)
}

func (s *Store) read(b []byte) error {
	var in snapshot
	if err := json.Unmarshal(b, &in); err != nil {
		return fmt.Errorf("cannot read the last runs of states: %w", err)
	}
	for id, m := range in.Minions {
		if salt.CheckID(id) == nil && len(s.minions) < maxMinions {
			s.put(id, m)
		}
	}
	s.saved = s.changes
	for text, body := range in.Bodies {
		var h Hash
		if h.UnmarshalText([]byte(text)) == nil && len(body) <= maxBody && s.bodies.size+len(body) <= maxBodies {
			s.bodies.put(h, body)
		}
	}
	return nil
}

// Save writes the store if it has changed, and removes changes of states that no run has any more.
func (s *Store) Save() error {
	s.mu.Lock()
	if s.changes == s.saved {
		s.mu.Unlock()
		return nil
	}
	at, minions := s.changes, maps.Clone(s.minions)
	s.mu.Unlock()

	used := map[Hash]bool{}
	for _, m := range minions {
		for _, r := range []*Run{m.Applied, m.Tested} {
			if r == nil {
				continue
			}
			for _, it := range r.Items {
				used[it.Change] = true
			}
		}
	}
	out := snapshot{Minions: minions, Bodies: map[string][]byte{}}
	s.bodies.mu.Lock()
	for h, b := range s.bodies.byKey {
		if used[h] {
			out.Bodies[h.String()] = b
		}
	}
	s.bodies.mu.Unlock()
	b, err := json.Marshal(out)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(s.path, b, 0o600, false); err != nil {
		return fmt.Errorf("cannot save the last runs of states: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = at
	if s.changes == at { // otherwise a new run may use a change that none had before
		s.bodies.keep(used)
	}
	return nil
}

// Published records that a run was sent to minions.
func (s *Store) Published(jid, fun string, minions []string, at time.Time) {
	if !Runs(fun) || !salt.ValidJID(jid) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range minions {
		m, known := s.minions[id]
		if last := m.Last(); last != nil && last.JID >= jid || m.Waits >= jid || !known && len(s.minions) >= maxMinions {
			continue
		}
		m.Waits, m.Since = jid, at.UTC()
		s.put(id, m)
	}
}

// Returned records the return of a minion. args are the arguments of the function.
func (s *Store) Returned(id, jid, fun string, args any, ret *value.Dict, at time.Time) {
	if !Runs(fun) || !salt.ValidJID(jid) || salt.CheckID(id) != nil {
		return
	}
	if m := s.Minion(id); !newer(jid, m.Applied, at) && !newer(jid, m.Tested, at) {
		s.late(id, jid, fun, args, ret, at)
		return
	}
	r := Parse(jid, fun, args, ret, at, &s.bodies)
	s.mu.Lock()
	defer s.mu.Unlock()
	m, known := s.minions[id]
	if !known && len(s.minions) >= maxMinions {
		return
	}
	changed := m.Waits != "" && m.Waits <= jid
	if changed {
		m.Waits, m.Since = "", time.Time{}
	}
	if r != nil {
		of := &m.Applied
		if r.Test {
			of = &m.Tested
		}
		if newer(jid, *of, at) {
			*of = r
			changed = true
			s.past.add(id, r)
		}
	}
	if changed {
		s.put(id, m)
	}
}

// late adds a run to the history that is not the last one of the minion.
func (s *Store) late(id, jid, fun string, args any, ret *value.Dict, at time.Time) {
	if s.past == nil || s.past.has(id, jid, at) {
		return
	}
	if r := Parse(jid, fun, args, ret, at, &Bodies{}); r != nil {
		s.past.add(id, r)
	}
}

// Keep adds the runs that this store gets from now on to a history. It must be called before others use the store. A history
// without a file begins with the runs that the store has.
func (s *Store) Keep(h *History) {
	s.past = h
	if _, err := os.Stat(h.path); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	for id, m := range s.minions {
		for _, r := range []*Run{m.Applied, m.Tested} {
			if r != nil {
				h.add(id, r)
			}
		}
	}
}

// newer reports whether a job is newer than a run. A job id of the future, as of a minion whose clock was
// wrong, does not count.
func newer(jid string, than *Run, now time.Time) bool {
	return than == nil || than.JID < jid || than.JID > salt.FormatJID(now.UTC().Add(24*time.Hour))
}

// put stores a minion. s.mu is held.
func (s *Store) put(id string, m Minion) {
	s.minions[id] = m
	s.changes++
	s.at[id] = s.changes
}

// Forget removes all minions that keep does not have.
func (s *Store) Forget(keep map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.minions {
		if !keep[id] {
			delete(s.minions, id)
			delete(s.at, id)
			s.changes++
		}
	}
}

// Minion returns what is known of a minion. The runs must not be changed.
func (s *Store) Minion(id string) Minion {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.minions[id]
}

// All returns what is known of all minions. The runs must not be changed.
func (s *Store) All() map[string]Minion {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.minions)
}

// Change returns the changes and the comment of a state, or nil if they are not kept.
func (s *Store) Change(h Hash) *value.Dict { return s.bodies.Get(h) }
