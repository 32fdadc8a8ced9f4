package yaml

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"

	"brine/internal/py/value"
)

// builder makes values of nodes. Containers are made empty and filled later
// from a queue, as PyYAML does, so that of several errors the same one is
// reported.
type builder struct {
	done  map[*yaml.Node]any  // values of nodes with an anchor, and of their children
	flat  map[*yaml.Node]bool // mappings whose merges are done
	queue []pending
	merge int // entries that merges have added
}

type pending struct {
	node *yaml.Node
	fill func(*yaml.Node) error
}

func construct(root *yaml.Node, data []byte) (any, error) {
	s := survey{data: data, sizes: map[*yaml.Node]extent{}, anchors: map[string]*yaml.Node{}}
	if err := s.check(root); err != nil {
		return nil, err
	}
	b := &builder{done: map[*yaml.Node]any{}, flat: map[*yaml.Node]bool{}}
	v, err := b.object(root)
	if err != nil {
		return nil, err
	}
	for len(b.queue) > 0 {
		next := b.queue
		b.queue = nil
		for _, p := range next {
			if err := p.fill(p.node); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func fail(n *yaml.Node, format string, args ...any) error {
	return &Error{Stage: Constructor, Mark: markOf(n), Reason: fmt.Sprintf(format, args...)}
}

func failIn(context string, in, n *yaml.Node, format string, args ...any) error {
	return &Error{
		Stage: Constructor, Mark: markOf(n), Reason: fmt.Sprintf(format, args...),
		Context: context, ContextMark: markOf(in),
	}
}

func (b *builder) object(n *yaml.Node) (any, error) {
	n = target(n)
	return b.shared(n, n.Anchor != "")
}

// shared is object for a node whose value may be needed again.
func (b *builder) shared(n *yaml.Node, keep bool) (any, error) {
	if len(b.done) > 0 {
		if v, ok := b.done[n]; ok {
			return v, nil
		}
	}
	v, err := b.make(n)
	if err == nil && keep {
		b.done[n] = v
	}
	return v, err
}

func (b *builder) make(n *yaml.Node) (any, error) {
	tag := n.Tag
	if tag == tagOmap && n.Kind == yaml.MappingNode {
		tag = tagMap // as Salt reads it in SLS files; all mappings are ordered
	}
	switch tag {
	case tagMap:
		d := value.NewDict(len(n.Content) / 2)
		b.later(n, func(n *yaml.Node) error { return b.mapping(d, n) })
		return d, nil
	case tagSeq:
		l := &value.List{}
		b.later(n, func(n *yaml.Node) error { return b.sequence(l, n) })
		return l, nil
	case tagSet:
		l := &value.List{}
		b.later(n, func(n *yaml.Node) error {
			d := value.NewDict(len(n.Content) / 2)
			err := b.mapping(d, n)
			l.Items = d.Keys()
			return err
		})
		return l, nil
	case tagOmap, tagPairs:
		l := &value.List{}
		b.later(n, func(n *yaml.Node) error { return b.pairs(l, n) })
		return l, nil
	case tagNull, tagBool, tagInt, tagFloat, tagStr, tagTimestamp, tagBinary, tagUnicode:
		if n.Tag == tagInt && n.Kind != yaml.ScalarNode {
			return nil, fail(n, "expected a scalar node, but found %s", kindName(n))
		}
		s, err := scalar(n)
		if err != nil {
			return nil, err
		}
		v, err := convert(n.Tag, s)
		if err != nil {
			return nil, fail(n, "%v", err)
		}
		return v, nil
	}
	return nil, fail(n, "could not determine a constructor for the tag %s", value.Repr(shorten(n.Tag)))
}

func (b *builder) later(n *yaml.Node, fill func(*yaml.Node) error) {
	b.queue = append(b.queue, pending{n, fill})
}

// scalar returns the text of a node. A mapping may represent the value of its
// key "=", a rule of YAML 1.1.
func scalar(n *yaml.Node) (string, error) {
	for range MaxDepth {
		switch n.Kind {
		case yaml.ScalarNode:
			return n.Value, nil
		case yaml.MappingNode:
			next := n
			for i := 0; i+1 < len(n.Content); i += 2 {
				if target(n.Content[i]).Tag == tagValue {
					next = target(n.Content[i+1])
					break
				}
			}
			if next == n {
				return "", fail(n, "expected a scalar node, but found mapping")
			}
			n = next
		default:
			return "", fail(n, "expected a scalar node, but found %s", kindName(n))
		}
	}
	return "", fail(n, "expected a scalar node, but found mapping")
}

func convert(tag, s string) (any, error) {
	switch tag {
	case tagNull:
		return nil, nil
	case tagBool:
		switch strings.ToLower(s) {
		case "yes", "true", "on":
			return true, nil
		case "no", "false", "off":
			return false, nil
		}
		return nil, fmt.Errorf("%q is neither true nor false", shorten(s))
	case tagInt:
		return parseInt(s)
	case tagFloat:
		return parseFloat(s)
	case tagBinary:
		return decodeBase64(s)
	}
	return s, nil
}

func (b *builder) sequence(l *value.List, n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return fail(n, "expected a sequence node, but found %s", kindName(n))
	}
	l.Items = make([]any, 0, len(n.Content))
	for _, c := range n.Content {
		v, err := b.object(c)
		if err != nil {
			return err
		}
		l.Items = append(l.Items, v)
	}
	return nil
}

func (b *builder) mapping(d *value.Dict, n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fail(n, "expected a mapping node, but found %s", kindName(n))
	}
	if err := b.flatten(n); err != nil {
		return err
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		kn := target(n.Content[i])
		k, err := b.object(kn)
		if err != nil {
			return err
		}
		if !value.Hashable(k) {
			return failIn("while constructing a mapping", n, kn, "found unacceptable key %s%s", nodeRepr(kn), braceHint(kn))
		}
		// A merge of n adds the same values to another mapping.
		vn := target(n.Content[i+1])
		v, err := b.shared(vn, vn.Anchor != "" || n.Anchor != "" && vn.Kind != yaml.ScalarNode)
		if err != nil {
			return err
		}
		if d.Has(k) {
			return failIn("while constructing a mapping", n, kn, "found conflicting ID '%s'", value.Str(k))
		}
		d.Set(k, v)
	}
	return nil
}

// braceHint explains the most frequent cause of a mapping as key.
func braceHint(kn *yaml.Node) string {
	if kn.Kind == yaml.MappingNode && kn.Style&yaml.FlowStyle != 0 {
		return " (a value that begins with {{ must be quoted)"
	}
	return ""
}

// flatten replaces << by the entries of the merged mappings. Entries whose key
// is in the mapping itself are omitted. A key that two merged mappings share is
// a conflict, as in Salt.
func (b *builder) flatten(n *yaml.Node) error {
	if b.flat[n] {
		return nil
	}
	b.flat[n] = true
	var merged, own []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		kn, vn := target(n.Content[i]), target(n.Content[i+1])
		if kn.Tag == tagValue {
			kn.Tag = tagStr
		}
		if kn.Tag != tagMerge {
			own = append(own, n.Content[i], n.Content[i+1])
			continue
		}
		more, err := b.mergeable(n, vn)
		if err != nil {
			return err
		}
		merged = append(merged, more...)
	}
	if len(own) == len(n.Content) {
		return nil
	}
	names := make(map[string]bool, len(own)/2)
	for i := 0; i < len(own); i += 2 {
		if kn := target(own[i]); kn.Kind == yaml.ScalarNode {
			names[kn.Value] = true
		}
	}
	content := make([]*yaml.Node, 0, len(merged)+len(own))
	for i := 0; i < len(merged); i += 2 {
		if kn := target(merged[i]); kn.Kind != yaml.ScalarNode || !names[kn.Value] {
			content = append(content, merged[i], merged[i+1])
		}
	}
	n.Content = append(content, own...)
	return nil
}

