package wire

import "brine/internal/py/value"

// MinionEvent is the request _minion_event, with which a minion fires one or
// several events on the master's bus. Source: Salt's
// Minion._fire_master_prepare.
type MinionEvent struct {
	ID  any    `wire:"id,omitempty"`
	Cmd string `wire:"cmd,omitempty" max:"64"`
	// Pretag is the tag under which each event of a list is fired again.
	Pretag any         `wire:"pretag"`
	Tag    string      `wire:"tag,omitempty"`
	Data   any         `wire:"data,omitempty"`
	Events any         `wire:"events,omitempty"` // a list of Fired
	Rest   *value.Dict `wire:"*"`
}

// Fired is an event in a MinionEvent with several.
type Fired struct {
	Tag  string      `wire:"tag,omitempty"`
	Data any         `wire:"data,omitempty"`
	Rest *value.Dict `wire:"*"`
}

// Present is the data of the event salt/presence/present, and of the reports
// between masters of a cluster.
type Present struct {
	Present any         `wire:"present,omitempty"` // a list of ids
	Rest    *value.Dict `wire:"*"`
}

// AuthEvent is the data of the event salt/auth.
type AuthEvent struct {
	Result any         `wire:"result,omitempty"`
	Act    string      `wire:"act,omitempty" max:"64"`
	ID     string      `wire:"id,omitempty" max:"1024"`
	Pub    any         `wire:"pub,omitempty"`
	Rest   *value.Dict `wire:"*"`
}
