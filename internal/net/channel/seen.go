package channel

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"sync"
	"time"

	"brine/internal/base/salt"
)

// Every master of a cluster can open a request, but only the one that served it
// knows its nonce. So masters report to each other what they served: otherwise a
// recorded request could be replayed at every other master, and at the same one
// after a restart. They exchange Seen a few times a second. Nothing waits for
// that: requests are served also while other masters are unreachable.

// Seen lists the requests of one minion that a master served under one session key.
type Seen struct {
	ID string
	// Key identifies the session key. Requests encrypted with another one cannot be
	// replayed.
	Key uint64
	// Generation counts the early replacements of the session key, for derived keys
	// (Sessions.Derive).
	Generation uint32
	// Floor is the second after the latest sending time, by the minion's clock, of
	// a request whose nonce is forgotten. All requests sent before it are refused.
	Floor  uint32
	Nonces []SeenNonce
}

// SeenNonce is one request.
type SeenNonce struct {
	Hash uint64 // of the nonce
	Sent uint32 // in seconds by the minion's clock
}

// maxSeen bounds the nonces that wait to be reported. Dropped ones can be
// replayed at another master, so it is far more than a cluster serves between
// two reports.
const maxSeen = 1 << 18

// seenBox holds the unreported requests. A nil *seenBox drops them.
type seenBox struct {
	mu     sync.Mutex
	byID   map[string]*Seen
	nonces int
}

// add adds a served request.
func (b *seenBox) add(id string, key uint64, generation uint32, n SeenNonce) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.nonces >= maxSeen {
		return
	}
	s := b.of(id, key, generation)
	s.Nonces = append(s.Nonces, n)
	b.nonces++
}

// renewed adds an early replacement of a session key.
func (b *seenBox) renewed(id string, key uint64, generation uint32) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of(id, key, generation)
}

// of returns the entry of a minion and key. b.mu is held.
func (b *seenBox) of(id string, key uint64, generation uint32) *Seen {
	s := b.byID[id]
	if s == nil || s.Key != key {
		if s != nil {
			b.nonces -= len(s.Nonces) // of a replaced key
		}
		s = &Seen{ID: id, Key: key, Generation: generation}
		b.byID[id] = s
	}
	return s
}

func (b *seenBox) take() (out []Seen) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.byID {
		out = append(out, *s)
	}
	clear(b.byID)
	b.nonces = 0
	return out
}

// TellSeen makes the server record what it serves, for TakeSeen. It must be
// called before the first request.
func (s *Server) TellSeen() { s.table.seen = &seenBox{byID: map[string]*Seen{}} }

// TakeSeen returns the requests served since the last call.
func (s *Server) TakeSeen() []Seen { return s.table.seen.take() }

// AllSeen returns all requests that this master knows to have been served by any
// master, for one that started or was unreachable. Nonces older than replayTime
// are represented by the floor. Early replacements of session keys are included
// even if nothing was served under the new keys.
func (s *Server) AllSeen() (out []Seen) {
	old := uint32(s.now().Add(-replayTime).Unix())
	renewed := s.table.sessions.renewed()
	s.table.m.Range(func(id, v any) bool {
		if e := v.(*minionState).allSeen(id.(string), old); e.Floor > 0 || len(e.Nonces) > 0 {
			out = append(out, e)
			if e.Generation == renewed[e.ID] {
				delete(renewed, e.ID)
			}
		}
		return true
	})
	for id, n := range renewed {
		// Report the number even if the key cannot be derived here.
		e := Seen{ID: id, Generation: n}
		if key, st, err := s.table.sessions.Get(id); err == nil {
			e.Key, e.Generation = tagOf(key), st.generation
		}
		out = append(out, e)
	}
	return out
}

func (m *minionState) allSeen(id string, old uint32) Seen {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &m.nonces
	e := Seen{ID: id, Key: m.sessionTag, Generation: m.stamp.generation, Floor: r.floor}
	for i := r.next; i < len(r.hashes); i++ {
		if r.times[i] < old {
			e.Floor = max(e.Floor, above(r.sent[i]))
		} else {
			e.Nonces = append(e.Nonces, SeenNonce{Hash: r.hashes[i], Sent: r.sent[i]})
		}
	}
	return e
}

// Learn records what another master served, so that this one refuses its replay.
// Reports for minions that are not accepted here, or for unknown session keys,
// are kept for some minutes: their keys or the secret of the cluster may still
// arrive.
func (s *Server) Learn(seen []Seen) {
	now := s.now()
	for _, e := range seen {
		if err := s.table.learn(e, now); err != nil {
			s.log.Debug("cannot record what another master served", "minion", e.ID, "err", err)
		}
	}
}

