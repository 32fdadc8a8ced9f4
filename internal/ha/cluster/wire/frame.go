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

// FrameHead has the keys by which frames are told apart. What is not nil, or not
// "", is a key of the message; a frame may be an Ack and a Wanted at once.
type FrameHead struct {
	Number    int64  `wire:"n"`
	Direction string `wire:"d"`
	Ask       any    `wire:"ask,omitempty"`  // a Question
	Re        any    `wire:"re,omitempty"`   // an Answer
	Rep       string `wire:"rep,omitempty"`  // Changes, or Known
	Ack       any    `wire:"ack,omitempty"`  // an Ack
	Want      any    `wire:"want,omitempty"` // a Wanted
}

// Start is the first frame: what the sender has of the other master.
type Start struct {
	Last int64       `wire:"last"` // number of the last message of this process
	Want *value.List `wire:"want"` // as in Wanted
	// Vec has a vector (numbers by origins) for each replicated stream.
	Vec *value.Dict `wire:"vec,omitempty"`
	// Live says that the sender supports lists of valid changes.
	Live bool        `wire:"live,omitempty"`
	Rest *value.Dict `wire:"*"`
}

// Messages are numbered from First; none are a sign of life.
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
	Want *value.List `wire:"want"` // of texts
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

// Changes are the changes of one origin between From and To in the stream Rep: as
// Items, or as the list of those that are still valid.
type Changes struct {
	Rep    string      `wire:"rep"`
	Origin string      `wire:"origin"`
	From   int64       `wire:"from"`
	To     int64       `wire:"to"`
	Items  *value.List `wire:"items,omitempty"` // pairs of a number and bytes
	// Live are the bytes of such a list, and Forgotten the number up to which the
	// rest was deleted. Nil: Items count.
	Live      any         `wire:"live,omitempty"`
	Forgotten int64       `wire:"forgotten,omitempty"`
	Rest      *value.Dict `wire:"*"`
}

// Known is the answer to Changes, or says what the sender knows now of the stream Rep.
type Known struct {
	Rep string `wire:"rep"`
	Got int64  `wire:"got,omitempty"` // 1 in an answer
	// Gap says that changes before these are missing, Err why these were not stored.
	Gap  bool        `wire:"gap,omitempty"`
	Err  string      `wire:"err,omitempty"`
	Vec  *value.Dict `wire:"vec"`
	Rest *value.Dict `wire:"*"`
}
