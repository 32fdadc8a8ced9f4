package voter

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"brine/internal/ha/lease"
)

// Times, in calls of Tick, and bounds of changes of the voters.
const (
	// inviteTicks is how long a leader invites a voter after the last request to add it.
	inviteTicks = 25
	// aliveTicks is how long a voter counts as reachable after its last packet.
	aliveTicks = 10
	// maxFarewells is how often a leader notifies a removed voter, every callTicks. After that the voter learns it when it calls.
	maxFarewells = 300
	// maxVoters bounds the voters and learners of a group, maxLeft the removed voters that are recorded.
	maxVoters = 9
	maxLeft   = 64
	// minVoters is how many voters a group needs to survive the loss of one.
	minVoters = 3
)

// roll is a voter's knowledge of the list of voters, in addition to its log.
type roll struct {
	n    *engine
	news lease.List // a later list received from another voter
}

// changer makes the requested changes of the voters, on the leader.
type changer struct {
	n        *engine
	heardAt  map[string]int // the tick of the last packet of each voter
	invited  invitation
	proposed uint64         // the index of the last change that this leader has proposed
	farewell map[string]int // how often each removed voter was notified
}

// invitation is the voter that a leader is about to add.
type invitation struct {
	name  string
	until int     // the tick at which it ends
	last  *Packet // the last packet of the invited voter
	why   string  // why it cannot be reached
}

// list returns the voters known to this one.
func (n *engine) list() lease.List {
	switch {
	case n.raft != nil && len(n.state.Members) > 0:
		return lease.List{Group: n.group, Names: n.state.names(), Changed: n.state.Changed}
	case n.meta.Changed > 0:
		return lease.List{Group: n.group, Names: n.meta.Voters, Changed: n.meta.Changed}
	}
	return lease.List{Group: n.group, Names: n.cfg.Voters}
}

// List returns the voters known to this one.
func (n *Node) List() lease.List {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.e.list()
	l.Learners = n.e.state.learners()
	return l
}

// takesPart reports whether this voter is in the list, or is being added to it.
func (n *engine) takesPart() bool {
	return !n.meta.Left && (slices.Contains(n.list().Names, n.cfg.Name) || n.state.numberOf(n.cfg.Name) != 0)
}

// knows reports whether another voter is in a list known to this one.
func (r *roll) knows(name string) bool {
	return slices.Contains(r.n.list().Names, name) || slices.Contains(r.news.Names, name) || slices.Contains(r.news.Learners, name) ||
		r.n.state.numberOf(name) != 0
}

// others returns the other voters known to this one.
func (r *roll) others() []string {
	all := slices.Concat(r.n.list().Names, r.news.Names)
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(name string) bool { return name == r.n.cfg.Name })
}

// keeps reports whether a voter continues with the group on its disk even if the configured list differs.
func (r *roll) keeps(s *saved) bool {
	if s.Group == r.n.group {
		return true
	}
	logged := s.snap != nil || len(s.entries) > 0
	return len(r.n.cfg.Voters) > 0 && (s.Left || s.changed() && (logged || slices.Contains(s.Voters, r.n.cfg.Name)))
}

// changed reports whether a command has changed the voters, or may have.
func (s *saved) changed() bool {
	if s.Changed > 0 {
		return true
	}
	if s.snap != nil {
		if st, err := readState(s.snap.GetData()); err == nil && st.Changed > 0 {
			return true
		}
	}
	return slices.ContainsFunc(s.entries, func(e *pb.Entry) bool {
		cc := &pb.ConfChangeV2{}
		var m members
		return e.GetType() == pb.EntryConfChangeV2 && proto.Unmarshal(e.GetData(), cc) == nil && json.Unmarshal(cc.GetContext(), &m) == nil && m.Command
	})
}

