// Package lease decides who may do what is to be done once. It is a lock that
// some voters give by majority for a short time: whoever has it renews it, who
// dies or is cut off from the majority loses it by time, and the next holder has
// a greater token. It has no socket: who asks a voter is passed in.
//
// # Why there is one holder at most
//
// A voter gives its grant to one holder, for Term, and to no other until then;
// it notes on disk whom it gave it to before it says so, and takes it after a
// start that this one still has it. A holder has the grants of a majority, and
// counts them from before it asked, less a tenth for clocks that are not equally
// fast. Any two majorities have a voter in common. What the time of day is on
// the machines does not matter.
//
// # Why tokens grow
//
// A voter gives no grant for a token that is not above all that it has given.
// What keeps a token with its effect, and refuses lower ones, is safe even
// against a holder that froze between its look at the lease and its effect.
//
// The voters are a fixed list, which is compared with every question.
//
// # Claims
//
// What is done once also by holders that come one after the other is claimed by
// its name before it is begun: the voters note it, each for one holder, and who
// has the notes of a majority may begin. Another holder that claims the same
// name later finds at least one voter that knows of the first, and is told so.
// The same one may claim it again, with another token: whether it has begun it
// knows itself. A claim is kept for ClaimTime, so nothing may be begun that was
// ordered longer ago.
package lease

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
)

// Term is how long a grant holds that is not renewed.
const Term = 3 * time.Second

// Times of a holder.
const (
	beat    = Term / 6
	askTime = Term / 3
	// retry, and up to twice that more, is after what time others try than the
	// one that is to have the lease: that one may stand still, and not be known
	// to.
	retry = Term / 4
	// valid is what a holder counts with.
	valid = Term - Term/10
)

// Request is what a candidate or holder asks of a voter. One with Token 0 asks
// only how things are.
type Request struct {
	Holder string
	Token  uint64
	// Voters is the fingerprint of their list.
	Voters string
	// Release gives a grant back.
	Release bool
	// Claim is the name of something that the holder of the token is to begin, ""
	// if it is the grant itself that is asked for.
	Claim string
}

// Answer is what a voter says.
type Answer struct {
	Granted bool
	// Seen is the greatest token that was granted, Holder who has the grant now,
	// "" for nobody.
	Seen   uint64
	Holder string
	// Why says why this voter can never grant what was asked.
	Why string
	// Claimed says that the name is noted for who asked; By is another one for
	// whom it was noted before.
	Claimed bool
	By      string
}

// Fingerprint is that of a list of voters, in whatever order.
func Fingerprint(voters []string) string {
	l := slices.Sorted(slices.Values(voters))
	sum := sha256.Sum256([]byte(strings.Join(l, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// CheckVoters refuses lists with which there would be no lease, or none that
// survives the loss of a voter.
func CheckVoters(voters []string) error {
	seen := map[string]bool{}
	for _, v := range voters {
		switch {
		case salt.CheckID(v) != nil || strings.ContainsAny(v, "/ "):
			return salt.Errorf(salt.Invalid, "cluster_voters: %.80q is no address or name", v)
		case seen[v]:
			return salt.Errorf(salt.Invalid, "cluster_voters names %s twice", v)
		}
		seen[v] = true
	}
	if n := len(voters); n > 0 && (n < 3 || n%2 == 0) {
		return salt.Errorf(salt.Invalid, "cluster_voters names %d: an odd number is needed, 3 at least; with two masters, the third is a machine that runs brine witness", n)
	}
	return nil
}

// Voter gives grants. It may be used by any number of goroutines.
type Voter struct {
	path   string
	voters string
	now    func() time.Time
	flush  bool // to the disk; tests whose machines do not stop do without

	mu     sync.Mutex
	seen   uint64
	holder string
	until  time.Time
	claims map[string]claim
}

// claim is a note of a voter.
type claim struct {
	Holder string    `json:"holder"`
	At     time.Time `json:"at"`
}

// Bounds of claims.
const (
	// ClaimTime is how long a claim is kept at least.
	ClaimTime = 2 * time.Hour
	maxClaims = 4096
	// MaxClaim bounds a name in bytes.
	MaxClaim = 64
)

// given is what is on disk.
type given struct {
	Token  uint64 `json:"token"`
	Holder string `json:"holder"`
}

// OpenVoter takes over what a voter has given before, which is in a file. For a
// Term it gives nothing to others than the last holder, and nothing at all if it
// has no memory: it may have lost it.
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
		return nil, salt.Errorf(salt.Invalid, "cannot read what is claimed with this voter: %s: %w; if it is damaged, remove it if no other voter is in the same state, wait for two hours and start again", v.claimsPath(), err)
	}
	if v.claims == nil {
		v.claims = map[string]claim{}
	}
	v.until = v.now().Add(Term)
	return v, nil
}

func (v *Voter) claimsPath() string { return v.path + ".claims" }

// claim notes a name for who has the grant now.
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
	for name, c := range v.claims {
		if age := now.Sub(c.At); age > ClaimTime {
			delete(v.claims, name)
		}
	}
	if len(v.claims) >= maxClaims {
		a.Why = fmt.Sprintf("it has %d claims of the last two hours, and takes no more", maxClaims)
		return a, nil
	}
	v.claims[r.Claim] = claim{r.Holder, now}
	b, err := json.Marshal(v.claims)
	if err == nil {
		err = atomicfile.Write(v.claimsPath(), b, 0o600, v.flush)
	}
	if err != nil {
		delete(v.claims, r.Claim)
		return a, fmt.Errorf("cannot note what is claimed: %w", err)
	}
	a.Claimed = true
	return a, nil
}

// maxToken bounds tokens: one that no other could be above would end all leases.
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
	case r.Token == v.seen && r.Holder == v.holder: // nobody has had it meanwhile
	case r.Token <= v.seen, live && v.holder != r.Holder:
		return a, nil
	default:
		b, err := json.Marshal(given{r.Token, r.Holder})
		if err == nil {
			err = atomicfile.Write(v.path, b, 0o600, v.flush)
		}
		if err != nil {
			return a, fmt.Errorf("cannot note what this voter grants: %w", err)
		}
		v.seen, v.holder = r.Token, r.Holder
		now = v.now() // the disk may have taken its time
	}
	v.until = now.Add(Term)
	return Answer{Granted: true, Seen: v.seen, Holder: v.holder}, nil
}

