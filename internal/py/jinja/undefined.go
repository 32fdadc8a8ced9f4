package jinja

import (
	"strings"

	"brine/internal/py/value"
)

// UndefinedKind is the behaviour of undefined values.
type UndefinedKind int

const (
	// DefaultUndefined prints as an empty string, and is empty and false.
	// Arithmetic, calls and attributes fail.
	DefaultUndefined UndefinedKind = iota
	// StrictUndefined fails on any use except the tests defined and undefined
	// and the filter default.
	StrictUndefined
	// ChainableUndefined is like the default, but its attributes are undefined.
	ChainableUndefined
	// DebugUndefined is like the default, but prints as the expression.
	DebugUndefined
)

// Undefined is an undefined value.
type Undefined struct {
	kind    UndefinedKind
	name    any
	hint    string
	obj     any
	has     bool // obj is the value that lacks name
	errKind Kind
}

// Message says which name is missing.
func (u *Undefined) Message() string {
	switch {
	case u.hint != "":
		return u.hint
	case !u.has:
		return value.Repr(u.name) + " is undefined"
	}
	if s, ok := u.name.(string); ok {
		return value.Repr(objectType(u.obj)) + " has no attribute " + value.Repr(s)
	}
	return objectType(u.obj) + " has no element " + repr(u.name)
}

// objectType names the type of an object as in "dict object".
func objectType(v any) string {
	if v == nil {
		return "None"
	}
	return typeName(v) + " object"
}

func (u *Undefined) fail() {
	k := u.errKind
	if k == "" {
		k = UndefinedError
	}
	panic(&Error{Kind: k, Message: u.Message()})
}

func (u *Undefined) text() string {
	switch u.kind {
	case StrictUndefined:
		u.fail()
	case DebugUndefined:
		switch {
		case u.hint != "":
			return "{{ undefined value printed: " + u.hint + " }}"
		case !u.has:
			return "{{ " + str(u.name) + " }}"
		}
		return "{{ no such element: " + objectType(u.obj) + "[" + repr(u.name) + "] }}"
	}
	return ""
}

func (rt *runtime) undefined(name string) *Undefined {
	return &Undefined{kind: rt.env.o.Undefined, name: name}
}

func (rt *runtime) undefinedHint(name, hint string) *Undefined {
	return &Undefined{kind: rt.env.o.Undefined, name: name, hint: hint}
}

func (rt *runtime) undefinedOf(obj, name any) *Undefined {
	if n, ok := name.(string); ok && unsafeAttr(n) {
		return &Undefined{kind: rt.env.o.Undefined, name: name, obj: obj, has: true, errKind: SecurityError,
			hint: "access to attribute " + value.Repr(n) + " of " + value.Repr(typeName(obj)) + " object is unsafe."}
	}
	return &Undefined{kind: rt.env.o.Undefined, name: name, obj: obj, has: true}
}

// unsafeAttr reports whether a name is internal to Python; the sandbox hides
// it.
func unsafeAttr(n string) bool {
	return len(n) > 4 && strings.HasPrefix(n, "__") && strings.HasSuffix(n, "__")
}

func isUndefined(v any) bool {
	_, ok := v.(*Undefined)
	return ok
}

// IsUndefined reports whether v is undefined.
func IsUndefined(v any) bool { return isUndefined(v) }
