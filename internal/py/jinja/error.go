package jinja

import (
	"errors"
	"fmt"
)

// Kind is the class of an error, by the name that Python gives it: one of
// those below, or TypeError, ValueError, KeyError, ZeroDivisionError …
type Kind string

// The kinds that are the template engine's own.
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

// Error says what is wrong with a template, or went wrong in it, and where.
type Error struct {
	Kind    Kind
	Message string
	// Template is the name of the template at fault and Source its text, ""
	// if it could not be read. Line counts from 1.
	Template string
	Source   string
	Line     int
	// Stack holds the places from the fault outwards to the template that was
	// rendered.
	Stack []Place
	// Err is what a function returned, if that was the cause.
	Err error
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an error of a kind, for functions that templates call.
func Errorf(kind Kind, format string, args ...any) error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// raise ends the rendering. Within the package failures travel as panics with
// an *Error, which Render catches.
func raise(kind Kind, format string, args ...any) {
	panic(&Error{Kind: kind, Message: fmt.Sprintf(format, args...)})
}

// raiseErr ends the rendering with an error from outside.
func raiseErr(err error) {
	var e *Error
	if errors.As(err, &e) && e.Kind != "" {
		c := *e
		c.Err = errors.Unwrap(err)
		panic(&c)
	}
	panic(&Error{Kind: "Error", Message: err.Error(), Err: err})
}
