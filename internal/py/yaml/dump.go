package yaml

import (
	"encoding/base64"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"brine/internal/py/value"
)

// Option changes how Dump writes.
type Option func(*emitter)

// KeepOrder writes mappings in their own order instead of sorted by key, as
// Python does for an OrderedDict.
func KeepOrder() Option { return func(e *emitter) { e.keepOrder = true } }

// Indent sets the number of blanks per level, from 2 to 9; others mean 2.
func Indent(n int) Option {
	return func(e *emitter) {
		if n >= 2 && n <= 9 {
			e.bestIndent = n
		}
	}
}

// Width sets the column after which text is folded. Python's default is 80;
// less than 0 means never.
func Width(n int) Option {
	return func(e *emitter) {
		switch {
		case n < 0:
			e.bestWidth = math.MaxInt
		case n > 2*e.bestIndent:
			e.bestWidth = n
		}
	}
}

// Flow writes every list and mapping in brackets and braces
// (default_flow_style=True).
func Flow() Option { return func(e *emitter) { e.flow = allFlow } }

// FlowLeaves writes those lists and mappings in brackets and braces that hold
// only scalars (default_flow_style=None).
func FlowLeaves() Option { return func(e *emitter) { e.flow = leafFlow } }

// ASCII escapes characters outside of ASCII (allow_unicode=False).
func ASCII() Option { return func(e *emitter) { e.ascii = true } }

// ExplicitStart begins with "---".
func ExplicitStart() Option { return func(e *emitter) { e.explicitStart = true } }

// ExplicitEnd ends with "...".
func ExplicitEnd() Option { return func(e *emitter) { e.explicitEnd = true } }

// Directive begins with the version of YAML, 1.1.
func Directive() Option {
	return func(e *emitter) { e.directive, e.explicitStart = true, true }
}

// LineBreak sets the line end: "\r" or "\r\n" instead of a newline.
func LineBreak(s string) Option { return func(e *emitter) { e.newline = s } }

// Style sets how scalars are written if possible: in quotes (' or ") or as
// blocks (| or >). Scalars that are not strings get a tag.
func Style(c byte) Option { return func(e *emitter) { e.style = c } }

// Python writes as PyYAML's own emitter does where it differs from libyaml.
// Salt uses that emitter for YAMLEX.
func Python() Option { return func(e *emitter) { e.python = true } }

// Canonical writes all tags, all scalars in double quotes, and lists and
// mappings in brackets and braces, an item to a line.
func Canonical() Option {
	return func(e *emitter) { e.canonical, e.explicitStart = true, true }
}

// Dump writes v as Salt's YAML outputter does, byte for byte: block style,
// keys sorted (unless they cannot be compared), lists not indented within
// mappings, lines folded at 80 columns, text unescaped where it is printable.
// A list or dict that occurs more than once gets an anchor. The result ends
// with a line end.
func Dump(v any, opts ...Option) string {
	e := &emitter{bestIndent: 2, bestWidth: 80, indent: -1, whitespace: true, indention: true, newline: "\n"}
	for _, o := range opts {
		o(e)
	}
	switch v.(type) {
	case Tagged, Timestamp:
	default:
		v = value.From(v)
	}
	e.countShared(v)
	e.startDocument()
	e.node(v, context{root: true})
	e.endDocument()
	return e.b.String()
}

type flowStyle int

const (
	noFlow flowStyle = iota
	leafFlow
	allFlow
)

// Tagged is a list, a tuple or a dict with a tag that it is written with, as PyYAML writes objects of
// Python that YAML does not have.
type Tagged struct {
	Tag   string // such as !!set
	Value any
}

// Timestamp is a date and time as Python writes it, with its zone.
type Timestamp string

// scalarNode is PyYAML's representation of a scalar.
type scalarNode struct {
	text    string
	tag     string // tag to write; usually empty
	literal bool   // write in style |
	quote   bool   // a plain scalar would be read as another type
	kind    string // type of the scalar in YAML
}

