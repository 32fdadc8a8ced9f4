package runners

import (
	"context"
	"errors"

	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

type docs struct {
	minions Commander
	wheels  func() *value.Dict
}

func init() { runners.Register("doc", docModule) }

func docModule(d Deps) fn.Module {
	m := docs{d.Client, d.Wheels}
	return fn.Module{Name: "doc", Doc: `The documentation of functions.`, Funcs: []fn.Func{
		fn.Of("runner", m.runner, `Return the documentation of all runners.`, fn.Example("salt-run doc.runner")),
		fn.Of("wheel", m.wheel, `Return the documentation of all wheel functions.`, fn.Example("salt-run doc.wheel")),
		fn.Of("execution", m.execution, `Return the documentation of all functions of minions.`, fn.Example("salt-run doc.execution")),
	}}
}

func (docs) runner(_ context.Context, c *fn.Call, _ none) (*value.Dict, error) {
	return c.Funcs.Docs(), nil
}

func (m docs) wheel(context.Context, *fn.Call, none) (*value.Dict, error) {
	return m.wheels(), nil
}

func (m docs) execution(ctx context.Context, _ *fn.Call, _ none) (*value.Dict, error) {
	all := value.NewDict(0)
	_, results, err := m.minions.Call(ctx, client.Job{Target: "*", Fun: "sys.doc"})
	if err != nil && !errors.Is(err, client.ErrNoMatch) {
		return nil, err
	}
	for _, r := range results {
		d, _ := r.Return.(*value.Dict)
		all.Update(d)
	}
	return all, nil
}
