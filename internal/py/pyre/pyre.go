// Package pyre implements Python's module re: the syntax of patterns and
// replacements, and search, match, fullmatch, findall, split and sub, which SLS
// files, templates and file edits rely on. Positions count characters, as in
// Python.
//
// Matching backtracks, so that look-around and back-references work. A match
// that exceeds Timeout or the memory limit fails with an error.
//
// One difference: after an empty match, the search continues at the next
// character. Python first tries a match that is not empty at the same position
// (a pattern such as "|a" has only empty matches here).
//
// Source: the documentation of Python 3's re.
package pyre

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dlclark/regexp2/v2"
)

// Timeout bounds one search.
const Timeout = 5 * time.Second

const (
	maxPattern = 64 << 10 // bytes
	maxStack   = 4 << 20  // positions to backtrack to
)

// ErrPattern is matched by errors in a pattern or a replacement.
var ErrPattern = errors.New("bad regular expression")

// Regexp is a compiled pattern. It is safe for concurrent use.
type Regexp struct {
	pattern string
	re      *regexp2.Regexp // for searches
	begin   func() (*regexp2.Regexp, error)
	whole   func() (*regexp2.Regexp, error)
	groups  int
	names   map[string]int
	order   []string // names by group number
}

// Compile parses a pattern. The error matches ErrPattern.
func Compile(pattern string, flags Flags) (*Regexp, error) {
	return CompileWithin(pattern, flags, Timeout)
}

// CompileWithin is Compile for a pattern of an untrusted peer: one search ends
// after the timeout.
func CompileWithin(pattern string, flags Flags, timeout time.Duration) (*Regexp, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d are taken", ErrPattern, len(pattern), maxPattern)
	}
	t, err := translate(pattern, flags)
	if err != nil {
		return nil, fmt.Errorf("%w %q: %w", ErrPattern, pattern, err)
	}
	flags = t.flags
	// A comment of a verbose pattern may run up to the end of its line.
	frame := "%s"
	if flags&Verbose != 0 {
		frame = "%s\n"
	}
	compile := func(frame string) (*regexp2.Regexp, error) {
		re, err := regexp2.Compile(fmt.Sprintf(frame, t.text), flags.options(), regexp2.OptionMaintainCaptureOrder(),
			regexp2.OptionMaxBacktrackingStackSize(maxStack))
		if err != nil {
			return nil, fmt.Errorf("%w %q: %w", ErrPattern, pattern, err)
		}
		re.MatchTimeout = timeout
		return re, nil
	}
	re, err := compile("%s")
	if err != nil {
		return nil, err
	}
	return &Regexp{
		pattern: pattern, re: re, groups: t.groups, names: t.names, order: t.order,
		begin: sync.OnceValues(func() (*regexp2.Regexp, error) { return compile(`\A(?:` + frame + `)`) }),
		whole: sync.OnceValues(func() (*regexp2.Regexp, error) { return compile(`\A(?:` + frame + `)\z`) }),
	}, nil
}

// String returns the pattern.
func (r *Regexp) String() string { return r.pattern }

// Groups returns the number of groups of the pattern, without group 0.
func (r *Regexp) Groups() int { return r.groups }

// Names returns the names of groups in group order.
func (r *Regexp) Names() []string { return r.order }

// Index returns the group of a name, and -1 if there is none.
func (r *Regexp) Index(name string) int {
	if i, ok := r.names[name]; ok {
		return i
	}
	return -1
}

// Match is a match of a pattern.
type Match struct {
	text   []rune
	bounds []int // begin and end of each group, -1 if it did not participate
	re     *Regexp
}

// Group returns the text of a group, 0 for the whole match, and whether the
// group participated.
func (m *Match) Group(i int) (text string, ok bool) {
	if b, e := m.Span(i); b >= 0 {
		return string(m.text[b:e]), true
	}
	return "", false
}

// Named returns the text of a named group.
func (m *Match) Named(name string) (text string, ok bool) {
	if i := m.re.Index(name); i >= 0 {
		return m.Group(i)
	}
	return "", false
}

// Text returns the text of the whole match.
func (m *Match) Text() string { return string(m.text[m.bounds[0]:m.bounds[1]]) }

// Span returns begin and end of a group in characters, or -1.
func (m *Match) Span(i int) (begin, end int) {
	if i < 0 || 2*i+1 >= len(m.bounds) {
		return -1, -1
	}
	return m.bounds[2*i], m.bounds[2*i+1]
}

