// Package voter is a voter of a cluster: a member of a group that agrees by raft (go.etcd.io/raft) on who has the lease and which work has
// begun. Package lease implements the other end, a master that requests the lease.
//
// A Node has no sockets, goroutines or clocks of its own. The caller passes packets between the nodes and calls Tick. It may lose, delay and
// repeat packets; Driver is that caller in a program. Answers to packets are packets, so a witness need not dial masters. A witness leads only
// while no master can be elected, grants nothing then, and passes the lead on.
//
// # Which disks may be lost
//
// Raft relies on everything that a voter has confirmed. A voter whose disk was lost or reset must not continue under its number in the group.
// It takes a new number. The leader replaces the old number by the new one in one change, which needs a majority of both lists of numbers.
//
// A voter counts the changes of its disk and sends the count with each packet. Each voter stores the highest count of every other one in the
// same transaction as the effects of a packet. After a start a voter is silent until all others have answered that they know no higher count of
// it, or until a majority including itself has and patience ticks have passed. So there is at most one lease, no work begins twice and tokens
// grow if
//
//   - a minority of the voters has lost or old disks, and
//   - while a voter starts with an old one, all voters with good disks answer it within patience ticks after a majority has, and
//   - no disk is lost before all voters have been connected once.
//
// If disks are only lost, not old, the first and the last condition are enough. A voter that is unreachable while another one starts from an
// old disk may be the only one that knows its latest count; no majority protocol can detect that. Waiting for all voters for ever would exclude
// it, but then none of three voters could start while another one is lost.
//
// A machine that is reset while it runs, as by a snapshot of its memory, continues with the same Start. It takes a new number when another
// voter reports a higher count for that Start, but may have voted before.
//
// # Groups and generations
//
// A group begins with a configured list when a majority of the voters in it has no group. A voter whose configured list has changed leaves its
// group and keeps what it knows (lease.Before). If the list changes back, the group of that list begins again with a higher generation. A voter
// that has missed both changes leaves the old generation when it learns of the new one.
//
// # Changes by command
//
// A command changes the voters of a running group, one at a time, by an entry in its log. From then on the configured list is not used: each
// voter stores the list on its disk. An added voter joins the group of the leader that invites it, gets the log as a learner, and votes when it
// has caught up. A voter that has missed changes, was removed, or has lost its disk learns the list from any packet, which names the entry of
// the last change. A removed voter records that on its disk, so that it joins no group again unless it is invited.
package voter

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"brine/internal/base/salt"
	"brine/internal/ha/lease"
)

// Times, in calls of Tick.
const (
	// TickTime is the interval of Tick.
	TickTime = 200 * time.Millisecond
	// heartbeat is the interval of the leader's heartbeats, in ticks. Without one for one to two times election, another voter becomes the
	// leader.
	heartbeat = 1
	election  = 5
	// waitLimit is how long a voter still waits for the others after a majority has answered.
	waitLimit = 25
	// witnessPatience is how long there must be no leader before a witness tries to become it.
	witnessPatience = 15
)

// Bounds of the log and of messages.
const (
	// keepEntries is how many entries are kept after a snapshot, snapEntries how many more are added before the next one.
	keepEntries = 64
	snapEntries = 512
	maxMessage  = 64 << 10
	maxInflight = 64
)

// Config is the configuration of a voter.
type Config struct {
	// Name is the id of this voter, Voters the configured list.
	Name   string
	Voters []string
	// Path is the file of the state.
	Path string
	// Witness means that this voter is not a master: it grants no lease, and leads only while no master can.
	Witness bool
	// MayLead reports whether another voter is a master.
	MayLead func(name string) bool
	// Mail sends messages to a voter. They may get lost, and Mail must not block. If it is nil, messages are sent in the answers to packets.
	Mail func(to string, messages [][]byte)
	Log  *slog.Logger
}

// Node is a voter: it exchanges packets with others, and answers requests for the lease. It is safe for concurrent use.
type Node struct {
	mu        sync.Mutex
	e         engine
	beginning bool      // the leader is querying the state before the group
	moved     time.Time // the last attempt to pass on the leadership
}

