package value

import (
	"fmt"
	"strings"
)

// Update merges src into dst, map by map. With lists, items that a list of dst
// lacks are appended to it; otherwise src's list replaces it. dst is changed
// and may share values with src afterwards.
func Update(dst, src *Dict, lists bool) {
	for k, v := range src.All() {
		switch into := dst.At(k).(type) {
		case *Dict:
			if deep, ok := v.(*Dict); ok {
				Update(into, deep, lists)
				continue
			}
		case *List:
			if more, ok := v.(*List); ok && lists {
				v = union(into, more)
			}
		}
		dst.Set(k, v)
	}
}

// union returns the items of the first list and those items of the second that
// the first lacks. Duplicates within one list stay, as in Salt.
func union(a, b *List) *List {
	out := DeepCopy(a).(*List)
	for _, it := range b.items() {
		if !a.contains(it) {
			out.Append(it)
		}
	}
	return out
}

func (l *List) contains(v any) bool {
	for _, it := range l.items() {
		if Equal(it, v) {
			return true
		}
	}
	return false
}

// Strategies of Merge.
const (
	MergeSmart     = "smart"     // aggregate for the renderer yamlex, else recurse
	MergeRecurse   = "recurse"   // map by map
	MergeAggregate = "aggregate" // as yamlex does: b over a at the top level; the union of two lists
	MergeOverwrite = "overwrite" // b's values in place of a's
	MergeList      = "list"      // a's keys, each with a list of both values if b has the key
	MergeNone      = "none"      // map by map; lists are replaced
)

// Merge merges two values, usually maps, by one of Salt's strategies. An
// unknown strategy means none. The result shares nothing with a, except that
// overwrite changes a as Salt's does. It fails if the strategy needs maps and a
// value is not a map.
func Merge(a, b any, strategy, renderer string, lists bool) (any, error) {
	if strategy == MergeSmart {
		strategy = MergeRecurse
		last := renderer[strings.LastIndexByte(renderer, '|')+1:]
		if last == "yamlex" || strings.HasPrefix(renderer, "yamlex_") {
			strategy = MergeAggregate
		}
	}
	x, ok1 := a.(*Dict)
	y, ok2 := b.(*Dict)
	if strategy == MergeAggregate && (!ok1 || !ok2) {
		return aggregate(a, b), nil
	}
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("cannot merge a value of type %s into one of type %s: both must be maps", TypeName(b), TypeName(a))
	}
	switch strategy {
	case MergeList:
		out := NewDict(x.Len())
		for k, v := range x.All() {
			if w, ok := y.Get(k); ok {
				v = ListOf(v, w)
			}
			out.Set(k, v)
		}
		return out, nil
	case MergeAggregate:
		out := x.Clone()
		out.Update(y)
		return out, nil
	case MergeOverwrite:
		for k, v := range y.All() {
			if x.Has(k) {
				x.Set(k, v)
			}
		}
	}
	out := DeepCopy(x).(*Dict)
	Update(out, y, lists && (strategy == MergeRecurse || strategy == MergeOverwrite))
	return out, nil
}

// aggregate merges values if at least one is not a map. Each counts as a list;
// a map and a list cannot be merged.
func aggregate(a, b any) any {
	list := func(v any) *List {
		switch x := v.(type) {
		case *List:
			return x
		case Tuple:
			return &List{Items: x}
		}
		return ListOf(v)
	}
	_, d1 := a.(*Dict)
	_, d2 := b.(*Dict)
	if d1 || d2 {
		if d2 {
			return b
		}
		return list(b)
	}
	out := &List{Items: append([]any{}, list(a).items()...)}
	for _, it := range list(b).items() {
		if !list(a).contains(it) {
			out.Append(it)
		}
	}
	return out
}
