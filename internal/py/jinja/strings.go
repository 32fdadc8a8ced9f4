package jinja

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"brine/internal/py/value"
)

func self(c *Call) string { s, _ := text(c.Bound[0]); return s }

// like gives a string the type of the method's value: str or Markup.
func like(c *Call, s string) any {
	if _, ok := c.Bound[0].(Markup); ok {
		return Markup(s)
	}
	return s
}

// piece returns an argument that becomes part of the result: escaped for
// Markup.
func piece(c *Call, i int) string {
	if _, ok := c.Bound[0].(Markup); ok {
		return string(escape(c.Bound[i]))
	}
	return c.str(i)
}

func likeAll(c *Call, parts []string) *value.List {
	l := &value.List{Items: make([]any, len(parts))}
	for i, p := range parts {
		if _, ok := c.Bound[0].(Markup); ok {
			l.Items[i] = Markup(p)
		} else {
			l.Items[i] = p
		}
	}
	return l
}

func strMethods() map[string]*Func {
	m := table(
		fn("format(self, *args, **kwargs)", func(c *Call) any {
			return like(c, formatText(c.f, c.any(0), c.any(1).(value.Tuple), c.any(2).(*value.Dict)))
		}),
		fn("format_map(self, mapping)", func(c *Call) any {
			d, ok := c.any(1).(*value.Dict)
			if !ok {
				raise("TypeError", "format_map() needs a mapping, not %s", typeName(c.any(1)))
			}
			return like(c, formatText(c.f, c.any(0), nil, d))
		}),
		fn("join(self, iterable)", func(c *Call) any {
			var b strings.Builder
			for i, v := range items(c.any(1)) {
				if i > 0 {
					b.WriteString(self(c))
				}
				if _, ok := c.Bound[0].(Markup); ok {
					b.WriteString(string(escape(v)))
					continue
				}
				s, ok := text(v)
				if !ok {
					if u, is := v.(*Undefined); is {
						s = u.text()
					} else {
						raise("TypeError", "sequence item %d: expected str instance, %s found", i, typeName(v))
					}
				}
				c.Reserve(3 * (b.Len() + len(self(c)) + len(s)))
				b.WriteString(s)
			}
			return like(c, b.String())
		}),
		fn("encode(self, encoding='utf-8', errors='strict')", func(c *Call) any { return encode(self(c), c.str(1), c.str(2)) }),
		fn("replace(self, old, new, count=-1)", func(c *Call) any {
			old, new := c.str(1), piece(c, 2)
			return like(c, replace(c, self(c), old, new, c.int(3)))
		}),
	)
	for _, t := range []map[string]*Func{caseMethods(), searchMethods(), splitMethods(), padMethods(), isMethods()} {
		for k, f := range t {
			m[k] = f
		}
	}
	return m
}

// replace is strings.Replace within MaxOutput.
func replace(c *Call, s, old, new string, most int) string {
	n := strings.Count(s, old)
	if most >= 0 {
		n = min(n, most)
	}
	if more := len(new) - len(old); more > 0 && n > 0 {
		if n > c.f.rt.env.o.MaxOutput/more {
			c.Reserve(-1)
		}
		c.Reserve(len(s) + n*more)
	}
	return strings.Replace(s, old, new, most)
}

func caseMethods() map[string]*Func {
	wrap := func(name string, do func(string) string) *Func {
		return fn(name+"(self)", func(c *Call) any { return like(c, do(self(c))) })
	}
	return table(
		wrap("upper", upper), wrap("lower", strings.ToLower), wrap("title", title), wrap("capitalize", capitalize),
		wrap("casefold", casefold), wrap("swapcase", swapcase),
		fn("translate(self, table)", func(c *Call) any {
			d, ok := c.any(1).(*value.Dict)
			if !ok {
				raise("TypeError", "translate() needs a dict")
			}
			return like(c, translate(c, self(c), d))
		}),
		fn("maketrans(self, x, y=None, z=None)", func(c *Call) any { return maketrans(c) }),
	)
}

func upper(s string) string { return strings.ReplaceAll(strings.ToUpper(s), "ß", "SS") }

func casefold(s string) string { return strings.ReplaceAll(strings.ToLower(s), "ß", "ss") }

func capitalize(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return ""
	}
	first := string(unicode.ToTitle(r))
	if r == 'ß' { // package unicode maps single characters only
		first = "Ss"
	}
	return first + strings.ToLower(s[n:])
}

