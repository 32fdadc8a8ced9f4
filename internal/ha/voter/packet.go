package voter

import (
	"encoding/json"
	"maps"
	"slices"

	"brine/internal/base/salt"
)

// Packet is a message between voters.
type Packet struct {
	// Group is the fingerprint of the sender's configured list. Generation is the generation of the group of that list to which it belongs.
	Group      string `json:"group"`
	Generation uint64 `json:"generation,omitempty"`
	// Number is the number of the sender in the group, 0 if it has none yet, and Term its raft term.
	Number uint64 `json:"number,omitempty"`
	Term   uint64 `json:"term,omitempty"`
	// Writes counts the changes of the sender's disk.
	Writes uint64 `json:"writes,omitempty"`
	// Start is a random number of the start of the sender.
	Start uint64 `json:"start"`
	// About is the last start of the other end whose disk was not outdated according to the sender. 0: none.
	About uint64 `json:"about,omitempty"`
	// Known is the highest count of changes in that start that the sender knows.
	Known uint64 `json:"known,omitempty"`
	// Old is a start of the other end with an outdated disk. 0: none.
	Old      uint64   `json:"old,omitempty"`
	Messages [][]byte `json:"messages,omitempty"`
	// List are the voters and Joining the learners known to the sender, and Changed the entry by which a command changed them. They are
	// omitted if no command has changed the voters.
	List    []string `json:"list,omitempty"`
	Joining []string `json:"joining,omitempty"`
	Changed uint64   `json:"changed,omitempty"`
	// Invite means that the sender leads the group and is about to add the other end to it.
	Invite bool `json:"invite,omitempty"`
}

// Bounds of packets from others.
const (
	// MaxPacket bounds an encoded packet in bytes. A snapshot with all claims is the largest one.
	MaxPacket   = 4 << 20
	maxMessages = 1024
	maxGroup    = 64
	maxNames    = 64
)

// Encode encodes a packet.
func (p Packet) Encode() ([]byte, error) { return json.Marshal(p) }

// ReadPacket decodes a packet.
func ReadPacket(b []byte) (p Packet, err error) {
	if len(b) > MaxPacket {
		return p, salt.Errorf(salt.Invalid, "a packet of a voter has %d bytes; at most %d are allowed", len(b), MaxPacket)
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return p, salt.Errorf(salt.Invalid, "cannot decode a packet of a voter: %w", err)
	}
	if len(p.Group) > maxGroup || len(p.Messages) > maxMessages {
		return p, salt.Errorf(salt.Invalid, "a packet of a voter has %d messages; at most %d are allowed", len(p.Messages), maxMessages)
	}
	if len(p.List) > maxNames || len(p.Joining) > maxNames {
		return p, salt.Errorf(salt.Invalid, "a packet of a voter names %d voters; at most %d are allowed", max(len(p.List), len(p.Joining)), maxNames)
	}
	for _, name := range slices.Concat(p.List, p.Joining) {
		if salt.CheckID(name) != nil {
			return p, salt.Errorf(salt.Invalid, "a packet of a voter names %.80q as a voter", name)
		}
	}
	return p, nil
}

// began reports whether the sender belongs to a group that it must not forget.
func (p Packet) began() bool { return p.Term > firstTerm }

// mark is the state that a voter stores about another one.
type mark struct {
	Writes uint64 `json:"writes"`
	Start  uint64 `json:"start"`
}

// maxMarks bounds the marks. Those of members are always kept.
const maxMarks = 64

// packet returns a packet without messages for a voter.
func (n *engine) packet(to string) Packet {
	p := Packet{Group: n.group, Generation: n.meta.Generation, Number: n.meta.Number, Writes: n.writes, Start: n.begun, Old: n.olds[to]}
	if n.raft != nil {
		p.Term = n.raft.BasicStatus().HardState.GetTerm()
	}
	if last := n.heard[to]; last.Number != 0 {
		p.About, p.Known = n.marks[last.Number].Start, n.marks[last.Number].Writes
	}
	p.Invite = n.changer.invited.name == to && n.leads()
	if l := n.list(); l.Changed > 0 || p.Invite {
		p.List, p.Joining, p.Changed = l.Names, n.state.learners(), l.Changed
	}
	return p
}

// Packet returns a packet with messages for a voter.
func (n *Node) Packet(to string, messages [][]byte) Packet {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.e.packet(to)
	p.Messages = messages
	return p
}

// Exchange handles a packet from a voter that the caller has authenticated, and returns the answer.
func (n *Node) Exchange(from string, p Packet) Packet {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.admit(from, p) {
		n.step(from, p, p.Number)
	}
	out := n.e.packet(from)
	out.Messages = append(n.e.replies, n.e.outbox[from]...)
	n.e.replies = nil
	delete(n.e.outbox, from)
	return out
}

// Returned handles a voter's answer to a packet.
func (n *Node) Returned(from string, p Packet) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.admit(from, p) {
		n.step(from, p, 0)
	}
}

