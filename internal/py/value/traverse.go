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
//   - In a dict the text itself is looked up first, then, unless it is there,
//     what the text means as a YAML scalar: "1" finds the int key 1.
//   - In a list a number is first looked up as a key of the dicts in it, then
//     taken as an index, from the end if negative. Any other text is looked
//     up in the dicts in the list, and the first that has it wins.
//   - Nothing is found inside a tuple, a text or a number.
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

// index reads what Python's int() reads, as far as an index can be: digits
// with a sign, single underscores between them and blanks around.
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

// scalar returns what s means as a plain YAML 1.1 scalar on Salt's command
// line, or s itself. Hexadecimal, binary and sexagesimal numbers, quotes and
// brackets, which nobody writes in a path, are not read.
func scalar(s string) any {
	t := strings.TrimSpace(s)
	switch t {
	case "": // YAML has null, but a path means the empty key
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
			return nil, false // neither octal nor decimal to YAML 1.1: text
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
			return nil, false // YAML 1.1 wants a dot and a signed exponent
		}
	}
	f, err := strconv.ParseFloat(t, 64)
	return f, err == nil
}
