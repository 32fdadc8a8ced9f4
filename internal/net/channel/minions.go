package channel

import (
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"brine/internal/net/crypt"
)

// Keys is the channel's access to the store of minion keys. AcceptedKey is
// called for every request, so it must be cheap for an unchanged key.
type Keys interface {
	// AcceptedKey returns id's accepted key, the same pointer as long as the
	// key is unchanged; ok is false if id is not an accepted minion.
	AcceptedKey(id string) (key *crypt.PublicKey, ok bool, err error)
}

// sessionCheck is how long a session key is used before its file is checked
// again, because another master with the same directory may have replaced it.
const sessionCheck = time.Second

// minionState is the state of one accepted minion that has sent a request. The files can restore it
// except for the nonces. So a restarted master creates new session keys (Sessions.DistrustOld), or
// gets the nonces from the other masters of its cluster (Server.Learn).
type minionState struct {
	pub *crypt.PublicKey

	mu      sync.Mutex
	tok     []byte // a verified token
	session string
	cipher  *crypt.Crypticle // of session
	// sessionTag identifies session for other masters.
	sessionTag uint64
	stamp      stamp
	checked    time.Time
	nonces     nonceRing
	renew      bool                // the session key is replaced at the next sign-in
	large      *semaphore.Weighted // nil until the first large request
}

// Limits in bytes of the requests in memory. A decoded value takes up to 20
// times its encoded size.
const (
	// largeRequest is the size from which a request counts.
	largeRequest = 256 << 10
	// maxLarge bounds the large requests of all minions, maxLargeEach those of one.
	// A request above a limit is handled alone.
	maxLarge     = 32 << 20
	maxLargeEach = 8 << 20
)

// largeOf returns the limit of one minion's large requests.
func (m *minionState) largeOf() *semaphore.Weighted {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.large == nil {
		m.large = semaphore.NewWeighted(maxLargeEach)
	}
	return m.large
}

// reserve waits until a request of this size may be decoded, and returns a function that frees the
// memory. Only the calling connection waits.
func (t *minionTable) reserve(m *minionState, size int) (release func()) {
	own, ownSize := m.largeOf(), int64(min(size, maxLargeEach))
	allSize := int64(min(size, maxLarge))
	// Without a deadline Acquire returns no error.
	_ = own.Acquire(context.Background(), ownSize)
	_ = t.large.Acquire(context.Background(), allSize)
	return sync.OnceFunc(func() {
		t.large.Release(allSize)
		own.Release(ownSize)
	})
}

// minionTable holds the state of minions. Only accepted minions enter it, so
// that unauthenticated peers cannot use memory. Reads of different minions
// share only the map.
type minionTable struct {
	keys     Keys
	sessions *Sessions
	log      *slog.Logger
	large    *semaphore.Weighted // large requests of all minions
	seen     *seenBox            // for other masters; nil if there are none
	waiting  waitingSeen         // received from other masters
	m        sync.Map            // id -> *minionState
}

var errNotAccepted = errors.New("the minion's key is not accepted")

// get returns the state of id, whose key must be accepted.
func (t *minionTable) get(id string) (*minionState, error) {
	pub, ok, err := t.keys.AcceptedKey(id)
	if err != nil {
		return nil, err
	}
	v, known := t.m.Load(id)
	if known {
		// A cache in between may have dropped an unchanged key.
		if s := v.(*minionState); ok && (s.pub == pub || s.pub.Equal(pub)) {
			return s, nil
		}
		t.forgetOld(id, v.(*minionState))
	}
	if !ok {
		return nil, errNotAccepted
	}
	v, _ = t.m.LoadOrStore(id, &minionState{pub: pub})
	return v.(*minionState), nil
}

// forget drops id and its session key, which the next minion with that id must
// not get: the last one knows it.
func (t *minionTable) forget(id string) {
	if err := t.sessions.Forget(id); err != nil {
		t.log.Error("cannot remove a session key", "minion", id, "err", err)
	}
	t.drop(id)
}

