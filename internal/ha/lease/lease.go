// Package lease implements a lease for work that only one master may do. A majority of voters grants it for a short time. The holder renews
// it; a holder that dies or loses the majority loses the lease when it expires, and the next holder has a greater token. The package has no
// sockets: the caller passes in the function that asks a voter.
//
// # Why there is at most one holder
//
// A voter grants the lease to one holder for Term and to no other until then. It writes the grant to disk before it answers, and after a
// restart assumes that this holder still has it. A holder needs grants from a majority, and counts Term from before it asked, less a tenth
// for clocks of different speed. Any two majorities share a voter. The time of day of the machines does not matter.
//
// # Why tokens grow
//
// A voter grants no token that is not greater than all it has granted. A resource that stores the token with each effect, and refuses lower
// ones, is safe even against a holder that froze between checking the lease and its effect.
//
// The voters are a fixed list, which is compared in every request.
//
// # Claims
//
// Work that must not be repeated by a later holder is claimed by name before it begins. The voters record each claim for one holder, which
// may begin once a majority has recorded it. Another holder that claims the same name later finds at least one voter that knows the first
// claim, and learns its holder. The same holder may claim again with another token: it knows itself whether it has begun. Claims are kept
// for ClaimTime, so work ordered longer ago must not begin.
//
// Names must sort by the time of the order. A voter with too many claims forgets those with the lowest names, and records the highest one of
// them: no lower name is claimed after that, since it may be one of those forgotten.
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
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
)

// Term is how long a grant is valid unless renewed.
const Term = 3 * time.Second

// Times of a holder.
const (
	beat    = Term / 6
	askTime = Term / 3
	// retry, plus up to twice that at random, is the delay before candidates other than the preferred one try: the preferred one may be
	// frozen without being known as such.
	retry = Term / 4
	// valid is how long a holder relies on a grant.
	valid = Term - Term/10
)

// Request is a request of a candidate or holder to a voter. Token 0 only queries the state.
type Request struct {
	// Holder is the id of a master and its start: see identity.
	Holder string
	Token  uint64
	// Voters is the fingerprint of their list.
	Voters string
	// Release returns a grant.
	Release bool
	// Claim is the name of work that the holder of the token is about to begin, "" to request the grant itself.
	Claim string
}

// Answer is a voter's answer.
type Answer struct {
	Granted bool
	// Seen is the greatest granted token, Holder the present holder, "" for none.
	Seen   uint64
	Holder string
	// Why is the reason if this voter can never grant the request.
	Why string
	// Claimed says that the name is recorded for the requester; By is the other holder it was recorded for earlier.
	Claimed bool
	By      string
}

