package wire

import "brine/internal/py/value"

// Return is the result of a job on a minion: the load of a _return request, and
// the event that masters fire for it. Source: Salt's
// Minion._prepare_return_pub.
type Return struct {
	Cmd     string `wire:"cmd,omitempty" max:"64"`
	ID      string `wire:"id" max:"1024"`
	Success any    `wire:"success,omitempty"`
	Return  any    `wire:"return,required"`
	Retcode any    `wire:"retcode,omitempty"` // a number, or one per function
	JID     string `wire:"jid" max:"64"`
	Fun     any    `wire:"fun,omitempty"`
	FunArgs any    `wire:"fun_args,omitempty"`
	Out     any    `wire:"out,omitempty"` // name of an outputter
	User    any    `wire:"user,omitempty"`
	// MasterID is the master that published the job.
	MasterID any `wire:"master_id,omitempty"`
	// Schedule and Tgt are set for jobs that the minion started itself.
	Schedule any `wire:"schedule,omitempty"`
	Tgt      any `wire:"tgt,omitempty"`
	// CallJID is the id that a Brine salt-call proposes for its job.
	CallJID string      `wire:"call_jid,omitempty"`
	Stamp   any         `wire:"_stamp,omitempty"`
	Rest    *value.Dict `wire:"*"`
}

// StateResult is the result of one state in the return of a run of states.
type StateResult struct {
	StartTime string      `wire:"start_time"` // time of day on the minion
	Duration  any         `wire:"duration"`   // milliseconds
	Result    any         `wire:"result"`
	SLS       string      `wire:"__sls__,omitempty"`
	Rest      *value.Dict `wire:"*"`
}

// Succeeded reports whether the job did what it should. A run of states with a failed
// state has a retcode, but may have success.
func (r *Return) Succeeded() bool {
	code, isInt := r.Retcode.(int64)
	success, isBool := r.Success.(bool)
	return (!isInt || code == 0) && (!isBool || success)
}

// JobEvent is an event of a job that is not a return: its expected minions
// (lists of strings), or its state on one minion (a string). On stock masters
// any minion can fire such events, with values of any type.
type JobEvent struct {
	ID      any         `wire:"id,omitempty"`
	JID     any         `wire:"jid,omitempty"`
	State   any         `wire:"state,omitempty"`
	Minions any         `wire:"minions,omitempty"`
	Missing any         `wire:"missing,omitempty"`
	Error   any         `wire:"error,omitempty"`
	Rest    *value.Dict `wire:"*"`
}

// Head has the keys that distinguish a minion's queued requests.
type Head struct {
	Cmd string `wire:"cmd,omitempty"`
	JID string `wire:"jid,omitempty"`
}

// SyndicReturn is the request _syndic_return: the returns of one job that a syndic
// collected from its minions.
type SyndicReturn struct {
	Cmd  string      `wire:"cmd,omitempty" max:"64"`
	ID   any         `wire:"id,omitempty"`
	Load any         `wire:"load"` // a list of SyndicEntry
	Rest *value.Dict `wire:"*"`
}

// SyndicEntry has the returns of one job by minion id.
type SyndicEntry struct {
	JID      string `wire:"jid" max:"64"`
	Fun      any    `wire:"fun,omitempty"`
	Return   any    `wire:"return"`
	MasterID any    `wire:"master_id,omitempty"`
	Out      any    `wire:"out,omitempty"` // name of an outputter
	// Load describes the job to a master that did not publish it; otherwise it is empty.
	Load *value.Dict `wire:"load,omitempty"`
	Rest *value.Dict `wire:"*"`
}
