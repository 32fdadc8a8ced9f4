package yaml

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// emitter writes tokens with the layout of libyaml, which Salt's dumper uses.
// The flags whitespace and indention describe the last output: whitespace, and
// only indentation on this line.
type emitter struct {
	b          strings.Builder
	bestIndent int
	bestWidth  int
	flow       flowStyle
	keepOrder  bool
	ascii      bool
	newline    string // line end
	style      byte   // style of scalars; 0 for plain if possible

	explicitStart, explicitEnd, directive, canonical, python bool

	anchors map[any]string // visited containers; with a name if they occur more than once
	written map[any]bool
	shared  int

	indent     int
	flowLevel  int
	column     int
	whitespace bool
	indention  bool
	simpleKey  bool
	openEnded  bool // the text ends in a plain scalar, after which PyYAML writes "..."
}

func (e *emitter) put(r rune) {
	e.b.WriteRune(r)
	e.column++
}

func (e *emitter) lineBreak(r rune) {
	if r != '\n' {
		e.put(r)
		e.column = 0
		return
	}
	e.b.WriteString(e.newline)
	e.column = 0
}

func (e *emitter) increaseIndent(flow, indentless bool) {
	switch {
	case e.indent < 0 && flow:
		e.indent = e.bestIndent
	case e.indent < 0:
		e.indent = 0
	case !indentless:
		e.indent += e.bestIndent
	}
}

func (e *emitter) writeIndent() {
	indent := max(e.indent, 0)
	if !e.indention || e.column > indent || e.column == indent && !e.whitespace {
		e.lineBreak('\n')
	}
	for e.column < indent {
		e.put(' ')
	}
	e.whitespace, e.indention = true, true
}

func (e *emitter) indicator(s string, needSpace, isSpace, isIndention bool) {
	if needSpace && !e.whitespace {
		e.put(' ')
	}
	for _, r := range s {
		e.put(r)
	}
	e.whitespace = isSpace
	e.indention = e.indention && isIndention
}

func (e *emitter) startDocument() {
	if e.directive {
		e.indicator("%YAML", true, false, false)
		e.indicator("1.1", true, false, false)
		e.writeIndent()
	}
	if e.explicitStart {
		e.indicator("---", true, false, false)
		if e.canonical {
			e.writeIndent()
		}
	}
}

func (e *emitter) endDocument() {
	e.indent = -1
	e.writeIndent()
	if e.explicitEnd || e.openEnded {
		e.indicator("...", true, false, false)
		e.writeIndent()
	}
}

// tag writes a tag if all tags are requested.
func (e *emitter) tag(kind string) {
	if e.canonical {
		e.indicator("!!"+kind, true, false, false)
	}
}

// analysis says which styles can carry a text.
type analysis struct {
	multiline                                  bool
	flowPlain, blockPlain, singleQuoted, block bool
}

func isBreak(r rune) bool {
	return r == '\n' || r == '\r' || r == 0x85 || r == 0x2028 || r == 0x2029
}

func isBlankz(s string) bool {
	if s == "" {
		return true
	}
	r, _ := utf8.DecodeRuneInString(s)
	return r == ' ' || r == '\t' || r == 0 || isBreak(r)
}

// printable follows libyaml, which also escapes characters beyond 16 bits.
func (e *emitter) printable(r rune) bool {
	switch {
	case r == '\n', r >= 0x20 && r <= 0x7e:
		return true
	case e.ascii:
		return false
	}
	return e.python && (r == 0x85 || r >= 0x10000 && r < 0x10ffff) || r >= 0xa0 && r <= 0xd7ff || r >= 0xe000 && r <= 0xfffd && r != 0xfeff
}

func (e *emitter) analyze(s string) analysis {
	if s == "" {
		return analysis{blockPlain: true, singleQuoted: true}
	}
	flow := strings.HasPrefix(s, "---") || strings.HasPrefix(s, "...")
	block := flow
	var breaks, special, spaceBreak, breakSpace, previousSpace, previousBreak bool
	afterBlank := true
	for i, r := range s {
		rest := s[i+utf8.RuneLen(r):]
		f, b := indicates(r, i == 0, afterBlank, isBlankz(rest))
		flow, block = flow || f, block || b
		special = special || !e.printable(r)
		switch {
		case r == ' ':
			breakSpace = breakSpace || previousBreak
			previousSpace, previousBreak = true, false
		case isBreak(r):
			breaks = true
			spaceBreak = spaceBreak || previousSpace
			previousSpace, previousBreak = false, true
		default:
			previousSpace, previousBreak = false, false
		}
		afterBlank = isBlankz(s[i:])
	}
	first, _ := utf8.DecodeRuneInString(s)
	last, _ := utf8.DecodeLastRuneInString(s)
	edge := first == ' ' || last == ' ' || isBreak(first) || isBreak(last)
	odd := spaceBreak || special
	return analysis{
		multiline:    breaks,
		flowPlain:    !(edge || breaks || breakSpace || odd || flow),
		blockPlain:   !(edge || breaks || breakSpace || odd || block),
		singleQuoted: !(breakSpace || odd),
		block:        !(last == ' ' || odd),
	}
}

