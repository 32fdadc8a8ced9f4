package serialize

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"brine/internal/py/value"
)

// readTOML reads TOML 1.1. Maps keep the order of the document. Integers have
// 64 bits, as TOML specifies.
func readTOML(data []byte, opts *value.Dict) (any, error) {
	o := of("toml", opts)
	o.null("decoder", "_dict")
	if err := o.done(); err != nil {
		return nil, err
	}
	if !utf8.Valid(data) {
		return nil, errText
	}
	text := strings.TrimPrefix(string(data), "\ufeff")
	// The library recurses into brackets and dotted names without a limit.
	if tomlDepth(text) > MaxDepth {
		return nil, errDeep
	}
	tables := map[string]any{}
	md, err := toml.Decode(text, &tables)
	if err != nil {
		var bad toml.ParseError
		if errors.As(err, &bad) {
			return nil, fmt.Errorf("toml: line %d: %s", bad.Position.Line, bad.Message)
		}
		return nil, err
	}
	order := tomlOrder{}
	for _, key := range md.Keys() {
		for i, name := range key {
			parent := tomlPath(key[:i])
			order[parent] = append(order[parent], name)
		}
		order[tomlPath(key)] = append(order[tomlPath(key)], tomlBegin)
	}
	v, err := order.table(tables, nil)
	if err != nil {
		return nil, err
	}
	return v, depthOK(v, 0)
}

// tomlOrder holds, for the path of each table, its names not yet read, in
// document order and with repetitions. It is needed because the library returns
// Go maps. Tables of one array share a path.
type tomlOrder map[string][]string

// tomlBegin precedes the names of a table with a header.
const tomlBegin = "\x00"

func tomlPath(names []string) string { return strings.Join(names, "\x00") }

func (o tomlOrder) table(m map[string]any, path []string) (*value.Dict, error) {
	d := value.NewDict(len(m))
	at := tomlPath(path)
	for d.Len() < len(m) && len(o[at]) > 0 {
		name := o[at][0]
		o[at] = o[at][1:]
		item, ok := m[name]
		if !ok || d.Has(name) {
			continue
		}
		v, err := o.value(item, append(path[:len(path):len(path)], name))
		if err != nil {
			return nil, err
		}
		d.Set(name, v)
	}
	return d, nil
}

func (o tomlOrder) value(v any, path []string) (any, error) {
	switch x := v.(type) {
	case map[string]any:
		return o.table(x, path)
	case []map[string]any: // tables with headers
		l, at := &value.List{}, tomlPath(path)
		for _, m := range x {
			if i := slices.Index(o[at], tomlBegin); i >= 0 {
				o[at] = o[at][i+1:]
			}
			d, err := o.table(m, path)
			if err != nil {
				return nil, err
			}
			l.Append(d)
		}
		return l, nil
	case []any:
		l := &value.List{}
		for _, item := range x {
			v, err := o.value(item, path)
			if err != nil {
				return nil, err
			}
			l.Append(v)
		}
		return l, nil
	case time.Time:
		return tomlTime(x)
	}
	return v, nil // text, int64, float64, bool
}

// tomlTime formats a date or time as Python does.
func tomlTime(t time.Time) (any, error) {
	const clock = "15:04:05.000000"
	layout := "2006-01-02T" + clock + "Z07:00"
	switch t.Location().String() { // the library's zones for times without zone
	case "datetime-local":
		layout = "2006-01-02T" + clock
	case "date-local":
		layout = "2006-01-02"
	case "time-local":
		layout = clock
	}
	if strings.HasPrefix(layout, "2006") && t.Year() < 1 {
		return nil, errors.New("toml: the year 0 is invalid")
	}
	text := strings.Replace(t.Truncate(time.Microsecond).Format(layout), ".000000", "", 1)
	return value.Const{Name: tomlDate, Value: text}, nil
}

// tomlDepth returns an upper bound of the nesting of brackets and dotted names
// in text, valid TOML or not.
func tomlDepth(text string) int {
	deepest, open, dots := 0, 0, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '#':
			line, _, _ := strings.Cut(text[i:], "\n")
			i += len(line) - 1
		case '"', '\'':
			i += tomlQuoted(text[i:]) - 1
		case '[', '{':
			open++
		case ']', '}':
			open = max(open-1, 0)
		case '.':
			dots++
		case '=', ',', '\n':
			dots = 0
		}
		deepest = max(deepest, open+dots)
	}
	return deepest
}

// tomlQuoted returns the length of the quoted string at the start of text.
func tomlQuoted(text string) int {
	quote := text[:1]
	if strings.HasPrefix(text, strings.Repeat(quote, 3)) {
		quote = text[:3]
	}
	for i := len(quote); i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote[0] == '"':
			i++
		case text[i] == '\n' && len(quote) == 1:
			return i
		case strings.HasPrefix(text[i:], quote):
			return i + len(quote)
		}
	}
	return len(text)
}
