package jmespath

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"brine/internal/py/json"
)

type kind int

const (
	tokEOF kind = iota
	tokName
	tokQuoted
	tokLiteral
	tokNumber
	tokRBracket
	tokRParen
	tokRBrace
	tokComma
	tokColon
	tokCurrent
	tokRef
	tokPipe
	tokOr
	tokAnd
	tokCompare
	tokFlatten
	tokStar
	tokFilter
	tokDot
	tokNot
	tokLBrace
	tokLBracket
	tokLParen
)

// power is the left binding power of a token.
var power = [...]int{tokPipe: 1, tokOr: 2, tokAnd: 3, tokCompare: 5, tokFlatten: 9, tokStar: 20, tokFilter: 21, tokDot: 40, tokNot: 45,
	tokLBrace: 50, tokLBracket: 55, tokLParen: 60}

// projectionStop is the binding power below which a token ends a projection.
const projectionStop = 10

// maxDepth bounds the nesting of expressions.
const maxDepth = 200

type token struct {
	kind kind
	text string
	v    any // of literals and numbers
	pos  int
}

// single lists the tokens of one byte, kinds their kinds.
const single = "]),:@&|*.!{[(}"

var kinds = [...]kind{tokRBracket, tokRParen, tokComma, tokColon, tokCurrent, tokRef, tokPipe, tokStar, tokDot, tokNot, tokLBrace, tokLBracket,
	tokLParen, tokRBrace}

func lex(s string) ([]token, error) {
	var out []token
	for i := 0; i < len(s); {
		c := s[i]
		at := i
		add := func(k kind, n int) {
			out = append(out, token{kind: k, text: s[at : at+n], pos: at})
			i += n
		}
		next := byte(0)
		if i+1 < len(s) {
			next = s[i+1]
		}
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case isStart(c):
			n := 1
			for i+n < len(s) && (isStart(s[i+n]) || isDigit(s[i+n])) {
				n++
			}
			add(tokName, n)
		case isDigit(c) || c == '-' && isDigit(next):
			n := 1
			for i+n < len(s) && isDigit(s[i+n]) {
				n++
			}
			v, err := strconv.ParseInt(s[i:i+n], 10, 64)
			if err != nil {
				return nil, lexError(s, i, "the number is too large")
			}
			add(tokNumber, n)
			out[len(out)-1].v = v
		case c == '"' || c == '\'' || c == '`':
			n := quotedLen(s[i:], c)
			if n == 0 {
				return nil, lexError(s, i, "Unclosed "+string(c)+" delimiter")
			}
			t, err := quotedToken(s[i:i+n], c)
			if err != nil {
				return nil, lexError(s, i, err.Error())
			}
			t.pos = i
			out = append(out, t)
			i += n
		case c == '[' && next == ']':
			add(tokFlatten, 2)
		case c == '[' && next == '?':
			add(tokFilter, 2)
		case c == '&' && next == '&':
			add(tokAnd, 2)
		case c == '|' && next == '|':
			add(tokOr, 2)
		case strings.IndexByte("=!<>", c) >= 0 && next == '=':
			add(tokCompare, 2)
		case c == '<' || c == '>':
			add(tokCompare, 1)
		default:
			n := strings.IndexByte(single, c)
			if n < 0 {
				r, _ := utf8.DecodeRuneInString(s[i:])
				return nil, lexError(s, i, fmt.Sprintf("Unknown token %c", r))
			}
			k := kinds[n]
			add(k, 1)
		}
	}
	return append(out, token{kind: tokEOF, pos: len(s)}), nil
}

func isStart(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// quotedLen returns the length of a quoted string, 0 if it is not closed.
func quotedLen(s string, q byte) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case q:
			return i + 1
		}
	}
	return 0
}

