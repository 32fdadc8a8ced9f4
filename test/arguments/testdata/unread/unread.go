// Package unread declares arguments that its functions do not read, in the ways
// that TestFindsUnreadArguments has to find.
package unread

import (
	"context"

	"brine/internal/call/fn"
)

type shared struct {
	Signature any `salt:"signature" default:"null"`
	Keyring   any `salt:"keyring" default:"null"`
}

func (s shared) check() bool { return s.Signature != nil }

type extractArgs struct {
	Name string `salt:"name"`
	shared
	Old any `salt:"old" ignored:"nothing needs it" default:"null"`
}

type work struct {
	extractArgs
	other shared
	kept  any
}

func extracted(_ context.Context, _ *fn.Call, a extractArgs) (string, error) {
	w := &work{extractArgs: a}
	w.other.check() // of another value
	return w.Name, nil
}

func passed(_ context.Context, _ *fn.Call, a extractArgs) (bool, error) {
	return a.Name != "" && work{other: a.shared}.other.check(), nil
}

func stored(_ context.Context, _ *fn.Call, a extractArgs) (string, error) {
	w := work{kept: a.Signature}
	w.Name = a.Name
	drop(a.Keyring)
	_ = a.Old
	return w.Name, nil
}

func drop(any) {}

func stale(_ context.Context, _ *fn.Call, a struct {
	Old any `salt:"old" ignored:"nothing needs it" default:"null"`
}) (any, error) {
	return a.Old, nil
}

// Functions are the declarations.
var Functions = []fn.Func{
	fn.Of("extracted", extracted, `Read the name alone.`),
	fn.Of("passed", passed, `Pass the embedded arguments to code that reads one of them.`),
	fn.Of("stored", stored, `Store one argument where no code reads it, and drop another.`),
	fn.Of("some", stored, `Take only what is read.`, fn.Params("name")),
	fn.Of("stale", stale, `Read an argument that is declared as ignored.`),
}
