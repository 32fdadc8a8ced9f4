package voter

import (
	"encoding/binary"
	"log/slog"
	"math"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"brine/internal/ha/lease"
	"brine/test/fuzztest"
)

// victim returns a voter in a group of three, and its number and that of b.
func victim(t testing.TB) (n *Node, a, b uint64, group string) {
	t.Helper()
	list := []string{"a", "b", "c"}
	group = lease.Fingerprint(list)
	n = newNode(Config{Name: "a", Voters: list, Path: "/nonexistent/voter", Log: slog.New(slog.DiscardHandler), Mail: func(string, [][]byte) {}}, &memory{})
	if err := n.e.open(); err != nil {
		t.Fatal(err)
	}
	n.Exchange("c", Packet{Group: group, Start: 2})
	n.Exchange("b", Packet{Group: group, Start: 3})
	a, b = firstNumber(group, 0, "a"), firstNumber(group, 0, "b")
	if n.e.meta.Number != a {
		t.Fatal("it has not begun")
	}
	return n, a, b, group
}

// lies are messages of a voter that violates the protocol, by purpose. In each, b claims to be the
// leader.
func lies(b uint64) map[string][]*pb.Message {
	entry := func(index uint64, kind pb.EntryType, data []byte) *pb.Entry {
		return &pb.Entry{Term: new(uint64(2)), Index: new(index), Type: kind.Enum(), Data: data}
	}
	app := func(commit uint64, entries ...*pb.Entry) *pb.Message {
		return &pb.Message{Type: pb.MsgApp.Enum(), Index: new(uint64(1)), LogTerm: new(uint64(1)), Commit: new(commit), Entries: entries}
	}
	change := func(v2 bool, changes ...*pb.ConfChangeSingle) []byte {
		var m proto.Message = &pb.ConfChangeV2{Changes: changes}
		if !v2 {
			m = &pb.ConfChange{Type: changes[0].Type, NodeId: changes[0].NodeId}
		}
		data, err := proto.Marshal(m)
		if err != nil {
			panic(err)
		}
		return data
	}
	remove := func(id uint64) *pb.ConfChangeSingle {
		return &pb.ConfChangeSingle{Type: pb.ConfChangeRemoveNode.Enum(), NodeId: new(id)}
	}
	add := func(kind pb.ConfChangeType, id uint64) *pb.ConfChangeSingle {
		return &pb.ConfChangeSingle{Type: kind.Enum(), NodeId: new(id)}
	}
	list := lease.Fingerprint([]string{"a", "b", "c"})
	var all []*pb.ConfChangeSingle
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, remove(firstNumber(list, 0, name)))
	}
	snap := func(s *pb.Snapshot) *pb.Message { return &pb.Message{Type: pb.MsgSnap.Enum(), Snapshot: s} }
	meta := func(index uint64, conf *pb.ConfState) *pb.SnapshotMetadata {
		return &pb.SnapshotMetadata{Index: new(index), Term: new(uint64(2)), ConfState: conf}
	}
	me := firstNumber(list, 0, "a")
	voters := &pb.ConfState{Voters: []uint64{me, b}}
	good := newState().bytes()
	return map[string][]*pb.Message{
		"no voter is left": {app(2, entry(2, pb.EntryConfChangeV2, change(true, all...)))},
		"one change of many voters": {
			app(2, entry(2, pb.EntryConfChangeV2, change(true, add(pb.ConfChangeAddNode, 5), add(pb.ConfChangeAddLearnerNode, 5)))),
		},
		"the end of no change": {app(3, entry(2, pb.EntryConfChangeV2, nil), entry(3, pb.EntryConfChangeV2, nil))},
		"removal of each alone": {
			app(4, entry(2, pb.EntryConfChange, change(false, all[0])),
				entry(3, pb.EntryConfChange, change(false, all[1])), entry(4, pb.EntryConfChange, change(false, all[2]))),
		},
		"a change that is none":      {app(2, entry(2, pb.EntryConfChangeV2, []byte{0xff}))},
		"an old change that is none": {app(2, entry(2, pb.EntryConfChange, []byte{0xff}))},
		"a change of type 77":        {app(2, entry(2, pb.EntryConfChangeV2, change(true, add(77, 5))))},
		"a command that is none":     {app(2, entry(2, pb.EntryNormal, []byte("{")))},
		"an entry of type 9":         {app(2, entry(2, 9, []byte("{}")))},
		"a hole in the log":          {app(9, entry(9, pb.EntryNormal, nil))},
		"entries in disorder":        {app(3, entry(3, pb.EntryNormal, nil), entry(2, pb.EntryNormal, nil))},
		"the last index":             {app(math.MaxUint64, entry(math.MaxUint64, pb.EntryNormal, nil))},
		"after the last index": {
			{Type: pb.MsgApp.Enum(), Index: new(uint64(math.MaxUint64)), LogTerm: new(uint64(1)),
				Entries: []*pb.Entry{entry(0, pb.EntryNormal, nil)}},
		},
		"another beginning": {
			{Type: pb.MsgApp.Enum(), Index: new(uint64(0)), LogTerm: new(uint64(0)),
				Entries: []*pb.Entry{entry(1, pb.EntryNormal, nil)}, Commit: new(uint64(1))},
		},
		"commit of what is not":   {{Type: pb.MsgHeartbeat.Enum(), Commit: new(uint64(math.MaxUint64))}},
		"no entry":                {{Type: pb.MsgApp.Enum(), Index: new(uint64(1)), LogTerm: new(uint64(1)), Entries: []*pb.Entry{{}}}},
		"no snapshot":             {snap(nil)},
		"an empty snapshot":       {snap(&pb.Snapshot{})},
		"a snapshot of no voters": {snap(&pb.Snapshot{Data: good, Metadata: meta(9, nil)})},
		"a snapshot without data": {snap(&pb.Snapshot{Metadata: meta(9, voters)})},
		"a snapshot of garbage":   {snap(&pb.Snapshot{Data: []byte("{"), Metadata: meta(9, voters)})},
		"a snapshot of null":      {snap(&pb.Snapshot{Data: []byte("null"), Metadata: meta(9, voters)})},
		"null members": {
			snap(&pb.Snapshot{Data: []byte(`{"members":null,"by":null}`), Metadata: meta(9, voters)}),
			app(10, entry(10, pb.EntryNormal, []byte(`{"op":"claim","claim":"x","holder":"y"}`))),
		},
		"voters that learn": {
			snap(&pb.Snapshot{Data: good, Metadata: meta(9, &pb.ConfState{Voters: []uint64{me, b}, Learners: []uint64{me, b}})}),
		},
		"a joint list of unknown voters": {
			snap(&pb.Snapshot{Data: good, Metadata: meta(9, &pb.ConfState{Voters: []uint64{me, b}, VotersOutgoing: []uint64{7}, LearnersNext: []uint64{8}})}),
		},
		"voter 0": {snap(&pb.Snapshot{Data: good, Metadata: meta(9, &pb.ConfState{Voters: []uint64{me, 0, b}})})},
		"the last snapshot": {
			snap(&pb.Snapshot{Data: good, Metadata: meta(math.MaxUint64, voters)}), {Type: pb.MsgHeartbeat.Enum(), Commit: new(uint64(math.MaxUint64))},
		},
		"a claim without a name": {app(2, entry(2, pb.EntryNormal, []byte(`{"op":"claim"}`)))},
		"a beginning of nothing": {app(2, entry(2, pb.EntryNormal, []byte(`{"op":"begin"}`)))},
		"the highest term":       {{Type: pb.MsgHeartbeat.Enum(), Term: new(uint64(math.MaxUint64))}},
	}
}