// engine combines raft, the disk, and the knowledge of other voters.
type engine struct {
	cfg   Config
	group string
	now   func() time.Time

	disk    disk
	meta    meta
	begun   uint64          // random number of this start, or of the last change of this voter's number
	writes  uint64          // counts the changes of the disk
	marks   map[uint64]mark // of other voters, by number
	raft    *raft.RawNode   // nil until it is known whether the group exists
	log     *raft.MemoryStorage
	state   *state
	conf    *pb.ConfState
	applied uint64
	snapped uint64
	changed bool        // whether the voters have changed since the last snapshot
	pending *raft.Ready // what could not be written yet
	why     string      // why this voter cannot vote, "" if it can

	heard      map[string]Packet   // the last packet of each voter, without messages
	olds       map[string]uint64   // the starts in which voters had outdated disks
	agrees     map[string]bool     // the voters that know no later state of this one
	sure       bool                // the disk is known to be the latest one of this voter
	waited     int                 // ticks since a majority agreed
	leaderless int                 // ticks without a leader
	outbox     map[string][][]byte // messages for answers, without Config.Mail
	replyTo    uint64              // messages to this number go into replies
	replies    [][]byte
	waiting    waiting
	reads      []raft.ReadState // confirmations that wait until entries are applied
	ledTerm    uint64           // the term in which this voter leads, or led last
	renewed    time.Time        // when the lease was renewed, at the latest
	granting   bool             // a grant is in the log and not applied yet
	unheard    string           // why this leader cannot begin the group yet

	ticks   int // number of calls of Tick
	roll    roll
	changer changer
}

// firstTerm is the term of the initial state of a group.
const firstTerm = 1

// Open opens the state of a voter. Close must follow.
func Open(cfg Config) (*Node, error) {
	d, err := openDisk(cfg.Path)
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable,
			"cannot open the state of this voter %s: %w; if the file is damaged, remove it: the voter then joins the others again", cfg.Path, err)
	}
	n := newNode(cfg, d)
	if err := n.e.open(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return n, nil
}

func newNode(cfg Config, d disk) *Node {
	n := &Node{e: engine{cfg: cfg, group: lease.Fingerprint(cfg.Voters), now: time.Now, disk: d, begun: newNumber(), state: newState(),
		conf: &pb.ConfState{}, marks: map[uint64]mark{}, heard: map[string]Packet{}, olds: map[string]uint64{}, agrees: map[string]bool{},
		outbox: map[string][][]byte{}, waiting: waiting{}}}
	n.e.roll = roll{n: &n.e}
	n.e.changer = changer{n: &n.e, heardAt: map[string]int{}, farewell: map[string]int{}}
	return n
}

// Close closes the file.
func (n *Node) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.e.raft, n.e.why = nil, "it ends"
	n.e.dropWaiting()
	return n.e.disk.Close()
}

// open loads the disk. The log of another list is added to what this voter knew before its group.
func (n *engine) open() error {
	s, err := n.disk.load()
	if err != nil {
		return salt.Errorf(salt.Invalid, "the state of this voter %s is damaged: %w; remove it: the voter then joins the others again", n.cfg.Path, err)
	}
	n.meta, n.writes, n.marks = s.meta, s.writes, s.marks
	// The earlier version may have run again meanwhile and granted more.
	if n.roll.keeps(s) && !hasOldVoter(n.cfg.Path) {
		n.group = s.Group
		if err := n.start(s); err != nil {
			return err
		}
		n.roll.compareConfigured()
		return nil
	}
	if n.meta.Before, err = past(s); err != nil {
		return err
	}
	old, err := readOldVoter(n.cfg.Path)
	if err != nil {
		return err
	}
	n.meta.Before.Merge(old)
	n.meta.Group, n.meta.Voters, n.meta.Number, n.meta.Changed, n.meta.Left = n.group, n.cfg.Voters, 0, 0, false
	if s.Group != "" {
		n.meta.Generation++
	}
	if err := n.save(change{meta: &n.meta}); err != nil {
		return salt.Errorf(salt.Unavailable, "cannot write the state of this voter: %w", err)
	}
	return dropOldVoter(n.cfg.Path)
}

