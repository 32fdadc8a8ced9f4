package fn

import (
	"errors"
	"fmt"

	"brine/internal/py/value"
)

// Texts that users search for. They are those of Salt and of Python.
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

// CommandError says that what a function was asked to do failed, in words
// meant for the user. It is Salt's CommandExecutionError. Functions return it
// for every failure that they expect; any other error counts as a fault of
// the function.
type CommandError struct {
	Err error
	// Info, if set, holds details that Err's text shows too, such as the
	// "changes" that were made before the failure; Summary is the text without
	// them.
	Info    *value.Dict
	Summary string
}

func (e *CommandError) Error() string { return e.Err.Error() }
func (e *CommandError) Unwrap() error { return e.Err }

// Errorf returns a CommandError; format and args are those of fmt.Errorf.
func Errorf(format string, args ...any) error {
	return &CommandError{Err: fmt.Errorf(format, args...)}
}

// ProgramError says that a function needs a program that the machine lacks. It
// is Salt's CommandNotFoundError.
type ProgramError struct {
	Program string
	// Reason replaces the usual text, which names the program.
	Reason string
}

func (e *ProgramError) Error() string {
	if e.Reason != "" {
		return e.Reason
	}
	return fmt.Sprintf("The '%s' binary was not found in $PATH.", e.Program)
}

// InvocationError says that a function was called wrongly. It is Salt's
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

// ArgumentError says that arguments do not fit the function. It is what
// Python raises as TypeError.
type ArgumentError struct {
	Err error
}

func (e *ArgumentError) Error() string { return e.Err.Error() }
func (e *ArgumentError) Unwrap() error { return e.Err }

// UnknownError says that there is no function of a name.
type UnknownError struct {
	// Name is the name that was asked for.
	Name string
	text string
}

func (e *UnknownError) Error() string { return e.text }

// PanicError is a fault of a function, recovered.
type PanicError struct {
	// Value is what the function panicked with, Stack where.
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprint(e.Value) }

// errorText returns the text that a job returns for an error of function
// name, whose documentation is doc.
func errorText(name, doc string, err error) string {
	var (
		command    *CommandError
		invocation *InvocationError
		argument   *ArgumentError
		program    *ProgramError
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
	}
	return fmt.Sprintf(textException, err)
}
