package core

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

type pillar struct{}

func init() {
	units.Declare("pillar", func() fn.Module {
		return fn.Module{Name: "pillar", Doc: `Data that the master keeps for this minion.`, Funcs: []fn.Func{
			fn.Of("get", pillar{}.get, `Return the value at a path.`, notSet, fn.Example("salt '*' pillar.get pkg:apache")),
			fn.Of("fetch", pillar{}.get, `Same as pillar.get.`, notSet, fn.Example("salt '*' pillar.fetch pkg:apache")),
			fn.Of("items", pillar{}.items, `Return the whole pillar, or the values at some paths.`, fn.Example("salt '*' pillar.items")),
			fn.Of("data", pillar{}.items, `Same as pillar.items.`, fn.Example("salt '*' pillar.data")),
			fn.Of("obfuscate", pillar{}.obfuscate, `Return the whole pillar with the types in place of the values.`, fn.Example("salt '*' pillar.obfuscate")),
			fn.Of("ext", pillar{}.ext, `Return the pillar with a further source, if the master's option on_demand_ext_pillar allows it.`,
				fn.Example("salt '*' pillar.ext '{libvirt: _}'")),
			fn.Of("ls", pillar{}.ls, `Return the names at the top of the pillar.`, fn.Example("salt '*' pillar.ls")),
			fn.Of("item", pillar{}.item, `Return the values at some paths.`, fn.Example("salt '*' pillar.item foo foo:bar")),
			fn.Of("raw", pillar{}.raw, `Return the pillar, or one key of it, as the minion holds it.`, fn.Example("salt '*' pillar.raw key=roles")),
			fn.Of("keys", pillar{}.keys, `Return the keys of the map at a path.`, fn.Example("salt '*' pillar.keys web:sites")),
			fn.Of("filter_by", pillar{}.filterBy, `Return the value of a map whose key, a pattern, matches a value of the pillar.`,
				fn.Example("salt '*' pillar.filter_by '{web: Serve it up, db: I query, default: x_x}' role")),
			fn.Of("file_exists", pillar{}.fileExists, `Say whether there is such a file below the option pillar_roots.`,
				fn.Example("salt-call pillar.file_exists foo/bar.sls")),
		}}
	})
}

// unset is Salt's marker for a default that was not given.
const unset = "__unset__"

// notSet is how Salt's documentation shows an absent default.
var notSet = fn.Shown("default", func() any { return "<Constant.NOT_SET>" })

type pillarGetArgs struct {
	Key        any    `salt:"key" doc:"path to the value"`
	Default    any    `salt:"default" doc:"what to return if there is none; an empty text unless given" default:"__unset__"`
	Merge      bool   `salt:"merge" doc:"lay the value over the default: a map over a map, a list after a list" default:"false"`
	MergeLists any    `salt:"merge_nested_lists" doc:"put lists inside of maps together; as the option pillar_merge_lists says if null" default:"null"`
	Delimiter  string `salt:"delimiter" doc:"what separates the steps of the path" default:":"`
	Pillarenv  any    `salt:"pillarenv" doc:"environment to take the pillar from" default:"null"`
	Saltenv    any    `salt:"saltenv" doc:"has an effect with the option pillarenv_from_saltenv only" default:"null"`
}

func (pillar) get(ctx context.Context, c *fn.Call, a pillarGetArgs) (any, error) {
	all, err := held(ctx, c, a.Pillarenv, a.Saltenv)
	if err != nil {
		return nil, err
	}
	found, ok := traverse(all, a.Key, a.Delimiter)
	missing := value.Equal(a.Default, unset)
	if missing {
		a.Default = ""
	}
	if a.Merge {
		lists := value.Truth(a.MergeLists)
		if a.MergeLists == nil {
			lists = value.Truth(c.Config.Get("pillar_merge_lists"))
		}
		if v, fits := layOver(a.Default, found, ok, lists); fits {
			return v, nil
		}
		c.Log.Error("pillar.get: cannot merge: default and value must both be maps or both be lists", "key", value.Str(a.Key),
			"default", value.TypeName(a.Default), "value", value.TypeName(found))
	}
	switch {
	case ok:
		return found, nil
	case missing && value.Truth(c.Config.Get("pillar_raise_on_missing")):
		return nil, fn.Errorf("Pillar key not found: %s", value.Str(a.Key))
	}
	return a.Default, nil
}

