// Package textedit changes texts as Salt's file functions and states do:
// replace by a pattern, keep a line, a block, comments; and it shows changes
// as unified diffs, which are those of Python's difflib to the letter. It
// knows nothing of files: texts in, texts out.
//
// Errors are *Error: they are about arguments or about a text that is not as
// the arguments expect, and their texts are for the user.
package textedit

import (
	"fmt"
	"strings"
)

// Error is a fault of arguments, or a text that is not as expected.
type Error struct{ Text string }

func (e *Error) Error() string { return e.Text }

func errorf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// SplitLines cuts a text after every \n. Only the last line can be without
// one; an empty text has no lines.
func SplitLines(text string) []string {
	if text == "" {
		return nil
	}
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// splitAny cuts a text after every \n, \r\n and \r.
func splitAny(text string) []string {
	var lines []string
	for text != "" {
		i := strings.IndexAny(text, "\r\n")
		if i < 0 {
			return append(lines, text)
		}
		if strings.HasPrefix(text[i:], "\r\n") {
			i++
		}
		lines = append(lines, text[:i+1])
		text = text[i+1:]
	}
	return lines
}

// eol returns the end of a line.
func eol(line string) string {
	switch {
	case strings.HasSuffix(line, "\r\n"):
		return "\r\n"
	case strings.HasSuffix(line, "\n"):
		return "\n"
	case strings.HasSuffix(line, "\r"):
		return "\r"
	}
	return ""
}
