package runners

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"brine/internal/base/field"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/catalogue/grains"
	"brine/internal/catalogue/modules/core"
	"brine/internal/py/value"
)

type execution struct {
	minions Commander
	made    *ownFunctions
}

// ownFunctions holds the functions of salt.cmd, built on first use.
type ownFunctions struct {
	once  sync.Once
	funcs *fn.Registry
	err   error
}

// get returns the functions. sys documents the runners of the first caller, which all
// callers of a module share.
func (o *ownFunctions) get(runners *fn.Registry) (*fn.Registry, error) {
	o.once.Do(func() {
		if o.funcs, o.err = newFunctions(); o.err == nil {
			o.funcs.Document("runners", func() *fn.Registry { return runners })
		}
	})
	return o.funcs, o.err
}

func init() { runners.Register("salt", saltModule) }

func saltModule(d Deps) fn.Module {
	e := execution{d.Client, &ownFunctions{}}
	return fn.Module{Name: "salt", Doc: `Execution functions, on the master or on minions.`, Funcs: []fn.Func{
		fn.Of("cmd", e.cmd, `Run an execution function on the master and return its result.
			Available are the functions of config, grains, match, random, sys and test that change nothing.
			All further arguments go to the function. There is no pillar.`,
			fn.Example("salt-run salt.cmd test.ping"), fn.Example("salt-run salt.cmd test.arg 1 2 3 a=1"), fn.Example("salt-run salt.cmd grains.get os")),
		fn.Of("execute", e.execute, `Run a function on minions and return their results.`,
			fn.Example("salt-run salt.execute '*' test.ping"), fn.Example("salt-run salt.execute web cmd.run arg='[uptime]' tgt_type=nodegroup")),
	}}
}

// onMaster lists the modules whose functions may run on the master. Functions that
// change the process or its files are left out, because many users share the master.
var onMaster = map[string][]string{ // module: its functions, nil for all
	"config": nil, "match": nil, "random": nil, "sys": nil, "test": nil,
	"grains": {"get", "fetch", "has_value", "items", "item", "ls", "equals", "filter_by"},
}

// textOnMaster follows Salt's message: minions may well have the function.
const textOnMaster = " On a master salt.cmd allows only functions of config, grains, match, random, sys and test that change nothing; use the " +
	"minion of this machine for others."

// newFunctions builds the functions of salt.cmd.
func newFunctions() (*fn.Registry, error) {
	var modules []fn.Module
	for _, m := range append(core.Modules()[:len(core.Modules()):len(core.Modules())], core.Grains(nil)) {
		names, ok := onMaster[m.Name]
		if !ok {
			continue
		}
		if names != nil {
			m.Funcs = slices.DeleteFunc(slices.Clone(m.Funcs), func(f fn.Func) bool { return !slices.Contains(names, f.Name()) })
		}
		modules = append(modules, m)
	}
	return fn.NewRegistry(nil, modules...)
}

type cmdArgs struct {
	Fun    string    `salt:"fun" doc:"function"`
	Args   fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (e execution) cmd(ctx context.Context, c *fn.Call, a cmdArgs) (any, error) {
	funcs, err := e.made.get(c.Funcs)
	if err != nil {
		return nil, err
	}
	kwargs := a.Kwargs.Clean()
	if value.Truth(kwargs.At("with_pillar")) {
		return nil, fn.Errorf("a master has no pillar of its own: leave with_pillar out")
	}
	kwargs.Delete("with_pillar")
	call := &fn.Call{ID: c.ID, JID: c.JID, Config: c.Config, Pillar: fn.Tree{}, Log: c.Log, Progress: c.Progress, Funcs: funcs, SDB: c.SDB,
		Grains: &ownGrains{ctx: ctx, conf: c.Config, id: c.ID, log: c.Log}}
	ret, err := funcs.Call(ctx, call, a.Fun, a.Args, kwargs)
	var unknown *fn.UnknownError
	if errors.As(err, &unknown) {
		return unknown.Error() + textOnMaster, nil
	}
	return ret, err
}

// ownGrains holds the master's grains, collected on first use.
type ownGrains struct {
	ctx  context.Context // of the only function call that uses the grains
	conf fn.Reader
	id   string
	log  *slog.Logger

	once sync.Once
	all  *value.Dict
}

// Late marks grains that are not computed yet.
func (*ownGrains) Late() {}

// Get returns a grain.
func (g *ownGrains) Get(key string) any { return g.All().At(key) }

// All returns the grains and logs errors of single grains.
func (g *ownGrains) All() *value.Dict {
	g.once.Do(func() {
		if value.Truth(g.conf.Get("skip_grains")) {
			return
		}
		o := grains.Options{}
		if err := field.Defaults(&o); err != nil {
			g.log.Error("cannot collect the master's grains", "err", err)
			return
		}
		o.ID, o.ConfFile = g.id, value.Str(g.conf.Get("conf_file"))
		o.FQDNs = false // avoids waiting for DNS
		o.Static, _ = g.conf.Get("grains").(*value.Dict)
		var err error
		if g.all, err = grains.Collect(g.ctx, o, g.log); err != nil {
			g.log.Warn("cannot collect all of the master's grains", "err", err)
		}
	})
	return g.all
}

type executeArgs struct {
	Tgt     any           `salt:"tgt" doc:"target"`
	Fun     string        `salt:"fun" doc:"function"`
	Arg     []any         `salt:"arg" doc:"arguments" default:"[]"`
	Timeout time.Duration `salt:"timeout" doc:"timeout in seconds for minions; 0: as configured" default:"0"`
	TgtType string        `salt:"tgt_type" doc:"type of the target" default:"glob"`
	Ret     string        `salt:"ret" doc:"returners for the minions to use" default:"''"`
	JID     string        `salt:"jid" doc:"job id; empty: chosen by the master" default:"''"`
	Kwarg   *value.Dict   `salt:"kwarg" doc:"named arguments" default:"{}"`
	Rest    fn.Kwargs     `salt:"kwargs"`
}

func (e execution) execute(ctx context.Context, c *fn.Call, a executeArgs) (*value.Dict, error) {
	ret := value.NewDict(0)
	_, results, err := e.minions.Call(ctx, client.Job{
		Target: a.Tgt, Type: a.TgtType, Fun: a.Fun, Arg: value.ListOf(fn.Wire(a.Arg, a.Kwarg)...), Ret: a.Ret, JID: a.JID,
		Kwargs: a.Rest.Clean(), Timeout: a.Timeout,
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if errors.Is(err, client.ErrNoMatch) && c.Print != nil {
		c.Print("stdout", client.ErrNoMatch.Error()+"\n")
		return ret, nil
	}
	if err != nil { // as in Salt, the caller finds no minion
		c.Log.Error("cannot execute a function", "fun", a.Fun, "tgt", value.Str(a.Tgt), "err", err)
		return ret, nil
	}
	for _, r := range results {
		if !r.Absent {
			ret.Set(r.ID, r.Return)
		}
	}
	return ret, nil
}
