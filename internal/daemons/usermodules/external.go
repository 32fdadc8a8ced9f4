package usermodules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/py/value"
	"brine/internal/sls/pillar"
)

// The functions that Salt calls in modules of these kinds.
const (
	funcPillar = "ext_pillar"
	funcTop    = "top"
	funcReturn = "returner"
)

// Pillars returns the user's modules that the option ext_pillar may name.
func (m *Modules) Pillars() Pillars { return Pillars{m} }

// Pillars implements pillar.Python.
type Pillars struct{ m *Modules }

// Has reports whether there is a module of a name. It reads the source of the module only.
func (p Pillars) Has(name string) bool { return p.m.has(kindPillar, name) }

// Pillar calls the function ext_pillar of a module, as Salt does: with the id of the
// minion, the pillar so far, and conf, the value in the option: a map of keywords, a list
// of arguments or one argument. extra is further data of the minion; a function gets it if
// it declares extra_minion_data.
func (p Pillars) Pillar(ctx context.Context, c *fn.Call, name string, pillar, extra *value.Dict, conf any) (any, error) {
	opts := c.Config.All().Clone()
	opts.Set("id", p.m.cfg.ID) // as in Salt: templates see the minion's id, these modules the master's
	c.Config = fn.Tree{Dict: opts}
	c = c.Prepare()
	full := name + "." + funcPillar
	args, kwargs := []any{c.ID, pillar}, value.NewDict(0)
	switch x := conf.(type) {
	case *value.Dict:
		kwargs = x.Clone()
		if extra.Len() == 0 {
			break
		}
		spec, err := p.m.pool.Find(ctx, p.m.env(c, nil), kindPillar, full, true)
		if err != nil {
			return nil, err
		}
		if spec != nil && slices.Contains(spec.Args, "extra_minion_data") {
			kwargs.Set("extra_minion_data", extra)
		}
	case *value.List:
		args = append(args, x.Items...)
	default:
		args = append(args, conf)
	}
	if found, err := p.m.pool.Find(ctx, p.m.env(c, nil), kindPillar, full, true); err != nil || found == nil {
		if err == nil {
			err = p.m.why(ctx, c, kindPillar, name)
		}
		return nil, err
	}
	return p.m.result(p.m.pool.Call(ctx, p.m.env(c, nil), kindPillar, full, args, kwargs))
}

// why returns the error for a source of pillar that cannot be used, with the reason.
func (m *Modules) why(ctx context.Context, c *fn.Call, kind, name string) error {
	_, missing, err := m.pool.List(ctx, m.env(c, nil), kind)
	if err != nil {
		return err
	}
	for _, stem := range m.stems(kind, name) {
		if reason, _ := missing.At(stem).(string); reason != "" {
			return fmt.Errorf("%w: %s", pillar.ErrUnavailable, reason)
		}
	}
	return fmt.Errorf("%w: %s has no function %s", pillar.ErrUnavailable, name, funcPillar)
}

// stems returns the names of the files that claim a module.
func (m *Modules) stems(kind, name string) []string {
	l, _ := m.listing(kind)
	return l.Claims[name]
}

// result returns the result of a call. For an exception the error has its text, as in Salt,
// and the log has the traceback.
func (m *Modules) result(v any, _ int, err error) (any, error) {
	if trace := python.Trace(err); trace != "" {
		m.cfg.Log.Error("a Python module raised an exception", "traceback", trace)
		return nil, errors.New(python.Text(err))
	}
	return v, err
}

// HasRunners reports whether there are runners of the user.
func (m *Modules) HasRunners() bool {
	l, _ := m.listing(kindRunners)
	return len(l.Paths) > 0
}

// HasTop reports whether there is a source of top data of a name.
func (m *Modules) HasTop(name string) bool { return m.has(kindTops, name) }

// Top calls the function top of a module for the option master_tops, as Salt does: with the
// options that the minion sent, and its grains.
func (m *Modules) Top(ctx context.Context, c *fn.Call, name string, opts, grains *value.Dict) (any, error) {
	return m.result(m.pool.Call(ctx, m.env(c.Prepare(), nil), kindTops, name+"."+funcTop, nil, value.DictOf("opts", opts, "grains", grains)))
}

func (m *Modules) has(kind, name string) bool {
	l, _ := m.listing(kind)
	return len(l.Claims[name]) > 0
}

// Returners returns the user's returners, by which a minion sends results to other servers.
func (m *Modules) Returners() Returners { return Returners{m} }

// Returners implements returners.Own of the minion.
type Returners struct{ m *Modules }

// Has reports whether there is a returner of a name. It reads the source of the module
// only.
func (r Returners) Has(name string) bool { return r.m.has(kindReturners, name) }

// Names returns the names of all returners.
func (r Returners) Names() []string {
	l, _ := r.m.listing(kindReturners)
	return slices.Sorted(maps.Keys(l.Claims))
}

// Return calls the function returner of a module with a result, as Salt does.
func (r Returners) Return(ctx context.Context, name string, ret *value.Dict) error {
	_, err := r.m.result(r.m.pool.Call(ctx, env(r.m.call(), nil), kindReturners, name+"."+funcReturn, []any{ret}, nil))
	return err
}
