package core

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// datastore is a map in a file of the minion's cache, which Salt can read. A
// lock serializes changes, so that none is lost.
type datastore struct{ mu *sync.Mutex }

func init() {
	d := datastore{&sync.Mutex{}}
	units.Declare("data", func() fn.Module {
		return fn.Module{Name: "data", Doc: `A map that the minion keeps on disk for whatever use.`, Funcs: []fn.Func{
			fn.Of("clear", d.clear, `Remove all that is kept.`, fn.Example("salt '*' data.clear")),
			fn.Of("load", d.load, `Return all that is kept.`, fn.Example("salt '*' data.load")),
			fn.Of("items", d.load, `Same as data.load.`, fn.Example("salt '*' data.items")),
			fn.Of("dump", d.dump, `Replace all that is kept.`, fn.Example("salt '*' data.dump '{eggs: spam}'")),
			fn.Of("update", d.update, `Set the value of a key.`, fn.Example("salt '*' data.update key value")),
			fn.Of("cas", d.cas, `Set the value of a key if it has a given value.`, fn.Example("salt '*' data.cas key value old_value")),
			fn.Of("pop", d.pop, `Remove a key and return its value.`, fn.Example("salt '*' data.pop key 'there was no value'")),
			fn.Of("get", d.get, `Return the value of a key, or a list of those of several.`, fn.Example("salt '*' data.get '[key1, key2]'")),
			fn.Of("keys", d.keys, `Return all keys.`, fn.Example("salt '*' data.keys")),
			fn.Of("values", d.values, `Return all values.`, fn.Example("salt '*' data.values")),
			fn.Of("has_key", d.hasKey, `Say whether there is a key.`, fn.Example("salt '*' data.has_key key")),
		}}
	})
}

func (datastore) path(c *fn.Call) string {
	return filepath.Join(value.Str(c.Config.Get("cachedir")), "datastore")
}

// read returns the stored map, empty if there is none.
func (d datastore) read(c *fn.Call) (*value.Dict, error) {
	b, err := os.ReadFile(d.path(c))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) == 0 {
		return value.NewDict(0), nil
	}
	if err != nil {
		return nil, fn.Errorf("cannot read the minion's data: %w", err)
	}
	v, err := msgpack.Unmarshal(b)
	all, ok := v.(*value.Dict)
	if err != nil || !ok {
		return nil, fn.Errorf("%s is damaged; data.clear removes it", d.path(c))
	}
	return all, nil
}

func (d datastore) write(c *fn.Call, all *value.Dict) error {
	b, err := msgpack.Marshal(all, msgpack.Wire)
	if err == nil {
		err = atomicfile.Write(d.path(c), b, 0o600, false)
	}
	if err != nil {
		return fn.Errorf("cannot keep the minion's data: %w", err)
	}
	return nil
}

// change reads the map, calls f, and writes the map if f returns true.
func (d datastore) change(c *fn.Call, f func(all *value.Dict) (write bool)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, err := d.read(c)
	if err != nil || !f(all) {
		return err
	}
	return d.write(c, all)
}

func (d datastore) clear(_ context.Context, c *fn.Call, _ none) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := os.Remove(d.path(c)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fn.Errorf("cannot remove the minion's data: %w", err)
	}
	return true, nil
}

func (d datastore) load(_ context.Context, c *fn.Call, _ none) (*value.Dict, error) { return d.read(c) }

type dumpArgs struct {
	NewData any `salt:"new_data" doc:"map, possibly as a text"`
}

func (d datastore) dump(_ context.Context, c *fn.Call, a dumpArgs) (bool, error) {
	if text, ok := a.NewData.(string); ok {
		a.NewData = yaml.LoadArg(text)
	}
	all, ok := a.NewData.(*value.Dict)
	if !ok {
		return false, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return true, d.write(c, all)
}

type dataKeyArgs struct {
	Key any `salt:"key" doc:"the key"`
}

// named rejects values that cannot be keys.
func named(key any) error {
	if !value.Hashable(key) {
		return fn.Invalidf("a key is a text or a number, not a %s", value.TypeName(key))
	}
	return nil
}

type dataUpdateArgs struct {
	Key   any `salt:"key" doc:"the key"`
	Value any `salt:"value" doc:"its new value"`
}

func (d datastore) update(_ context.Context, c *fn.Call, a dataUpdateArgs) (bool, error) {
	if err := named(a.Key); err != nil {
		return false, err
	}
	return true, d.change(c, func(all *value.Dict) bool {
		all.Set(a.Key, a.Value)
		return true
	})
}

type casArgs struct {
	Key   any `salt:"key" doc:"the key"`
	Value any `salt:"value" doc:"its new value"`
	Old   any `salt:"old_value" doc:"the value that it must have"`
}

func (d datastore) cas(_ context.Context, c *fn.Call, a casArgs) (done bool, err error) {
	if err := named(a.Key); err != nil {
		return false, err
	}
	err = d.change(c, func(all *value.Dict) bool {
		if v, ok := all.Get(a.Key); ok && value.Equal(v, a.Old) {
			all.Set(a.Key, a.Value)
			done = true
		}
		return done
	})
	return done && err == nil, err
}

type popArgs struct {
	Key     any `salt:"key" doc:"the key"`
	Default any `salt:"default" doc:"what to return if there is none" default:"null"`
}

func (d datastore) pop(_ context.Context, c *fn.Call, a popArgs) (v any, err error) {
	if err := named(a.Key); err != nil {
		return nil, err
	}
	v = a.Default
	err = d.change(c, func(all *value.Dict) bool {
		if kept, ok := all.Get(a.Key); ok {
			v = kept
		}
		return all.Delete(a.Key)
	})
	return v, err
}

type dataGetArgs struct {
	Key     any `salt:"key" doc:"a key, or a list of keys"`
	Default any `salt:"default" doc:"what to return where there is none" default:"null"`
}

func (d datastore) get(_ context.Context, c *fn.Call, a dataGetArgs) (any, error) {
	all, err := d.read(c)
	if err != nil {
		return nil, err
	}
	several, ok := a.Key.(*value.List)
	if !ok {
		if err := named(a.Key); err != nil {
			return nil, err
		}
		if v, ok := all.Get(a.Key); ok {
			return v, nil
		}
		return a.Default, nil
	}
	out := &value.List{}
	for _, k := range several.Items {
		if err := named(k); err != nil {
			return nil, err
		}
		if v, ok := all.Get(k); ok {
			out.Append(v)
		} else if a.Default != nil {
			out.Append(a.Default)
		}
	}
	return out, nil
}

func (d datastore) keys(_ context.Context, c *fn.Call, _ none) (*value.List, error) {
	all, err := d.read(c)
	return &value.List{Items: all.Keys()}, err
}

func (d datastore) values(_ context.Context, c *fn.Call, _ none) (*value.List, error) {
	all, err := d.read(c)
	out := &value.List{}
	for _, v := range all.All() {
		out.Append(v)
	}
	return out, err
}

func (d datastore) hasKey(_ context.Context, c *fn.Call, a dataKeyArgs) (bool, error) {
	if err := named(a.Key); err != nil {
		return false, err
	}
	all, err := d.read(c)
	return all.Has(a.Key), err
}

// cut splits key:pattern. It ignores everything after a second colon.
func cut(s string) (key, pattern string, ok bool) {
	key, rest, ok := strings.Cut(s, ":")
	pattern, _, _ = strings.Cut(rest, ":")
	return key, pattern, ok
}
