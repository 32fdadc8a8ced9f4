package core

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// GrainStore gives the functions that change grains access to the daemon's.
// Its methods may be called from several goroutines.
type GrainStore interface {
	// Grains returns the current grains. The caller must not change them.
	Grains() *value.Dict
	// Change sets and removes top-level grains. Later readers see the change.
	Change(set *value.Dict, remove []string)
	// Refresh starts to collect all grains again, and then the pillar if
	// pillar is true. It does not wait for the end.
	Refresh(ctx context.Context, pillar bool) error
}

// grains changes the grains file beside the minion's configuration. A lock
// serializes changes, so that none is lost.
type grains struct {
	store GrainStore
	mu    *sync.Mutex
}

// Grains returns the module grains, which changes grains through store. The
// option conf_file determines the path of the grains file.
func Grains(store GrainStore) fn.Module {
	g := grains{store, &sync.Mutex{}}
	return fn.Module{Name: "grains", Doc: `What the minion knows of itself.`, Funcs: []fn.Func{
		fn.Of("get", g.get, `Return the grain at a path.`, fn.Example("salt '*' grains.get pkg:apache")),
		fn.Of("fetch", g.get, `Same as grains.get.`, fn.Example("salt '*' grains.fetch pkg:apache")),
		fn.Of("has_value", g.hasValue, `Say whether there is a grain at a path.`, fn.Example("salt '*' grains.has_value pkg:apache")),
		fn.Of("items", g.items, `Return all grains.`, fn.Out("nested"), fn.Example("salt '*' grains.items")),
		fn.Of("item", g.item, `Return some grains, by path.
			The keywords default, delimiter and sanitize are those of grains.get and grains.items.`, fn.Out("nested"), fn.Example("salt '*' grains.item os role")),
		fn.Of("ls", g.ls, `Return the names of all grains.`, fn.Example("salt '*' grains.ls")),
		fn.Of("equals", g.equals, `Say whether the grain at a path has a value.`, fn.Example("salt '*' grains.equals kernel Linux")),
		fn.Of("filter_by", g.filterBy, `Return the value of a map whose key, a pattern, matches a grain.`,
			fn.Example("salt '*' grains.filter_by '{Debian: Debheads rule, RedHat: I love my hat}'")),
		fn.Of("setvals", g.setvals, `Set several grains, in the file of grains too.`, fn.Example("salt '*' grains.setvals '{key1: val1, key2: val2}'")),
		fn.Of("setval", g.setval, `Set a grain, in the file of grains too.`, fn.Out("nested"), fn.Example("salt '*' grains.setval key val")),
		fn.Of("set", g.set, `Set the grain at a path, and say what changed.
			What is there already is kept unless force is true.`, fn.Example("salt '*' grains.set 'apps:myApp:port' 2209")),
		fn.Of("append", g.append, `Add a value to the list at a path.`, fn.Example("salt '*' grains.append key val")),
		fn.Of("remove", g.remove, `Remove a value from the list at a path.`, fn.Example("salt '*' grains.remove key val")),
		fn.Of("delval", g.delval, `Set the grain at a path to null, or remove it.`, fn.Example("salt '*' grains.delval key")),
		fn.Of("delkey", g.delkey, `Remove the grain at a path.`, fn.Example("salt '*' grains.delkey key")),
	}}
}

type grainsGetArgs struct {
	Key       any    `salt:"key" doc:"path to the grain"`
	Default   any    `salt:"default" doc:"what to return if there is none" default:"''"`
	Delimiter string `salt:"delimiter" doc:"what separates the steps of the path" default:":"`
	Ordered   bool   `salt:"ordered" ignored:"maps always keep their order" default:"true"`
}

func (grains) get(_ context.Context, c *fn.Call, a grainsGetArgs) (any, error) {
	if v, ok := traverse(c.Grains.All(), a.Key, a.Delimiter); ok {
		return v, nil
	}
	return a.Default, nil
}

type keyArgs struct {
	Key string `salt:"key" doc:"path to the grain"`
}

func (grains) hasValue(_ context.Context, c *fn.Call, a keyArgs) (bool, error) {
	_, ok := traverse(c.Grains.All(), a.Key, ":")
	return ok, nil
}

