package render

import (
	"math/rand/v2"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/jinja"
	"brine/internal/py/jmespath"
	"brine/internal/py/mersenne"
	"brine/internal/py/value"
)

// hashable reports whether Python can hash a value: then the set filters
// convert it to a set.
func hashable(v any) bool {
	switch v.(type) {
	case *jinja.Set:
		return false
	}
	return value.Hashable(v)
}

// uniqueItems drops duplicates.
func uniqueItems(c *jinja.Call, in []any) *value.List {
	out := &value.List{}
	seen := value.NewDict(0)
	for _, v := range in {
		c.Tick()
		if hashable(v) {
			if m, ok := v.(jinja.Markup); ok {
				v = string(m)
			}
			if seen.Has(v) {
				continue
			}
			seen.Set(v, true)
		} else if contains(out.Items, v) {
			continue
		}
		out.Append(v)
	}
	return out
}

func contains(items []any, v any) bool {
	for _, it := range items {
		if jinja.Equal(it, v) {
			return true
		}
	}
	return false
}

// setFilter combines two lists; strings and tuples become sets.
func setFilter(name string, pick func(c *jinja.Call, a, b []any) []any) *jinja.Func {
	return filter(name+"(lst1, lst2)", func(c *jinja.Call) (any, error) {
		out := uniqueItems(c, pick(c, jinja.Items(c.Bound[0]), jinja.Items(c.Bound[1])))
		if hashable(c.Bound[0]) && hashable(c.Bound[1]) {
			return jinja.NewSet(out.Items)
		}
		return out, nil
	})
}

// except returns the items of a that are, or are not, in b.
func except(c *jinja.Call, a, b []any, in bool) []any {
	var out []any
	for _, v := range a {
		c.Tick()
		if contains(b, v) == in {
			out = append(out, v)
		}
	}
	return out
}

func listFilters() []*jinja.Func {
	return []*jinja.Func{
		filter("sequence(data)", func(c *jinja.Call) (any, error) {
			switch c.Bound[0].(type) {
			case *value.List, value.Tuple, *value.Dict, *jinja.Set:
				return c.Bound[0], nil
			}
			return &value.List{Items: []any{c.Bound[0]}}, nil
		}),
		filter("unique(values)", func(c *jinja.Call) (any, error) {
			out := uniqueItems(c, jinja.Items(c.Bound[0]))
			if hashable(c.Bound[0]) {
				return jinja.NewSet(out.Items)
			}
			return out, nil
		}),
		extreme("min", -1), extreme("max", 1),
		filter("avg(lst)", average),
		setFilter("union", func(_ *jinja.Call, a, b []any) []any { return append(append([]any(nil), a...), b...) }),
		setFilter("intersect", func(c *jinja.Call, a, b []any) []any { return except(c, a, b, true) }),
		setFilter("difference", func(c *jinja.Call, a, b []any) []any { return except(c, a, b, false) }),
		setFilter("symmetric_difference", func(c *jinja.Call, a, b []any) []any {
			return append(except(c, a, b, false), except(c, b, a, false)...)
		}),
		filter("compare_lists(old=None, new=None)", func(c *jinja.Call) (any, error) {
			old, now, d := jinja.Items(c.Bound[0]), jinja.Items(c.Bound[1]), value.NewDict(2)
			if more := except(c, now, old, false); len(more) > 0 {
				d.Set("new", &value.List{Items: more})
			}
			if less := except(c, old, now, false); len(less) > 0 {
				d.Set("old", &value.List{Items: less})
			}
			return d, nil
		}),
		filter("exactly_n_true(iterable, amount=1)", func(c *jinja.Call) (any, error) { return trueCount(c.Bound[0]) == c.Int(1), nil }),
		filter("exactly_one_true(iterable)", func(c *jinja.Call) (any, error) { return trueCount(c.Bound[0]) == 1, nil }),
		filter("substring_in_list(string_to_search_for, list_to_search)", func(c *jinja.Call) (any, error) {
			for _, s := range jinja.Items(c.Bound[1]) {
				if t, ok := jinja.Text(s); ok && strings.Contains(t, c.Str(0)) {
					return true, nil
				}
			}
			return false, nil
		}),
		filter("is_list(value)", func(c *jinja.Call) (any, error) { return jinja.TypeName(c.Bound[0]) == "list", nil }),
		filter("is_iter(thing, ignore=missing)", func(c *jinja.Call) (any, error) { return isIter(c.Bound[0]), nil }),
		filter("sorted_ignorecase(to_sort)", func(c *jinja.Call) (any, error) {
			return c.Sorted(jinja.Items(c.Bound[0]), func(v any) any {
				s, _ := jinja.Text(v)
				return strings.ToLower(s)
			}), nil
		}),
		filter("flatten(data, levels=None, preserve_nulls=False)", func(c *jinja.Call) (any, error) {
			levels := -1
			if c.Bound[1] != nil {
				levels = c.Int(1)
			}
			out := &value.List{}
			return out, flatten(c, out, c.Bound[0], levels, c.Bool(2), 0)
		}),
		filter("random_sample(value, size, seed=None)", func(c *jinja.Call) (any, error) { return sample(c, c.Int(1), c.Bound[2]) }),
		filter("random_shuffle(value, seed=None)", func(c *jinja.Call) (any, error) {
			return sample(c, len(jinja.Items(c.Bound[0])), c.Bound[1])
		}),
	}
}

