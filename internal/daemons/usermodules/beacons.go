package usermodules

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"brine/internal/call/python"
	"brine/internal/catalogue/beacons"
	"brine/internal/py/value"
)

// BeaconKinds are the kinds that the helper of a minion's beacons loads. It is a single
// process, because beacons store what they saw in their module: another process would
// report everything as new.
var BeaconKinds = []string{kindBeacons, kindModules, "utils", "serializers"}

// Beacons returns the user's beacons.
func (m *Modules) Beacons() Beacons { return Beacons{m} }

// Beacons implements beacons.Python of the minion.
type Beacons struct{ m *Modules }

// Names returns the names of all beacons.
func (b Beacons) Names() []string {
	l, _ := b.m.listing(kindBeacons)
	return slices.Sorted(maps.Keys(l.Claims))
}

// Find returns the beacon of a module; as is the name under which it is configured. It
// reads the source of the module only.
func (b Beacons) Find(module, as string) (beacons.Beacon, bool) {
	if !b.m.has(kindBeacons, module) {
		return beacons.Beacon{}, false
	}
	w := &beacon{source{b.m, kindBeacons}, module, as}
	return beacons.Beacon{Name: module, Validate: w.validate, Look: w.look}, true
}

// beacon is one configured beacon. The functions validate, beacon and close of its module
// get the settings.
type beacon struct {
	source
	module, as string
}

// settings are the configured settings in Salt's form.
func (b *beacon) settings(c beacons.Config) *value.List {
	l := &value.List{}
	for _, d := range c.List {
		l.Append(d)
	}
	l.Append(value.DictOf("_beacon_name", b.as))
	return l
}

// call calls a function of the module. All beacons share one __context__, as in Salt.
func (b *beacon) call(ctx context.Context, e *python.Env, function string, c beacons.Config) (any, error) {
	e.Vars = value.DictOf("job", "beacons")
	v, _, err := b.m.pool.Call(ctx, e, kindBeacons, b.module+"."+function, []any{b.settings(c)}, nil)
	return v, err
}

func (b *beacon) validate(c beacons.Config) error {
	if err := b.m.pool.Off(); err != nil {
		return err
	}
	if b.Find(b.module+".validate", true) == nil {
		return nil
	}
	ctx, cancel := loading()
	defer cancel()
	v, err := b.call(ctx, env(b.m.call(), nil), "validate", c)
	if err != nil {
		return err
	}
	parts := value.Items(v)
	if t, ok := v.(value.Tuple); ok {
		parts = t
	}
	switch {
	case len(parts) == 2 && !value.Truth(parts[0]):
		return errors.New(value.Str(parts[1]))
	case len(parts) != 2 && !value.Truth(v):
		return fmt.Errorf("its function validate returned %s", value.Repr(v))
	}
	return nil
}

func (b *beacon) look(ctx context.Context, l beacons.Look) ([]*value.Dict, error) {
	if *l.Held == nil && b.Find(b.module+".close", true) != nil {
		*l.Held = closing{b, l.Config}
	}
	v, err := b.call(ctx, env(l.Call, nil), "beacon", l.Config)
	if err != nil {
		return nil, err
	}
	parts := value.Items(v)
	if t, ok := v.(value.Tuple); ok {
		parts = t
	}
	var out []*value.Dict
	for _, part := range parts {
		d, ok := part.(*value.Dict)
		if !ok {
			return out, fmt.Errorf("the function beacon of the Python module %s returned a list with a %s, not of maps", b.module, value.TypeName(part))
		}
		out = append(out, d)
	}
	if parts == nil && value.Truth(v) {
		return nil, fmt.Errorf("the function beacon of the Python module %s returned a %s, not a list of maps", b.module, value.TypeName(v))
	}
	return out, nil
}

// closing calls the function close of a beacon that was removed.
type closing struct {
	b *beacon
	c beacons.Config
}

// closeLimit bounds a call of close, because a minion that stops waits for it.
const closeLimit = 5 * time.Second

// Close implements io.Closer. It calls the module in the background, because the module may
// call functions that wait for the caller of Close.
func (c closing) Close() error {
	c.b.m.closings.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
		defer cancel()
		if _, err := c.b.call(ctx, env(c.b.m.call(), nil), "close", c.c); err != nil {
			c.b.m.cfg.Log.Error("the function close of a beacon failed", "beacon", c.b.as, "err", err)
		}
	})
	return nil
}

var _ io.Closer = closing{}
