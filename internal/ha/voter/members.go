package voter

import (
	"encoding/json"
	"maps"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// members describes a change of the voters; it is the context of the entry.
type members struct {
	Add  map[uint64]string `json:"add"`
	Drop []uint64          `json:"drop"`
	// Learner means that those in Add do not vote yet, Command that a command requested the change.
	Learner bool `json:"learner,omitempty"`
	Command bool `json:"command,omitempty"`
}

// proposeChange proposes to change the voters in one step.
func (n *engine) proposeChange(m members) {
	context, err := json.Marshal(m)
	cc := &pb.ConfChangeV2{Context: context}
	for _, number := range m.Drop {
		cc.Changes = append(cc.Changes, &pb.ConfChangeSingle{Type: pb.ConfChangeRemoveNode.Enum(), NodeId: new(number)})
	}
	for _, number := range slices.Sorted(maps.Keys(m.Add)) {
		kind := pb.ConfChangeAddNode
		if m.Learner {
			kind = pb.ConfChangeAddLearnerNode
		}
		cc.Changes = append(cc.Changes, &pb.ConfChangeSingle{Type: kind.Enum(), NodeId: new(number)})
	}
	if err == nil {
		n.do(func() { err = n.raft.ProposeConfChange(cc) })
	}
	if err != nil {
		n.cfg.Log.Debug("cannot change the voters now", "err", err)
		return
	}
	if last, err := n.log.LastIndex(); err == nil {
		n.changer.proposed = last
	}
}

// applyChange applies a change of the voters.
func (n *engine) applyChange(e *pb.Entry) {
	var cc pb.ConfChangeI
	v2 := &pb.ConfChangeV2{}
	cc = v2
	err := error(nil)
	if e.GetType() == pb.EntryConfChange {
		v1 := &pb.ConfChange{}
		err = proto.Unmarshal(e.GetData(), v1)
		cc = v1
	} else {
		err = proto.Unmarshal(e.GetData(), v2)
	}
	if err != nil {
		panic(brokenLog("change of voters: " + err.Error()))
	}
	n.conf, n.changed = n.raft.ApplyConfChange(cc), true
	var m members
	if context := cc.AsV2().GetContext(); len(context) > 0 {
		if err := json.Unmarshal(context, &m); err != nil {
			panic(brokenLog("change of voters: " + err.Error()))
		}
	}
	if len(m.Add) == 0 && len(m.Drop) == 0 {
		return // the end of a joint change
	}
	if m.Command {
		n.applyCommand(e.GetIndex(), m)
		return
	}
	for _, number := range m.Drop {
		delete(n.state.Members, number)
		delete(n.state.Learners, number)
		n.state.Gone = append(n.state.Gone, number)
	}
	if m.Learner {
		maps.Copy(n.state.Learners, m.Add)
		return
	}
	maps.Copy(n.state.Members, m.Add)
	for _, name := range m.Add {
		n.cfg.Log.Info("a voter that had lost its state votes again", "voter", name)
	}
}

// swap replaces the number of a voter that has lost its disk by its new one.
func (n *engine) swap() {
	if n.changer.changing() {
		return
	}
	for _, m := range []map[uint64]string{n.state.Members, n.state.Learners} {
		for _, number := range slices.Sorted(maps.Keys(m)) {
			name := m[number]
			p := n.heard[name]
			if name == n.cfg.Name || p.Number == 0 || p.Number == number || p.Generation != n.meta.Generation || slices.Contains(n.state.Gone, p.Number) {
				continue
			}
			n.proposeChange(members{Drop: []uint64{number}, Add: map[uint64]string{p.Number: name}, Learner: n.state.Learners[number] != ""})
			return // one at a time
		}
	}
}
