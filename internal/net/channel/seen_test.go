package channel

import (
	"testing"
	"time"

	"brine/internal/py/value"
)

// member is a master of a cluster with derived session keys and one accepted
// minion.
func member(t *testing.T, now *time.Time) *testServer {
	t.Helper()
	s := newServer(t, func(c *Call) { c.Reply("served") })
	s.now = func() time.Time { return *now }
	s.book.accept(vecID, private(t, "minion").Public())
	err := s.sessions.Derive(func() []byte { return []byte("secret of all masters") }, func(string) (string, error) { return "key of the minion", nil })
	if err != nil {
		t.Fatal(err)
	}
	s.TellSeen()
	return s
}

// sealed returns a sealer with the current session key.
func (s *testServer) sealed(t *testing.T) *sealer {
	t.Helper()
	key, _, err := s.sessions.Get(vecID)
	if err != nil {
		t.Fatal(err)
	}
	return newSealer(t, key, "minion")
}

// replay passes a recorded request to a server.
func (s *testServer) replay(t *testing.T, seal *sealer, load *value.Dict) any {
	t.Helper()
	return seal.answerOf(t, s.ask(t, seal.request(t, load), false), load.Str("nonce"))
}

// TestReplayAtAnotherMaster: a request that one master of a cluster served is
// refused by the others after a report, also by a restarted one, while the minion
// itself is served everywhere.
func TestReplayAtAnotherMaster(t *testing.T) {
	now := time.Now()
	one, two := member(t, &now), member(t, &now)
	seal := one.sealed(t)
	recorded := seal.load()
	if got := one.replay(t, seal, recorded); got != "served" {
		t.Fatal(got)
	}
	two.Learn(one.TakeSeen())
	for name, s := range map[string]*testServer{"the same master": one, "the other master": two} {
		if got := s.replay(t, seal, recorded); got != badLoad {
			t.Errorf("a replay at %s is answered %v", name, got)
		}
		if got := s.replay(t, seal, seal.load()); got != "served" {
			t.Errorf("the minion at %s is answered %v", name, got)
		}
	}
	if seen := one.TakeSeen(); len(seen) != 1 || len(seen[0].Nonces) != 1 {
		t.Errorf("told twice, or refused requests told: %+v", seen)
	}

	restarted := member(t, &now)
	restarted.Learn(two.AllSeen())
	if got := restarted.replay(t, seal, recorded); got != badLoad {
		t.Errorf("a replay after a restart is answered %v", got)
	}
	if got := restarted.replay(t, seal, seal.load()); got != "served" {
		t.Errorf("the minion after a restart is answered %v", got)
	}

	// Long afterwards the nonce itself is no longer reported.
	now = now.Add(2 * replayTime)
	if got := two.replay(t, seal, seal.load("ts", now.Unix())); got != "served" {
		t.Fatal(got)
	}
	late := member(t, &now)
	seen := two.AllSeen()
	if len(seen) != 1 || len(seen[0].Nonces) != 1 {
		t.Errorf("a master that starts is told %+v", seen)
	}
	late.Learn(seen)
	if got := late.replay(t, seal, recorded); got != badLoad {
		t.Errorf("a replay of a request that all have forgotten is answered %v", got)
	}
}

// TestReplayOfForgottenAtMember: a member that has forgotten a nonce refuses the
// request anyway, and a minion whose clock was set back is served by all members
// after one sign-in.
func TestReplayOfForgottenAtMember(t *testing.T) {
	now := time.Now()
	one, two := member(t, &now), member(t, &now)
	seal := one.sealed(t)
	recorded := seal.load("ts", now.Unix())
	if got := one.replay(t, seal, recorded); got != "served" {
		t.Fatal(got)
	}
	for range 2 * nonceWindow {
		now = now.Add(2 * replayTime / nonceWindow)
		if got := one.replay(t, seal, seal.load("ts", now.Unix())); got != "served" {
			t.Fatal(got)
		}
	}
	two.Learn(one.TakeSeen())
	for name, s := range map[string]*testServer{"the same master": one, "the other master": two} {
		if got := s.replay(t, seal, recorded); got != badLoad {
			t.Errorf("a replay at %s is answered %v", name, got)
		}
	}

	back := now.Add(-time.Hour).Unix()
	if got := one.replay(t, seal, seal.load("ts", back)); got != badLoad {
		t.Errorf("with the clock set back: %v", got)
	}
	if got := verdictOf(t, one.ask(t, signInBody(t, vecID, "minion"), false)); got != "accepted" {
		t.Fatal(got)
	}
	two.Learn(one.TakeSeen())
	again := one.sealed(t)
	for name, s := range map[string]*testServer{"the same master": one, "the other master": two} {
		if got := s.replay(t, again, again.load("ts", back)); got != "served" {
			t.Errorf("the minion at %s after the sign-in: %v", name, got)
		}
		if got := s.replay(t, seal, seal.load("ts", now.Unix())); got != badLoad {
			t.Errorf("the old session key at %s: %v", name, got)
		}
	}
}

// TestLearnFromHostileMember: a member's reports for minions that are not
// accepted here, or for other session keys, change nothing and use no memory.
func TestLearnFromHostileMember(t *testing.T) {
	now := time.Now()
	s := member(t, &now)
	seal := s.sealed(t)
	s.Learn([]Seen{
		{ID: "unknown", Key: 1, Floor: 1 << 31},
		{ID: "../x", Key: 1, Generation: 7},
		{ID: vecID, Key: 1, Floor: 1<<32 - 1, Nonces: []SeenNonce{{Hash: 1, Sent: 1}}},
	})
	n := 0
	s.table.m.Range(func(any, any) bool { n++; return true })
	s.sessions.generations.Range(func(any, any) bool { n++; return true })
	if n > 1 {
		t.Errorf("%d entries", n)
	}
	if got := s.replay(t, seal, seal.load()); got != "served" {
		t.Errorf("the minion is answered %v", got)
	}
}

