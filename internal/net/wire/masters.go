package wire

import "brine/internal/py/value"

// This conversation is Brine's own: queries between masters of a cluster, and their answers.
// Package cluster transmits them.

// SeenReport is the query seen: the nonces of requests that the master From has served since it
// started as Boot.
type SeenReport struct {
	From string      `wire:"from" max:"1024"`
	Boot string      `wire:"boot" max:"64"`
	Seen *value.List `wire:"seen"`
	Rest *value.Dict `wire:"*"`
}

// FetchedReport is the query fetched: the state of each source that the sender fetches. Leads means
// that it fetches for all masters.
type FetchedReport struct {
	Leads  bool        `wire:"leads"`
	States *value.Dict `wire:"states"` // strings by name
	Rest   *value.Dict `wire:"*"`
}

// DepartedQuestion asks another master which of its minions have left: of IDs, or of all if that is
// missing.
type DepartedQuestion struct {
	IDs  *value.List `wire:"ids,omitempty"`
	Rest *value.Dict `wire:"*"`
}

// DepartedAnswer has the minions that have left the sender, with the seconds of the Unix time at which
// that was noticed, and those of the question that are connected to it.
type DepartedAnswer struct {
	Left *value.Dict `wire:"left"`
	Here *value.List `wire:"here"`
	Rest *value.Dict `wire:"*"`
}

// ApprovalDecision asks the master whose salt-api has a job that needs approval to record a decision on it.
type ApprovalDecision struct {
	ID    string      `wire:"id" max:"64"`
	State string      `wire:"state" max:"64"`
	By    string      `wire:"by" max:"1024"`
	Rest  *value.Dict `wire:"*"`
}

// ApprovalDecided is the answer to an ApprovalDecision: Known says that the sender has the job, and Refused why it does not wait any more.
type ApprovalDecided struct {
	Known   bool        `wire:"known"`
	Refused string      `wire:"refused,omitempty"`
	Rest    *value.Dict `wire:"*"`
}

// StageQuestion asks whether the receiver has a revision. If not, the receiver fetches it.
type StageQuestion struct {
	ID   string      `wire:"id" max:"1024"`
	Rest *value.Dict `wire:"*"`
}

// StageAnswer is the answer to a StageQuestion.
type StageAnswer struct {
	Serves  string      `wire:"serves"` // the revision that the master serves
	Has     bool        `wire:"has"`
	Failure string      `wire:"failure"` // why it has not got the revision, "" for none
	Rest    *value.Dict `wire:"*"`
}

// ContentsQuestion asks for parts of contents: pairs of a hash and an offset.
type ContentsQuestion struct {
	Wants *value.List `wire:"wants"`
	Rest  *value.Dict `wire:"*"`
}

// ContentsAnswer has a part for each pair of the question, None if the sender lacks it.
type ContentsAnswer struct {
	Parts *value.List `wire:"parts"`
	Rest  *value.Dict `wire:"*"`
}

// ChosenRevision is the record of a revision of files that all masters serve.
type ChosenRevision struct {
	ID    string      `wire:"id"`
	How   string      `wire:"how"`
	Files int64       `wire:"files"`
	Bytes int64       `wire:"bytes"`
	Rest  *value.Dict `wire:"*"`
}

// Digest is the answer about replicated data: sums by name and section. Error names what could not
// be read.
type Digest struct {
	Error string      `wire:"error,omitempty"`
	Rest  *value.Dict `wire:"*"` // the sections
}

// ReturnsQuestion asks another master for the contents of returns.
type ReturnsQuestion struct {
	Names *value.List `wire:"names"` // job id, NUL, minion
	Rest  *value.Dict `wire:"*"`
}

// ReturnsAnswer has the contents that the sender has.
type ReturnsAnswer struct {
	Contents *value.List `wire:"contents"` // pairs of a name and an encoded return
	// Done is the number of names that the answer covers.
	Done int64       `wire:"done"`
	Rest *value.Dict `wire:"*"`
}

// ReleaseAnswer says whether the sender can do without the asking master.
type ReleaseAnswer struct {
	Done bool        `wire:"done"`
	Rest *value.Dict `wire:"*"`
}

// SumsMessage is a query about checksums of replicated records, or its answer. Package replica
// defines the contents.
type SumsMessage struct {
	Question []byte      `wire:"question,omitempty"`
	Answer   []byte      `wire:"answer,omitempty"`
	Rest     *value.Dict `wire:"*"`
}

// MasterLoad is how busy a master is.
type MasterLoad struct {
	Version string `wire:"version,omitempty" max:"256"`
	Since   any    `wire:"since,omitempty"`
	CPU     int64  `wire:"cpu"`     // of its process, in percent of a core
	Machine int64  `wire:"machine"` // of all cores of the machine, in percent
	Cores   int64  `wire:"cores"`
	Memory  int64  `wire:"memory"` // of its process, in bytes
	RAM     int64  `wire:"ram"`    // of the machine
	// Requests are those of 1000 seconds, Mean and Most the time to their answers in microseconds: Most is that of all but the longest twentieth.
	Requests int64       `wire:"requests"`
	Mean     int64       `wire:"mean"`
	Most     int64       `wire:"most"`
	Leads    bool        `wire:"leads"`
	Revision string      `wire:"revision,omitempty" max:"256"` // of its files
	Rest     *value.Dict `wire:"*"`
}

// AuditQuestion asks for the newest records of an audit log that match the globs.
type AuditQuestion struct {
	User   string `wire:"user" max:"1024"`
	Fun    string `wire:"fun" max:"1024"`
	Result string `wire:"result" max:"1024"`
	Limit  int64  `wire:"limit"`
	// Verify asks for a report about the chain of records instead.
	Verify bool        `wire:"verify"`
	Rest   *value.Dict `wire:"*"`
}

// AuditAnswer has the records, newest first, or the report. Failure is why they cannot be read, "" for none.
type AuditAnswer struct {
	Records *value.List `wire:"records"`
	Chain   *value.Dict `wire:"chain"`
	Failure string      `wire:"failure" max:"4096"`
	Rest    *value.Dict `wire:"*"`
}