type itemsArgs struct {
	Sanitize any `salt:"sanitize" doc:"make names and serial numbers unreadable" default:"false"`
}

func (grains) items(_ context.Context, c *fn.Call, a itemsArgs) (*value.Dict, error) {
	all := c.Grains.All().Clone()
	if salt.IsTrue(a.Sanitize) {
		sanitize(all)
	}
	return all, nil
}

func (grains) item(_ context.Context, c *fn.Call, a anyArgs) (*value.Dict, error) {
	out := value.NewDict(len(a.Args))
	missing, ok := a.Kwargs.Get("default")
	if !ok {
		missing = ""
	}
	delimiter, ok := a.Kwargs.At("delimiter").(string)
	if !ok {
		delimiter = ":"
	}
	for _, key := range a.Args {
		if !value.Hashable(key) {
			return nil, fmt.Errorf("unhashable type: '%s'", value.TypeName(key))
		}
		v, ok := traverse(c.Grains.All(), key, delimiter)
		if !ok {
			v = missing
		}
		out.Set(key, v)
	}
	if salt.IsTrue(a.Kwargs.At("sanitize")) {
		sanitize(out)
	}
	return out, nil
}

// sanitize replaces grains that identify the machine.
func sanitize(d *value.Dict) {
	for key, text := range map[string]string{
		"domain": "DOMAINNAME", "fqdn": "MINION.DOMAINNAME", "id": "MINION.DOMAINNAME", "host": "MINION", "localhost": "MINION", "nodename": "MINION",
	} {
		if d.Has(key) {
			d.Set(key, text)
		}
	}
	if serial, ok := d.At("serialnumber").(string); ok {
		r := []rune(serial)
		keep := len(r) * 3 / 4
		d.Set("serialnumber", string(r[:keep])+strings.Repeat("X", len(r)-keep))
	}
}

func (grains) ls(_ context.Context, c *fn.Call, _ none) (*value.List, error) {
	var names []string
	for k := range c.Grains.All().All() {
		names = append(names, value.Str(k))
	}
	slices.Sort(names)
	return value.Strings(names), nil
}

type equalsArgs struct {
	Key   any `salt:"key" doc:"path to the grain"`
	Value any `salt:"value" doc:"what it is compared with, as texts"`
}

func (grains) equals(_ context.Context, c *fn.Call, a equalsArgs) (bool, error) {
	v, ok := traverse(c.Grains.All(), a.Key, ":")
	if !ok {
		v = ""
	}
	return value.Str(v) == value.Str(a.Value), nil
}

type filterArgs struct {
	Lookup  *value.Dict `salt:"lookup_dict" doc:"map of patterns and values"`
	Grain   string      `salt:"grain" doc:"path to the grain that is matched" default:"os_family"`
	Merge   any         `salt:"merge" doc:"map that is laid over the result" default:"null"`
	Default any         `salt:"default" doc:"key of the value to return if no pattern matches" default:"default"`
	Base    any         `salt:"base" doc:"key of a map that the result is laid over" default:"null"`
}

func (grains) filterBy(_ context.Context, c *fn.Call, a filterArgs) (any, error) {
	return filterBy(c.Grains.All(), a.Grain, a)
}

// filterBy selects an entry by the value at a path of a tree.
func filterBy(tree *value.Dict, path any, a filterArgs) (any, error) {
	found := filter(tree, path, a)
	if base, ok := a.Lookup.Get(a.Base); ok && value.Truth(a.Base) {
		under, isMap := base.(*value.Dict)
		over, fits := found.(*value.Dict)
		switch {
		case found == nil:
			found = base
		case isMap && !fits:
			return nil, errors.New("filter_by default and look-up values must both be dictionaries")
		case isMap:
			laid := value.DeepCopy(under).(*value.Dict)
			update(laid, over)
			found = laid
		}
	}
	if !value.Truth(a.Merge) {
		return found, nil
	}
	over, ok := a.Merge.(*value.Dict)
	if !ok {
		return nil, errors.New("filter_by merge argument must be a dictionary")
	}
	if found == nil {
		return over, nil
	}
	under, ok := found.(*value.Dict)
	if !ok {
		return nil, fn.Invalidf("filter_by cannot merge a map into the value %s", value.Repr(found))
	}
	laid := value.DeepCopy(under).(*value.Dict)
	update(laid, over)
	return laid, nil
}

