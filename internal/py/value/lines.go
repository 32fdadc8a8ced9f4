package value

import (
	"strings"
	"unicode/utf8"
)

// SplitLines splits text as Python's str.splitlines does: other characters than
// \n end a line too, and a final line end does not start an empty line. keep
// retains the line ends.
func SplitLines(s string, keep bool) []string {
	var out []string
	for s != "" {
		i := strings.IndexAny(s, "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029")
		if i < 0 {
			return append(out, s)
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			n = 2
		}
		line := s[:i]
		if keep {
			line = s[:i+n]
		}
		out = append(out, line)
		s = s[i+n:]
	}
	return out
}
