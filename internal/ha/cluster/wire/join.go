package wire

import "brine/internal/py/value"

// The messages by which a master without the keys of its cluster joins it at a
// member.

// Discover is the first message of the master that joins.
type Discover struct {
	ID       string      `wire:"id" max:"1024"`
	Cluster  string      `wire:"cluster" max:"1024"`
	Protocol int64       `wire:"protocol"`
	Nonce    string      `wire:"nonce" max:"1024"`
	Pub      []byte      `wire:"pub" max:"16384"` // PEM
	Rest     *value.Dict `wire:"*"`
}

// DiscoverReply is the member's answer to a Discover. Sig is made with the key of
// the cluster, and covers the message without it.
type DiscoverReply struct {
	ID         string      `wire:"id" max:"1024"`
	Nonce      string      `wire:"nonce" max:"1024"`
	Pub        []byte      `wire:"pub" max:"16384"`         // PEM
	ClusterPub []byte      `wire:"cluster_pub" max:"16384"` // PEM
	Sig        []byte      `wire:"sig,omitempty" max:"4096"`
	Rest       *value.Dict `wire:"*"`
}

// Join proves that the master that joins knows the secret. Key is the key that
// seals the answer, encrypted for the member.
type Join struct {
	Key   []byte      `wire:"key" max:"4096"`
	Proof []byte      `wire:"proof" max:"1024"`
	Sig   []byte      `wire:"sig" max:"4096"`
	Rest  *value.Dict `wire:"*"`
}

// JoinReply is the answer to a Join: a sealed Welcome.
type JoinReply struct {
	Sealed []byte      `wire:"sealed" max:"4194304"`
	Rest   *value.Dict `wire:"*"`
}

// Welcome contains the keys for a new member.
type Welcome struct {
	ClusterPEM []byte `wire:"cluster_pem" max:"65536"`
	ClusterPub []byte `wire:"cluster_pub" max:"16384"`
	AES        string `wire:"aes" max:"1024"`
	// Sessions is the secret of session keys, and Rotation the endorsements of the
	// cluster's key (JSON). Members of older releases send neither.
	Sessions string `wire:"sessions,omitempty" max:"1024"`
	Rotation []byte `wire:"rotation,omitempty" max:"1048576"`
	// Peers has the public keys of all members (PEM) by id.
	Peers *value.Dict `wire:"peers"`
	Proof []byte      `wire:"proof,omitempty" max:"1024"`
	Rest  *value.Dict `wire:"*"`
}
