package outbox

import (
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// The following are the journal records with several keys.

// begunNote is a started job. To are the masters that published it, Processes the processes
// that it started. Rest has the data for its return.
type begunNote struct {
	JID       string      `wire:"jid"`
	To        any         `wire:"to,omitempty"`
	Processes any         `wire:"processes,omitempty"` // a list of processNote
	Rest      *value.Dict `wire:"*"`
}

// processNote is a process that a job started.
type processNote struct {
	JID   string      `wire:"jid,omitempty"`
	PID   int64       `wire:"pid"`
	Start int64       `wire:"start"`
	Rest  *value.Dict `wire:"*"`
}

// returnNote is a return for the masters To. Taken means that some master has accepted it.
type returnNote struct {
	To    any         `wire:"to"`
	Since int64       `wire:"since"` // Unix seconds
	Taken bool        `wire:"taken"`
	Load  *value.Dict `wire:"load"`
	Rest  *value.Dict `wire:"*"`
}

// deliveredNote means that a master has accepted a return. To is "" for a master that did
// not publish the job.
type deliveredNote struct {
	JID  string      `wire:"jid"`
	To   string      `wire:"to"`
	Rest *value.Dict `wire:"*"`
}

// message is a queued message: the load, and the keys that the queue reads.
type message struct {
	load *value.Dict
	head wire.Head
}

func newMessage(load *value.Dict) *message {
	m := &message{load: load}
	wire.View(load, &m.head)
	return m
}

// jidOf returns the job id of a return.
func jidOf(ret *value.Dict) string { return newMessage(ret).head.JID }

// isReturn reports whether the message is a return: then the journal may have it, too.
func (m *message) isReturn() bool { return m.head.Cmd == "_return" }
