package wire

import "brine/internal/py/value"

// Run is the unencrypted request that starts a runner. The credentials are keys
// of the request itself. Source: Salt's ClearFuncs.runner.
type Run struct {
	Cmd string `wire:"cmd" max:"64"`
	Fun string `wire:"fun" max:"1024"`
	// Kwarg has the arguments: {arg, kwarg}.
	Kwarg *value.Dict `wire:"kwarg"`
	JID   string      `wire:"jid,omitempty" max:"64"`
	// The following are Brine's own. SkipGrains hides the master's grains from the
	// function; Lenient drops keywords that the function does not declare; Cluster
	// runs it once in the whole cluster, and again elsewhere if Repeatable.
	SkipGrains bool `wire:"skip_grains,omitempty"`
	Lenient    bool `wire:"lenient,omitempty"`
	Cluster    bool `wire:"cluster,omitempty"`
	Repeatable bool `wire:"repeatable,omitempty"`
	// Prints requests events with what a function in Python prints.
	Prints bool `wire:"prints,omitempty"`
	// Trace is the place of the run in the trace of another one, in requests of the master itself.
	Trace string      `wire:"brine_trace,omitempty" max:"128"`
	Rest  *value.Dict `wire:"*"`
}

// EventPrint is the end of the tag of events with what a runner in Python prints.
const EventPrint = "print"

// Printed is the data of such an event. Stream is "stdout" or "stderr".
type Printed struct {
	Stream string `wire:"stream" max:"16"`
	Text   string `wire:"text"`
}

// Look is the unencrypted request of a console for a function of the runner fleet,
// which is answered at once, without a job. The credentials are keys of the request
// itself. It is Brine's own.
type Look struct {
	Cmd   string      `wire:"cmd" max:"64"`
	Fun   string      `wire:"fun" max:"1024"`
	Kwarg *value.Dict `wire:"kwarg"`
	Rest  *value.Dict `wire:"*"`
}

// Looked is the answer to a Look.
type Looked struct {
	Return any         `wire:"return"`
	Rest   *value.Dict `wire:"*"`
}

// NotFoundError is the name of the failure if what a Look asks for does not exist.
const NotFoundError = "NotFound"

// UnavailableError is the name of the failure if what a Look asks for exists, and cannot be got now.
const UnavailableError = "Unavailable"

// Arguments are the arguments of a Run.
type Arguments struct {
	Arg   *value.List `wire:"arg"`
	Kwarg *value.Dict `wire:"kwarg"`
	// Kwargs is what some clients send instead of Kwarg.
	Kwargs *value.Dict `wire:"kwargs,omitempty"`
	Rest   *value.Dict `wire:"*"`
}

// Started is the answer to a Run: the tags of the runner's events begin with
// Tag.
type Started struct {
	JID  string      `wire:"jid"`
	Tag  string      `wire:"tag"`
	Rest *value.Dict `wire:"*"`
}

// Wheel is the unencrypted request that runs a wheel function. The credentials
// are keys of the request itself. Source: Salt's ClearFuncs.wheel.
type Wheel struct {
	Cmd   string      `wire:"cmd" max:"64"`
	Fun   string      `wire:"fun" max:"1024"`
	Arg   *value.List `wire:"arg"`
	Kwarg *value.Dict `wire:"kwarg"`
	Rest  *value.Dict `wire:"*"`
}

// Ran is the data of the last event of a runner or wheel function.
type Ran struct {
	Fun     string      `wire:"fun"`
	JID     string      `wire:"jid"`
	User    any         `wire:"user,omitempty"`
	Return  any         `wire:"return"`
	Success any         `wire:"success"`
	Rest    *value.Dict `wire:"*"`
}

// WheelAnswer is the answer to a Wheel: the data and the tag of its last event.
type WheelAnswer struct {
	Data *value.Dict `wire:"data"` // a Ran
	Tag  string      `wire:"tag,omitempty"`
	Rest *value.Dict `wire:"*"`
}
