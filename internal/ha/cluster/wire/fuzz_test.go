package wire_test

import (
	"testing"

	"brine/internal/ha/cluster/refusal"
	"brine/internal/ha/cluster/wire"
	"brine/test/fuzztest"
	"brine/test/fuzztest/messages"
)

// FuzzCluster fuzzes the messages of two members.
func FuzzCluster(tf *testing.F) {
	messages.Fuzz(fuzztest.Wrap(tf), nil,
		wire.Hello{}, wire.Reply{}, wire.Facts{}, wire.Key{}, wire.Ready{}, refusal.Message{},
		wire.Discover{}, wire.DiscoverReply{}, wire.Join{}, wire.JoinReply{}, wire.Welcome{},
		wire.FrameHead{}, wire.Start{}, wire.Messages{}, wire.Ack{}, wire.Wanted{}, wire.Question{}, wire.Answer{}, wire.Changes{}, wire.Known{},
		wire.ItemKind{}, wire.JobItem{}, wire.EventItem{}, wire.ReturnKey{}, wire.NoteItem{},
		wire.Present{}, wire.KeyQuestion{}, wire.KeyAnswer{}, wire.Report{},
		wire.PeerKeys{}, wire.PeerKey{}, wire.BrinePeer{}, wire.PeerEvent{})
}
