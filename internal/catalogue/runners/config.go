package runners

import (
	"context"

	"brine/internal/call/fn"
	actions "brine/internal/catalogue/actions/sdb"
	"brine/internal/py/value"
)

type configuration struct{}

func init() { runners.Register("config", func(Deps) fn.Module { return configModule() }) }

func configModule() fn.Module {
	return fn.Module{Name: "config", Doc: `The options of the master.`, Funcs: []fn.Func{
		fn.Of("get", configuration{}.get, `Return an option, or a part of one by a path of keys.`,
			fn.Example("salt-run config.get file_roots:base"), fn.Example("salt-run config.get file_roots,base delimiter=,")),
	}}
}

type configArgs struct {
	Key       string `salt:"key" doc:"name, or path of keys"`
	Default   any    `salt:"default" doc:"value to return if the option does not exist" default:"''"`
	Delimiter string `salt:"delimiter" doc:"separator of the keys in a path" default:":"`
}

func (configuration) get(ctx context.Context, c *fn.Call, a configArgs) (any, error) {
	if v, ok := value.Traverse(c.Config.All(), a.Key, a.Delimiter); ok {
		return actions.Get(ctx, c, v, false)
	}
	return a.Default, nil
}
