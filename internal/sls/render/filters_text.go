package render

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"strings"
	"unicode"

	"crypto/sha1"
	"encoding/hex"

	"brine/internal/py/jinja"
	"brine/internal/py/pyre"
	"brine/internal/py/value"
)

func textFilters() []*jinja.Func {
	return []*jinja.Func{
		filter("skip(data)", func(*jinja.Call) (any, error) { return "", nil }),
		filter("to_bool(val)", func(c *jinja.Call) (any, error) { return toBool(c.Bound[0]), nil }),
		filter("quote(txt)", func(c *jinja.Call) (any, error) { return shellQuote(c.Str(0)), nil }),
		filter("uuid(val)", func(c *jinja.Call) (any, error) {
			b, err := asBytes(c.Bound[0])
			return uuid5(string(b)), err
		}),
		filter("to_bytes(s, encoding=None, errors='strict')", toBytes),
		filter("to_num(text)", func(c *jinja.Call) (any, error) { return toNum(c.Bound[0]), nil }),
		filter("is_hex(value)", func(c *jinja.Call) (any, error) {
			s, ok := jinja.Text(c.Bound[0])
			if !ok {
				return false, nil
			}
			_, ok = jinja.ParseInt(s, 16)
			return ok, nil
		}),
		filter("contains_whitespace(text)", func(c *jinja.Call) (any, error) {
			return strings.IndexFunc(c.Str(0), unicode.IsSpace) >= 0, nil
		}),
		filter("human_to_bytes(size, default_unit='B', handle_metric=False)", humanToBytes),
		filter("check_whitelist_blacklist(value, whitelist=None, blacklist=None)", whitelist),
		filter("to_snake_case(camel_input)", func(c *jinja.Call) (any, error) { return snakeCase(c.Str(0)), nil }),
		filter("to_camelcase(snake_input, uppercamel=False)", func(c *jinja.Call) (any, error) { return camelCase(c.Str(0), c.Bool(1)), nil }),
		filter("yaml_dquote(text)", func(c *jinja.Call) (any, error) { return yamlDouble(jinja.Str(c.Bound[0])), nil }),
		filter("yaml_squote(text)", func(c *jinja.Call) (any, error) {
			return yamlSingle(jinja.Str(c.Bound[0])), nil
		}),
		filter("yaml_encode(data)", yamlEncode),
		filter("method_call(obj, f_name, *f_args, **f_kwargs)", methodCall),
	}
}

func toBool(v any) bool {
	switch x := v.(type) {
	case nil:
		return false
	case bool:
		return x
	case int64:
		return x > 0
	case *value.List:
		return x.Len() > 0
	case *value.Dict:
		return x.Len() > 0
	}
	if s, ok := jinja.Text(v); ok {
		switch strings.ToLower(s) {
		case "yes", "1", "true":
			return true
		}
		return false
	}
	if _, ok := v.(*jinja.Set); ok {
		return jinja.Truth(v)
	}
	return false
}

