// Package wheel has the functions that manage the master itself: minion keys,
// options, connected minions. Programs such as the REST API call them for
// users. Each module is one file.
package wheel

import (
	"context"
	"errors"
	"fmt"

	"brine/internal/base/registry"
	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

// Keys are the keys of minions.
type Keys interface {
	// Dir is the directory of the master's own keys.
	Dir() string
	List() (map[keystore.State][]string, error)
	Read(st keystore.State, id string) (string, error)
	Move(id string, from, to keystore.State) error
	Put(st keystore.State, id, pub string) error
	Delete(st keystore.State, id string) error
}

var _ Keys = (*keystore.Store)(nil)

// Deps is what the functions use of the master.
type Deps struct {
	Keys Keys
	// HashType is the hash of fingerprints, KeySize the size of a new key in bits.
	HashType string
	KeySize  int
	// Changed is called for each change of a key, with the action and the id.
	Changed func(act, id string)
	// Forget deletes the cached data of a minion whose last key was deleted.
	Forget func(id string) error
	// Revoked is called when keys are no longer accepted.
	Revoked func()
	// Hot has the keys at hot masters.
	Hot HotKeys
	// Connected returns the minions that are connected now.
	Connected func() map[string]bool
}

type keysOf struct{}

// With returns Deps whose functions change keys through k, which knows the
// caller.
func With(ctx context.Context, keys Keys) context.Context {
	return context.WithValue(ctx, keysOf{}, keys)
}

// modules are functions that create modules from Deps.
var modules = registry.New[func(Deps) fn.Module]("wheel module")

// New returns the modules, sorted by name.
func New(d Deps) []fn.Module {
	var all []fn.Module
	for _, name := range modules.Names() {
		build, _ := modules.Lookup(name)
		all = append(all, build(d))
	}
	return all
}

// Run executes a function as a job and reports errors as Salt does.
func Run(ctx context.Context, r *fn.Registry, c *fn.Call, fun string, args []any, kwargs *value.Dict) (ret any, ok bool) {
	job := fn.Job{Fun: fun, Arg: args}
	if kwargs.Len() > 0 {
		kw := kwargs.Clone()
		fn.Mark(kw)
		job.Arg = append(append([]any(nil), args...), kw)
	}
	o := r.Run(ctx, c, job)
	var raised *python.Error
	if errors.As(o.Err, &raised) {
		return fmt.Sprintf("Exception occurred in wheel %s: %s", fun, raised.Trace), false
	}
	if o.Err != nil {
		return fmt.Sprintf("Exception occurred in wheel %s: %v", fun, o.Err), false
	}
	return o.Return, true
}

func init() { modules.Register("error", func(Deps) fn.Module { return errorModule() }) }

func errorModule() fn.Module {
	return fn.Module{Name: "error", Doc: `Failures on purpose, to test how they are handled.`, Funcs: []fn.Func{
		fn.Of("error", fail, `Fail with a message, or return an empty map if no name is given.`),
	}}
}

type errorArgs struct {
	Name    any    `salt:"name" doc:"name of the exception; null means none" default:"null"`
	Message string `salt:"message" doc:"message of the error" default:""`
}

func fail(_ context.Context, _ *fn.Call, a errorArgs) (*value.Dict, error) {
	switch {
	case a.Name == nil:
		return value.NewDict(0), nil
	case a.Message == "":
		return nil, errors.New(value.Str(a.Name))
	}
	return nil, fmt.Errorf("%s: %s", value.Str(a.Name), a.Message)
}

// none is the argument type of functions without arguments.
type none struct{}
