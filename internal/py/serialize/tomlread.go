package serialize

import (
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"brine/internal/py/value"
)

// readTOML reads TOML 1.0. Maps keep the order of the text, which is why it
// is read here: libraries for Go lose it.
func readTOML(data []byte, opts *value.Dict) (v any, err error) {
	o := of("toml", opts)
	o.null("decoder", "_dict")
	if err := o.done(); err != nil {
		return nil, err
	}
	if !utf8.Valid(data) {
		return nil, errText
	}
	p := &tomlReader{s: strings.ReplaceAll(string(data), "\r\n", "\n"), root: value.NewDict(0), kinds: map[any]tomlKind{}}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case tomlError:
			v, err = nil, fmt.Errorf("toml: line %d: %s", 1+strings.Count(p.s[:min(p.i, len(p.s))], "\n"), string(e))
		default:
			panic(e)
		}
	}()
	p.document()
	return p.root, nil
}

// tomlKind says how a table or array came about, and so what may be added.
type tomlKind uint8

const (
	tomlImplicit tomlKind = iota + 1 // a part of the name of a table
	tomlHeader                       // [name]
	tomlDotted                       // a part of a dotted key
	tomlArray                        // [[name]]
	tomlClosed                       // in braces or brackets
)

type tomlError string

type tomlReader struct {
	s     string
	i     int
	root  *value.Dict
	kinds map[any]tomlKind
}

func (p *tomlReader) fail(format string, args ...any) {
	panic(tomlError(fmt.Sprintf(format, args...)))
}

func (p *tomlReader) peek() byte {
	if p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0
}

func (p *tomlReader) has(text string) bool {
	if strings.HasPrefix(p.s[p.i:], text) {
		p.i += len(text)
		return true
	}
	return false
}

func (p *tomlReader) blanks() {
	for p.peek() == ' ' || p.peek() == '\t' {
		p.i++
	}
}

// gap skips blanks, line ends and comments.
func (p *tomlReader) gap() {
	for {
		p.blanks()
		switch p.peek() {
		case '\n':
			p.i++
		case '#':
			p.comment()
		default:
			return
		}
	}
}

func (p *tomlReader) comment() {
	for p.i < len(p.s) && p.s[p.i] != '\n' {
		if c := p.s[p.i]; c < 0x20 && c != '\t' || c == 0x7f {
			p.fail("a comment has the control character 0x%02x", c)
		}
		p.i++
	}
}

// lineEnd wants nothing but a comment on the rest of the line.
func (p *tomlReader) lineEnd() {
	p.blanks()
	if p.peek() == '#' {
		p.comment()
	}
	if p.i < len(p.s) && !p.has("\n") {
		p.fail("there is more on the line: %s", value.Repr(p.word()))
	}
}

// word is the beginning of what comes, for errors.
func (p *tomlReader) word() string {
	line, _, _ := strings.Cut(p.s[p.i:], "\n")
	if len(line) > 40 {
		line = strings.ToValidUTF8(line[:40], "") + "…"
	}
	return line
}

func (p *tomlReader) document() {
	p.s = strings.TrimPrefix(p.s, "\ufeff")
	cur, depth := p.root, 0
	for p.gap(); p.i < len(p.s); p.gap() {
		if p.has("[[") {
			path := p.path("]]")
			cur, depth = p.arrayTable(path), len(path)
		} else if p.has("[") {
			path := p.path("]")
			cur, depth = p.table(path), len(path)
		} else {
			p.pair(cur, depth)
		}
		p.lineEnd()
	}
}

// path reads a name with dots up to an end.
func (p *tomlReader) path(end string) []string {
	var out []string
	for {
		p.blanks()
		out = append(out, p.key())
		if len(out) > MaxDepth {
			p.fail("%s", errDeep)
		}
		p.blanks()
		if p.has(end) {
			return out
		}
		if !p.has(".") {
			p.fail("a name is followed by %s where %s should be", value.Repr(p.word()), end)
		}
	}
}

func (p *tomlReader) key() string {
	switch p.peek() {
	case '"', '\'':
		if strings.HasPrefix(p.s[p.i:], `"""`) || strings.HasPrefix(p.s[p.i:], "'''") {
			p.fail("a key cannot go over several lines")
		}
		return p.text()
	}
	start := p.i
	for c := p.peek(); c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'; c = p.peek() {
		p.i++
	}
	if p.i == start {
		p.fail("there is no key: %s", value.Repr(p.word()))
	}
	return p.s[start:p.i]
}

// step goes to a table within another, which is made if need be.
func (p *tomlReader) step(d *value.Dict, key string, kind tomlKind) *value.Dict {
	v, ok := d.Get(key)
	if !ok {
		next := value.NewDict(0)
		p.kinds[next] = kind
		d.Set(key, next)
		return next
	}
	if l, isList := v.(*value.List); isList && p.kinds[l] == tomlArray && kind != tomlDotted {
		return l.Items[l.Len()-1].(*value.Dict)
	}
	next, isDict := v.(*value.Dict)
	if had := p.kinds[next]; !isDict || had == tomlClosed || kind == tomlDotted && had != tomlDotted && had != tomlImplicit {
		p.fail("%s is set already, and nothing can be put into it here", key)
	}
	return next
}