// layOver merges a value over a default of the same type.
func layOver(under, over any, ok, lists bool) (any, bool) {
	switch d := under.(type) {
	case *value.Dict:
		m, isMap := over.(*value.Dict)
		if ok && !isMap {
			return nil, false
		}
		laid := value.DeepCopy(d).(*value.Dict)
		merge(laid, m, lists)
		return laid, true
	case *value.List:
		l, isList := over.(*value.List)
		if ok && !isList {
			return nil, false
		}
		return joined(d, l), true
	}
	return nil, false
}

// held returns the minion's pillar, or compiles it again for a named
// environment.
func held(ctx context.Context, c *fn.Call, pillarenv, saltenv any) (*value.Dict, error) {
	if pillarenv == nil && saltenv == nil {
		return c.Pillar.All(), nil
	}
	return fresh(ctx, c, pillarItemsArgs{Pillarenv: pillarenv, Saltenv: saltenv})
}

// fresh compiles the pillar again. If no master can, it returns the minion's
// pillar, unless another environment or other data is requested.
func fresh(ctx context.Context, c *fn.Call, a pillarItemsArgs) (*value.Dict, error) {
	env := a.Pillarenv
	if env == nil {
		env = c.Config.Get("pillarenv")
		if value.Truth(c.Config.Get("pillarenv_from_saltenv")) {
			if env = a.Saltenv; !value.Truth(env) {
				env = c.Config.Get("saltenv")
			}
		}
	}
	over, ok := a.Pillar.(*value.Dict)
	switch {
	case value.Truth(a.Pillar) && !ok:
		c.Log.Error("Pillar data must be a dictionary")
	case ok && value.Truth(a.PillarEnc):
		return nil, fn.Errorf("pillar_enc is not known here; have the master decrypt, with its option decrypt_pillar")
	}
	compiler, ok := c.Pillar.(fn.PillarCompiler)
	if !ok {
		if a.Pillarenv != nil || over.Len() > 0 || value.Truth(a.external) {
			return nil, fn.Errorf("there is no master to make a pillar of another environment or with other data")
		}
		return c.Pillar.All().Clone(), nil
	}
	q := fn.PillarQuery{Override: over, External: a.external}
	if value.Truth(env) {
		q.Pillarenv = value.Str(env)
	}
	d, err := compiler.Compile(ctx, q)
	if err != nil {
		return nil, fn.Errorf("cannot get the pillar: %w", err)
	}
	return d, nil
}

type pillarItemsArgs struct {
	Args      fn.Args `salt:"args"`
	Pillar    any     `salt:"pillar" doc:"map of data to make the pillar with" default:"null"`
	PillarEnc any     `salt:"pillar_enc" doc:"renderer that decrypts the map of data" default:"null"`
	Pillarenv any     `salt:"pillarenv" doc:"environment to take the pillar from" default:"null"`
	Saltenv   any     `salt:"saltenv" doc:"has an effect with the option pillarenv_from_saltenv only" default:"null"`

	external any
}

func (pillar) items(ctx context.Context, c *fn.Call, a pillarItemsArgs) (*value.Dict, error) {
	if len(a.Args) > 0 {
		return pillar{}.item(ctx, c, pillarItemArgs{Args: a.Args, Pillarenv: a.Pillarenv, Saltenv: a.Saltenv})
	}
	return fresh(ctx, c, a)
}

type pillarExtArgs struct {
	External any `salt:"external" doc:"one item of the option ext_pillar: a map of a source's name and its arguments"`
	Pillar   any `salt:"pillar" doc:"map of data to make the pillar with" default:"null"`
}

func (pillar) ext(ctx context.Context, c *fn.Call, a pillarExtArgs) (*value.Dict, error) {
	if s, ok := a.External.(string); ok {
		a.External = yaml.LoadArg(s)
	}
	return fresh(ctx, c, pillarItemsArgs{Pillar: a.Pillar, external: a.External})
}

func (pillar) obfuscate(ctx context.Context, c *fn.Call, a pillarItemsArgs) (any, error) {
	all, err := pillar{}.items(ctx, c, a)
	return obfuscate(all), err
}

// obfuscate replaces all values except containers by the names of their types.
func obfuscate(v any) any {
	switch x := v.(type) {
	case *value.Dict:
		d := value.NewDict(x.Len())
		for k, w := range x.All() {
			d.Set(k, obfuscate(w))
		}
		return d
	case *value.List:
		l := &value.List{}
		for _, w := range x.Items {
			l.Append(obfuscate(w))
		}
		return l
	case value.Tuple:
		t := make(value.Tuple, len(x))
		for i, w := range x {
			t[i] = obfuscate(w)
		}
		return t
	}
	return "<" + value.TypeName(v) + ">"
}

