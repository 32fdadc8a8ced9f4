package wire

import "brine/internal/py/value"

// ClusterWork is the replicated record of a runner that a cluster runs once.
// Token is that of the lease under which it was started.
type ClusterWork struct {
	Fun        string `wire:"fun"`
	User       string `wire:"user"`
	Arg        any    `wire:"arg"`
	By         string `wire:"by"` // the master that received the order
	At         int64  `wire:"at"` // time of the order, Unix seconds
	Repeatable bool   `wire:"repeatable"`
	State      string `wire:"state"`
	Token      int64  `wire:"token"`
	Runs       int64  `wire:"runs"`
	// Set when it starts.
	On string `wire:"on,omitempty"` // the master that runs it
	// Set when it ends.
	Ended   int64       `wire:"ended,omitempty"` // Unix seconds
	Success any         `wire:"success,omitempty"`
	Retcode int64       `wire:"retcode,omitempty"`
	Out     string      `wire:"out,omitempty"`
	Return  any         `wire:"return,omitempty"`
	Lost    any         `wire:"lost,omitempty"` // the master that did not end it
	Rest    *value.Dict `wire:"*"`
}
