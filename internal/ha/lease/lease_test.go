package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/test/fuzztest"
)

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

// asked is a holder with three voters that record its requests.
type asked struct {
	*Holder
	answered chan struct{}

	mu     sync.Mutex
	at     time.Time
	all    []Request
	answer func(voter string, r Request) (Answer, error)
}

func newAsked(id string) *asked {
	a := &asked{at: time.Now(), answered: make(chan struct{}, 3)}
	list := []string{"a", "b", "c"}
	a.Holder = NewHolder(id, Voters{Names: list, Group: Fingerprint(list), Ask: a.ask, Now: func() time.Time {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.at
	}}, slog.New(slog.DiscardHandler))
	return a
}

func (a *asked) ask(_ context.Context, voter string, r Request) (Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { a.answered <- struct{}{} }()
	a.all = append(a.all, r)
	return a.answer(voter, r)
}

// asks calls fn, which queries each voter once, and returns the first request.
func (a *asked) asks(fn func()) Request {
	a.all = nil
	fn()
	for range 3 {
		<-a.answered
	}
	return a.all[0]
}

func (a *asked) tries(t *testing.T) Request {
	t.Helper()
	return a.asks(func() { a.round(t.Context()) })
}

var errUnreachable = errors.New("unreachable")

// TestHolder: a holder relies only on the answer of the leader, from before its request, and for less than Term.
func TestHolder(t *testing.T) {
	a := newAsked("a")
	holds := func(what string, want bool) {
		t.Helper()
		if _, holds := a.Token(); holds != want {
			t.Errorf("%s: holds the lease: %v", what, holds)
		}
	}
	granted := func(token uint64) {
		a.answer = func(voter string, r Request) (Answer, error) {
			switch voter {
			case "a":
				return Answer{}, errUnreachable
			case "b":
				return Answer{Seen: 3}, nil
			}
			return Answer{Granted: true, Leads: true, Seen: token, Holder: r.Holder}, nil
		}
	}
	a.answer = func(string, Request) (Answer, error) { return Answer{Seen: 3, Holder: "b/1"}, nil }
	a.tries(t)
	holds("without a grant", false)
	granted(7)
	r := a.tries(t)
	holds("with one", true)
	if token, _ := a.Token(); token != 7 || r.Op != Acquire || r.Group != Fingerprint([]string{"c", "b", "a"}) {
		t.Errorf("token %d, asked %+v", token, r)
	}
	a.at = a.at.Add(Term / 2)
	from := a.at
	answer := a.answer
	a.answer = func(voter string, r Request) (Answer, error) {
		a.at = from.Add(AskTime) // the answer takes long
		return answer(voter, r)
	}
	if r := a.tries(t); r.Op != Renew || r.Token != 7 {
		t.Errorf("asked %+v", r)
	}
	a.at = from.Add(valid - time.Millisecond)
	holds("just before the end, from before it asked", true)
	a.at = from.Add(valid)
	holds("at the end", false)
	a.Granted(Answer{Granted: true, Seen: 6}, a.at)
	holds("with a late answer about an older token", false)
	granted(8)
	a.tries(t)
	holds("again", true)
	a.at = a.at.Round(0).Add(-valid) // the clock was set back, and the monotonic clock stood still
	holds("with a clock that was set back", false)

	a.at = time.Now()
	granted(9)
	a.tries(t)
	r = a.asks(func() { a.release(t.Context()) })
	holds("after a release", false)
	if r.Op != Release || r.Token != 9 {
		t.Errorf("asked %+v", r)
	}
}

