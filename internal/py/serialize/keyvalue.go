package serialize

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"brine/internal/py/value"
)

// keyvalue has lines of the form KEY=value.

func init() { register("keyvalue", Format{writeKeyvalue, readKeyvalue}) }

func writeKeyvalue(v any, opts *value.Dict) (any, error) {
	pairs, err := pairsOf(v)
	if err != nil {
		return nil, err
	}
	end, sep := "\n", "="
	if e, ok := opts.Get("line_ending"); ok {
		if end, ok = e.(string); !ok {
			return nil, fmt.Errorf("options of keyvalue: line_ending must be a string, not %s", value.Repr(e))
		}
	}
	if s, ok := opts.Get("separator"); ok {
		sep = value.Str(s)
	}
	quoting := value.Truth(opts.At("quoting"))
	lines := make([]string, len(pairs))
	for i, p := range pairs {
		text := value.Str(p[1])
		if _, ok := p[1].(string); quoting && !ok && value.Truth(p[1]) {
			return nil, fmt.Errorf("keyvalue: only strings can be quoted, and the value of %s is a %s", value.Str(p[0]), value.TypeName(p[1]))
		} else if quoting {
			text = shellQuote(p[1])
		}
		lines[i] = value.Str(p[0]) + sep + text
	}
	return strings.Join(lines, end), nil
}

// pairsOf returns the keys and values of a map, or of a list of pairs.
func pairsOf(v any) ([][2]any, error) {
	var items []any
	switch x := v.(type) {
	case *value.Dict:
		var out [][2]any
		for k, w := range x.All() {
			out = append(out, [2]any{k, w})
		}
		return out, nil
	case *value.List:
		items = x.Items
	case value.Tuple:
		items = x
	default:
		return nil, fmt.Errorf("keyvalue needs a map or a list of pairs, not a %s", value.TypeName(v))
	}
	var out [][2]any
	for _, it := range items {
		var two []any
		switch x := it.(type) {
		case *value.List:
			two = x.Items
		case value.Tuple:
			two = x
		case *value.Dict:
			two = x.Keys()
		case string:
			for _, r := range x {
				two = append(two, string(r))
			}
		}
		if len(two) != 2 {
			return nil, fmt.Errorf("keyvalue: %s is not a pair of a key and a value", value.Repr(it))
		}
		out = append(out, [2]any{two[0], two[1]})
	}
	return out, nil
}

var unquoted = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9_@%+=:,./-]+$`) })

func shellQuote(v any) string {
	s, _ := v.(string)
	if unquoted().MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'"
}

func readKeyvalue(data []byte, opts *value.Dict) (any, error) {
	if !utf8.Valid(data) {
		return nil, errText
	}
	sep := "="
	if s, ok := opts.Get("separator"); ok {
		if sep, ok = s.(string); (!ok || sep == "") && len(data) > 0 {
			return nil, fmt.Errorf("options of keyvalue: separator must be a string, not %s", value.Repr(s))
		}
	}
	dequote, isFalse := opts.At("quoting").(bool)
	isFalse = isFalse && !dequote
	out := value.NewDict(0)
	for n, line := range value.SplitLines(string(data), false) {
		key, val, ok := strings.Cut(line, sep)
		if !ok {
			return nil, fmt.Errorf("keyvalue: line %d has no %s", n+1, value.Repr(sep))
		}
		if isFalse {
			if val == "" {
				return nil, fmt.Errorf("keyvalue: line %d has no value to unquote", n+1)
			}
			if last := val[len(val)-1]; val[0] == last && (last == '\'' || last == '"') {
				val = val[1:max(len(val)-1, 1)]
			}
		}
		out.Set(key, val)
	}
	return out, nil
}