// forgetOld is forget for a minion whose accepted key has changed. The new owner
// of the id may have signed in already: a session key that the old one did not
// have is kept.
func (t *minionTable) forgetOld(id string, old *minionState) {
	old.mu.Lock()
	known := old.session
	old.mu.Unlock()
	if key, _, err := t.sessions.Get(id); err == nil && known != "" && key != known {
		t.drop(id)
		return
	}
	t.forget(id)
}

func (t *minionTable) drop(id string) { t.m.Delete(id) }

// cipherOf returns the cipher of the minion's current session key.
func (t *minionTable) cipherOf(id string, s *minionState, now time.Time) (*crypt.Crypticle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cipher != nil {
		// A derived key can change in memory, and a master that was removed from the cluster may
		// know its old value: check every time.
		if t.sessions.derive == nil && now.Sub(s.checked) < sessionCheck && !now.Before(s.checked) {
			return s.cipher, nil
		}
		if st, err := t.sessions.stat(id); err == nil && st == s.stamp {
			s.checked = now
			return s.cipher, nil
		}
	}
	_, err := t.reload(id, s, now)
	return s.cipher, err
}

// refresh reads the session file again, for a request that the cached key could
// not open. It returns nil if there is no other key.
func (t *minionTable) refresh(id string, s *minionState, now time.Time) *crypt.Crypticle {
	s.mu.Lock()
	defer s.mu.Unlock()
	if changed, err := t.reload(id, s, now); err != nil || !changed {
		return nil
	}
	return s.cipher
}

func (t *minionTable) reload(id string, s *minionState, now time.Time) (changed bool, err error) {
	t.adoptWaiting(id)
	key, st, err := t.sessions.Get(id)
	if err != nil {
		return false, err
	}
	if key != s.session {
		c, err := crypt.NewCrypticle(key)
		if err != nil {
			return false, err
		}
		s.session, s.cipher, s.sessionTag, changed = key, c, tagOf(key), true
		// Nothing encrypted with the old key can be opened any more, so its nonces and
		// the minion's clock at that time do not matter.
		s.nonces = nonceRing{}
		t.placeWaiting(id, s, now)
	}
	s.stamp, s.checked = st, now
	return changed, nil
}

// checkToken verifies tok, the minion's signature of the word "salt". It never
// changes for a key, so only a new one costs an RSA operation.
func (s *minionState) checkToken(tok []byte) bool {
	s.mu.Lock()
	known := s.tok
	s.mu.Unlock()
	if known != nil && subtle.ConstantTimeCompare(known, tok) == 1 {
		return true
	}
	msg, err := s.pub.RecoverX931(tok)
	if err != nil || string(msg) != "salt" {
		return false
	}
	s.mu.Lock()
	s.tok = append([]byte(nil), tok...)
	s.mu.Unlock()
	return true
}

// freshness is whether a request is new.
type freshness uint8

const (
	// fresh is a new request, one that stock minions are known to repeat, or one without a nonce,
	// which cannot be checked.
	fresh freshness = iota
	// replayed is a request whose nonce was seen before.
	replayed
	// outrun is a request sent before others whose nonces are forgotten: it may be a replay, or the
	// clock was set back.
	outrun
)

// judge records the nonce of a request that was sent at ts by the minion's clock,
// and returns whether the request is new. Only a fresh one may be served.
func (t *minionTable) judge(s *minionState, id, nonce, cmd string, ts int64, now time.Time) freshness {
	if nonce == "" {
		return fresh
	}
	h := nonceHash(nonce)
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := uint32(min(max(ts, 0), math.MaxUint32-1)) // leaves room for the floor above it
	if sent < s.nonces.floor {
		s.renew = true
		return outrun
	}
	seen, before := s.nonces.add(h, sent, now)
	if before && (cmd != "_pillar" || now.Sub(seen) >= repeatTime) {
		return replayed
	}
	if !before {
		t.seen.add(id, s.sessionTag, s.stamp.generation, SeenNonce{Hash: h, Sent: sent})
	}
	return fresh
}