func filter(all *value.Dict, path any, a filterArgs) any {
	var wanted []any
	switch x, _ := traverse(all, path, ":"); v := x.(type) {
	case nil:
	case *value.List:
		wanted = v.Items
	default:
		wanted = []any{x}
	}
	for _, w := range wanted {
		for pattern, v := range a.Lookup.All() {
			if target.ParseGlob(value.Str(pattern)).Match(value.Str(w)) && v != nil {
				return v
			}
		}
	}
	if !value.Hashable(a.Default) {
		return nil
	}
	return a.Lookup.At(a.Default)
}

type setvalsArgs struct {
	Grains      any  `salt:"grains" doc:"map of names and values"`
	Destructive bool `salt:"destructive" doc:"remove grains whose new value is null" default:"false"`
	Refresh     bool `salt:"refresh_pillar" doc:"compile the pillar again" default:"true"`
}

func (g grains) setvals(ctx context.Context, c *fn.Call, a setvalsArgs) (any, error) {
	set, ok := a.Grains.(*value.Dict)
	if !ok {
		return nil, errors.New("setvals grains must be a dictionary")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.write(ctx, c, set, a.Destructive, a.Refresh)
}

type setvalArgs struct {
	Key         any  `salt:"key" doc:"name of the grain"`
	Val         any  `salt:"val" doc:"its value"`
	Destructive bool `salt:"destructive" doc:"remove the grain if the new value is null" default:"false"`
	Refresh     bool `salt:"refresh_pillar" doc:"compile the pillar again" default:"true"`
}

func (g grains) setval(ctx context.Context, c *fn.Call, a setvalArgs) (any, error) {
	if !value.Hashable(a.Key) {
		return nil, fn.Invalidf("a grain cannot be named by a %s", value.TypeName(a.Key))
	}
	return g.setvals(ctx, c, setvalsArgs{value.DictOf(a.Key, a.Val), a.Destructive, a.Refresh})
}

// grainsFile returns the path of the file with grains that were set.
func grainsFile(c *fn.Call) (string, error) {
	conf, _ := c.Config.Get("conf_file").(string)
	if conf == "" {
		return "", fn.Errorf("the option conf_file is not set, so there is no file of grains")
	}
	if info, err := os.Stat(conf); err == nil && info.IsDir() {
		return filepath.Join(conf, "grains"), nil
	}
	return filepath.Join(filepath.Dir(conf), "grains"), nil
}

// write changes the file and the store, and returns what was set, or a message
// if the file could not be read. The caller holds the lock.
func (g grains) write(ctx context.Context, c *fn.Call, set *value.Dict, destructive, pillar bool) (any, error) {
	path, err := grainsFile(c)
	if err != nil {
		return nil, err
	}
	file := value.NewDict(0)
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fn.Errorf("cannot read the file of grains: %w", err)
	}
	v, err := yaml.Load(data, path)
	if err != nil {
		return fmt.Sprintf("Unable to read existing grains file: %v", err), nil
	}
	if d, ok := v.(*value.Dict); ok {
		file = d
	}
	changed := value.NewDict(set.Len())
	var removed []string
	for k, v := range set.All() {
		if v == nil && destructive {
			file.Delete(k)
			removed = append(removed, value.Str(k))
			continue
		}
		file.Set(k, v)
		changed.Set(k, value.DeepCopy(v))
	}
	if err := writeYAML(path, file); err != nil {
		return nil, fn.Errorf("Unable to write to grains file at %s. Check permissions: %w", path, err)
	}
	g.store.Change(changed, removed)
	if value.Truth(c.Config.Get("local")) {
		return set, nil
	}
	return set, g.store.Refresh(ctx, pillar)
}

// writeYAML replaces a file atomically, so that no reader sees half of it.
func writeYAML(path string, v any) error {
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	return atomicfile.Write(path, []byte(yaml.Dump(v)), mode, true)
}
