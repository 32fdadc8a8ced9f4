// Package lease has a master hold a lease for work that only one master may do. The voters of the cluster, which agree by raft (package
// voter), grant it for a short time. The holder renews it; a holder that dies or loses the voters loses the lease when it expires, and the
// next holder has a greater token. The package has no sockets: the caller passes in the function that asks a voter.
//
// # Why there is at most one holder
//
// The leader of the voters grants the lease to a holder, and to no other for Term after it last renewed it. A new leader waits for Term after
// its election, since it does not know when the lease was renewed. A renewal counts when a majority of the voters has confirmed, after it was
// requested, that no other leader was elected. The holder counts from before it asked, and less than Term, for clocks of different speed.
// So it ends before another leader, which must have been elected later, has waited. The time of day of the machines does not matter.
//
// # Why tokens grow
//
// A token is the index of the grant in the log of the voters, plus a number that is at least as great as each token that was granted before
// the log began. A resource that stores the token with each effect, and refuses lower ones, is safe even against a holder that froze between
// checking the lease and its effect.
//
// # Claims
//
// Work that must not be repeated by a later holder is claimed by name before it begins. The log has each claim for one holder, which
// may begin. Another holder that claims the same name later learns that. The same holder may claim again with another token: it knows itself
// whether it has begun.
//
// Names must sort by the time of the order. Of too many claims those with the lowest names are forgotten, and no lower name is claimed after
// that, since it may be one of them.
//
// # Who the holder is
//
// A holder is one start of a master, not its name: a copy of its machine, or the machine set back to an earlier state, has the same name, and
// does not know what the other one has begun. So the name is followed by a random number of the start. A master that is killed waits for
// the end of its own lease.
package lease

import (
	"context"
	crand "crypto/rand"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
)

// Term is how long a lease is valid unless renewed.
const Term = 3 * time.Second

// Times of a holder.
const (
	beat = Term / 6
	// AskTime bounds the wait for the answer of a voter.
	AskTime = Term / 3
	// retry, plus up to twice that at random, is the delay before candidates other than the preferred one try: the preferred one may be
	// frozen without being known as such.
	retry = Term / 4
	// valid is how long a holder relies on a grant.
	valid = Term - Term/10
)

// Op is what a request asks for.
type Op string

// The requests of a candidate or holder.
const (
	// Query asks for the state.
	Query Op = "query"
	// Acquire asks for the lease. Token is the last one that the candidate had: a later grant to it, which it does not know of, is renewed.
	Acquire Op = "acquire"
	// Renew asks for more time, Release ends the lease.
	Renew   Op = "renew"
	Release Op = "release"
	// Claim records that the holder is about to begin work.
	Claim Op = "claim"
	// Past asks what the voter knew before its group began.
	Past Op = "past"
	// AddVoter and RemoveVoter change the voters.
	AddVoter    Op = "add_voter"
	RemoveVoter Op = "remove_voter"
)

// Request is a request to a voter.
type Request struct {
	Op Op `json:"op"`
	// Group is the fingerprint of the configured list of voters, Generation which group of that list is meant by Past.
	Group      string `json:"group"`
	Generation uint64 `json:"generation,omitempty"`
	// Holder is the id of a master and its start: see identity.
	Holder string `json:"holder,omitempty"`
	Token  uint64 `json:"token,omitempty"`
	// Name is the claim.
	Name string `json:"name,omitempty"`
	// Voter is the one to be added or removed, Force says that it is removed even if the others are too few.
	Voter string `json:"voter,omitempty"`
	Force bool   `json:"force,omitempty"`
}

