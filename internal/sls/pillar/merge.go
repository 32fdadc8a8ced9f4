package pillar

import (
	"slices"

	"brine/internal/py/value"
)

// merge merges b over a by the option pillar_source_merging_strategy. It
// modifies neither; the result shares unchanged parts with them.
func (r *run) merge(a, b *value.Dict) *value.Dict {
	strategy, lists := r.o.Strategy, r.o.MergeLists
	if strategy == "smart" || strategy == "" {
		strategy = "recurse"
		if r.yamlex() {
			strategy = "aggregate"
		}
	}
	switch strategy {
	case "list":
		return mergeList(a, b)
	case "aggregate":
		out := a.Clone()
		out.Update(b)
		return out
	case "overwrite":
		// Values of b replace those of a, so no dicts remain to be merged.
		out := a.Clone()
		out.Update(b)
		return out
	case "recurse":
	case "none":
		lists = false
	default:
		r.log.Warn("Unknown merging strategy '" + strategy + "', fallback to recurse")
		lists = false
	}
	return Merge(a, b, lists)
}

// Merge merges b over a: dicts recursively, anything else is replaced; with
// lists, a list is appended to a list without the items that the first has. It
// modifies neither.
func Merge(a, b *value.Dict, lists bool) *value.Dict {
	if a.Len() == 0 {
		return orEmpty(b).Clone()
	}
	out := a.Clone()
	for k, v := range b.All() {
		old, ok := out.Get(k)
		if ok {
			v = mergeValue(old, v, lists)
		}
		out.Set(k, v)
	}
	return out
}

func mergeValue(old, v any, lists bool) any {
	switch x := v.(type) {
	case *value.Dict:
		if o, ok := old.(*value.Dict); ok {
			return Merge(o, x, lists)
		}
	case *value.List:
		if o, ok := old.(*value.List); ok && lists {
			return mergeLists(o, x)
		}
	}
	return v
}

func mergeLists(a, b *value.List) *value.List {
	out := &value.List{Items: slices.Clone(a.Items)}
	for _, it := range b.Items {
		if !slices.ContainsFunc(a.Items, func(x any) bool { return value.Equal(x, it) }) {
			out.Append(it)
		}
	}
	return out
}

// mergeList puts values of keys in both into lists of two. Keys only in b are
// dropped, as in Salt.
func mergeList(a, b *value.Dict) *value.Dict {
	out := value.NewDict(a.Len())
	for k, v := range a.All() {
		if w, ok := b.Get(k); ok {
			v = &value.List{Items: []any{v, w}}
		}
		out.Set(k, v)
	}
	return out
}