// TestClaim: claimed work may begin if the leader has recorded the claim while this master has the lease.
func TestClaim(t *testing.T) {
	a := newAsked("a")
	a.answer = func(string, Request) (Answer, error) { return Answer{Granted: true, Seen: 7}, nil }
	if _, _, err := a.Claim(t.Context(), "work"); err == nil {
		t.Error("without the lease")
	}
	a.tries(t)
	for _, name := range []string{"", strings.Repeat("x", MaxClaim+1)} {
		if _, _, err := a.Claim(t.Context(), name); err == nil {
			t.Errorf("%q is claimed", name)
		}
	}
	claim := func(answer Answer, fails error) (token uint64, by string, err error) {
		a.answer = func(voter string, r Request) (Answer, error) {
			if r.Op != Claim || r.Name != "work" || r.Token != 7 {
				t.Errorf("asked %+v", r)
			}
			if voter != "b" {
				return Answer{Seen: 7, Why: "it waits"}, nil
			}
			return answer, fails
		}
		a.asks(func() { token, by, err = a.Claim(t.Context(), "work") })
		return token, by, err
	}
	if token, by, err := claim(Answer{Claimed: true}, nil); token != 7 || by != "" || err != nil {
		t.Errorf("recorded: %d %q %v", token, by, err)
	}
	if token, by, err := claim(Answer{By: "c/123"}, nil); token != 7 || by != "c" || err != nil {
		t.Errorf("of another one: %d %q %v", token, by, err)
	}
	if _, _, err := claim(Answer{}, errUnreachable); err == nil {
		t.Error("no voter has recorded it")
	}
	a.answer = func(string, Request) (Answer, error) {
		a.at = a.at.Add(Term)
		return Answer{Claimed: true}, nil
	}
	a.asks(func() {
		if _, _, err := a.Claim(t.Context(), "work"); err == nil {
			t.Error("the lease was lost meanwhile")
		}
	})
}

// TestStatus: a holder is reported if the leader has confirmed it.
func TestStatus(t *testing.T) {
	a := newAsked("a")
	live := true
	a.answer = func(voter string, _ Request) (Answer, error) {
		switch voter {
		case "a":
			return Answer{Seen: 7, Holder: "b/1", Leads: true, Live: live}, nil
		case "b":
			return Answer{Seen: 5, Holder: "a/1"}, nil
		}
		return Answer{Why: "it waits"}, nil
	}
	var s Status
	a.asks(func() { s = a.Status(t.Context()) })
	if s.Holder != "b" || s.Token != 7 || s.Voters["a"].Holder != "b" || s.Voters["b"].Holder != "" || s.Silent["c"] != "it waits" {
		t.Errorf("%+v", s)
	}
	live = false
	a.asks(func() { s = a.Status(t.Context()) })
	if s.Holder != "" || s.Token != 0 || s.Voters["a"].Holder != "" || len(s.Voters) != 2 {
		t.Errorf("%+v", s)
	}
}

// TestManyClaims: if there are too many claims, those with the lowest names are dropped, and none of them can be recorded for
// another holder.
func TestManyClaims(t *testing.T) {
	name := func(i int) string { return fmt.Sprintf("work/%08d", i) }
	c := Claims{By: map[string]string{}}
	for i := range maxClaims + 10 {
		if by := c.Record(name(i), "a"); by != "" {
			t.Fatalf("claim %d is refused: %s", i, by)
		}
	}
	if len(c.By) != maxClaims {
		t.Errorf("%d claims are kept", len(c.By))
	}
	var merged Claims
	merged.Merge(Claims{By: map[string]string{name(maxClaims + 20): "c"}})
	merged.Merge(c)
	for what, c := range map[string]*Claims{"recorded": &c, "merged": &merged} {
		for i := range 12 {
			want := "a"
			if i < 10 || what == "merged" && i < 11 {
				want = forgottenHolder
			}
			if by := c.Record(name(i), "b"); by != want {
				t.Errorf("%s: old claim %d: %q", what, i, by)
			}
		}
		if by := c.Record(name(maxClaims+30), "b"); by != "" {
			t.Errorf("%s: a new claim: %q", what, by)
		}
	}
	if by := merged.Record(name(maxClaims+20), "b"); by != "c" {
		t.Errorf("what another voter knew: %q", by)
	}
}

// FuzzRequest: requests and answers are decoded within bounds, and keep their meaning when encoded again.
func FuzzRequest(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, r := range []Request{{Op: Acquire, Group: "x", Holder: "a/1"}, {Op: Claim, Holder: "a/1", Token: 7, Name: "work"}} {
		b, err := r.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	b, err := Answer{Granted: true, Seen: 7, Past: &Before{Seen: 5, Claims: Claims{By: map[string]string{"a": "b"}, Forgotten: "0"}}}.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"op":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := ReadRequest(b); err == nil {
			if len(r.Name) > MaxClaim || len(r.Holder) > maxHolder {
				t.Fatalf("%+v", r)
			}
			again, err := r.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if back, err := ReadRequest(again); err == nil && back != r {
				t.Fatalf("%+v is %+v", r, back)
			}
		}
		if a, err := ReadAnswer(b); err == nil && a.Past != nil {
			var all Before
			all.Merge(*a.Past)
			if len(all.By) > maxClaims {
				t.Fatalf("%d claims", len(all.By))
			}
		}
	})
}
