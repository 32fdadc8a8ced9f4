package proc

import (
	"errors"
	"strings"
)

// Errors of Split.
var (
	ErrQuote  = errors.New("no closing quotation")
	ErrEscape = errors.New("no escaped character")
)

// Split splits a line into words as a POSIX shell does, without expansion:
// blanks separate, quotes and backslashes escape. Within double quotes a
// backslash escapes only itself and the quote.
func Split(line string) ([]string, error) {
	words := []string{}
	var word strings.Builder
	inWord := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case ' ', '\t', '\r', '\n':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		case '\\':
			if i++; i == len(line) {
				return nil, ErrEscape
			}
			word.WriteByte(line[i])
			inWord = true
		case '\'', '"':
			end, err := quoted(&word, line, i)
			if err != nil {
				return nil, err
			}
			i, inWord = end, true
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// quoted adds the text between the quote at i and its end, which it returns.
func quoted(word *strings.Builder, line string, i int) (end int, err error) {
	quote := line[i]
	for i++; i < len(line); i++ {
		switch c := line[i]; {
		case c == quote:
			return i, nil
		case c == '\\' && quote == '"':
			if i++; i == len(line) {
				return 0, ErrEscape
			}
			if line[i] != '"' && line[i] != '\\' {
				word.WriteByte('\\')
			}
			word.WriteByte(line[i])
		default:
			word.WriteByte(c)
		}
	}
	return 0, ErrQuote
}

// Quote quotes word for a POSIX shell.
func Quote(word string) string {
	safe := word != ""
	for i := 0; i < len(word) && safe; i++ {
		c := word[i]
		safe = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("@%+=:,./-_", c) >= 0
	}
	if safe {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'"'"'`) + "'"
}
