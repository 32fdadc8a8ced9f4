package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// world is voters and holders with one clock, over a network that loses
// questions and answers, delays them, and machines that stand still.
type world struct {
	t       *testing.T
	rand    *rand.Rand
	mu      sync.Mutex
	now     time.Time
	names   []string
	dir     string
	voters  map[string]*Voter
	living  sync.RWMutex // held while a voter is started anew
	holders []*Holder
	// forgets has voters start without knowing what they have granted.
	forgets bool

	greatest uint64
	owner    string
	changes  int
}

func newWorld(t *testing.T, seed uint64, n int) *world {
	w := &world{t: t, rand: rand.New(rand.NewPCG(seed, 0)), now: time.Now(), dir: t.TempDir(), voters: map[string]*Voter{}}
	for i := range n {
		w.names = append(w.names, fmt.Sprint("v", i))
	}
	for _, name := range w.names {
		w.restart(name)
		h := NewHolder(name, w.names, w.ask, slog.New(slog.DiscardHandler))
		h.now = w.clock
		w.holders = append(w.holders, h)
	}
	return w
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// one chooses one of so many.
func (w *world) one(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(n)
}

// chance is what happens with one of so many.
func (w *world) chance(n int) bool { return w.one(n) == 0 }

func (w *world) pass(most time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(time.Duration(w.rand.Int64N(int64(most))))
}

func (w *world) restart(name string) {
	w.living.Lock()
	defer w.living.Unlock()
	path := filepath.Join(w.dir, name)
	v, err := OpenVoter(path, w.names)
	if err != nil {
		w.t.Fatal(err)
	}
	v.now, v.flush = w.clock, false
	v.until = w.clock().Add(Term)
	if w.forgets {
		v.seen, v.holder, v.until, v.claims = 0, "", time.Time{}, map[string]claim{}
	}
	w.mu.Lock()
	w.voters[name] = v
	w.mu.Unlock()
}

var errLost = errors.New("lost")

func (w *world) ask(_ context.Context, voter string, r Request) (Answer, error) {
	if w.chance(5) {
		return Answer{}, errLost
	}
	if w.chance(10) {
		w.pass(2 * Term)
	}
	w.living.RLock()
	w.mu.Lock()
	v := w.voters[voter]
	w.mu.Unlock()
	a, err := v.Answer(r)
	w.living.RUnlock()
	if w.chance(5) {
		return Answer{}, errLost
	}
	if w.chance(10) {
		w.pass(Term)
	}
	return a, err
}

// step is something that happens, and what must be true then.
func (w *world) step() error {
	w.pass(Term / 3)
	if w.chance(20) {
		w.restart(w.names[w.one(len(w.names))])
	}
	h := w.holders[w.one(len(w.holders))]
	if token, holds := h.Token(); holds {
		h.round(w.t.Context(), token)
	} else {
		h.mu.Lock()
		h.token = 0
		next := h.seen + 1
		h.mu.Unlock()
		h.round(w.t.Context(), next)
	}
	var held []string
	for _, h := range w.holders {
		token, holds := h.Token()
		if !holds {
			continue
		}
		held = append(held, fmt.Sprint(h.self, " ", token))
		if token < w.greatest || token == w.greatest && w.owner != h.self {
			return fmt.Errorf("%s holds %d after %s had %d", h.self, token, w.owner, w.greatest)
		}
		if token > w.greatest {
			w.greatest, w.owner = token, h.self
			w.changes++
		}
	}
	if len(held) > 1 {
		return fmt.Errorf("more than one: %v", held)
	}
	return nil
}

// TestOneHolder: whatever is lost, late or started anew, there is one holder at
// most, and tokens grow from holder to holder. With voters that forget, the
// same look finds two.
func TestOneHolder(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		for seed := range uint64(3) {
			w := newWorld(t, seed, n)
			for i := range 300 {
				if err := w.step(); err != nil {
					t.Fatalf("%d voters, seed %d, step %d: %v", n, seed, i, err)
				}
			}
			if w.changes < 3 {
				t.Errorf("the lease changed hands only %d times", w.changes)
			}
		}
	}
	w := newWorld(t, 1, 3)
	w.forgets = true
	for range 20000 {
		if w.step() != nil {
			return
		}
	}
	t.Error("two holders were not found where there must have been")
}

