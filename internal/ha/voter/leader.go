package voter

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3"

	"brine/internal/base/salt"
	"brine/internal/ha/lease"
)

// note detects a new term in which this voter leads.
func (n *engine) note() {
	if n.raft == nil {
		return
	}
	s := n.raft.BasicStatus()
	if leads := s.RaftState == raft.StateLeader; leads && n.ledTerm != s.GetTerm() {
		// It is unknown when the lease was renewed; now is the latest possible time.
		n.dropWaiting()
		n.ledTerm, n.renewed = s.GetTerm(), n.now()
		n.changer.invited, n.changer.proposed = invitation{}, 0
	} else if !leads && len(n.waiting) > 0 {
		n.dropWaiting()
	}
}

// leads reports whether this voter believes that it is the leader.
func (n *engine) leads() bool {
	return n.raft != nil && n.pending == nil && n.raft.BasicStatus().RaftState == raft.StateLeader
}

// live reports whether the lease may be valid according to this leader. Before the first grant another master may have a lease of an
// earlier group or version.
func (n *engine) live() bool {
	return (n.state.Holder != "" || !n.state.Granted) && n.now().Sub(n.renewed) < lease.Term
}

// Leads reports whether this voter believes that it is the leader.
func (n *Node) Leads() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.e.leads()
}

// Health is the state of a voter.
type Health struct {
	// Problem is why it cannot vote, "" if it can.
	Problem string
	// Leads means that it is the leader, Led that it knows a leader.
	Leads, Led bool
	Term       uint64
}

// Health returns the state of the voter.
func (n *Node) Health() Health {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := Health{Problem: n.e.why, Leads: n.e.leads()}
	if n.e.raft != nil {
		s := n.e.raft.BasicStatus()
		h.Led, h.Term = s.Lead != 0, s.GetTerm()
	}
	return h
}

// Answer answers a request.
func (n *Node) Answer(ctx context.Context, r lease.Request) (lease.Answer, error) {
	answered := make(chan lease.Answer, 1)
	n.Handle(r, func(a lease.Answer) { answered <- a })
	select {
	case a := <-answered:
		return a, nil
	case <-ctx.Done():
		return lease.Answer{}, salt.Errorf(salt.Unavailable, "a majority of the voters has not confirmed it in time")
	}
}

// Handle calls reply once with the answer to a request, immediately or when a majority has agreed. reply must not block or use the node.
func (n *Node) Handle(r lease.Request, reply func(lease.Answer)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := lease.Answer{Seen: n.e.state.Token, Holder: n.e.state.Holder, Leads: n.e.leads() && !n.e.cfg.Witness, Why: n.cannot(r)}
	answer := reply
	if l := n.e.list(); l.Changed > 0 || r.Group != n.e.group {
		l.Learners = n.e.state.learners()
		reply = func(a lease.Answer) { a.List = &l; answer(a) }
	}
	switch {
	case r.Op == lease.Past && r.Group == n.e.group && r.Generation == n.e.meta.Generation:
		past := n.e.meta.Before
		a.Past = &past
		reply(a)
	case a.Why != "" || !a.Leads || n.e.state.Floor == 0:
		reply(a)
	case r.Op == lease.AddVoter || r.Op == lease.RemoveVoter:
		a.Change, a.Reason = n.changeVoters(r)
		reply(a)
	default:
		n.lead(r, a, reply)
	}
}

// cannot returns why this voter cannot vote, "" if it can. A voter that waits for others can vote.
func (n *Node) cannot(r lease.Request) string {
	switch {
	case n.e.meta.Left:
		return "it was removed from the voters by a command; the voters are " + strings.Join(n.e.meta.Voters, ", ")
	case r.Group != n.e.group:
		return "its cluster_voters are others"
	case !n.e.takesPart():
		return "it is not a voter"
	case slices.Contains(n.e.state.learners(), n.e.cfg.Name):
		return "it was added, and gets the state of the others before it votes"
	case n.e.why != "":
		return n.e.why
	case n.e.leads() && n.e.state.Floor == 0 && n.e.unheard != "":
		return n.e.unheard
	case n.e.raft != nil && n.e.ready() && n.e.state.Members[n.e.meta.Number] == "":
		return "it has lost its state, and a majority of the others has not taken it up again"
	}
	return ""
}

