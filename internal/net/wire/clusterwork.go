package wire

import "brine/internal/py/value"

// ClusterWork is the record of a runner that a cluster runs once, as all of its
// masters have it. Token is that of the lease under which it was begun.
type ClusterWork struct {
	Fun        string `wire:"fun"`
	User       string `wire:"user"`
	Arg        any    `wire:"arg"`
	By         string `wire:"by"` // the master that took the order
	At         int64  `wire:"at"` // Unix seconds of the order
	Repeatable bool   `wire:"repeatable"`
	State      string `wire:"state"`
	Token      int64  `wire:"token"`
	Runs       int64  `wire:"runs"`
	// The following are set when it begins.
	On string `wire:"on,omitempty"` // the master that runs it
	// The following are set when it ends.
	Ended   int64       `wire:"ended,omitempty"` // Unix seconds
	Success any         `wire:"success,omitempty"`
	Retcode int64       `wire:"retcode,omitempty"`
	Out     string      `wire:"out,omitempty"`
	Return  any         `wire:"return,omitempty"`
	Lost    any         `wire:"lost,omitempty"` // the master that did not end it
	Rest    *value.Dict `wire:"*"`
}
