package control

import (
	"context"
	"strings"

	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

type mine struct{ masters Masters }

// Mine returns the module mine.
func Mine(masters Masters) fn.Module {
	m := mine{masters}
	return fn.Module{Name: "mine", Doc: `Data that minions leave with the masters for each other.`, Funcs: []fn.Func{
		fn.Of("get", m.get, `Return what minions have left of a function.`, fn.Example("salt '*' mine.get '*' network.interfaces")),
		fn.Of("send", m.send, `Run a function and leave its result.
			The keyword mine_function names the function if it is not that of the name, allow_tgt and allow_tgt_type
			the minions that may read it; all others go to the function.`, fn.Example("salt '*' mine.send uptime mine_function=cmd.run cmd=uptime")),
		fn.Of("update", m.update, `Run the functions of the option mine_functions and leave their results.`, fn.Example("salt '*' mine.update")),
		fn.Of("delete", m.delete, `Remove what this minion has left of a function.`, fn.Example("salt '*' mine.delete network.interfaces")),
		fn.Of("flush", m.flush, `Remove all that this minion has left.`, fn.Example("salt '*' mine.flush")),
		fn.Of("valid", m.valid, `Return those of the option mine_functions that there are.`, fn.Example("salt '*' mine.valid")),
	}}
}

type mineGetArgs struct {
	Tgt     any    `salt:"tgt" doc:"target"`
	Fun     any    `salt:"fun" doc:"name of the function, or several with commas or as a list"`
	TgtType string `salt:"tgt_type" doc:"type of the target" default:"glob"`
	Exclude bool   `salt:"exclude_minion" doc:"leave out this minion" default:"false"`
}

func (m mine) get(ctx context.Context, c *fn.Call, a mineGetArgs) (any, error) {
	if masterless(c) {
		return ownMine(ctx, c, a)
	}
	ret, err := m.masters.Request(ctx, value.DictOf("cmd", "_mine_get", "id", c.ID, "tgt", a.Tgt, "fun", a.Fun, "tgt_type", a.TgtType))
	if err != nil {
		return nil, fn.Errorf("no master answers for the mine: %w", err)
	}
	if d, ok := ret.(*value.Dict); ok && a.Exclude {
		d.Delete(c.ID)
	}
	return ret, nil
}

func masterless(c *fn.Call) bool { return c.Config.Get("file_client") == "local" }

// ownMine returns the mine of a minion without a master: its own data under
// mine_cache, if the target matches it.
func ownMine(ctx context.Context, c *fn.Call, a mineGetArgs) (any, error) {
	out := value.NewDict(0)
	match, err := target.Parse(a.TgtType, a.Tgt, ":")
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	if a.Exclude || !match.Match(target.Data{MinionID: c.ID, GrainData: c.Grains.All(), PillarData: c.Pillar.All()}) {
		return out, nil
	}
	v, err := c.Funcs.Call(ctx, c, "data.get", []any{"mine_cache"}, nil)
	kept, _ := v.(*value.Dict)
	if err != nil {
		return nil, err
	}
	funs := []any{a.Fun}
	if l, ok := a.Fun.(*value.List); ok {
		funs = l.Items
	} else if s, ok := a.Fun.(string); ok && strings.Contains(s, ",") {
		funs = nil
		for part := range strings.SplitSeq(s, ",") {
			funs = append(funs, strings.TrimSpace(part))
		}
	}
	for _, f := range funs {
		data, ok := kept.Get(f)
		if !ok {
			continue
		}
		one := value.NewDict(1)
		one.Set(c.ID, data)
		if len(funs) == 1 {
			return one, nil
		}
		out.Set(f, one)
	}
	return out, nil
}

func needsMaster(c *fn.Call) error {
	if masterless(c) {
		return fn.Errorf("the mine is kept by a master, and this minion works without one (file_client is local)")
	}
	return nil
}

// definition is an entry of mine_functions.
type definition struct {
	alias, fun string
	args       []any
	kwargs     *value.Dict
	allow      *value.Dict // allow_tgt, allow_tgt_type
}

func define(alias string, v any) definition {
	d := definition{alias: alias, fun: alias, kwargs: value.NewDict(0)}
	switch x := v.(type) {
	case *value.Dict:
		d.kwargs = x.Clone()
	case *value.List:
		for _, it := range x.Items {
			if kw, ok := it.(*value.Dict); ok {
				d.kwargs.Update(kw)
			} else {
				d.args = append(d.args, it)
			}
		}
	}
	if f := d.kwargs.Str("mine_function"); f != "" {
		d.fun = f
	}
	d.kwargs.Delete("mine_function")
	d.allow = takeAllow(d.kwargs)
	return d
}

// takeAllow removes and returns the keywords that say who may read an entry.
func takeAllow(kwargs *value.Dict) *value.Dict {
	allow := value.NewDict(2)
	for _, k := range []string{"allow_tgt", "allow_tgt_type"} {
		if v := kwargs.At(k); value.Truth(v) {
			allow.Set(k, v)
		}
		kwargs.Delete(k)
	}
	return allow
}

// entry returns the result of a function in the form in which the mine stores
// it.
func entry(result any, allow *value.Dict) any {
	if !allow.Has("allow_tgt") {
		return result
	}
	d := value.DictOf("__data__", result, "__saltmine_acl__", 1)
	d.Update(allow)
	return d
}

type mineSendArgs struct {
	Name   string    `salt:"name" doc:"name to leave the result under"`
	Args   fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (m mine) send(ctx context.Context, c *fn.Call, a mineSendArgs) (bool, error) {
	kwargs := a.Kwargs.Clean()
	fun := a.Name
	if f := kwargs.Str("mine_function"); f != "" {
		fun = f
	}
	kwargs.Delete("mine_function")
	allow := takeAllow(kwargs)
	res, err := c.Funcs.Call(ctx, c, fun, a.Args, kwargs)
	if err != nil {
		c.Log.Error("mine function failed", "fun", fun, "err", err)
		return false, nil
	}
	return m.store(ctx, c, value.DictOf(a.Name, entry(res, allow)), false)
}

func (m mine) store(ctx context.Context, c *fn.Call, data *value.Dict, clear bool) (bool, error) {
	if err := needsMaster(c); err != nil {
		return false, err
	}
	return m.tell(ctx, value.DictOf("cmd", "_mine", "data", data, "id", c.ID, "clear", clear))
}

func (m mine) tell(ctx context.Context, load *value.Dict) (bool, error) {
	if err := m.masters.Send(ctx, load); err != nil {
		return false, fn.Errorf("no master takes the mine's data: %w", err)
	}
	return true, nil
}

type updateArgs struct {
	Clear     bool `salt:"clear" doc:"remove first what was left before" default:"false"`
	Functions any  `salt:"mine_functions" doc:"functions in place of those of the option" default:"null"`
}

func (m mine) update(ctx context.Context, c *fn.Call, a updateArgs) (any, error) {
	var functions *value.Dict
	switch x := a.Functions.(type) {
	case *value.Dict:
		functions = x
	case *value.List:
		functions = value.NewDict(x.Len())
		for _, f := range x.Items {
			functions.Set(value.Str(f), value.NewDict(0))
		}
	}
	if functions.Len() == 0 {
		functions = mineFunctions(c)
	}
	if functions.Len() == 0 {
		return nil, nil
	}
	data := value.NewDict(functions.Len())
	for alias, v := range functions.All() {
		d := define(value.Str(alias), v)
		res, err := c.Funcs.Call(ctx, c, d.fun, d.args, d.kwargs)
		if err != nil {
			c.Log.Error("mine function failed", "fun", d.fun, "err", err)
			continue
		}
		data.Set(d.alias, entry(res, d.allow))
	}
	return m.store(ctx, c, data, a.Clear)
}

// mineFunctions returns the option mine_functions, merged from the minion's
// options, the master's options and the pillar, in this order of precedence.
func mineFunctions(c *fn.Call) *value.Dict {
	all := value.NewDict(0)
	for _, d := range []*value.Dict{c.Pillar.All(), c.Pillar.All().Dict("master"), c.Config.All()} {
		all.Update(d.Dict("mine_functions"))
	}
	return all
}

type mineFunArgs struct {
	Fun string `salt:"fun" doc:"name of the function"`
}

func (m mine) delete(ctx context.Context, c *fn.Call, a mineFunArgs) (bool, error) {
	if err := needsMaster(c); err != nil {
		return false, err
	}
	return m.tell(ctx, value.DictOf("cmd", "_mine_delete", "id", c.ID, "fun", a.Fun))
}

func (m mine) flush(ctx context.Context, c *fn.Call, _ none) (bool, error) {
	if err := needsMaster(c); err != nil {
		return false, err
	}
	return m.tell(ctx, value.DictOf("cmd", "_mine_flush", "id", c.ID))
}

func (mine) valid(_ context.Context, c *fn.Call, _ none) (any, error) {
	functions := mineFunctions(c)
	if functions.Len() == 0 {
		return nil, nil
	}
	out := value.NewDict(functions.Len())
	for alias, v := range functions.All() {
		d := define(value.Str(alias), v)
		switch {
		case !c.Funcs.Has(d.fun):
			c.Log.Error("mine function not available", "fun", d.fun)
		case d.fun == d.alias:
			out.Set(d.alias, v)
		default:
			args := &value.List{Items: append([]any{}, d.args...)}
			for k, kv := range d.kwargs.All() {
				args.Append(value.DictOf(k, kv))
			}
			out.Set(d.alias, value.DictOf(d.fun, args))
		}
	}
	return out, nil
}