func quotedToken(s string, q byte) (token, error) {
	inner := s[1 : len(s)-1]
	switch q {
	case '"':
		v, err := json.Load(s)
		if err != nil {
			return token{}, errorf("Invalid quoted identifier: %v", err)
		}
		return token{kind: tokQuoted, text: v.(string)}, nil
	case '\'':
		inner = strings.ReplaceAll(inner, `\'`, `'`)
		return token{kind: tokLiteral, text: s, v: inner}, nil
	}
	inner = strings.TrimLeft(strings.ReplaceAll(inner, "\\`", "`"), " \t\r\n")
	v, err := json.Load(inner)
	if err != nil {
		// Older versions of the language had literals without quotes.
		if v, err = json.Load(`"` + inner + `"`); err != nil {
			return token{}, errorf("Bad token %s", inner)
		}
	}
	return token{kind: tokLiteral, text: s, v: v}, nil
}

func lexError(s string, at int, what string) error {
	return errorf("Bad jmespath expression: %s at column %d of %q", what, utf8.RuneCountInString(s[:at])+1, s)
}

type parser struct {
	text   string
	tokens []token
	i      int
	depth  int
}

func (p *parser) at(n int) token { return p.tokens[min(p.i+n, len(p.tokens)-1)] }

func (p *parser) advance() token {
	t := p.at(0)
	p.i++
	return t
}

func (p *parser) unexpected() error {
	t := p.at(0)
	if t.kind == tokEOF {
		return errorf("Invalid jmespath expression: Incomplete expression: %q", p.text)
	}
	return lexError(p.text, t.pos, fmt.Sprintf("Parse error: the token %q is not expected", t.text))
}

func (p *parser) match(k kind) error {
	if p.at(0).kind != k {
		return p.unexpected()
	}
	p.i++
	return nil
}

func powerOf(k kind) int {
	if int(k) < len(power) {
		return power[k]
	}
	return 0
}

