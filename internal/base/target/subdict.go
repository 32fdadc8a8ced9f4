package target

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// maxParts bounds the delimiters in a data target.
const maxParts = 64

// maxSteps bounds the work of matching one target against the data of one
// minion, because both may be untrusted. Usual data needs a few dozen steps.
const maxSteps = 200_000

type dataMode uint8

const (
	dataGlob dataMode = iota
	dataRegexp
	dataExact
)

// dataExpr matches a path and a pattern against nested data, as Salt does. The
// path is tried from the longest to the shortest, so that the pattern may
// contain the delimiter. A list matches by any member, a dict by its keys.
// Values are compared as lower-case strings.
type dataExpr struct {
	expr      string
	delimiter string
	mode      dataMode
	budget    *Budget
	leaves    map[string]*leaf // every possible pattern
}

// leaf is a compiled pattern.
type leaf struct {
	parts []string // split at colons, for matching inside of dicts
	text  string   // lower case
	glob  Glob
	re    pattern // nil if invalid
}

func newDataExpr(expr, delimiter string, mode dataMode, budget *Budget) (*dataExpr, error) {
	if delimiter == "" {
		delimiter = DefaultDelimiter
	}
	if !strings.Contains(expr, delimiter) {
		return nil, salt.Errorf(salt.Invalid, "target %q has no %q between key and value", expr, delimiter)
	}
	if strings.Count(expr, delimiter) > maxParts || strings.Count(expr, ":") > maxParts || len(expr) > MaxRegexp {
		return nil, salt.Errorf(salt.Invalid, "target is too long: more than %d parts or %d bytes", maxParts, MaxRegexp)
	}
	d := &dataExpr{expr: expr, delimiter: delimiter, mode: mode, budget: budget, leaves: map[string]*leaf{}}
	var bad error
	usable := false
	add := func(text string) {
		if _, ok := d.leaves[text]; ok {
			return
		}
		l, err := newLeaf(text, mode, budget)
		d.leaves[text] = l
		if err != nil && bad == nil {
			bad = err
		}
		usable = usable || err == nil && text != expr
	}
	add(expr)
	for i := range expr {
		for _, sep := range []string{delimiter, ":"} {
			if strings.HasPrefix(expr[i:], sep) {
				add(expr[i+len(sep):])
			}
		}
	}
	if !usable {
		return nil, bad
	}
	return d, nil
}

func newLeaf(text string, mode dataMode, budget *Budget) (*leaf, error) {
	l := &leaf{parts: strings.Split(text, ":"), text: strings.ToLower(text)}
	var err error
	switch mode {
	case dataGlob:
		l.glob = ParseGlob(l.text)
	case dataRegexp:
		l.re, err = newPattern(l.text, budget)
	}
	return l, err
}

// match reports whether data matches.
func (d *dataExpr) match(data *value.Dict) verdict {
	w := dataWalk{dataExpr: d, steps: maxSteps}
	fits := w.subdict(data, d.expr, strings.Split(d.expr, d.delimiter), d.delimiter)
	if !fits && w.unsure {
		return unknown
	}
	return verdictOf(fits)
}

// dataWalk is one match in progress.
type dataWalk struct {
	*dataExpr
	steps  int
	unsure bool // a pattern exceeded its time budget
}

func (w *dataWalk) leaf(text string) *leaf {
	if l := w.leaves[text]; l != nil {
		return l
	}
	l, _ := newLeaf(text, w.mode, w.budget) // cannot happen: every suffix has a leaf
	return l
}

// subdict tries every split of expr into a path and a pattern.
func (w *dataWalk) subdict(data *value.Dict, expr string, parts []string, delimiter string) bool {
	at := len(expr)
	for i := len(parts) - 1; i > 0 && w.steps > 0; i-- {
		at -= len(parts[i])
		pattern := expr[at:]
		at -= len(delimiter)
		var found any = data
		if i == 1 && parts[0] == "*" {
			pattern = expr
		} else {
			found = w.traverse(data, parts[:i])
		}
		if w.matchFound(found, pattern) {
			return true
		}
	}
	return false
}

// matchFound matches a pattern against the value at a path.
func (w *dataWalk) matchFound(found any, pattern string) bool {
	switch x := found.(type) {
	case missing:
		return false
	case *value.Dict:
		return x.Len() > 0 && w.dict(x, pattern)
	case *value.List:
		return w.members(x.Items, pattern)
	case value.Tuple:
		return w.members(x, pattern)
	}
	return w.scalar(found, pattern)
}

func (w *dataWalk) members(items []any, pattern string) bool {
	for _, it := range items {
		if w.steps <= 0 {
			return false
		}
		if d, ok := it.(*value.Dict); ok && w.dict(d, pattern) {
			return true
		}
		if w.scalar(it, pattern) {
			return true
		}
	}
	return false
}

