package grains

import (
	"regexp"
	"strings"

	"brine/internal/py/value"
)

// without returns d without the keys that match a pattern, d itself if none
// matches. A pattern is tried as a glob and as a regular expression for the
// whole name; an invalid pattern matches nothing. As in Salt, the expression
// "a|b" matches what starts with a, or is b.
func without(d *value.Dict, patterns []string) *value.Dict {
	if len(patterns) == 0 || d.Len() == 0 {
		return d
	}
	var rx []*regexp.Regexp
	for _, p := range patterns {
		if re, err := regexp.Compile(`^(?s:` + glob(p) + `)\z`); err == nil {
			rx = append(rx, re)
		}
		whole := `\A` + p + `\z`
		if _, err := regexp.Compile(whole); err != nil { // an unbalanced parenthesis would close ours
			continue
		}
		if re, err := regexp.Compile(`^(?:` + whole + `)`); err == nil {
			rx = append(rx, re)
		}
	}
	kept := value.NewDict(d.Len())
	for k, v := range d.All() {
		name, isText := k.(string)
		if !isText || !matchAny(rx, name) {
			kept.Set(k, v)
		}
	}
	return kept
}

func matchAny(rx []*regexp.Regexp, s string) bool {
	for _, re := range rx {
		if re.MatchString(s) {
			return true
		}
	}
	return false
}

// glob converts *, ? and [!a-z] to a regular expression.
func glob(p string) string {
	var b strings.Builder
	for i := 0; i < len(p); {
		switch c := p[i]; c {
		case '*':
			b.WriteString(".*")
		case '?':
			b.WriteByte('.')
		case '[':
			if set, n := globSet(p[i:]); n > 0 {
				b.WriteString(set)
				i += n
				continue
			}
			b.WriteString(`\[`)
		default:
			j := i + 1
			for j < len(p) && strings.IndexByte("*?[", p[j]) < 0 {
				j++
			}
			b.WriteString(regexp.QuoteMeta(p[i:j]))
			i = j
			continue
		}
		i++
	}
	return b.String()
}

// globSet reads a set in brackets at the start of p and returns its length, 0
// if it does not end.
func globSet(p string) (rx string, n int) {
	start := 1
	if start < len(p) && p[start] == '!' {
		start++
	}
	end := start
	if end < len(p) && p[end] == ']' {
		end++ // a bracket in first position is literal
	}
	for end < len(p) && p[end] != ']' {
		end++
	}
	if end >= len(p) {
		return "", 0
	}
	negate := ""
	if start == 2 {
		negate = "^"
	}
	set := strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(p[start:end])
	return "[" + negate + set + "]", end + 1
}