// indicates reports whether r could be taken for syntax in flow or block
// context.
func indicates(r rune, first, afterBlank, beforeBlank bool) (flow, block bool) {
	if first {
		switch r {
		case '#', ',', '[', ']', '{', '}', '&', '*', '!', '|', '>', '\'', '"', '%', '@', '`':
			return true, true
		case '?', ':':
			return true, beforeBlank
		case '-':
			return beforeBlank, beforeBlank
		}
		return false, false
	}
	switch r {
	case ',', '?', '[', ']', '{', '}':
		return true, false
	case ':':
		return true, beforeBlank
	case '#':
		return afterBlank, afterBlank
	}
	return false, false
}

// scalar chooses a style for s and writes it.
func (e *emitter) scalar(s scalarNode) {
	a := e.analyze(s.text)
	style := byte('p')
	if e.style != 0 {
		style = e.style
	}
	switch {
	case e.canonical:
		style = '"'
		s.tag = "!!" + s.kind
	case s.literal:
		style = '|'
	case e.simpleKey && a.multiline:
		style = '"'
	}
	if style == 'p' {
		allowed := a.blockPlain
		if e.flowLevel > 0 {
			allowed = a.flowPlain
		}
		if !allowed || s.quote || s.text == "" && (e.flowLevel > 0 || e.simpleKey) {
			style = '\''
		}
	}
	if style == '\'' && !a.singleQuoted {
		style = '"'
	}
	if (style == '|' || style == '>') && (!a.block || e.flowLevel > 0 || e.simpleKey) {
		style = '"'
	}
	if s.tag == "" && s.kind != "str" && style != 'p' && !e.canonical {
		s.tag = "!"
		if e.python {
			s.tag = "!!" + s.kind
		}
	}
	if s.tag != "" {
		e.indicator(s.tag, true, false, false)
	}
	old := e.indent
	e.increaseIndent(true, false)
	switch style {
	case 'p':
		e.plain(s.text)
		e.openEnded = e.python && old < 0 && e.flowLevel == 0
	case '\'':
		e.single(s.text)
	case '"':
		e.double(s.text)
	case '|':
		e.literal(s.text)
	case '>':
		e.folded(s.text)
	}
	e.indent = old
}

// fold reports whether a blank before rest becomes a line end.
func (e *emitter) fold(afterSpace bool) bool {
	return !e.simpleKey && !afterSpace && e.column > e.bestWidth
}

func (e *emitter) plain(s string) {
	if !e.whitespace && (s != "" || e.flowLevel > 0) {
		e.put(' ')
	}
	space := false
	for i, r := range s {
		if r == ' ' && e.fold(space) && !strings.HasPrefix(s[i+1:], " ") {
			e.writeIndent()
		} else {
			e.put(r)
		}
		space = r == ' '
		e.indention = false
	}
	e.whitespace, e.indention = false, false
}

func (e *emitter) single(s string) {
	e.indicator("'", true, false, false)
	space, breaks := false, false
	for i, r := range s {
		switch {
		case r == ' ':
			if e.fold(space) && i > 0 && i < len(s)-1 && s[i+1] != ' ' {
				e.writeIndent()
			} else {
				e.put(r)
			}
			space = true
		case isBreak(r):
			if !breaks && r == '\n' {
				e.lineBreak('\n')
			}
			e.lineBreak(r)
			e.indention, breaks = true, true
		default:
			if breaks {
				e.writeIndent()
			}
			if r == '\'' {
				e.put('\'')
			}
			e.put(r)
			e.indention, space, breaks = false, false, false
		}
	}
	if breaks {
		e.writeIndent()
	}
	e.indicator("'", false, false, false)
	e.whitespace, e.indention = false, false
}