// save makes a change durable, together with its count and the marks of other voters.
func (n *engine) save(c change) error {
	c.writes, c.marks = n.writes+1, n.marks
	if err := n.disk.save(c); err != nil {
		return err
	}
	n.writes = c.writes
	return nil
}

// past returns the tokens and claims in a log. It includes entries that are not known to be committed, since other voters may have committed
// them.
func past(s *saved) (lease.Before, error) {
	b := s.Before
	st := newState()
	if data := s.snap.GetData(); len(data) > 0 {
		var err error
		if st, err = readState(data); err != nil {
			return b, salt.Errorf(salt.Invalid, "the state of this voter is damaged: %w", err)
		}
	}
	b.Merge(lease.Before{Seen: st.Token, Claims: st.Claims})
	begun := st.Floor != 0
	for _, e := range s.entries {
		var c command
		if e.GetType() != pb.EntryNormal || len(e.GetData()) == 0 {
			continue
		}
		if err := json.Unmarshal(e.GetData(), &c); err != nil {
			return b, salt.Errorf(salt.Invalid, "the state of this voter is damaged: %w", err)
		}
		switch c.Op {
		case opBegin:
			if c.Before != nil {
				st.Floor = max(st.Floor, c.Before.Seen)
				b.Merge(*c.Before)
				begun = begun || e.GetIndex() <= s.hard.GetCommit()
			}
		case opGrant:
			b.Seen = max(b.Seen, st.Floor+e.GetIndex())
		case opClaim:
			b.Claims.Merge(lease.Claims{By: map[string]string{c.Claim: c.Holder}})
		}
	}
	b.From = leftGroup(b.From, s, begun)
	return b, nil
}

// start initializes raft from a disk.
func (n *engine) start(s *saved) error {
	n.raft, n.state, n.conf, n.applied, n.snapped = nil, newState(), &pb.ConfState{}, 0, 0
	n.pending, n.changed, n.why, n.waited, n.leaderless, n.ledTerm = nil, false, "", 0, 0, 0
	n.changer.invited, n.changer.proposed = invitation{}, 0
	clear(n.agrees)
	clear(n.outbox)
	if n.meta.Number == 0 {
		return nil
	}
	n.log = raft.NewMemoryStorage()
	hard := s.hard
	if s.snap != nil {
		var err error
		if n.state, err = readState(s.snap.GetData()); err != nil {
			return salt.Errorf(salt.Invalid, "the state of this voter %s is damaged: %w; remove it: the voter then joins the others again", n.cfg.Path, err)
		}
		if err := n.log.ApplySnapshot(s.snap); err != nil {
			return err
		}
		n.conf = s.snap.GetMetadata().GetConfState()
		n.applied = s.snap.GetMetadata().GetIndex()
		n.snapped = n.applied
	}
	if hard != nil {
		if err := n.log.SetHardState(hard); err != nil {
			return err
		}
	}
	if err := n.log.Append(s.entries); err != nil {
		return err
	}
	return n.guard(func() error {
		r, err := raft.NewRawNode(&raft.Config{
			ID: n.meta.Number, ElectionTick: election, HeartbeatTick: heartbeat, Storage: n.log, Applied: n.applied, MaxSizePerMsg: maxMessage,
			MaxInflightMsgs: maxInflight, CheckQuorum: true, PreVote: true, DisableProposalForwarding: true, StepDownOnRemoval: true,
			Logger: raftLog{n.cfg.Log},
		})
		n.raft = r
		return err
	})
}

// guard runs fn. If the raft library panics because the log lacks what this voter had confirmed, the voter takes a new number: messages
// from another voter must not end the process, which is a master.
func (n *engine) guard(fn func() error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case brokenLog:
			err = n.replace(string(p))
		default:
			n.cfg.Log.Error("this voter cannot handle what the others have agreed on, or one of them does not keep to the protocol", "panic", p, "stack",
				string(debug.Stack()))
			err = n.replace("it could not go on with its log")
		}
	}()
	return fn()
}

