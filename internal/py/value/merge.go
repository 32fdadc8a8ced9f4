package value

import (
	"fmt"
	"strings"
)

// Update lays src over dst, map by map. With lists, items of lists that dst
// does not have are put after its own; otherwise src's list takes the place.
// dst is changed and its values may be shared with src's afterwards.
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

// union returns a list of the items of both, those of the second only where
// the first does not have them; what is there twice in one stays so, as with
// Salt.
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

// Strategies by which Merge puts two maps together.
const (
	MergeSmart     = "smart"     // aggregate for the renderer yamlex, else recurse
	MergeRecurse   = "recurse"   // map by map
	MergeAggregate = "aggregate" // as yamlex does: b over a at the top; two lists are united
	MergeOverwrite = "overwrite" // b's values in place of a's
	MergeList      = "list"      // a's keys, each with a list of both values where b has it
	MergeNone      = "none"      // map by map; lists are replaced
)

// Merge puts two values, maps mostly, together by Salt's strategies. An
// unknown strategy is none. What it returns shares nothing with a, except
// that overwrite changes a as Salt's does. It fails for values that are no maps
// where the strategy needs maps.
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

// aggregate unites values of which one is no map: each counts as a list, but
// for maps, which do not go together with one.
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
