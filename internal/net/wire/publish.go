package wire

import "brine/internal/py/value"

// Publish is the unencrypted request with which a program publishes a job.
// Credentials of an external system and tokens are in Kwargs; without them Key
// is the key of the program's user. Source: Salt's LocalClient._prep_pub.
type Publish struct {
	Cmd string `wire:"cmd" max:"64"`
	Tgt any    `wire:"tgt"`
	Fun any    `wire:"fun"` // a name, or a list of names with Arg a list of lists
	Arg any    `wire:"arg"` // a list
	// Key and User are nil if the program sends none.
	Key     any         `wire:"key,omitempty"`
	TgtType string      `wire:"tgt_type" max:"64"`
	Ret     string      `wire:"ret"`
	JID     string      `wire:"jid" max:"64"`
	Kwargs  *value.Dict `wire:"kwargs,omitempty"`
	User    any         `wire:"user,omitempty"`
	// To is the timeout in seconds, for masters with syndics below them.
	To   any         `wire:"to,omitempty"`
	Rest *value.Dict `wire:"*"`
}

// Published is the load of the answer to a Publish. JID is nil and Error gives
// the reason if no minion matched. Source: Salt's ClearFuncs.publish.
type Published struct {
	JID any `wire:"jid"`
	// Minions and Missing contain strings. Stock masters copy into Missing whatever
	// the request's list of targets contained.
	Minions *value.List `wire:"minions"`
	Missing *value.List `wire:"missing,omitempty"`
	Error   string      `wire:"error,omitempty"`
	// Elsewhere has the minions that another master commands, with that master
	// (Brine only).
	Elsewhere *value.Dict `wire:"elsewhere,omitempty"`
	// Away has the minions that are not connected, with the time at which that was noticed,
	// and Expires the time until which the job is kept for them, in seconds of the Unix time
	// (Brine only).
	Away    *value.Dict `wire:"away,omitempty"`
	Expires any         `wire:"expires,omitempty"`
	// Sites has the state of the job at each site of a federation (Brine only).
	Sites *value.Dict `wire:"sites,omitempty"`
	Rest  *value.Dict `wire:"*"`
}

// PublishedSite is the state of a job at a site: waiting, stored, refused or expired.
type PublishedSite struct {
	State   string      `wire:"state"`
	Reason  string      `wire:"reason,omitempty"`
	Minions int64       `wire:"minions"`
	Rest    *value.Dict `wire:"*"`
}

// ClearReply is an answer {enc: clear, load} to a clear request.
type ClearReply struct {
	Enc  string      `wire:"enc"`
	Load *value.Dict `wire:"load"`
	// Error is a Failure, without a load.
	Error *value.Dict `wire:"error,omitempty"`
	Rest  *value.Dict `wire:"*"`
}

// JobStates requests the states of a job on its minions from a Brine master.
type JobStates struct {
	Cmd  string      `wire:"cmd" max:"64"`
	JID  string      `wire:"jid" max:"64"`
	Key  any         `wire:"key,omitempty"`
	User any         `wire:"user,omitempty"`
	Rest *value.Dict `wire:"*"`
}

// States is the answer to JobStates; stock masters answer with an empty map.
type States struct {
	// States has a state for each minion.
	States *value.Dict `wire:"states"`
	// Delivered are the minions that received the job when they reconnected.
	Delivered *value.List `wire:"delivered"`
	// Expires is until when the job is queued for unreachable minions, in Unix
	// seconds.
	Expires any         `wire:"expires"`
	Rest    *value.Dict `wire:"*"`
}

// Failure is an error in a master's answer, under the key error.
type Failure struct {
	Name    string      `wire:"name"` // name of Salt's exception
	Message string      `wire:"message"`
	Rest    *value.Dict `wire:"*"`
}

// PublishKwargs are the keywords of a Publish that a master reads. Others are not
// sent to minions.
type PublishKwargs struct {
	Delimiter string `wire:"delimiter,omitempty" max:"1024"` // delimiter of the target
	Metadata  any    `wire:"metadata,omitempty"`
	// Expire is how long the job is queued for unreachable minions, in seconds (Brine
	// only).
	Expire          any `wire:"expire,omitempty"`
	MasterID        any `wire:"master_id,omitempty"`
	RetConfig       any `wire:"ret_config,omitempty"`
	RetKwargs       any `wire:"ret_kwargs,omitempty"`
	ModuleExecutors any `wire:"module_executors,omitempty"`
	ExecutorOpts    any `wire:"executor_opts,omitempty"`
	// AuthList has the permissions of the user of the master above, in a syndic's
	// request; without entries that user may do everything.
	AuthList any `wire:"auth_list,omitempty"`
	// SiteSummary asks the sites of a federation for summaries, and no returns (Brine only).
	SiteSummary any `wire:"site_summary,omitempty"`
	// User is the user of the master above, in a syndic's request.
	User any `wire:"user,omitempty"`
	// Trace is the place of the job in the trace of another one. It counts in requests of syndics
	// and of the master itself (Brine only).
	Trace string      `wire:"brine_trace,omitempty" max:"128"`
	Rest  *value.Dict `wire:"*"`
}

// TraceKey is the key of Trace.
const TraceKey = "brine_trace"

// Envelope is an unencrypted request of a program.
type Envelope struct {
	Enc     string      `wire:"enc" max:"64"`
	Load    *value.Dict `wire:"load"`
	Version int64       `wire:"version"`
	Rest    *value.Dict `wire:"*"`
}

// Clear has the keys of an unencrypted request that authenticate a user of the
// master's machine.
type Clear struct {
	Cmd  string      `wire:"cmd" max:"64"`
	Fun  any         `wire:"fun,omitempty"`
	Key  []byte      `wire:"key,omitempty"`
	User string      `wire:"user,omitempty"`
	Rest *value.Dict `wire:"*"`
}