// compareConfigured logs a warning if the configured list is not the current one.
func (r *roll) compareConfigured() {
	l := r.n.list()
	if l.Changed == 0 || lease.Fingerprint(l.Names) == lease.Fingerprint(r.n.cfg.Voters) {
		return
	}
	r.n.cfg.Log.Warn("cluster_voters in the configuration does not count: a command has changed the voters; correct the configuration", "configured",
		strings.Join(r.n.cfg.Voters, ", "), "voters", strings.Join(l.Names, ", "))
}

// follow handles what a packet says about the voters. It reports whether the packet needs no further handling.
func (r *roll) follow(p Packet) bool {
	if p.Changed == 0 && !p.Invite {
		return false
	}
	own := r.n.list()
	named := slices.Contains(p.List, r.n.cfg.Name) || slices.Contains(p.Joining, r.n.cfg.Name)
	here := p.Group == r.n.group && p.Generation == r.n.meta.Generation
	later := lease.List{Group: p.Group, Names: p.List, Learners: p.Joining, Changed: p.Changed}
	wanted := false // the packet's group has this voter, which does not know it
	switch {
	case !r.n.blank() || here && r.n.meta.Number != 0 && !(p.Invite && p.Changed > r.n.meta.Changed): // its number may have been removed meanwhile
	case p.Invite: // a late packet may be from before this voter was removed
		wanted = !here || !r.n.meta.Left || p.Changed >= own.Changed
	case named:
		wanted = !r.n.meta.Left || here && p.Changed > own.Changed
	}
	switch {
	case wanted:
		r.adopt(p)
		return true
	case here && !named && (!p.Invite || !r.n.blank()) && p.Changed > own.Changed && !r.n.meta.Left &&
		(r.n.takesPart() || r.n.meta.Number != 0 || slices.Contains(r.n.cfg.Voters, r.n.cfg.Name)):
		r.retire(later)
		return true
	case here && p.Changed > own.Changed && p.Changed > r.news.Changed:
		r.news = later
	}
	return false
}

// adopt makes a blank voter join the group of a packet, under a new number.
func (r *roll) adopt(p Packet) {
	was, group := r.n.meta, r.n.group
	r.n.group, r.n.meta.Generation, r.n.meta.Left = p.Group, p.Generation, false
	r.n.meta.Changed, r.n.meta.Voters = max(p.Changed, 1), slices.Clone(p.List)
	if err := r.n.renumber(newNumber(), nil); err != nil {
		r.n.group, r.n.meta = group, was
		r.n.cfg.Log.Error("cannot join the voters", "err", err)
		return
	}
	r.n.cfg.Log.Info("this master or witness joins the voters", "voters", strings.Join(p.List, ", "))
}

// retire ends this voter's membership in its group.
func (r *roll) retire(l lease.List) {
	was := r.n.meta
	r.n.dropWaiting()
	r.n.meta.Left, r.n.meta.Changed, r.n.meta.Voters = true, l.Changed, slices.Clone(l.Names)
	if err := r.n.renumber(0, nil); err != nil {
		r.n.meta.Left, r.n.meta.Changed, r.n.meta.Voters = was.Left, was.Changed, was.Voters // the next packet says it again
		r.n.cfg.Log.Error("this voter was removed, which cannot be recorded", "err", err)
		return
	}
	r.news = lease.List{}
	r.n.cfg.Log.Warn("this voter was removed from the voters by a command: it does not vote any more", "voters", strings.Join(l.Names, ", "))
}

// removed reports whether this voter was removed according to the log.
func (r *roll) removed() bool {
	return r.n.raft != nil && r.n.state.Changed > 0 && r.n.state.numberOf(r.n.cfg.Name) == 0 && slices.Contains(r.n.state.Gone, r.n.meta.Number)
}

// outside handles a packet from a sender that this voter does not know as a voter.
func (c *changer) outside(from string, p Packet) {
	p.Messages = nil
	if from == c.invited.name {
		c.invited.last = &p
	}
	if index := c.n.state.Left[from]; index != 0 && p.Group == c.n.group && p.Number == 0 && p.Changed >= index {
		c.farewell[from] = maxFarewells // it knows that it was removed
	}
}

