package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"brine/internal/py/value"
)

// maxWidth bounds widths and precisions in formats.
const maxWidth = 1 << 20

// percent is Python's % on a string.
func percent(f *frame, s string, self, arg any) any {
	p := &percentFormat{f: f, s: s, arg: arg}
	p.args = []any{arg}
	if t, ok := arg.(value.Tuple); ok {
		p.args = t
	}
	_, p.markup = self.(Markup)
	p.run()
	if p.markup {
		return Markup(p.b.String())
	}
	return p.b.String()
}

type percentFormat struct {
	f      *frame
	s      string
	i      int
	arg    any
	args   []any
	next   int
	mapped bool
	markup bool
	b      strings.Builder
}

func (p *percentFormat) take() any {
	if p.next >= len(p.args) {
		raise("TypeError", "not enough arguments for format string")
	}
	p.next++
	return p.args[p.next-1]
}

func (p *percentFormat) run() {
	for {
		j := strings.IndexByte(p.s[p.i:], '%')
		if j < 0 {
			p.b.WriteString(p.s[p.i:])
			break
		}
		p.b.WriteString(p.s[p.i : p.i+j])
		p.i += j + 1
		p.f.rt.tick()
		p.f.rt.reserve(3 * p.b.Len())
		p.one()
	}
	_, isDict := p.arg.(*value.Dict)
	_, isList := p.arg.(*value.List)
	if p.next < len(p.args) && !p.mapped && !isDict && !isList {
		raise("TypeError", "not all arguments converted during string formatting")
	}
}

func (p *percentFormat) peek() byte {
	if p.i >= len(p.s) {
		raise("ValueError", "incomplete format")
	}
	return p.s[p.i]
}

// one formats one conversion.
func (p *percentFormat) one() {
	var v any
	keyed := false
	if p.peek() == '(' {
		depth, start := 1, p.i+1
		for p.i++; depth > 0; p.i++ {
			switch p.peek() {
			case '(':
				depth++
			case ')':
				depth--
			}
		}
		d, ok := p.arg.(*value.Dict)
		if !ok {
			raise("TypeError", "format requires a mapping")
		}
		key := p.s[start : p.i-1]
		if v, ok = d.Get(key); !ok {
			raise("KeyError", "%s", value.Repr(key))
		}
		keyed, p.mapped = true, true
	}
	var sp spec
	sp.prec = -1
	for strings.IndexByte("#0- +", p.peek()) >= 0 {
		switch p.peek() {
		case '#':
			sp.alt = true
		case '0':
			sp.zero = true
		case '-':
			sp.align = '<'
		case ' ':
			if sp.sign == 0 {
				sp.sign = ' '
			}
		case '+':
			sp.sign = '+'
		}
		p.i++
	}
	if w, ok := p.number(); ok {
		if w < 0 {
			sp.align, w = '<', -w
		}
		sp.width = w
	}
	if p.peek() == '.' {
		p.i++
		sp.prec, _ = p.number()
		sp.prec = max(0, sp.prec)
	}
	for strings.IndexByte("hlL", p.peek()) >= 0 {
		p.i++
	}
	conv := p.peek()
	p.i++
	if conv == '%' {
		p.b.WriteByte('%')
		return
	}
	if !keyed {
		v = p.take()
	}
	p.convert(conv, v, sp)
}

func (p *percentFormat) number() (int, bool) {
	if p.peek() == '*' {
		p.i++
		n, ok := p.take().(int64)
		if !ok {
			raise("TypeError", "* wants int")
		}
		return checkWidth(n), true
	}
	start := p.i
	for p.peek() >= '0' && p.peek() <= '9' {
		p.i++
	}
	if start == p.i {
		return 0, false
	}
	n, err := strconv.ParseInt(p.s[start:p.i], 10, 64)
	if err != nil {
		n = math.MaxInt64
	}
	return checkWidth(n), true
}

func checkWidth(n int64) int {
	if n > maxWidth || n < -maxWidth {
		raise("ValueError", "a width in a format exceeds %d", maxWidth)
	}
	return int(n)
}

