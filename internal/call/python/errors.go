package python

import (
	"context"
	"errors"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Error is an exception of a module.
type Error struct {
	// Names are the full names of its class and of the base classes.
	Names []string
	// Text is the message of the exception, Trace its traceback, which ends with the message.
	Text, Trace string

	h      *helper
	number int64 // identifies the exception in the helper
}

// Error returns the traceback, as Salt shows unexpected exceptions.
func (e *Error) Error() string { return e.Trace }

// Is reports whether the exception is of a class, by its full name.
func (e *Error) is(name string) bool { return slices.Contains(e.Names, name) }

// expected is an exception that corresponds to an error type of package fn.
type expected struct {
	error // of package fn
	cause *Error
}

func (e *expected) Unwrap() []error { return []error{e.error, e.cause} }

// raised returns the error for the description of an exception.
func (h *helper) raised(v any) error {
	d, ok := v.(*value.Dict)
	if !ok {
		return errMalformed
	}
	e := &Error{Names: value.Texts(d.At("names")), Text: value.Str(d.At("text")), Trace: value.Str(d.At("trace")), h: h}
	e.number, _ = d.At("number").(int64)
	text := e.Text
	switch {
	case e.is("salt.exceptions.CommandNotFoundError"):
		return &expected{&fn.ProgramError{Reason: text}, e}
	case e.is("salt.exceptions.CommandExecutionError"):
		c := &fn.CommandError{Err: errors.New(text)}
		if info, ok := d.At("info").(*value.Dict); ok {
			c.Info, c.Summary = info, value.Str(d.At("summary"))
		}
		return &expected{c, e}
	case e.is("salt.exceptions.SaltInvocationError"):
		return &expected{&fn.InvocationError{Err: errors.New(text)}, e}
	case e.is("builtins.TypeError"):
		return &expected{&fn.ArgumentError{Err: errors.New(text)}, e}
	}
	return e
}

// Is reports whether the exception that caused an error is of a class, by its full name.
func Is(err error, class string) bool {
	var e *Error
	return errors.As(err, &e) && e.is(class)
}

// Trace returns the traceback of the exception that caused an error, "" if there is none.
func Trace(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return strings.TrimRight(e.Trace, "\n")
	}
	return ""
}

// Text returns the message of the exception that caused an error, without its traceback, or else
// the message of the error.
func Text(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Text
	}
	return err.Error()
}

// described returns the form of an error that is sent to Python. If the error is an exception of
// the same helper, Python raises that exception again.
func (h *helper) described(err error) *value.Dict {
	d := value.DictOf("kind", "other", "text", err.Error())
	var (
		raised     *Error
		command    *fn.CommandError
		invocation *fn.InvocationError
		argument   *fn.ArgumentError
		unknown    *fn.UnknownError
		program    *fn.ProgramError
		exception  *fn.ExceptionError
	)
	if errors.As(err, &raised) {
		d.Set("text", raised.Text)
		if raised.h == h {
			d.Set("number", raised.number)
		}
	}
	switch {
	case errors.As(err, &program):
		d.Set("kind", "program")
	case errors.As(err, &command):
		d.Set("kind", "command")
		if command.Info != nil {
			d.Set("info", command.Info)
			d.Set("summary", command.Summary)
		}
	case errors.As(err, &invocation):
		d.Set("kind", "invocation")
	case errors.As(err, &argument):
		d.Set("kind", "argument")
	case errors.As(err, &unknown):
		d.Set("kind", "unknown")
	case errors.As(err, &exception):
		d.Set("class", exception.Class)
	case errors.Is(err, context.Canceled):
		d.Set("kind", "command")
	}
	return d
}
