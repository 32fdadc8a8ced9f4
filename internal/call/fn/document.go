package fn

import (
	"encoding"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"

	"brine/internal/base/field"
	"brine/internal/base/target"
	"brine/internal/py/value"
)

// Doc returns the documentation of the function: description, arguments, examples. It is laid out
// like a Python docstring: indented by four, after an empty line.
func (f *Func) Doc() string {
	if f.foreign != nil {
		return f.foreign.Doc
	}
	var b strings.Builder
	line := func(depth int, s string) {
		if s = strings.TrimRight(s, " \t"); s != "" {
			b.WriteString(strings.Repeat("    ", depth+1))
			b.WriteString(s)
		}
		b.WriteByte('\n')
	}
	line(0, "")
	for l := range strings.SplitSeq(dedent(f.summary), "\n") {
		line(0, l)
	}
	for _, p := range f.sig().params {
		line(0, "")
		line(0, p.Name+p.defaultText())
		if p.Doc != "" {
			line(1, p.Doc)
		}
		if p.Ignored != "" {
			line(1, "Accepted, but not used: "+p.Ignored)
		}
	}
	if len(f.examples) > 0 {
		line(0, "")
		line(0, "CLI Example:")
		line(0, "")
		for _, e := range f.examples {
			line(1, e)
		}
	}
	b.WriteString("    ")
	return b.String()
}

func (p Param) defaultText() string {
	if !p.Optional {
		return ""
	}
	return " : " + value.Repr(p.Default)
}

// dedent removes the common indent of the lines after the first.
func dedent(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	common := -1
	for _, l := range lines[1:] {
		if t := strings.TrimLeft(l, " \t"); t != "" && (common < 0 || len(l)-len(t) < common) {
			common = len(l) - len(t)
		}
	}
	for i, l := range lines {
		if i > 0 && common > 0 && len(l) >= common {
			lines[i] = l[common:]
		}
	}
	return strings.Join(lines, "\n")
}

// ArgSpec describes the arguments in the form of sys.argspec.
func (f *Func) ArgSpec() *value.Dict {
	var args, defaults []any
	for _, p := range f.sig().params {
		args = append(args, p.Name)
		if means := f.shown[p.Name]; p.Optional && means != nil {
			defaults = append(defaults, means())
		} else if p.Optional {
			defaults = append(defaults, p.Default)
		}
	}
	d := value.DictOf("args", nil, "defaults", nil, "varargs", nil, "kwargs", nil)
	if len(args) > 0 {
		d.Set("args", &value.List{Items: args})
	}
	if len(defaults) > 0 {
		d.Set("defaults", value.Tuple(defaults))
	}
	if f.sig().args != nil {
		d.Set("varargs", true)
	}
	if f.sig().kwargs != nil {
		d.Set("kwargs", true)
	}
	return d
}

// The kinds of values that an argument takes.
const (
	KindAny    = "any"
	KindBool   = "bool"
	KindInt    = "int"
	KindNumber = "number"
	KindString = "str"
	KindList   = "list"
	KindItems  = "items" // a list, or one item
	KindDict   = "dict"
)

var (
	setterType      = reflect.TypeFor[field.Setter]()
	unmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
	modelKinds      = map[reflect.Type]string{
		reflect.TypeFor[*value.Dict](): KindDict, reflect.TypeFor[*value.List](): KindList, reflect.TypeFor[[]byte](): KindString,
		reflect.TypeFor[time.Duration](): KindNumber,
	}
)

// Kind returns the kind of values that the argument takes, KindAny if its declaration does not say.
func (p Param) Kind() string {
	t := p.field.Type
	if t == nil { // of a foreign function
		return KindAny
	}
	if kind := modelKinds[t]; kind != "" {
		return kind
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch at := reflect.PointerTo(t); {
	case at.Implements(setterType):
		return KindAny
	case at.Implements(unmarshalerType):
		return KindString
	}
	switch t.Kind() {
	case reflect.Bool:
		return KindBool
	case reflect.String:
		return KindString
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return KindInt
	case reflect.Float32, reflect.Float64:
		return KindNumber
	case reflect.Slice:
		return KindItems
	case reflect.Map, reflect.Struct:
		return KindDict
	}
	return KindAny
}

// Form describes each named argument for a form: name, kind, doc, default (if it has one), keyword (if
// it can only be given by name) and ignored (why it is not used).
func (f *Func) Form() *value.List {
	l := &value.List{}
	for _, p := range f.sig().params {
		d := value.DictOf("name", p.Name, "kind", p.Kind(), "doc", p.Doc)
		if p.Optional {
			d.Set("default", p.Default)
			if means := f.shown[p.Name]; means != nil {
				d.Set("default", means())
			}
		}
		if p.Keyword {
			d.Set("keyword", true)
		}
		if p.Ignored != "" {
			d.Set("ignored", p.Ignored)
		}
		l.Append(d)
	}
	return l
}

// Docs returns the documentation of the functions with the full name, in the module, or matching
// the pattern (with an asterisk) of each name. No names mean all functions.
func (r *Registry) Docs(names ...string) *value.Dict {
	docs := value.NewDict(0)
	for _, full := range r.pick(names, func(pattern string) func(full string) bool {
		if strings.Contains(pattern, "*") {
			return target.ParseGlob(pattern).Match
		}
		module := strings.TrimSuffix(pattern, ".") + "."
		return func(full string) bool {
			return full == pattern || pattern == "" || strings.HasPrefix(full, module)
		}
	}) {
		f, err := r.Lookup(full)
		switch {
		case err != nil:
		case f.foreign == nil:
			docs.Set(full, f.Doc())
		case f.foreign.Doc == "":
			docs.Set(full, nil)
		default:
			docs.Set(full, plainText(f.foreign.Doc))
		}
	}
	return docs
}

// plainText replaces the directives of reStructuredText in a docstring as Salt does.
func plainText(doc string) string {
	if strings.Contains(doc, ".. code-block:: ") {
		doc = codeBlock().ReplaceAllString(doc, "")
	}
	return directives.Replace(doc)
}

var (
	codeBlock  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(` *\.\. code-block:: \S+\n{1,2}`) })
	directives = strings.NewReplacer(".. note::", "Note:", ".. warning::", "Warning:", ".. versionadded::", "New in version",
		".. versionchanged::", "Changed in version")
)

// Functions returns the full names that match. A pattern with an asterisk or a dot must match the
// whole name; other patterns are module names. No patterns mean all functions.
func (r *Registry) Functions(patterns ...string) []string {
	return r.pick(patterns, func(pattern string) func(full string) bool {
		if strings.ContainsAny(pattern, "*.") {
			return target.ParseGlob(pattern).Match
		}
		return func(full string) bool { return strings.HasPrefix(full, pattern+".") }
	})
}

// ArgSpecs returns the ArgSpec of each function that matches.
func (r *Registry) ArgSpecs(pattern string) *value.Dict {
	specs := value.NewDict(0)
	for _, full := range r.Functions(pattern) {
		if f, err := r.Lookup(full); err == nil {
			specs.Set(full, f.ArgSpec())
		}
	}
	return specs
}

func (r *Registry) pick(patterns []string, matcher func(pattern string) func(full string) bool) []string {
	if len(patterns) == 0 {
		return r.Names()
	}
	// Patterns may be long; compile each only once.
	matchers := make([]func(string) bool, len(patterns))
	for i, p := range patterns {
		matchers[i] = matcher(p)
	}
	var out []string
	for _, full := range r.Names() {
		for _, matches := range matchers {
			if matches(full) {
				out = append(out, full)
				break
			}
		}
	}
	return out
}
