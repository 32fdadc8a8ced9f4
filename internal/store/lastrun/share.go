package lastrun

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"brine/internal/base/salt"
)

// Bounds of what is shared at once, in bytes: the runs, and the changes.
const maxShared, maxSharedBodies = 4 << 20, 2 << 20

// Since returns the minions, at most some, that have changed since a number of changes, for another master; that number
// for the next call, and whether there are more. Numbers belong to one process.
func (s *Store) Since(number uint64, most int) (shared []byte, next uint64, more bool, err error) {
	all, next := s.changedSince(number)
	if len(all) == 0 {
		return nil, next, false, nil
	}
	out := sharedRuns{Minions: map[string]json.RawMessage{}, Bodies: map[string][]byte{}}
	size, bodies := 0, 0
	for i, c := range all {
		text, err := json.Marshal(c.m)
		if err != nil {
			return nil, number, false, err
		}
		if size += len(text); i > 0 && (i >= most || size > maxShared) {
			more = true
			break
		}
		out.Minions[c.id], next = text, c.at
		for _, r := range []*Run{c.m.Applied, c.m.Tested} {
			if r == nil {
				continue
			}
			for _, it := range r.Items {
				b := s.bodies.raw(it.Change)
				if name := it.Change.String(); b != nil && out.Bodies[name] == nil && bodies+len(b) <= maxSharedBodies {
					out.Bodies[name] = b
					bodies += len(b)
				}
			}
		}
	}
	shared, err = json.Marshal(out)
	return shared, next, more, err
}

// Single is one run of a minion, for a store outside of the masters. Shared is what Learn takes.
type Single struct {
	Minion string
	Run    *Run
	Shared []byte
}

// maxSingleBodies bounds the changes of one Single in bytes.
const maxSingleBodies = 256 << 10

// Singles returns the runs of the minions, at most some, that have changed since a number of changes; that number for the
// next call, and whether there are more. It stops after 4 MiB, and leaves out those for which skip returns true.
func (s *Store) Singles(number uint64, most int, skip func(minion string, r *Run) bool) (out []Single, next uint64, more bool, err error) {
	changed, now := s.changedSince(number)
	next, total := now, 0
	for i, c := range changed {
		if i >= most || total > maxShared {
			return out, next, true, nil
		}
		next = c.at
		for _, x := range []Minion{{Applied: c.m.Applied}, {Tested: c.m.Tested}} {
			r := x.Last()
			if r == nil || skip(c.id, r) {
				continue
			}
			text, err := json.Marshal(x)
			if err != nil {
				return nil, number, false, err
			}
			one, size := sharedRuns{Minions: map[string]json.RawMessage{c.id: text}, Bodies: map[string][]byte{}}, 0
			for _, it := range r.Items {
				b := s.bodies.raw(it.Change)
				if name := it.Change.String(); b != nil && one.Bodies[name] == nil && size+len(b) <= maxSingleBodies {
					one.Bodies[name] = b
					size += len(b)
				}
			}
			shared, err := json.Marshal(one)
			if err != nil {
				return nil, number, false, err
			}
			out = append(out, Single{c.id, r, shared})
			total += len(shared)
		}
	}
	return out, now, false, nil
}

// changedMinion is a minion with the number of its last change.
type changedMinion struct {
	id string
	at uint64
	m  Minion
}

// changedSince returns the minions that have changed since a number of changes, in this order, and the present number.
func (s *Store) changedSince(number uint64) (all []changedMinion, now uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, at := range s.at {
		if at > number {
			all = append(all, changedMinion{id, at, s.minions[id]})
		}
	}
	slices.SortFunc(all, func(a, b changedMinion) int { return cmp.Compare(a.at, b.at) })
	return all, s.changes
}

type sharedRuns struct {
	Minions map[string]json.RawMessage
	Bodies  map[string][]byte
}

// Learn takes what Since of another master returned. Of two runs the newer one counts.
func (s *Store) Learn(shared []byte) error {
	var in sharedRuns
	if err := json.Unmarshal(shared, &in); err != nil {
		return fmt.Errorf("cannot read runs of another master: %w", err)
	}
	for name, body := range in.Bodies {
		var h Hash
		if err := h.UnmarshalText([]byte(name)); err != nil {
			return err
		}
		s.bodies.learn(h, body)
	}
	for id, text := range in.Minions {
		var m Minion
		if err := json.Unmarshal(text, &m); err != nil {
			return fmt.Errorf("cannot read runs of another master: %w", err)
		}
		if salt.CheckID(id) == nil && m.Applied.bound() && m.Tested.bound() && (m.Waits == "" || salt.ValidJID(m.Waits)) {
			s.merge(id, m)
		}
	}
	return nil
}

// bound cuts a run to the bounds, and reports whether its job id is valid.
func (r *Run) bound() bool {
	if r == nil {
		return true
	}
	r.Fun, r.Mods = cut(r.Fun), r.Mods[:min(len(r.Mods), maxMods)]
	for i := range r.Mods {
		r.Mods[i] = cut(r.Mods[i])
	}
	r.Items, r.Slow = r.Items[:min(len(r.Items), maxItems)], r.Slow[:min(len(r.Slow), maxSlow)]
	for i, it := range r.Items {
		r.Items[i] = Item{cut(it.State), cut(it.Fun), cut(it.SLS), cut(it.Outcome), it.Change}
	}
	for i, w := range r.Slow {
		r.Slow[i] = Slow{cut(w.State), cut(w.Fun), cut(w.SLS), milliseconds(w.MS)}
	}
	r.clamp()
	return salt.ValidJID(r.JID)
}

func (s *Store) merge(id string, from Minion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, known := s.minions[id]
	if !known && len(s.minions) >= maxMinions {
		return
	}
	changed := false
	for _, x := range []struct {
		to   **Run
		from *Run
	}{{&m.Applied, from.Applied}, {&m.Tested, from.Tested}} {
		if x.from != nil && (*x.to == nil || x.from.JID > (*x.to).JID) {
			*x.to, changed = x.from, true
			s.past.add(id, x.from)
		}
	}
	if from.Waits > m.Waits {
		m.Waits, m.Since, changed = from.Waits, from.Since, true
	}
	if last := m.Last(); last != nil && m.Waits != "" && last.JID >= m.Waits {
		m.Waits, changed = "", true
	}
	if changed {
		s.put(id, m)
	}
}

func (b *Bodies) raw(h Hash) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byKey[h]
}

func (b *Bodies) learn(h Hash, body []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.byKey[h]; !ok && len(body) <= maxBody && b.size+len(body) <= maxBodies {
		b.put(h, body)
	}
}
