package jinja

import (
	"fmt"
	"math/big"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"brine/internal/py/value"
)

// kind is the kind of a token: a constant below for tokens with text, otherwise
// the operator itself.
type kind string

const (
	tEOF           kind = "eof"
	tError         kind = "error"
	tData          kind = "data"
	tVariableBegin kind = "variable_begin"
	tVariableEnd   kind = "variable_end"
	tBlockBegin    kind = "block_begin"
	tBlockEnd      kind = "block_end"
	tName          kind = "name"
	tString        kind = "string"
	tInteger       kind = "integer"
	tFloat         kind = "float"
)

type token struct {
	kind kind
	line int
	text string // data, name, string; the message of an error
	num  any    // of integer and float
}

// lexer splits a template into tokens. An error becomes the last token, so that
// the parser reports it at its position.
type lexer struct {
	o       *Options
	s       string
	pos     int
	counted int // line is right for this position
	line    int
	toks    []token
	rules   []startRule
	firsts  string
	lineSt  bool
}

// startRule is an opening delimiter.
type startRule struct {
	name, text string
}

func tokenize(o *Options, source string) []token {
	l := &lexer{o: o, s: normalizeNewlines(source), line: 1}
	if !o.KeepTrailingNewline {
		l.s = strings.TrimSuffix(l.s, "\n")
	}
	// A tag has some ten tokens with the text before it.
	l.toks = make([]token, 0, 10*(strings.Count(l.s, o.VariableStart)+strings.Count(l.s, o.BlockStart))+8)
	l.prepare()
	if err := l.root(); err != nil {
		l.toks = append(l.toks, token{kind: tError, line: err.line, text: err.msg})
	}
	last := 1
	if n := len(l.toks); n > 0 {
		last = l.toks[n-1].line
	}
	l.toks = append(l.toks, token{kind: tEOF, line: last})
	return l.toks
}

func normalizeNewlines(s string) string {
	if strings.IndexByte(s, '\r') < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
}

type lexError struct {
	line int
	msg  string
}

// prepare sorts the opening delimiters: of two that match, the longer one
// counts.
func (l *lexer) prepare() {
	l.rules = []startRule{{"variable", l.o.VariableStart}, {"comment", l.o.CommentStart}, {"block", l.o.BlockStart}}
	sort.SliceStable(l.rules, func(i, j int) bool { return len(l.rules[i].text) > len(l.rules[j].text) })
	for _, r := range l.rules {
		if strings.IndexByte(l.firsts, r.text[0]) < 0 {
			l.firsts += r.text[:1]
		}
	}
	l.lineSt = l.o.LineStatementPrefix != "" || l.o.LineCommentPrefix != ""
}

// count moves the line counter to a position.
func (l *lexer) count(pos int) int {
	if pos > l.counted {
		l.line += strings.Count(l.s[l.counted:pos], "\n")
		l.counted = pos
	}
	return l.line
}

func (l *lexer) emit(k kind, at int, text string) {
	l.toks = append(l.toks, token{kind: k, line: l.count(at), text: text})
}

// findTag returns where the next tag or line statement begins, and its opening
// delimiter.
func (l *lexer) findTag() (at int, r startRule, ok bool) {
	for i := l.pos; i < len(l.s); i++ {
		if !l.lineSt {
			var j int
			if len(l.firsts) == 1 {
				j = strings.IndexByte(l.s[i:], l.firsts[0])
			} else {
				j = strings.IndexAny(l.s[i:], l.firsts)
			}
			if j < 0 {
				return 0, r, false
			}
			i += j
		} else if r, ok := l.lineTag(i); ok {
			return i, r, true
		}
		for _, r := range l.rules {
			if strings.HasPrefix(l.s[i:], r.text) {
				return i, r, true
			}
		}
	}
	return 0, r, false
}