// dict matches a pattern against the keys of a dict, then against nested data.
// A leading "*:" descends into every entry.
func (w *dataWalk) dict(d *value.Dict, pattern string) bool {
	w.steps--
	pattern, wild := strings.CutPrefix(pattern, "*:")
	if pattern == "*" || d.Has(pattern) {
		return true
	}
	if l := w.leaf(pattern); len(l.parts) > 1 && w.subdict(d, pattern, l.parts, ":") {
		return true
	}
	if !wild {
		return false
	}
	for _, v := range d.All() {
		if w.steps <= 0 {
			return false
		}
		switch x := v.(type) {
		case *value.Dict:
			if w.dict(x, pattern) {
				return true
			}
		case *value.List:
			for _, it := range x.Items {
				if w.scalar(it, pattern) {
					return true
				}
			}
		default:
			if w.scalar(v, pattern) {
				return true
			}
		}
	}
	return false
}

// scalar compares strings. A container is compared by Python's str() of it, as
// in Salt.
func (w *dataWalk) scalar(v any, pattern string) bool {
	w.steps--
	if w.steps <= 0 {
		return false
	}
	text, ok := v.(string)
	if !ok {
		text = value.Str(v)
	}
	text = strings.ToLower(text)
	l := w.leaf(pattern)
	switch w.mode {
	case dataExact:
		return text == l.text
	case dataRegexp:
		if l.re == nil {
			return false
		}
		fits := l.re.match(text)
		w.unsure = w.unsure || fits == unknown
		return fits == yes
	}
	return l.glob.Match(text)
}

// missing is the result of traverse for a path without value.
type missing struct{}

// traverse follows a path through dicts and lists. In a list a number is an
// index, unless a dict in the list has it as a key; any other part is looked up
// in the dicts of the list.
func (w *dataWalk) traverse(data *value.Dict, path []string) any {
	var at any = data
	for _, key := range path {
		w.steps--
		switch x := at.(type) {
		case *value.List:
			at = inList(x.Items, key)
		case *value.Dict:
			at = inDict(x, key)
		default:
			return missing{}
		}
	}
	return at
}

func inList(items []any, key string) any {
	var want any = key
	index, isIndex := pyInt(key)
	if isIndex {
		want = index
	}
	for _, it := range items {
		if d, ok := it.(*value.Dict); ok {
			if v, ok := d.Get(want); ok {
				return v
			}
		}
	}
	if i, ok := index.(int64); ok {
		n := int64(len(items))
		if i < 0 {
			i += n
		}
		if i >= 0 && i < n {
			return items[i]
		}
	}
	return missing{}
}

func inDict(d *value.Dict, key string) any {
	if v, ok := d.Get(key); ok {
		return v
	}
	if k, ok := scalarKey(key); ok {
		if v, ok := d.Get(k); ok {
			return v
		}
	}
	return missing{}
}

var pyIntForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[+-]?[0-9]+(_[0-9]+)*$`) })

// pyInt parses an integer as Python's int() does.
func pyInt(s string) (any, bool) {
	s = strings.TrimSpace(s)
	if !pyIntForm().MatchString(s) {
		return nil, false
	}
	s = strings.ReplaceAll(s, "_", "")
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, true
	}
	b, ok := new(big.Int).SetString(s, 10)
	return b, ok
}

var (
	yamlInt   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[-+]?(0[0-7_]*|[1-9][0-9_]*)$`) })
	yamlBased = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([-+]?)(0x[0-9a-fA-F_]+|0b[01_]+)$`) })
	yamlFloat = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+][0-9]+)?$`)
	})
)

// scalarKey parses a path part as a YAML scalar, because data has keys such as
// 80, 1.5 and true. It is used if the part itself is not a key. ok is false for
// a plain string.
func scalarKey(s string) (any, bool) {
	plain := strings.TrimSpace(s)
	if plain == "" || strings.ContainsAny(s, "\t\r\n") {
		return nil, false
	}
	switch plain {
	case "None", "~", "null", "Null", "NULL":
		return nil, true
	case "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON":
		return true, true
	case "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF":
		return false, true
	}
	bare := strings.ReplaceAll(plain, "_", "")
	switch {
	case bare != plain && digits(bare):
		return nil, false
	case yamlInt().MatchString(plain):
		return pyInt(bare)
	case yamlBased().MatchString(plain):
		if n, err := strconv.ParseInt(bare, 0, 64); err == nil {
			return n, true
		}
	case yamlFloat().MatchString(plain):
		if f, err := strconv.ParseFloat(bare, 64); err == nil {
			return f, true
		}
	}
	return plain, plain != s
}
