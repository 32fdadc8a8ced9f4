package jinja

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"brine/internal/py/json"
	"brine/internal/py/value"
)

// builtinFilters returns the filters of Jinja2.
func builtinFilters() map[string]*Func {
	m := map[string]*Func{}
	for _, t := range []map[string]*Func{textFilters(), seqFilters(), pickFilters(), numberFilters(), webFilters()} {
		for k, f := range t {
			m[k] = f
		}
	}
	for alias, name := range map[string]string{"d": "default", "e": "escape", "count": "length"} {
		m[alias] = m[name]
	}
	return m
}

// softStr converts a value to a string; Markup stays Markup.
func softStr(v any) any {
	if m, ok := v.(Markup); ok {
		return m
	}
	return str(v)
}

// method calls a string method of the first argument.
func onText(c *Call, name string, args ...any) any {
	m := c.f.rt.env.methods.str[name]
	call := &Call{Ctx: c.Ctx, Args: append([]any{softStr(c.any(0))}, args...), f: c.f}
	v, err := m.call(call)
	if err != nil {
		raiseErr(err)
	}
	return v
}

func textFilters() map[string]*Func {
	return table(
		fn("upper(s)", func(c *Call) any { return onText(c, "upper") }),
		fn("lower(s)", func(c *Call) any { return onText(c, "lower") }),
		fn("capitalize(s)", func(c *Call) any { return onText(c, "capitalize") }),
		fn("title(s)", func(c *Call) any { return retype(c, titleFilter(str(c.any(0)))) }),
		fn("trim(value, chars=None)", func(c *Call) any { return onText(c, "strip", c.any(1)) }),
		fn("center(value, width=80)", func(c *Call) any { return onText(c, "center", c.any(1)) }),
		fn("replace(s, old, new, count=None)", func(c *Call) any {
			n := c.any(3)
			if n == nil {
				n = int64(-1)
			}
			if !c.Escape() {
				return replace(c, str(c.any(0)), str(c.any(1)), str(c.any(2)), index(n))
			}
			return onText(c, "replace", str(c.any(1)), c.any(2), n)
		}),
		fn("string(object)", func(c *Call) any { return softStr(c.any(0)) }),
		fn("format(value, *args, **kwargs)", func(c *Call) any {
			kw := c.any(2).(*value.Dict)
			args := c.any(1).(value.Tuple)
			if len(args) > 0 && kw.Len() > 0 {
				raise(FilterArgument, "can't handle positional and keyword arguments at the same time")
			}
			s := softStr(c.any(0))
			t, _ := text(s)
			if kw.Len() > 0 {
				return percent(c.f, t, s, kw)
			}
			return percent(c.f, t, s, args)
		}),
		fn("indent(s, width=4, first=False, blank=False)", indentFilter),
		fn("truncate(s, length=255, killwords=False, end='...', leeway=None)", truncateFilter),
		fn("wordcount(s)", func(c *Call) any {
			n, in := int64(0), false
			for _, r := range str(c.any(0)) {
				w := r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r)
				if w && !in {
					n++
				}
				in = w
			}
			return n
		}),
		fn("wordwrap(s, width=79, break_long_words=True, wrapstring=None, break_on_hyphens=True)", func(c *Call) any {
			nl := "\n"
			if c.any(3) != nil {
				nl = c.str(3)
			}
			if c.int(1) < 1 {
				raise("ValueError", "invalid width %s (must be > 0)", repr(c.any(1)))
			}
			if _, ok := text(c.any(0)); !ok && !isUndefined(c.any(0)) {
				raise("AttributeError", "'%s' object has no attribute 'splitlines'", typeName(c.any(0)))
			}
			var out []string
			size := 0
			for _, l := range value.SplitLines(str(c.any(0)), false) {
				parts := wrapLine(c, l, c.int(1), c.bool(2), c.bool(4))
				c.Reserve(2 * (len(l) + len(parts)*len(nl)))
				out = append(out, strings.Join(parts, nl))
				size += len(out[len(out)-1]) + len(nl)
				c.Reserve(2 * size)
			}
			return strings.Join(out, nl)
		}),
		fn("striptags(value)", func(c *Call) any { return striptags(str(c.any(0))) }),
		fn("pprint(value)", func(c *Call) any {
			s, err := Pretty(c.any(0))
			if err != nil {
				raiseErr(err)
			}
			return s
		}),
	)
}

// FilterArgument is the kind of error for invalid arguments of filters.
const FilterArgument Kind = "FilterArgumentError"