// replace makes this voter take a new number because its disk is outdated.
func (n *engine) replace(why string) error {
	n.cfg.Log.Error("the disk of this voter is older than what it has confirmed to others; it becomes a new voter in its own place", "reason", why)
	n.dropWaiting()
	return n.renumber(newNumber(), nil)
}

// renumber begins an empty log, or one with an initial state, under a new number. Number 0 means no group.
func (n *engine) renumber(number uint64, first *saved) error {
	old, err := n.disk.load()
	if err == nil {
		n.meta.Before, err = past(old)
	}
	if err != nil {
		n.raft, n.meta.Number, n.why = nil, 0, "its disk cannot be read"
		return salt.Errorf(salt.Unavailable, "cannot read the state of this voter: %w", err)
	}
	n.meta.Group, n.meta.Number = n.group, number
	if n.meta.Changed == 0 {
		n.meta.Voters = n.cfg.Voters
	}
	c := change{meta: &n.meta}
	s := &saved{meta: n.meta}
	if first != nil {
		s.hard, s.snap = first.hard, first.snap
		c.hard, c.snap = first.hard, first.snap
	}
	n.sure, n.begun = true, newNumber() // no voter relies on this number yet; reports about the old one do not matter
	if err := n.save(c); err != nil {
		n.raft, n.meta.Number, n.why = nil, 0, "its disk cannot be written"
		return salt.Errorf(salt.Unavailable, "cannot write the state of this voter: %w", err)
	}
	return n.start(s)
}

// newNumber returns a number for a new voter.
func newNumber() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:])>>1 | 1
}

// firstNumber returns the number of a voter in the initial list of a group. All voters compute the same numbers.
func firstNumber(group string, generation uint64, name string) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%s", group, generation, name))
	return binary.BigEndian.Uint64(sum[:])>>1 | 1
}

// found begins the group with the configured voters.
func (n *engine) found() error {
	st := newState()
	conf := &pb.ConfState{}
	for _, name := range n.cfg.Voters {
		id := firstNumber(n.group, n.meta.Generation, name)
		st.Members[id] = name
		conf.Voters = append(conf.Voters, id)
	}
	slices.Sort(conf.Voters)
	return n.renumber(firstNumber(n.group, n.meta.Generation, n.cfg.Name), &saved{
		hard: &pb.HardState{Term: new(uint64(firstTerm)), Vote: new(uint64(0)), Commit: new(uint64(1))},
		snap: &pb.Snapshot{Data: st.bytes(), Metadata: &pb.SnapshotMetadata{ConfState: conf, Index: new(uint64(1)), Term: new(uint64(firstTerm))}},
	})
}

// step passes the messages of a packet to raft. Messages to the number replyTo become replies.
func (n *Node) step(from string, p Packet, replyTo uint64) {
	n.e.replyTo, n.e.replies = replyTo, nil
	defer func() { n.e.replyTo = 0 }()
	if !n.e.ready() {
		return
	}
	for _, b := range p.Messages {
		m := &pb.Message{}
		if err := proto.Unmarshal(b, m); err != nil {
			n.e.cfg.Log.Warn("cannot decode a message of a voter", "voter", from, "err", err)
			return
		}
		if m.GetFrom() != p.Number || !n.e.takes(from, m) { // from before it took this number, so the count in the packet does not cover it
			continue
		}
		n.e.do(func() {
			if err := n.e.raft.Step(m); err != nil {
				n.e.cfg.Log.Debug("raft does not take a message", "voter", from, "err", err)
			}
		})
	}
}