func (p *tomlReader) table(path []string) *value.Dict {
	d := p.root
	for _, k := range path[:len(path)-1] {
		d = p.step(d, k, tomlImplicit)
	}
	last := path[len(path)-1]
	v, ok := d.Get(last)
	if !ok {
		return p.make(d, last, tomlHeader)
	}
	next, isDict := v.(*value.Dict)
	if !isDict || p.kinds[next] != tomlImplicit {
		p.fail("the table %s is there already", strings.Join(path, "."))
	}
	p.kinds[next] = tomlHeader
	return next
}

func (p *tomlReader) make(d *value.Dict, key string, kind tomlKind) *value.Dict {
	next := value.NewDict(0)
	p.kinds[next] = kind
	d.Set(key, next)
	return next
}

func (p *tomlReader) arrayTable(path []string) *value.Dict {
	d := p.root
	for _, k := range path[:len(path)-1] {
		d = p.step(d, k, tomlImplicit)
	}
	last := path[len(path)-1]
	v, ok := d.Get(last)
	if !ok {
		v = &value.List{}
		p.kinds[v] = tomlArray
		d.Set(last, v)
	}
	l, isList := v.(*value.List)
	if !isList || p.kinds[l] != tomlArray {
		p.fail("%s is there already, and no array of tables", strings.Join(path, "."))
	}
	next := value.NewDict(0)
	p.kinds[next] = tomlHeader
	l.Append(next)
	return next
}

// pair reads key = value into a table.
func (p *tomlReader) pair(d *value.Dict, depth int) {
	path := p.path("=")
	if depth += len(path); depth > MaxDepth {
		p.fail("%s", errDeep)
	}
	for _, k := range path[:len(path)-1] {
		d = p.step(d, k, tomlDotted)
	}
	last := path[len(path)-1]
	if d.Has(last) {
		p.fail("%s is set twice", strings.Join(path, "."))
	}
	p.blanks()
	d.Set(last, p.value(depth))
}

func (p *tomlReader) value(depth int) any {
	if depth > MaxDepth {
		p.fail("%s", errDeep)
	}
	switch p.peek() {
	case '"', '\'':
		return p.text()
	case '[':
		return p.array(depth)
	case '{':
		return p.inline(depth)
	}
	start := p.i
	for p.i < len(p.s) && !strings.ContainsRune(" \t\n,]}#=", rune(p.s[p.i])) {
		p.i++
	}
	if p.i-start == 10 && p.peek() == ' ' && p.i+3 < len(p.s) && p.s[p.i+1] >= '0' && p.s[p.i+1] <= '2' && p.s[p.i+3] == ':' && dateText().MatchString(p.s[start:p.i]) {
		for p.i++; p.i < len(p.s) && !strings.ContainsRune(" \t\n,]}#=", rune(p.s[p.i])); {
			p.i++
		}
	}
	v, ok := tomlScalar(p.s[start:p.i])
	if !ok {
		p.i = start
		p.fail("%s is no value", value.Repr(p.word()))
	}
	return v
}

func (p *tomlReader) array(depth int) *value.List {
	l := &value.List{}
	p.kinds[l] = tomlClosed
	p.i++
	for {
		p.gap()
		if p.has("]") {
			return l
		}
		l.Append(p.value(depth + 1))
		p.gap()
		if p.has("]") {
			return l
		}
		if !p.has(",") {
			p.fail("the items of an array must have commas between them: %s", value.Repr(p.word()))
		}
	}
}

func (p *tomlReader) inline(depth int) *value.Dict {
	d := value.NewDict(0)
	p.i++
	if p.blanks(); !p.has("}") {
		for {
			p.blanks()
			p.pair(d, depth)
			p.blanks()
			if p.has("}") {
				break
			}
			if !p.has(",") {
				p.fail("the values of a table in braces must have commas between them: %s", value.Repr(p.word()))
			}
		}
	}
	p.close(d)
	return d
}

// close forbids to add to a table, and to those that its dotted keys made.
func (p *tomlReader) close(d *value.Dict) {
	p.kinds[d] = tomlClosed
	for _, v := range d.All() {
		if next, ok := v.(*value.Dict); ok && p.kinds[next] == tomlDotted {
			p.close(next)
		}
	}
}

