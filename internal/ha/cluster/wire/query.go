package wire

import "brine/internal/py/value"

// Queries between members, and their answers.

// Present is the answer with the minions that are connected to the sender.
type Present struct {
	Present *value.List `wire:"present"` // ids
	Rest    *value.Dict `wire:"*"`
}

// KeyQuestion asks for the private half of the key with a fingerprint.
type KeyQuestion struct {
	Key  string      `wire:"key"`
	Rest *value.Dict `wire:"*"`
}

// KeyAnswer is the answer to a KeyQuestion, empty if the sender has another key.
type KeyAnswer struct {
	PEM  []byte      `wire:"pem,omitempty"`
	Rest *value.Dict `wire:"*"`
}

// Report is a member's report about itself, in addition to the fields that its daemon adds.
type Report struct {
	Roster int64 `wire:"roster"` // its version
	Leads  bool  `wire:"leads"`
	// Secret and Key are fingerprints of the joining secret and of the cluster's key.
	Secret      string      `wire:"secret"`
	Key         string      `wire:"key"`
	Certificate any         `wire:"certificate,omitempty"` // until when it is valid
	Now         int64       `wire:"now"`                   // Unix microseconds
	Rest        *value.Dict `wire:"*"`
}
