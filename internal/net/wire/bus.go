package wire

import "brine/internal/py/value"

// ManageBeacons is the event manage_beacons on a minion's own bus, with which
// functions change the beacons. Source: Salt's execution module beacons.
type ManageBeacons struct {
	Func string `wire:"func" max:"64"`
	Name string `wire:"name,omitempty"`
	// BeaconData is the configuration of one beacon.
	BeaconData any `wire:"beacon_data,omitempty"`
	// IncludePillar and IncludeOpts limit a list; None means true.
	IncludePillar any         `wire:"include_pillar,omitempty"`
	IncludeOpts   any         `wire:"include_opts,omitempty"`
	Rest          *value.Dict `wire:"*"`
}

// ManageSchedule is the event manage_schedule on a minion's own bus, with which
// functions change the schedule. Source: Salt's execution module schedule.
type ManageSchedule struct {
	Func string `wire:"func" max:"64"`
	Name string `wire:"name,omitempty"`
	// Schedule is the definition of one job, or a map of them.
	Schedule any    `wire:"schedule,omitempty"`
	Persist  bool   `wire:"persist,omitempty"`
	Where    string `wire:"where,omitempty" max:"64"` // "", "pillar" or "opts"
	// Time and NewTime are times in the format TimeFmt.
	Time    any         `wire:"time,omitempty"`
	NewTime any         `wire:"new_time,omitempty"`
	TimeFmt string      `wire:"time_fmt,omitempty" max:"256"`
	Rest    *value.Dict `wire:"*"`
}

// Refresh is an event that makes a minion collect its grains, pillar or modules
// again. The keys are those of several tags; Notify is Brine's own.
type Refresh struct {
	CleanCache   bool        `wire:"clean_cache,omitempty"`
	ForceRefresh bool        `wire:"force_refresh,omitempty"`
	Notify       bool        `wire:"notify,omitempty"`
	Rest         *value.Dict `wire:"*"`
}

// Refreshed is the event that reports the end of a refresh. Comment is Brine's own.
type Refreshed struct {
	Complete bool        `wire:"complete"`
	Comment  string      `wire:"comment,omitempty"`
	Rest     *value.Dict `wire:"*"`
}

// SetEnviron is the event environ_setenv, with which a function sets environment
// variables of the daemon.
type SetEnviron struct {
	Environ     any         `wire:"environ"`
	FalseUnsets bool        `wire:"false_unsets"`
	ClearAll    bool        `wire:"clear_all"`
	Rest        *value.Dict `wire:"*"`
}