// Answer is a voter's answer. Only the leader of the voters grants and claims.
type Answer struct {
	Granted bool `json:"granted,omitempty"`
	// Seen is the greatest granted token as far as this voter knows, and the granted one in the answer to a holder. Holder is its holder, ""
	// for none.
	Seen   uint64 `json:"seen,omitempty"`
	Holder string `json:"holder,omitempty"`
	// Leads says that the voter is the leader; Live that a majority has confirmed that while the lease was valid.
	Leads bool `json:"leads,omitempty"`
	Live  bool `json:"live,omitempty"`
	// Why is the reason if this voter cannot vote.
	Why string `json:"why,omitempty"`
	// Claimed says that the name is recorded for the requester; By is the other holder it was recorded for earlier.
	Claimed bool   `json:"claimed,omitempty"`
	By      string `json:"by,omitempty"`
	// Past is the answer to such a request.
	Past *Before `json:"past,omitempty"`
	// List is the list of voters as far as this voter knows, if a command has changed it or if the requester has another one.
	List *List `json:"list,omitempty"`
	// Change is how far a change of the voters is, and Reason says more about it.
	Change Change `json:"change,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Voters are the voters as seen by a master.
type Voters struct {
	// Names is the configured list, Group its fingerprint.
	Names []string
	Group string
	// Learned, if not nil, is called with each list by which a command has replaced the configured one.
	Learned func(List)
	Ask     func(ctx context.Context, voter string, r Request) (Answer, error)
	// Now is the clock of this master; nil: time.Now.
	Now func() time.Time
}

// Holder is a candidate for, or the holder of, the lease. Run does the work.
type Holder struct {
	self   string // the identity
	voters Voters
	log    *slog.Logger
	now    func() time.Time

	mu    sync.Mutex
	token uint64
	from  time.Time // from before the lease was requested
	list  List
}

// NewHolder returns a candidate with an id.
func NewHolder(id string, voters Voters, log *slog.Logger) *Holder {
	h := &Holder{self: identity(id), voters: voters, log: log, now: voters.Now, list: List{Group: voters.Group, Names: voters.Names}}
	if h.now == nil {
		h.now = time.Now
	}
	return h
}

// identity returns the name of one start of a master.
func identity(id string) string { return id + "/" + crand.Text() }

// IDOf returns the id in the name of a holder. Older versions have no start, and ids have no slash.
func IDOf(holder string) string {
	id, _, _ := strings.Cut(holder, "/")
	return id
}

// Token returns the token of the lease if this is its present holder.
func (h *Holder) Token() (token uint64, holds bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.token, h.holds()
}

// holds uses both clocks: either may have stopped while the machine was suspended.
func (h *Holder) holds() bool {
	now := h.now()
	wall := now.Round(0).Sub(h.from.Round(0))
	return h.token != 0 && now.Sub(h.from) < valid && wall < valid && wall > -valid
}

// Run acquires the lease when it is free, keeps it until ctx ends, and then releases it. first reports whether this candidate is the
// preferred one.
func (h *Holder) Run(ctx context.Context, first func() bool) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	var had uint64
	var tried time.Time
	for {
		_, holds := h.Token()
		if holds || first() || h.now().Sub(tried) > retry+rand.N(2*retry) {
			tried = h.now()
			h.round(ctx)
		}
		token, holds := h.Token()
		switch {
		case holds && token != had:
			h.log.Info("acquired the lease for work that runs once", "token", token)
			had = token
		case !holds && had != 0:
			h.log.Warn("lost the lease for work that runs once", "token", had)
			had = 0
		}
		select {
		case <-ctx.Done():
			h.release(ctx)
			return
		case <-tick.C:
		}
	}
}

type said struct {
	voter string
	Answer
	err error
}

// askAll asks voters. The channel has room for all answers.
func (h *Holder) askAll(ctx context.Context, r Request, names []string) (answers <-chan said, n int) {
	r.Group = h.List().Group
	out := make(chan said, len(names))
	for _, v := range names {
		go func() {
			a, err := h.voters.Ask(ctx, v, r)
			if err == nil {
				h.Learn(a)
			}
			out <- said{v, a, err}
		}()
	}
	return out, len(names)
}

// Wish returns the request by which the holder keeps the lease, or the candidate gets it.
func (h *Holder) Wish() Request {
	token, holds := h.Token()
	if holds {
		return Request{Op: Renew, Holder: h.self, Token: token}
	}
	return Request{Op: Acquire, Holder: h.self, Token: token}
}

// Granted takes note of a grant that was requested at a time.
func (h *Holder) Granted(a Answer, from time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !a.Granted || a.Seen < h.token:
	case a.Seen > h.token:
		h.token, h.from = a.Seen, from
	case from.After(h.from): // the answers to two requests may come in any order
		h.from = from
	}
}

// round requests the lease, or more time.
func (h *Holder) round(ctx context.Context) {
	from := h.now()
	ctx, cancel := context.WithTimeout(ctx, AskTime)
	defer cancel()
	answers, n := h.askAll(ctx, h.Wish(), h.all())
	for range n {
		if a := <-answers; a.err == nil && a.Granted {
			h.Granted(a.Answer, from)
			return
		}
	}
}

// release ends the lease.
func (h *Holder) release(ctx context.Context) {
	token, holds := h.Token()
	if !holds {
		return
	}
	h.mu.Lock()
	h.token = 0
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), AskTime)
	defer cancel()
	answers, n := h.askAll(ctx, Request{Op: Release, Holder: h.self, Token: token}, h.List().Names)
	for range n {
		if a := <-answers; a.err == nil && a.Leads {
			return
		}
	}
	h.log.Debug("cannot release the lease; it will expire")
}

// Claim records with the voters that this holder is about to begin work with a name, and returns its token. It may begin if by is "", there
// is no error, and it has not begun before. by is another holder, which may have begun the work; an error means that the claim is
// undecided.
func (h *Holder) Claim(ctx context.Context, name string) (token uint64, by string, err error) {
	if name == "" || len(name) > MaxClaim {
		return 0, "", salt.Errorf(salt.Invalid, "%.80q is not a valid claim name", name)
	}
	token, holds := h.Token()
	if !holds {
		return 0, "", salt.Errorf(salt.Unavailable, "this master does not have the lease")
	}
	ctx, cancel := context.WithTimeout(ctx, AskTime)
	defer cancel()
	answers, n := h.askAll(ctx, Request{Op: Claim, Holder: h.self, Token: token, Name: name}, h.List().Names)
	why := ""
	for range n {
		a := <-answers
		switch {
		case a.err != nil:
			why = a.err.Error()
		case a.By != "":
			return token, IDOf(a.By), nil
		case a.Claimed:
			if now, still := h.Token(); !still || now != token {
				return 0, "", salt.Errorf(salt.Unavailable, "this master has lost the lease")
			}
			return token, "", nil
		case a.Why != "":
			why = a.Why
		}
	}
	return 0, "", salt.Errorf(salt.Unavailable, "the voters have not recorded the claim; %s", why)
}

// Status is the lease as reported by the voters.
type Status struct {
	// Holder has the lease, as confirmed by a majority of the voters, "" if there is none; Token is its token.
	Holder string
	Token  uint64
	// Voters are the answers, or the errors.
	Voters map[string]Answer
	Silent map[string]string
}

// Status asks the voters.
func (h *Holder) Status(ctx context.Context) Status {
	ctx, cancel := context.WithTimeout(ctx, AskTime)
	defer cancel()
	answers, n := h.askAll(ctx, Request{Op: Query}, h.List().Names)
	s := Status{Voters: map[string]Answer{}, Silent: map[string]string{}}
	for range n {
		a := <-answers
		switch {
		case a.err != nil:
			s.Silent[a.voter] = a.err.Error()
		case a.Why != "":
			s.Silent[a.voter] = a.Why
		default:
			shown := a.Answer
			shown.Holder = IDOf(a.Holder)
			s.Voters[a.voter] = shown
			if a.Live && a.Seen >= s.Token {
				s.Holder, s.Token = shown.Holder, a.Seen
			}
		}
	}
	for name, a := range s.Voters {
		if s.Holder == "" || a.Seen != s.Token { // what it knows is not confirmed
			a.Holder = ""
			s.Voters[name] = a
		}
	}
	return s
}
