package yaml

import (
	"bytes"
	"errors"
	"strings"
)

// Salt's loader accepts a flow collection whose continuation lines are indented
// less than the enclosing block. That happens where a template inserts a dumped
// value folded at 80 columns:
//
//	- context:
//	    config: {port: 22,
//	  host: localhost}
//
// The scanner of the YAML library rejects that. Leading blanks have no meaning
// inside a flow collection, so such lines are indented further.

// textOutdented is the scanner's message for such a line (and for others).
const textOutdented = "mapping values are not allowed in this context"

// outdents bounds how often a document is read again for such lines.
const outdents = 200

// deepen calls load with data. As long as load fails for an outdented line, it
// indents that line further and calls load again.
func deepen[T any](data []byte, load func([]byte) (T, error)) (T, error) {
	v, err := load(data)
	first, moved := err, map[int]bool{}
	var blanks []byte
	for range outdents {
		var e *Error
		if !errors.As(err, &e) || e.Reason != textOutdented || e.Line < 2 || moved[e.Line] || !insideFlow(data, e.Line, load) {
			break
		}
		if blanks == nil {
			blanks = bytes.Repeat([]byte(" "), deepest(data)+1)
		}
		data = indent(data, e.Line, blanks, moved)
		v, err = load(data)
	}
	var e *Error
	if errors.As(err, &e) {
		if moved[e.Line] && e.Reason == textOutdented {
			return v, first
		}
		if moved[e.Line] {
			e.Column = max(1, e.Column-len(blanks))
		}
	}
	return v, err
}

// insideFlow reports whether a flow collection is open at the beginning of a
// line: a document that ends there lacks the closing bracket.
func insideFlow[T any](data []byte, n int, load func([]byte) (T, error)) bool {
	end := 0
	for line := range bytes.Lines(data) {
		if n--; n == 0 {
			break
		}
		end += len(line)
	}
	_, err := load(data[:end:end])
	var e *Error
	return errors.As(err, &e) && (strings.HasPrefix(e.Context, "while parsing a flow ") || e.Context == "while scanning a quoted scalar")
}

// deepest returns more than the column of any block of the document.
func deepest(data []byte) int {
	n := 0
	for line := range bytes.Lines(data) {
		rest := bytes.TrimLeft(line, " -?") // a block may begin after "- - "
		n = max(n, len(line)-len(rest))
	}
	return n
}

// indent indents line n, which is inside a flow collection, and the following
// lines inside the collection.
func indent(data []byte, n int, blanks []byte, moved map[int]bool) []byte {
	out := make([]byte, 0, len(data)+len(blanks))
	s := flowScan{}
	i := 0
	for line := range bytes.Lines(data) {
		i++
		if i == n || i > n && s.inside() {
			if !moved[i] {
				out = append(out, blanks...)
				moved[i] = true
			}
			s.line(line)
		} else if i > n {
			s.closed = true
		}
		out = append(out, line...)
	}
	return out
}

// flowScan tracks brackets from the beginning of a line inside a flow
// collection.
type flowScan struct {
	depth  int  // relative to the beginning; unknown below 0
	quote  byte // quote of an open quoted scalar
	closed bool
}

func (s *flowScan) inside() bool { return !s.closed && (s.depth >= 0 || s.quote != 0) }

func (s *flowScan) line(line []byte) {
	token := true // a quote may begin a scalar here
	for i := 0; i < len(line) && s.depth >= 0; i++ {
		c := line[i]
		if s.quote != 0 {
			switch {
			case s.quote == '"' && c == '\\':
				i++
			case c == s.quote && c == '\'' && i+1 < len(line) && line[i+1] == '\'':
				i++
			case c == s.quote:
				s.quote = 0
			}
			continue
		}
		switch c {
		case '{', '[':
			s.depth++
			token = true
		case '}', ']':
			s.depth--
			token = false
		case ',', ':':
			token = true
		case ' ', '\t':
		case '#':
			if i == 0 || line[i-1] == ' ' || line[i-1] == '\t' {
				return
			}
		case '\'', '"':
			if token {
				s.quote = c
			}
			token = false
		default:
			token = false
		}
	}
}