// mergeable returns the entries that a << with value vn adds to n.
func (b *builder) mergeable(n, vn *yaml.Node) ([]*yaml.Node, error) {
	const context = "while constructing a mapping"
	var out []*yaml.Node
	switch vn.Kind {
	case yaml.MappingNode:
		if err := b.flatten(vn); err != nil {
			return nil, err
		}
		out = vn.Content
	case yaml.SequenceNode:
		for i := len(vn.Content) - 1; i >= 0; i-- {
			if sub := target(vn.Content[i]); sub.Kind != yaml.MappingNode {
				return nil, failIn(context, n, sub, "expected a mapping for merging, but found %s", kindName(sub))
			}
		}
		for i := len(vn.Content) - 1; i >= 0; i-- {
			sub := target(vn.Content[i])
			if err := b.flatten(sub); err != nil {
				return nil, err
			}
			out = append(out, sub.Content...)
			if len(out) > 2*MaxExpansion {
				break
			}
		}
	default:
		return nil, failIn(context, n, vn, "expected a mapping or list of mappings for merging, but found %s", kindName(vn))
	}
	if b.merge += len(out) / 2; b.merge > MaxExpansion {
		return nil, tooMuch(n)
	}
	return out, nil
}

// pairs fills the list of an !!omap or !!pairs with tuples.
func (b *builder) pairs(l *value.List, n *yaml.Node) error {
	context := "while constructing pairs"
	if n.Tag == tagOmap {
		context = "while constructing an ordered map"
	}
	if n.Kind != yaml.SequenceNode {
		return failIn(context, n, n, "expected a sequence, but found %s", kindName(n))
	}
	for _, c := range n.Content {
		c = target(c)
		if c.Kind != yaml.MappingNode {
			return failIn(context, n, c, "expected a mapping of length 1, but found %s", kindName(c))
		}
		if len(c.Content) != 2 {
			return failIn(context, n, c, "expected a single mapping item, but found %d items", len(c.Content)/2)
		}
		k, err := b.object(c.Content[0])
		if err != nil {
			return err
		}
		v, err := b.object(c.Content[1])
		if err != nil {
			return err
		}
		l.Append(value.Tuple{k, v})
	}
	return nil
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "mapping"
	case yaml.SequenceNode:
		return "sequence"
	}
	return "scalar"
}

