package wire

import "brine/internal/py/value"

// The frames of two members after the handshake. The dialling master sends
// Messages, Question and Changes; the other one Start, Ack, Wanted, Answer and Known.
// A frame also has its number and its direction.

// Frame is a received frame.
type Frame struct {
	FrameHead
	Body *value.Dict
}

// FrameHead has the keys that distinguish frames. A value other than nil or "" is present; a frame
// may be an Ack and a Wanted at once.
type FrameHead struct {
	Number    int64  `wire:"n"`
	Direction string `wire:"d"`
	Ask       any    `wire:"ask,omitempty"`  // a Question
	Re        any    `wire:"re,omitempty"`   // an Answer
	Rep       string `wire:"rep,omitempty"`  // Changes, or Known
	Ack       any    `wire:"ack,omitempty"`  // an Ack
	Want      any    `wire:"want,omitempty"` // a Wanted
}

// Start is the first frame. It says which messages and changes of the other master the sender has.
type Start struct {
	Last int64       `wire:"last"` // number of the last message of this process
	Want *value.List `wire:"want"` // as in Wanted
	// Vec has a vector (numbers by origins) for each replicated stream.
	Vec *value.Dict `wire:"vec,omitempty"`
	// Live means that the sender supports lists of valid changes.
	Live bool `wire:"live,omitempty"`
	// Short means that the sender supports items without their content.
	Short bool        `wire:"short,omitempty"`
	Rest  *value.Dict `wire:"*"`
}

// Messages are numbered from First; a frame without messages is a keep-alive.
type Messages struct {
	First int64       `wire:"first"`
	Items *value.List `wire:"items"` // encoded: JobItem, EventItem, NoteItem
	Rest  *value.Dict `wire:"*"`
}

// Ack is the number of the last message that the sender has stored.
type Ack struct {
	Ack  int64       `wire:"ack"`
	Rest *value.Dict `wire:"*"`
}

// Wanted has the prefixes of the tags for which the sender has listeners.
type Wanted struct {
	Want *value.List `wire:"want"` // of strings
	Rest *value.Dict `wire:"*"`
}

// Question is a query; the Answer has its number.
type Question struct {
	Number int64       `wire:"ask"`
	What   string      `wire:"what"`
	Arg    *value.Dict `wire:"arg,omitempty"`
	Rest   *value.Dict `wire:"*"`
}

// Answer is the answer to a Question.
type Answer struct {
	Number int64       `wire:"re"`
	Data   *value.Dict `wire:"data"`
	Rest   *value.Dict `wire:"*"`
}

// Changes are the changes of one origin between From and To in the stream Rep: either as Items, or
// as the list of those that are still valid (Live).
type Changes struct {
	Rep    string      `wire:"rep"`
	Origin string      `wire:"origin"`
	From   int64       `wire:"from"`
	To     int64       `wire:"to"`
	Items  *value.List `wire:"items,omitempty"` // pairs of a number and bytes
	// Live is an encoded list of valid changes, and Forgotten the number up to which the others
	// were deleted. If Live is nil, Items is used.
	Live      any         `wire:"live,omitempty"`
	Forgotten int64       `wire:"forgotten,omitempty"`
	Rest      *value.Dict `wire:"*"`
}

// Known is the answer to Changes, or reports which changes of the stream Rep the sender has now.
type Known struct {
	Rep string `wire:"rep"`
	Got int64  `wire:"got,omitempty"` // 1 in an answer
	// Gap means that earlier changes are missing. Err is the reason why the changes were not
	// stored.
	Gap  bool        `wire:"gap,omitempty"`
	Err  string      `wire:"err,omitempty"`
	Vec  *value.Dict `wire:"vec"`
	Rest *value.Dict `wire:"*"`
}