func (p *percentFormat) convert(conv byte, v any, sp spec) {
	switch conv {
	case 's', 'r', 'a':
		s := ""
		switch {
		case conv == 's' && p.markup:
			s = string(escape(v))
		case conv == 's':
			s = str(v)
		default:
			s = repr(v)
		}
		if conv == 'a' {
			s = ascii(s)
		}
		if sp.prec >= 0 {
			s = cutRunes(s, sp.prec)
		}
		sp.zero = false
		p.b.WriteString(sp.pad(s, '>'))
	case 'd', 'i', 'u', 'x', 'X', 'o':
		p.b.WriteString(percentInt(conv, v, sp))
	case 'e', 'E', 'f', 'F', 'g', 'G':
		x, ok := asFloat(v)
		if !ok {
			raise("TypeError", "must be real number, not %s", typeName(v))
		}
		sp.kind = conv
		p.b.WriteString(sp.number(formatFloat(math.Abs(x), sp), math.Signbit(x)))
	case 'c':
		s, ok := text(v)
		if n, is := v.(int64); is {
			s, ok = string(rune(n)), true
		}
		if !ok || runeLen(s) != 1 {
			raise("TypeError", "%%c requires int or char")
		}
		sp.zero = false
		p.b.WriteString(sp.pad(s, '>'))
	default:
		r, _ := utf8.DecodeRuneInString(p.s[p.i-1:])
		raise("ValueError", "unsupported format character '%c' (0x%x) at index %d", r, r, runeLen(p.s[:p.i-1]))
	}
}

func percentInt(conv byte, v any, sp spec) string {
	if x, ok := v.(float64); ok && strings.IndexByte("diu", conv) >= 0 {
		v = truncate(x)
	}
	n, ok := asInt(v)
	if !ok {
		if u, is := v.(*Undefined); is {
			u.fail()
		}
		if strings.IndexByte("xXo", conv) >= 0 {
			raise("TypeError", "%%%c format: an integer is required, not %s", conv, typeName(v))
		}
		raise("TypeError", "%%%c format: a real number is required, not %s", conv, typeName(v))
	}
	i := asBig(n)
	if i.BitLen() > maxDigits*10/3 {
		raise("ValueError", "Exceeds the limit (%d digits) for integer string conversion", maxDigits)
	}
	digits, prefix := "", ""
	abs := new(big.Int).Abs(i)
	switch conv {
	case 'x':
		digits, prefix = abs.Text(16), "0x"
	case 'X':
		digits, prefix = strings.ToUpper(abs.Text(16)), "0X"
	case 'o':
		digits, prefix = abs.Text(8), "0o"
	default:
		digits = abs.String()
	}
	if len(digits) < sp.prec {
		digits = strings.Repeat("0", sp.prec-len(digits)) + digits
	}
	if !sp.alt {
		prefix = ""
	}
	return sp.prefixed(prefix, digits, i.Sign() < 0)
}

// truncate is Python's int() of a float.
func truncate(x float64) any {
	if math.IsNaN(x) {
		raise("ValueError", "cannot convert float NaN to integer")
	}
	if math.IsInf(x, 0) {
		raise("OverflowError", "cannot convert float infinity to integer")
	}
	n, _ := big.NewFloat(x).Int(nil)
	return value.Big(n)
}

func ascii(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < 0x80:
			b.WriteRune(r)
		case r <= 0xff:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}

func cutRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// spec is Python's format specification.
type spec struct {
	fill  string
	align byte // < > ^ = or 0
	sign  byte // + - blank or 0
	alt   bool
	zero  bool
	width int
	group byte // , _ or 0
	prec  int  // -1 if not given
	kind  byte // 0 if not given
}

func parseSpec(s string, v any) spec {
	sp := spec{prec: -1}
	whole := s
	if r, n := utf8.DecodeRuneInString(s); r != utf8.RuneError && len(s) > n && strings.IndexByte("<>=^", s[n]) >= 0 {
		sp.fill, sp.align = s[:n], s[n]
		s = s[n+1:]
	} else if s != "" && strings.IndexByte("<>=^", s[0]) >= 0 {
		sp.align = s[0]
		s = s[1:]
	}
	eat := func(set string) byte {
		if s != "" && strings.IndexByte(set, s[0]) >= 0 {
			c := s[0]
			s = s[1:]
			return c
		}
		return 0
	}
	sp.sign = eat("+- ")
	eat("z")
	sp.alt = eat("#") != 0
	if sp.fill == "" && eat("0") != 0 {
		sp.zero = true
	}
	digits := func() (int, bool) {
		i := 0
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		if i == 0 {
			return 0, false
		}
		n, err := strconv.ParseInt(s[:i], 10, 64)
		if err != nil {
			raise("ValueError", "Too many decimal digits in format string")
		}
		s = s[i:]
		return checkWidth(n), true
	}
	sp.width, _ = digits()
	sp.group = eat(",_")
	if eat(".") != 0 {
		var ok bool
		if sp.prec, ok = digits(); !ok {
			raise("ValueError", "Format specifier missing precision")
		}
	}
	if s != "" {
		sp.kind = s[0]
		if len(s) > 1 {
			raise("ValueError", "Invalid format specifier '%s' for object of type '%s'", whole, typeName(v))
		}
	}
	return sp
}