func (t *minionTable) learn(e Seen, now time.Time) error {
	if err := salt.CheckID(e.ID); err != nil {
		return err
	}
	m, err := t.get(e.ID)
	if err != nil {
		err = errors.Join(err, t.waiting.keep(e, now))
		// The minion may have been accepted and served meanwhile.
		if v, ok := t.m.Load(e.ID); ok {
			m = v.(*minionState)
			m.mu.Lock()
			defer m.mu.Unlock()
			t.placeWaiting(e.ID, m, now)
		}
		return err
	}
	if err := t.sessions.adopt(e.ID, e.Generation); err != nil {
		return err
	}
	if _, err := t.cipherOf(e.ID, m, now); err != nil {
		return errors.Join(err, t.waiting.keep(e, now))
	}
	if m.tag() != e.Key {
		t.refresh(e.ID, m, now)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessionTag == e.Key {
		m.learn(e, now)
	} else if e.Floor > 0 || len(e.Nonces) > 0 {
		return t.waiting.keep(e, now)
	}
	return nil
}

// learn records what was served under the current session key. m.mu is held.
func (m *minionState) learn(e Seen, now time.Time) {
	m.nonces.floor = max(m.nonces.floor, e.Floor)
	for _, n := range e.Nonces {
		m.nonces.add(n.Hash, n.Sent, now)
	}
}

// maxWaiting bounds the entries and nonces in a waitingSeen.
const maxWaiting = 1 << 16

var errWaiting = errors.New("too much waits for keys that are not known here")

// waitingSeen holds reports that cannot be applied yet, for replayTime.
type waitingSeen struct {
	mu   sync.Mutex
	byID map[string][]lateSeen
	size int
}

type lateSeen struct {
	Seen
	came time.Time
}

func (e lateSeen) size() int { return 1 + len(e.Nonces) }

func (w *waitingSeen) keep(e Seen, now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	late := lateSeen{e, now}
	if w.size+late.size() > maxWaiting {
		return errWaiting
	}
	if w.byID == nil {
		w.byID = map[string][]lateSeen{}
	}
	w.byID[e.ID] = append(w.byID[e.ID], late)
	w.size += late.size()
	return nil
}

// remove removes the entries of id that which selects, and returns them. w.mu
// is held.
func (w *waitingSeen) remove(id string, which func(lateSeen) bool) (out []lateSeen) {
	all := w.byID[id]
	if len(all) == 0 {
		return nil
	}
	var rest []lateSeen
	for _, e := range all {
		if which(e) {
			out = append(out, e)
			w.size -= e.size()
		} else {
			rest = append(rest, e)
		}
	}
	if w.byID[id] = rest; len(rest) == 0 {
		delete(w.byID, id)
	}
	return out
}

// expire drops expired entries.
func (w *waitingSeen) expire(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.byID {
		w.remove(id, func(e lateSeen) bool { return now.Sub(e.came) > replayTime })
	}
}

// adoptWaiting applies the waiting generations of id that lead to the reported keys. Other
// generations belong to another secret.
func (t *minionTable) adoptWaiting(id string) {
	t.waiting.mu.Lock()
	defer t.waiting.mu.Unlock()
	for _, e := range t.waiting.byID[id] {
		if key, err := t.sessions.derivedAt(id, e.Generation); err != nil || e.Key != 0 && e.Key != tagOf(key) {
			continue
		}
		if err := t.sessions.adopt(id, e.Generation); err != nil {
			t.log.Debug("cannot record what another master served", "minion", id, "err", err)
		}
	}
}

// placeWaiting applies the waiting reports for the current session key of m.
// m.mu is held.
func (t *minionTable) placeWaiting(id string, m *minionState, now time.Time) {
	if m.session == "" {
		return
	}
	t.waiting.mu.Lock()
	defer t.waiting.mu.Unlock()
	for _, e := range t.waiting.remove(id, func(e lateSeen) bool { return e.Key == m.sessionTag }) {
		m.learn(e.Seen, now)
	}
}

func (m *minionState) tag() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sessionTag
}

// tagOf identifies a session key without disclosing it.
func tagOf(session string) uint64 {
	sum := sha256.Sum256([]byte(session))
	return binary.BigEndian.Uint64(sum[:])
}

// nonceHash is the same on all masters. Only the minion itself can choose its
// nonces, so equal hashes harm only that minion.
func nonceHash(nonce string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(nonce))
	return h.Sum64()
}
