// Package json reads and writes JSON as Python's json module does, into and out
// of the value model: objects keep their order, the last of equal keys wins,
// integers have any size, NaN and Infinity are allowed, and output may be
// escaped to ASCII.
//
// Documents may come from unauthenticated peers: Load bounds their depth.
package json

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"brine/internal/py/value"
)

// MaxDepth bounds the nesting of lists and objects.
const MaxDepth = 900

// maxDigits bounds the digits of a number, as in Python.
const maxDigits = 4300

// Error is a syntax error of a document.
type Error struct {
	// Reason is Python's message.
	Reason string
	// Line and Column count from 1, Offset from 0 and in characters.
	Line, Column, Offset int
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: line %d column %d (char %d)", e.Reason, e.Line, e.Column, e.Offset)
}

// Load parses the single document in text. Errors are of type *Error.
func Load(text string) (v any, err error) {
	p := &parser{s: text}
	if strings.HasPrefix(text, "\ufeff") {
		return nil, p.fail(0, "Unexpected UTF-8 BOM (decode using utf-8-sig)")
	}
	p.blank()
	if v, err = p.value(0); err != nil {
		return nil, err
	}
	p.blank()
	if p.i < len(p.s) {
		return nil, p.fail(p.i, "Extra data")
	}
	return v, nil
}

type parser struct {
	s string
	i int
}

func (p *parser) fail(at int, reason string) error {
	before := p.s[:at]
	line := strings.Count(before, "\n") + 1
	start := strings.LastIndexByte(before, '\n') + 1
	return &Error{reason, line, utf8.RuneCountInString(before[start:]) + 1, utf8.RuneCountInString(before)}
}

func (p *parser) blank() {
	for p.i < len(p.s) && strings.IndexByte(" \t\n\r", p.s[p.i]) >= 0 {
		p.i++
	}
}

func (p *parser) peek() byte {
	if p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0
}

func (p *parser) value(depth int) (any, error) {
	if depth > MaxDepth {
		return nil, p.fail(p.i, "Nested too deeply")
	}
	switch c := p.peek(); {
	case c == '"':
		return p.text()
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.list(depth)
	case c == '-' || c >= '0' && c <= '9':
		if !strings.HasPrefix(p.s[p.i:], "-Infinity") {
			return p.number()
		}
	}
	for _, w := range []struct {
		word string
		v    any
	}{{"null", nil}, {"true", true}, {"false", false}, {"NaN", math.NaN()}, {"Infinity", math.Inf(1)}, {"-Infinity", math.Inf(-1)}} {
		if strings.HasPrefix(p.s[p.i:], w.word) {
			p.i += len(w.word)
			return w.v, nil
		}
	}
	return nil, p.fail(p.i, "Expecting value")
}

func (p *parser) object(depth int) (any, error) {
	p.i++
	d := value.NewDict(4)
	p.blank()
	if p.peek() == '}' {
		p.i++
		return d, nil
	}
	for {
		if p.peek() != '"' {
			return nil, p.fail(p.i, "Expecting property name enclosed in double quotes")
		}
		k, err := p.text()
		if err != nil {
			return nil, err
		}
		p.blank()
		if p.peek() != ':' {
			return nil, p.fail(p.i, "Expecting ':' delimiter")
		}
		p.i++
		p.blank()
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		d.Set(k, v)
		p.blank()
		if done, err := p.next('}'); done || err != nil {
			return d, err
		}
	}
}

func (p *parser) list(depth int) (any, error) {
	p.i++
	l := &value.List{}
	p.blank()
	if p.peek() == ']' {
		p.i++
		return l, nil
	}
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		l.Append(v)
		p.blank()
		if done, err := p.next(']'); done || err != nil {
			return l, err
		}
	}
}

// next skips a comma, or the closing bracket.
func (p *parser) next(end byte) (bool, error) {
	switch p.peek() {
	case end:
		p.i++
		return true, nil
	case ',':
		p.i++
		p.blank()
		return false, nil
	}
	return false, p.fail(p.i, "Expecting ',' delimiter")
}

func (p *parser) number() (any, error) {
	start := p.i
	if p.peek() == '-' {
		p.i++
	}
	if p.peek() == '0' {
		p.i++
	} else if !p.digits() {
		return nil, p.fail(start, "Expecting value")
	}
	float := false
	if p.peek() == '.' {
		at := p.i
		p.i++
		if float = p.digits(); !float {
			p.i = at
		}
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		at := p.i
		p.i++
		if c := p.peek(); c == '+' || c == '-' {
			p.i++
		}
		if p.digits() {
			float = true
		} else {
			p.i = at
		}
	}
	s := p.s[start:p.i]
	if float {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil && !math.IsInf(f, 0) {
			return nil, p.fail(start, "Expecting value")
		}
		return f, nil
	}
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i, nil
	}
	if len(s) > maxDigits {
		return nil, p.fail(start, "Number has too many digits")
	}
	i, _ := new(big.Int).SetString(s, 10)
	return i, nil
}

func (p *parser) digits() bool {
	start := p.i
	for p.i < len(p.s) && p.s[p.i] >= '0' && p.s[p.i] <= '9' {
		p.i++
	}
	return p.i > start
}

func (p *parser) text() (string, error) {
	begin := p.i
	p.i++
	start := p.i
	for p.i < len(p.s) && p.s[p.i] != '"' && p.s[p.i] != '\\' && p.s[p.i] >= 0x20 {
		p.i++
	}
	if p.peek() == '"' { // the usual case: nothing to unescape
		p.i++
		return p.s[start : p.i-1], nil
	}
	var b strings.Builder
	b.WriteString(p.s[start:p.i])
	for p.i < len(p.s) {
		switch c := p.s[p.i]; {
		case c == '"':
			p.i++
			return b.String(), nil
		case c == '\\':
			if err := p.escape(&b, begin); err != nil {
				return "", err
			}
		case c < 0x20:
			return "", p.fail(p.i, "Invalid control character at")
		default:
			b.WriteByte(c)
			p.i++
		}
	}
	return "", p.fail(begin, "Unterminated string starting at")
}

func (p *parser) escape(b *strings.Builder, begin int) error {
	at := p.i
	p.i++
	if p.i >= len(p.s) {
		return p.fail(begin, "Unterminated string starting at")
	}
	c := p.s[p.i]
	p.i++
	const from, to = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if j := strings.IndexByte(from, c); j >= 0 {
		b.WriteByte(to[j])
		return nil
	}
	if c != 'u' {
		return p.fail(at, `Invalid \escape`)
	}
	r, ok := p.hex4()
	if !ok {
		return p.fail(at+1, `Invalid \uXXXX escape`)
	}
	if utf16.IsSurrogate(r) && strings.HasPrefix(p.s[p.i:], `\u`) {
		back := p.i
		p.i += 2
		if low, ok := p.hex4(); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
			r = utf16.DecodeRune(r, low)
		} else {
			p.i = back
		}
	}
	b.WriteRune(r)
	return nil
}

func (p *parser) hex4() (rune, bool) {
	if p.i+4 > len(p.s) {
		return 0, false
	}
	n, err := strconv.ParseUint(p.s[p.i:p.i+4], 16, 32)
	if err != nil {
		return 0, false
	}
	p.i += 4
	return rune(n), true
}
