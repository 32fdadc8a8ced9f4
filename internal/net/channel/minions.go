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

// Keys is what the channel asks of the store of minion keys. AcceptedKey is
// called for every request, so it must be cheap for an unchanged key.
type Keys interface {
	// AcceptedKey returns id's accepted key, the same pointer as long as the
	// key is unchanged; ok is false if id is not an accepted minion.
	AcceptedKey(id string) (key *crypt.PublicKey, ok bool, err error)
}

// sessionCheck is how long a session key is used without a look at its file,
// which another master on the same folder may have replaced.
const sessionCheck = time.Second

// minionState is what the master remembers of one accepted minion that has
// spoken. All of it can be made again from the files, but for the nonces, which
// is why a restarted master makes new session keys (Sessions.DistrustOld), or is
// told by the other masters of its cluster (Server.Learn).
type minionState struct {
	pub *crypt.PublicKey

	mu      sync.Mutex
	tok     []byte // a token that was found good
	session string
	cipher  *crypt.Crypticle // of session
	// sessionTag names session for other masters.
	sessionTag uint64
	stamp      stamp
	checked    time.Time
	nonces     nonceRing
	renew      bool                // the session key is replaced at the next sign-in
	large      *semaphore.Weighted // nil until the first large request
}

// Bounds in bytes for the requests that are decoded and being handled. A value
// takes up to 20 times the bytes that it was sent in.
const (
	// largeRequest is the size from which a request counts.
	largeRequest = 256 << 10
	// maxLarge bounds the large requests of all minions, maxLargeEach those of
	// one. A request above a bound is handled alone.
	maxLarge     = 32 << 20
	maxLargeEach = 8 << 20
)

// largeOf returns the bound of one minion's large requests.
func (m *minionState) largeOf() *semaphore.Weighted {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.large == nil {
		m.large = semaphore.NewWeighted(maxLargeEach)
	}
	return m.large
}

// reserve waits until a request of so many bytes may be decoded, which holds
// back the calling connection only, and returns what ends its handling.
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
// that unauthenticated peers cannot make it grow. Reads of different minions
// share nothing but the map.
type minionTable struct {
	keys     Keys
	sessions *Sessions
	log      *slog.Logger
	large    *semaphore.Weighted // large requests of all minions
	seen     *seenBox            // for other masters; nil if there are none
	waiting  waitingSeen         // from other masters
	m        sync.Map            // id -> *minionState
}

var errNotAccepted = errors.New("the minion's key is not accepted")

// get returns the state of id, whose key must be accepted now.
func (t *minionTable) get(id string) (*minionState, error) {
	pub, ok, err := t.keys.AcceptedKey(id)
	if err != nil {
		return nil, err
	}
	v, known := t.m.Load(id)
	if known {
		// A cache in between may have let go of an unchanged key.
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

// forget drops id and its session key, which must not pass to the next minion
// of that id: the last one knows it.
func (t *minionTable) forget(id string) {
	if err := t.sessions.Forget(id); err != nil {
		t.log.Error("a session key is still there", "minion", id, "err", err)
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
		// A derived key changes in memory, and its old value may be known to a
		// master that was removed from the cluster: look every time.
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

// refresh reads the session file again, for a request that the cached key
// could not open. It returns nil if there is no other key.
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
		// What was sealed with the old key can be opened no more, so its nonces and
		// the minion's clock of then do not matter.
		s.nonces = nonceRing{}
		t.placeWaiting(id, s, now)
	}
	s.stamp, s.checked = st, now
	return changed, nil
}

// checkToken verifies tok, the minion's signature over the word "salt". It
// never changes for a key, so only a new one costs an RSA operation.
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

// freshness says whether a request was seen before.
type freshness uint8

const (
	// fresh is a new request, one that Salt's minions are known to repeat, or one
	// without a nonce, which cannot be judged.
	fresh freshness = iota
	// replayed is a request whose nonce was seen before.
	replayed
	// outrun is a request that was sent before others whose nonces are forgotten:
	// a replay cannot be told from a clock that was set back.
	outrun
)

// judge records the nonce of a request that was sent at ts by the minion's clock,
// and returns whether the request is a new one. Only a fresh one may be served.
func (t *minionTable) judge(s *minionState, id, nonce, cmd string, ts int64, now time.Time) freshness {
	if nonce == "" {
		return fresh
	}
	h := nonceHash(nonce)
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := uint32(min(max(ts, 0), math.MaxUint32-1)) // room for the floor above it
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

// forgetNonces frees the memory of a burst of requests of a minion that is quiet
// since.
func (m *minionState) forgetNonces(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nonces.forget(now)
}

// renewSession replaces the session key of a minion that is signing in, if one of
// its requests was outrun: with a new key its clock begins again, and no request
// of before can be opened.
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

// repeatTime is how long a pillar may be asked for in one and the same
// message. Salt's minion sends it up to three times, a minute apart, while
// the answer does not come. All else it packs anew, and nothing but a pillar
// can be refused to a replay without harm to an honest minion.
const repeatTime = 5 * time.Minute

// A replayed request is recognised among the last nonceWindow ones of its
// minion, and among all of the last replayTime, but at most nonceBurst: a minion
// that reports a thousand jobs at once does not make room for a replay. Of older
// ones the floor is remembered: by the minion's own clock all were sent before it.
//
// A minion that fetches many small files sends thousands of requests in a second.
// The floor must not reach what it is sending, so all of the last burstTime are
// remembered, at most nonceMost, which is more than one connection carries in a
// second.
const (
	nonceWindow = 128
	nonceBurst  = 8192
	nonceMost   = 1 << 15
	replayTime  = 5 * time.Minute
	burstTime   = 10 * time.Second
)

// nonceRing remembers the hashes of the last nonces and the seconds in which they
// came and were sent. It takes some 2.5 KiB for a minion that talks much, and at most
// 0.5 MiB; the nonces
// themselves would take several times as much, for each of thousands of minions.
type nonceRing struct {
	hashes []uint64 // those from next on count
	times  []uint32 // of the Unix clock, good until 2106
	sent   []uint32 // the same of the minion's clock
	next   int
	floor  uint32 // the second after the latest in which a forgotten request was sent
}

// add enters a nonce; if it is there already it returns since when.
func (r *nonceRing) add(h uint64, sent uint32, now time.Time) (since time.Time, before bool) {
	if i := slices.Index(r.hashes[r.next:], h); i >= 0 {
		return time.Unix(int64(r.times[r.next+i]), 0), true
	}
	r.hashes, r.times, r.sent = append(r.hashes, h), append(r.times, uint32(now.Unix())), append(r.sent, sent)
	r.forget(now)
	return now, false
}

// forget drops what need not be remembered any more.
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
		// Anew, so that a burst does not keep its room for ever.
		r.hashes = append(make([]uint64, 0, len(r.hashes)-r.next+nonceWindow/4), r.hashes[r.next:]...)
		r.times = append(make([]uint32, 0, len(r.times)-r.next+nonceWindow/4), r.times[r.next:]...)
		r.sent = append(make([]uint32, 0, len(r.sent)-r.next+nonceWindow/4), r.sent[r.next:]...)
		r.next = 0
	}
}

// above returns the floor that a forgotten request leaves, which must refuse the
// request itself. One without a time leaves none: it would refuse all of a minion
// that sends no times.
func above(sent uint32) uint32 {
	if sent == 0 {
		return 0
	}
	return max(sent, sent+1)
}