var timestampText = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:[0-9]{4}-[0-9]{2}-[0-9]{2}` +
		`|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?)\n?$`)
})

// represent returns the scalar for v; ok is false for lists and mappings.
func represent(v any) (s scalarNode, ok bool) {
	switch x := v.(type) {
	case nil:
		return scalarNode{text: "null", kind: "null"}, true
	case bool:
		return scalarNode{text: strconv.FormatBool(x), kind: "bool"}, true
	case int64:
		return scalarNode{text: strconv.FormatInt(x, 10), kind: "int"}, true
	case *big.Int:
		return scalarNode{text: x.String(), kind: "int"}, true
	case float64:
		return scalarNode{text: floatRepr(x), kind: "float"}, true
	case string:
		return scalarNode{text: x, quote: needsQuote(x), kind: "str"}, true
	case []byte:
		return scalarNode{text: encodeLines(x), tag: "!!binary", literal: true, kind: "binary"}, true
	case time.Time:
		return scalarNode{text: value.Str(x), kind: "timestamp"}, true
	case Timestamp:
		return scalarNode{text: string(x), kind: "timestamp"}, true
	case *value.List, value.Tuple, *value.Dict, Tagged:
		return scalarNode{}, false
	}
	return scalarNode{text: "NULL", kind: "str"}, true // as Salt writes Python objects
}

// needsQuote reports whether a plain s would be read back as another type than
// a string.
func needsQuote(s string) bool {
	plain := strings.TrimSuffix(s, "\n") // Python's $ matches before a last line end
	if implicitTag(plain) != tagStr {
		return true
	}
	return s != "" && s[0] >= '0' && s[0] <= '9' && timestampText().MatchString(s)
}

func floatRepr(f float64) string {
	switch {
	case math.IsNaN(f):
		return ".nan"
	case math.IsInf(f, 1):
		return ".inf"
	case math.IsInf(f, -1):
		return "-.inf"
	}
	s := value.FormatFloat(f)
	if !strings.Contains(s, ".") {
		s = strings.Replace(s, "e", ".0e", 1)
	}
	return s
}

// encodeLines is base64 in lines of 76 characters.
func encodeLines(p []byte) string {
	var b strings.Builder
	for len(p) > 0 {
		n := min(57, len(p))
		b.WriteString(base64.StdEncoding.EncodeToString(p[:n]))
		b.WriteByte('\n')
		p = p[n:]
	}
	return b.String()
}

// countShared finds the containers that need an anchor. Anchors are numbered in
// the order of the second occurrences.
func (e *emitter) countShared(v any) {
	switch x := v.(type) {
	case *value.List:
		if e.seen(x) {
			return
		}
		for _, it := range x.Items {
			e.countShared(it)
		}
	case value.Tuple:
		for _, it := range x {
			e.countShared(it)
		}
	case Tagged:
		e.countShared(x.Value)
	case *value.Dict:
		if e.seen(x) {
			return
		}
		for _, i := range e.order(x) {
			k, w := x.Entry(i)
			e.countShared(k)
			e.countShared(w)
		}
	}
}

func (e *emitter) seen(p any) bool {
	if e.anchors == nil {
		e.anchors = map[any]string{}
	}
	name, again := e.anchors[p]
	switch {
	case !again:
		e.anchors[p] = ""
	case name == "":
		e.shared++
		e.anchors[p] = fmt.Sprintf("id%03d", e.shared)
	}
	return again
}

// order returns the indexes of the entries of d in writing order.
func (e *emitter) order(d *value.Dict) []int {
	idx := make([]int, d.Len())
	for i := range idx {
		idx[i] = i
	}
	if e.keepOrder {
		return idx
	}
	sorted, comparable := append([]int(nil), idx...), true
	sort.SliceStable(sorted, func(a, b int) bool {
		x, _ := d.Entry(sorted[a])
		y, _ := d.Entry(sorted[b])
		c, ok := value.Compare(x, y)
		comparable = comparable && ok
		return c < 0
	})
	if !comparable {
		return idx
	}
	return sorted
}

// context is the position of a node.
type context struct {
	root, mapping, simpleKey bool
}

func (e *emitter) node(v any, c context) {
	e.simpleKey = c.simpleKey
	if s, ok := represent(v); ok {
		e.scalar(s)
		return
	}
	tagged, hasTag := v.(Tagged)
	if hasTag {
		v = tagged.Value
	}
	if e.anchor(v) {
		return
	}
	if hasTag {
		e.indicator(tagged.Tag, true, false, false)
	}
	switch x := v.(type) {
	case *value.List:
		e.sequence(x.Items, c)
	case value.Tuple:
		e.sequence(x, c)
	case *value.Dict:
		e.mapping(x, c)
	}
}

// anchor writes the anchor of a container that occurs more than once. It
// reports whether it wrote an alias because this is not the first occurrence.
func (e *emitter) anchor(v any) bool {
	if _, isTuple := v.(value.Tuple); isTuple {
		return false
	}
	name := e.anchors[v]
	if name == "" {
		return false
	}
	if e.written == nil {
		e.written = map[any]bool{}
	}
	if e.written[v] {
		e.indicator("*", true, false, false)
		e.text(name)
		return true
	}
	e.written[v] = true
	e.indicator("&", true, false, false)
	e.text(name)
	return false
}

// text writes s unchanged, within a token.
func (e *emitter) text(s string) {
	for _, r := range s {
		e.put(r)
	}
	e.whitespace, e.indention = false, false
}

func (e *emitter) leaf(v any) bool {
	s, ok := represent(v)
	return ok && !s.literal && e.style == 0
}

func (e *emitter) flowing(leaves bool) bool {
	return e.canonical || e.flowLevel > 0 || e.flow == allFlow || e.flow == leafFlow && leaves
}

// closeFlow starts a new line for a closing bracket or brace.
func (e *emitter) closeFlow(items int) {
	if e.canonical && items > 0 {
		e.indicator(",", false, false, false)
		e.writeIndent()
	}
}

func (e *emitter) sequence(items []any, c context) {
	leaves := true
	for _, it := range items {
		leaves = leaves && e.leaf(it)
	}
	if len(items) == 0 || e.flowing(leaves) {
		e.tag("seq")
		e.flowSequence(items)
		return
	}
	old := e.indent
	e.increaseIndent(false, c.mapping && !e.indention)
	for _, it := range items {
		e.writeIndent()
		e.indicator("-", true, false, true)
		e.node(it, context{})
	}
	e.indent = old
}

func (e *emitter) flowSequence(items []any) {
	e.indicator("[", true, true, false)
	old := e.indent
	e.increaseIndent(true, false)
	e.flowLevel++
	for i, it := range items {
		if i > 0 {
			e.indicator(",", false, false, false)
		}
		if e.canonical || e.column > e.bestWidth {
			e.writeIndent()
		}
		e.node(it, context{})
	}
	e.flowLevel--
	e.indent = old
	e.closeFlow(len(items))
	e.indicator("]", false, false, false)
}

func (e *emitter) mapping(d *value.Dict, c context) {
	leaves := true
	for k, v := range d.All() {
		leaves = leaves && e.leaf(k) && e.leaf(v)
	}
	if d.Len() == 0 || e.flowing(leaves) {
		e.tag("map")
		e.flowMapping(d)
		return
	}
	old := e.indent
	e.increaseIndent(false, false)
	for _, i := range e.order(d) {
		k, v := d.Entry(i)
		e.writeIndent()
		if e.isSimpleKey(k) {
			e.node(k, context{mapping: true, simpleKey: true})
			e.indicator(":", false, false, false)
		} else {
			e.indicator("?", true, false, true)
			e.node(k, context{mapping: true})
			e.writeIndent()
			e.indicator(":", true, false, true)
		}
		e.node(v, context{mapping: true})
	}
	e.indent = old
}

func (e *emitter) flowMapping(d *value.Dict) {
	e.indicator("{", true, true, false)
	old := e.indent
	e.increaseIndent(true, false)
	e.flowLevel++
	for n, i := range e.order(d) {
		k, v := d.Entry(i)
		if n > 0 {
			e.indicator(",", false, false, false)
		}
		if e.canonical || e.column > e.bestWidth {
			e.writeIndent()
		}
		if !e.canonical && e.isSimpleKey(k) {
			e.node(k, context{mapping: true, simpleKey: true})
			e.indicator(":", false, false, false)
		} else {
			e.indicator("?", true, false, false)
			e.node(k, context{mapping: true})
			if e.canonical || e.column > e.bestWidth {
				e.writeIndent()
			}
			e.indicator(":", true, false, false)
		}
		e.node(v, context{mapping: true})
	}
	e.flowLevel--
	e.indent = old
	e.closeFlow(d.Len())
	e.indicator("}", false, false, false)
}

// isSimpleKey reports whether k may stand before ":" without "?".
func (e *emitter) isSimpleKey(k any) bool {
	const limit = 128
	s, ok := represent(k)
	if !ok {
		t, isTuple := k.(value.Tuple)
		return isTuple && len(t) == 0
	}
	if n := len(s.text) + len(s.tag); n > limit || e.python && (n == 0 || utf8.RuneCountInString(s.text)+len(s.tag) == limit) {
		return false
	}
	return !e.analyze(s.text).multiline
}