// takes reports whether raft may get a message: it is addressed to this voter, its sender is the claimed one, and its type is expected.
func (n *engine) takes(from string, m *pb.Message) bool {
	if n.raft == nil || m.GetTo() != n.meta.Number {
		return false
	}
	if name := n.state.nameOf(m.GetFrom()); name != "" && name != from {
		return false
	}
	switch m.GetType() {
	case pb.MsgTimeoutNow:
		return !n.cfg.Witness
	case pb.MsgSnap: // raft confirms it before it is written, so a snapshot that cannot be read must not reach it
		_, err := readState(m.GetSnapshot().GetData())
		return err == nil
	case pb.MsgApp:
		return inOrder(m)
	case pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgHeartbeat, pb.MsgHeartbeatResp, pb.MsgPreVote, pb.MsgPreVoteResp:
		return true
	}
	return false // followers send no proposals
}

// inOrder reports whether the entries of a message have consecutive indexes. Otherwise the raft library would not terminate.
func inOrder(m *pb.Message) bool {
	index, term := m.GetIndex(), m.GetLogTerm()
	for _, e := range m.GetEntries() {
		if index++; index == 0 || e.GetIndex() != index || e.GetTerm() < term || e.GetTerm() > m.GetTerm() {
			return false
		}
		term = e.GetTerm()
	}
	return true
}

// do runs fn, which uses raft, and processes the results.
func (n *engine) do(fn func()) {
	if n.raft == nil || n.pending != nil && !n.flush() {
		return
	}
	if err := n.guard(func() error { fn(); n.process(); return nil }); err != nil {
		n.cfg.Log.Error("this voter cannot vote", "err", err)
	}
}

// flush writes what could not be written before.
func (n *engine) flush() bool {
	if n.pending == nil {
		return true
	}
	return n.guard(func() error { n.process(); return nil }) == nil && n.pending == nil
}

// process writes, sends and applies the output of raft.
func (n *engine) process() {
	for n.pending != nil || n.raft != nil && n.raft.HasReady() {
		if n.pending == nil {
			rd := n.raft.Ready()
			n.pending = &rd
		}
		rd := n.pending
		if err := n.write(rd); err != nil {
			// Nothing is sent before it is on disk. The write is retried at the next tick.
			if n.why == "" {
				n.cfg.Log.Error("cannot write the state of this voter: it does not vote until that works", "path", n.cfg.Path, "err", err)
			}
			n.why = "its disk cannot be written: " + err.Error()
			return
		}
		n.pending, n.why = nil, ""
		n.note()
		n.send(rd.Messages)
		for _, e := range rd.CommittedEntries {
			n.applyEntry(e)
		}
		n.reads = append(n.reads, rd.ReadStates...)
		n.raft.Advance(*rd)
		n.answerReads()
		n.compact()
	}
}

// answerReads answers the waiting confirmations up to the applied index.
func (n *engine) answerReads() {
	n.reads = slices.DeleteFunc(n.reads, func(r raft.ReadState) bool {
		if r.Index > n.applied {
			return false
		}
		n.waiting.answer(binary.BigEndian.Uint64(r.RequestCtx), lease.Answer{}, true)
		return true
	})
}

// write makes a change durable.
func (n *engine) write(rd *raft.Ready) error {
	c := change{hard: rd.HardState, entries: rd.Entries}
	if raft.IsEmptyHardState(c.hard) {
		c.hard = nil
	}
	if !raft.IsEmptySnap(rd.Snapshot) {
		c.snap, c.compact = rd.Snapshot, math.MaxUint64
	}
	if c.hard == nil && c.snap == nil && len(c.entries) == 0 {
		return nil
	}
	var st *state
	if c.snap != nil {
		var err error
		if st, err = readState(c.snap.GetData()); err != nil {
			return err
		}
	}
	if err := n.save(c); err != nil {
		return err
	}
	if st != nil {
		if err := n.log.ApplySnapshot(c.snap); err != nil {
			return err
		}
		n.state, n.conf = st, c.snap.GetMetadata().GetConfState()
		n.applied = c.snap.GetMetadata().GetIndex()
		n.snapped = n.applied
	}
	if c.hard != nil {
		if err := n.log.SetHardState(c.hard); err != nil {
			return err
		}
	}
	return n.log.Append(c.entries)
}

