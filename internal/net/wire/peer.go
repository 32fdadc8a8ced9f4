package wire

import "brine/internal/py/value"

// PeerPublish is the request with which a minion publishes to others (minion_pub,
// minion_publish) or runs a runner (minion_runner), as far as the options peer and
// peer_run grant it. Source: Salt's execution module publish.
type PeerPublish struct {
	Cmd     string `wire:"cmd" max:"64"`
	Fun     string `wire:"fun" max:"65536"` // several names are separated by commas
	Arg     any    `wire:"arg,omitempty"`
	Tgt     any    `wire:"tgt,omitempty"`
	TgtType string `wire:"tgt_type,omitempty" max:"1024"`
	Ret     any    `wire:"ret,omitempty"`
	// Tmo and Timeout are how long to wait for returns, in seconds.
	Tmo     any `wire:"tmo,omitempty"`
	Timeout any `wire:"timeout,omitempty"`
	// Form is "full" or "clean".
	Form string `wire:"form,omitempty" max:"64"`
	ID   any    `wire:"id,omitempty"`
	// NoParse names keywords whose values are not parsed as YAML.
	NoParse any         `wire:"no_parse,omitempty"`
	Rest    *value.Dict `wire:"*"`
}

// PeerReturns is the request pub_ret for the returns of a job of the minion.
type PeerReturns struct {
	Cmd  string      `wire:"cmd" max:"64"`
	ID   any         `wire:"id,omitempty"`
	JID  string      `wire:"jid" max:"64"`
	Rest *value.Dict `wire:"*"`
}