// tell passes messages of b to a node.
func tell(t testing.TB, n *Node, group string, a, b uint64, messages []*pb.Message) {
	t.Helper()
	p := Packet{Group: group, Number: b, Start: 3, Term: 1}
	for _, m := range messages {
		m = proto.Clone(m).(*pb.Message)
		m.From, m.To = new(b), new(a)
		if m.Term == nil {
			m.Term = new(uint64(2))
		}
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		p.Messages = append(p.Messages, data)
	}
	n.Exchange("b", p)
}

// TestLyingVoter: no messages of a hostile voter, such as a witness that an attacker controls, end
// the process or stop the voter for ever.
func TestLyingVoter(t *testing.T) {
	for what, messages := range lies(firstNumber(lease.Fingerprint([]string{"a", "b", "c"}), 0, "b")) {
		t.Run(what, func(t *testing.T) {
			n, a, b, group := victim(t)
			tell(t, n, group, a, b, messages)
			for range 40 {
				n.Tick()
				n.Exchange("c", Packet{Group: group, Start: 2, About: n.e.begun})
			}
			if n.e.pending != nil {
				t.Errorf("it does not go on: %s", n.e.why)
			}
		})
	}
}

// FuzzMessages: no messages of another voter end this process.
func FuzzMessages(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	b := firstNumber(lease.Fingerprint([]string{"a", "b", "c"}), 0, "b")
	for _, messages := range lies(b) {
		var seed []byte
		for _, m := range messages {
			data, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			seed = append(binary.BigEndian.AppendUint16(seed, uint16(len(data))), data...)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		n, a, b, group := victim(t)
		var messages []*pb.Message
		for len(in) >= 2 && len(messages) < 8 {
			size := int(binary.BigEndian.Uint16(in))
			in = in[2:]
			data := in[:min(size, len(in))]
			in = in[len(data):]
			m := &pb.Message{}
			if proto.Unmarshal(data, m) == nil {
				messages = append(messages, m)
			}
		}
		tell(t, n, group, a, b, messages)
		for range 3 {
			n.Tick()
		}
		n.Exchange("c", Packet{Group: group, Start: 2, About: n.e.begun})
	})
}