// TestGenerationOfHostileMember: no number from another master exhausts the later
// ones: a session key can still be replaced early.
func TestGenerationOfHostileMember(t *testing.T) {
	now := time.Now()
	s := member(t, &now)
	s.Learn([]Seen{{ID: vecID, Key: 1, Generation: 1<<32 - 1}})
	before := s.sealed(t)
	if err := s.sessions.Renew(vecID); err != nil {
		t.Fatal(err)
	}
	if got := s.replay(t, before, before.load()); got != badLoad {
		t.Errorf("with the key that was replaced: %v", got)
	}
	if seal := s.sealed(t); s.replay(t, seal, seal.load()) != "served" {
		t.Error("with the new key the minion is not served")
	}
}

// TestGenerationsEndWithSecret: a new secret changes all keys, and generations reported under the
// old one are ignored.
func TestGenerationsEndWithSecret(t *testing.T) {
	now := time.Now()
	s, other := member(t, &now), member(t, &now)
	secret := []byte("secret of all masters")
	for _, m := range []*testServer{s, other} {
		if err := m.sessions.Derive(func() []byte { return secret }, func(string) (string, error) { return "key of the minion", nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.sessions.Renew(vecID); err != nil {
		t.Fatal(err)
	}
	secret = []byte("the next secret of all masters")
	own, _, err := s.sessions.Get(vecID)
	if err != nil {
		t.Fatal(err)
	}
	if fresh, _, err := other.sessions.Get(vecID); err != nil || own != fresh {
		t.Errorf("a master that was not told of the old generation has another key (%v)", err)
	}
}

// TestGenerationToldToAbsentMember: a member that was down when a session key was replaced early
// gets the same key after a report.
func TestGenerationToldToAbsentMember(t *testing.T) {
	now := time.Now()
	one, absent := member(t, &now), member(t, &now)
	old := one.sealed(t)
	if got := one.replay(t, old, old.load("ts", now.Unix())); got != "served" {
		t.Fatal(got)
	}
	for range 2 * nonceWindow {
		now = now.Add(2 * replayTime / nonceWindow)
		if got := one.replay(t, old, old.load("ts", now.Unix())); got != "served" {
			t.Fatal(got)
		}
	}
	if got := one.replay(t, old, old.load("ts", now.Add(-time.Hour).Unix())); got != badLoad {
		t.Fatal(got)
	}
	if got := verdictOf(t, one.ask(t, signInBody(t, vecID, "minion"), false)); got != "accepted" {
		t.Fatal(got)
	}
	one.TakeSeen() // reported to the others
	absent.Learn(one.AllSeen())
	seal := one.sealed(t)
	if got := absent.replay(t, seal, seal.load()); got != "served" {
		t.Errorf("the minion at the member that was down: %v", got)
	}
	if got := absent.replay(t, old, old.load()); got != badLoad {
		t.Errorf("the old session key at the member that was down: %v", got)
	}
}

// TestLearnBeforeKeysArrive: a reported request is refused also if the report
// arrived before the minion was accepted, or before the secret of the session
// keys.
func TestLearnBeforeKeysArrive(t *testing.T) {
	for _, generation := range []int{0, 2} {
		now := time.Now()
		one := member(t, &now)
		for range generation {
			if err := one.sessions.Renew(vecID); err != nil {
				t.Fatal(err)
			}
		}
		seal := one.sealed(t)
		recorded := seal.load()
		if got := one.replay(t, seal, recorded); got != "served" {
			t.Fatal(got)
		}
		told := one.TakeSeen()

		early := member(t, &now)
		early.book.remove(vecID)
		early.Learn(told)
		early.book.accept(vecID, private(t, "minion").Public())

		other := member(t, &now)
		secret := "the secret of before"
		err := other.sessions.Derive(func() []byte { return []byte(secret) }, func(string) (string, error) { return "key of the minion", nil })
		if err != nil {
			t.Fatal(err)
		}
		before := other.sealed(t)
		if got := other.replay(t, before, before.load()); got != "served" {
			t.Fatal(got)
		}
		other.Learn(told)
		secret = "secret of all masters"

		for name, s := range map[string]*testServer{"accepted later": early, "with the secret later": other} {
			if got := s.replay(t, seal, recorded); got != badLoad {
				t.Errorf("%s, generation %d: a replay is answered %v", name, generation, got)
			}
			if got := s.replay(t, seal, seal.load()); got != "served" {
				t.Errorf("%s, generation %d: the minion is answered %v", name, generation, got)
			}
			if n := s.table.waiting.size; n != 0 {
				t.Errorf("%s, generation %d: %d still wait", name, generation, n)
			}
		}
	}
}

// TestWaitingSeenIsBounded: waiting reports use bounded memory, and are dropped
// after some minutes.
func TestWaitingSeenIsBounded(t *testing.T) {
	now := time.Now()
	s := member(t, &now)
	for i := range 10 {
		s.Learn([]Seen{{ID: vecID, Key: uint64(i + 1), Nonces: make([]SeenNonce, maxWaiting/5)}, {ID: "unknown", Nonces: make([]SeenNonce, 1)}})
	}
	if n := s.table.waiting.size; n > maxWaiting || n < maxWaiting/2 {
		t.Errorf("%d entries and nonces wait", n)
	}
	now = now.Add(replayTime + time.Second)
	s.Prune()
	if n := len(s.table.waiting.byID) + s.table.waiting.size; n != 0 {
		t.Errorf("%d are left", n)
	}
}
