package core

import (
	"strconv"
	"strings"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// traverse follows a path such as a:b:0 into nested maps and lists. In a list,
// a step is an index, or a key of one of the maps in the list. Keys that are
// not strings are matched by their YAML form. A path that is not a string is
// the only key.
func traverse(v, path any, delimiter string) (any, bool) {
	s, ok := path.(string)
	if !ok {
		if l, is := path.(*value.List); is {
			return walk(v, l.Items)
		}
		return walk(v, []any{path})
	}
	if delimiter == "" {
		return walk(v, []any{s})
	}
	var steps []any
	for step := range strings.SplitSeq(s, delimiter) {
		steps = append(steps, step)
	}
	return walk(v, steps)
}

func walk(v any, steps []any) (any, bool) {
	for _, step := range steps {
		ok := false
		switch x := v.(type) {
		case *value.Dict:
			v, ok = lookup(x, step)
		case *value.List:
			v, ok = item(x, step)
		}
		if !ok {
			return nil, false
		}
	}
	return v, true
}

func lookup(d *value.Dict, step any) (any, bool) {
	if !value.Hashable(step) {
		return nil, false
	}
	if v, ok := d.Get(step); ok {
		return v, true
	}
	if s, ok := step.(string); ok {
		if key := yaml.LoadArg(s); key != step && value.Hashable(key) {
			return d.Get(key)
		}
	}
	return nil, false
}

func item(l *value.List, step any) (any, bool) {
	index, err := strconv.Atoi(strings.TrimSpace(value.Str(step)))
	key := step
	if err == nil {
		key = int64(index)
	}
	for _, it := range l.Items {
		if d, ok := it.(*value.Dict); ok && value.Hashable(key) {
			if v, ok := d.Get(key); ok {
				return v, true
			}
		}
	}
	if err != nil {
		return nil, false
	}
	if index < 0 {
		index += len(l.Items)
	}
	if index < 0 || index >= len(l.Items) {
		return nil, false
	}
	return l.Items[index], true
}

// update recursively sets the entries of src in dst.
func update(dst, src *value.Dict) { merge(dst, src, false) }

// merge does the same as update; if lists is set, it also joins lists instead
// of replacing them.
func merge(dst, src *value.Dict, lists bool) {
	for k, v := range src.All() {
		switch into := dst.At(k).(type) {
		case *value.Dict:
			if deep, ok := v.(*value.Dict); ok && into != nil {
				merge(into, deep, lists)
				continue
			}
		case *value.List:
			if more, ok := v.(*value.List); ok && lists {
				v = joined(into, more)
			}
		}
		dst.Set(k, v)
	}
}

// joined returns the items of a, followed by the items of b that a lacks.
func joined(a, b *value.List) *value.List {
	out := value.DeepCopy(a).(*value.List)
	if b != nil {
		for _, it := range b.Items {
			if !contains(a, it) {
				out.Append(it)
			}
		}
	}
	return out
}
