package jmespath

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"brine/internal/py/json"
	"brine/internal/py/value"
)

// function is a built-in function.
type function struct {
	// args are the types allowed for each argument, separated by |. "any" is
	// all types but an expression, and "" is every type.
	args     []string
	variadic bool // the last argument may repeat
	run      func(args []any) (any, error)
}

// functions returns all functions by name.
func functions() map[string]function {
	const numbers, texts = "array-number", "array-string"
	one := func(arg string, run func(v any) any) function {
		return function{args: []string{arg}, run: func(a []any) (any, error) { return run(a[0]), nil }}
	}
	two := func(a, b string, run func(v, w any) any) function {
		return function{args: []string{a, b}, run: func(a []any) (any, error) { return run(a[0], a[1]), nil }}
	}
	by := func(run func(l []any, keys []any) any, keyed func(name string, l []any, f reference) ([]any, error), name string) function {
		return function{args: []string{"array", "expref"}, run: func(a []any) (any, error) {
			l, _ := items(a[0])
			keys, err := keyed(name, l, a[1].(reference))
			if err != nil {
				return nil, err
			}
			return run(l, keys), nil
		}}
	}
	return map[string]function{
		"abs": one("number", func(v any) any {
			if i, ok := v.(int64); ok {
				return max(i, -i)
			}
			return math.Abs(number(v))
		}),
		"avg":         one(numbers, avg),
		"ceil":        one("number", func(v any) any { return whole(math.Ceil, v) }),
		"floor":       one("number", func(v any) any { return whole(math.Floor, v) }),
		"contains":    two("array|string", "any", contains),
		"ends_with":   two("string", "string", func(v, w any) any { return strings.HasSuffix(v.(string), w.(string)) }),
		"starts_with": two("string", "string", func(v, w any) any { return strings.HasPrefix(v.(string), w.(string)) }),
		"join": two("string", texts, func(v, w any) any {
			l, _ := items(w)
			parts := make([]string, len(l))
			for i, it := range l {
				parts[i] = it.(string)
			}
			return strings.Join(parts, v.(string))
		}),
		"keys":   one("object", func(v any) any { return &value.List{Items: v.(*value.Dict).Keys()} }),
		"values": one("object", func(v any) any { l, _ := values(v); return &value.List{Items: l} }),
		"length": one("string|array|object", length),
		"map": {args: []string{"expref", "array"}, run: func(a []any) (any, error) {
			l, _ := items(a[1])
			out := &value.List{}
			for _, it := range l {
				got, err := a[0].(reference).of.eval(it)
				if err != nil {
					return nil, err
				}
				out.Append(got)
			}
			return out, nil
		}},
		"max":    one(numbers+"|"+texts, func(v any) any { l, _ := items(v); return extreme(l, l, 1) }),
		"min":    one(numbers+"|"+texts, func(v any) any { l, _ := items(v); return extreme(l, l, -1) }),
		"max_by": by(func(l, keys []any) any { return extreme(l, keys, 1) }, keysOf, "max_by"),
		"min_by": by(func(l, keys []any) any { return extreme(l, keys, -1) }, keysOf, "min_by"),
		"merge": {args: []string{"object"}, variadic: true, run: func(a []any) (any, error) {
			out := value.NewDict(0)
			for _, d := range a {
				out.Update(d.(*value.Dict))
			}
			return out, nil
		}},
		"not_null": {args: []string{""}, variadic: true, run: func(a []any) (any, error) {
			for _, v := range a {
				if v != nil {
					return v, nil
				}
			}
			return nil, nil
		}},
		"reverse": one("array|string", reverse),
		"sort":    one(numbers+"|"+texts, func(v any) any { l, _ := items(v); return sorted(l, l) }),
		"sort_by": by(sorted, keysOf, "sort_by"),
		"sum":     one(numbers, sum),
		"to_array": one("any", func(v any) any {
			if _, ok := items(v); ok {
				return v
			}
			return value.ListOf(v)
		}),
		"to_number": one("any", toNumber),
		"to_string": {args: []string{"any"}, run: func(a []any) (any, error) {
			if s, ok := a[0].(string); ok {
				return s, nil
			}
			return json.Dump(a[0], json.Format{ASCII: true, Comma: ",", Colon: ":"})
		}},
		"type": one("any", func(v any) any { return typeOf(v) }),
	}
}

