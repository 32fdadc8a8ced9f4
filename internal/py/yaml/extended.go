package yaml

import (
	"errors"

	"go.yaml.in/yaml/v4"

	"brine/internal/py/value"
)

// The tags of YAMLEX.
const (
	tagAggregate = "!aggregate"
	tagReset     = "!reset"
)

// LoadExtended reads a document of Salt's YAMLEX: YAML in which a key may occur
// several times in a mapping. The last value counts. Mappings and lists marked
// with !aggregate are merged with earlier ones; a key marked with !reset
// discards earlier values. An empty document is nil.
func LoadExtended(data []byte, name string) (any, error) {
	doc, err := compose(data)
	if err != nil || doc == nil {
		return nil, named(err, data, name)
	}
	s := survey{data: data, sizes: map[*yaml.Node]extent{}, anchors: map[string]*yaml.Node{}}
	if err := s.check(doc); err != nil {
		return nil, named(err, data, name)
	}
	x := &extended{builder: builder{done: map[*yaml.Node]any{}, flat: map[*yaml.Node]bool{}}, marked: map[any]bool{}}
	v, err := x.object(doc)
	if err != nil {
		return nil, named(err, data, name)
	}
	return v, nil
}

// named adds the name of the document and the line to an error.
func named(err error, data []byte, name string) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	e.Name = name
	e.Text = sourceLine(data, e.Line)
	return e
}

// extended makes the values of YAMLEX. marked holds the maps and lists that are
// merged with others.
type extended struct {
	builder
	marked map[any]bool
	cost   int // number of values made or merged
}

// meaning returns a node with the tag that it would have implicitly.
func meaning(n *yaml.Node) *yaml.Node {
	c := *n
	switch n.Kind {
	case yaml.MappingNode:
		c.Tag = tagMap
	case yaml.SequenceNode:
		c.Tag = tagSeq
	default:
		c.Tag = implicitTag(n.Value)
	}
	return &c
}

// aggregate returns the value of a node that is merged with others.
func (x *extended) aggregate(n *yaml.Node) (any, error) {
	v, err := x.object(meaning(n))
	if err != nil {
		return nil, err
	}
	switch v.(type) {
	case *value.Dict, *value.List:
		x.marked[v] = true
		return v, nil
	case nil:
		v = &value.List{}
	default:
		v = &value.List{Items: []any{v}}
	}
	x.marked[v] = true
	return v, nil
}

func (x *extended) object(n *yaml.Node) (any, error) {
	n = target(n)
	if v, ok := x.done[n]; ok {
		return v, nil
	}
	v, err := x.fresh(n)
	if err == nil && n.Anchor != "" {
		x.done[n] = v
	}
	return v, err
}

func (x *extended) fresh(n *yaml.Node) (any, error) {
	if x.cost++; x.cost > 4*MaxExpansion {
		return nil, tooMuch(n)
	}
	switch {
	case n.Tag == tagAggregate:
		return x.aggregate(n)
	case n.Tag == tagReset:
		return x.object(meaning(n))
	case n.Kind == yaml.MappingNode && (n.Tag == tagMap || n.Tag == tagOmap):
		return x.mapping(n)
	case n.Kind == yaml.SequenceNode && n.Tag == tagSeq:
		l := &value.List{Items: make([]any, 0, len(n.Content))}
		for _, c := range n.Content {
			v, err := x.object(c)
			if err != nil {
				return nil, err
			}
			l.Append(v)
		}
		return l, nil
	case n.Kind == yaml.ScalarNode:
		return x.make(n)
	}
	return nil, fail(n, "could not determine a constructor for the tag %s", value.Repr(shorten(n.Tag)))
}

func (x *extended) mapping(n *yaml.Node) (any, error) {
	if err := x.flatten(n); err != nil {
		return nil, err
	}
	d := value.NewDict(len(n.Content) / 2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		kn, vn := target(n.Content[i]), n.Content[i+1]
		reset := kn.Tag == tagReset
		plain := kn
		if kn.Tag == tagAggregate || reset {
			plain = meaning(kn)
		}
		k, err := x.object(plain)
		if err != nil {
			return nil, err
		}
		if !value.Hashable(k) {
			return nil, failIn("while constructing a mapping", n, kn, "found unacceptable key")
		}
		var v any
		if kn.Tag == tagAggregate { // a value marked with !aggregate, whatever its key's tag
			v, err = x.aggregate(target(vn))
		} else {
			v, err = x.object(vn)
		}
		if err != nil {
			return nil, err
		}
		if before, ok := d.Get(k); ok && !reset {
			if v, err = x.merge(n, before, v, 0); err != nil {
				return nil, err
			}
		}
		d.Set(k, v)
	}
	return d, nil
}

// merge merges b into a.
func (x *extended) merge(n *yaml.Node, a, b any, depth int) (any, error) {
	if depth > MaxDepth {
		return nil, tooDeep(n)
	}
	if m, ok := a.(*value.Dict); ok {
		if more, ok := b.(*value.Dict); ok {
			from := more
			if x.marked[m] && x.marked[more] {
				from = m
			}
			out := from.Clone()
			x.marked[out] = x.marked[from]
			x.cost += out.Len()
			for k, v := range more.All() {
				if before, ok := m.Get(k); ok {
					var err error
					if v, err = x.merge(n, before, v, depth+1); err != nil {
						return nil, err
					}
				}
				out.Set(k, v)
			}
			return out, x.room(n)
		}
	}
	l, ok1 := a.(*value.List)
	more, ok2 := b.(*value.List)
	if !ok1 || !ok2 || !x.marked[l] || !x.marked[more] {
		return b, nil
	}
	out := &value.List{Items: append([]any(nil), l.Items...)}
	x.marked[out] = true
	for _, v := range more.Items {
		if x.cost += 1 + l.Len(); x.room(n) != nil {
			return nil, x.room(n)
		}
		if !contains(l.Items, v) {
			out.Append(v)
		}
	}
	return out, x.room(n)
}

func (x *extended) room(n *yaml.Node) error {
	if x.cost > 4*MaxExpansion {
		return tooMuch(n)
	}
	return nil
}

func contains(items []any, v any) bool {
	for _, it := range items {
		if value.Equal(it, v) {
			return true
		}
	}
	return false
}
