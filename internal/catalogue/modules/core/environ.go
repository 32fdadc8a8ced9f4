package core

import (
	"context"
	"os"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// environ reads and sets the environment of this process, which all jobs
// share.
type environ struct{}

func init() {
	units.Declare("environ", func() fn.Module {
		return fn.Module{Name: "environ", Doc: `Environment variables of the minion. A change lasts until the minion ends and holds for all jobs.`,
			Funcs: []fn.Func{
				fn.Of("setval", environ{}.setval, `Set a variable.`, fn.Example("salt '*' environ.setval foo bar")),
				fn.Of("setenv", environ{}.setenv, `Set several variables.`, fn.Example("salt '*' environ.setenv '{foo: bar, baz: quux}'")),
				fn.Of("get", environ{}.get, `Return the value of a variable.`, fn.Example("salt '*' environ.get foo")),
				fn.Of("has_value", environ{}.hasValue, `Say whether there is a variable, possibly with a given value.`,
					fn.Example("salt '*' environ.has_value foo")),
				fn.Of("item", environ{}.item, `Return the values of some variables.`, fn.Example("salt '*' environ.item '[foo, baz]' default=null")),
				fn.Of("items", environ{}.items, `Return all variables.`, fn.Example("salt '*' environ.items")),
			}}
	})
}

type environSetArgs struct {
	Key         any  `salt:"key" doc:"name of the variable"`
	Val         any  `salt:"val" doc:"its value, or false"`
	FalseUnsets bool `salt:"false_unsets" doc:"remove the variable if its value is false" default:"false"`
	Permanent   any  `salt:"permanent" ignored:"only Windows keeps variables" default:"false"`
}

func (environ) setval(_ context.Context, c *fn.Call, a environSetArgs) (any, error) {
	return setVariable(c, a.Key, a.Val, a.FalseUnsets), nil
}

// setVariable returns the new value, nil if the variable was removed, or
// false if it cannot be set.
func setVariable(c *fn.Call, key, val any, falseUnsets bool) any {
	name, ok := key.(string)
	if val == false && falseUnsets {
		if ok && os.Unsetenv(name) == nil {
			return nil
		}
		return false
	}
	if val == false {
		val = ""
	}
	text, isText := val.(string)
	if !ok || !isText {
		c.Log.Error("environment variable and its value must be strings", "variable", value.Str(key), "value", value.TypeName(val))
		return false
	}
	if err := os.Setenv(name, text); err != nil {
		c.Log.Error("cannot set environment variable", "variable", name, "err", err)
		return false
	}
	return text
}

type setenvArgs struct {
	Environ      any  `salt:"environ" doc:"map of names and values, each a text or false"`
	FalseUnsets  bool `salt:"false_unsets" doc:"remove variables whose value is false" default:"false"`
	ClearAll     bool `salt:"clear_all" doc:"empty, or remove, all variables that are not named" default:"false"`
	UpdateMinion bool `salt:"update_minion" doc:"by salt-call, change the environment of the daemon, too" default:"false"`
	Permanent    any  `salt:"permanent" doc:"keep the variables, on Windows" default:"false"`
}

func (environ) setenv(ctx context.Context, c *fn.Call, a setenvArgs) (any, error) {
	set, ok := a.Environ.(*value.Dict)
	if !ok {
		return false, nil
	}
	out := value.NewDict(set.Len())
	if a.ClearAll {
		for _, entry := range os.Environ() {
			if name, _, ok := strings.Cut(entry, "="); ok && !set.Has(name) {
				out.Set(name, setVariable(c, name, false, a.FalseUnsets))
			}
		}
	}
	for k, v := range set.All() {
		if _, text := v.(string); !text && v != false {
			return false, nil
		}
		out.Set(k, setVariable(c, k, v, a.FalseUnsets))
	}
	if a.UpdateMinion {
		data := value.DictOf("environ", set, "false_unsets", a.FalseUnsets, "clear_all", a.ClearAll, "permanent", a.Permanent)
		if _, err := c.Funcs.Call(ctx, c, "event.fire", []any{data, "environ_setenv"}, nil); err != nil {
			return nil, err
		}
	}
	return out, nil
}

type environGetArgs struct {
	Key     any `salt:"key" doc:"name of the variable"`
	Default any `salt:"default" doc:"what to return if there is none" default:"''"`
}

func (environ) get(_ context.Context, _ *fn.Call, a environGetArgs) (any, error) {
	name, ok := a.Key.(string)
	if !ok {
		return false, nil
	}
	if v, ok := os.LookupEnv(name); ok {
		return v, nil
	}
	return a.Default, nil
}

type environHasArgs struct {
	Key   any `salt:"key" doc:"name of the variable"`
	Value any `salt:"value" doc:"value that it must have" default:"null"`
}

func (environ) hasValue(_ context.Context, _ *fn.Call, a environHasArgs) (bool, error) {
	name, _ := a.Key.(string)
	v, ok := os.LookupEnv(name)
	return ok && (a.Value == nil || value.Equal(a.Value, v)), nil
}

type environItemArgs struct {
	Keys    any `salt:"keys" doc:"name, or list of names"`
	Default any `salt:"default" doc:"what to return where there is none" default:"''"`
}

func (environ) item(_ context.Context, _ *fn.Call, a environItemArgs) (*value.Dict, error) {
	out := value.NewDict(1)
	var names []any
	switch x := a.Keys.(type) {
	case string:
		names = []any{x}
	case *value.List:
		names = x.Items
	}
	for _, n := range names {
		name, ok := n.(string)
		if !ok {
			return nil, fn.Invalidf("the name of a variable is a text, not a %s", value.TypeName(n))
		}
		if v, ok := os.LookupEnv(name); ok {
			out.Set(name, v)
		} else {
			out.Set(name, a.Default)
		}
	}
	return out, nil
}

func (environ) items(context.Context, *fn.Call, none) (*value.Dict, error) {
	all := os.Environ()
	out := value.NewDict(len(all))
	for _, entry := range all {
		if name, v, ok := strings.Cut(entry, "="); ok {
			out.Set(name, v)
		}
	}
	return out, nil
}
