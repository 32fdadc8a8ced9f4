package wire

import "brine/internal/py/value"

// The items of Messages. K is the kind.

// Kinds of items.
const (
	KindJob    = "job"
	KindEvent  = "event"
	KindReturn = "ret" // an event whose tag follows from its data
	KindNote   = "note"
)

// ItemKind has the key that distinguishes items.
type ItemKind struct {
	K string `wire:"k"`
}

// JobItem is a job that the sender has published.
type JobItem struct {
	K   string      `wire:"k"`
	JID string      `wire:"jid"`
	Job *value.Dict `wire:"job"`
	// Minions are the ids; nil if the target is not resolved.
	Minions any         `wire:"minions"`
	Until   int64       `wire:"until"` // Unix milliseconds
	From    string      `wire:"from"`
	Rest    *value.Dict `wire:"*"`
}

// EventItem is an event of the sender's bus. A KindReturn has no Tag.
type EventItem struct {
	K    string      `wire:"k"`
	Tag  string      `wire:"tag,omitempty"`
	Data *value.Dict `wire:"data"`
	Rest *value.Dict `wire:"*"`
}

// ReturnKey has the fields of a return from which its tag is built.
type ReturnKey struct {
	JID string `wire:"jid"`
	ID  string `wire:"id"`
}

// NoteItem is a note about one minion.
type NoteItem struct {
	K    string      `wire:"k"`
	Note string      `wire:"note"`
	ID   string      `wire:"id"`
	Rest *value.Dict `wire:"*"`
}