// forgetNonces frees the memory of a burst of requests after the minion has
// become quiet.
func (m *minionState) forgetNonces(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nonces.forget(now)
}

// renewSession replaces the session key of a minion that is signing in, if one of
// its requests was outrun: with a new key its clock starts over, and no earlier
// request can be opened.
func (t *minionTable) renewSession(id string) error {
	v, ok := t.m.Load(id)
	if !ok {
		return nil
	}
	s := v.(*minionState)
	s.mu.Lock()
	renew := s.renew
	s.renew = false
	s.mu.Unlock()
	if !renew {
		return nil
	}
	defer t.drop(id)
	if err := t.sessions.Renew(id); err != nil {
		return err
	}
	key, st, err := t.sessions.Get(id)
	if err == nil {
		t.seen.renewed(id, tagOf(key), st.generation)
	}
	return err
}

// repeatTime is how long the same message may request a pillar repeatedly. A stock minion sends it
// up to three times, a minute apart, while there is no answer. It encodes all other requests again;
// answering a repeated pillar request is harmless.
const repeatTime = 5 * time.Minute

// A replayed request is recognized among the last nonceWindow requests of its
// minion, and among all of the last replayTime, but at most nonceBurst: a minion
// that returns a thousand jobs at once does not make room for a replay. For older
// ones the floor is remembered: by the minion's own clock all were sent before it.
//
// A minion that fetches many small files sends thousands of requests in a second.
// The floor must not reach the current ones, so all of the last burstTime are
// remembered, at most nonceMost, which is more than one connection carries in a
// second.
const (
	nonceWindow = 128
	nonceBurst  = 8192
	nonceMost   = 1 << 15
	replayTime  = 5 * time.Minute
	burstTime   = 10 * time.Second
)

// nonceRing remembers the hashes of the last nonces and the seconds in which they arrived and were
// sent. It uses about 2.5 KiB for an active minion, and at most 0.5 MiB. The nonces themselves
// would use several times as much for each of thousands of minions.
type nonceRing struct {
	hashes []uint64 // valid from next on
	times  []uint32 // of the Unix clock, good until 2106
	sent   []uint32 // the same by the minion's clock
	next   int
	floor  uint32 // the second after the latest sending time of a forgotten request
}

// add adds a nonce; if it is present, it returns since when.
func (r *nonceRing) add(h uint64, sent uint32, now time.Time) (since time.Time, before bool) {
	if i := slices.Index(r.hashes[r.next:], h); i >= 0 {
		return time.Unix(int64(r.times[r.next+i]), 0), true
	}
	r.hashes, r.times, r.sent = append(r.hashes, h), append(r.times, uint32(now.Unix())), append(r.sent, sent)
	r.forget(now)
	return now, false
}

// forget drops nonces that are no longer needed.
func (r *nonceRing) forget(now time.Time) {
	old, burst := uint32(now.Add(-replayTime).Unix()), uint32(now.Add(-burstTime).Unix())
	for n := len(r.hashes) - r.next; n > nonceWindow; n-- {
		if at := r.times[r.next]; at >= old && (n <= nonceBurst || at >= burst) && n <= nonceMost {
			break
		}
		r.floor = max(r.floor, above(r.sent[r.next]))
		r.next++
	}
	if r.next > (len(r.hashes)-r.next)/4 {
		// A new slice, so that a burst does not keep its memory for ever.
		r.hashes = append(make([]uint64, 0, len(r.hashes)-r.next+nonceWindow/4), r.hashes[r.next:]...)
		r.times = append(make([]uint32, 0, len(r.times)-r.next+nonceWindow/4), r.times[r.next:]...)
		r.sent = append(make([]uint32, 0, len(r.sent)-r.next+nonceWindow/4), r.sent[r.next:]...)
		r.next = 0
	}
}

// above returns the floor for a forgotten request, which must exclude the request
// itself. A request without a time sets none: it would exclude all requests of a
// minion that sends no times.
func above(sent uint32) uint32 {
	if sent == 0 {
		return 0
	}
	return max(sent, sent+1)
}
