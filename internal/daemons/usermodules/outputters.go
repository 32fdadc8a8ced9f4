package usermodules

import (
	"context"
	"fmt"
	"sync"

	"brine/internal/call/fn"
	"brine/internal/call/output"
	"brine/internal/py/value"
)

// OutputKinds are the kinds that the helper of a program's outputters loads.
var OutputKinds = []string{kindOutput, "utils", "serializers"}

// Outputters has the user's outputters for a program that displays data.
type Outputters struct {
	// Modules returns the modules. It is called once, when the program displays something.
	Modules func() (*Modules, error)
	// Before, if not nil, is called once before the first module is loaded.
	Before func() error

	look, load sync.Once
	m          *Modules
	names      map[string][]string
	err        error
}

// Has implements output.Own. It reads the sources of the modules only.
func (o *Outputters) Has(name string) bool {
	o.look.Do(func() {
		if o.m, o.err = o.Modules(); o.err == nil {
			l, _ := o.m.listing(kindOutput)
			o.names = l.Claims
		}
	})
	return len(o.names[name]) > 0
}

// Output implements output.Own: it calls the function output of a module.
func (o *Outputters) Output(name string, data any, c output.Call, color bool) (string, error) {
	o.load.Do(func() {
		if o.Before != nil {
			o.err = o.Before()
		}
	})
	if o.err != nil {
		return "", fmt.Errorf("the Python module %s is not loaded: %w", name, o.err)
	}
	call := o.m.call()
	opts := call.Config.All().Clone()
	opts.Set("color", color)
	opts.Set("output", name)
	call.Config = fn.Tree{Dict: opts}
	kwargs, full := value.NewDict(1), name+".output"
	if f := (source{o.m, kindOutput}).Find(full, true); f != nil && (f.TakesKwargs() || takes(f, "_retcode")) {
		kwargs.Set("_retcode", c.Retcode)
	}
	v, _, err := o.m.pool.Call(context.Background(), env(call, nil), kindOutput, full, []any{data}, kwargs)
	if err != nil || v == nil {
		return "", err
	}
	return value.Str(v), nil
}

// Close ends the helper, if one was started.
func (o *Outputters) Close() {
	if o.m != nil {
		o.m.Close()
	}
}

var _ output.Own = (*Outputters)(nil)