// nodeRepr formats an unacceptable key as Salt's messages do.
func nodeRepr(n *yaml.Node) string {
	var b strings.Builder
	writeNodes(&b, n, 0)
	const limit = 300
	if s := b.String(); len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return b.String()
}

func writeNodes(b *strings.Builder, n *yaml.Node, depth int) {
	if n.Kind == yaml.ScalarNode {
		b.WriteString(value.Repr(n.Value))
		return
	}
	one := func(c *yaml.Node) {
		c = target(c)
		k := kindName(c)
		fmt.Fprintf(b, "%s%sNode(tag=%s, value=", strings.ToUpper(k[:1]), k[1:], value.Repr(c.Tag))
		writeNodes(b, c, depth+1)
		b.WriteByte(')')
	}
	b.WriteByte('[')
	for i := 0; i < len(n.Content) && b.Len() < 1000 && depth < 10; i++ {
		if i > 0 {
			b.WriteString(", ")
		}
		if n.Kind == yaml.SequenceNode {
			one(n.Content[i])
			continue
		}
		b.WriteByte('(')
		one(n.Content[i])
		b.WriteString(", ")
		i++
		one(n.Content[i])
		b.WriteByte(')')
	}
	b.WriteByte(']')
}

// decodeBase64 follows Python's lenient decoder: characters outside of the
// alphabet are skipped, and the padding ends the data.
func decodeBase64(s string) ([]byte, error) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	var out []byte
	var bits uint32
	quad, pads := 0, 0
	for _, c := range []byte(s) {
		if c >= 0x80 {
			return nil, errors.New("failed to convert base64 data into ascii")
		}
		if c == '=' {
			if pads++; quad >= 2 && quad+pads >= 4 {
				return out, nil
			}
			continue
		}
		i := strings.IndexByte(alphabet, c)
		if i < 0 {
			continue
		}
		pads = 0
		bits = bits<<6 | uint32(i)
		if quad++; quad > 1 {
			out = append(out, byte(bits>>(8-2*quad)))
		}
		quad %= 4
	}
	if quad != 0 {
		return nil, errors.New("failed to decode base64 data: incorrect padding")
	}
	if out == nil {
		out = []byte{}
	}
	return out, nil
}
