package output

import (
	"strings"
	"unicode"
)

// wrapText fills lines of at most cols columns, each indented, like Python's textwrap: it breaks at
// white space and at hyphens within words, and splits words longer than a line.
func wrapText(s string, cols, indent int) string {
	pad := strings.Repeat(" ", indent)
	room := cols - indent
	var lines []string
	cur, curWidth := "", 0
	flush := func() {
		if t := strings.TrimRight(cur, " "); t != "" {
			lines = append(lines, pad+t)
		}
		cur, curWidth = "", 0
	}
	for _, c := range wrapChunks(s) {
		w := width(c)
		if curWidth+w > room {
			if w > room { // split a word that fits no line
				rs := []rune(c)
				for len(rs) > room-curWidth {
					n := room - curWidth
					cur += string(rs[:n])
					flush()
					rs = rs[n:]
				}
				c, w = string(rs), len(rs)
			} else {
				flush()
			}
		}
		if cur == "" && len(lines) > 0 && strings.TrimSpace(c) == "" {
			continue // no spaces at the start of further lines
		}
		cur += c
		curWidth += w
	}
	flush()
	return strings.Join(lines, "\n")
}

// wrapChunks splits s into runs of white space and words. A word also ends after a hyphen that has
// two letters on each side.
func wrapChunks(s string) []string {
	rs := []rune(strings.Map(func(r rune) rune {
		if r < 0x80 && pySpace(r) {
			return ' '
		}
		return r
	}, strings.ReplaceAll(s, "\t", "        ")))
	var out []string
	start := 0
	for i := 1; i <= len(rs); i++ {
		if i == len(rs) || (rs[i] == ' ') != (rs[i-1] == ' ') || hyphenBreak(rs, i) {
			out = append(out, string(rs[start:i]))
			start = i
		}
	}
	return out
}

// hyphenBreak reports whether a word may break before rs[i].
func hyphenBreak(rs []rune, i int) bool {
	letter := func(j int) bool {
		return j >= 0 && j < len(rs) && (unicode.IsLetter(rs[j]) || rs[j] == '_')
	}
	if rs[i-1] != '-' {
		return false
	}
	before := letter(i-2) && (letter(i-3) || i >= 4 && rs[i-3] == '-' && letter(i-4))
	after := letter(i) && (letter(i+1) || i+2 < len(rs) && rs[i+1] == '-' && letter(i+2))
	return before && after
}