// shellQuote is shlex.quote.
func shellQuote(s string) string {
	if s == "" {
		return "''"
	}
	if strings.IndexFunc(s, func(r rune) bool {
		return (r >= 0x80 || !unicode.IsLetter(r) && !unicode.IsDigit(r)) && !strings.ContainsRune("_@%+=:,./-", r)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'"
}

// uuid5 returns a version 5 UUID in Salt's namespace.
func uuid5(s string) string {
	space, _ := hex.DecodeString("91633ebf1c865e33935a28061f4b480e")
	h := sha1.Sum(append(space, s...))
	h[6] = h[6]&0x0f | 0x50
	h[8] = h[8]&0x3f | 0x80
	x := hex.EncodeToString(h[:16])
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}

func toBytes(c *jinja.Call) (any, error) {
	if b, ok := c.Bound[0].([]byte); ok {
		return b, nil
	}
	s, ok := jinja.Text(c.Bound[0])
	if !ok {
		return nil, wrongType("expected str, bytes, or bytearray not <class '%s'>", jinja.TypeName(c.Bound[0]))
	}
	if c.Bound[1] == nil {
		return []byte(s), nil
	}
	return jinja.Encode(s, c.Str(1), c.Str(2)), nil
}

// asBytes returns the bytes that are hashed.
func asBytes(v any) ([]byte, error) {
	if b, ok := v.([]byte); ok {
		return b, nil
	}
	s, ok := jinja.Text(v)
	if !ok {
		return nil, wrongType("expected str, bytes, or bytearray not <class '%s'>", jinja.TypeName(v))
	}
	return []byte(s), nil
}

func toNum(v any) any {
	switch v.(type) {
	case int64, bool, float64:
		if f, ok := v.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
			return v
		}
		n, _ := jinja.ToInt(v, 10)
		return n
	}
	s, ok := jinja.Text(v)
	if !ok {
		return v
	}
	if n, ok := jinja.ParseInt(s, 10); ok {
		return n
	}
	if f, ok := jinja.ToFloat(s); ok {
		return f
	}
	return v
}

func humanToBytes(c *jinja.Call) (any, error) {
	m := regexp.MustCompile(`^([0-9.]*)\s*(.*)$`).FindStringSubmatch(strings.TrimSpace(jinja.Str(c.Bound[0])))
	if m == nil {
		return int64(0), nil
	}
	unit := strings.ToLower(m[2])
	if unit == "" {
		unit = strings.ToLower(c.Str(1))
	}
	f, ok := jinja.ToFloat(m[1])
	if !ok {
		return int64(0), nil
	}
	base := 1024.0
	if regexp.MustCompile(`^[kmgtpezy]b$`).MatchString(unit) {
		if c.Bool(2) {
			base = 1000
		}
	} else if !regexp.MustCompile(`^(b|[kmgtpezy](ib)?)$`).MatchString(unit) {
		return int64(0), nil
	}
	n, _ := jinja.ToInt(f*math.Pow(base, float64(strings.IndexByte("bkmgtpezy", unit[0]))), 10)
	return n, nil
}

func whitelist(c *jinja.Call) (any, error) {
	v := ""
	if !jinja.IsUndefined(c.Bound[0]) {
		v = c.Str(0)
	}
	list := func(i int) ([]any, error) {
		x := c.Bound[i]
		if !jinja.Truth(x) {
			return nil, nil
		}
		if s, ok := jinja.Text(x); ok {
			return []any{s}, nil
		}
		return jinja.Items(x), nil
	}
	white, err := list(1)
	if err != nil {
		return nil, err
	}
	black, err := list(2)
	if err != nil {
		return nil, err
	}
	hit := func(l []any) bool {
		for _, e := range l {
			if s, ok := jinja.Text(e); ok && exprMatch(v, s) {
				return true
			}
		}
		return false
	}
	return (len(black) == 0 || !hit(black)) && (len(white) == 0 || hit(white)), nil
}

// exprMatch matches a glob or a regular expression.
func exprMatch(s, expr string) bool {
	if ok, err := path.Match(strings.ReplaceAll(expr, "/", "\x00"), strings.ReplaceAll(s, "/", "\x00")); err == nil && ok {
		return true
	}
	re, err := regexp.Compile(`\A(?:` + expr + `)\z`)
	return err == nil && re.MatchString(s)
}

func snakeCase(s string) string {
	rs := []rune(s)
	var b strings.Builder
	for i, r := range rs {
		if i > 0 && unicode.IsUpper(r) && (unicode.IsLower(rs[i-1]) || i != len(rs)-1 && unicode.IsLower(rs[i+1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func camelCase(s string, upper bool) string {
	parts := strings.Split(s, "_")
	for i, p := range parts {
		if i > 0 || upper {
			if r := []rune(p); len(r) > 0 {
				parts[i] = strings.ToUpper(string(r[:1])) + strings.ToLower(string(r[1:]))
			}
		}
	}
	return strings.Join(parts, "")
}

// yamlDouble writes a string in double quotes, on one line.
func yamlDouble(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch r {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		default:
			const from, to = "\x00\a\b\t\n\v\f\r\x1b\u0085\u00a0\u2028\u2029", "0abtnvfreN_LP"
			if i := strings.IndexRune(from, r); i >= 0 {
				b.WriteByte('\\')
				b.WriteByte(to[len([]rune(from[:i]))])
				continue
			}
			switch {
			case r >= 0x20 && r <= 0x7e:
				b.WriteRune(r)
			case r <= 0xff:
				fmt.Fprintf(&b, `\x%02X`, r)
			case r <= 0xffff:
				fmt.Fprintf(&b, `\u%04X`, r)
			default:
				fmt.Fprintf(&b, `\U%08X`, r)
			}
		}
	}
	b.WriteByte('"')
	return b.String()
}

// yamlSingle writes a string in single quotes; a line end becomes an empty
// line.
func yamlSingle(s string) string {
	s = strings.ReplaceAll(s, "'", "''")
	return "'" + regexp.MustCompile(`\n+`).ReplaceAllStringFunc(s, func(nl string) string { return nl + "\n" }) + "'"
}

func yamlEncode(c *jinja.Call) (any, error) {
	switch x := c.Bound[0].(type) {
	case nil:
		return "null", nil
	case bool:
		return fmt.Sprint(x), nil
	case float64:
		switch {
		case math.IsNaN(x):
			return ".nan", nil
		case math.IsInf(x, 1):
			return ".inf", nil
		case math.IsInf(x, -1):
			return "-.inf", nil
		}
		s := value.FormatFloat(x)
		if !strings.Contains(s, ".") {
			s = strings.Replace(s, "e", ".0e", 1)
		}
		return s, nil
	case int64:
		return fmt.Sprint(x), nil
	}
	if s, ok := jinja.Text(c.Bound[0]); ok {
		return yamlDouble(s), nil
	}
	return nil, wrongType("yaml_encode() only works with YAML scalar data; failed for <class '%s'>", jinja.TypeName(c.Bound[0]))
}

// methodCall calls a method of a value by name; a missing method yields None.
func methodCall(c *jinja.Call) (any, error) {
	m, ok := c.Attribute(c.Bound[0], c.Str(1))
	if !ok {
		return nil, nil
	}
	return c.Invoke(m, c.Bound[2].(value.Tuple), c.Bound[3].(*value.Dict))
}

func regexFilters() []*jinja.Func {
	search := func(name string, find func(*pyre.Regexp, string) (*pyre.Match, error)) *jinja.Func {
		return filter(name+"(txt, rgx, ignorecase=False, multiline=False)", func(c *jinja.Call) (any, error) {
			re, err := pattern(c, 1, 2, 3)
			if err != nil {
				return nil, err
			}
			m, err := find(re, c.Str(0))
			if err != nil || m == nil {
				return nil, err
			}
			groups := make(value.Tuple, re.Groups())
			for i := range groups {
				if s, ok := m.Group(i + 1); ok {
					groups[i] = s
				}
			}
			return groups, nil
		})
	}
	return []*jinja.Func{
		search("regex_search", (*pyre.Regexp).Search), search("regex_match", (*pyre.Regexp).Match),
		filter("regex_replace(txt, rgx, val, ignorecase=False, multiline=False)", func(c *jinja.Call) (any, error) {
			re, err := pattern(c, 1, 3, 4)
			if err != nil {
				return nil, err
			}
			size := len(c.Str(0))
			s, err := re.SubWithin(c.Str(2), c.Str(0), func(length int) {
				size += length
				c.Reserve(3 * size)
			})
			return s, err
		}),
		filter("regex_escape(value)", func(c *jinja.Call) (any, error) { return pyre.Escape(c.Str(0)), nil }),
	}
}

// pattern compiles an argument with the flags of two others.
func pattern(c *jinja.Call, arg, ignoreCase, multiline int) (*pyre.Regexp, error) {
	var flags pyre.Flags
	if c.Bool(ignoreCase) {
		flags |= pyre.IgnoreCase
	}
	if c.Bool(multiline) {
		flags |= pyre.MultiLine
	}
	return pyre.Compile(c.Str(arg), flags)
}