// title is str.title(): a letter after a non-letter becomes a capital.
func title(s string) string {
	var b strings.Builder
	inWord := false
	for _, r := range s {
		switch {
		case !unicode.IsLetter(r):
			inWord = false
			b.WriteRune(r)
		case inWord:
			b.WriteRune(unicode.ToLower(r))
		default:
			inWord = true
			b.WriteRune(unicode.ToTitle(r))
		}
	}
	return b.String()
}

func swapcase(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsUpper(r) {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, s)
}

func translate(c *Call, s string, d *value.Dict) string {
	var b strings.Builder
	for _, r := range s {
		switch v := d.At(int64(r)).(type) {
		case string:
			b.WriteString(v)
			c.Reserve(3 * b.Len())
		case int64:
			b.WriteRune(rune(v))
		case nil:
			if !d.Has(int64(r)) {
				b.WriteRune(r)
			}
		}
	}
	return b.String()
}

func maketrans(c *Call) any {
	out := value.NewDict(0)
	if d, ok := c.any(1).(*value.Dict); ok {
		for k, v := range d.All() {
			if s, ok := k.(string); ok {
				r, _ := utf8.DecodeRuneInString(s)
				k = int64(r)
			}
			out.Set(k, v)
		}
		return out
	}
	from, to := []rune(c.str(1)), []rune(c.str(2))
	if len(from) != len(to) {
		raise("ValueError", "the first two maketrans arguments must have equal length")
	}
	for i, r := range from {
		out.Set(int64(r), int64(to[i]))
	}
	if c.any(3) != nil {
		for _, r := range c.str(3) {
			out.Set(int64(r), nil)
		}
	}
	return out
}

// part returns s[start:stop] and the number of characters before it. ok is
// false when start is after the end.
func part(c *Call, start, stop int) (s string, before int, ok bool) {
	s = self(c)
	if c.Bound[start] == nil && c.Bound[stop] == nil {
		return s, 0, true
	}
	rs := []rune(s)
	if i := c.Bound[start]; i != nil && c.int(start) > len(rs) {
		return "", 0, false
	}
	from, _, n := sliceBounds(len(rs), c.Bound[start], c.Bound[stop], nil)
	return string(rs[from : from+n]), from, true
}

func searchMethods() map[string]*Func {
	find := func(c *Call, last bool) int64 {
		s, before, ok := part(c, 2, 3)
		if !ok {
			return -1
		}
		i := strings.Index(s, c.str(1))
		if last {
			i = strings.LastIndex(s, c.str(1))
		}
		if i < 0 {
			return -1
		}
		return int64(before + runeLen(s[:i]))
	}
	finder := func(name string, last, must bool) *Func {
		return fn(name+"(self, sub, start=None, end=None)", func(c *Call) any {
			i := find(c, last)
			if must && i < 0 {
				raise("ValueError", "substring not found")
			}
			return i
		})
	}
	affix := func(name string, has func(s, p string) bool) *Func {
		return fn(name+"(self, prefix, start=None, end=None)", func(c *Call) any {
			s, _, ok := part(c, 2, 3)
			if !ok {
				return false
			}
			if t, is := c.any(1).(value.Tuple); is {
				for _, p := range t {
					if p, ok := text(p); ok && has(s, p) {
						return true
					}
				}
				return false
			}
			p, is := text(c.any(1))
			if !is {
				raise("TypeError", "%s first arg must be str or a tuple of str, not %s", name, typeName(c.any(1)))
			}
			return has(s, p)
		})
	}
	return table(
		finder("find", false, false), finder("rfind", true, false), finder("index", false, true), finder("rindex", true, true),
		affix("startswith", strings.HasPrefix), affix("endswith", strings.HasSuffix),
		fn("count(self, sub, start=None, end=None)", func(c *Call) any {
			s, _, ok := part(c, 2, 3)
			if !ok {
				return int64(0)
			}
			return int64(strings.Count(s, c.str(1)))
		}),
		fn("removeprefix(self, prefix)", func(c *Call) any { return like(c, strings.TrimPrefix(self(c), c.str(1))) }),
		fn("removesuffix(self, suffix)", func(c *Call) any { return like(c, strings.TrimSuffix(self(c), c.str(1))) }),
	)
}

