// Package lease lets a master hold a lease for work that only one master may do. The voters of the cluster, which agree by raft (package
// voter), grant it for a short time. The holder renews it; a holder that dies or loses the voters loses the lease when it expires, and the
// next holder has a greater token. The package has no sockets: the caller passes in the function that asks a voter.
//
// # Why there is at most one holder
//
// The leader of the voters grants the lease to a holder. It grants it to no other holder until Term after the last renewal. A new leader
// waits for Term after its election, since it does not know when the lease was renewed. A renewal is valid once a majority of the voters has
// confirmed, after the request, that no other leader was elected. The holder measures from before its request, and uses less than Term, to
// allow for clocks of different speed. So its lease ends before a leader elected later has waited for Term. The time of day of the machines
// does not matter.
//
// # Why tokens grow
//
// A token is the index of the grant in the log of the voters, plus a number that is at least as great as each token that was granted before
// the log began. A resource that stores the token with each effect, and refuses lower ones, is safe even against a holder that froze between
// checking the lease and its effect.
//
// # Claims
//
// Work that must not be repeated by a later holder is claimed by name before it begins. The log assigns each claim to one holder, which may
// begin the work. Another holder that claims the same name later gets the name of the first. The same holder may claim again with another
// token: it knows itself whether it has begun.
//
// Names must sort by the time of the order. If there are too many claims, those with the lowest names are dropped. After that no lower name
// can be claimed, since it may be one of the dropped ones.
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
	// AskTime is the timeout for the answer of a voter.
	AskTime = Term / 3
	// retry, plus a random time of up to twice that, is the delay before candidates other than the preferred one try. The preferred one
	// may hang without being known as unreachable.
	retry = Term / 4
	// valid is how long a holder relies on a grant. It is shorter than Term.
	valid = Term - Term/10
)

// Op is the operation of a request.
type Op string

// The requests of a candidate or holder.
const (
	// Query returns the state.
	Query Op = "query"
	// Acquire requests the lease. Token is the last one that the candidate had. If it was granted the lease later without learning it, that
	// grant is renewed.
	Acquire Op = "acquire"
	// Renew extends the lease, Release ends it.
	Renew   Op = "renew"
	Release Op = "release"
	// Claim records that the holder is about to begin work.
	Claim Op = "claim"
	// Past returns what the voter knew before its group began.
	Past Op = "past"
	// AddVoter and RemoveVoter change the voters.
	AddVoter    Op = "add_voter"
	RemoveVoter Op = "remove_voter"
)

// Request is a request to a voter.
type Request struct {
	Op Op `json:"op"`
	// Group is the fingerprint of the configured list of voters. Generation selects the group of that list that Past refers to.
	Group      string `json:"group"`
	Generation uint64 `json:"generation,omitempty"`
	// Holder identifies a master and its start: see identity.
	Holder string `json:"holder,omitempty"`
	Token  uint64 `json:"token,omitempty"`
	// Name is the name to claim.
	Name string `json:"name,omitempty"`
	// Voter is the voter to add or remove. Force removes it even if too few voters remain.
	Voter string `json:"voter,omitempty"`
	Force bool   `json:"force,omitempty"`
}

// Answer is a voter's answer. Only the leader of the voters grants and claims.
type Answer struct {
	Granted bool `json:"granted,omitempty"`
	// Seen is the greatest granted token known to this voter; in the answer to a holder it is the granted token. Holder is the holder of
	// that token, "" for none.
	Seen   uint64 `json:"seen,omitempty"`
	Holder string `json:"holder,omitempty"`
	// Leads means that the voter is the leader, Live that a majority has confirmed that while the lease was valid.
	Leads bool `json:"leads,omitempty"`
	Live  bool `json:"live,omitempty"`
	// Why is the reason if this voter cannot vote.
	Why string `json:"why,omitempty"`
	// Claimed means that the name is recorded for the requester. By is another holder for which it was recorded earlier.
	Claimed bool   `json:"claimed,omitempty"`
	By      string `json:"by,omitempty"`
	// Past is the answer to a request Past.
	Past *Before `json:"past,omitempty"`
	// List is the list of voters known to this voter, if a command has changed it or if the requester has another one.
	List *List `json:"list,omitempty"`
	// Change is the progress of a change of the voters, and Reason its details.
	Change Change `json:"change,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Voters are the voters as seen by a master.
type Voters struct {
	// Names is the configured list, Group its fingerprint.
	Names []string
	Group string
	// Learned, if not nil, is called with each newly learned list of voters.
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
	from  time.Time // set before the lease was requested
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

// identity returns a unique name for one start of a master.
func identity(id string) string { return id + "/" + crand.Text() }

// IDOf returns the id in the name of a holder. Names from older versions have no start; ids have no slash.
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

// holds uses the wall clock and the monotonic clock: either may have stopped while the machine was suspended.
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

// askAll queries voters. The channel has room for all answers.
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

// Wish returns the request to renew the lease or, for a candidate, to acquire it.
func (h *Holder) Wish() Request {
	token, holds := h.Token()
	if holds {
		return Request{Op: Renew, Holder: h.self, Token: token}
	}
	return Request{Op: Acquire, Holder: h.self, Token: token}
}

// Granted records a grant. from is when it was requested.
func (h *Holder) Granted(a Answer, from time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !a.Granted || a.Seen < h.token:
	case a.Seen > h.token:
		h.token, h.from = a.Seen, from
	case from.After(h.from): // answers may arrive out of order
		h.from = from
	}
}

// round requests or renews the lease.
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

// Claim records with the voters that this holder is about to begin work with a name, and returns its token. The holder may begin if by is
// "", there is no error, and it has not begun before. Otherwise by is another holder, which may have begun the work. After an error the
// claim is undecided.
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

// Status is the state of the lease as reported by the voters.
type Status struct {
	// Holder is the holder confirmed by a majority of the voters, "" if there is none. Token is its token.
	Holder string
	Token  uint64
	// Voters are the answers or errors of the voters.
	Voters map[string]Answer
	Silent map[string]string
}

// Status queries the voters.
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
		if s.Holder == "" || a.Seen != s.Token { // its answer does not confirm the holder
			a.Holder = ""
			s.Voters[name] = a
		}
	}
	return s
}