// text reads a text in quotes.
func (p *tomlReader) text() string {
	quote := p.s[p.i : p.i+1]
	many := p.has(strings.Repeat(quote, 3))
	if many {
		p.has("\n")
	} else {
		p.i++
	}
	var b strings.Builder
	for {
		if p.i >= len(p.s) {
			p.fail("a text has no end")
		}
		c := p.s[p.i]
		switch {
		case c == quote[0] && !many:
			p.i++
			return b.String()
		case c == quote[0] && p.has(strings.Repeat(quote, 3)):
			for n := 0; n < 2 && p.has(quote); n++ { // quotes just before the end
				b.WriteByte(quote[0])
			}
			return b.String()
		case c == '\\' && quote == `"`:
			p.i++
			p.escape(&b, many)
		case c == '\n' && !many:
			p.fail("a text has no end on its line")
		case c < 0x20 && c != '\t' && c != '\n' || c == 0x7f:
			p.fail("a text has the control character 0x%02x", c)
		default:
			b.WriteByte(c)
			p.i++
		}
	}
}

func (p *tomlReader) escape(b *strings.Builder, many bool) {
	c := p.peek()
	p.i++
	if at := strings.IndexByte(`btnfr"\`, c); at >= 0 && c != 0 {
		b.WriteByte("\b\t\n\f\r\"\\"[at])
		return
	}
	digits := map[byte]int{'u': 4, 'U': 8}[c]
	if digits > 0 && p.i+digits <= len(p.s) {
		n, err := strconv.ParseUint(p.s[p.i:p.i+digits], 16, 32)
		if err == nil && utf8.ValidRune(rune(n)) && n <= utf8.MaxRune {
			b.WriteRune(rune(n))
			p.i += digits
			return
		}
	}
	if p.i--; many {
		if rest := strings.TrimLeft(p.s[p.i:], " \t"); strings.HasPrefix(rest, "\n") {
			p.i = len(p.s) - len(strings.TrimLeft(rest, " \t\n"))
			return
		}
	}
	p.fail("a text has a backslash before what cannot be escaped: %s", value.Repr(p.word()))
}

var (
	intTOML = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:[-+]?(?:0|[1-9](?:_?[0-9])*)|0x[0-9a-fA-F](?:_?[0-9a-fA-F])*|0o[0-7](?:_?[0-7])*|0b[01](?:_?[01])*)$`)
	})
	realTOML = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[-+]?(?:0|[1-9](?:_?[0-9])*)(?:\.[0-9](?:_?[0-9])*)?(?:[eE][-+]?[0-9](?:_?[0-9])*)?$`)
	})
	dateText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]{4})-([0-9]{2})-([0-9]{2})$`) })
	timeTOML = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ])?([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?([Zz]|[-+][0-9]{2}:[0-9]{2})?$`)
	})
)

func tomlScalar(s string) (any, bool) {
	switch s {
	case "true", "false":
		return s == "true", true
	case "inf", "+inf", "-inf", "nan", "+nan", "-nan":
		f, err := strconv.ParseFloat(strings.TrimLeft(s, "+"), 64)
		if err != nil { // Go knows no sign of nan
			f, err = strconv.ParseFloat("nan", 64)
		}
		return f, err == nil
	}
	if len(s) > 4300 {
		return nil, false
	}
	bare := strings.ReplaceAll(s, "_", "")
	switch {
	case intTOML().MatchString(s):
		n, ok := new(big.Int).SetString(strings.TrimPrefix(bare, "+"), 0)
		return value.Big(n), ok
	case realTOML().MatchString(s):
		f, err := strconv.ParseFloat(bare, 64)
		return f, err == nil || strings.Contains(err.Error(), "range")
	}
	return tomlTime(s)
}

// tomlTime reads a date or time and gives it the form that Python writes.
func tomlTime(s string) (any, bool) {
	if dateText().MatchString(s) {
		return value.Const{Name: tomlDate, Value: s}, validDay(s)
	}
	m := timeTOML().FindStringSubmatch(s)
	if m == nil || m[1] == "" && m[6] != "" || m[1] != "" && !validDay(m[1]) || m[2] > "23" || m[3] > "59" || m[4] > "59" {
		return nil, false
	}
	out := m[2] + ":" + m[3] + ":" + m[4]
	if frac := (m[5] + "000000")[:6]; frac != "000000" {
		out += "." + frac
	}
	if m[1] != "" {
		out = m[1] + "T" + out
	}
	switch zone := strings.ToUpper(m[6]); {
	case zone == "+00:00", zone == "-00:00":
		out += "Z"
	case len(zone) > 1 && (zone[1:3] > "23" || zone[4:] > "59"):
		return nil, false
	default:
		out += zone
	}
	return value.Const{Name: tomlDate, Value: out}, true
}

func validDay(s string) bool {
	m := dateText().FindStringSubmatch(s)
	if m == nil {
		return false
	}
	y, _ := strconv.Atoi(m[1])
	mo, _ := strconv.Atoi(m[2])
	d, _ := strconv.Atoi(m[3])
	if y < 1 || mo < 1 || mo > 12 || d < 1 {
		return false
	}
	days := []int{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}[mo-1]
	if mo == 2 && y%4 == 0 && (y%100 != 0 || y%400 == 0) {
		days = 29
	}
	return d <= days
}
