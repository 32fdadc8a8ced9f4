package serialize

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"brine/internal/py/value"
)

// tomlDate is the name of the value.Const that holds the text of a date or time
// of TOML. The value model has neither zones nor dates.
const tomlDate = "toml date"

// tomlTable is a table not yet written, with its full name.
type tomlTable struct {
	name string
	dict *value.Dict
}

func init() { register("toml", Format{writeTOML, readTOML}) }

// writeTOML writes as Python's library toml does: first the values of a table,
// then its arrays of tables, then its subtables, level by level. Unlike that
// library, it writes strings with control characters or \x correctly.
func writeTOML(v any, opts *value.Dict) (any, error) {
	o := of("toml", opts)
	o.null("encoder")
	if err := o.done(); err != nil {
		return nil, err
	}
	root, ok := v.(*value.Dict)
	if l, isList := v.(*value.List); !ok {
		if v == "" || isList && l.Len() == 0 {
			return "", nil
		}
		return nil, fmt.Errorf("toml can only write a map, not a %s", value.TypeName(v))
	}
	if err := depthOK(v, 0); err != nil {
		return nil, err
	}
	text, tables, err := tomlBody(root, "")
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	out.WriteString(text)
	for len(tables) > 0 {
		var next []tomlTable
		for _, t := range tables {
			text, more, err := tomlBody(t.dict, t.name)
			if err != nil {
				return nil, err
			}
			if text != "" || len(more) == 0 {
				if out.Len() > 0 && !strings.HasSuffix(out.String(), "\n\n") {
					out.WriteByte('\n')
				}
				out.WriteString("[" + t.name + "]\n" + text)
			}
			next = append(next, more...)
		}
		tables = next
	}
	return out.String(), nil
}

var bareTOML = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]+$`) })

func tomlKey(k any) (string, error) {
	s, ok := k.(string)
	switch {
	case !ok:
		return "", fmt.Errorf("toml: keys must be strings, and %s is a %s", value.Repr(k), value.TypeName(k))
	case bareTOML().MatchString(s):
		return s, nil
	}
	return tomlText(s), nil
}

// tomlBody returns the lines of a table and its subtables.
func tomlBody(d *value.Dict, name string) (string, []tomlTable, error) {
	if name != "" && !strings.HasSuffix(name, ".") {
		name += "."
	}
	var b, arrays strings.Builder
	var tables []tomlTable
	for k, v := range d.All() {
		key, err := tomlKey(k)
		if err != nil {
			return "", nil, err
		}
		switch x := v.(type) {
		case nil:
		case *value.Dict:
			tables = append(tables, tomlTable{name + key, x})
		case *value.List:
			if !hasDict(x) {
				b.WriteString(key + " = " + tomlValue(x) + "\n")
				continue
			}
			for _, it := range x.Items {
				text, err := tomlElement(it, name+key)
				if err != nil {
					return "", nil, err
				}
				arrays.WriteString(text)
			}
		default:
			b.WriteString(key + " = " + tomlValue(x) + "\n")
		}
	}
	return b.String() + arrays.String(), tables, nil
}

func hasDict(l *value.List) bool {
	for _, it := range l.Items {
		if _, ok := it.(*value.Dict); ok {
			return true
		}
	}
	return false
}

// tomlElement writes one table of an array of tables.
func tomlElement(v any, name string) (string, error) {
	d, ok := v.(*value.Dict)
	if !ok {
		if value.Truth(v) || v == nil || value.TypeName(v) == "int" || value.TypeName(v) == "bool" || value.TypeName(v) == "float" {
			return "", fmt.Errorf("toml: the list %s has a map and a %s; it may not mix maps with other types", name, value.TypeName(v))
		}
		d = value.NewDict(0)
	}
	text, tables, err := tomlBody(d, name)
	if err != nil {
		return "", err
	}
	head, tail := "[["+name+"]]\n", "\n"
	if strings.HasPrefix(text, "[") {
		tail += text
	} else {
		head += text
	}
	for len(tables) > 0 {
		var next []tomlTable
		for _, t := range tables {
			text, more, err := tomlBody(t.dict, t.name)
			if err != nil {
				return "", err
			}
			if text != "" {
				tail += "[" + t.name + "]\n" + text
			}
			next = append(next, more...)
		}
		tables = next
	}
	return head + tail, nil
}

func tomlValue(v any) string {
	switch x := v.(type) {
	case bool:
		if x {
			return "true"
		}
		return "false"
	case float64:
		return strings.NewReplacer("e+0", "e+", "e-0", "e-").Replace(value.Str(x))
	case string:
		return tomlText(x)
	case *value.List:
		return tomlList(x.Items)
	case value.Tuple:
		return tomlList(x)
	case *value.Dict: // in a nested list: only its keys
		return tomlList(x.Keys())
	case []byte:
		items := make([]any, len(x))
		for i, c := range x {
			items[i] = int64(c)
		}
		return tomlList(items)
	case time.Time:
		return strings.Replace(value.Str(x), " ", "T", 1)
	case value.Const:
		if x.Name == tomlDate {
			return value.Str(x.Value)
		}
		return tomlValue(x.Value)
	case nil:
		return `"None"`
	}
	return value.Str(v)
}

func tomlList(items []any) string {
	var b strings.Builder
	b.WriteByte('[')
	for _, it := range items {
		b.WriteString(" " + tomlValue(it) + ",")
	}
	b.WriteByte(']')
	return b.String()
}

// tomlText escapes the same characters as Python's repr, with TOML's escapes.
func tomlText(s string) string {
	rep := value.Repr(s)
	rep = rep[1 : len(rep)-1]
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(rep); i++ {
		switch c := rep[i]; {
		case c == '"':
			b.WriteString(`\"`)
		case c != '\\':
			b.WriteByte(c)
		default:
			switch i++; rep[i] {
			case 'x':
				b.WriteString(`\u00`)
			case '\'', '"':
				b.WriteByte(rep[i])
			default:
				b.WriteString(rep[i-1 : i+1])
			}
		}
	}
	b.WriteByte('"')
	return b.String()
}