func splitMethods() map[string]*Func {
	return table(
		fn("split(self, sep=None, maxsplit=-1)", func(c *Call) any {
			if c.any(1) == nil {
				return likeAll(c, fields(self(c), c.int(2)))
			}
			if c.str(1) == "" {
				raise("ValueError", "empty separator")
			}
			n := c.int(2)
			if n >= 0 {
				n++
			}
			c.Reserve(32 * strings.Count(self(c), c.str(1)))
			return likeAll(c, strings.SplitN(self(c), c.str(1), n))
		}),
		fn("rsplit(self, sep=None, maxsplit=-1)", func(c *Call) any {
			if c.any(1) != nil && c.str(1) == "" {
				raise("ValueError", "empty separator")
			}
			return likeAll(c, rsplit(self(c), c.any(1), c.int(2)))
		}),
		fn("splitlines(self, keepends=False)", func(c *Call) any { return likeAll(c, value.SplitLines(self(c), c.bool(1))) }),
		fn("partition(self, sep)", func(c *Call) any {
			a, b, ok := strings.Cut(self(c), sep(c))
			if !ok {
				return value.Tuple{like(c, a), like(c, ""), like(c, "")}
			}
			return value.Tuple{like(c, a), like(c, c.str(1)), like(c, b)}
		}),
		fn("rpartition(self, sep)", func(c *Call) any {
			s, p := self(c), sep(c)
			i := strings.LastIndex(s, p)
			if i < 0 {
				return value.Tuple{like(c, ""), like(c, ""), like(c, s)}
			}
			return value.Tuple{like(c, s[:i]), like(c, p), like(c, s[i+len(p):])}
		}),
	)
}

func sep(c *Call) string {
	s := c.str(1)
	if s == "" {
		raise("ValueError", "empty separator")
	}
	return s
}

// fields splits at blanks, at most n times unless n is negative.
func fields(s string, n int) []string {
	if n < 0 {
		return strings.FieldsFunc(s, isPySpace)
	}
	var out []string
	for {
		s = strings.TrimLeftFunc(s, isPySpace)
		if s == "" {
			return out
		}
		i := strings.IndexFunc(s, isPySpace)
		if n == 0 || i < 0 {
			return append(out, strings.TrimRightFunc(s, isPySpace))
		}
		out = append(out, s[:i])
		s = s[i:]
		n--
	}
}