// Regexp returns the pattern of the match.
func (m *Match) Regexp() *Regexp { return m.re }

// each calls yield with every match from left to right until yield returns
// false.
func (r *Regexp) each(text []rune, yield func(*Match) bool) error {
	err := r.re.FindRunesMatches(text, 0, func(v regexp2.MatchView) bool {
		m := &Match{text: text, bounds: make([]int, 2*(r.groups+1)), re: r}
		for i := range r.groups + 1 {
			at, n, ok := v.GroupRange(i)
			m.bounds[2*i], m.bounds[2*i+1] = at, at+n
			if !ok {
				m.bounds[2*i], m.bounds[2*i+1] = -1, -1
			}
		}
		return yield(m)
	})
	if err != nil {
		return fmt.Errorf("the search for the regular expression %q was stopped: %w", r.pattern, err)
	}
	return nil
}

func (r *Regexp) first(text string) (m *Match, err error) {
	err = r.each([]rune(text), func(found *Match) bool { m = found; return false })
	return m, err
}

// Search returns the first match anywhere, or nil.
func (r *Regexp) Search(text string) (*Match, error) { return r.first(text) }

// Match returns the match at the beginning of the text, or nil.
func (r *Regexp) Match(text string) (*Match, error) { return r.anchored(r.begin, text) }

// FullMatch returns the match of the whole text, or nil.
func (r *Regexp) FullMatch(text string) (*Match, error) { return r.anchored(r.whole, text) }

func (r *Regexp) anchored(form func() (*regexp2.Regexp, error), text string) (*Match, error) {
	re, err := form()
	if err != nil {
		return nil, err
	}
	a := *r
	a.re = re
	return a.first(text)
}

// FindAll returns all matches.
func (r *Regexp) FindAll(text string) (all []*Match, err error) {
	err = r.each([]rune(text), func(m *Match) bool { all = append(all, m); return true })
	return all, err
}

// Split splits the text at every match, at most max times unless max is 0. The
// groups of the matches are between the parts; a group that did not participate
// is nil.
func (r *Regexp) Split(text string, max int) (parts []*string, err error) {
	runes, at := []rune(text), 0
	add := func(b, e int) { s := string(runes[b:e]); parts = append(parts, &s) }
	err = r.each(runes, func(m *Match) bool {
		add(at, m.bounds[0])
		for i := 1; i <= r.groups; i++ {
			if b, e := m.Span(i); b >= 0 {
				add(b, e)
			} else {
				parts = append(parts, nil)
			}
		}
		at = m.bounds[1]
		max--
		return max != 0
	})
	add(at, len(runes))
	return parts, err
}

// Sub replaces every match, or the first max unless max is 0, by the
// replacement, in which \1, \g<name> and the like are expanded. It returns the
// number of replacements.
func (r *Regexp) Sub(repl, text string, max int) (result string, n int, err error) {
	t, err := r.template(repl)
	if err != nil {
		return "", 0, err
	}
	return r.SubFunc(t.expand, text, max)
}

// SubWithin is Sub that passes the length of each replacement to watch, which
// may stop a result that grows too long.
func (r *Regexp) SubWithin(repl, text string, watch func(length int)) (result string, err error) {
	t, err := r.template(repl)
	if err != nil {
		return "", err
	}
	result, _, err = r.SubFunc(func(m *Match) string {
		s := t.expand(m)
		watch(len(s))
		return s
	}, text, 0)
	return result, err
}

// SubFunc is Sub with a function that computes the replacement.
func (r *Regexp) SubFunc(repl func(*Match) string, text string, max int) (result string, n int, err error) {
	runes, at := []rune(text), 0
	var b strings.Builder
	err = r.each(runes, func(m *Match) bool {
		b.WriteString(string(runes[at:m.bounds[0]]))
		b.WriteString(repl(m))
		at = m.bounds[1]
		n++
		return n != max
	})
	if err != nil {
		return "", 0, err
	}
	if n == 0 {
		return text, 0, nil
	}
	b.WriteString(string(runes[at:]))
	return b.String(), n, nil
}

// Escape returns a pattern that matches the literal text.
func Escape(text string) string {
	var b strings.Builder
	for _, c := range text {
		if strings.ContainsRune("()[]{}?*+-|^$\\.&~# \t\n\r\v\f", c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}