// send passes messages to the mailboxes.
func (n *engine) send(messages []*pb.Message) {
	mail := map[string][][]byte{}
	for _, m := range messages {
		switch m.GetType() {
		case pb.MsgPreVote:
			if n.cfg.Witness && n.leaderless < witnessPatience {
				continue // prefer a master as the leader
			}
		case pb.MsgSnap:
			// If it is lost, the answer to the next heartbeat shows that it is missing.
			defer n.raft.ReportSnapshot(m.GetTo(), raft.SnapshotFinish)
		}
		b, err := proto.Marshal(m)
		if err != nil {
			n.cfg.Log.Error("cannot encode a message for a voter", "err", err)
			continue
		}
		if m.GetTo() == n.replyTo && n.replyTo != 0 {
			n.replies = append(n.replies, b)
		} else if name := n.state.nameOf(m.GetTo()); name != "" {
			mail[name] = append(mail[name], b)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(mail)) {
		n.mail(name, mail[name])
	}
}

// maxOutbox bounds the messages that wait for a packet of a voter. Raft repeats lost ones.
const maxOutbox = 64

// mail sends messages to a voter, or keeps them for the answer to its next packet.
func (n *engine) mail(name string, messages [][]byte) {
	if n.cfg.Mail != nil {
		n.cfg.Mail(name, messages)
		return
	}
	l := append(n.outbox[name], messages...)
	n.outbox[name] = l[max(0, len(l)-maxOutbox):]
}

// applyEntry applies a committed entry.
func (n *engine) applyEntry(e *pb.Entry) {
	n.applied = e.GetIndex()
	switch e.GetType() {
	case pb.EntryConfChange, pb.EntryConfChangeV2:
		n.applyChange(e)
		return
	}
	if len(e.GetData()) == 0 {
		return // the empty entry of a new leader
	}
	var c command
	if err := json.Unmarshal(e.GetData(), &c); err != nil {
		panic(brokenLog("entry " + err.Error()))
	}
	a := n.state.apply(e.GetIndex(), c)
	if a.Granted {
		n.renewed = n.now()
	}
	n.waiting.answer(c.ID, a, true)
}

// compact replaces old entries by a snapshot. A change of the voters is followed by a snapshot, because a new voter does not accept one
// from before it was a voter.
func (n *engine) compact() {
	if n.raft == nil || n.applied < n.snapped+snapEntries && !n.changed {
		return
	}
	drop := n.applied - min(n.applied, keepEntries)
	snap, err := n.log.CreateSnapshot(n.applied, n.conf, n.state.bytes())
	if err == nil {
		err = n.save(change{snap: snap, compact: drop})
	}
	if err == nil && drop > 0 {
		err = n.log.Compact(drop)
	}
	if err != nil && !errors.Is(err, raft.ErrCompacted) && !errors.Is(err, raft.ErrSnapOutOfDate) {
		n.cfg.Log.Warn("cannot shorten the log of this voter", "path", n.cfg.Path, "err", err)
		return
	}
	n.snapped, n.changed = n.applied, false
}

// dropWaiting ends all waiting requests: it is unknown whether they took effect.
func (n *engine) dropWaiting() {
	n.granting, n.reads = false, nil
	n.waiting.drop()
}

// propose proposes a command for the log. fn is called with the answer and done, or without done if it is unknown whether the command was
// written.
func (n *engine) propose(c command, fn func(a lease.Answer, done bool)) {
	id, ok := n.waiting.add(fn)
	if !ok {
		fn(lease.Answer{}, false)
		return
	}
	c.ID = id
	b, err := json.Marshal(c)
	if err != nil {
		n.waiting.answer(id, lease.Answer{}, false)
		return
	}
	n.do(func() { err = n.raft.Propose(b) })
	if err != nil {
		n.waiting.answer(id, lease.Answer{}, false)
	}
}

// confirm calls fn when a majority has confirmed after the call that this voter leads.
func (n *engine) confirm(fn func(a lease.Answer, done bool)) {
	id, ok := n.waiting.add(fn)
	if !ok {
		fn(lease.Answer{}, false)
		return
	}
	n.do(func() { n.raft.ReadIndex(binary.BigEndian.AppendUint64(nil, id)) })
}
