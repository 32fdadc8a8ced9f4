package wire

import "brine/internal/py/value"

// Job is a job as a master publishes it to its minions. Source: Salt's
// ClearFuncs._prep_pub. The minion's records of running jobs have the same keys,
// and those below User.
type Job struct {
	Fun       any    `wire:"fun,required"` // a name, or a list of names with Arg a list of lists
	Arg       any    `wire:"arg,required"`
	Tgt       any    `wire:"tgt,required"`
	JID       string `wire:"jid,required" max:"64"`
	Ret       any    `wire:"ret,omitempty"` // names of returners with commas
	MasterID  any    `wire:"master_id,omitempty"`
	Delimiter string `wire:"delimiter,omitempty" max:"1024"` // of the target, "" for the default
	ID        any    `wire:"id,omitempty"`
	TgtType   string `wire:"tgt_type,omitempty" max:"1024"`
	To        any    `wire:"to,omitempty"`
	// The following are keywords of the publish request.
	RetConfig       any `wire:"ret_config,omitempty"`
	Metadata        any `wire:"metadata,omitempty"`
	ModuleExecutors any `wire:"module_executors,omitempty"`
	ExecutorOpts    any `wire:"executor_opts,omitempty"`
	RetKwargs       any `wire:"ret_kwargs,omitempty"`
	User            any `wire:"user,omitempty"`
	// Schedule is the name of the scheduled job that started it.
	Schedule any `wire:"schedule,omitempty"`
	// Trace is the place of the job in the trace of another one (Brine only).
	Trace string `wire:"brine_trace,omitempty" max:"128"`
	// PID is the process that runs it.
	PID  int64       `wire:"pid,omitempty"`
	Rest *value.Dict `wire:"*"`
}

// Args returns the arguments, or a list for each function.
func (j *Job) Args() []any { return value.Items(j.Arg) }
