package pillar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"brine/internal/base/registry"
	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// external is an external source of pillar. It gets its configuration in the
// option ext_pillar, bound to its parameters.
type external func(ctx context.Context, r *run, pillar *value.Dict, a args) (any, error)

// args are the arguments of a source: a map gives them by name, a list by
// position, anything else is the first one.
type args struct {
	list  []any
	named *value.Dict
}

func readArgs(v any) args {
	switch x := v.(type) {
	case *value.Dict:
		return args{named: x}
	case *value.List:
		return args{list: x.Items}
	}
	return args{list: []any{v}}
}

// bind returns the arguments for the names of parameters, nil for missing ones.
func (a args) bind(names ...string) (map[string]any, error) {
	out := map[string]any{}
	if len(a.list) > len(names) {
		return nil, salt.Errorf(salt.Invalid, "ext_pillar() takes %d arguments but %d were given", len(names), len(a.list))
	}
	for i, v := range a.list {
		out[names[i]] = v
	}
	for k, v := range a.named.All() {
		name := value.Str(k)
		if !slices.Contains(names, name) {
			return nil, salt.Errorf(salt.Invalid, "ext_pillar() got an unexpected keyword argument '%s'", name)
		}
		out[name] = v
	}
	return out, nil
}

// externals are the sources by name, one file each.
var externals = registry.New[external]("external pillar")

// Python runs the sources of ext_pillar that are modules in Python.
type Python interface {
	// Has reports whether a Python module has this name. It takes precedence over a source of
	// Brine.
	Has(name string) bool
	// Pillar returns a module's pillar for the minion of c. pillar is the pillar so far, extra
	// further data of the minion, and conf the module's configuration.
	Pillar(ctx context.Context, c *fn.Call, name string, pillar, extra *value.Dict, conf any) (any, error)
}

// ErrUnavailable is the error for a module that cannot be loaded, or whose __virtual__ refuses. As in
// Salt, the pillar is the same without it.
var ErrUnavailable = errors.New("the module cannot be used")

// sourceOf returns the source with a name, or nil.
func sourceOf(r *run, name string) func(ctx context.Context, pillar *value.Dict, conf any) (any, error) {
	if r.c.Python != nil && r.c.Python.Has(name) {
		return func(ctx context.Context, pillar *value.Dict, conf any) (any, error) {
			return r.c.Python.Pillar(ctx, r.call(r), name, pillar, r.q.Extra, conf)
		}
	}
	own, ok := externals.Lookup(name)
	if !ok {
		return nil
	}
	return func(ctx context.Context, pillar *value.Dict, conf any) (any, error) {
		return own(ctx, r, pillar, readArgs(conf))
	}
}

// Externals returns the names of the sources of ext_pillar, sorted.
func Externals() []string { return externals.Names() }

// addOnDemand adds the source that the minion requests, if permitted.
func (r *run) addOnDemand() {
	if r.q.External == nil || !value.Truth(r.q.External) {
		return
	}
	d, ok := r.q.External.(*value.Dict)
	if !ok {
		r.log.Error("ignoring on-demand ext_pillar of a minion: not a dictionary", "minion", r.q.ID)
		return
	}
	for k := range d.All() {
		if !slices.Contains(r.o.OnDemand, value.Str(k)) {
			r.log.Error(fmt.Sprintf("The following ext_pillar modules are not allowed for on-demand pillar data: %s. Valid on-demand ext_pillar modules are: %s. "+
				"The valid modules can be adjusted by setting the 'on_demand_ext_pillar' config option.", value.Str(k), strings.Join(r.o.OnDemand, ", ")), "minion", r.q.ID)
			return
		}
	}
	r.external = append(r.external, d)
}

// ext runs the external sources, each of which sees the result so far.
func (r *run) ext(ctx context.Context, pillar *value.Dict) *value.Dict {
	if r.q.Override.Len() > 0 {
		pillar = r.merge(pillar, r.q.Override)
	}
	for _, it := range r.external {
		d, ok := it.(*value.Dict)
		if !ok || d.Len() == 0 {
			r.fail(`The "ext_pillar" option is malformed`)
			return value.NewDict(0)
		}
		for k, v := range d.All() {
			name := value.Str(k)
			source := sourceOf(r, name)
			if source == nil {
				r.log.Error("Specified ext_pillar interface " + name + " is unavailable")
				continue
			}
			got, err := source(ctx, pillar, v)
			if errors.Is(err, ErrUnavailable) {
				r.log.Error("Specified ext_pillar interface "+name+" is unavailable", "minion", r.q.ID, "err", err)
				continue
			}
			if err != nil {
				r.fail(fmt.Sprintf("Failed to load ext_pillar %s: %v", name, err))
				continue
			}
			if data, ok := got.(*value.Dict); ok && data.Len() > 0 {
				pillar = r.merge(pillar, data)
			} else if value.Truth(got) && !ok {
				r.fail(fmt.Sprintf("Failed to load ext_pillar %s: it gives a %s, not a map", name, value.TypeName(got)))
			}
		}
	}
	return pillar
}

func init() { externals.Register("extra_minion_data_in_pillar", extraMinionData) }

var extraArgs = []string{"include"}

// extraMinionData adds the options that the minion sent to the pillar.
func extraMinionData(_ context.Context, r *run, _ *value.Dict, a args) (any, error) {
	in, err := a.bind(extraArgs...)
	if err != nil {
		return nil, err
	}
	if s, ok := in["include"].(string); ok && (s == "*" || s == "<all>") {
		return r.q.Extra, nil
	}
	out := value.NewDict(4)
	l, _ := in["include"].(*value.List)
	if l == nil {
		return out, nil
	}
	for _, it := range l.Items {
		key := value.Str(it)
		if v, ok := traverseDicts(r.q.Extra, strings.Split(key, ":")); ok {
			parts := strings.Split(key, ":")
			leaf := value.NewDict(1)
			leaf.Set(parts[len(parts)-1], v)
			out.Update(nest(leaf, strings.Join(parts[:len(parts)-1], ":")))
		}
	}
	return out, nil
}
