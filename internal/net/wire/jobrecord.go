package wire

import "brine/internal/py/value"

// SignedRecord is a JobRecord, encoded and signed by the master that published
// the job. The minion gets it and forwards it to another master with its return.
type SignedRecord struct {
	Record []byte      `wire:"record,required" max:"131072"`
	Sig    []byte      `wire:"sig,required" max:"4096"`
	Rest   *value.Dict `wire:"*"`
}

// JobRecord is what a master attests to another one about a job that it published,
// through the minion that ran it. It contains nothing that the publication did not
// contain.
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
	// Delimiter is the delimiter of the target, "" for the default.
	Delimiter string      `wire:"delimiter,omitempty" max:"16"`
	Rest      *value.Dict `wire:"*"`
}

// Parcel is a job or a return on its way to the server of a returner, as it waits on
// disk.
type Parcel struct {
	Kind string      `wire:"kind"` // "load" or "return"
	JID  string      `wire:"jid"`
	Data *value.Dict `wire:"data"`
	Rest *value.Dict `wire:"*"`
}
