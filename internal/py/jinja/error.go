package jinja

import (
	"errors"
	"fmt"
)

// Kind is Python's name of an exception class: one of those below, or
// TypeError, ValueError, KeyError, ZeroDivisionError …
type Kind string

// The kinds specific to the template engine.
const (
	SyntaxError    Kind = "TemplateSyntaxError"
	AssertionError Kind = "TemplateAssertionError"
	RuntimeError   Kind = "TemplateRuntimeError"
	NotFound       Kind = "TemplateNotFound"
	NoneFound      Kind = "TemplatesNotFound"
	UndefinedError Kind = "UndefinedError"
	SecurityError  Kind = "SecurityError"

	cancelled Kind = "cancelled"
)

// Place is a line of a template.
type Place struct {
	Template string
	Line     int
}

// Error is a syntax or runtime error of a template, with its position.
type Error struct {
	Kind    Kind
	Message string
	// Template is the name of the failed template and Source its source, "" if
	// it could not be read. Line counts from 1.
	Template string
	Source   string
	Line     int
	// Stack lists the places from the error outwards to the rendered template.
	Stack []Place
	// Err is the cause, if a function returned an error.
	Err error

	ended bool // a rendering ended with it
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an *Error of a kind, for functions called by templates.
func Errorf(kind Kind, format string, args ...any) error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// raise ends the rendering. Within the package errors are panics with an
// *Error, which Render recovers.
func raise(kind Kind, format string, args ...any) {
	panic(&Error{Kind: kind, Message: fmt.Sprintf(format, args...)})
}

// raiseErr ends the rendering with an error of the caller's code. If a rendering ended with
// it, a function has rendered another text.
// Fail ends the rendering with an error, in a method of an object that returns none.
func Fail(err error) { raiseErr(err) }

func raiseErr(err error) {
	var e *Error
	if errors.As(err, &e) && e.Kind != "" && !e.ended {
		c := *e
		c.Err = errors.Unwrap(err)
		panic(&c)
	}
	panic(&Error{Kind: "Error", Message: err.Error(), Err: err})
}
