package core

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// match reports whether a target of one type matches this minion.
type match struct{ kind string }

func init() { units.Declare("match", matchModule) }

func matchModule() fn.Module {
	m := fn.Module{Name: "match", Doc: `Whether targets mean this minion.`}
	for _, kind := range []struct{ name, example string }{
		{"compound", "'L@cheese,foo and *'"}, {"list", "server1,server2"}, {"pcre", "'.*'"}, {"glob", "'*'"},
	} {
		m.Funcs = append(m.Funcs, fn.Of(kind.name, match{kind.name}.id, `Say whether the minion is meant by a `+kind.name+` target.`,
			fn.Example("salt '*' match."+kind.name+" "+kind.example)))
	}
	for _, kind := range []struct{ name, example string }{
		{"grain", "'os:Ubuntu'"}, {"grain_pcre", "'os:Fedo.*'"}, {"pillar", "'cheese:foo'"}, {"pillar_pcre", "'cheese:(swiss|american)'"},
	} {
		m.Funcs = append(m.Funcs, fn.Of(kind.name, match{kind.name}.data, `Say whether the minion is meant by a `+kind.name+` target.`,
			fn.Example("salt '*' match."+kind.name+" "+kind.example)))
	}
	m.Funcs = append(m.Funcs,
		fn.Of("ipcidr", match{"ipcidr"}.plain, `Say whether the minion has such an address, or one in such a network.`,
			fn.Example("salt '*' match.ipcidr 192.168.44.0/24")),
		fn.Of("data", match{}.store, `Say whether the minion's own data (see the module data) has a value.`, fn.Example("salt '*' match.data spam:eggs")),
		fn.Of("filter_by", match{}.filterBy, `Return the value of a map whose key is a target that means the minion.`,
			fn.Example("salt '*' match.filter_by '{foo*: Foo!, bar*: Bar!}' minion_id=bar03")),
		fn.Of("search_by", match{}.searchBy, `Return the keys of a map whose lists hold a target that means the minion.`,
			fn.Example("salt '*' match.search_by '{web: [node1, node2], db: [node2, node]}'")),
		fn.Of("ifelse", match{}.ifelse, `Return the value after the first target that means the minion, or else the last argument.`,
			fn.Example("salt '*' match.ifelse 'foo*' 'Foo!' 'bar*' 'Bar!' minion_id=bar03")),
	)
	return m
}

// means reports whether a target matches the minion, or another id with this
// minion's data. An invalid target matches no minion.
func means(c *fn.Call, kind string, tgt any, delimiter string, id any) bool {
	groups := target.Nodegroups{}
	if d, ok := c.Config.Get("nodegroups").(*value.Dict); ok {
		maps.Insert(groups, func(yield func(string, any) bool) {
			for k, v := range d.All() {
				if !yield(value.Str(k), v) {
					return
				}
			}
		})
	}
	m, err := groups.Parse(kind, tgt, delimiter)
	if err != nil {
		c.Log.Error("cannot match a target", "target", value.Str(tgt), "err", err)
		return false
	}
	who := target.Data{MinionID: c.ID, GrainData: c.Grains.All(), PillarData: c.Pillar.All()}
	if value.Truth(id) {
		who.MinionID = value.Str(id)
	}
	return m.Match(who)
}

type matchArgs struct {
	Tgt      any `salt:"tgt" doc:"target"`
	MinionID any `salt:"minion_id" doc:"id in place of this minion's" default:"null"`
}

func (m match) id(_ context.Context, c *fn.Call, a matchArgs) (bool, error) {
	return means(c, m.kind, a.Tgt, "", a.MinionID), nil
}

type matchDataArgs struct {
	Tgt       any    `salt:"tgt" doc:"target"`
	Delimiter string `salt:"delimiter" doc:"what separates the steps of the path" default:":"`
}

func (m match) data(_ context.Context, c *fn.Call, a matchDataArgs) (bool, error) {
	return means(c, m.kind, a.Tgt, a.Delimiter, nil), nil
}

type matchPlainArgs struct {
	Tgt any `salt:"tgt" doc:"target"`
}

func (m match) plain(_ context.Context, c *fn.Call, a matchPlainArgs) (bool, error) {
	return means(c, m.kind, a.Tgt, "", nil), nil
}

func (match) store(_ context.Context, c *fn.Call, a matchPlainArgs) (bool, error) {
	key, pattern, ok := cut(value.Str(a.Tgt))
	if !ok {
		return false, nil
	}
	all, err := datastore{}.read(c)
	if err != nil {
		return false, err
	}
	glob := target.ParseGlob(pattern)
	switch x := all.At(key).(type) {
	case nil:
	case *value.List:
		for _, it := range x.Items {
			if glob.Match(value.Str(it)) {
				return true, nil
			}
		}
	case *value.Dict:
		return x.Has(pattern), nil
	default:
		return glob.Match(value.Str(x)), nil
	}
	return false, nil
}

