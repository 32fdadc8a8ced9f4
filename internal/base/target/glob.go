package target

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Glob is a shell pattern of Python's fnmatch: * matches any text, slashes and
// newlines included, ? one character, [seq] and [!seq] one character of a set.
// An unclosed bracket matches itself. The zero Glob matches only the empty
// string. A Glob is immutable.
type Glob struct {
	toks []globTok
}

type globKind uint8

const (
	globLiteral globKind = iota
	globAny
	globOne
	globSet
)

type globTok struct {
	kind globKind
	text string
	set  *runeSet
}

// runeSet is a set of characters: pairs of first and last.
type runeSet struct {
	negated bool
	pairs   []rune
}

func (s *runeSet) has(r rune) bool {
	for i := 0; i+1 < len(s.pairs); i += 2 {
		if s.pairs[i] <= r && r <= s.pairs[i+1] {
			return !s.negated
		}
	}
	return s.negated
}

// ParseGlob parses a pattern. Every string is a valid pattern.
func ParseGlob(pattern string) Glob {
	var g Glob
	var lit []byte
	flush := func() {
		if len(lit) > 0 {
			g.toks = append(g.toks, globTok{kind: globLiteral, text: string(lit)})
			lit = lit[:0]
		}
	}
	unclosed := false // no later bracket is closed; searching again would take quadratic time
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '*':
			flush()
			if n := len(g.toks); n == 0 || g.toks[n-1].kind != globAny {
				g.toks = append(g.toks, globTok{kind: globAny})
			}
		case '?':
			flush()
			g.toks = append(g.toks, globTok{kind: globOne})
		case '[':
			end := -1
			if !unclosed {
				end = bracketEnd(pattern, i+1)
			}
			if end < 0 {
				unclosed = true
				lit = append(lit, '[')
				continue
			}
			flush()
			g.toks = append(g.toks, globTok{kind: globSet, set: parseSet([]rune(pattern[i+1 : end]))})
			i = end
		default:
			lit = append(lit, pattern[i])
		}
	}
	flush()
	return g
}

// bracketEnd returns the index of the bracket that closes a set whose content
// starts at i, or -1. A closing bracket in first position is a member.
func bracketEnd(p string, i int) int {
	if i < len(p) && p[i] == '!' {
		i++
	}
	if i < len(p) && p[i] == ']' {
		i++
	}
	if i > len(p) {
		return -1
	}
	if j := strings.IndexByte(p[i:], ']'); j >= 0 {
		return i + j
	}
	return -1
}

// parseSet parses the content of brackets. As in Python, a range in the wrong
// order is omitted together with its ends.
func parseSet(in []rune) *runeSet {
	set := &runeSet{}
	if len(in) > 0 && in[0] == '!' {
		set.negated = true
		in = in[1:]
	}
	for i := 0; i < len(in); i++ {
		lo, hi := in[i], in[i]
		if i+2 < len(in) && in[i+1] == '-' {
			hi = in[i+2]
			i += 2
			if lo > hi {
				continue
			}
		}
		set.pairs = append(set.pairs, lo, hi)
	}
	return set
}

// Match reports whether the pattern matches the whole of s. It takes at most
// time proportional to the product of both lengths.
func (g Glob) Match(s string) bool {
	ti, si := 0, 0
	starTok, starPos := -1, 0 // where to resume if the last * must match more
	for {
		if ti == len(g.toks) {
			if si == len(s) {
				return true
			}
		} else if t := &g.toks[ti]; t.kind == globAny {
			if ti == len(g.toks)-1 {
				return true
			}
			starTok, starPos = ti, si
			ti++
			continue
		} else if n := t.step(s[si:]); n >= 0 {
			ti++
			si += n
			continue
		}
		if starTok < 0 {
			return false
		}
		starPos = g.advance(s, starTok, starPos)
		if starPos < 0 {
			return false
		}
		ti, si = starTok+1, starPos
	}
}

// advance returns the next position from pos where the token after the star can
// match, or -1.
func (g Glob) advance(s string, star, pos int) int {
	if pos >= len(s) {
		return -1
	}
	_, n := utf8.DecodeRuneInString(s[pos:])
	pos += n
	if next := &g.toks[star+1]; next.kind == globLiteral {
		i := strings.Index(s[pos:], next.text)
		if i < 0 {
			return -1
		}
		return pos + i
	}
	return pos
}

// step returns how many bytes of s the token matches, or -1.
func (t *globTok) step(s string) int {
	if t.kind == globLiteral {
		if strings.HasPrefix(s, t.text) {
			return len(t.text)
		}
		return -1
	}
	if s == "" {
		return -1
	}
	r, n := utf8.DecodeRuneInString(s)
	if t.kind == globSet && !t.set.has(r) {
		return -1
	}
	return n
}

// Literal returns the only string that g matches, if there is only one.
func (g Glob) Literal() (string, bool) {
	switch {
	case len(g.toks) == 0:
		return "", true
	case len(g.toks) == 1 && g.toks[0].kind == globLiteral:
		return g.toks[0].text, true
	}
	return "", false
}

// All reports whether g matches every string.
func (g Glob) All() bool {
	return slices.EqualFunc(g.toks, []globKind{globAny}, func(t globTok, k globKind) bool { return t.kind == k })
}