// lead handles a request to the leader.
func (n *Node) lead(r lease.Request, a lease.Answer, reply func(lease.Answer)) {
	finish := func(res lease.Answer, done bool) {
		res.Leads = done
		if !done {
			res.Seen, res.Holder = n.e.state.Token, n.e.state.Holder
		}
		reply(res)
	}
	mine := r.Holder != "" && n.e.state.Holder == r.Holder
	switch {
	case r.Op == lease.Query:
		n.e.confirm(func(_ lease.Answer, done bool) {
			finish(lease.Answer{Seen: n.e.state.Token, Holder: n.e.state.Holder, Live: done && n.e.state.Holder != "" && n.e.live()}, done)
		})
	case r.Holder == "" || len(r.Name) > lease.MaxClaim:
		reply(a)
	case r.Op == lease.Claim && mine && n.e.state.Token == r.Token && r.Name != "":
		n.e.propose(command{Op: opClaim, Holder: r.Holder, Token: r.Token, Claim: r.Name}, finish)
	case r.Op == lease.Release && mine && n.e.state.Token == r.Token:
		n.e.propose(command{Op: opRelease, Holder: r.Holder, Token: r.Token}, finish)
	case r.Op == lease.Renew && mine && n.e.state.Token == r.Token, r.Op == lease.Acquire && mine && n.e.state.Token > r.Token:
		n.renew(r.Holder, a, finish, reply)
	case r.Op == lease.Acquire && !n.e.granting && (mine || !n.e.live()):
		n.e.granting = true
		n.e.propose(command{Op: opGrant, Holder: r.Holder, Token: n.e.state.Token}, func(res lease.Answer, done bool) {
			n.e.granting = false
			finish(res, done)
		})
	default:
		reply(a)
	}
}

// renew extends the lease of the holder.
func (n *Node) renew(holder string, a lease.Answer, finish func(lease.Answer, bool), reply func(lease.Answer)) {
	if n.e.granting { // it has expired, and another holder is getting it
		reply(a)
		return
	}
	token := n.e.state.Token
	n.e.renewed = n.e.now()
	n.e.confirm(func(_ lease.Answer, done bool) {
		ok := done && n.e.state.Token == token && n.e.state.Holder == holder
		finish(lease.Answer{Granted: ok, Seen: n.e.state.Token, Holder: n.e.state.Holder}, done)
	})
}

// Tick must be called every TickTime.
func (n *Node) Tick() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.e.ticks++; !n.e.takesPart() && n.e.blank() {
		return // wait for an invitation
	}
	if n.e.meta.Number == 0 {
		n.e.settle()
	}
	if n.e.raft == nil || !n.e.ready() {
		if n.e.majorityAgrees() {
			n.e.waited++
		}
		n.e.hello()
		return
	}
	n.e.do(func() { n.e.raft.Tick() })
	if n.e.raft == nil {
		return
	}
	leader := n.e.raft.BasicStatus().Lead
	if n.e.leaderless++; leader != raft.None {
		n.e.leaderless = 0
	}
	if n.e.roll.removed() {
		n.e.roll.retire(n.e.list())
		return
	}
	switch {
	case leader == raft.None || leader != n.e.meta.Number && n.e.isWitness(n.e.state.nameOf(leader)):
		n.e.hello() // a witness can send only in answers
	case n.e.ticks%callTicks == 0: // a witness learns only from packets whether its disk is outdated
		for _, name := range n.e.roll.others() {
			if n.e.isWitness(name) {
				n.e.mail(name, nil)
			}
		}
	}
	if n.e.leads() {
		n.e.swap()
		n.e.changer.goOn()
		n.yield()
	}
}

// callTicks is the interval at which a master sends packets to witnesses, even without messages.
const callTicks = 5

