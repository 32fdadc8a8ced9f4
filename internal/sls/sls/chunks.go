package sls

import (
	"cmp"
	"fmt"
	"slices"

	"brine/internal/py/value"
)

// Chunks converts high data into the sorted list of states. extra is added to
// every chunk; it may be nil.
func Chunks(high, extra *value.Dict) ([]*value.Dict, []*Error) {
	var chunks []*value.Dict
	var errs []*Error
	for id, v := range high.All() {
		body, ok := v.(*value.Dict)
		if !ok || hidden(id) {
			continue
		}
		for mod, run := range body.All() {
			l, ok := run.(*value.List)
			if !ok || hidden(mod) {
				continue
			}
			more, err := ofState(id, mod, body, l, extra)
			if err != "" {
				p := placeOf(body)
				errs = append(errs, &Error{Text: err, SLS: p.sls, Saltenv: p.env, ID: value.Str(id)})
			}
			chunks = append(chunks, more...)
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	order(chunks)
	return chunks, nil
}

// places are the keys that tell where a chunk's state was declared.
var places = []any{"__sls__", "__env__", "__sls_included_from__"}

// ofState creates the chunks of one state: several if it has several names.
func ofState(id, mod any, body *value.Dict, run *value.List, extra *value.Dict) (chunks []*value.Dict, fault string) {
	// Allocate room for the arguments, the fields set here and the order: thousands
	// of chunks live as long as the run, and a growing one doubles its size.
	chunk := value.NewDict(len(run.Items) + extra.Len() + 7)
	chunk.Set("state", mod)
	chunk.Set("name", id)
	chunk.Update(extra)
	for _, k := range places {
		if v, ok := body.Get(k); ok {
			chunk.Set(k, v)
		}
	}
	chunk.Set("__id__", id)
	var names []any
	var fun any
	for _, arg := range run.Items {
		switch x := arg.(type) {
		case string:
			fun = arg // the last one counts
		case *value.Dict:
			for k, v := range x.All() {
				switch {
				case k == "names":
					names = addNames(names, v)
				case k == "state": // reserved
				case k == "name" && value.TypeName(v) != "str":
					chunk.Set(k, id)
				default:
					chunk.Set(k, v)
				}
			}
		}
	}
	if fun == nil {
		return nil, ""
	}
	if len(names) == 0 {
		for k, v := range chunk.All() {
			chunk.Set(k, value.DeepCopy(v))
		}
		chunk.Set("fun", fun)
		return []*value.Dict{chunk}, ""
	}
	for i, entry := range names {
		live := value.NewDict(chunk.Len() + 4)
		for k, v := range chunk.All() {
			live.Set(k, value.DeepCopy(v))
		}
		if fault := setName(live, entry); fault != "" {
			return nil, fmt.Sprintf("the names of '%s' in SLS '%s': %s", value.Str(id), body.Str("__sls__"), fault)
		}
		live.Set("name_order", int64(i+1))
		live.Set("fun", fun)
		chunks = append(chunks, live)
	}
	return chunks, ""
}

func addNames(names []any, v any) []any {
	var items []any
	switch x := v.(type) {
	case *value.List:
		items = x.Items
	case value.Tuple:
		items = x
	case *value.Dict:
		items = x.Keys()
	default:
		return names // Verify reports the error
	}
	for _, it := range items {
		if !slices.ContainsFunc(names, func(n any) bool { return value.Equal(n, it) }) {
			names = append(names, it)
		}
	}
	return names
}

// setName sets one of several names of a chunk, and the arguments of this name.
func setName(chunk *value.Dict, entry any) (fault string) {
	d, ok := entry.(*value.Dict)
	if !ok {
		chunk.Set("name", entry)
		return ""
	}
	name, v := firstKey(d)
	chunk.Set("name", name)
	l, ok := v.(*value.List)
	if !ok {
		return fmt.Sprintf("the arguments of '%s' need to be formed as a list", value.Str(name))
	}
	for _, arg := range l.Items {
		own, ok := arg.(*value.Dict)
		if !ok {
			return fmt.Sprintf("%s is not an argument of '%s': expected a mapping, got %s", value.Repr(arg), value.Str(name), value.TypeName(arg))
		}
		chunk.Update(own)
	}
	return ""
}

// order converts the words and gaps of "order" into numbers, and sorts.
func order(chunks []*value.Dict) {
	limit := orderCap(chunks)
	type item struct {
		order float64
		key   string
		chunk *value.Dict
	}
	items := make([]item, len(chunks))
	for i, c := range chunks {
		setOrder(c, limit)
		items[i] = item{asFloat(c.At("order")), value.Str(c.At("state")) + value.Str(c.At("name")) + value.Str(c.At("fun")), c}
	}
	slices.SortStableFunc(items, func(a, b item) int {
		if c := cmp.Compare(a.order, b.order); c != 0 {
			return c
		}
		return cmp.Compare(a.key, b.key)
	})
	for i := range items {
		chunks[i] = items[i].chunk
	}
}

// orderCap is the position of states without an order: after the highest one.
func orderCap(chunks []*value.Dict) int64 {
	limit := int64(1)
	for _, c := range chunks {
		var n int64
		switch x := c.At("order").(type) {
		case int64:
			n = x
		case bool:
			n = c.Int("order")
		default:
			continue
		}
		if n > limit-1 && n > 0 {
			limit = n + 100
		}
	}
	return limit
}

const behindAll = 1_000_000

func setOrder(c *value.Dict, limit int64) {
	v, ok := c.Get("order")
	if !ok {
		c.Set("order", limit)
		return
	}
	switch v.(type) {
	case int64, float64, bool:
	default:
		switch v {
		case "last":
			v = limit + behindAll
		case "first":
			v = int64(0)
		default:
			v = limit
		}
	}
	if n, ok := c.Get("name_order"); ok {
		c.Delete("name_order")
		v = asFloat(v) + asFloat(n)/10000
	}
	switch x := v.(type) {
	case int64:
		if x < 0 {
			v = limit + behindAll + x
		}
	case float64:
		if x < 0 {
			v = float64(limit+behindAll) + x
		}
	}
	c.Set("order", v)
}

func asFloat(v any) float64 {
	switch x := v.(type) {
	case int64:
		return float64(x)
	case float64:
		return x
	case bool:
		if x {
			return 1
		}
	}
	return 0
}
