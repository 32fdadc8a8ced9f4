package usermodules

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/py/value"
)

// Functions of executors.
const (
	funcExecute = "execute"
	funcMissing = "allow_missing_func"
)

// Executors are the user's modules that the option module_executors may name.
func (m *Modules) Executors() Executors { return Executors{m} }

// Executors implements the interface of the minion's runner.
type Executors struct{ m *Modules }

// Has reports whether there is an executor of a name. builtin says that Brine has one of that name.
func (e Executors) Has(name string, builtin bool) bool {
	if l, _ := e.m.listing(kindExecutors); len(l.Paths) == 0 {
		return false // every call asks
	}
	return source{e.m, kindExecutors}.Find(name+"."+funcExecute, builtin) != nil
}

// AllowsMissing calls the function allow_missing_func of an executor that has one.
func (e Executors) AllowsMissing(ctx context.Context, c *fn.Call, name, fun string) (bool, error) {
	full := name + "." + funcMissing
	if (source{e.m, kindExecutors}).Find(full, true) == nil {
		return false, nil
	}
	v, _, err := e.m.pool.Call(ctx, env(c, nil), kindExecutors, full, []any{fun}, nil)
	return value.Truth(v), err
}

// withTarget are Brine's functions and the one that an executor is called for, which may be one of
// stock Salt's.
type withTarget struct {
	ownFunctions
	name string
	f    *fn.Func // nil if it does not exist
}

// Has implements python.Functions.
func (w withTarget) Has(name string) bool {
	return w.f != nil && name == w.name || w.ownFunctions.Has(name)
}

// Call implements python.Functions.
func (w withTarget) Call(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error) {
	if w.f != nil && name == w.name {
		return w.f.Call(ctx, w.c, args, kwargs)
	}
	return w.ownFunctions.Call(ctx, name, args, kwargs)
}

// Execute calls the function execute of an executor for a function with the job's map data. If
// it returns nil, more is the target with the arguments that the executor has left.
func (e Executors) Execute(ctx context.Context, name, fun string, data *value.Dict, t fn.Target, builtin python.Functions) (
	ret any, more fn.Target, err error) {
	in := env(t.Call, nil)
	in.Functions = map[string]python.Functions{kindModules: withTarget{ownFunctions{t.Call}, fun, t.Func}, kindExecutors: builtin}
	ret, args, kwargs, code, err := e.m.pool.Execute(ctx, in, name+"."+funcExecute, fun, data, t.Args, t.Kwargs)
	if code != 0 {
		t.Call.SetRetcode(code)
	}
	if ret == nil && err == nil {
		t.Args, t.Kwargs = args, kwargs
	}
	return ret, t, err
}
