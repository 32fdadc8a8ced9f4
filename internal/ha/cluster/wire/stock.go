package wire

import "brine/internal/py/value"

// The messages of stock masters. Source: Salt's MasterPubServerChannel.

// PeerKeys is the event cluster/peer/FROM, with which a master sends the others its
// AES key.
type PeerKeys struct {
	PeerID string      `wire:"peer_id" max:"1024"`
	Peers  *value.Dict `wire:"peers"` // PeerKey by id
	// Brine is Brine's own, a BrinePeer; stock masters ignore it.
	Brine *value.Dict `wire:"brine,omitempty"`
	Stamp any         `wire:"_stamp,omitempty"`
	Rest  *value.Dict `wire:"*"`
}

// PeerKey is the key for one master, empty if the sender does not know the
// master's public key.
type PeerKey struct {
	AES  []byte      `wire:"aes,omitempty" max:"4096"`
	Sig  []byte      `wire:"sig,omitempty" max:"4096"`
	Rest *value.Dict `wire:"*"`
}

// BrinePeer says that the sender is a Brine master.
type BrinePeer struct {
	Protocol int64       `wire:"protocol"`
	Answer   bool        `wire:"answer"` // it answers a message of the receiver
	Rest     *value.Dict `wire:"*"`
}

// PeerEvent is the sealed body of an event.
type PeerEvent struct {
	Payload *value.Dict `wire:"event_payload"`
	Rest    *value.Dict `wire:"*"`
}