// applyCommand applies a change made by a command.
func (n *engine) applyCommand(index uint64, m members) {
	s := n.state
	s.Changed = index
	for _, number := range m.Drop {
		name := s.nameOf(number)
		delete(s.Members, number)
		delete(s.Learners, number)
		s.Gone = append(s.Gone, number)
		s.Left[name] = index
		delete(n.changer.farewell, name)
		n.cfg.Log.Warn("a voter was removed by a command", "voter", name, "voters", strings.Join(s.names(), ", "))
	}
	for number, name := range m.Add {
		delete(s.Left, name)
		if m.Learner {
			s.Learners[number] = name
			continue
		}
		delete(s.Learners, number)
		s.Members[number] = name
		n.cfg.Log.Warn("a voter was added by a command", "voter", name, "voters", strings.Join(s.names(), ", "))
	}
	for len(s.Left) > maxLeft {
		names := slices.SortedFunc(maps.Keys(s.Left), func(a, b string) int { return int(s.Left[a]) - int(s.Left[b]) })
		delete(s.Left, names[0])
	}
	if n.roll.news.Changed <= index {
		n.roll.news = lease.List{}
	}
	if !m.Learner && n.takesPart() {
		n.roll.compareConfigured()
	}
}

// changing reports whether a change of the voters is in progress. A change proposed by another leader is applied before this leader's first
// entry, without which it has not begun the group.
func (c *changer) changing() bool {
	return c.proposed > c.n.applied || len(c.n.conf.GetVotersOutgoing()) > 0
}

// alive reports whether another voter, or this one, can be reached.
func (c *changer) alive(name string) bool {
	at, ok := c.heardAt[name]
	return name == c.n.cfg.Name || ok && c.n.ticks-at <= aliveTicks
}

// goOn continues requested changes, on the leader.
func (c *changer) goOn() {
	if c.n.ticks%callTicks == 0 {
		for _, name := range slices.Sorted(maps.Keys(c.n.state.Left)) {
			if c.farewell[name] < maxFarewells && !c.n.roll.knows(name) {
				c.farewell[name]++
				c.n.mail(name, nil)
			}
		}
	}
	if c.changing() {
		return
	}
	status := c.n.raft.Status()
	for _, number := range slices.Sorted(maps.Keys(c.n.state.Learners)) {
		name, p := c.n.state.Learners[number], status.Progress[number]
		if p.IsLearner && p.State == tracker.StateReplicate && p.Match >= status.GetCommit() && c.alive(name) {
			c.n.proposeChange(members{Add: map[uint64]string{number: name}, Command: true})
			return
		}
	}
	i := &c.invited
	switch {
	case i.name == "":
	case c.n.ticks > i.until || c.n.state.numberOf(i.name) != 0:
		*i = invitation{}
	case i.last != nil && i.last.Group == c.n.group && i.last.Generation == c.n.meta.Generation && i.last.Number != 0 && !i.last.began() &&
		!slices.Contains(c.n.state.Gone, i.last.Number):
		c.n.proposeChange(members{Add: map[uint64]string{i.last.Number: i.name}, Learner: true, Command: true})
	default:
		c.n.mail(i.name, nil)
	}
}

// changeVoters handles a request to add or to remove a voter. The requester repeats it until it is done.
func (n *Node) changeVoters(r lease.Request) (lease.Change, string) {
	e := &n.e
	if e.changer.changing() {
		return lease.ChangeBusy, "another change of the voters is being recorded"
	}
	if r.Op == lease.AddVoter {
		return e.changer.add(r.Voter)
	}
	return n.removeVoter(r)
}

