package pillar

import (
	"slices"

	"brine/internal/py/value"
)

// merge lays b over a by the option pillar_source_merging_strategy. Neither is
// changed; the result shares what has not changed with them.
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
		// What b has replaces what a has; no dict is left to be merged.
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

// Merge lays b over a: a dict over a dict key by key, anything else in place
// of what was there; with lists, a list after a list without what the first
// has. Neither is changed.
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

// mergeList puts values of keys that both have into lists of two. Keys that
// only b has are dropped, as in Salt.
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