// Holder is who wants the lease. Run does the work.
type Holder struct {
	id     string
	voters []string
	print  string
	ask    func(ctx context.Context, voter string, r Request) (Answer, error)
	log    *slog.Logger
	now    func() time.Time

	mu    sync.Mutex
	token uint64
	from  time.Time // before the grants were asked for
	seen  uint64
}

// NewHolder returns who wants the lease under a name. ask asks a voter.
func NewHolder(id string, voters []string, ask func(ctx context.Context, voter string, r Request) (Answer, error), log *slog.Logger) *Holder {
	return &Holder{id: id, voters: voters, print: Fingerprint(voters), ask: ask, log: log, now: time.Now}
}

// Majority is how many grants are needed.
func (h *Holder) Majority() int { return len(h.voters)/2 + 1 }

// Token returns the token of the lease if this is its holder now.
func (h *Holder) Token() (token uint64, holds bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.token, h.holds()
}

// holds goes by both clocks: one of them may have stood still with the machine.
func (h *Holder) holds() bool {
	now := h.now()
	wall := now.Round(0).Sub(h.from.Round(0))
	return h.token != 0 && now.Sub(h.from) < valid && wall < valid && wall > -valid
}

// Run gets the lease when it is free and keeps it, until ctx ends; then it is
// given back. first says who should rather have it than others.
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
			next := max(h.seen+1, uint64(h.now().UnixMilli())) // so that it grows even if voters have lost what they knew
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

// askAll asks all voters; the channel has room for all answers.
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

// round asks for grants of a token.
func (h *Holder) round(ctx context.Context, token uint64) {
	from := h.now()
	ctx, cancel := context.WithTimeout(ctx, askTime)
	answers := h.askAll(ctx, Request{Holder: h.id, Token: token, Voters: h.print})
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
		// The others are to hear of it, too.
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

// release gives grants back.
func (h *Holder) release(ctx context.Context, token uint64, voters []string) {
	h.mu.Lock()
	h.token = 0
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	var wg sync.WaitGroup
	for _, v := range voters {
		wg.Go(func() {
			if _, err := h.ask(ctx, v, Request{Holder: h.id, Token: token, Voters: h.print, Release: true}); err != nil {
				h.log.Debug("a grant was not given back; it ends by itself", "voter", v, "err", err)
			}
		})
	}
	wg.Wait()
}

// Claim notes with the voters that this holder begins something, and returns its
// token. It may begin if by is "", there is no error, and it has not begun it
// itself before. by is another holder, which may have begun it; an error says that
// there is no telling now.
func (h *Holder) Claim(ctx context.Context, name string) (token uint64, by string, err error) {
	if name == "" || len(name) > MaxClaim {
		return 0, "", salt.Errorf(salt.Invalid, "%.80q cannot be claimed", name)
	}
	token, holds := h.Token()
	if !holds {
		return 0, "", salt.Errorf(salt.Unavailable, "this master does not have the lease")
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answers := h.askAll(ctx, Request{Holder: h.id, Token: token, Voters: h.print, Claim: name})
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
			by = a.By
		case a.Why != "":
			why = a.Why
		}
		if claimed < h.Majority() {
			continue
		}
		if now, still := h.Token(); !still || now != token {
			return 0, "", salt.Errorf(salt.Unavailable, "this master does not have the lease any more")
		}
		return token, "", nil
	}
	if by != "" {
		return token, by, nil
	}
	return 0, "", salt.Errorf(salt.Unavailable, "%d of %d voters have noted a claim; %s", claimed, len(h.voters), why)
}

// Status is what the voters say.
type Status struct {
	// Holder has the grants of a majority, "" if nobody has; Token is its token.
	Holder string
	Token  uint64
	// Voters are the answers, or why there is none.
	Voters map[string]Answer
	Silent map[string]string
}

// Status asks the voters.
func (h *Holder) Status(ctx context.Context) Status {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answers := h.askAll(ctx, Request{Holder: h.id, Voters: h.print})
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
			s.Voters[a.voter] = a.Answer
			if a.Holder != "" {
				grants[grant{a.Holder, a.Seen}]++
			}
		}
	}
	for g, n := range grants {
		if n >= h.Majority() {
			s.Holder, s.Token = g.holder, g.token
		}
	}
	return s
}
