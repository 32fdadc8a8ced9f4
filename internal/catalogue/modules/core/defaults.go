package core

import (
	"context"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

type defaults struct{}

func init() {
	d := defaults{}
	units.Declare("defaults", func() fn.Module {
		return fn.Module{Name: "defaults", Doc: `Default values of formulas, and how to lay others over them.`, Funcs: []fn.Func{
			fn.Of("get", d.get, `Return a value of the file defaults.yaml or defaults.json of a formula: the pillar is not looked at.`,
				fn.Example("salt '*' defaults.get core:users:root")),
			fn.Of("merge", d.merge, `Lay one map over another, which is changed unless in_place is false, and return it.`,
				fn.Example(`salt '*' defaults.merge '{a: b}' '{d: e}'`)),
			fn.Of("deepcopy", d.deepcopy, `Return a copy that shares nothing with the value.`, fn.Example(`salt '*' defaults.deepcopy '{a: [1]}'`)),
			fn.Of("update", d.update, `Fill each of the maps in a map with default values.`,
				fn.Example(`salt '*' defaults.update '{u1: {shell: zsh}}' '{shell: bash}'`)),
		}}
	})
}

type defaultsGetArgs struct {
	Key     string `salt:"key" doc:"name of the formula, and after a colon the path to the value"`
	Default any    `salt:"default" doc:"what to return if there is none" default:""`
}

func (defaults) get(ctx context.Context, c *fn.Call, a defaultsGetArgs) (any, error) {
	formula, key, has := strings.Cut(a.Key, ":")
	v, err := loadDefaults(ctx, c, formula)
	if err != nil || !has || key == "" {
		return v, err
	}
	if found, ok := value.Traverse(v, key, ":"); ok {
		return found, nil
	}
	return a.Default, nil
}

// loadDefaults returns None for a formula that lacks the file.
func loadDefaults(ctx context.Context, c *fn.Call, formula string) (any, error) {
	for _, ext := range []string{"yaml", "json"} {
		name := "salt://" + formula + "/defaults." + ext
		b, err := c.Files.Read(ctx, name, "base")
		if salt.KindOf(err) == salt.NotFound {
			continue
		}
		var v any
		if err == nil && ext == "yaml" {
			v, err = yaml.Load(b, name)
		} else if err == nil {
			v, err = json.Load(string(b))
		}
		if err != nil {
			return nil, fn.Errorf("cannot read %s: %w", name, err)
		}
		if v == nil {
			v = value.NewDict(0)
		}
		return v, nil
	}
	return nil, nil
}

type defaultsMergeArgs struct {
	Dest    any  `salt:"dest" doc:"the map that is changed"`
	Src     any  `salt:"src" doc:"the map that is laid over it"`
	Lists   bool `salt:"merge_lists" doc:"put lists together instead of replacing them" default:"false"`
	InPlace bool `salt:"in_place" doc:"change dest itself, not a copy" default:"true"`
	Convert bool `salt:"convert_none" doc:"take null for an empty map" default:"true"`
}

func (defaults) merge(_ context.Context, _ *fn.Call, a defaultsMergeArgs) (*value.Dict, error) {
	if a.Src == nil && a.Convert {
		a.Src = value.NewDict(0)
	}
	if a.Dest == nil && a.Convert {
		if a.InPlace {
			return nil, fn.Errorf("Can't perform in-place merge into NoneType")
		}
		a.Dest = value.NewDict(0)
	}
	dest, ok1 := a.Dest.(*value.Dict)
	src, ok2 := a.Src.(*value.Dict)
	if !ok1 || !ok2 {
		return nil, fn.Errorf("Cannot update using non-dict types in dictupdate.update()")
	}
	if !a.InPlace {
		dest = value.DeepCopy(dest).(*value.Dict)
	}
	value.Update(dest, src, a.Lists)
	return dest, nil
}

type sourceArgs struct {
	Source any `salt:"source" doc:"the value"`
}

func (defaults) deepcopy(_ context.Context, _ *fn.Call, a sourceArgs) (any, error) {
	return value.DeepCopy(a.Source), nil
}

type defaultsUpdateArgs struct {
	Dest     any  `salt:"dest" doc:"map of maps"`
	Defaults any  `salt:"defaults" doc:"default values of each"`
	Lists    bool `salt:"merge_lists" doc:"put lists together instead of replacing them" default:"true"`
	InPlace  bool `salt:"in_place" doc:"change dest itself, not a copy" default:"true"`
	Convert  bool `salt:"convert_none" doc:"take null for an empty map" default:"true"`
}

func (d defaults) update(ctx context.Context, c *fn.Call, a defaultsUpdateArgs) (*value.Dict, error) {
	if a.Dest == nil && a.InPlace {
		return nil, fn.Errorf("Can't perform in-place update into NoneType")
	}
	if a.Dest == nil && a.Convert {
		a.Dest = value.NewDict(0)
	}
	dest, ok := a.Dest.(*value.Dict)
	if !ok {
		return nil, fn.Errorf("dest must be a map of maps, not %s", value.TypeName(a.Dest))
	}
	if !a.InPlace {
		dest = value.DeepCopy(dest).(*value.Dict)
	}
	if a.Defaults == nil && a.Convert {
		a.Defaults = value.NewDict(0)
	}
	for _, k := range dest.Keys() {
		node, err := d.merge(ctx, c, defaultsMergeArgs{Dest: value.DeepCopy(a.Defaults), Src: dest.At(k), Lists: a.Lists, InPlace: true, Convert: a.Convert})
		if err != nil {
			return nil, err
		}
		dest.Set(k, node)
	}
	return dest, nil
}
