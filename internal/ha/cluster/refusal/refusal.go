// Package refusal defines the reasons for which one master of a cluster refuses another. A reason consists of a code for the program
// and a text for the operator, which no program interprets. Both are sent in one message:
//
//	{reason: TEXT, code: CODE}
//
// A master announces the version of the codes that it understands (Version) in its facts, so that the signature of a refusal covers the
// code if the receiver can verify that. Releases before the code field send and understand the text only; old.go reads these texts, and
// nothing else does.
package refusal

import (
	"errors"
	"fmt"

	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Version is the version of the codes. A receiver treats codes that it does not know like Other.
const Version = 1

// Code says why a master is refused.
type Code string

// The codes. They are part of the protocol: do not change their values.
const (
	// Other is a reason that needs no special treatment, such as one from a newer version.
	Other Code = "other"
	// NotMember: the receiver of a connection has no key of the other master, in a cluster without a shared directory. A master that has
	// just joined may not be known everywhere yet.
	NotMember Code = "not_member"
	// Shares: one of the masters still uses the shared directory that the others have left.
	Shares Code = "shares_directory"
	// Clock: the clocks of the masters differ. It is unknown which of two is wrong.
	Clock Code = "clock"
	// Settings: options that must agree differ.
	Settings Code = "settings"
	// Unnamed: cluster_peers of one of the masters does not name the other; nothing else differs.
	Unnamed Code = "unnamed"
	// Data: the shared cachedir does not show the other master's latest data; nothing else differs. A network file system may show it later.
	Data Code = "data"
	// Certificate: the TLS certificate is missing, or not valid for the id.
	Certificate Code = "certificate"
	// TLS: the connection must use TLS.
	TLS Code = "tls"
	// ID: the id is invalid, is not the expected one, or belongs to another member.
	ID Code = "id"
	// InUse: another process is connected with the same id and key, as after a copy of a machine.
	InUse Code = "in_use"
	// Key: a master does not have the private half of its key, or its key is unknown.
	Key Code = "key"
	// Removed: the master was removed from the cluster.
	Removed Code = "removed"
	// Secret: the joining secret is wrong.
	Secret Code = "secret"
	// Protocol: the versions of the protocol differ.
	Protocol Code = "protocol"
)

// Error is a refusal.
type Error struct {
	Code   Code
	Reason string
}

func (e *Error) Error() string { return e.Reason }

// New returns a refusal with a formatted reason.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Reason: fmt.Sprintf(format, args...)}
}

// Of returns the refusal in an error, nil if there is none.
func Of(err error) *Error {
	var e *Error
	errors.As(err, &e)
	return e
}

// Is reports whether an error is a refusal with a code.
func Is(err error, code Code) bool {
	e := Of(err)
	return e != nil && e.Code == code
}

// Message is a refusal as it is sent.
type Message struct {
	Reason string `wire:"reason"`
	// Code is a string; releases before codes send none.
	Code any         `wire:"code,omitempty"`
	Sig  []byte      `wire:"sig,omitempty"`
	Rest *value.Dict `wire:"*"`
}

// Message returns the message for the refused master. understands is the version of the codes that it understands.
func (e *Error) Message(understands int64) *Message {
	m := &Message{Reason: e.Reason}
	if understands > 0 {
		m.Code = string(e.Code)
	}
	return m
}

// Dict returns the encoded message, without a signature.
func (e *Error) Dict() *value.Dict { return wire.Encode(e.Message(Version)) }

// Signed returns what a signature of the refusal covers. understands is the version of the codes that the receiver understands.
func (e *Error) Signed(understands int64) [][]byte {
	if understands < 1 {
		return [][]byte{[]byte(e.Reason)}
	}
	return [][]byte{[]byte(e.Reason), []byte(e.Code)}
}

// Read decodes a message, which may be that of another release.
func Read(d *value.Dict) *Message {
	m := &Message{}
	wire.View(d, m)
	return m
}

// Understands returns the version of the codes that the sender understands.
func (m *Message) Understands() int64 {
	if m.Code == nil {
		return 0
	}
	return Version
}

// Refusal returns the refusal in the message.
func (m *Message) Refusal() *Error {
	if m.Code == nil {
		return &Error{Code: codeOfText(m.Reason), Reason: m.Reason}
	}
	code, _ := m.Code.(string)
	return &Error{Code: Code(code), Reason: m.Reason}
}

// maxReason bounds a reason of another master in bytes.
const maxReason = 2000

// From returns the refusal as a local error. It names the refusing master, and contains at most maxReason bytes of the reason.
func (e *Error) From(who string) *Error {
	return New(e.Code, "%s refuses: %.*s", who, maxReason, e.Reason)
}