func request(id string, token uint64, voters []string) Request {
	return Request{Holder: id, Token: token, Voters: Fingerprint(voters)}
}

// TestVoter: what one voter grants, keeps and refuses.
func TestVoter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lease")
	list := []string{"a", "b", "c"}
	now := time.Now()
	open := func() *Voter {
		v, err := OpenVoter(path, list)
		if err != nil {
			t.Fatal(err)
		}
		v.now = func() time.Time { return now }
		v.until = now.Add(Term)
		return v
	}
	v := open()
	ask := func(what string, r Request, want bool) {
		t.Helper()
		if a, err := v.Answer(r); err != nil || a.Granted != want {
			t.Errorf("%s: %+v %v", what, a, err)
		}
	}
	ask("right after a start without memory", request("a", 5, list), false)
	now = now.Add(Term + time.Second)
	ask("another list", request("a", 5, []string{"a", "b", "d"}), false)
	ask("a token that ends all", request("a", 1<<63, list), false)
	ask("the first", request("a", 5, list), true)
	ask("another one meanwhile", request("b", 6, list), false)
	now = now.Add(Term / 2)
	ask("again", request("a", 5, list), true)
	now = now.Add(Term - time.Millisecond)
	ask("just before the end", request("b", 6, list), false)
	v = open()
	ask("another one after a start", request("b", 6, list), false)
	ask("the holder after a start", request("a", 5, list), true)
	now = now.Add(Term + time.Second)
	ask("a token that was used", request("b", 5, list), false)
	ask("another one", request("b", 6, list), true)
	ask("the old holder, late", request("a", 5, list), false)
	r := request("a", 6, list)
	r.Release = true
	ask("another one gives back", r, false)
	ask("which does nothing", request("a", 7, list), false)
	r.Holder = "b"
	ask("the holder gives back", r, false)
	ask("and it is free", request("a", 7, list), true)
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenVoter(path, list); err == nil {
		t.Error("a damaged memory is taken for none")
	}
}

func TestCheckVoters(t *testing.T) {
	for _, l := range [][]string{{"a"}, {"a", "b"}, {"a", "b", "c", "d"}, {"a", "b", "b"}, {"a", "b", "../c"}} {
		if CheckVoters(l) == nil {
			t.Errorf("%q are voters", l)
		}
	}
	if err := errors.Join(CheckVoters(nil), CheckVoters([]string{"a", "b", "c"})); err != nil {
		t.Error(err)
	}
}

