package wire

import "brine/internal/py/value"

// Mine is the request _mine, with which a minion stores data for other minions;
// Clear replaces its earlier data. Source: Salt's execution module mine.
type Mine struct {
	Cmd   string      `wire:"cmd" max:"64"`
	Data  any         `wire:"data"`
	ID    any         `wire:"id,omitempty"`
	Clear bool        `wire:"clear,omitempty"`
	Rest  *value.Dict `wire:"*"`
}

// MineGet is the request _mine_get for the data of other minions.
type MineGet struct {
	Cmd string `wire:"cmd" max:"64"`
	ID  any    `wire:"id,omitempty"`
	Tgt any    `wire:"tgt"`
	Fun any    `wire:"fun"` // names with commas, or a list
	// TgtType is ExprForm in old requests.
	TgtType   string      `wire:"tgt_type,omitempty"`
	ExprForm  string      `wire:"expr_form,omitempty"`
	Delimiter string      `wire:"delimiter,omitempty"`
	Rest      *value.Dict `wire:"*"`
}

// MineDelete is the request _mine_delete for the data of one function.
type MineDelete struct {
	Cmd  string      `wire:"cmd" max:"64"`
	Fun  string      `wire:"fun" max:"1024"`
	ID   any         `wire:"id,omitempty"`
	Rest *value.Dict `wire:"*"`
}

// MineEntry is stored data whose owner restricts access to the minions that
// match AllowTgt.
type MineEntry struct {
	Data         any         `wire:"__data__"`
	ACL          any         `wire:"__saltmine_acl__,required"`
	AllowTgt     any         `wire:"allow_tgt,omitempty"`
	AllowTgtType any         `wire:"allow_tgt_type,omitempty"`
	Rest         *value.Dict `wire:"*"`
}
