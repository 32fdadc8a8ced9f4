package wire

import "brine/internal/py/value"

// Return is the result of a job on a minion: the load of a _return request, and
// the event that masters fire for it. Source: Salt's
// Minion._prepare_return_pub.
type Return struct {
	Cmd     string      `wire:"cmd,omitempty" max:"64"`
	ID      string      `wire:"id" max:"1024"`
	Success any         `wire:"success,omitempty"`
	Return  any         `wire:"return,required"`
	Retcode any         `wire:"retcode,omitempty"` // a number, or one per function
	JID     string      `wire:"jid" max:"64"`
	Fun     any         `wire:"fun,omitempty"`
	FunArgs any         `wire:"fun_args,omitempty"`
	Out     any         `wire:"out,omitempty"` // name of an outputter
	Rest    *value.Dict `wire:"*"`
}

// JobEvent is an event of a job that is no return: who is to return it (lists
// of texts), or its state on one minion (a text). On stock masters any minion
// can fire such events, with values of any type.
type JobEvent struct {
	ID      any         `wire:"id,omitempty"`
	State   any         `wire:"state,omitempty"`
	Minions any         `wire:"minions,omitempty"`
	Missing any         `wire:"missing,omitempty"`
	Error   any         `wire:"error,omitempty"`
	Rest    *value.Dict `wire:"*"`
}
