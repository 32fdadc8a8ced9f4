package wire

import "brine/internal/py/value"

// Low is a chunk of low data, with which a user of salt-api makes a client call a
// function. Source: Salt's NetapiClient. For runners and wheel functions the keys
// that are not declared here are keywords.
type Low struct {
	Client  any    `wire:"client"`
	Fun     any    `wire:"fun"`
	Tgt     any    `wire:"tgt,omitempty"`
	TgtType string `wire:"tgt_type,omitempty"`
	Arg     any    `wire:"arg,omitempty"`
	Kwarg   any    `wire:"kwarg,omitempty"`
	Ret     string `wire:"ret,omitempty"`
	JID     string `wire:"jid,omitempty"`
	// Timeout and GatherJobTimeout are in seconds.
	Timeout          any         `wire:"timeout,omitempty"`
	GatherJobTimeout any         `wire:"gather_job_timeout,omitempty"`
	FullReturn       bool        `wire:"full_return,omitempty"`
	Batch            any         `wire:"batch,omitempty"`
	Subset           any         `wire:"subset,omitempty"`
	Rest             *value.Dict `wire:"*"`
}
