package pyre

import (
	"fmt"
	"strconv"
	"strings"
)

// template is a replacement: literal text and groups alternately.
type template []part

type part struct {
	text  string
	group int // -1 for literal text
}

func (t template) expand(m *Match) string {
	var b strings.Builder
	for _, p := range t {
		if p.group < 0 {
			b.WriteString(p.text)
		} else {
			s, _ := m.Group(p.group)
			b.WriteString(s)
		}
	}
	return b.String()
}

// Expand returns a replacement with the groups of the match inserted.
func (m *Match) Expand(repl string) (string, error) {
	t, err := m.re.template(repl)
	if err != nil {
		return "", err
	}
	return t.expand(m), nil
}

var plainEscapes = map[byte]string{'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v", '\\': "\\"}

// template parses a replacement.
func (r *Regexp) template(repl string) (template, error) {
	var t template
	var text strings.Builder
	group := func(i int) error {
		if i > r.groups {
			return fmt.Errorf("%w: invalid group reference %d in the replacement %q", ErrPattern, i, repl)
		}
		t = append(t, part{text.String(), -1}, part{"", i})
		text.Reset()
		return nil
	}
	for i := 0; i < len(repl); {
		if repl[i] != '\\' || i+1 >= len(repl) {
			if repl[i] == '\\' {
				return nil, fmt.Errorf("%w: bad escape (end of pattern) in the replacement %q", ErrPattern, repl)
			}
			text.WriteByte(repl[i])
			i++
			continue
		}
		c, rest := repl[i+1], repl[i+2:]
		i += 2
		switch plain, ok := plainEscapes[c]; {
		case ok:
			text.WriteString(plain)
		case c == 'g':
			name, _, closed := strings.Cut(strings.TrimPrefix(rest, "<"), ">")
			if !strings.HasPrefix(rest, "<") || !closed {
				return nil, fmt.Errorf("%w: missing group name in the replacement %q", ErrPattern, repl)
			}
			n := r.Index(name)
			if digits(name) {
				n, _ = strconv.Atoi(name)
			}
			if n < 0 {
				return nil, fmt.Errorf("%w: unknown group name %q in the replacement %q", ErrPattern, name, repl)
			}
			if err := group(n); err != nil {
				return nil, err
			}
			i += len(name) + 2
		case c == '0':
			n := octal(rest, 2)
			v, _ := strconv.ParseUint("0"+rest[:n], 8, 32)
			text.WriteRune(rune(v))
			i += n
		case c >= '1' && c <= '9':
			if n := octal(repl[i-1:], 3); n == 3 {
				v, _ := strconv.ParseUint(repl[i-1:i+2], 8, 32)
				text.WriteRune(rune(v))
				i += 2
				break
			}
			n := 1
			if rest != "" && rest[0] >= '0' && rest[0] <= '9' {
				n = 2
			}
			v, _ := strconv.Atoi(repl[i-1 : i-1+n])
			if err := group(v); err != nil {
				return nil, err
			}
			i += n - 1
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			return nil, fmt.Errorf(`%w: bad escape \%c in the replacement %q`, ErrPattern, c, repl)
		default:
			text.WriteByte('\\')
			text.WriteByte(c)
		}
	}
	return append(t, part{text.String(), -1}), nil
}

// octal counts leading octal digits, up to max.
func octal(s string, max int) int {
	n := 0
	for n < len(s) && n < max && s[n] >= '0' && s[n] <= '7' {
		n++
	}
	return n
}