type matchFilterArgs struct {
	Lookup     *value.Dict `salt:"lookup" doc:"map of targets and values"`
	TgtType    string      `salt:"tgt_type" doc:"type of the targets" default:"compound"`
	MinionID   any         `salt:"minion_id" doc:"id in place of this minion's" default:"null"`
	Merge      any         `salt:"merge" doc:"map that is laid over the result" default:"null"`
	MergeLists bool        `salt:"merge_lists" doc:"put lists together instead of replacing them" default:"false"`
	Default    any         `salt:"default" doc:"key of the value to return if no target matches" default:"default"`
}

// kindOf also accepts Python's name of the function.
func kindOf(tgtType string) (string, error) {
	switch tgtType {
	case "list_":
		return "list", nil
	case "compound", "glob", "grain", "grain_pcre", "ipcidr", "list", "pcre", "pillar", "pillar_pcre":
		return tgtType, nil
	}
	return "", fn.Invalidf("there is no target type %q; use compound, glob, pcre, list, grain, grain_pcre, pillar, pillar_pcre or ipcidr", tgtType)
}

func (match) filterBy(_ context.Context, c *fn.Call, a matchFilterArgs) (any, error) {
	kind, err := kindOf(a.TgtType)
	if err != nil {
		return nil, err
	}
	for key, v := range a.Lookup.All() {
		if !means(c, kind, key, "", a.MinionID) {
			continue
		}
		if !value.Truth(a.Merge) {
			return v, nil
		}
		over, ok := a.Merge.(*value.Dict)
		if !ok {
			return nil, errors.New("filter_by merge argument must be a dictionary")
		}
		if v == nil {
			return over, nil
		}
		under, ok := v.(*value.Dict)
		if !ok {
			return nil, fn.Invalidf("filter_by cannot merge a map into the value %s", value.Repr(v))
		}
		laid := value.DeepCopy(under).(*value.Dict)
		merge(laid, over, a.MergeLists)
		return laid, nil
	}
	if !value.Hashable(a.Default) {
		return nil, nil
	}
	return a.Lookup.At(a.Default), nil
}

type searchArgs struct {
	Lookup   *value.Dict `salt:"lookup" doc:"map of names and lists of targets"`
	TgtType  string      `salt:"tgt_type" doc:"type of the targets" default:"compound"`
	MinionID any         `salt:"minion_id" doc:"id in place of this minion's" default:"null"`
}

func (match) searchBy(_ context.Context, c *fn.Call, a searchArgs) (any, error) {
	kind, err := kindOf(a.TgtType)
	if err != nil {
		return nil, err
	}
	found := &value.List{}
	for key, v := range a.Lookup.All() {
		targets, ok := v.(*value.List)
		if !ok {
			return nil, fn.Invalidf("the targets of %s must be a list, not %s", value.Str(key), value.TypeName(v))
		}
		for _, tgt := range targets.Items {
			if means(c, kind, tgt, "", a.MinionID) {
				found.Append(key)
			}
		}
	}
	if found.Len() == 0 {
		return nil, nil
	}
	return found, nil
}

type ifelseArgs struct {
	Args       fn.Args `salt:"args"`
	TgtType    string  `salt:"tgt_type" doc:"type of the targets" default:"compound"`
	MinionID   any     `salt:"minion_id" doc:"id in place of this minion's" default:"null"`
	Merge      any     `salt:"merge" doc:"map that is laid over the result" default:"null"`
	MergeLists bool    `salt:"merge_lists" doc:"put lists together instead of replacing them" default:"false"`
}

func (match) ifelse(ctx context.Context, c *fn.Call, a ifelseArgs) (any, error) {
	if len(a.Args)%2 == 0 {
		return nil, fn.Invalidf("the ifelse function must have an odd number of arguments")
	}
	last := a.Args[len(a.Args)-1]
	if len(a.Args) == 1 {
		return last, nil
	}
	const otherwise, nothing = "SALT_IFELSE_FUNCTION_DEFAULT", "SALT_IFELSE_MATCH_NOTHING"
	lookup := value.NewDict(len(a.Args))
	for i := 0; i+1 < len(a.Args); i += 2 {
		key := a.Args[i]
		switch key {
		case true:
			key = "*"
		case false:
			key = nothing
		}
		if !value.Hashable(key) {
			return nil, fmt.Errorf("unhashable type: '%s'", value.TypeName(key))
		}
		lookup.Set(key, a.Args[i+1])
	}
	lookup.Set(otherwise, last)
	return match{}.filterBy(ctx, c, matchFilterArgs{Lookup: lookup, TgtType: a.TgtType, MinionID: a.MinionID, Merge: a.Merge, MergeLists: a.MergeLists,
		Default: otherwise})
}