// lineTag reports a line statement or line comment at i. The text of the rule
// is everything before its content.
func (l *lexer) lineTag(i int) (startRule, bool) {
	starts := i == 0 || l.s[i-1] == '\n'
	j := i
	for j < len(l.s) && (l.s[j] == ' ' || l.s[j] == '\t' || l.s[j] == '\v' || l.s[j] == '\f') {
		j++
	}
	if p := l.o.LineCommentPrefix; p != "" && strings.HasPrefix(l.s[j:], p) && (starts || i > 0 && !isSpace(l.s[i-1])) {
		return startRule{"linecomment", l.s[i : j+len(p)]}, true
	}
	if p := l.o.LineStatementPrefix; p != "" && starts && strings.HasPrefix(l.s[j:], p) {
		return startRule{"linestatement", l.s[i : j+len(p)]}, true
	}
	return startRule{}, false
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' || c >= 0x1c && c <= 0x1f }

// root reads text and tags until the end.
func (l *lexer) root() *lexError {
	for l.pos < len(l.s) {
		at, r, ok := l.findTag()
		if !ok {
			l.emit(tData, l.pos, l.data(l.s[l.pos:]))
			return nil
		}
		inside := at + len(r.text)
		sign := byte(0)
		if inside < len(l.s) && (l.s[inside] == '-' || l.s[inside] == '+') {
			sign = l.s[inside]
			inside++
		}
		raw := -1
		if r.name == "block" {
			raw = l.rawStart(inside)
		}
		if text := l.strip(l.s[l.pos:at], sign, r.name, l.pos == 0 || l.s[l.pos-1] == '\n'); text != "" {
			l.emit(tData, l.pos, l.data(text))
		}
		l.pos = inside
		var err *lexError
		switch {
		case raw >= 0:
			l.pos = raw
			err = l.raw(at)
		case r.name == "comment":
			err = l.comment(at)
		case r.name == "linecomment":
			if n := strings.IndexByte(l.s[l.pos:], '\n'); n >= 0 {
				l.pos += n
			} else {
				l.pos = len(l.s)
			}
		case r.name == "variable":
			l.emit(tVariableBegin, at, "")
			err = l.code(tVariableEnd)
		case r.name == "linestatement":
			l.emit(tBlockBegin, at, "")
			err = l.code("line")
		default:
			l.emit(tBlockBegin, at, "")
			err = l.code(tBlockEnd)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *lexer) data(s string) string {
	if l.o.NewlineSequence != "\n" {
		return strings.ReplaceAll(s, "\n", l.o.NewlineSequence)
	}
	return s
}

// strip removes blanks at the end of the text before a tag.
func (l *lexer) strip(text string, sign byte, tag string, lineStarts bool) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(text, isPySpace)
	case sign != '+' && l.o.LstripBlocks && tag != "variable":
		n := strings.LastIndexByte(text, '\n') + 1
		if (n > 0 || lineStarts) && strings.TrimLeftFunc(text[n:], isPySpace) == "" {
			return text[:n]
		}
	}
	return text
}

// isPySpace follows str.isspace.
func isPySpace(r rune) bool {
	return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
}

func (l *lexer) skipSpace(i int) int {
	for i < len(l.s) {
		r, n := utf8.DecodeRuneInString(l.s[i:])
		if !isPySpace(r) {
			break
		}
		i += n
	}
	return i
}

// rawStart returns where the content of a raw block begins, or -1.
func (l *lexer) rawStart(inside int) int {
	i := l.skipSpace(inside)
	if !strings.HasPrefix(l.s[i:], "raw") {
		return -1
	}
	i = l.skipSpace(i + 3)
	if strings.HasPrefix(l.s[i:], "-"+l.o.BlockEnd) {
		return l.skipSpace(i + 1 + len(l.o.BlockEnd))
	}
	if strings.HasPrefix(l.s[i:], l.o.BlockEnd) {
		return i + len(l.o.BlockEnd)
	}
	return -1
}

func (l *lexer) raw(at int) *lexError {
	start := l.pos
	for i := start; ; {
		j := strings.Index(l.s[i:], l.o.BlockStart)
		if j < 0 {
			return &lexError{l.count(start), "Missing end of raw directive"}
		}
		i += j
		k := i + len(l.o.BlockStart)
		sign := byte(0)
		if k < len(l.s) && (l.s[k] == '-' || l.s[k] == '+') {
			sign = l.s[k]
			k++
		}
		k = l.skipSpace(k)
		if strings.HasPrefix(l.s[k:], "endraw") {
			if end := l.blockEnd(l.skipSpace(k + 6)); end >= 0 {
				if text := l.strip(l.s[start:i], sign, "raw", l.s[start-1] == '\n'); text != "" {
					l.emit(tData, start, l.data(text))
				}
				l.pos = end
				return nil
			}
		}
		i += len(l.o.BlockStart)
	}
}

// blockEnd returns the position after a block end tag at i and the blanks that
// it strips, or -1.
func (l *lexer) blockEnd(i int) int {
	end := l.o.BlockEnd
	switch s := l.s[i:]; {
	case strings.HasPrefix(s, "+"+end):
		return i + 1 + len(end)
	case strings.HasPrefix(s, "-"+end):
		return l.skipSpace(i + 1 + len(end))
	case strings.HasPrefix(s, end):
		i += len(end)
		if l.o.TrimBlocks && i < len(l.s) && l.s[i] == '\n' {
			i++
		}
		return i
	}
	return -1
}

func (l *lexer) comment(at int) *lexError {
	end := l.o.CommentEnd
	i := strings.Index(l.s[l.pos:], end)
	if i < 0 {
		return &lexError{l.count(at), "Missing end of comment tag"}
	}
	i += l.pos
	next := i + len(end)
	switch {
	case i > l.pos && l.s[i-1] == '-':
		next = l.skipSpace(next)
	case i > l.pos && l.s[i-1] == '+':
	case l.o.TrimBlocks && next < len(l.s) && l.s[next] == '\n':
		next++
	}
	l.pos = next
	return nil
}

// codeEnd returns the position after the end of the current tag, or -1.
func (l *lexer) codeEnd(end kind) int {
	switch end {
	case tBlockEnd:
		return l.blockEnd(l.pos)
	case tVariableEnd:
		if strings.HasPrefix(l.s[l.pos:], "-"+l.o.VariableEnd) {
			return l.skipSpace(l.pos + 1 + len(l.o.VariableEnd))
		}
		if strings.HasPrefix(l.s[l.pos:], l.o.VariableEnd) {
			return l.pos + len(l.o.VariableEnd)
		}
		return -1
	}
	i := l.skipSpace(l.pos)
	if i == len(l.s) {
		return i
	}
	if n := strings.LastIndexByte(l.s[l.pos:i], '\n'); n >= 0 {
		return l.pos + n + 1
	}
	return -1
}

// code reads the content of a tag.
func (l *lexer) code(end kind) *lexError {
	var open []byte
	for {
		if len(open) == 0 {
			if next := l.codeEnd(end); next >= 0 {
				k := end
				if end == "line" {
					k = tBlockEnd
				}
				l.emit(k, l.pos, "")
				l.pos = next
				return nil
			}
		}
		l.pos = l.skipSpace(l.pos)
		if l.pos >= len(l.s) {
			return nil // the parser reports what is missing
		}
		if len(open) == 0 && l.codeEnd(end) >= 0 {
			continue
		}
		if err := l.one(&open); err != nil {
			return err
		}
	}
}

// one reads one token of the content of a tag.
func (l *lexer) one(open *[]byte) *lexError {
	c := l.s[l.pos]
	switch {
	case c >= '0' && c <= '9':
		l.number()
		return nil
	case c == '"' || c == '\'':
		return l.quoted(c)
	case c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= utf8.RuneSelf:
		return l.name()
	}
	start := l.pos
	if l.pos+1 < len(l.s) {
		switch op := l.s[l.pos : l.pos+2]; op {
		case "//", "**", "==", "!=", ">=", "<=":
			l.emit(kind(op), start, op)
			l.pos += 2
			return nil
		}
	}
	if strings.IndexByte("+-/*%~[](){}.:|,;=<>", c) < 0 {
		return &lexError{l.count(start), fmt.Sprintf("unexpected char %s at %d", value.Repr(string(rune(c))), utf8.RuneCountInString(l.s[:start]))}
	}
	if err := l.balance(c, open); err != nil {
		return err
	}
	l.emit(kind(l.s[start:start+1]), start, l.s[start:start+1])
	l.pos++
	return nil
}

func (l *lexer) balance(c byte, open *[]byte) *lexError {
	switch c {
	case '{':
		*open = append(*open, '}')
	case '(':
		*open = append(*open, ')')
	case '[':
		*open = append(*open, ']')
	case '}', ')', ']':
		n := len(*open)
		if n == 0 {
			return &lexError{l.count(l.pos), fmt.Sprintf("unexpected '%c'", c)}
		}
		if want := (*open)[n-1]; want != c {
			return &lexError{l.count(l.pos), fmt.Sprintf("unexpected '%c', expected '%c'", c, want)}
		}
		*open = (*open)[:n-1]
	}
	return nil
}

func (l *lexer) name() *lexError {
	start := l.pos
	for l.pos < len(l.s) {
		r, n := utf8.DecodeRuneInString(l.s[l.pos:])
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r) {
			break
		}
		l.pos += n
	}
	if l.pos == start {
		r, _ := utf8.DecodeRuneInString(l.s[start:])
		return &lexError{l.count(start), fmt.Sprintf("unexpected char %s at %d", value.Repr(string(r)), utf8.RuneCountInString(l.s[:start]))}
	}
	text := l.s[start:l.pos]
	if first, _ := utf8.DecodeRuneInString(text); first >= utf8.RuneSelf && !unicode.IsLetter(first) {
		return &lexError{l.count(start), "Invalid character in identifier"}
	}
	l.emit(tName, start, text)
	return nil
}