// pad pads a string to the width.
func (sp spec) pad(s string, def byte) string {
	n := sp.width - runeLen(s)
	if n <= 0 {
		return s
	}
	fill := sp.fill
	if fill == "" {
		fill = " "
	}
	align := sp.align
	if align == 0 {
		align = def
	}
	switch align {
	case '<':
		return s + strings.Repeat(fill, n)
	case '^':
		return strings.Repeat(fill, n/2) + s + strings.Repeat(fill, n-n/2)
	}
	return strings.Repeat(fill, n) + s
}

func (sp spec) number(digits string, negative bool) string { return sp.prefixed("", digits, negative) }

// prefixed writes sign, prefix and digits, padded as numbers are.
func (sp spec) prefixed(prefix, digits string, negative bool) string {
	sign := ""
	switch {
	case negative:
		sign = "-"
	case sp.sign == '+':
		sign = "+"
	case sp.sign == ' ':
		sign = " "
	}
	head := sign + prefix
	if sp.align == '=' || sp.zero && sp.align == 0 {
		fill := sp.fill
		if sp.zero && fill == "" {
			fill = "0"
		}
		if fill == "" {
			fill = " "
		}
		if fill == "0" && sp.group != 0 {
			every := 3
			if strings.IndexByte("xXob", sp.kind) >= 0 && sp.kind != 0 {
				every = 4
			}
			return head + sp.zeroGrouped(digits, sp.width-len(head), every)
		}
		if n := sp.width - runeLen(head) - runeLen(digits); n > 0 {
			return head + strings.Repeat(fill, n) + digits
		}
		return head + digits
	}
	return sp.pad(head+digits, '>')
}

// zeroGrouped pads grouped digits with zeros, grouped as well.
func (sp spec) zeroGrouped(digits string, width, every int) string {
	whole, rest := digits, ""
	if i := strings.IndexAny(digits, ".e%"); i >= 0 {
		whole, rest = digits[:i], digits[i:]
	}
	plain := strings.ReplaceAll(whole, string(sp.group), "")
	for {
		g := group(plain, sp.group, every)
		if len(g)+len(rest) >= width {
			return g + rest
		}
		plain = "0" + plain
	}
}

func group(digits string, sep byte, every int) string {
	if sep == 0 || len(digits) <= every {
		return digits
	}
	var b strings.Builder
	for i, c := range digits {
		if i > 0 && (len(digits)-i)%every == 0 {
			b.WriteByte(sep)
		}
		b.WriteRune(c)
	}
	return b.String()
}

// formatFloat writes a number that is not negative.
func formatFloat(x float64, sp spec) string {
	kind, prec := sp.kind, sp.prec
	if math.IsNaN(x) || math.IsInf(x, 0) {
		s := "inf"
		if math.IsNaN(x) {
			s = "nan"
		}
		if kind == 'E' || kind == 'F' || kind == 'G' {
			s = strings.ToUpper(s)
		}
		return s
	}
	if kind == '%' {
		x, kind = x*100, 'f'
	}
	if kind == 0 && prec < 0 {
		return value.FormatFloat(x)
	}
	if prec < 0 {
		prec = 6
	}
	s := ""
	switch kind {
	case 'e', 'E', 'f', 'F':
		s = strconv.FormatFloat(x, kind|0x20, prec, 64)
		if sp.alt && prec == 0 {
			s += "."
		}
	default:
		s = general(x, prec, sp.alt, kind == 0)
	}
	if kind == 'E' || kind == 'G' {
		s = strings.ToUpper(s)
	}
	return s
}

