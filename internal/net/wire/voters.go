package wire

import "brine/internal/py/value"

// VoterMessage is a message between the voters of a cluster, or between a master and
// a voter: a packet, which is answered by one, or a request, which gets an answer.
type VoterMessage struct {
	Packet  []byte `wire:"packet,omitempty"`
	Request []byte `wire:"request,omitempty"`
	Answer  []byte `wire:"answer,omitempty"`
	Why     string `wire:"why,omitempty"` // instead of an answer
	// Granted is in answers of voters that do not use Raft.
	Granted any         `wire:"granted,omitempty"`
	Rest    *value.Dict `wire:"*"`
}
