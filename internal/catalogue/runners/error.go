package runners

import (
	"context"
	"errors"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

type failure struct{}

func init() { runners.Register("error", func(Deps) fn.Module { return errorModule() }) }

func errorModule() fn.Module {
	return fn.Module{Name: "error", Doc: `Failures on purpose, to test how they are handled.`, Funcs: []fn.Func{
		fn.Of("error", failure{}.error, `Fail with a message, or return an empty map if no name is given.`,
			fn.Example(`salt-run error.error name=Exception message='This is an error.'`)),
	}}
}

type errorArgs struct {
	Name    any    `salt:"name" doc:"name of the exception; null means none" default:"null"`
	Message string `salt:"message" doc:"message of the error" default:""`
}

func (failure) error(_ context.Context, _ *fn.Call, a errorArgs) (*value.Dict, error) {
	if a.Name == nil {
		return value.NewDict(0), nil
	}
	if a.Message == "" {
		return nil, errors.New(value.Str(a.Name))
	}
	return nil, errors.New(value.Str(a.Name) + ": " + a.Message)
}
