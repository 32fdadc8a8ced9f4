package config

import (
	_ "embed"
	"fmt"
	"os/user"
	"sync"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

//go:embed unused.yaml
var unusedText []byte

// unused returns the content of unused.yaml.
var unused = sync.OnceValues(func() (*value.Dict, error) {
	v, err := yaml.Load(unusedText, "unused.yaml")
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return v.(*value.Dict), nil
})

// AddUnused adds the options that Salt's daemon of a kind has and Brine's does not use, with Salt's
// defaults. Modules in Python and templates read them by their names.
func AddUnused(k Kind, opts *value.Dict) error {
	all, err := unused()
	if err != nil {
		return err
	}
	for _, part := range []string{"both", string(k)} {
		d, _ := all.At(part).(*value.Dict)
		for name, v := range d.All() {
			if old, ok := opts.Get(name); ok && !isNothing(old) {
				continue
			}
			if d, ok := v.(*value.Dict); ok {
				v = d.Clone()
			}
			opts.Set(name, v)
		}
	}
	if me, err := user.Current(); err == nil && opts.Str("user") == "" {
		opts.Set("user", me.Username)
	}
	return nil
}

// isNothing reports whether an option has no value.
func isNothing(v any) bool {
	d, ok := v.(*value.Dict)
	return v == nil || ok && d == nil
}
