// Package textedit edits text as Salt's file functions and states do: replace
// by a pattern, manage a line, a block or comments. It also makes unified
// diffs, identical to those of Python's difflib. It works on strings, not on
// files.
//
// Errors are *Error: invalid arguments, or text that does not match the
// arguments. Their messages are for the user.
package textedit

import (
	"fmt"
	"strings"
)

// Error is an invalid argument, or text that does not match the arguments.
type Error struct{ Text string }

func (e *Error) Error() string { return e.Text }

func errorf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// SplitLines splits text after every \n. Only the last line can lack one; an
// empty text has no lines.
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

// splitAny splits text after every \n, \r\n and \r.
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