func retype(c *Call, s string) any {
	if _, ok := c.any(0).(Markup); ok {
		return Markup(s)
	}
	return s
}

func titleFilter(s string) string {
	var b strings.Builder
	start := true
	for _, r := range s {
		switch {
		case r == '-' || unicode.IsSpace(r) || strings.ContainsRune("({[<", r):
			b.WriteRune(r)
			start = true
		case start:
			b.WriteString(upper(string(r)))
			start = false
		default:
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

func indentFilter(c *Call) any {
	in := c.any(0)
	s, ok := text(in)
	if !ok {
		if u, is := in.(*Undefined); is {
			u.fail()
		}
		raise("TypeError", "unsupported operand type(s) for +=: '%s' and 'str'", typeName(in))
	}
	pad, ok := text(c.any(1))
	if !ok {
		n := max(0, c.int(1))
		c.Reserve(n)
		pad = strings.Repeat(" ", n)
	}
	lines := value.SplitLines(s+"\n", false)
	if len(pad) > 0 && len(lines) > c.f.rt.env.o.MaxOutput/len(pad) {
		c.Reserve(-1)
	}
	c.Reserve(2 * (len(s) + len(lines)*len(pad)))
	var b strings.Builder
	if c.bool(2) {
		b.WriteString(pad)
	}
	for i, l := range lines {
		if i > 0 {
			b.WriteByte('\n')
			if l != "" || c.bool(3) {
				b.WriteString(pad)
			}
		}
		b.WriteString(l)
	}
	return retype(c, b.String())
}

func truncateFilter(c *Call) any {
	most, end := c.int(1), c.str(3)
	leeway := 5
	if c.any(4) != nil {
		leeway = c.int(4)
	}
	if most < runeLen(end) {
		raise("AssertionError", "expected length >= %d, got %d", runeLen(end), most)
	}
	if leeway < 0 {
		raise("AssertionError", "expected leeway >= 0, got %d", leeway)
	}
	if n, ok := length(c.any(0)); !ok {
		raise("TypeError", "object of type '%s' has no len()", typeName(c.any(0)))
	} else if n <= most+leeway {
		return c.any(0)
	}
	if _, ok := text(c.any(0)); !ok {
		kind := typeName(c.any(0))
		if c.bool(2) {
			raise("TypeError", "can only concatenate %s (not \"str\") to %[1]s", kind)
		}
		raise("AttributeError", "'%s' object has no attribute 'rsplit'", kind)
	}
	cut := cutRunes(str(c.any(0)), most-runeLen(end))
	if !c.bool(2) {
		if i := strings.LastIndexByte(cut, ' '); i >= 0 {
			cut = cut[:i]
		}
	}
	return retype(c, cut+end)
}

// wrapLine breaks a line at blanks and after hyphens.
func wrapLine(c *Call, s string, width int, breakLong, hyphens bool) []string {
	chunks := wrapChunks(s, hyphens)
	slices.Reverse(chunks)
	var out []string
	for len(chunks) > 0 {
		var cur []string
		n := 0
		if strings.TrimSpace(chunks[len(chunks)-1]) == "" && len(out) > 0 {
			chunks = chunks[:len(chunks)-1]
		}
		for len(chunks) > 0 {
			l := runeLen(chunks[len(chunks)-1])
			if n+l > width {
				break
			}
			cur = append(cur, chunks[len(chunks)-1])
			chunks = chunks[:len(chunks)-1]
			n += l
		}
		if len(chunks) > 0 && runeLen(chunks[len(chunks)-1]) > width {
			last := chunks[len(chunks)-1]
			c.f.rt.work(8 * len(last))
			switch {
			case breakLong:
				room := max(1, width-n)
				head := cutRunes(last, room)
				if i := strings.LastIndexByte(head, '-'); hyphens && i > 0 && strings.Trim(head[:i], "-") != "" && runeLen(last) > room {
					head = last[:i+1]
				}
				cur = append(cur, head)
				chunks[len(chunks)-1] = last[len(head):]
			case len(cur) == 0:
				cur = append(cur, last)
				chunks = chunks[:len(chunks)-1]
			}
		}
		if len(cur) > 0 && strings.TrimSpace(cur[len(cur)-1]) == "" {
			cur = cur[:len(cur)-1]
		}
		if len(cur) > 0 {
			out = append(out, strings.Join(cur, ""))
		}
	}
	return out
}

// wrapChunks splits a line into words, parts of words up to a hyphen between
// letters, and blanks.
func wrapChunks(s string, hyphens bool) []string {
	var out []string
	rs := []rune(s)
	start := 0
	cut := func(i int) {
		if i > start {
			out = append(out, string(rs[start:i]))
			start = i
		}
	}
	letter := func(i int) bool { return i >= 0 && i < len(rs) && (unicode.IsLetter(rs[i]) || rs[i] == '_') }
	for i, r := range rs {
		blank := unicode.IsSpace(r)
		if i > 0 && blank != unicode.IsSpace(rs[i-1]) {
			cut(i)
		}
		if hyphens && r == '-' && letter(i-1) && letter(i-2) && letter(i+1) {
			cut(i + 1)
		}
	}
	cut(len(rs))
	return out
}

func striptags(s string) string {
	for {
		i := strings.Index(s, "<!--")
		if i < 0 {
			break
		}
		j := strings.Index(s[i:], "-->")
		if j < 0 {
			break
		}
		s = s[:i] + s[i+j+3:]
	}
	for {
		i := strings.IndexByte(s, '<')
		if i < 0 {
			break
		}
		j := strings.IndexByte(s[i:], '>')
		if j < 0 {
			break
		}
		s = s[:i] + s[i+j+1:]
	}
	return unescapeHTML(strings.Join(strings.Fields(s), " "))
}

func unescapeHTML(s string) string {
	return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&quot;", `"`, "&#34;", `"`, "&#39;", "'", "&amp;", "&", "&nbsp;", "\u00a0").Replace(s)
}

// getter returns the function by which filters like sort and map read an item:
// a path of attributes and indexes, or the item itself.
func getter(c *Call, attribute, def any) func(any) any {
	var parts []any
	switch x := attribute.(type) {
	case nil:
		return func(v any) any { return v }
	case int64:
		parts = []any{x}
	default:
		s, ok := text(attribute)
		if !ok {
			raise("TypeError", "an attribute must be a string or a number, not %s", typeName(attribute))
		}
		for _, p := range strings.Split(s, ".") {
			if n, err := strconv.ParseInt(p, 10, 64); err == nil && !strings.HasPrefix(p, "-") && !strings.HasPrefix(p, "+") {
				parts = append(parts, n)
			} else {
				parts = append(parts, p)
			}
		}
	}
	return func(v any) any {
		for _, p := range parts {
			v = c.f.item(v, p)
			if def != nil && isUndefined(v) {
				v = def
			}
		}
		return v
	}
}

func ignoreCase(v any) any {
	if s, ok := text(v); ok {
		return strings.ToLower(s)
	}
	return v
}

// keyed is getter, ignoring case by default.
func keyed(c *Call, attribute, def any, caseSensitive bool) func(any) any {
	get := getter(c, attribute, def)
	if caseSensitive {
		return get
	}
	return func(v any) any { return ignoreCase(get(v)) }
}

func seqFilters() map[string]*Func {
	return table(
		fn("length(obj)", func(c *Call) any {
			n, ok := length(c.any(0))
			if !ok {
				raise("TypeError", "object of type '%s' has no len()", typeName(c.any(0)))
			}
			return int64(n)
		}),
		fn("list(value)", func(c *Call) any { return &value.List{Items: slices.Clone(items(c.any(0)))} }),
		fn("items(value)", func(c *Call) any {
			if u, ok := c.any(0).(*Undefined); ok {
				_ = u
				return NewIterator("generator", sliceIter(nil))
			}
			d, ok := c.any(0).(*value.Dict)
			if !ok {
				raise("TypeError", "Can only get item pairs from a mapping.")
			}
			return NewIterator("generator", view{d, 'i'}.iterate())
		}),
		fn("first(seq)", func(c *Call) any {
			next := Iterate(c.any(0))
			if v, ok := next(); ok {
				return v
			}
			return c.Undefined("", "No first item, sequence was empty.")
		}),
		fn("last(seq)", func(c *Call) any {
			if all := reversible(c.any(0)); len(all) > 0 {
				return all[len(all)-1]
			}
			return c.Undefined("", "No last item, sequence was empty.")
		}),
		fn("random(seq)", func(c *Call) any {
			all := items(c.any(0))
			if len(all) == 0 {
				return c.Undefined("", "No random item, sequence was empty.")
			}
			return all[rand.IntN(len(all))]
		}),
		fn("reverse(value)", func(c *Call) any {
			if s, ok := text(c.any(0)); ok {
				rs := []rune(s)
				slices.Reverse(rs)
				return string(rs)
			}
			all := slices.Clone(items(c.any(0)))
			slices.Reverse(all)
			name := "reversed"
			switch c.any(0).(type) {
			case *value.List:
				name = "list_reverseiterator"
			case *value.Dict:
				name = "dict_reversekeyiterator"
			}
			return NewIterator(name, sliceIter(all))
		}),
		fn("join(value, d='', attribute=None)", joinFilter),
		fn("sort(value, reverse=False, case_sensitive=False, attribute=None)", func(c *Call) any {
			return &value.List{Items: sorted(c, items(c.any(0)), sortKey(c, c.any(3), c.bool(2)), c.bool(1))}
		}),
		fn("dictsort(value, case_sensitive=False, by='key', reverse=False)", dictsort),
		fn("unique(value, case_sensitive=False, attribute=None)", func(c *Call) any {
			get, seen := keyed(c, c.any(2), nil, c.bool(1)), value.NewDict(0)
			next := Iterate(c.any(0))
			return NewIterator("generator", func() (any, bool) {
				for v, ok := next(); ok; v, ok = next() {
					c.Spend(64)
					c.Tick()
					if k := get(v); !hasKey(seen, k) {
						setItem(seen, k, true)
						return v, true
					}
				}
				return nil, false
			})
		}),
		fn("groupby(value, attribute, default=None, case_sensitive=False)", groupby),
		fn("batch(value, linecount, fill_with=None)", func(c *Call) any { return batch(c) }),
		fn("slice(value, slices, fill_with=None)", func(c *Call) any { return sliceFilter(c) }),
		fn("min(value, case_sensitive=False, attribute=None)", func(c *Call) any { return extreme(c, -1) }),
		fn("max(value, case_sensitive=False, attribute=None)", func(c *Call) any { return extreme(c, 1) }),
		fn("sum(iterable, attribute=None, start=0)", func(c *Call) any {
			get, sum := getter(c, c.any(1), nil), c.any(2)
			for _, v := range items(c.any(0)) {
				c.Tick()
				sum = arith(c.f, '+', sum, get(v))
			}
			return sum
		}),
	)
}

// reversible returns the items of an argument of reversed().
func reversible(v any) []any {
	switch v.(type) {
	case *Iterator, *Set:
		raise("TypeError", "'%s' object is not reversible", typeName(v))
	}
	return items(v)
}

func joinFilter(c *Call) any {
	get := getter(c, c.any(2), nil)
	all := items(c.any(0))
	vals := make([]any, len(all))
	safe := false
	for i, v := range all {
		vals[i] = get(v)
		_, m := vals[i].(Markup)
		safe = safe || m
	}
	_, m := c.any(1).(Markup)
	var b strings.Builder
	if c.Escape() && (safe || m) {
		d := string(escape(c.any(1)))
		for i, v := range vals {
			if i > 0 {
				b.WriteString(d)
			}
			b.WriteString(string(escape(v)))
			c.Reserve(3 * b.Len())
		}
		return Markup(b.String())
	}
	d := str(c.any(1))
	for i, v := range vals {
		if i > 0 {
			b.WriteString(d)
		}
		s := str(v)
		c.Tick()
		c.Reserve(3 * (b.Len() + len(s) + len(d)))
		b.WriteString(s)
	}
	return b.String()
}

// sortKey reads several attributes, separated by commas.
func sortKey(c *Call, attribute any, caseSensitive bool) func(any) any {
	s, ok := text(attribute)
	if !ok || !strings.Contains(s, ",") {
		return keyed(c, attribute, nil, caseSensitive)
	}
	var gets []func(any) any
	for _, a := range strings.Split(s, ",") {
		gets = append(gets, keyed(c, a, nil, caseSensitive))
	}
	return func(v any) any {
		t := make(value.Tuple, len(gets))
		for i, g := range gets {
			t[i] = g(v)
		}
		return t
	}
}

func dictsort(c *Call) any {
	pos := 0
	switch c.str(2) {
	case "key":
	case "value":
		pos = 1
	default:
		raise(FilterArgument, `You can only sort by either "key" or "value"`)
	}
	d, ok := c.any(0).(*value.Dict)
	if !ok {
		if u, is := c.any(0).(*Undefined); is {
			u.fail()
		}
		raise("AttributeError", "'%s' object has no attribute 'items'", typeName(c.any(0)))
	}
	key := func(v any) any {
		k := v.(value.Tuple)[pos]
		if c.bool(1) {
			return k
		}
		return ignoreCase(k)
	}
	return &value.List{Items: sorted(c, view{d, 'i'}.list(), key, c.bool(3))}
}

// groupPair is an item of the result of the filter groupby.
type groupPair struct {
	value.Tuple
}

func (g groupPair) Attr(name string) (any, bool) {
	switch name {
	case "grouper":
		return g.Tuple[0], true
	case "list":
		return g.Tuple[1], true
	}
	return nil, false
}
func (g groupPair) Item(key any) (any, bool) {
	return nth(key, 2, func(i int) any { return g.Tuple[i] })
}
func (g groupPair) Iterate() Iter    { return sliceIter(g.Tuple) }
func (g groupPair) Len() int         { return 2 }
func (g groupPair) String() string   { return repr(g.Tuple) }
func (g groupPair) TypeName() string { return "_GroupTuple" }

func groupby(c *Call) any {
	key := keyed(c, c.any(1), c.any(2), c.bool(3))
	show := getter(c, c.any(1), c.any(2))
	out := &value.List{}
	var last any
	for i, v := range sorted(c, items(c.any(0)), key, false) {
		k := key(v)
		c.Spend(64)
		if i > 0 && equal(k, last) {
			g := out.Items[len(out.Items)-1].(*groupPair)
			g.Tuple[1].(*value.List).Append(v)
			continue
		}
		last = k
		out.Append(&groupPair{value.Tuple{show(v), &value.List{Items: []any{v}}}})
	}
	return out
}

func batch(c *Call) any {
	n := c.int(1)
	next := Iterate(c.any(0))
	ended := false
	var held any
	have := false
	return NewIterator("generator", func() (any, bool) {
		if ended {
			return nil, false
		}
		c.Tick()
		l := &value.List{}
		if have {
			l.Append(held)
			have = false
		}
		for {
			v, ok := next()
			if !ok {
				ended = true
				break
			}
			if len(l.Items) == n {
				held, have = v, true
				return l, true
			}
			c.Spend(32)
			l.Append(v)
		}
		if len(l.Items) == 0 {
			return nil, false
		}
		if c.any(2) != nil {
			c.Spend(32 * max(0, n))
			for len(l.Items) < n {
				l.Append(c.any(2))
			}
		}
		return l, true
	})
}

func sliceFilter(c *Call) any {
	all, n := items(c.any(0)), c.int(1)
	if n == 0 {
		raise("ZeroDivisionError", "integer division or modulo by zero")
	}
	per, extra := len(all)/n, len(all)%n
	i, at := 0, 0
	return NewIterator("generator", func() (any, bool) {
		if i >= n {
			return nil, false
		}
		c.Tick()
		c.Spend(64 + 16*per)
		size := per
		if i < extra {
			size++
		}
		l := &value.List{Items: slices.Clone(all[at : at+size])}
		at += size
		if c.any(2) != nil && i >= extra {
			l.Append(c.any(2))
		}
		i++
		return l, true
	})
}

func extreme(c *Call, sign int) any {
	key := keyed(c, c.any(2), nil, c.bool(1))
	next := Iterate(c.any(0))
	best, ok := next()
	if !ok {
		return c.Undefined("", "No aggregated item, sequence was empty.")
	}
	k := key(best)
	op := map[int]string{-1: "<", 1: ">"}[sign]
	for v, ok := next(); ok; v, ok = next() {
		c.Tick()
		if w := key(v); less(op, w, k) {
			best, k = v, w
		}
	}
	return best
}

// pickFilters apply a test or a filter to the items of a sequence.
func pickFilters() map[string]*Func {
	pick := func(name string, want, attr bool) *Func {
		return fn(name+"(value, *args, **kwargs)", func(c *Call) any {
			args := c.any(1).(value.Tuple)
			get := func(v any) any { return v }
			if attr {
				if len(args) == 0 {
					raise(FilterArgument, "Missing parameter for attribute name")
				}
				get = getter(c, args[0], nil)
				args = args[1:]
			}
			check := truth
			if len(args) > 0 {
				test, ok := text(args[0])
				if !ok {
					raise(RuntimeError, "No test named %s.", repr(args[0]))
				}
				if c.f.tmpl.env.tests[test] == nil {
					raise(RuntimeError, "No test named %s.", quoted(test))
				}
				check = func(v any) bool { return c.test(test, v, args[1:], c.any(2).(*value.Dict)) }
			}
			next := iterateTrue(c.any(0))
			return NewIterator("generator", func() (any, bool) {
				for v, ok := next(); ok; v, ok = next() {
					c.Tick()
					if check(get(v)) == want {
						return v, true
					}
				}
				return nil, false
			})
		})
	}
	return table(
		pick("select", true, false), pick("reject", false, false), pick("selectattr", true, true), pick("rejectattr", false, true),
		fn("map(value, *args, **kwargs)", mapFilter),
		fn("default(value, default_value='', boolean=False)", func(c *Call) any {
			if isUndefined(c.any(0)) || c.bool(2) && !truth(c.any(0)) {
				return c.any(1)
			}
			return c.any(0)
		}),
		fn("attr(obj, name)", func(c *Call) any {
			obj, name := c.any(0), str(c.any(1))
			if d, ok := obj.(*value.Dict); ok {
				if m := c.f.rt.env.methods.dict[name]; m != nil {
					return &method{d, m}
				}
			} else if v, ok := c.f.attribute(obj, name); ok {
				return v
			}
			return c.f.rt.undefinedOf(obj, name)
		}),
	)
}

// iterateTrue iterates over a sequence. A false value (none, 0) counts as
// empty, as in Jinja's filters map, select and similar ones.
func iterateTrue(v any) Iter {
	if _, ok := v.(*Undefined); !ok && !truth(v) {
		return func() (any, bool) { return nil, false }
	}
	return Iterate(v)
}

func mapFilter(c *Call) any {
	args, kw := c.any(1).(value.Tuple), c.any(2).(*value.Dict)
	var do func(any) any
	if len(args) == 0 && kw.Has("attribute") {
		for _, k := range kw.Keys() {
			if k != "attribute" && k != "default" {
				raise(FilterArgument, "Unexpected keyword argument %s", value.Repr(k))
			}
		}
		do = getter(c, kw.At("attribute"), kw.At("default"))
	} else {
		if len(args) == 0 {
			raise(FilterArgument, "map requires a filter argument")
		}
		name, ok := text(args[0])
		if !ok || c.f.tmpl.env.filters[name] == nil {
			raise(RuntimeError, "No filter named %s.", repr(args[0]))
		}
		do = func(v any) any { return c.filter(name, v, args[1:], kw) }
	}
	next := iterateTrue(c.any(0))
	return NewIterator("generator", func() (any, bool) {
		v, ok := next()
		if !ok {
			return nil, false
		}
		c.Tick()
		return do(v), true
	})
}

func numberFilters() map[string]*Func {
	return table(
		fn("abs(x)", func(c *Call) any {
			switch x := c.any(0).(type) {
			case float64:
				return math.Abs(x)
			case *Undefined:
				x.fail()
			}
			n, ok := asInt(c.any(0))
			if !ok {
				raise("TypeError", "bad operand type for abs(): '%s'", typeName(c.any(0)))
			}
			return value.Big(new(big.Int).Abs(asBig(n)))
		}),
		fn("int(value, default=0, base=10)", func(c *Call) any {
			if n, ok := ToInt(c.any(0), c.int(2)); ok {
				return n
			}
			return c.any(1)
		}),
		fn("float(value, default='missing')", func(c *Call) any {
			if f, ok := toFloat(c.any(0)); ok {
				return f
			}
			if c.any(1) == "missing" {
				return 0.0
			}
			return c.any(1)
		}),
		fn("round(value, precision=0, method='common')", roundFilter),
		fn("filesizeformat(value, binary=False)", filesize),
	)
}

// ToInt is Python's int() of a number or string; ok is false where Python
// fails.
func ToInt(v any, base int) (n any, ok bool) {
	switch x := v.(type) {
	case float64:
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, false
		}
		return truncate(x), true
	case *Undefined:
		x.fail()
	case []byte:
		v = string(x)
	}
	if n, ok := asInt(v); ok {
		return n, true
	}
	s, ok := text(v)
	if !ok {
		return nil, false
	}
	if n, ok := ParseInt(s, base); ok {
		return n, true
	}
	if f, ok := toFloat(s); ok && !math.IsNaN(f) && !math.IsInf(f, 0) {
		return truncate(f), true
	}
	return nil, false
}

// ParseInt parses an integer as Python's int() does.
func ParseInt(s string, base int) (any, bool) {
	s = strings.TrimFunc(s, isPySpace)
	if len(s) > maxDigits || strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
		return nil, false
	}
	if base != 0 && (base < 2 || base > 36) {
		return nil, false
	}
	sign, digits := "", s
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, digits = s[:1], s[1:]
	}
	if prefix := map[int]string{2: "0b", 8: "0o", 16: "0x"}[base]; prefix != "" && strings.HasPrefix(strings.ToLower(digits), prefix) {
		digits = digits[2:]
	}
	if base != 0 {
		digits = strings.ReplaceAll(digits, "_", "")
	}
	if digits == "" || digits[0] == '-' || digits[0] == '+' {
		return nil, false
	}
	digits = asciiDigits(digits)
	n, ok := new(big.Int).SetString(sign+digits, base)
	if !ok {
		return nil, false
	}
	return value.Big(n), true
}