func (pillar) ls(ctx context.Context, c *fn.Call, a pillarItemsArgs) (*value.List, error) {
	all, err := pillar{}.items(ctx, c, a)
	return &value.List{Items: all.Keys()}, err
}

type pillarItemArgs struct {
	Args      fn.Args `salt:"args"`
	Default   any     `salt:"default" doc:"what to return where there is none" default:"null"`
	Delimiter any     `salt:"delimiter" doc:"what separates the steps of the paths" default:"null"`
	Pillarenv any     `salt:"pillarenv" doc:"environment to take the pillar from" default:"null"`
	Saltenv   any     `salt:"saltenv" doc:"has an effect with the option pillarenv_from_saltenv only" default:"null"`
}

func (pillar) item(ctx context.Context, c *fn.Call, a pillarItemArgs) (*value.Dict, error) {
	all, err := held(ctx, c, a.Pillarenv, a.Saltenv)
	if err != nil {
		return nil, err
	}
	if a.Default == nil {
		a.Default = ""
	}
	delimiter := ":"
	if a.Delimiter != nil {
		delimiter = value.Str(a.Delimiter)
	}
	out := value.NewDict(len(a.Args))
	for _, key := range a.Args {
		if !value.Hashable(key) {
			return nil, fn.Invalidf("a path is a text, not a %s", value.TypeName(key))
		}
		v, ok := traverse(all, key, delimiter)
		if !ok {
			v = a.Default
		}
		out.Set(key, v)
	}
	return out, nil
}

type rawArgs struct {
	Key any `salt:"key" doc:"key to return alone" default:"null"`
}

func (pillar) raw(_ context.Context, c *fn.Call, a rawArgs) (any, error) {
	all := c.Pillar.All()
	if !value.Truth(a.Key) {
		return all.Clone(), nil
	}
	if !value.Hashable(a.Key) {
		return nil, fn.Invalidf("a key is a text, not a %s", value.TypeName(a.Key))
	}
	if v, ok := all.Get(a.Key); ok {
		return v, nil
	}
	return value.NewDict(0), nil
}

type pillarKeysArgs struct {
	Key       any    `salt:"key" doc:"path to the map"`
	Delimiter string `salt:"delimiter" doc:"what separates the steps of the path" default:":"`
}

func (pillar) keys(_ context.Context, c *fn.Call, a pillarKeysArgs) (*value.List, error) {
	v, ok := traverse(c.Pillar.All(), a.Key, a.Delimiter)
	if !ok {
		return nil, fn.Errorf("Pillar key not found: %s", value.Str(a.Key))
	}
	d, ok := v.(*value.Dict)
	if !ok {
		return nil, fn.Errorf("Pillar value in key %s is not a dict", value.Str(a.Key))
	}
	return &value.List{Items: d.Keys()}, nil
}

type pillarFilterArgs struct {
	Lookup  *value.Dict `salt:"lookup_dict" doc:"map of patterns and values"`
	Pillar  any         `salt:"pillar" doc:"path to the value that is matched"`
	Merge   any         `salt:"merge" doc:"map that is laid over the result" default:"null"`
	Default any         `salt:"default" doc:"key of the value to return if no pattern matches" default:"default"`
	Base    any         `salt:"base" doc:"key of a map that the result is laid over" default:"null"`
}

func (pillar) filterBy(_ context.Context, c *fn.Call, a pillarFilterArgs) (any, error) {
	return filterBy(c.Pillar.All(), a.Pillar, filterArgs{Lookup: a.Lookup, Merge: a.Merge, Default: a.Default, Base: a.Base})
}

type pillarFileArgs struct {
	Path    string `salt:"path" doc:"path below the directories of the pillar"`
	Saltenv any    `salt:"saltenv" doc:"the only environment to look in" default:"null"`
}

func (pillar) fileExists(_ context.Context, c *fn.Call, a pillarFileArgs) (bool, error) {
	roots, _ := c.Config.Get("pillar_roots").(*value.Dict)
	if roots.Len() == 0 {
		return false, fn.Errorf("No pillar_roots found. Are you running this on the master?")
	}
	if !filepath.IsLocal(a.Path) {
		return false, nil // do not look outside of the pillar's directories
	}
	for env, dirs := range roots.All() {
		if value.Truth(a.Saltenv) && !value.Equal(env, a.Saltenv) {
			continue
		}
		list, _ := dirs.(*value.List)
		if list != nil && slices.ContainsFunc(list.Items, func(dir any) bool {
			st, err := os.Stat(filepath.Join(value.Str(dir), a.Path))
			return err == nil && st.Mode().IsRegular()
		}) {
			return true, nil
		}
	}
	return false, nil
}
