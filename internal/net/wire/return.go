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

// JobEvent is an event of a job that is no return: who is to return it, or its
// state on one minion.
type JobEvent struct {
	ID      string      `wire:"id,omitempty" max:"1024"`
	State   string      `wire:"state,omitempty" max:"64"`
	Minions *value.List `wire:"minions,omitempty"`
	Missing *value.List `wire:"missing,omitempty"`
	Error   any         `wire:"error,omitempty"`
	Rest    *value.Dict `wire:"*"`
}