func extreme(name string, sign int) *jinja.Func {
	return filter(name+"(obj)", func(c *jinja.Call) (any, error) {
		all := jinja.Items(c.Bound[0])
		if len(all) == 0 {
			return nil, invalid("%s() arg is an empty sequence", name)
		}
		best := all[0]
		for _, v := range all[1:] {
			if sign < 0 && jinja.Less(v, best) || sign > 0 && jinja.Less(best, v) {
				best = v
			}
		}
		return best, nil
	})
}

func average(c *jinja.Call) (any, error) {
	if hashable(c.Bound[0]) {
		f, ok := jinja.ToFloat(c.Bound[0])
		if !ok {
			return nil, invalid("could not convert %s to float", jinja.Repr(c.Bound[0]))
		}
		return f, nil
	}
	all := jinja.Items(c.Bound[0])
	if len(all) == 0 {
		return nil, jinja.Errorf("ZeroDivisionError", "division by zero")
	}
	sum := 0.0
	for _, v := range all {
		switch v.(type) {
		case int64, float64, bool:
		default:
			return nil, wrongType("unsupported operand type(s) for +: 'int' and '%s'", jinja.TypeName(v))
		}
		f, _ := jinja.ToFloat(v)
		sum += f
	}
	return sum / float64(len(all)), nil
}

func trueCount(v any) int {
	n := 0
	for _, it := range jinja.Items(v) {
		if jinja.Truth(it) {
			n++
		}
	}
	return n
}

func isIter(v any) bool {
	if _, ok := jinja.Text(v); ok {
		return false
	}
	return jinja.IsIterable(v)
}

func flatten(c *jinja.Call, out *value.List, v any, levels int, nulls bool, depth int) error {
	if depth > 200 {
		return jinja.Errorf("RecursionError", "Reference cycle detected. Check input list.")
	}
	for _, it := range jinja.Items(v) {
		c.Tick()
		s, text := jinja.Text(it)
		switch {
		case !nulls && (it == nil || text && (s == "None" || s == "null")):
		case isIter(it) && levels != 0:
			if err := flatten(c, out, it, levels-1, nulls, depth+1); err != nil {
				return err
			}
		default:
			c.Spend(16)
			out.Append(it)
		}
	}
	return nil
}

// sample picks random items. With a numeric seed the result is that of Python;
// with a string seed Python's own result differs in every process.
func sample(c *jinja.Call, n int, seed any) (any, error) {
	all := jinja.Items(c.Bound[0])
	if n < 0 || n > len(all) {
		return nil, invalid("Sample larger than population or is negative")
	}
	if seed == nil {
		out := &value.List{}
		for _, i := range rand.Perm(len(all))[:n] {
			out.Append(all[i])
		}
		return out, nil
	}
	if s, ok := jinja.Text(seed); ok {
		seed = s
	}
	src, err := mersenne.New(seed)
	if err != nil {
		return nil, err
	}
	picks := src.Sample(len(all), n)
	out := &value.List{}
	for _, i := range picks {
		out.Append(all[i])
	}
	return out, nil
}

