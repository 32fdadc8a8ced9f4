// Package target parses targets and matches minions. It supports Salt's target
// types: glob, pcre, list, grain, grain_pcre, pillar, pillar_pcre,
// pillar_exact, ipcidr, compound, compound_pillar_exact, nodegroup and range.
//
// Everything here is a pure function of its arguments: the data of a minion is
// a Subject, and nothing is read, cached or logged. A Matcher is immutable and
// safe for concurrent use.
//
// Targets and minion data may be untrusted. Parsing is bounded in length, depth
// and expansion. Regular expressions run in linear time or, with look-around,
// in bounded time. Matching against data is bounded in steps.
package target

import (
	"errors"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// DefaultDelimiter separates the parts of a grain or pillar target.
const DefaultDelimiter = ":"

// Subject holds the known data of one minion. Grains and Pillar are called only
// if the target needs them. nil means that the data is unknown, which differs
// from an empty dict.
type Subject interface {
	ID() string
	Grains() *value.Dict
	Pillar() *value.Dict
}

// Data is a Subject of data in memory.
type Data struct {
	MinionID   string
	GrainData  *value.Dict
	PillarData *value.Dict
}

// ID returns the minion id.
func (d Data) ID() string { return d.MinionID }

// Grains returns the grains, or nil.
func (d Data) Grains() *value.Dict { return d.GrainData }

// Pillar returns the pillar, or nil.
func (d Data) Pillar() *value.Dict { return d.PillarData }

// verdict is the result of a part of a target. Unknown means that it depends on
// missing data.
type verdict uint8

const (
	no verdict = iota
	unknown
	yes
)

func verdictOf(b bool) verdict {
	if b {
		return yes
	}
	return no
}

// node is a part of a parsed target.
type node interface {
	eval(Subject) verdict
}

// Matcher is a parsed target. The zero Matcher matches nothing.
type Matcher struct {
	root node
}

// Match reports whether the target matches this minion. If that depends on
// unknown data, it does not match.
func (m Matcher) Match(s Subject) bool {
	return m.root != nil && m.root.eval(s) == yes
}

// Expect reports whether the master should wait for this minion: it matches, or
// may match because its data is unknown. Use it for waiting only; permissions
// must use Match.
func (m Matcher) Expect(s Subject) bool {
	return m.root != nil && m.root.eval(s) != no
}

// NeedsData reports whether matching may need grains or pillar.
func (m Matcher) NeedsData() bool {
	found := false
	m.walk(func(n node, _ bool) {
		switch n.(type) {
		case grainNode, pillarNode, cidrNode:
			found = true
		}
	})
	return found
}

// Listed returns the ids in lists of the target, except in a negation, each
// once and in order. A job for a list is sent even to unknown ids.
func (m Matcher) Listed() []string {
	var ids []string
	seen := map[string]bool{}
	m.walk(func(n node, negated bool) {
		l, ok := n.(listNode)
		if !ok || negated {
			return
		}
		for _, id := range l.order {
			if !seen[id] {
				seen[id] = true
				ids = append(ids, id)
			}
		}
	})
	return ids
}

// walk calls fn for every part and reports whether it is negated.
func (m Matcher) walk(fn func(n node, negated bool)) {
	var visit func(n node, negated bool)
	visit = func(n node, negated bool) {
		fn(n, negated)
		switch x := n.(type) {
		case andNode:
			for _, c := range x {
				visit(c, negated)
			}
		case orNode:
			for _, c := range x {
				visit(c, negated)
			}
		case notNode:
			visit(x.node, !negated)
		}
	}
	if m.root != nil {
		visit(m.root, false)
	}
}

// Expected applies the target to all accepted minions. If the target needs
// data, data is called with an accepted id; it returns nil for unknown data.
// The results are the minions to wait for, in the order of accepted (of the
// list for a list target), and the listed ids that are not accepted.
func (m Matcher) Expected(accepted []string, data func(id string) (grains, pillar *value.Dict)) (minions, missing []string) {
	listed := m.Listed()
	var known map[string]bool
	if len(listed) > 0 {
		known = make(map[string]bool, len(accepted))
		for _, id := range accepted {
			known[id] = true
		}
	}
	_, onlyList := m.root.(listNode)
	for _, id := range listed {
		switch {
		case !known[id]:
			missing = append(missing, id)
		case onlyList:
			minions = append(minions, id)
		}
	}
	if onlyList {
		return minions, missing
	}
	s := &lookup{data: data}
	for _, id := range accepted {
		*s = lookup{id: id, data: data}
		if m.Expect(s) {
			minions = append(minions, id)
		}
	}
	return minions, missing
}

// lookup is a Subject that fetches its data once, on demand.
type lookup struct {
	id             string
	data           func(string) (grains, pillar *value.Dict)
	done           bool
	grains, pillar *value.Dict
}

func (l *lookup) load() {
	if !l.done && l.data != nil {
		l.grains, l.pillar = l.data(l.id)
	}
	l.done = true
}

func (l *lookup) ID() string          { return l.id }
func (l *lookup) Grains() *value.Dict { l.load(); return l.grains }
func (l *lookup) Pillar() *value.Dict { l.load(); return l.pillar }

// Parse parses a target of a type, "" meaning glob. expr is a string, or for
// lists and compounds possibly a list. delimiter applies to grain and pillar
// targets, "" meaning a colon; a compound may set its own. Errors are of kind
// Invalid; such a target matches nothing.
func Parse(typ string, expr any, delimiter string) (Matcher, error) {
	return Nodegroups(nil).Parse(typ, expr, delimiter)
}

// Parse is the function Parse with these nodegroups.
func (g Nodegroups) Parse(typ string, expr any, delimiter string) (Matcher, error) {
	return g.ParseWithin(NewBudget(DefaultBudget), typ, expr, delimiter)
}

// ParseWithin is Parse for a target whose backtracking searches share budget,
// which may serve several targets of one request.
func (g Nodegroups) ParseWithin(budget *Budget, typ string, expr any, delimiter string) (Matcher, error) {
	p := &parser{groups: g, delimiter: delimiter, budget: budget}
	n, err := p.parse(typ, expr)
	if err != nil {
		return Matcher{}, err
	}
	return Matcher{n}, nil
}

type parser struct {
	groups    Nodegroups
	delimiter string
	budget    *Budget
	exact     bool // match pillar by equality only
	words     int  // parsed so far, expansions included
	depth     int
}

func (p *parser) parse(typ string, expr any) (node, error) {
	switch typ {
	case "list":
		return parseList(expr)
	case "compound_pillar_exact":
		p.exact = true
		return p.compound(expr)
	case "compound":
		return p.compound(expr)
	case "range":
		return never{}, nil
	}
	text, ok := expr.(string)
	if b, isBytes := expr.([]byte); isBytes {
		text, ok = string(b), true
	}
	if !ok {
		return nil, salt.Errorf(salt.Invalid, "a %s target must be a string, not %s", typeName(typ), value.TypeName(value.From(expr)))
	}
	if typ == "nodegroup" {
		words, err := p.groups.Expand(text)
		if err != nil {
			return nil, err
		}
		return p.compoundWords(words)
	}
	return p.simple(typ, text, p.delimiter)
}

func typeName(typ string) string {
	if typ == "" {
		return "glob"
	}
	return typ
}

// simple parses the types whose target is one string.
func (p *parser) simple(typ, text, delimiter string) (node, error) {
	switch typ {
	case "", "glob":
		return newGlobNode(text), nil
	case "pcre":
		re, err := newPattern(text, p.budget)
		if err != nil {
			return nil, &raised{err}
		}
		return regexpNode{re}, nil
	case "ipcidr":
		return parseCIDR(text)
	case "grain", "grain_pcre":
		d, err := newDataExpr(text, delimiter, modeOf(typ), p.budget)
		if err != nil {
			return nil, err
		}
		return grainNode{d}, nil
	case "pillar", "pillar_pcre", "pillar_exact":
		d, err := newDataExpr(text, delimiter, modeOf(typ), p.budget)
		if err != nil {
			return nil, err
		}
		return pillarNode{d}, nil
	}
	return nil, &raised{salt.Errorf(salt.Invalid, "unknown target type %q", typ)}
}

// raised marks errors of Parse for which Salt's matchers raise an exception.
type raised struct{ error }

func (e *raised) Unwrap() error { return e.error }

// Raises reports whether Salt's matchers raise an exception for an error of
// Parse: for an unknown type, and for an invalid regular expression for ids.
// For other errors no minion matches in Salt.
func Raises(err error) bool {
	var e *raised
	return errors.As(err, &e)
}

func modeOf(typ string) dataMode {
	switch {
	case strings.HasSuffix(typ, "_pcre"):
		return dataRegexp
	case strings.HasSuffix(typ, "_exact"):
		return dataExact
	}
	return dataGlob
}

func parseList(expr any) (node, error) {
	var ids []string
	switch x := value.From(expr).(type) {
	case string:
		if strings.Contains(x, ",") {
			ids = strings.Split(x, ",")
		} else {
			ids = strings.Fields(x)
		}
		for i := range ids {
			ids[i] = strings.TrimSpace(ids[i])
		}
	case *value.List:
		ids = texts(x.Items)
	case value.Tuple:
		ids = texts(x)
	default:
		return nil, salt.Errorf(salt.Invalid, "a list target must be a string or a list, not %s", value.TypeName(x))
	}
	return newListNode(ids), nil
}

func texts(items []any) []string {
	out := make([]string, 0, len(items))
	for _, it := range items {
		if b, ok := it.([]byte); ok {
			it = string(b)
		}
		out = append(out, value.Str(it))
	}
	return out
}