// isWitness reports whether another voter is not a master, as far as known.
func (n *engine) isWitness(name string) bool { return n.cfg.MayLead != nil && !n.cfg.MayLead(name) }

// hello sends all others a packet, so that they answer with their state.
func (n *engine) hello() {
	for _, name := range n.roll.others() {
		n.mail(name, nil)
	}
}

// yieldTime is the interval of attempts to pass on the leadership.
const yieldTime = 2 * time.Second

// yield passes the leadership to another master if this voter is a witness, or if this master holds the lease. A new leader must wait
// before it can grant the lease of a dead master, so the leader and the holder should not fail together.
func (n *Node) yield() {
	if !n.e.cfg.Witness && lease.IDOf(n.e.state.Holder) != n.e.cfg.Name || n.e.cfg.MayLead == nil || n.e.now().Sub(n.moved) < yieldTime {
		return
	}
	last, err := n.e.log.LastIndex()
	if err != nil {
		return
	}
	progress := n.e.raft.Status().Progress
	for _, id := range slices.Sorted(maps.Keys(progress)) {
		name, p := n.e.state.Members[id], progress[id]
		if id != n.e.meta.Number && name != "" && p.RecentActive && p.Match == last && n.e.cfg.MayLead(name) {
			n.moved = n.e.now()
			n.e.do(func() { n.e.raft.TransferLeader(id) })
			return
		}
	}
}

// Begins reports whether this voter leads a group that does not know yet which tokens were granted before it began.
func (n *Node) Begins() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.e.leads() && n.e.state.Floor == 0 && !n.beginning
}

// Begin queries a majority of the voters for the tokens and claims from before the group began, and records them. Only then is a lease
// granted.
func (n *Node) Begin(ctx context.Context, ask func(ctx context.Context, voter string, r lease.Request) (lease.Answer, error)) {
	n.mu.Lock()
	if !n.e.leads() || n.e.state.Floor != 0 || n.beginning {
		n.mu.Unlock()
		return
	}
	n.beginning = true
	before, names, generation := n.e.meta.Before, n.e.state.names(), n.e.meta.Generation
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		n.beginning = false
		n.mu.Unlock()
	}()
	known := make(chan said, len(names))
	others := 0
	for _, name := range names {
		if name == n.e.cfg.Name {
			continue
		}
		others++
		go func() {
			a, err := ask(ctx, name, lease.Request{Op: lease.Past, Group: n.e.group, Generation: generation})
			if err != nil {
				a.Past = nil
			}
			known <- said{name, a.Past}
		}()
	}
	all := map[string]lease.Before{n.e.cfg.Name: before}
	for range others {
		if s := <-known; s.past != nil {
			all[s.voter] = *s.past
		}
	}
	n.begin(all, len(names))
}

type said struct {
	voter string
	past  *lease.Before
}

// begin records the answers of some voters; of is the number of all voters.
func (n *Node) begin(known map[string]lease.Before, of int) {
	if len(known) <= of/2 || n.awaits(known) {
		return
	}
	// So tokens grow even if all voters have lost their disks.
	all := lease.Before{Seen: uint64(max(n.e.now().UnixMilli(), 1))}
	for _, b := range known {
		all.Merge(b)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.e.leads() && n.e.state.Floor == 0 {
		// An earlier group may have granted a lease until its voters left it.
		n.e.renewed = n.e.now()
		n.e.propose(command{Op: opBegin, Before: &all}, func(lease.Answer, bool) {})
	}
}

// awaits reports whether the group still needs answers about earlier groups.
func (n *Node) awaits(known map[string]lease.Before) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	former, missing := awaited(known, n.e.meta.Generation)
	was := n.e.unheard
	if n.e.unheard = ""; len(former) > 0 {
		n.e.unheard = "a majority of the former voters, " + strings.Join(former, ", ") + ", must have the new list before a lease is granted; missing: " +
			strings.Join(missing, ", ")
	}
	if n.e.unheard != was && n.e.unheard != "" {
		n.e.cfg.Log.Warn("no lease is granted yet: " + n.e.unheard)
	}
	return n.e.unheard != ""
}
