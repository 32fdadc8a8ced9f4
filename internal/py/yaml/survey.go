package yaml

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// survey walks all nodes once before any value is made. It sets the full tag of
// each, and rejects a value that contains itself, too deep nesting, and aliases
// that expand to too many values.
type survey struct {
	data    []byte
	sizes   map[*yaml.Node]extent // of nodes with an anchor
	anchors map[string]*yaml.Node
	own     int // written out
	bare    int // number of keys that bareKey checked
}

// extent is the size of a node written without aliases.
type extent struct {
	size  int // in values, and one more per 64 bytes of text
	depth int
	open  bool // still being measured
}

func (s *survey) check(root *yaml.Node) error {
	e, err := s.measure(root, 0)
	if err != nil {
		return err
	}
	if e.size-s.own > MaxExpansion {
		return tooMuch(root)
	}
	return nil
}

func tooMuch(n *yaml.Node) error {
	return &Error{Stage: Composer, Mark: markOf(n), Reason: "the aliases of the document expand to too many values"}
}

func (s *survey) measure(n *yaml.Node, depth int) (extent, error) {
	if n.Kind == yaml.AliasNode {
		e, ok := s.sizes[n.Alias]
		switch {
		case !ok || e.open:
			return e, fail(n, "found unconstructable recursive node")
		case depth+e.depth > MaxDepth:
			return e, tooDeep(n)
		}
		return e, nil
	}
	if depth > MaxDepth {
		return extent{}, tooDeep(n)
	}
	if err := s.anchor(n); err != nil {
		return extent{}, err
	}
	setTag(n)
	if err := s.bareKey(n); err != nil {
		return extent{}, err
	}
	e := extent{size: 1 + len(n.Value)/64}
	s.own += e.size
	for _, c := range n.Content {
		ce, err := s.measure(c, depth+1)
		if err != nil {
			return e, err
		}
		e.size = min(e.size+ce.size, 1<<40)
		e.depth = max(e.depth, ce.depth+1)
	}
	if n.Anchor != "" {
		s.sizes[n] = e
	}
	return e, nil
}

func (s *survey) anchor(n *yaml.Node) error {
	if n.Anchor == "" {
		return nil
	}
	if first := s.anchors[n.Anchor]; first != nil {
		return &Error{
			Stage: Composer, Mark: markOf(n), Reason: "found duplicate anchor " + n.Anchor,
			Context: "whose first occurrence is an anchor", ContextMark: markOf(first),
		}
	}
	s.anchors[n.Anchor] = n
	s.sizes[n] = extent{open: true}
	return nil
}

// bareKey rejects a mapping with a ":" without a key before it, which the YAML
// library accepts as null. It checks only the first few empty keys: each check
// scans the text.
func (s *survey) bareKey(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode || k.Value != "" || k.Anchor != "" || k.Style != 0 {
			continue
		}
		const enough = 20
		if s.bare++; s.bare > enough {
			return nil
		}
		line := []rune(fullLine(s.data, k.Line))
		at := k.Column - 1
		if at < 0 || at >= len(line) || line[at] != ':' || strings.HasSuffix(strings.TrimRight(string(line[:at]), " \t"), "?") {
			continue
		}
		e := &Error{Stage: Parser, Mark: markOf(k), Reason: "did not find expected key", Context: "while parsing a block mapping", ContextMark: markOf(n)}
		if n.Style&yaml.FlowStyle != 0 {
			e.Reason, e.Context = "did not find expected node content", "while parsing a flow node"
		}
		return e
	}
	return nil
}

func tooDeep(n *yaml.Node) error {
	return &Error{Stage: Composer, Mark: markOf(n), Reason: "lists and mappings nest too deep"}
}

// setTag replaces the library's tag by ours.
func setTag(n *yaml.Node) {
	if n.Style&yaml.TaggedStyle != 0 {
		if strings.HasPrefix(n.Tag, "!!") {
			n.Tag = core + n.Tag[2:]
		}
		return
	}
	const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	switch {
	case n.Tag == "!" && n.Kind == yaml.ScalarNode: // a string everywhere except in PyYAML
		n.Tag = implicitTag(n.Value)
		if n.Value == "" && n.Style&quoted == 0 {
			n.Tag = tagStr
		}
	case n.Kind == yaml.SequenceNode:
		n.Tag = tagSeq
	case n.Kind == yaml.MappingNode:
		n.Tag = tagMap
	case n.Style&quoted != 0:
		n.Tag = tagStr
	default:
		n.Tag = implicitTag(n.Value)
	}
}