// Fingerprint returns the fingerprint of a list of voters, regardless of order.
func Fingerprint(voters []string) string {
	l := slices.Sorted(slices.Values(voters))
	sum := sha256.Sum256([]byte(strings.Join(l, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// CheckVoters rejects lists that cannot give a lease, or whose lease would not survive the loss of a voter.
func CheckVoters(voters []string) error {
	seen := map[string]bool{}
	for _, v := range voters {
		switch {
		case salt.CheckID(v) != nil || strings.ContainsAny(v, "/ "):
			return salt.Errorf(salt.Invalid, "cluster_voters: %.80q is not an address or name", v)
		case seen[v]:
			return salt.Errorf(salt.Invalid, "cluster_voters names %s twice", v)
		}
		seen[v] = true
	}
	if n := len(voters); n > 0 && (n < 3 || n%2 == 0) {
		return salt.Errorf(salt.Invalid,
			"cluster_voters names %d: an odd number of at least 3 is required; with two masters, add a machine that runs brine witness", n)
	}
	return nil
}

// Voter grants leases. It is safe for concurrent use.
type Voter struct {
	path   string
	voters string
	now    func() time.Time
	flush  bool // sync to disk; tests without machine crashes disable it

	mu     sync.Mutex
	seen   uint64
	holder string
	until  time.Time
	claims map[string]claim
}

// claim is a claim recorded by a voter.
type claim struct {
	Holder string    `json:"holder"`
	At     time.Time `json:"at"`
}

// Bounds of claims.
const (
	// ClaimTime is the minimum time a claim is kept.
	ClaimTime = 2 * time.Hour
	maxClaims = 4096
	// MaxClaim bounds a name in bytes.
	MaxClaim = 64
)

// given is the persistent state.
type given struct {
	Token  uint64 `json:"token"`
	Holder string `json:"holder"`
}

// OpenVoter loads the voter's state from a file. For one Term it grants nothing to others than the last holder, and nothing at all without
// a file: it may have been lost.
func OpenVoter(path string, voters []string) (*Voter, error) {
	v := &Voter{path: path, voters: Fingerprint(voters), now: time.Now, flush: true}
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, salt.Errorf(salt.Unavailable, "cannot read what this voter has granted: %w", err)
	}
	if err == nil {
		var g given
		if err := json.Unmarshal(b, &g); err != nil {
			return nil, salt.Errorf(salt.Invalid, "%s is damaged: %w; remove it if no other voter is in the same state, and start again", path, err)
		}
		v.seen, v.holder = g.Token, g.Holder
	}
	b, err = os.ReadFile(v.claimsPath())
	if err == nil {
		err = json.Unmarshal(b, &v.claims)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, salt.Errorf(salt.Invalid, "cannot read what is claimed with this voter: %s: %w; if it is damaged, remove it if no other voter is "+
			"in the same state, wait for two hours and start again", v.claimsPath(), err)
	}
	if v.claims == nil {
		v.claims = map[string]claim{}
	}
	v.until = v.now().Add(Term)
	return v, nil
}

func (v *Voter) claimsPath() string { return v.path + ".claims" }

// claim records a name for the present holder.
func (v *Voter) claim(r Request, live bool) (Answer, error) {
	a := Answer{Seen: v.seen, Holder: v.holder}
	if !live || r.Token != v.seen || r.Holder != v.holder || len(r.Claim) > MaxClaim {
		return a, nil
	}
	if c, ok := v.claims[r.Claim]; ok {
		if a.Claimed = c.Holder == r.Holder; !a.Claimed {
			a.By = c.Holder
		}
		return a, nil
	}
	now := v.now()
	next := map[string]claim{}
	for name, c := range v.claims {
		if now.Sub(c.At) <= ClaimTime {
			next[name] = c
		}
	}
	if r.Claim <= next[forgottenKey].Holder {
		a.By = forgottenHolder
		return a, nil
	}
	forgetOldest(next, now)
	next[r.Claim] = claim{r.Holder, now}
	b, err := json.Marshal(next)
	if err == nil {
		err = atomicfile.Write(v.claimsPath(), b, 0o600, v.flush)
	}
	if err != nil {
		return a, fmt.Errorf("cannot record the claim: %w", err)
	}
	v.claims = next
	a.Claimed = true
	return a, nil
}

// forgottenKey is the entry of claims that has, as its holder, the highest name of those forgotten. Older versions take it for a claim.
const forgottenKey = ""

// forgottenHolder stands for the holder of a claim that was forgotten.
const forgottenHolder = "(unknown)"

// forgetOldest makes room for a claim.
func forgetOldest(claims map[string]claim, now time.Time) {
	names := slices.Sorted(maps.Keys(claims))
	if len(names) > 0 && names[0] == forgottenKey {
		names = names[1:]
	}
	if n := len(names) - maxClaims + 1; n > 0 {
		for _, name := range names[:n] {
			delete(claims, name)
		}
		claims[forgottenKey] = claim{max(names[n-1], claims[forgottenKey].Holder), now}
	}
}

// maxToken bounds tokens: a greater one could block all later leases.
const maxToken = 1 << 62

// Answer decides about a request.
func (v *Voter) Answer(r Request) (Answer, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.now()
	live := now.Before(v.until)
	a := Answer{Seen: v.seen}
	if live {
		a.Holder = v.holder
	}
	switch {
	case r.Voters != v.voters:
		a.Why = "its cluster_voters are others"
		return a, nil
	case r.Token == 0 || r.Token > maxToken || r.Holder == "":
		return a, nil
	case r.Claim != "":
		return v.claim(r, live)
	case r.Release:
		if v.seen == r.Token && v.holder == r.Holder {
			v.until = now
			a.Holder = ""
		}
		return a, nil
	case r.Token == v.seen && r.Holder == v.holder: // no other holder in between
	case r.Token <= v.seen, live && v.holder != r.Holder:
		return a, nil
	default:
		b, err := json.Marshal(given{r.Token, r.Holder})
		if err == nil {
			err = atomicfile.Write(v.path, b, 0o600, v.flush)
		}
		if err != nil {
			return a, fmt.Errorf("cannot record the grant: %w", err)
		}
		v.seen, v.holder = r.Token, r.Holder
		now = v.now() // the disk write may have taken time
	}
	v.until = now.Add(Term)
	return Answer{Granted: true, Seen: v.seen, Holder: v.holder}, nil
}

// Holder is a candidate for, or the holder of, the lease. Run does the work.
type Holder struct {
	self   string // the identity
	voters []string
	print  string
	ask    func(ctx context.Context, voter string, r Request) (Answer, error)
	log    *slog.Logger
	now    func() time.Time

	mu    sync.Mutex
	token uint64
	from  time.Time // from before the grants were requested
	seen  uint64
}

// NewHolder returns a candidate with an id. ask sends a request to a voter.
func NewHolder(id string, voters []string, ask func(ctx context.Context, voter string, r Request) (Answer, error), log *slog.Logger) *Holder {
	return &Holder{self: identity(id), voters: voters, print: Fingerprint(voters), ask: ask, log: log, now: time.Now}
}

// identity returns the name of one start of a master.
func identity(id string) string { return id + "/" + crand.Text() }

// idOf returns the id in an identity. Older versions have no start, and ids have no slash.
func idOf(identity string) string {
	id, _, _ := strings.Cut(identity, "/")
	return id
}

// Majority returns the number of grants needed.
func (h *Holder) Majority() int { return len(h.voters)/2 + 1 }

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
		token, holds := h.Token()
		switch {
		case holds:
			h.round(ctx, token)
		case first() || h.now().Sub(tried) > retry+rand.N(2*retry):
			tried = h.now()
			h.mu.Lock()
			h.token = 0
			next := max(h.seen+1, uint64(h.now().UnixMilli())) // so that it grows even if voters have lost their state
			h.mu.Unlock()
			h.round(ctx, next)
		}
		token, holds = h.Token()
		switch {
		case holds && token != had:
			h.log.Info("this master has the lease for what is to be done once", "token", token)
			had = token
		case !holds && had != 0:
			h.log.Warn("this master does not have the lease any more", "token", had)
			had = 0
		}
		select {
		case <-ctx.Done():
			if token, holds := h.Token(); holds {
				h.release(context.WithoutCancel(ctx), token, h.voters)
			}
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

// askAll asks all voters. The channel has room for all answers.
func (h *Holder) askAll(ctx context.Context, r Request) <-chan said {
	out := make(chan said, len(h.voters))
	for _, v := range h.voters {
		go func() {
			a, err := h.ask(ctx, v, r)
			out <- said{v, a, err}
		}()
	}
	return out
}

// round requests grants of a token.
func (h *Holder) round(ctx context.Context, token uint64) {
	from := h.now()
	ctx, cancel := context.WithTimeout(ctx, askTime)
	answers := h.askAll(ctx, Request{Holder: h.self, Token: token, Voters: h.print})
	var granted []string
	for range h.voters {
		a := <-answers
		h.mu.Lock()
		h.seen = max(h.seen, a.Seen)
		h.mu.Unlock()
		if a.err == nil && a.Granted {
			granted = append(granted, a.voter)
		}
		if len(granted) < h.Majority() {
			continue
		}
		h.mu.Lock()
		h.token, h.from = token, from
		h.mu.Unlock()
		// Inform the other voters, too.
		time.AfterFunc(askTime, cancel)
		return
	}
	cancel()
	h.mu.Lock()
	renewing := h.token == token
	h.mu.Unlock()
	if !renewing && len(granted) > 0 {
		h.release(ctx, token, granted)
	}
}

// release returns grants.
func (h *Holder) release(ctx context.Context, token uint64, voters []string) {
	h.mu.Lock()
	h.token = 0
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	var wg sync.WaitGroup
	for _, v := range voters {
		wg.Go(func() {
			if _, err := h.ask(ctx, v, Request{Holder: h.self, Token: token, Voters: h.print, Release: true}); err != nil {
				h.log.Debug("cannot release a grant; it will expire", "voter", v, "err", err)
			}
		})
	}
	wg.Wait()
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
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answers := h.askAll(ctx, Request{Holder: h.self, Token: token, Voters: h.print, Claim: name})
	claimed := 0
	why := ""
	for range h.voters {
		a := <-answers
		switch {
		case a.err != nil:
			why = a.err.Error()
		case a.Claimed:
			claimed++
		case a.By != "":
			by = idOf(a.By)
		case a.Why != "":
			why = a.Why
		}
		if claimed < h.Majority() {
			continue
		}
		if now, still := h.Token(); !still || now != token {
			return 0, "", salt.Errorf(salt.Unavailable, "this master has lost the lease")
		}
		return token, "", nil
	}
	if by != "" {
		return token, by, nil
	}
	return 0, "", salt.Errorf(salt.Unavailable, "%d of %d voters have recorded the claim; %s", claimed, len(h.voters), why)
}

// Status is the lease as reported by the voters.
type Status struct {
	// Holder has the grants of a majority, "" if there is none; Token is its token.
	Holder string
	Token  uint64
	// Voters are the answers, or the errors.
	Voters map[string]Answer
	Silent map[string]string
}

// Status asks the voters.
func (h *Holder) Status(ctx context.Context) Status {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answers := h.askAll(ctx, Request{Holder: h.self, Voters: h.print})
	s := Status{Voters: map[string]Answer{}, Silent: map[string]string{}}
	type grant struct {
		holder string
		token  uint64
	}
	grants := map[grant]int{}
	for range h.voters {
		a := <-answers
		switch {
		case a.err != nil:
			s.Silent[a.voter] = a.err.Error()
		case a.Why != "":
			s.Silent[a.voter] = a.Why
		default:
			shown := a.Answer
			shown.Holder = idOf(a.Holder)
			s.Voters[a.voter] = shown
			if a.Holder != "" {
				grants[grant{a.Holder, a.Seen}]++
			}
		}
	}
	for g, n := range grants {
		if n >= h.Majority() {
			s.Holder, s.Token = idOf(g.holder), g.token
		}
	}
	return s
}
