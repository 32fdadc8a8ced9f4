package wire

import "brine/internal/py/value"

// Messages by which two members authenticate each other. Package memberauth documents their order,
// and what the signatures cover.

// Hello is the first message of the dialling master.
type Hello struct {
	Nonce string      `wire:"nonce" max:"1024"`
	Facts *value.Dict `wire:"facts,required"` // a Facts
	Rest  *value.Dict `wire:"*"`
}

// Reply is the answer to a Hello.
type Reply struct {
	Nonce string      `wire:"nonce" max:"1024"`
	Facts *value.Dict `wire:"facts,required"` // a Facts
	Sig   []byte      `wire:"sig,omitempty" max:"4096"`
	Rest  *value.Dict `wire:"*"`
}

// Facts are the settings that the sender compares with those of the other master.
type Facts struct {
	ID       string   `wire:"id" max:"1024"`
	Cluster  string   `wire:"cluster" max:"1024"`
	Peers    []string `wire:"peers" max:"4096"`
	Key      string   `wire:"key" max:"1024"` // fingerprint of the cluster's public key
	HashType string   `wire:"hash_type" max:"64"`
	Version  string   `wire:"version" max:"1024"`
	Protocol int64    `wire:"protocol"`
	Isolated bool     `wire:"isolated"`
	Proof    string   `wire:"proof" max:"1024"`
	// Now is the time of the sender in Unix seconds, as a float.
	Now any `wire:"now"`
	// Refusals is the version of refusal codes; missing in releases without them.
	Refusals int64       `wire:"refusals"`
	Rest     *value.Dict `wire:"*"`
}

// Key is the last message of the dialling master. The field Key is the session key, encrypted for
// the other master; empty inside TLS.
type Key struct {
	Key     []byte      `wire:"key" max:"4096"`
	Proof   string      `wire:"proof" max:"1024"`
	Process string      `wire:"inc" max:"1024"` // name of the sending process
	Sig     []byte      `wire:"sig" max:"4096"`
	Rest    *value.Dict `wire:"*"`
}

// Ready is the answer to a Key.
type Ready struct {
	Rest *value.Dict `wire:"*"`
}