// asciiDigits converts digits of other scripts to ASCII.
func asciiDigits(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r >= 0x80 }) < 0 {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r >= 0x80 && unicode.IsDigit(r) {
			z := r
			for unicode.IsDigit(z-1) && r-z < 9 {
				z--
			}
			return '0' + r - z
		}
		return r
	}, s)
}

func toFloat(v any) (float64, bool) {
	if f, ok := asFloat(v); ok {
		return f, true
	}
	switch x := v.(type) {
	case *Undefined:
		x.fail()
	case []byte:
		v = string(x)
	}
	s, ok := text(v)
	if !ok {
		return 0, false
	}
	s = strings.ToLower(strings.TrimFunc(s, isPySpace))
	if strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") || strings.ContainsAny(s, "xp") {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// ToFloat is Python's float() of a number or string; ok is false where Python
// fails.
func ToFloat(v any) (float64, bool) { return toFloat(v) }

func roundFilter(c *Call) any {
	method := c.str(2)
	if method != "common" && method != "ceil" && method != "floor" {
		raise(FilterArgument, "method must be common, ceil or floor")
	}
	prec := c.int(1)
	if method == "common" {
		if n, ok := asInt(c.any(0)); ok {
			if prec >= 0 {
				return n
			}
			return roundInt(asBig(n), -prec)
		}
		x, ok := c.any(0).(float64)
		if !ok {
			if u, is := c.any(0).(*Undefined); is {
				u.fail()
			}
			raise("TypeError", "type %s doesn't define __round__ method", typeName(c.any(0)))
		}
		return Round(x, prec)
	}
	x, ok := asFloat(c.any(0))
	if !ok {
		raise("TypeError", "must be real number, not %s", typeName(c.any(0)))
	}
	p := math.Pow(10, float64(prec))
	if method == "ceil" {
		return math.Ceil(x*p) / p
	}
	return math.Floor(x*p) / p
}

func roundInt(n *big.Int, digits int) any {
	if digits > maxDigits {
		return int64(0)
	}
	p := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil)
	q, m := new(big.Int).DivMod(n, p, new(big.Int))
	switch c := new(big.Int).Lsh(m, 1).Cmp(p); {
	case c > 0, c == 0 && q.Bit(0) == 1:
		q.Add(q, big.NewInt(1))
	}
	return value.Big(q.Mul(q, p))
}

