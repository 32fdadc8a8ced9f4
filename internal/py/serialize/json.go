package serialize

import (
	"fmt"
	"math"

	"brine/internal/py/json"
	"brine/internal/py/value"
)

func init() { register("json", Format{writeJSON, readJSON}) }

func writeJSON(v any, opts *value.Dict) (any, error) {
	o := of("json", opts)
	f := json.Format{SortKeys: o.truth("sort_keys", false), ASCII: o.truth("ensure_ascii", false)}
	switch n, _ := o.take("indent"); x := n.(type) {
	case nil:
	case int64:
		f.Indent = json.Spaces(int(min(max(x, 0), 1000)))
	case string:
		f.Indent = &x
	default:
		o.fail("indent must be a number or a string, not %s", value.Repr(n))
	}
	if sep, ok := o.take("separators"); ok && sep != nil {
		two, err := pairsOf(value.ListOf(sep))
		if err != nil {
			o.fail("separators must be a list of two strings")
		} else {
			f.Comma, f.Colon = value.Str(two[0][0]), value.Str(two[0][1])
		}
	}
	skip, nan := o.truth("skipkeys", false), o.truth("allow_nan", true)
	o.take("check_circular")
	o.null("default", "cls")
	if err := o.done(); err != nil {
		return nil, err
	}
	if skip || !nan {
		var err error
		if v, err = jsonable(v, skip, nan, 0); err != nil {
			return nil, err
		}
	}
	return json.Dump(v, f)
}

// jsonable returns v without the keys that JSON cannot represent. It fails for
// numbers that JSON cannot represent.
func jsonable(v any, skip, nan bool, depth int) (any, error) {
	if depth > MaxDepth {
		return nil, errDeep
	}
	switch x := v.(type) {
	case float64:
		if !nan && (math.IsNaN(x) || math.IsInf(x, 0)) {
			return nil, fmt.Errorf("json: the number %s cannot be written unless allow_nan is set", value.Str(x))
		}
	case *value.List:
		out := &value.List{}
		for _, it := range x.Items {
			w, err := jsonable(it, skip, nan, depth+1)
			if err != nil {
				return nil, err
			}
			out.Append(w)
		}
		return out, nil
	case *value.Dict:
		out := value.NewDict(x.Len())
		for k, it := range x.All() {
			switch k.(type) {
			case []byte, value.Tuple:
				if skip {
					continue
				}
			}
			w, err := jsonable(it, skip, nan, depth+1)
			if err != nil {
				return nil, err
			}
			out.Set(k, w)
		}
		return out, nil
	}
	return v, nil
}

func readJSON(data []byte, opts *value.Dict) (any, error) {
	o := of("json", opts)
	strict := o.truth("strict", true)
	o.null("parse_float", "parse_int", "parse_constant", "object_hook", "object_pairs_hook", "cls")
	if err := o.done(); err != nil {
		return nil, err
	}
	if !strict {
		data = escapeControls(data)
	}
	return json.Load(string(data))
}

// escapeControls escapes control characters within quoted strings.
func escapeControls(data []byte) []byte {
	out := make([]byte, 0, len(data))
	quoted, escaped := false, false
	for _, c := range data {
		if quoted && !escaped && c < 0x20 {
			out = fmt.Appendf(out, `\u%04x`, c)
			continue
		}
		out = append(out, c)
		switch {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		}
	}
	return out
}