// general is the g format; repr is the format of a float without type, which
// keeps a digit after the dot.
func general(x float64, prec int, alt, repr bool) string {
	prec = max(1, prec)
	s := strconv.FormatFloat(x, 'e', prec-1, 64)
	mant, exp, _ := strings.Cut(s, "e")
	e, _ := strconv.Atoi(exp)
	limit := prec
	if repr {
		limit = prec - 1
		if limit < 1 {
			limit = 1
		}
	}
	if e < -4 || e >= limit {
		if !alt && strings.Contains(mant, ".") {
			mant = strings.TrimRight(strings.TrimRight(mant, "0"), ".")
		}
		return fmt.Sprintf("%se%+03d", mant, e)
	}
	s = strconv.FormatFloat(x, 'f', max(0, prec-1-e), 64)
	if !alt && strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if repr && !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// formatValue is format(v, spec).
func formatValue(v any, s string) string {
	switch v.(type) {
	case string, Markup, int64, bool, *big.Int, float64:
	case *Undefined:
		return str(v)
	default:
		if s != "" {
			raise("TypeError", "unsupported format string passed to %s.__format__", typeName(v))
		}
	}
	if s == "" {
		return str(v)
	}
	sp := parseSpec(s, v)
	if t, ok := text(v); ok {
		return sp.text(t)
	}
	if x, ok := v.(float64); ok {
		return sp.float(x)
	}
	n, _ := asInt(v)
	return sp.int(asBig(n), v)
}

func (sp spec) unknown(typ string) {
	raise("ValueError", "Unknown format code '%c' for object of type '%s'", sp.kind, typ)
}

func (sp spec) text(s string) string {
	switch {
	case sp.kind != 0 && sp.kind != 's':
		sp.unknown("str")
	case sp.sign != 0:
		raise("ValueError", "Sign not allowed in string format specifier")
	case sp.align == '=':
		raise("ValueError", "'=' alignment not allowed in string format specifier")
	case sp.group != 0:
		raise("ValueError", "Cannot specify '%c' with 's'.", sp.group)
	}
	if sp.prec >= 0 {
		s = cutRunes(s, sp.prec)
	}
	if sp.zero {
		sp.fill = "0"
	}
	return sp.pad(s, '<')
}

func (sp spec) float(x float64) string {
	switch sp.kind {
	case 0, 'e', 'E', 'f', 'F', 'g', 'G', 'n', '%':
	default:
		sp.unknown("float")
	}
	if sp.kind == 'n' {
		sp.kind = 'g'
	}
	s := formatFloat(math.Abs(x), sp)
	if sp.group != 0 {
		i := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
		if i < 0 {
			i = len(s)
		}
		s = group(s[:i], sp.group, 3) + s[i:]
	}
	if sp.kind == '%' {
		s += "%"
	}
	return sp.number(s, math.Signbit(x) && !math.IsNaN(x))
}

func (sp spec) int(n *big.Int, v any) string {
	abs := new(big.Int).Abs(n)
	if abs.BitLen() > maxDigits*10/3 {
		raise("ValueError", "Exceeds the limit (%d digits) for integer string conversion", maxDigits)
	}
	base, prefix, every := 10, "", 3
	switch sp.kind {
	case 0, 'd', 'n':
	case 'b':
		base, prefix, every = 2, "0b", 4
	case 'o':
		base, prefix, every = 8, "0o", 4
	case 'x', 'X':
		base, prefix, every = 16, "0"+string(sp.kind), 4
	case 'c':
		return sp.pad(string(rune(n.Int64())), '<')
	case 'e', 'E', 'f', 'F', 'g', 'G', '%':
		x, _ := asFloat(value.Big(n))
		return sp.float(x)
	default:
		sp.unknown(typeName(v))
	}
	if sp.prec >= 0 {
		raise("ValueError", "Precision not allowed in integer format specifier")
	}
	digits := abs.Text(base)
	if sp.kind == 'X' {
		digits = strings.ToUpper(digits)
	}
	if !sp.alt {
		prefix = ""
	}
	return sp.prefixed(prefix, group(digits, sp.group, every), n.Sign() < 0)
}

// formatText is the sandbox's str.format.
func formatText(f *frame, self any, args []any, kw *value.Dict) string {
	s, _ := text(self)
	_, markup := self.(Markup)
	p := &fieldFormat{f: f, args: args, kw: kw, markup: markup}
	return p.run(s, 2)
}

type fieldFormat struct {
	f      *frame
	args   []any
	kw     *value.Dict
	auto   int // number of unnumbered fields so far; -1 after a numbered one
	markup bool
}

func (p *fieldFormat) run(s string, depth int) string {
	if depth < 0 {
		raise("ValueError", "Max string recursion exceeded")
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case (c == '{' || c == '}') && i+1 < len(s) && s[i+1] == c:
			b.WriteByte(c)
			i += 2
		case c == '}':
			raise("ValueError", "Single '}' encountered in format string")
		case c == '{':
			end := fieldEnd(s, i)
			t := p.field(s[i+1:end], depth)
			p.f.rt.tick()
			p.f.rt.reserve(3 * (b.Len() + len(t)))
			b.WriteString(t)
			i = end + 1
		default:
			b.WriteByte(c)
			i++
		}
	}
	return b.String()
}