// TestClaims: whatever is lost, late or started anew, what is claimed by a name
// is begun by one holder at most. With voters that forget, the same
// look finds two.
func TestClaims(t *testing.T) {
	t.Parallel()
	began := 0
	look := func(seed uint64, forgets bool, steps int) error {
		w := newWorld(t, seed, 3)
		w.forgets = forgets
		begun := map[string]string{}
		for i := range steps {
			if err := w.step(); err != nil && !forgets {
				return err
			}
			h := w.holders[w.one(len(w.holders))]
			name := fmt.Sprint("work/", i/40)
			_, by, err := h.Claim(t.Context(), name)
			if err != nil || by != "" {
				continue
			}
			me := h.self
			if old := begun[name]; old != "" && old != me {
				return fmt.Errorf("%s was begun by %s and by %s", name, old, me)
			}
			begun[name] = me
			began++
		}
		return nil
	}
	for seed := range uint64(3) {
		if err := look(seed, false, 400); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if began < 20 {
		t.Errorf("only %d claims", began)
	}
	for seed := range uint64(50) {
		if look(seed, true, 400) != nil {
			return
		}
	}
	t.Error("no name was begun twice where voters forget")
}

// TestTwoOfOneName: a copy of a master, or the master after a restart, has the name
// of the holder, but neither its lease nor its claims.
func TestTwoOfOneName(t *testing.T) {
	list := []string{"a", "b", "c"}
	now := time.Now()
	voters := map[string]*Voter{}
	for _, name := range list {
		v, err := OpenVoter(filepath.Join(t.TempDir(), name), list)
		if err != nil {
			t.Fatal(err)
		}
		v.now, v.flush, v.until = func() time.Time { return now }, false, time.Time{}
		voters[name] = v
	}
	ask := func(_ context.Context, voter string, r Request) (Answer, error) { return voters[voter].Answer(r) }
	start := func() *Holder {
		h := NewHolder("a", list, ask, slog.New(slog.DiscardHandler))
		h.now = func() time.Time { return now }
		return h
	}
	holds := func(what string, h *Holder, want bool) {
		t.Helper()
		if _, holds := h.Token(); holds != want {
			t.Errorf("%s: holds the lease: %v", what, holds)
		}
	}
	first, second := start(), start()
	first.round(t.Context(), 5)
	holds("the first", first, true)
	if _, by, err := first.Claim(t.Context(), "work"); by != "" || err != nil {
		t.Fatal(by, err)
	}
	second.round(t.Context(), 5)
	holds("the second with the same token", second, false)
	second.round(t.Context(), 6)
	holds("the second with another token", second, false)
	holds("the first meanwhile", first, true)
	if s := first.Status(t.Context()); s.Holder != "a" || s.Voters["b"].Holder != "a" {
		t.Errorf("the holder is shown as %+v", s)
	}
	now = now.Add(Term + time.Second)
	second.round(t.Context(), 6)
	holds("the second after the term", second, true)
	holds("the first after the term", first, false)
	if _, by, err := second.Claim(t.Context(), "work"); by != "a" || err != nil {
		t.Errorf("a claim of an earlier start: by %q, %v", by, err)
	}
}

// TestManyClaims: of more claims than a voter keeps it forgets the oldest ones, and
// lets none of them be claimed by another holder, also after a restart.
func TestManyClaims(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lease")
	list := []string{"a", "b", "c"}
	now := time.Now()
	open := func() *Voter {
		v, err := OpenVoter(path, list)
		if err != nil {
			t.Fatal(err)
		}
		v.now, v.flush, v.until = func() time.Time { return now }, false, time.Time{}
		return v
	}
	ask := func(v *Voter, id string, token uint64, claim string) Answer {
		t.Helper()
		r := request(id, token, list)
		r.Claim = claim
		a, err := v.Answer(r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	name := func(i int) string { return fmt.Sprintf("work/%08d", i) }
	v := open()
	ask(v, "a", 5, "")
	for i := range maxClaims {
		v.claims[name(i)] = claim{"a", now}
	}
	for i := range 10 {
		if a := ask(v, "a", 5, name(maxClaims+i)); !a.Claimed {
			t.Fatalf("claim %d is refused: %+v", maxClaims+i, a)
		}
	}
	if len(v.claims) > maxClaims+1 {
		t.Errorf("%d claims are kept", len(v.claims))
	}
	v = open()
	ask(v, "b", 6, "")
	for i := range 12 {
		want := "a"
		if i < 10 {
			want = forgottenHolder
		}
		if a := ask(v, "b", 6, name(i)); a.Claimed || a.By != want {
			t.Errorf("old claim %d: %+v", i, a)
		}
	}
	if a := ask(v, "b", 6, name(maxClaims+20)); !a.Claimed {
		t.Errorf("a new claim: %+v", a)
	}
	now = now.Add(ClaimTime + time.Second)
	ask(v, "b", 7, "")
	if a := ask(v, "b", 7, name(maxClaims+21)); !a.Claimed || len(v.claims) != 1 {
		t.Errorf("old claims are kept: %d, %+v", len(v.claims), a)
	}
}

// TestVoterClaims: what one voter notes, keeps and refuses.
func TestVoterClaims(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lease")
	list := []string{"a", "b", "c"}
	now := time.Now()
	open := func() *Voter {
		v, err := OpenVoter(path, list)
		if err != nil {
			t.Fatal(err)
		}
		v.now, v.flush = func() time.Time { return now }, false
		v.until = now.Add(Term)
		return v
	}
	v := open()
	ask := func(what, id string, token uint64, claim string, claimed bool, by string) {
		t.Helper()
		r := request(id, token, list)
		r.Claim = claim
		if a, err := v.Answer(r); err != nil || a.Claimed != claimed || a.By != by || a.Granted {
			t.Errorf("%s: %+v %v", what, a, err)
		}
	}
	grant := func(id string, token uint64) {
		t.Helper()
		now = now.Add(Term + time.Second)
		if a, err := v.Answer(request(id, token, list)); err != nil || !a.Granted {
			t.Fatalf("%+v %v", a, err)
		}
	}
	ask("without a grant", "a", 5, "x", false, "")
	grant("a", 5)
	ask("with one", "a", 5, "x", true, "")
	ask("again", "a", 5, "x", true, "")
	ask("who has none", "b", 5, "y", false, "")
	ask("a token that is not the one", "a", 6, "y", false, "")
	ask("a name that is too long", "a", 5, string(make([]byte, MaxClaim+1)), false, "")
	v = open()
	grant("b", 6)
	ask("another holder, after a start", "b", 6, "x", false, "a")
	ask("the old holder", "a", 5, "x", false, "")
	ask("another name", "b", 6, "y", true, "")
	grant("a", 7)
	ask("the first one with another token", "a", 7, "x", true, "")
	now = now.Add(Term + time.Second)
	ask("when the grant is over", "a", 7, "z", false, "")
	now = now.Add(ClaimTime)
	grant("b", 8)
	ask("what drops old ones", "b", 8, "w", true, "")
	if len(v.claims) != 1 {
		t.Errorf("old claims are kept: %v", v.claims)
	}
	if err := os.WriteFile(v.claimsPath(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenVoter(path, list); err == nil {
		t.Error("damaged claims are taken for none")
	}
}

// TestExchange: while a voter is exchanged for another one there are never two
// leases, whoever was started anew with the new list already, if the one that
// goes was stopped before. If it was not there may be two, so that is not asked
// for in vain.
func TestExchange(t *testing.T) {
	before, after := []string{"a", "b", "old"}, []string{"a", "b", "new"}
	now := time.Now()
	two := func(stopped bool, renewed ...string) bool {
		dir := t.TempDir()
		open := func(name string, list []string) *Voter {
			v, err := OpenVoter(filepath.Join(dir, name), list)
			if err != nil {
				t.Fatal(err)
			}
			v.now, v.flush = func() time.Time { return now }, false
			return v
		}
		voters := map[string]*Voter{"a": open("a", before), "b": open("b", before), "new": open("new", after)}
		if !stopped {
			voters["old"] = open("old", before)
		}
		for _, name := range renewed {
			voters[name] = open(name, after)
		}
		now = now.Add(2 * Term)
		granted := func(holder string, token uint64, list []string) (n int) {
			for _, name := range list {
				if v := voters[name]; v != nil {
					a, err := v.Answer(request(holder, token, list))
					if err != nil {
						t.Fatal(err)
					}
					if a.Granted {
						n++
					}
				}
			}
			return n
		}
		return granted("a", 1, before) >= 2 && granted("b", 2, after) >= 2
	}
	for _, renewed := range [][]string{nil, {"a"}, {"b"}, {"a", "b"}} {
		if two(true, renewed...) {
			t.Errorf("there are two leases when %v have the new list", renewed)
		}
	}
	if !two(false, "b") {
		t.Error("nothing depends on the order")
	}
}
