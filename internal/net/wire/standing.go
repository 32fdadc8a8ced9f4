package wire

import "brine/internal/py/value"

// This conversation is Brine's own: a minion reports its connections to all masters
// to each of them.

// Standing is the request _brine_standing, and without Cmd and ID the report
// between masters of a cluster, with the time At.
type Standing struct {
	Cmd     string      `wire:"cmd,omitempty" max:"64"`
	ID      string      `wire:"id,omitempty" max:"1024"`
	Mode    string      `wire:"mode"`
	Masters any         `wire:"masters"` // a list of StandingMaster
	Last    *value.Dict `wire:"last,omitempty"`
	At      any         `wire:"at,omitempty"` // Unix seconds
	Rest    *value.Dict `wire:"*"`
}

// StandingMaster is the connection to one master. You marks the receiver; Jobs
// means that the minion runs the jobs of a standby master.
type StandingMaster struct {
	Master string      `wire:"master"`
	State  string      `wire:"state,omitempty"`
	Since  any         `wire:"since,omitempty"` // Unix seconds
	Jobs   bool        `wire:"jobs,omitempty"`
	You    bool        `wire:"you,omitempty"`
	Rest   *value.Dict `wire:"*"`
}

// StandingChange is the last change of the active master.
type StandingChange struct {
	From    string      `wire:"from"`
	To      string      `wire:"to"`
	Reason  string      `wire:"reason,omitempty"`
	Seconds any         `wire:"seconds,omitempty"` // duration of the change
	At      any         `wire:"at,omitempty"`      // Unix seconds
	Rest    *value.Dict `wire:"*"`
}

// StandingAnswer is the answer to a Standing: Key identifies the key for
// publications.
type StandingAnswer struct {
	Key         string `wire:"key"`
	StandbyJobs bool   `wire:"standby_jobs,omitempty"`
	// Members is the version of the list of masters, if there is one.
	Members int64       `wire:"members,omitempty"`
	Rest    *value.Dict `wire:"*"`
}

// MembersAnswer is the answer to _brine_members: the list of masters, signed.
type MembersAnswer struct {
	Members []byte      `wire:"members,omitempty"`
	Rest    *value.Dict `wire:"*"`
}

// IDs is a query between masters of a cluster about some minions.
type IDs struct {
	IDs  any         `wire:"ids"` // a list
	Rest *value.Dict `wire:"*"`
}