// run of digits with single underscores between them.
func (l *lexer) digits(i int) int {
	j := i
	for j < len(l.s) {
		if c := l.s[j]; c >= '0' && c <= '9' {
			j++
		} else if c == '_' && j > i && j+1 < len(l.s) && l.s[j+1] >= '0' && l.s[j+1] <= '9' {
			j++
		} else {
			break
		}
	}
	return j
}

// number reads a float if there is one (but not after a dot, as in a.0.1),
// otherwise an integer.
func (l *lexer) number() {
	start := l.pos
	if start == 0 || l.s[start-1] != '.' {
		if end, ok := l.float(start); ok {
			text := strings.ReplaceAll(l.s[start:end], "_", "")
			f, _ := strconv.ParseFloat(text, 64)
			l.toks = append(l.toks, token{kind: tFloat, line: l.count(start), text: text, num: f})
			l.pos = end
			return
		}
	}
	end := l.integer(start)
	text := strings.ReplaceAll(l.s[start:end], "_", "")
	n, _ := new(big.Int).SetString(text, 0)
	l.toks = append(l.toks, token{kind: tInteger, line: l.count(start), text: text, num: value.Big(n)})
	l.pos = end
}

func (l *lexer) float(start int) (int, bool) {
	i := l.digits(start)
	frac := i
	if i+1 < len(l.s) && l.s[i] == '.' {
		if j := l.digits(i + 1); j > i+1 {
			frac = j
		}
	}
	if frac < len(l.s) && l.s[frac]|0x20 == 'e' {
		k := frac + 1
		if k < len(l.s) && (l.s[k] == '+' || l.s[k] == '-') {
			k++
		}
		if j := l.digits(k); j > k {
			return j, true
		}
	}
	return frac, frac > i
}

