package runners

import (
	"context"
	"fmt"
	"time"

	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

type test struct{}

func init() { runners.Register("test", func(Deps) fn.Module { return testModule() }) }

func testModule() fn.Module {
	t := test{}
	return fn.Module{Name: "test", Doc: `Test functions for runners.`, Funcs: []fn.Func{
		fn.Of("arg", t.arg, `Return the arguments, without those that begin with two underscores.`, fn.Example("salt-run test.arg foo bar=baz")),
		fn.Of("raw_arg", t.rawArg, `Return all arguments.`, fn.Example("salt-run test.raw_arg foo __bar=baz")),
		fn.Of("metasyntactic", t.metasyntactic, `Return metasyntactic variables.`, fn.Example("salt-run test.metasyntactic locality=uk")),
		fn.Of("stdout_print", t.stdoutPrint, `Report foo as progress and return bar.`, fn.Example("salt-run test.stdout_print")),
		fn.Of("sleep", t.sleep, `Wait, then return true.`, fn.Example("salt-run test.sleep s_time=5")),
		fn.Of("stream", t.stream, `Report a hundred steps of progress, a tenth of a second each, then return true.`, fn.Example("salt-run test.stream")),
		fn.Of("get_opts", t.getOpts, `Return the options of the master.`, fn.Example("salt-run test.get_opts")),
	}}
}

type anyArgs struct {
	Args   fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (test) arg(_ context.Context, _ *fn.Call, a anyArgs) (*value.Dict, error) {
	return value.DictOf("args", value.Tuple(a.Args), "kwargs", a.Kwargs.Clean()), nil
}

func (test) rawArg(_ context.Context, _ *fn.Call, a anyArgs) (*value.Dict, error) {
	return value.DictOf("args", value.Tuple(a.Args), "kwargs", a.Kwargs.Dict), nil
}

type localityArgs struct {
	Locality string `salt:"locality" doc:"us or uk" default:"us"`
}

func (test) metasyntactic(_ context.Context, _ *fn.Call, a localityArgs) (any, error) {
	switch a.Locality {
	case "us":
		return value.ListOf("foo", "bar", "baz", "qux", "quux", "quuz", "corge", "grault", "garply", "waldo", "fred", "plugh", "xyzzy", "thud"), nil
	case "uk":
		return value.ListOf("wibble", "wobble", "wubble", "flob"), nil
	}
	return nil, nil
}

func (test) stdoutPrint(_ context.Context, c *fn.Call, _ none) (string, error) {
	c.Report(value.DictOf("message", "foo"))
	return "bar", nil
}

type sleepArgs struct {
	Time time.Duration `salt:"s_time" doc:"seconds" default:"10"`
}

func (test) sleep(ctx context.Context, _ *fn.Call, a sleepArgs) (bool, error) {
	if !wait.Sleep(ctx, a.Time) {
		return false, context.Cause(ctx)
	}
	return true, nil
}

func (test) stream(ctx context.Context, c *fn.Call, _ none) (bool, error) {
	for i := range 99 {
		c.Report(value.DictOf("message", fmt.Sprintf("Runner is %d%% done", i+1)))
		if !wait.Sleep(ctx, time.Second/10) {
			return false, context.Cause(ctx)
		}
	}
	return true, nil
}

func (test) getOpts(_ context.Context, c *fn.Call, _ none) (*value.Dict, error) {
	return c.Config.All(), nil
}