// Round is Python's round() of a float.
func Round(x float64, prec int) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) || prec > 330 {
		return x
	}
	if prec >= 0 {
		f, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'f', prec, 64), 64)
		return f
	}
	if prec < -330 {
		return math.Copysign(0, x)
	}
	p := math.Pow(10, float64(-prec))
	return math.RoundToEven(x/p) * p
}

func filesize(c *Call) any {
	x, ok := toFloat(c.any(0))
	if !ok {
		raise("ValueError", "could not convert string to float: %s", repr(c.any(0)))
	}
	base, names := 1000.0, []string{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}
	if c.bool(1) {
		base, names = 1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}
	}
	if x == 1 {
		return "1 Byte"
	}
	if x < base {
		return fmt.Sprintf("%d Bytes", int64(x))
	}
	unit := base
	for i, n := range names {
		unit *= base
		if x < unit || i == len(names)-1 {
			return fmt.Sprintf("%.1f %s", base*x/unit, n)
		}
	}
	return ""
}

func webFilters() map[string]*Func {
	return table(
		fn("escape(value)", func(c *Call) any { return escape(c.any(0)) }),
		fn("forceescape(value)", func(c *Call) any { return escapeText(str(c.any(0))) }),
		fn("safe(value)", func(c *Call) any { return Markup(str(c.any(0))) }),
		fn("urlencode(value)", func(c *Call) any { return urlencode(c.any(0)) }),
		fn("tojson(value, indent=None)", func(c *Call) any {
			f := json.Format{ASCII: true, SortKeys: true}
			v, err := Plain(c.any(0))
			if err != nil {
				raiseErr(err)
			}
			if c.any(1) != nil {
				n := max(0, c.int(1))
				levels := indentedLevels(v, 0, c.f.rt.env.o.MaxOutput/max(1, n))
				if n > 0 && levels > c.f.rt.env.o.MaxOutput/n {
					c.Reserve(-1)
				}
				if levels == 0 {
					n = 0 // nothing is indented
				}
				c.Reserve(3 * levels * n)
				f.Indent = json.Spaces(n)
			}
			s, err := json.Dump(v, f)
			if err != nil {
				raise("TypeError", "%s", err)
			}
			return Markup(strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`, "'", `\u0027`).Replace(s))
		}),
		fn("xmlattr(d, autospace=True)", xmlattr),
		fn("urlize(value, trim_url_limit=None, nofollow=False, target=None, rel=None, extra_schemes=None)", urlize),
	)
}

// indentedLevels returns the sum of the levels by which the lines of a value
// are indented in JSON. It stops above most.
func indentedLevels(v any, level, most int) (n int) {
	each := func(v any) bool {
		n += level + 1
		if n <= most {
			n += indentedLevels(v, level+1, most-n)
		}
		return n <= most
	}
	switch v := v.(type) {
	case *value.Dict:
		for _, x := range v.All() {
			if !each(x) {
				return n
			}
		}
	case *value.List:
		for _, x := range v.Items {
			if !each(x) {
				return n
			}
		}
	case value.Tuple:
		for _, x := range v {
			if !each(x) {
				return n
			}
		}
	}
	if n > 0 {
		n += level // the closing bracket
	}
	return n
}

func quoteURL(s string, slash bool) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_.-~", c) >= 0 || slash && c == '/' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func urlencode(v any) string {
	var pairs []any
	switch x := v.(type) {
	case *value.Dict:
		pairs = view{x, 'i'}.list()
	default:
		if _, ok := text(v); ok {
			return quoteURL(str(v), true)
		}
		if _, ok := iterate(v); !ok {
			return quoteURL(str(v), true)
		}
		pairs = items(v)
	}
	out := make([]string, len(pairs))
	for i, p := range pairs {
		kv := pairOf(p, i)
		out[i] = strings.ReplaceAll(quoteURL(str(kv[0]), false), "%20", "+") + "=" + strings.ReplaceAll(quoteURL(str(kv[1]), false), "%20", "+")
	}
	return strings.Join(out, "&")
}

func xmlattr(c *Call) any {
	d, ok := c.any(0).(*value.Dict)
	if !ok {
		raise("TypeError", "xmlattr needs a dict, not %s", typeName(c.any(0)))
	}
	var out []string
	for k, v := range d.All() {
		if v == nil || isUndefined(v) {
			continue
		}
		out = append(out, string(escape(k))+`="`+string(escape(v))+`"`)
	}
	s := strings.Join(out, " ")
	if c.bool(1) && s != "" {
		s = " " + s
	}
	if c.Escape() {
		return Markup(s)
	}
	return s
}

// urlize converts URLs in text to links.
func urlize(c *Call) any {
	rel := "noopener"
	if c.bool(2) {
		rel = "nofollow noopener"
	}
	if c.any(4) != nil {
		rel = strings.TrimSpace(c.str(4) + " " + rel)
	}
	target := ""
	if c.any(3) != nil {
		target = ` target="` + string(escape(c.any(3))) + `"`
	}
	link := regexp.MustCompile(`^(https?://|www\.)\S+$|^[\w.+-]+@[\w-]+(\.[\w-]+)+$`)
	words := regexp.MustCompile(`\s+|\S+`).FindAllString(string(escape(c.any(0))), -1)
	for i, w := range words {
		core := strings.TrimRight(strings.TrimLeft(w, "("), ".,)")
		if core == "" || !link.MatchString(core) {
			continue
		}
		at := strings.Index(w, core)
		href, shown := core, core
		switch {
		case strings.HasPrefix(core, "www."):
			href = "https://" + core
		case !strings.Contains(core, "://"):
			words[i] = w[:at] + `<a href="mailto:` + core + `">` + core + `</a>` + w[at+len(core):]
			continue
		}
		if _, err := url.Parse(href); err != nil {
			continue
		}
		if c.any(1) != nil && runeLen(shown) > c.int(1) {
			shown = cutRunes(shown, c.int(1)) + "..."
		}
		words[i] = w[:at] + `<a href="` + href + `" rel="` + rel + `"` + target + `>` + shown + `</a>` + w[at+len(core):]
	}
	s := strings.Join(words, "")
	if c.Escape() {
		return Markup(s)
	}
	return s
}

var _ = utf8.RuneError
