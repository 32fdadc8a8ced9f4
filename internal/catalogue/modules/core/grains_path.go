package core

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// The functions here change a grain at a path: they compute the new value of
// the top-level grain in which the path begins, and set that.

// at returns a copy of the grain at a path, to be changed. It reads the store,
// as the Call may hold grains from before another job's change.
func (g grains) at(path, delimiter string) (any, bool) {
	v, ok := traverse(g.store.Grains(), path, delimiter)
	return value.DeepCopy(v), ok
}

// up splits off the last step of a path.
func up(path, delimiter string) (parent, step string, ok bool) {
	if delimiter == "" {
		return path, "", false
	}
	i := strings.LastIndex(path, delimiter)
	if i < 0 {
		return path, "", false
	}
	return path[:i], path[i+len(delimiter):], true
}

type appendArgs struct {
	Key       string `salt:"key" doc:"path to the list"`
	Val       any    `salt:"val" doc:"value, or list of values, to add"`
	Convert   bool   `salt:"convert" doc:"make a list of what is there if it is none" default:"false"`
	Delimiter string `salt:"delimiter" doc:"what separates the steps of the path" default:":"`
}

func (g grains) append(ctx context.Context, c *fn.Call, a appendArgs) (any, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	have, ok := g.at(a.Key, a.Delimiter)
	list, isList := have.(*value.List)
	switch {
	case !ok:
		list = &value.List{}
	case isList:
	case a.Convert && have == nil:
		list = &value.List{}
	case a.Convert:
		list = &value.List{Items: []any{have}}
	default:
		return fmt.Sprintf("The key %s is not a valid list", a.Key), nil
	}
	if contains(list, a.Val) {
		return fmt.Sprintf("The val %s was already in the list %s", value.Str(a.Val), a.Key), nil
	}
	if more, ok := a.Val.(*value.List); ok {
		list.Append(more.Items...)
	} else {
		list.Append(a.Val)
	}
	return g.place(ctx, c, a.Key, a.Delimiter, list)
}

type removeArgs struct {
	Key       string `salt:"key" doc:"path to the list"`
	Val       any    `salt:"val" doc:"value to remove"`
	Delimiter string `salt:"delimiter" doc:"what separates the steps of the path" default:":"`
}

func (g grains) remove(ctx context.Context, c *fn.Call, a removeArgs) (any, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	have, ok := g.at(a.Key, a.Delimiter)
	list, isList := have.(*value.List)
	switch {
	case !ok:
		list = &value.List{}
	case !isList:
		return fmt.Sprintf("The key %s is not a valid list", a.Key), nil
	}
	i := slices.IndexFunc(list.Items, func(v any) bool { return value.Equal(v, a.Val) })
	if i < 0 {
		return fmt.Sprintf("The val %s was not in the list %s", value.Str(a.Val), a.Key), nil
	}
	list.Items = slices.Delete(list.Items, i, i+1)
	return g.place(ctx, c, a.Key, a.Delimiter, list)
}

func contains(l *value.List, v any) bool {
	return slices.ContainsFunc(l.Items, func(it any) bool { return value.Equal(it, v) })
}

// place sets v at a path and creates missing maps on the way. A grain on the
// way that is not a map is an error, so that it is not overwritten.
func (g grains) place(ctx context.Context, c *fn.Call, path, delimiter string, v any) (any, error) {
	for {
		parent, step, ok := up(path, delimiter)
		if !ok {
			return g.write(ctx, c, value.DictOf(path, v), false, true)
		}
		have, _ := g.at(parent, delimiter)
		d, isDict := have.(*value.Dict)
		switch {
		case have == nil:
			d = value.NewDict(1)
		case !isDict:
			return nil, fn.Errorf("the grain %s is a %s, so there can be no %s in it", parent, value.TypeName(have), step)
		}
		d.Set(step, v)
		path, v = parent, d
	}
}

type delkeyArgs struct {
	Key   string `salt:"key" doc:"path to the grain"`
	Force bool   `salt:"force" doc:"remove lists and maps too" default:"false"`
}

