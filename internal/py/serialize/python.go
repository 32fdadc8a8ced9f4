package serialize

import (
	"errors"

	"brine/internal/py/json"
	"brine/internal/py/value"
)

func init() { register("python", Format{writePython, nil}) }

// writePython writes a value as Python's pprint does, after conversion to JSON
// and back, which makes keys strings.
func writePython(v any, opts *value.Dict) (any, error) {
	o := of("python", opts)
	f := value.PrettyFormat{Indent: o.number("indent", 1), Width: o.number("width", 80), Depth: o.number("depth", 0),
		Compact: o.truth("compact", false), KeepOrder: !o.truth("sort_dicts", true), Underscores: o.truth("underscore_numbers", false)}
	depth, given := opts.Get("depth")
	switch {
	case f.Indent < 0:
		o.fail("indent must not be negative")
	case f.Width == 0:
		o.fail("width must not be 0")
	case given && depth != nil && f.Depth <= 0:
		o.fail("depth must be more than 0")
	}
	if err := o.done(); err != nil {
		return nil, err
	}
	f.Indent, f.Width = min(f.Indent, 1000), max(f.Width, -1000)
	if err := depthOK(v, 0); err != nil {
		return nil, err
	}
	text, err := json.Dump(v, json.Format{})
	if err != nil {
		return nil, err
	}
	if v, err = json.Load(text); err != nil {
		return nil, errors.New("python: this format converts the value to JSON first, which failed")
	}
	return f.String(v), nil
}