var escapes = map[rune]string{
	0: "0", 7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 27: "e",
	'"': `"`, '\\': `\`, 0x85: "N", 0xa0: "_", 0x2028: "L", 0x2029: "P",
}

func (e *emitter) double(s string) {
	e.indicator(`"`, true, false, false)
	if e.python {
		e.doublePython([]rune(s))
		return
	}
	space := false
	for i, r := range s {
		switch {
		case !e.printable(r) || isBreak(r) || r == '"' || r == '\\':
			e.escape(r)
			space = false
		case r == ' ':
			if e.fold(space) && i > 0 && i < len(s)-1 {
				e.writeIndent()
				if s[i+1] == ' ' {
					e.put('\\')
				}
			} else {
				e.put(r)
			}
			space = true
		default:
			e.put(r)
			space = false
		}
	}
	e.indicator(`"`, false, false, false)
	e.whitespace, e.indention = false, false
}

// doublePython also breaks lines after escaped characters, and ends each with a
// backslash.
func (e *emitter) doublePython(s []rune) {
	before := false // whether the character before was escaped
	for i, r := range s {
		escaped := !e.printable(r) || r > 0xffff || isBreak(r) || r == '"' || r == '\\'
		column := e.column
		if escaped {
			e.escape(r)
			column = e.column - 1
		}
		if i > 0 && i < len(s)-1 && (escaped || before || r == ' ') && !e.simpleKey && column > e.bestWidth {
			e.put('\\')
			e.writeIndent()
			if !escaped && r == ' ' || escaped && s[i+1] == ' ' {
				e.put('\\')
			}
			e.whitespace, e.indention = false, false
		}
		if !escaped {
			e.put(r)
		}
		before = escaped
	}
	e.indicator(`"`, false, false, false)
	e.whitespace, e.indention = false, false
}

func (e *emitter) escape(r rune) {
	s, ok := escapes[r]
	switch {
	case ok:
	case r <= 0xff:
		s = fmt.Sprintf("x%02X", r)
	case r <= 0xffff:
		s = fmt.Sprintf("u%04X", r)
	default:
		s = fmt.Sprintf("U%08X", r)
	}
	e.put('\\')
	for _, c := range s {
		e.put(c)
	}
}

// blockHints returns the indentation and chomping indicators of a block scalar,
// where they are needed.
func (e *emitter) blockHints(s string) {
	first, _ := utf8.DecodeRuneInString(s)
	if s != "" && (first == ' ' || isBreak(first)) {
		e.indicator(fmt.Sprint(e.bestIndent), false, false, false)
	}
	last, n := utf8.DecodeLastRuneInString(s)
	before, _ := utf8.DecodeLastRuneInString(s[:len(s)-n])
	switch {
	case s == "" || !isBreak(last):
		e.indicator("-", false, false, false)
	case len(s) == n || isBreak(before):
		e.indicator("+", false, false, false)
	}
}

// literal writes a block scalar line by line.
func (e *emitter) literal(s string) {
	e.indicator("|", true, false, false)
	e.blockHints(s)
	e.lineBreak('\n')
	e.indention, e.whitespace = true, true
	breaks := true
	for _, r := range s {
		if isBreak(r) {
			e.lineBreak(r)
			e.indention, breaks = true, true
			continue
		}
		if breaks {
			e.writeIndent()
		}
		e.put(r)
		e.indention, breaks = false, false
	}
}

// folded writes a block scalar whose lines may be broken at blanks.
func (e *emitter) folded(s string) {
	e.indicator(">", true, false, false)
	e.blockHints(s)
	e.lineBreak('\n')
	e.indention, e.whitespace = true, true
	breaks, leading := true, true
	for i, r := range s {
		rest := s[i+utf8.RuneLen(r):]
		if isBreak(r) {
			if !breaks && !leading && r == '\n' {
				after := strings.TrimLeftFunc(s[i:], isBreak)
				if !isBlankz(after) {
					e.lineBreak('\n')
				}
			}
			e.lineBreak(r)
			e.indention, breaks = true, true
			continue
		}
		if breaks {
			e.writeIndent()
			leading = r == ' ' || r == '\t'
		}
		if !breaks && r == ' ' && !strings.HasPrefix(rest, " ") && e.column > e.bestWidth {
			e.writeIndent()
		} else {
			e.put(r)
		}
		e.indention, breaks = false, false
	}
}