// invoke checks the arguments and calls the function.
func invoke(name string, args []any) (any, error) {
	f, ok := functions()[name]
	if !ok {
		return nil, errorf("Unknown function: %s()", name)
	}
	if n := len(f.args); len(args) < n || len(args) > n && !f.variadic {
		plural, least := "s", ""
		if n == 1 {
			plural = ""
		}
		if f.variadic {
			least = "at least "
		}
		return nil, errorf("Expected %s%d argument%s for function %s(), received %d", least, n, plural, name, len(args))
	}
	for i, v := range args {
		if want := f.args[min(i, len(f.args)-1)]; !fits(v, want) {
			return nil, typeError(name, v, strings.Split(want, "|"))
		}
	}
	return f.run(args)
}

func typeError(name string, v any, want []string) error {
	shown := "an expression"
	if _, ok := v.(reference); !ok {
		shown = value.Str(v)
	}
	return errorf("In function %s(), invalid type for value: %s, expected one of: %s, received: \"%s\"",
		name, shown, value.Repr(value.Strings(want)), typeOf(v))
}

func fits(v any, want string) bool {
	own := typeOf(v)
	if want == "" || want == "any" && own != "expref" {
		return true
	}
	for _, w := range strings.Split(want, "|") {
		outer, inner, ofType := strings.Cut(w, "-")
		if outer != own {
			continue
		}
		l, _ := items(v)
		if !ofType || !slices.ContainsFunc(l, func(it any) bool { return typeOf(it) != inner }) {
			return true
		}
	}
	return false
}

// keysOf applies an expression to all items; the keys must be all numbers or
// all strings.
func keysOf(name string, l []any, f reference) ([]any, error) {
	keys := make([]any, len(l))
	for i, it := range l {
		k, err := f.of.eval(it)
		if err != nil {
			return nil, err
		}
		t := typeOf(k)
		if t != "number" && t != "string" {
			return nil, typeError(name, k, []string{"number", "string"})
		}
		if i > 0 && t != typeOf(keys[0]) {
			return nil, typeError(name, k, []string{typeOf(keys[0])})
		}
		keys[i] = k
	}
	return keys, nil
}

func sorted(l, keys []any) any {
	order := make([]int, len(l))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { c, _ := value.Compare(keys[i], keys[j]); return c })
	out := &value.List{}
	for _, i := range order {
		out.Append(l[i])
	}
	return out
}

// extreme returns the first item with the largest key (sign 1) or the smallest
// (-1).
func extreme(l, keys []any, sign int) any {
	if len(l) == 0 {
		return nil
	}
	best := 0
	for i := range l {
		if c, _ := value.Compare(keys[i], keys[best]); c*sign > 0 {
			best = i
		}
	}
	return l[best]
}

func number(v any) float64 {
	f, _ := strconv.ParseFloat(value.Str(v), 64)
	return f
}

func whole(round func(float64) float64, v any) any {
	if f, ok := v.(float64); ok {
		if f = round(f); math.Abs(f) < 1<<62 {
			return int64(f)
		}
		return f
	}
	return v
}

func sum(v any) any {
	l, _ := items(v)
	var n int64
	var f float64
	exact := true
	for _, it := range l {
		if i, ok := it.(int64); ok && exact {
			n += i
		} else {
			exact = false
		}
		f += number(it)
	}
	if exact {
		return n
	}
	return f
}

func avg(v any) any {
	l, _ := items(v)
	if len(l) == 0 {
		return nil
	}
	var f float64
	for _, it := range l {
		f += number(it)
	}
	return f / float64(len(l))
}

func contains(v, w any) any {
	if s, ok := v.(string); ok {
		part, isText := w.(string)
		return isText && strings.Contains(s, part)
	}
	l, _ := items(v)
	return slices.ContainsFunc(l, func(it any) bool { return value.Equal(it, w) })
}

func length(v any) any {
	switch x := v.(type) {
	case string:
		return int64(utf8.RuneCountInString(x))
	case *value.Dict:
		return int64(x.Len())
	}
	l, _ := items(v)
	return int64(len(l))
}

func reverse(v any) any {
	if s, ok := v.(string); ok {
		r := []rune(s)
		slices.Reverse(r)
		return string(r)
	}
	l, _ := items(v)
	l = slices.Clone(l)
	slices.Reverse(l)
	return &value.List{Items: l}
}

func toNumber(v any) any {
	s, ok := v.(string)
	if !ok {
		if typeOf(v) == "number" {
			return v
		}
		return nil
	}
	s = strings.TrimSpace(s)
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return f
	}
	return nil
}
