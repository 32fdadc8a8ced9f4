package wire

import "brine/internal/py/value"

// This conversation is Brine's own: a minion requests missed jobs from a Brine
// master, and reports the jobs that it runs. Stock masters are not asked.

// Missed is the request _brine_missed: the jobs after the number After.
type Missed struct {
	Cmd   string `wire:"cmd" max:"64"`
	ID    string `wire:"id,omitempty" max:"1024"`
	After int64  `wire:"after"`
	// Syndic means that a syndic asks, for its minions.
	Syndic bool        `wire:"syndic,omitempty"`
	Rest   *value.Dict `wire:"*"`
}

// MissedJobs is the answer to Missed. More means that there are further jobs
// after After.
type MissedJobs struct {
	Jobs  *value.List `wire:"jobs,required"` // of Job
	After int64       `wire:"after"`
	More  bool        `wire:"more"`
	Rest  *value.Dict `wire:"*"`
}

// AboutJob is a request about one job: _brine_record makes the master record that
// the job starts, and _brine_published requests its SignedRecord.
type AboutJob struct {
	Cmd  string      `wire:"cmd" max:"64"`
	ID   string      `wire:"id,omitempty" max:"1024"`
	JID  string      `wire:"jid" max:"64"`
	Rest *value.Dict `wire:"*"`
}

// Recorded is the answer to _brine_record.
type Recorded struct {
	Recorded bool        `wire:"recorded"`
	Rest     *value.Dict `wire:"*"`
}

// PublishedRecord is the answer to _brine_published: an encoded SignedRecord.
type PublishedRecord struct {
	Record []byte      `wire:"record,omitempty"`
	Rest   *value.Dict `wire:"*"`
}

// RunningJobs is the request _brine_running: ids of jobs that the minion runs.
type RunningJobs struct {
	Cmd  string      `wire:"cmd" max:"64"`
	ID   string      `wire:"id,omitempty" max:"1024"`
	JIDs *value.List `wire:"jids"`
	Rest *value.Dict `wire:"*"`
}

// NotStored is the answer to a return that the master could not store: the minion
// keeps it and sends it again.
type NotStored struct {
	Reason any         `wire:"brine_keep_return,required"`
	Rest   *value.Dict `wire:"*"`
}
