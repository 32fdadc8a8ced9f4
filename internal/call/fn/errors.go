package fn

import (
	"errors"
	"fmt"

	"brine/internal/py/value"
)

// Messages that users search for: those of Salt and Python.
const (
	textMissing    = "%s() missing %d required %s argument%s: %s"
	textTooMany    = "%s() takes %s positional argument%s but %s %s given"
	textMultiple   = "%s() got multiple values for argument '%s'"
	textUnexpected = "%s() got an unexpected keyword argument '%s'"
	textMisfit     = "%s() argument '%s': %w"
	textBadKwargs  = "The following keyword arguments are not valid: %s"

	textUnavailable   = "'%s' is not available."
	textVirtual       = "'%s' __virtual__ returned False"
	textVirtualReason = "'%s' __virtual__ returned False: %s"

	textPassedInvalid = "Passed invalid arguments to %s: %s\n%s"
	textExecuting     = "ERROR executing '%s': %s"
	textError         = "ERROR: %s"
	textNoProgram     = "Command required for '%s' not found: %s"
	textException     = "The minion function caused an exception: %s"
	textBlackout      = "Minion in blackout mode. Set 'minion_blackout' to False in pillar or grains to resume operations. " +
		"Only saltutil.refresh_pillar allowed in blackout mode."
)

// CommandError is an expected failure with a message for the user; it is Salt's
// CommandExecutionError. Functions return it for every failure that they expect. Any other error
// counts as a bug in the function.
type CommandError struct {
	Err error
	// Info, if set, has details that Err's message also shows, such as the "changes" made before
	// the failure; Summary is the message without them.
	Info    *value.Dict
	Summary string
}

func (e *CommandError) Error() string { return e.Err.Error() }
func (e *CommandError) Unwrap() error { return e.Err }

// Errorf returns a CommandError; format and args are those of fmt.Errorf.
func Errorf(format string, args ...any) error {
	return &CommandError{Err: fmt.Errorf(format, args...)}
}

// ProgramError means that a required program is not installed. It is Salt's CommandNotFoundError.
type ProgramError struct {
	Program string
	// Reason replaces the default message, which names the program.
	Reason string
}

func (e *ProgramError) Error() string {
	if e.Reason != "" {
		return e.Reason
	}
	return fmt.Sprintf("The '%s' binary was not found in $PATH.", e.Program)
}

// InvocationError means that a function was called with wrong arguments. It is Salt's
// SaltInvocationError.
type InvocationError struct {
	Err error
}

func (e *InvocationError) Error() string { return e.Err.Error() }
func (e *InvocationError) Unwrap() error { return e.Err }

// Invalidf returns an InvocationError; format and args are those of
// fmt.Errorf.
func Invalidf(format string, args ...any) error {
	return &InvocationError{Err: fmt.Errorf(format, args...)}
}

// ArgumentError means that the arguments do not match the function's signature, like Python's
// TypeError.
type ArgumentError struct {
	Err error
}

func (e *ArgumentError) Error() string { return e.Err.Error() }
func (e *ArgumentError) Unwrap() error { return e.Err }

// UnknownError means that no function has the name.
type UnknownError struct {
	// Name is the requested name.
	Name string
	text string
}

func (e *UnknownError) Error() string { return e.text }

// ExceptionError is an unexpected exception whose class is known, as test.exception raises it.
type ExceptionError struct {
	// Class is the name that Python shows for the class: with its module, except of built-in classes.
	Class string
	// Text is the message.
	Text string
}

func (e *ExceptionError) Error() string { return e.Text }

// Shown returns the last line of Python's traceback for the exception.
func (e *ExceptionError) Shown() string {
	if e.Text == "" {
		return e.Class
	}
	return e.Class + ": " + e.Text
}

// ClassOf returns the name of the Python class that an error corresponds to, "" for an error without one.
func ClassOf(err error) string {
	var (
		command    *CommandError
		invocation *InvocationError
		argument   *ArgumentError
		program    *ProgramError
		exception  *ExceptionError
	)
	switch {
	case errors.As(err, &program):
		return "salt.exceptions.CommandNotFoundError"
	case errors.As(err, &command):
		return "salt.exceptions.CommandExecutionError"
	case errors.As(err, &invocation):
		return "salt.exceptions.SaltInvocationError"
	case errors.As(err, &argument):
		return "TypeError"
	case errors.As(err, &exception):
		return exception.Class
	}
	return ""
}

// PanicError is a recovered panic of a function.
type PanicError struct {
	// Value is the value of the panic, Stack its stack trace.
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprint(e.Value) }

// errorText returns the result of a job whose function name, documented by doc, failed with err.
func errorText(name, doc string, err error) string {
	var (
		command    *CommandError
		invocation *InvocationError
		argument   *ArgumentError
		program    *ProgramError
		exception  *ExceptionError
	)
	switch {
	case errors.As(err, &program):
		return fmt.Sprintf(textNoProgram, name, err)
	case errors.As(err, &command):
		return fmt.Sprintf(textError, err)
	case errors.As(err, &invocation):
		return fmt.Sprintf(textExecuting, name, err)
	case errors.As(err, &argument):
		return fmt.Sprintf(textPassedInvalid, name, err, doc)
	case errors.As(err, &exception):
		return fmt.Sprintf(textException, exception.Shown())
	}
	return fmt.Sprintf(textException, err)
}