// admit records the state in a packet, except the messages. It reports whether to handle the messages.
func (n *Node) admit(from string, p Packet) bool {
	if from == n.e.cfg.Name || n.e.roll.follow(p) {
		return false
	}
	if p.Group != n.e.group || !n.e.roll.knows(from) {
		n.e.changer.outside(from, p)
		return false
	}
	messages := p.Messages
	p.Messages = nil
	switch {
	case n.e.blank():
	case p.Generation < n.e.meta.Generation:
		return false // the sender learns that from the next packet
	case p.Generation > n.e.meta.Generation:
		if p.began() || p.Term == firstTerm && !n.e.packet(from).began() {
			n.e.leave(p.Generation)
		}
		return false
	}
	if slices.Contains(n.e.state.Gone, p.Number) {
		n.e.olds[from] = p.Start // this number was replaced
		return false
	}
	known := n.e.marks[p.Number]
	lower := p.Number != 0 && p.Writes < known.Writes
	if lower && p.Start != known.Start {
		n.e.olds[from] = p.Start
		return false
	}
	// In the second case this machine was reset while it runs.
	if n.e.meta.Number != 0 && (p.Old != 0 && p.Old == n.e.begun || p.About == n.e.begun && p.Known > n.e.writes) {
		if err := n.e.replace(from + " has seen a later state of this voter"); err != nil {
			n.e.cfg.Log.Error("cannot begin as a new voter", "err", err)
		}
		return false
	}
	if !lower { // a lower count means a late packet
		delete(n.e.olds, from)
		n.e.heard[from], n.e.changer.heardAt[from] = p, n.e.ticks
		if p.Number != 0 && !n.e.blank() {
			n.e.remember(p)
		}
	}
	if n.e.blank() {
		n.e.settle()
	}
	if n.e.raft == nil || p.Generation != n.e.meta.Generation {
		return false
	}
	if p.About == n.e.begun {
		n.e.agrees[from] = true
	}
	return len(messages) > 0
}

// remember sets a mark. It is stored together with the effects of the packet.
func (n *engine) remember(p Packet) {
	if len(n.marks) >= maxMarks {
		for number := range n.marks {
			if n.state.nameOf(number) == "" {
				delete(n.marks, number)
			}
		}
	}
	n.marks[p.Number] = mark{Writes: p.Writes, Start: p.Start}
}

// ready reports whether this voter takes part: the others know no later state of its disk.
func (n *engine) ready() bool {
	others := n.roll.others()
	n.sure = n.sure || n.agreeing(others) == len(others) && len(others) > 0 || n.majorityAgrees() && n.waited >= waitLimit
	return n.sure
}

// agreeing returns how many of the others know no later state of this voter.
func (n *engine) agreeing(others []string) (agree int) {
	for _, name := range others {
		if n.agrees[name] {
			agree++
		}
	}
	return agree
}

// majorityAgrees reports whether a majority including this voter knows no later state of it. Witnesses have no connections to each
// other, so they cannot have confirmed anything to each other.
func (n *engine) majorityAgrees() bool {
	voters := n.list()
	if n.roll.news.Changed > voters.Changed {
		voters = n.roll.news // the voters in this voter's own list may be gone for good
	}
	agree := 0
	for _, name := range voters.Names {
		if name == n.cfg.Name || n.agrees[name] || n.cfg.Witness && n.isWitness(name) {
			agree++
		}
	}
	return agree > len(voters.Names)/2
}

// blank reports whether this voter does not belong to a group yet.
func (n *engine) blank() bool {
	if n.raft == nil || n.meta.Number == 0 {
		return n.meta.Number == 0
	}
	last, err := n.log.LastIndex()
	return err == nil && last == 0
}

// leave makes this voter leave a group that a majority has left.
func (n *engine) leave(generation uint64) {
	n.cfg.Log.Warn("the other voters have begun a new group: this voter joins it", "generation", generation)
	n.dropWaiting()
	n.meta.Generation, n.meta.Changed = generation, 0
	if err := n.renumber(0, nil); err != nil {
		n.cfg.Log.Error("cannot join the other voters", "err", err)
	}
}

// settle decides whether a blank voter begins a group with others, or joins an existing one.
func (n *engine) settle() {
	if !slices.Contains(n.cfg.Voters, n.cfg.Name) || n.pending != nil || n.meta.Changed > 0 {
		return
	}
	majority := len(n.cfg.Voters)/2 + 1
	groups := map[uint64]int{}
	generation := n.meta.Generation
	for _, p := range n.heard {
		if p.began() {
			groups[p.Generation]++
		} else {
			generation = max(generation, p.Generation)
		}
	}
	var err error
	defer func() {
		if err != nil {
			n.cfg.Log.Error("cannot begin as a voter", "err", err)
		}
	}()
	for _, g := range slices.Backward(slices.Sorted(maps.Keys(groups))) {
		// This voter has left lower generations. If a majority has not left one of them, that one is valid.
		if g < n.meta.Generation && groups[g] < majority {
			continue
		}
		if n.meta.Number == 0 || g != n.meta.Generation {
			n.meta.Generation = g
			err = n.renumber(newNumber(), nil)
		}
		return
	}
	fresh := 1
	for _, p := range n.heard {
		if !p.began() && p.Generation == generation {
			fresh++
		}
	}
	n.meta.Generation = generation
	if fresh >= majority {
		err = n.found()
	}
}
