package wire

import "brine/internal/py/value"

// FilePush is the request _file_recv: a part of a file that a minion pushes to the
// master. Source: Salt's execution module cp.
type FilePush struct {
	Cmd  string      `wire:"cmd,omitempty" max:"64"`
	ID   any         `wire:"id,omitempty"`
	Path any         `wire:"path"` // a list of names
	Size any         `wire:"size,omitempty"`
	Loc  any         `wire:"loc"` // offset of the part in the file
	Data []byte      `wire:"data"`
	Rest *value.Dict `wire:"*"`
}

// TopData is the request _master_tops for the top data of master_tops.
type TopData struct {
	// Opts are the minion's options, with its grains.
	Opts *value.Dict `wire:"opts,omitempty"`
	Rest *value.Dict `wire:"*"`
}

// TopOpts are the minion's options that sources of master_tops use.
type TopOpts struct {
	Grains *value.Dict `wire:"grains,omitempty"`
	Rest   *value.Dict `wire:"*"`
}

// MasterOpts is the request _master_opts for the options that matter for
// states.
type MasterOpts struct {
	Cmd     string      `wire:"cmd" max:"64"`
	EnvOnly bool        `wire:"env_only,omitempty"`
	Rest    *value.Dict `wire:"*"`
}