func rsplit(s string, sep any, n int) []string {
	var out []string
	for n != 0 {
		i, size := -1, 1
		if sep == nil {
			s = strings.TrimRightFunc(s, isPySpace)
			if s == "" {
				break
			}
			i = strings.LastIndexFunc(s, isPySpace)
			if i >= 0 {
				_, size = utf8.DecodeRuneInString(s[i:])
			}
		} else {
			p, _ := text(sep)
			i, size = strings.LastIndex(s, p), len(p)
		}
		if i < 0 {
			break
		}
		out = append(out, s[i+size:])
		s = s[:i]
		n--
	}
	if sep == nil {
		s = strings.TrimRightFunc(s, isPySpace)
		if n != 0 {
			s = strings.TrimSpace(s)
		}
	}
	if sep != nil || s != "" {
		out = append(out, s)
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

func padMethods() map[string]*Func {
	fill := func(c *Call) (string, int) {
		f := piece(c, 2)
		if runeLen(f) != 1 && f == c.str(2) {
			raise("TypeError", "The fill character must be exactly one character long")
		}
		n := max(0, c.int(1)-runeLen(self(c)))
		c.Reserve(2 * n * len(f))
		return f, n
	}
	stripper := func(name string, left, right bool) *Func {
		return fn(name+"(self, chars=None)", func(c *Call) any {
			in := isPySpace
			if c.any(1) != nil {
				set := c.str(1)
				in = func(r rune) bool { return strings.ContainsRune(set, r) }
			}
			s := self(c)
			if left {
				s = strings.TrimLeftFunc(s, in)
			}
			if right {
				s = strings.TrimRightFunc(s, in)
			}
			return like(c, s)
		})
	}
	return table(
		stripper("strip", true, true), stripper("lstrip", true, false), stripper("rstrip", false, true),
		fn("ljust(self, width, fillchar=' ')", func(c *Call) any {
			f, n := fill(c)
			return like(c, self(c)+strings.Repeat(f, n))
		}),
		fn("rjust(self, width, fillchar=' ')", func(c *Call) any {
			f, n := fill(c)
			return like(c, strings.Repeat(f, n)+self(c))
		}),
		fn("center(self, width, fillchar=' ')", func(c *Call) any {
			f, n := fill(c)
			left := n/2 + (n & c.int(1) & 1)
			return like(c, strings.Repeat(f, left)+self(c)+strings.Repeat(f, n-left))
		}),
		fn("zfill(self, width)", func(c *Call) any {
			s := self(c)
			n := max(0, c.int(1)-runeLen(s))
			c.Reserve(2 * n)
			sign := ""
			if s != "" && (s[0] == '-' || s[0] == '+') {
				sign, s = s[:1], s[1:]
			}
			return like(c, sign+strings.Repeat("0", n)+s)
		}),
		fn("expandtabs(self, tabsize=8)", func(c *Call) any { return like(c, expandTabs(c, self(c), c.int(1))) }),
	)
}

func expandTabs(c *Call, s string, size int) string {
	var b strings.Builder
	col := 0
	for _, r := range s {
		switch r {
		case '\t':
			if size > 0 {
				n := size - col%size
				c.Reserve(3 * (b.Len() + n))
				b.WriteString(strings.Repeat(" ", n))
				col += n
			}
		case '\n', '\r':
			b.WriteRune(r)
			col = 0
		default:
			b.WriteRune(r)
			col++
		}
	}
	return b.String()
}

func isMethods() map[string]*Func {
	all := func(name string, ok func(rune) bool) *Func {
		return fn(name+"(self)", func(c *Call) any {
			s := self(c)
			return s != "" && strings.IndexFunc(s, func(r rune) bool { return !ok(r) }) < 0
		})
	}
	number := func(r rune) bool { return unicode.IsNumber(r) }
	cased := func(name string, is, not func(rune) bool) *Func {
		return fn(name+"(self)", func(c *Call) any {
			return strings.IndexFunc(self(c), is) >= 0 && strings.IndexFunc(self(c), not) < 0
		})
	}
	return table(
		all("isalpha", unicode.IsLetter), all("isdigit", func(r rune) bool { return unicode.IsDigit(r) || r >= 0xb2 && r <= 0xb9 && number(r) }),
		all("isdecimal", unicode.IsDigit), all("isnumeric", number), all("isspace", isPySpace),
		all("isalnum", func(r rune) bool { return unicode.IsLetter(r) || number(r) }),
		fn("isprintable(self)", func(c *Call) any {
			return strings.IndexFunc(self(c), func(r rune) bool { return !unicode.IsPrint(r) }) < 0
		}),
		fn("isascii(self)", func(c *Call) any {
			return strings.IndexFunc(self(c), func(r rune) bool { return r >= 0x80 }) < 0
		}),
		cased("isupper", unicode.IsUpper, unicode.IsLower), cased("islower", unicode.IsLower, unicode.IsUpper),
		fn("istitle(self)", func(c *Call) any {
			return strings.IndexFunc(self(c), unicode.IsLetter) >= 0 && title(self(c)) == self(c)
		}),
		fn("isidentifier(self)", func(c *Call) any {
			for i, r := range self(c) {
				if r != '_' && !unicode.IsLetter(r) && (i == 0 || !number(r)) {
					return false
				}
			}
			return self(c) != ""
		}),
	)
}

func codec(name string) string {
	switch strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(name)) {
	case "utf8", "u8":
		return "utf-8"
	case "ascii", "usascii", "646":
		return "ascii"
	case "latin1", "iso88591", "l1", "latin":
		return "latin-1"
	}
	raise("LookupError", "unknown encoding: %s", name)
	return ""
}

func encode(s, encoding, errors string) []byte {
	limit := map[string]rune{"ascii": 0x7f, "latin-1": 0xff}[codec(encoding)]
	if limit == 0 {
		return []byte(s)
	}
	var b bytes.Buffer
	for i, r := range []rune(s) {
		switch {
		case r <= limit:
			b.WriteByte(byte(r))
		case errors == "ignore":
		case errors == "replace":
			b.WriteByte('?')
		case errors == "xmlcharrefreplace":
			b.WriteString("&#" + value.Str(int64(r)) + ";")
		case errors == "backslashreplace":
			b.WriteString(strings.Trim(value.Repr([]byte(string(r))), "b'"))
		default:
			raise("UnicodeEncodeError", "'%s' codec can't encode character %s in position %d: ordinal not in range(%d)",
				codec(encoding), ascii(value.Repr(string(r))), i, limit+1)
		}
	}
	return b.Bytes()
}

func decode(b []byte, encoding, errors string) string {
	limit := map[string]byte{"ascii": 0x7f, "latin-1": 0xff}[codec(encoding)]
	var out strings.Builder
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if limit != 0 {
			r, n = rune(b[i]), 1
			if b[i] > limit {
				r = utf8.RuneError
			}
		}
		if r == utf8.RuneError && n == 1 {
			switch errors {
			case "ignore":
			case "replace":
				out.WriteRune(r)
			default:
				raise("UnicodeDecodeError", "'%s' codec can't decode byte 0x%02x in position %d: invalid start byte", codec(encoding), b[i], i)
			}
			i++
			continue
		}
		out.WriteRune(r)
		i += n
	}
	return out.String()
}

// Encode is str.encode().
func Encode(s, encoding, errors string) []byte { return encode(s, encoding, errors) }