func (g grains) delkey(ctx context.Context, c *fn.Call, a delkeyArgs) (*value.Dict, error) {
	return g.set(ctx, c, setArgs{a.Key, nil, a.Force, true, ":"})
}

type delvalArgs struct {
	Key         string `salt:"key" doc:"path to the grain"`
	Destructive bool   `salt:"destructive" doc:"remove the grain instead of its value" default:"false"`
	Force       bool   `salt:"force" doc:"remove lists and maps too" default:"false"`
}

func (g grains) delval(ctx context.Context, c *fn.Call, a delvalArgs) (*value.Dict, error) {
	return g.set(ctx, c, setArgs{a.Key, nil, a.Force, a.Destructive, ":"})
}

type setArgs struct {
	Key         string `salt:"key" doc:"path to the grain"`
	Val         any    `salt:"val" doc:"its value" default:"''"`
	Force       bool   `salt:"force" doc:"replace lists, maps and what is in the way of the path" default:"false"`
	Destructive bool   `salt:"destructive" doc:"remove the grain if the new value is null" default:"false"`
	Delimiter   string `salt:"delimiter" doc:"what separates the steps of the path" default:":"`
}

func (g grains) set(ctx context.Context, c *fn.Call, a setArgs) (*value.Dict, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	have, exists := g.at(a.Key, a.Delimiter)
	removes := a.Val == nil && a.Destructive
	switch {
	case exists && value.Equal(have, a.Val) && !removes:
		return setReturn("Grain is already set", nil, true), nil
	case a.Force || !exists || have == nil:
	case nested(have):
		return setReturn(fmt.Sprintf("The key '%s' exists but is a dict or a list. Use 'force=True' to overwrite.", a.Key), nil, false), nil
	case nested(a.Val):
		return setReturn(fmt.Sprintf("The key '%s' exists and the given value is a dict or a list. Use 'force=True' to overwrite.", a.Key), nil, false), nil
	}
	key, v := a.Key, a.Val
	for {
		parent, step, ok := up(key, a.Delimiter)
		if !ok {
			break
		}
		have, exists := g.at(parent, a.Delimiter)
		if !exists {
			have = value.NewDict(1)
		}
		if v, ok = setStep(have, step, v, a); !ok {
			return setReturn(fmt.Sprintf("The key '%s' value is '%s', which is different from the provided key '%s'. Use 'force=True' to overwrite.",
				parent, value.Str(have), step), nil, false), nil
		}
		key = parent
	}
	changes, err := g.write(ctx, c, value.DictOf(key, v), a.Destructive, true)
	if err != nil {
		return nil, err
	}
	if text, ok := changes.(string); ok {
		return setReturn(text, nil, false), nil
	}
	return setReturn("", changes, true), nil
}

// setStep sets v below have, one step of the path, and returns the new value
// of have; ok is false if have is of another type.
func setStep(have any, step string, v any, a setArgs) (becomes any, ok bool) {
	one := value.DictOf(step, v)
	switch x := have.(type) {
	case *value.Dict:
		if v == nil && a.Destructive {
			x.Delete(step)
		} else {
			x.Set(step, v)
		}
		return x, true
	case *value.List:
		updated := false
		for i, it := range x.Items {
			if d, is := it.(*value.Dict); is && d.Has(step) {
				d.Set(step, v)
				updated = true
			} else if value.Equal(it, step) {
				x.Items[i] = one
				updated = true
			}
		}
		if !updated {
			x.Append(one)
		}
		return x, true
	}
	return one, a.Force || value.Equal(have, step)
}

func nested(v any) bool {
	switch v.(type) {
	case *value.Dict, *value.List:
		return true
	}
	return false
}

func setReturn(comment string, changes any, result bool) *value.Dict {
	if changes == nil {
		changes = value.NewDict(0)
	}
	return value.DictOf("comment", comment, "changes", changes, "result", result)
}
