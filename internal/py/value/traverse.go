package value

import (
	"math/big"
	"strconv"
	"strings"
)

// Traverse follows path, split at delimiter, into nested dicts and lists:
// "a:b:0" is the first item of the list b of the dict a. An empty delimiter
// means a colon. It follows the rules that Salt's grains.get, pillar.get and
// targets share:
//
//   - In a dict the string itself is looked up first, then its value as a YAML
//     scalar: "1" finds the int key 1.
//   - In a list a number is first looked up as a key of the dicts in it, then
//     used as an index, from the end if negative. Any other string is looked
//     up in the dicts of the list; the first match wins.
//   - Tuples, strings and numbers have no items.
func Traverse(v any, path, delimiter string) (any, bool) {
	if delimiter == "" {
		delimiter = ":"
	}
	for part := range strings.SplitSeq(path, delimiter) {
		var ok bool
		switch x := v.(type) {
		case *Dict:
			v, ok = dictStep(x, part)
		case *List:
			v, ok = listStep(x, part)
		}
		if !ok {
			return nil, false
		}
	}
	return v, true
}

func dictStep(d *Dict, part string) (any, bool) {
	if v, ok := d.Get(part); ok {
		return v, true
	}
	key := scalar(part)
	if key == part {
		return nil, false
	}
	return d.Get(key)
}

func listStep(l *List, part string) (any, bool) {
	index, numeric := index(part)
	var key any = part
	if numeric {
		key = index
	}
	for _, it := range l.items() {
		if d, ok := it.(*Dict); ok {
			if v, ok := d.Get(key); ok {
				return v, true
			}
		}
	}
	if !numeric {
		return nil, false
	}
	n := int64(l.Len())
	if index < 0 {
		index += n
	}
	if index < 0 || index >= n {
		return nil, false
	}
	return l.Items[index], true
}

// index parses an index as Python's int() does: digits with a sign, single
// underscores between them and blanks around.
func index(s string) (int64, bool) {
	s = strings.TrimSpace(s)
	if strings.Contains(s, "_") {
		digits := strings.TrimLeft(s, "+-")
		if strings.HasPrefix(digits, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
			return 0, false
		}
		s = strings.ReplaceAll(s, "_", "")
	}
	i, err := strconv.ParseInt(s, 10, 64)
	return i, err == nil
}

// scalar returns the value of s as a plain YAML 1.1 scalar on Salt's command
// line, or s itself. Hexadecimal, binary and sexagesimal numbers, quotes and
// brackets do not occur in paths and are not parsed.
func scalar(s string) any {
	t := strings.TrimSpace(s)
	switch t {
	case "": // null in YAML, but the empty key in a path
		return s
	case "~", "null", "Null", "NULL", "None":
		return nil
	case "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON":
		return true
	case "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF":
		return false
	}
	if strings.ContainsAny(s, "\t\r\n") {
		return s
	}
	if v, ok := scalarNumber(t); ok {
		return v
	}
	return t
}

func scalarNumber(t string) (any, bool) {
	digits := strings.TrimLeft(t, "+-")
	if len(t)-len(digits) > 1 || digits == "" || strings.Trim(digits, "0123456789.eE+-") != "" {
		return nil, false
	}
	if strings.Trim(digits, "0123456789") == "" {
		if digits[0] == '0' && strings.ContainsAny(digits, "89") {
			return nil, false // neither octal nor decimal in YAML 1.1: a string
		}
		i, ok := new(big.Int).SetString(t, 10)
		if !ok {
			return nil, false
		}
		return Big(i), true
	}
	if whole, exp, ok := strings.Cut(digits, "e"); ok || strings.Contains(digits, "E") {
		if !ok {
			whole, exp, _ = strings.Cut(digits, "E")
		}
		if !strings.Contains(whole, ".") || !strings.HasPrefix(exp, "+") && !strings.HasPrefix(exp, "-") {
			return nil, false // YAML 1.1 requires a dot and a signed exponent
		}
	}
	f, err := strconv.ParseFloat(t, 64)
	return f, err == nil
}