func (c *changer) add(name string) (lease.Change, string) {
	voters, learners := c.n.state.names(), c.n.state.learners()
	switch {
	case slices.Contains(voters, name):
		return lease.ChangeDone, ""
	case slices.Contains(learners, name):
		if !c.alive(name) {
			return lease.ChangeBegun, "it was added, and cannot be reached: it votes when it has the state of the others"
		}
		return lease.ChangeBegun, "it gets the state of the others before it votes"
	case len(learners) > 0:
		return lease.ChangeBusy, learners[0] + " was added and does not vote yet; brine cluster voters remove " + learners[0] + " takes that back"
	case len(voters) >= maxVoters:
		return lease.ChangeRefused, fmt.Sprintf("there are %d voters: remove one first", len(voters))
	case c.invited.name != "" && c.invited.name != name && c.n.ticks <= c.invited.until:
		return lease.ChangeBusy, c.invited.name + " is being added"
	}
	if c.invited.name != name {
		c.invited = invitation{name: name}
	}
	i := &c.invited
	i.until = c.n.ticks + inviteTicks
	why := "it has not answered"
	switch {
	case i.last != nil && i.last.Group != c.n.group && i.last.began():
		return lease.ChangeRefused, "it votes with other voters: stop it, remove its voter.db, and start it again"
	case i.last == nil && i.why != "":
		why += ": " + i.why
	}
	c.n.mail(name, nil)
	return lease.ChangeBegun, why
}

func (n *Node) removeVoter(r lease.Request) (lease.Change, string) {
	e := &n.e
	name, number := r.Voter, e.state.numberOf(r.Voter)
	if number == 0 {
		if e.changer.invited.name == name {
			e.changer.invited = invitation{}
		}
		return lease.ChangeAbsent, ""
	}
	if e.state.Learners[number] == "" {
		if why := e.changer.needed(name, r.Force); why != "" {
			return lease.ChangeRefused, why
		}
	}
	if name == e.cfg.Name {
		if !n.passLead() {
			return lease.ChangeBusy, "it leads the voters, and no other master that votes is ready to lead"
		}
		return lease.ChangeBegun, "it leads the voters; the lead is passed on first"
	}
	e.proposeChange(members{Drop: []uint64{number}, Command: true})
	return lease.ChangeBegun, "the removal is being recorded"
}

// needed returns why a voter must not be removed, "" if it may be.
func (c *changer) needed(name string, force bool) string {
	rest := slices.DeleteFunc(c.n.state.names(), func(v string) bool { return v == name })
	dead := slices.DeleteFunc(slices.Clone(rest), c.alive)
	switch {
	case !slices.ContainsFunc(rest, func(v string) bool { return v == c.n.cfg.Name || !c.n.isWitness(v) }):
		return "no master would be left among the voters; add one first"
	case force:
		return ""
	case 2*(len(rest)-len(dead)) <= len(rest):
		return fmt.Sprintf("%s would be left, and cannot be reached: %s. That is no majority, so no master would have the lease; start them, or use --force "+
			"and start them later", strings.Join(rest, ", "), strings.Join(dead, ", "))
	case len(rest) < minVoters:
		return fmt.Sprintf("%d voters would be left (%s), and no master would have the lease while one of them is unreachable: add another voter "+
			"first, which may be a witness, or use --force", len(rest), strings.Join(rest, ", "))
	}
	return ""
}

// passLead passes the leadership to another master that is reachable and has all entries, if there is one.
func (n *Node) passLead() bool {
	last, err := n.e.log.LastIndex()
	if err != nil {
		return false
	}
	progress := n.e.raft.Status().Progress
	for _, id := range slices.Sorted(maps.Keys(progress)) {
		name, p := n.e.state.Members[id], progress[id]
		if id != n.e.meta.Number && name != "" && p.Match == last && n.e.changer.alive(name) && !n.e.isWitness(name) {
			n.e.do(func() { n.e.raft.TransferLeader(id) })
			return true
		}
	}
	return false
}

// unreachable records why a packet could not be sent to another voter.
func (n *Node) unreachable(name, why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.e.changer.invited.name == name {
		n.e.changer.invited.why = why
	}
}
