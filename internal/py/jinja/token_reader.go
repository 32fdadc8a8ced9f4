package jinja

import (
	"fmt"
	"strings"
)

// maxNesting bounds how deep tags and expressions may nest.
const maxNesting = 200

// tokenReader goes through the tokens of one template for the parsers of
// statements and expressions, which share its position and depth. It panics
// with an *Error, which Parse recovers.
type tokenReader struct {
	name  string // of the template
	toks  []token
	i     int
	depth int
}

func (p *tokenReader) cur() *token { return &p.toks[p.i] }

func (p *tokenReader) look() *token {
	if p.i+1 < len(p.toks) {
		return &p.toks[p.i+1]
	}
	return &p.toks[len(p.toks)-1]
}

func (p *tokenReader) next() *token {
	t := &p.toks[p.i]
	if t.kind == tError {
		p.fail(t.line, "%s", t.text)
	}
	if p.i+1 < len(p.toks) {
		p.i++
	}
	if n := p.toks[p.i]; n.kind == tError {
		p.fail(n.line, "%s", n.text)
	}
	return t
}

func (p *tokenReader) fail(line int, format string, args ...any) {
	panic(&Error{Kind: SyntaxError, Message: fmt.Sprintf(format, args...), Template: p.name, Line: line})
}

// assertion fails for a template that is well-formed but invalid.
func (p *tokenReader) assertion(line int, format string, args ...any) {
	panic(&Error{Kind: AssertionError, Message: fmt.Sprintf(format, args...), Template: p.name, Line: line})
}

func (p *tokenReader) enter(line int) {
	if p.depth++; p.depth > maxNesting {
		p.fail(line, "tags or expressions nest more than %d deep", maxNesting)
	}
}

func (p *tokenReader) leave() { p.depth-- }

func (t *token) is(name string) bool { return t.kind == tName && t.text == name }

func (t *token) any(names []string) bool {
	if t.kind == tName {
		for _, n := range names {
			if n == t.text {
				return true
			}
		}
	}
	return false
}

func (p *tokenReader) skipName(name string) bool {
	if p.cur().is(name) {
		p.next()
		return true
	}
	return false
}

func (p *tokenReader) skip(k kind) bool {
	if p.cur().kind == k {
		p.next()
		return true
	}
	return false
}

func (p *tokenReader) expect(k kind) *token {
	t := p.cur()
	if t.kind != k {
		if t.kind == tEOF {
			p.fail(t.line, "unexpected end of template, expected '%s'.", describeKind(k))
		}
		p.fail(t.line, "expected token '%s', got %s", describeKind(k), quoted(describe(t)))
	}
	return p.next()
}

func (p *tokenReader) expectName(name string) *token {
	t := p.cur()
	if !t.is(name) {
		if t.kind == tEOF {
			p.fail(t.line, "unexpected end of template, expected '%s'.", name)
		}
		p.fail(t.line, "expected token '%s', got %s", name, quoted(describe(t)))
	}
	return p.next()
}

func describeKind(k kind) string {
	switch k {
	case tVariableBegin:
		return "begin of print statement"
	case tVariableEnd:
		return "end of print statement"
	case tBlockBegin:
		return "begin of statement block"
	case tBlockEnd:
		return "end of statement block"
	case tData:
		return "template data / text"
	case tEOF:
		return "end of template"
	}
	return string(k)
}

func describe(t *token) string {
	if t.kind == tName {
		return t.text
	}
	return describeKind(t.kind)
}

func quoted(s string) string {
	if strings.Contains(s, "'") {
		return `"` + s + `"`
	}
	return "'" + s + "'"
}
