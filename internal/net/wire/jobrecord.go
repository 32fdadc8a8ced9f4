package wire

import "brine/internal/py/value"

// SignedRecord is a JobRecord as the master that published the job gives it to a
// minion, encoded and signed with its key, and as the minion hands it to another
// master with its return.
type SignedRecord struct {
	Record []byte      `wire:"record,required" max:"131072"`
	Sig    []byte      `wire:"sig,required" max:"4096"`
	Rest   *value.Dict `wire:"*"`
}

// JobRecord is what a master tells another one of a job that it has published, by
// way of the minion that ran it. It says nothing that the publication has not told
// the minion.
type JobRecord struct {
	JID      string      `wire:"jid,required" max:"64"`
	Master   string      `wire:"master,omitempty" max:"1024"` // its id
	Fun      any         `wire:"fun,required"`                // a name, or a list of names with Arg a list of lists
	Arg      *value.List `wire:"arg,omitempty"`
	Tgt      any         `wire:"tgt,required"`
	TgtType  string      `wire:"tgt_type,omitempty" max:"64"`
	Ret      string      `wire:"ret,omitempty" max:"4096"`
	User     string      `wire:"user,omitempty" max:"1024"`
	Metadata *value.Dict `wire:"metadata,omitempty"`
	// Delimiter is that of the target, "" for the usual one.
	Delimiter string      `wire:"delimiter,omitempty" max:"16"`
	Rest      *value.Dict `wire:"*"`
}