func fieldEnd(s string, i int) int {
	depth := 0
	for j := i; j < len(s); j++ {
		switch s[j] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return j
			}
		}
	}
	if i+1 >= len(s) {
		raise("ValueError", "Single '{' encountered in format string")
	}
	raise("ValueError", "expected '}' before end of string")
	return 0
}

func (p *fieldFormat) field(s string, depth int) string {
	name, sp := s, ""
	conv := byte(0)
	if i := strings.IndexAny(s, ":!"); i >= 0 {
		name = s[:i]
		if s[i] == '!' {
			if i+1 >= len(s) {
				raise("ValueError", "unmatched '{' in format spec")
			}
			conv = s[i+1]
			rest := s[i+2:]
			if rest != "" && rest[0] != ':' {
				raise("ValueError", "expected ':' after conversion specifier")
			}
			sp = strings.TrimPrefix(rest, ":")
		} else {
			sp = s[i+1:]
		}
	}
	v := p.get(name)
	switch conv {
	case 0:
	case 's':
		v = str(v)
	case 'r':
		v = repr(v)
	case 'a':
		v = ascii(repr(v))
	default:
		raise("ValueError", "Unknown conversion specifier %c", conv)
	}
	if strings.Contains(sp, "{") {
		sp = p.run(sp, depth-1)
	}
	if p.markup {
		if m, ok := v.(Markup); ok && sp == "" {
			return string(m)
		}
		return string(escapeText(formatValue(v, sp)))
	}
	return formatValue(v, sp)
}

// get returns the value of a field: a name or number, then attributes and
// items.
func (p *fieldFormat) get(name string) any {
	first := name
	if i := strings.IndexAny(name, ".["); i >= 0 {
		first = name[:i]
	}
	rest := name[len(first):]
	v := p.first(first)
	for rest != "" {
		if rest[0] == '.' {
			attr := rest[1:]
			if i := strings.IndexAny(attr, ".["); i >= 0 {
				attr = attr[:i]
			}
			rest = rest[1+len(attr):]
			if attr == "" {
				raise("ValueError", "Empty attribute in format string")
			}
			v = p.f.attr(v, attr)
			continue
		}
		end := strings.IndexByte(rest, ']')
		if rest[0] != '[' || end < 0 {
			raise("ValueError", "Missing ']' in format string")
		}
		var key any = rest[1:end]
		if n, err := strconv.ParseInt(rest[1:end], 10, 64); err == nil {
			key = n
		}
		v = p.f.item(v, key)
		rest = rest[end+1:]
	}
	return v
}

func (p *fieldFormat) first(name string) any {
	if name == "" {
		if p.auto < 0 {
			raise("ValueError", "cannot switch from manual field specification to automatic field numbering")
		}
		p.auto++
		return p.arg(p.auto - 1)
	}
	if n, err := strconv.Atoi(name); err == nil && n >= 0 {
		if p.auto > 0 {
			raise("ValueError", "cannot switch from automatic field numbering to manual field specification")
		}
		p.auto = -1
		return p.arg(n)
	}
	v, ok := p.kw.Get(name)
	if !ok {
		raise("KeyError", "%s", value.Repr(name))
	}
	return v
}

func (p *fieldFormat) arg(i int) any {
	if i >= len(p.args) {
		raise("IndexError", "tuple index out of range")
	}
	return p.args[i]
}