func (p *parser) expression(binding int) (left node, err error) {
	if p.depth++; p.depth > maxDepth {
		return nil, errorf("Invalid jmespath expression: it nests more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	if left, err = p.first(); err != nil {
		return nil, err
	}
	for binding < powerOf(p.at(0).kind) {
		if left, err = p.after(left); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// first parses a token that can begin an expression.
func (p *parser) first() (node, error) {
	switch t := p.at(0); t.kind {
	case tokLiteral:
		p.i++
		return literal{t.v}, nil
	case tokName:
		p.i++
		return field{t.text}, nil
	case tokQuoted:
		p.i++
		if p.at(0).kind == tokLParen {
			return nil, lexError(p.text, t.pos, "Quoted identifier not allowed for function names.")
		}
		return field{t.text}, nil
	case tokStar:
		p.i++
		right := node(identity{})
		if p.at(0).kind != tokRBracket {
			var err error
			if right, err = p.projected(power[tokStar]); err != nil {
				return nil, err
			}
		}
		return projection{left: identity{}, right: right, of: values}, nil
	case tokFilter, tokFlatten:
		return p.after(identity{})
	case tokLBrace:
		p.i++
		return p.multiDict()
	case tokLParen:
		p.i++
		n, err := p.expression(0)
		if err == nil {
			err = p.match(tokRParen)
		}
		return chain{n}, err
	case tokNot:
		p.i++
		n, err := p.expression(power[tokNot])
		return not{n}, err
	case tokLBracket:
		switch next := p.at(1).kind; {
		case next == tokNumber || next == tokColon:
			return p.after(identity{})
		case next == tokStar && p.at(2).kind == tokRBracket:
			return p.after(identity{})
		}
		p.i++
		return p.multiList()
	case tokCurrent:
		p.i++
		return identity{}, nil
	case tokRef:
		p.i++
		n, err := p.expression(0)
		return reference{n}, err
	}
	return nil, p.unexpected()
}

// after parses a token that continues the expression left.
func (p *parser) after(left node) (node, error) {
	t := p.advance()
	switch t.kind {
	case tokDot:
		if p.at(0).kind == tokStar {
			p.i++
			right, err := p.projected(power[tokDot])
			return projection{left: left, right: right, of: values}, err
		}
		right, err := p.afterDot(power[tokDot])
		return chain{left, right}, err
	case tokPipe:
		right, err := p.expression(power[tokPipe])
		return chain{left, right}, err
	case tokOr, tokAnd:
		right, err := p.expression(powerOf(t.kind))
		return either{left, right, t.kind == tokAnd}, err
	case tokCompare:
		right, err := p.expression(power[tokCompare])
		return comparison{t.text, left, right}, err
	case tokLParen:
		f, ok := left.(field)
		if !ok {
			return nil, lexError(p.text, t.pos, "Invalid function name")
		}
		return p.call(f.name)
	case tokFilter:
		keep, err := p.expression(0)
		if err == nil {
			err = p.match(tokRBracket)
		}
		if err != nil {
			return nil, err
		}
		right := node(identity{})
		if p.at(0).kind != tokFlatten {
			right, err = p.projected(power[tokFilter])
		}
		return projection{left: left, right: right, of: items, keep: keep}, err
	case tokFlatten:
		right, err := p.projected(power[tokFlatten])
		return projection{left: flatten{left}, right: right, of: items}, err
	case tokLBracket:
		if k := p.at(0).kind; k == tokNumber || k == tokColon {
			return p.indexed(left)
		}
		err := p.match(tokStar)
		if err == nil {
			err = p.match(tokRBracket)
		}
		if err != nil {
			return nil, err
		}
		right, err := p.projected(power[tokStar])
		return projection{left: left, right: right, of: items}, err
	}
	p.i--
	return nil, p.unexpected()
}

func (p *parser) call(name string) (node, error) {
	n := call{name: name}
	for p.at(0).kind != tokRParen {
		arg, err := p.expression(0)
		if err != nil {
			return nil, err
		}
		n.args = append(n.args, arg)
		if p.at(0).kind == tokComma {
			p.i++
		} else if p.at(0).kind != tokRParen {
			return nil, p.unexpected()
		}
	}
	p.i++
	return n, nil
}

// indexed parses an index or a slice after "[".
func (p *parser) indexed(left node) (node, error) {
	if p.at(0).kind == tokNumber && p.at(1).kind != tokColon {
		i := p.advance().v.(int64)
		return chain{left, index{i}}, p.match(tokRBracket)
	}
	var parts [3]*int64
	for n := 0; p.at(0).kind != tokRBracket; {
		switch t := p.at(0); t.kind {
		case tokColon:
			if n++; n == 3 {
				return nil, p.unexpected()
			}
		case tokNumber:
			v := t.v.(int64)
			parts[n] = &v
		default:
			return nil, p.unexpected()
		}
		p.i++
	}
	p.i++
	right, err := p.projected(power[tokStar])
	return projection{left: chain{left, slice{parts[0], parts[1], parts[2]}}, right: right, of: items}, err
}

// projected parses the expression applied to each item of a projection.
func (p *parser) projected(binding int) (node, error) {
	switch k := p.at(0).kind; {
	case powerOf(k) < projectionStop:
		return identity{}, nil
	case k == tokLBracket || k == tokFilter:
		return p.expression(binding)
	case k == tokDot:
		p.i++
		return p.afterDot(binding)
	}
	return nil, p.unexpected()
}

func (p *parser) afterDot(binding int) (node, error) {
	switch p.at(0).kind {
	case tokQuoted, tokName, tokStar:
		return p.expression(binding)
	case tokLBracket:
		p.i++
		return p.multiList()
	case tokLBrace:
		p.i++
		return p.multiDict()
	}
	return nil, p.unexpected()
}

func (p *parser) multiList() (node, error) {
	var n multiList
	for {
		e, err := p.expression(0)
		if err != nil {
			return nil, err
		}
		n = append(n, e)
		if p.at(0).kind == tokRBracket {
			p.i++
			return n, nil
		}
		if err := p.match(tokComma); err != nil {
			return nil, err
		}
	}
}

func (p *parser) multiDict() (node, error) {
	var n multiDict
	for {
		t := p.at(0)
		if t.kind != tokName && t.kind != tokQuoted {
			return nil, p.unexpected()
		}
		p.i++
		if err := p.match(tokColon); err != nil {
			return nil, err
		}
		e, err := p.expression(0)
		if err != nil {
			return nil, err
		}
		n.keys, n.values = append(n.keys, t.text), append(n.values, e)
		if p.at(0).kind == tokRBrace {
			p.i++
			return n, nil
		}
		if err := p.match(tokComma); err != nil {
			return nil, err
		}
	}
}