func dictFilters() []*jinja.Func {
	return []*jinja.Func{
		filter("compare_dicts(old=None, new=None)", func(c *jinja.Call) (any, error) {
			old, ok1 := c.Bound[0].(*value.Dict)
			now, ok2 := c.Bound[1].(*value.Dict)
			if !ok1 || !ok2 {
				return nil, wrongType("compare_dicts needs two dicts")
			}
			d := value.NewDict(0)
			for k, v := range now.All() {
				if w, ok := old.Get(k); !ok {
					d.Set(k, value.DictOf("old", "", "new", v))
				} else if !jinja.Equal(v, w) {
					d.Set(k, value.DictOf("old", w, "new", v))
				}
			}
			for k, w := range old.All() {
				if !now.Has(k) {
					d.Set(k, value.DictOf("new", "", "old", w))
				}
			}
			return d, nil
		}),
		filter("traverse(data, key, default=None, delimiter=':')", traverse),
		filter("to_entries(data)", toEntries), filter("from_entries(entries)", fromEntries),
		filter("mysql_to_dict(data, key)", mysqlToDict),
		filter("json_encode_dict(data)", func(c *jinja.Call) (any, error) { return encodeAll(c.Bound[0], 0) }),
		filter("json_encode_list(data)", func(c *jinja.Call) (any, error) { return encodeAll(c.Bound[0], 0) }),
		filter("json_query(data, expr)", func(c *jinja.Call) (any, error) {
			data, err := jinja.Plain(c.Bound[0])
			if err != nil {
				return nil, err
			}
			out, err := jmespath.Search(c.Str(1), data)
			if err != nil {
				return nil, jinja.Errorf("JMESPathError", "%v", err)
			}
			return out, nil
		}),
		atKey("set_dict_key_value", func(d *value.Dict, k, v any) error { d.Set(k, v); return nil }),
		atKey("update_dict_key_value", updateKey),
		atKey("append_dict_key_value", func(d *value.Dict, k, v any) error {
			l, err := listAt(d, k, "append")
			if err == nil {
				l.Append(v)
			}
			return err
		}),
		atKey("extend_dict_key_value", func(d *value.Dict, k, v any) error {
			l, err := listAt(d, k, "extend")
			if err != nil {
				return err
			}
			if !jinja.IsIterable(v) {
				return fn.Invalidf("Cannot extend <class 'list'> with a <class '%s'>.", jinja.TypeName(v))
			}
			l.Append(jinja.Items(v)...)
			return nil
		}),
	}
}

func updateKey(d *value.Dict, k, v any) error {
	if d.At(k) == nil {
		d.Set(k, value.NewDict(0))
	}
	in, ok := d.At(k).(*value.Dict)
	if !ok {
		return fn.Invalidf("The last key contains a <class '%s'>, which cannot update.", jinja.TypeName(d.At(k)))
	}
	if more, ok := v.(*value.Dict); ok {
		in.Update(more)
		return nil
	}
	bad := fn.Invalidf("Cannot update <class 'dict'> with a <class '%s'>.", jinja.TypeName(v))
	if !jinja.IsIterable(v) {
		return bad
	}
	for _, p := range jinja.Items(v) {
		if !jinja.IsIterable(p) || len(jinja.Items(p)) != 2 || !hashable(jinja.Items(p)[0]) {
			return bad
		}
		in.Set(jinja.Items(p)[0], jinja.Items(p)[1])
	}
	return nil
}

func listAt(d *value.Dict, k any, verb string) (*value.List, error) {
	if d.At(k) == nil {
		d.Set(k, &value.List{})
	}
	l, ok := d.At(k).(*value.List)
	if !ok {
		return nil, fn.Invalidf("The last key contains a <class '%s'>, which cannot %s.", jinja.TypeName(d.At(k)), verb)
	}
	return l, nil
}

// atKey builds a filter that changes the value at a path of keys and creates
// missing dicts.
func atKey(name string, do func(d *value.Dict, k, v any) error) *jinja.Func {
	return filter(name+"(in_dict, keys, value, delimiter=':', ordered_dict=False)", func(c *jinja.Call) (any, error) {
		d, ok := c.Bound[0].(*value.Dict)
		if !ok {
			return nil, wrongType("%s needs a dict, not %s", name, jinja.TypeName(c.Bound[0]))
		}
		keys := strings.Split(c.Str(1), c.Str(3))
		in := d
		for _, k := range keys[:len(keys)-1] {
			next, ok := in.At(k).(*value.Dict)
			if !ok {
				next = value.NewDict(0)
				in.Set(k, next)
			}
			in = next
		}
		return d, do(in, keys[len(keys)-1], c.Bound[2])
	})
}

