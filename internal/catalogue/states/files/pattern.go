package files

import (
	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/py/pyre"
	"brine/internal/py/value"
)

// chooser selects paths by include_pat and exclude_pat. Each is a glob, a
// regular expression after "E@", or a list of these.
type chooser struct{ include, exclude []func(string) (bool, error) }

func newChooser(include, exclude any) (c chooser, err error) {
	if c.include, err = patterns(include); err == nil {
		c.exclude, err = patterns(exclude)
	}
	return c, err
}

func patterns(v any) (out []func(string) (bool, error), err error) {
	items := []any{v}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case *value.List:
		items = v.Items
	}
	for _, it := range items {
		p := value.Str(it)
		if p == "" {
			continue
		}
		if len(p) > 2 && p[:2] == "E@" {
			re, err := pyre.Compile(p[2:], 0)
			if err != nil {
				return nil, fn.Errorf("%w", err)
			}
			out = append(out, func(s string) (bool, error) { m, err := re.Search(s); return m != nil, err })
			continue
		}
		g := target.ParseGlob(p)
		out = append(out, func(s string) (bool, error) { return g.Match(s), nil })
	}
	return out, nil
}

// takes reports whether a path is selected.
func (c chooser) takes(path string) (bool, error) {
	in, err := matches(c.include, path)
	if err != nil || len(c.include) > 0 && !in {
		return false, err
	}
	out, err := matches(c.exclude, path)
	return !out, err
}

func matches(all []func(string) (bool, error), path string) (bool, error) {
	for _, f := range all {
		if ok, err := f(path); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}