func (l *lexer) integer(start int) int {
	if l.s[start] != '0' {
		return l.digits(start)
	}
	base := ""
	if start+1 < len(l.s) {
		switch l.s[start+1] | 0x20 {
		case 'b':
			base = "01"
		case 'o':
			base = "01234567"
		case 'x':
			base = "0123456789abcdefABCDEF"
		}
	}
	from, i := start+2, start+2
	if base == "" {
		base, from, i = "0", start+1, start+1
	}
	for i < len(l.s) {
		c := l.s[i]
		if c == '_' && i+1 < len(l.s) {
			c = l.s[i+1]
			if strings.IndexByte(base, c) < 0 {
				break
			}
			i++
		}
		if strings.IndexByte(base, c) < 0 {
			break
		}
		i++
	}
	if i == from {
		return start + 1
	}
	return i
}

func (l *lexer) quoted(q byte) *lexError {
	start := l.pos
	i := start + 1
	plain := true
	for i < len(l.s) && l.s[i] != q {
		if l.s[i] == '\\' {
			plain = false
			i++
		}
		i++
	}
	if i >= len(l.s) {
		return &lexError{l.count(start), fmt.Sprintf("unexpected char %s at %d", value.Repr(string(rune(q))), utf8.RuneCountInString(l.s[:start]))}
	}
	text := l.s[start+1 : i]
	if !plain {
		t, err := unescape(text)
		if err != "" {
			return &lexError{l.count(start), err}
		}
		text = t
	}
	l.emit(tString, start, l.data(text))
	l.pos = i + 1
	return nil
}

// unescape replaces the escapes of a Python string. Unknown ones stay.
func unescape(s string) (string, string) {
	var b strings.Builder
	for i := 0; i < len(s); {
		c := s[i]
		if c != '\\' || i+1 >= len(s) {
			b.WriteByte(c)
			i++
			continue
		}
		c = s[i+1]
		i += 2
		const from, to = "abfnrtv\\'\"", "\a\b\f\n\r\t\v\\'\""
		if j := strings.IndexByte(from, c); j >= 0 {
			b.WriteByte(to[j])
			continue
		}
		width := 0
		switch c {
		case 'N':
			return "", "malformed \\N character escape"
		case '\n':
			continue
		case 'x':
			width = 2
		case 'u':
			width = 4
		case 'U':
			width = 8
		case '0', '1', '2', '3', '4', '5', '6', '7':
			j := i
			for j < len(s) && j < i+2 && s[j] >= '0' && s[j] <= '7' {
				j++
			}
			n, _ := strconv.ParseUint(s[i-1:j], 8, 32)
			b.WriteRune(rune(n))
			i = j
			continue
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
			continue
		}
		if i+width > len(s) {
			return "", "truncated \\" + string(c) + strings.Repeat("X", width) + " escape"
		}
		n, err := strconv.ParseUint(s[i:i+width], 16, 32)
		if err != nil {
			return "", "truncated \\" + string(c) + strings.Repeat("X", width) + " escape"
		}
		if n > unicode.MaxRune {
			return "", "illegal Unicode character"
		}
		b.WriteRune(rune(n))
		i += width
	}
	return b.String(), ""
}