// mustBeDefined fails the rendering if v is undefined.
func mustBeDefined(v any) {
	if jinja.IsUndefined(v) {
		jinja.Truth(v)
	}
}

func traverse(c *jinja.Call) (any, error) {
	mustBeDefined(c.Bound[0])
	if s, ok := jinja.Text(c.Bound[1]); ok {
		if v, ok := value.Traverse(c.Bound[0], s, c.Str(3)); ok {
			return v, nil
		}
		return c.Bound[2], nil
	}
	keys := []any{c.Bound[1]}
	if jinja.IsIterable(c.Bound[1]) {
		keys = jinja.Items(c.Bound[1])
	}
	v := c.Bound[0]
	for _, k := range keys {
		var ok bool
		if s, is := jinja.Text(k); is {
			v, ok = value.Traverse(v, s, "\x00")
		} else {
			v, ok = value.Traverse(v, jinja.Str(k), "\x00")
		}
		if !ok {
			return c.Bound[2], nil
		}
	}
	return v, nil
}

func toEntries(c *jinja.Call) (any, error) {
	out := &value.List{}
	switch x := c.Bound[0].(type) {
	case *value.Dict:
		for k, v := range x.All() {
			out.Append(value.DictOf("key", k, "value", v))
		}
	case *value.List:
		for i, v := range x.Items {
			out.Append(value.DictOf("key", i, "value", v))
		}
	default:
		return nil, jinja.Errorf("SaltException", "Input data must be a dict or list")
	}
	return out, nil
}

func fromEntries(c *jinja.Call) (any, error) {
	out := value.NewDict(0)
	for _, e := range jinja.Items(c.Bound[0]) {
		d, ok := e.(*value.Dict)
		if !ok {
			return nil, wrongType("from_entries needs a list of dicts")
		}
		low := value.NewDict(d.Len())
		for k, v := range d.All() {
			low.Set(strings.ToLower(jinja.Str(k)), v)
		}
		for _, name := range []string{"key", "name"} {
			if k := low.At(name); jinja.Truth(k) && hashable(k) {
				out.Set(k, low.At("value"))
				break
			}
		}
	}
	return out, nil
}

// mysqlToDict parses a table printed by the mysql client.
func mysqlToDict(c *jinja.Call) (any, error) {
	out := value.NewDict(0)
	var headers []string
	for _, l := range jinja.Items(c.Bound[0]) {
		line, _ := jinja.Text(l)
		if line == "" || strings.HasPrefix(line, "+") {
			continue
		}
		cells := strings.Split(line, "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if headers == nil {
			headers = cells
			continue
		}
		row := value.NewDict(len(headers))
		for i := 1; i < len(headers)-1 && i < len(cells); i++ {
			row.Set(headers[i], toNum(cells[i]))
		}
		k, ok := row.Get(c.Str(1))
		if !ok {
			return nil, jinja.Errorf("KeyError", "%s", jinja.Repr(c.Str(1)))
		}
		out.Set(k, row)
	}
	return out, nil
}

// encodeAll converts every string in data into bytes.
func encodeAll(v any, depth int) (any, error) {
	if depth > 200 {
		return nil, jinja.Errorf("RecursionError", "a value nests too deep")
	}
	items := func(in []any) (any, error) {
		l := &value.List{Items: make([]any, len(in))}
		for i, it := range in {
			e, err := encodeAll(it, depth+1)
			if err != nil {
				return nil, err
			}
			l.Items[i] = e
		}
		return l, nil
	}
	switch x := v.(type) {
	case *value.List:
		return items(x.Items)
	case value.Tuple:
		return items(x)
	case *value.Dict:
		out := value.NewDict(x.Len())
		for k, w := range x.All() {
			ek, err := encodeAll(k, depth+1)
			if err != nil {
				return nil, err
			}
			if !hashable(ek) {
				return nil, wrongType("unhashable type: 'list'")
			}
			ev, err := encodeAll(w, depth+1)
			if err != nil {
				return nil, err
			}
			out.Set(ek, ev)
		}
		return out, nil
	}
	if s, ok := jinja.Text(v); ok {
		return []byte(s), nil
	}
	return v, nil
}
