package textedit

import (
	"slices"
	"strings"

	"brine/internal/py/pyre"
)

// Line is a desired or an unwanted line of a text.
type Line struct {
	// Mode is insert, ensure, replace or delete.
	Mode string
	// Content is the line. It is nil only for delete.
	Content *string
	// Match finds the line to replace or delete; empty means the content.
	Match string
	// Location is "start" or "end".
	Location string
	// Before and After find the neighbours of the line. They and Match are
	// patterns, or literal parts of a line.
	Before, After *string
	// Indent gives the line the indentation of its neighbour.
	Indent bool
}

// Apply returns the text with the line applied.
func (e Line) Apply(text string) (string, error) {
	if err := e.check(); err != nil {
		return "", err
	}
	lines := SplitLines(text)
	if n := len(lines); n > 0 && eol(lines[n-1]) != "" {
		lines = append(lines, "") // allows appending a line
	}
	lines, err := e.edit(lines)
	if err != nil {
		return "", err
	}
	for i, l := range lines {
		if eol(l) == "" && i+1 < len(lines) {
			near := 1
			if i > 0 {
				near = i - 1
			}
			lines[i] = withEOL(lines[near], l)
		}
	}
	return strings.Join(lines, ""), nil
}

func (e *Line) check() error {
	switch e.Mode {
	case "":
		return errorf("Mode was not defined. How to process the file?")
	case "insert", "ensure", "replace":
		if e.Content == nil {
			return errorf(`Content can only be empty if mode is "delete"`)
		}
	case "delete":
	default:
		return errorf(`Unknown mode: "%s"`, e.Mode)
	}
	if e.Before == nil && e.After == nil && e.Match == "" && e.Content != nil {
		e.Match = *e.Content
	}
	return nil
}

func (e Line) edit(lines []string) ([]string, error) {
	if len(lines) == 0 { // an empty text has no lines to match
		e.Before, e.After = nil, nil
	}
	match, err := find(lines, &e.Match)
	if err != nil {
		return nil, err
	}
	switch e.Mode {
	case "delete":
		if len(match) == 0 {
			return lines, nil
		}
		return slices.DeleteFunc(lines, func(l string) bool { return l == match[0] }), nil
	case "replace":
		if len(match) > 0 {
			i := slices.Index(lines, match[0])
			lines[i] = e.indented(lines[i])
		}
		return lines, nil
	}
	if e.Mode == "insert" && e.Location != "" {
		for _, unused := range []*string{e.Before, e.After} {
			if _, err := find(lines, unused); err != nil {
				return nil, err
			}
		}
		return e.atLocation(lines), nil
	}
	before, errBefore := one(lines, e.Before, "before")
	after, errAfter := one(lines, e.After, "after")
	if e.Mode == "ensure" {
		errBefore, errAfter = errAfter, errBefore
	}
	if errBefore != nil {
		return nil, errBefore
	}
	if errAfter != nil {
		return nil, errAfter
	}
	if e.Mode == "ensure" {
		return e.ensure(lines, before, after)
	}
	return e.insert(lines, before, after)
}

func (e Line) atLocation(lines []string) []string {
	switch {
	case e.Location == "end" && len(lines) > 0:
		return append(lines, e.indented(lines[len(lines)-1]))
	case e.Location == "end":
		return []string{*e.Content}
	case e.Location == "start" && len(lines) > 0:
		return slices.Insert(lines, 0, withEOL(lines[0], *e.Content))
	case e.Location == "start":
		return []string{*e.Content + "\n"}
	}
	return lines
}

// insert inserts the line; before and after are -1 if not found.
func (e Line) insert(lines []string, before, after int) ([]string, error) {
	switch {
	case e.Before == nil && e.After == nil:
		return nil, errorf(`On insert either "location" or "before/after" conditions are required.`)
	case before < 0 && after < 0:
		return nil, errorf("Neither before or after was found in file")
	case before >= 0 && after >= 0:
		return slices.Insert(lines, before, e.indented(lines[before])), nil
	case after >= 0:
		if after+1 < len(lines) && e.is(lines[after+1]) {
			return lines, nil
		}
		return slices.Insert(lines, after+1, e.indented(lines[after])), nil
	default:
		if e.is(lines[(before-1+len(lines))%len(lines)]) {
			return lines, nil
		}
		return slices.Insert(lines, before, e.indented(lines[before])), nil
	}
}

func (e Line) ensure(lines []string, before, after int) ([]string, error) {
	switch {
	case before >= 0 && after >= 0:
		if slices.ContainsFunc(lines, func(l string) bool { return strings.TrimLeft(l, whitespace) == *e.Content }) {
			return lines, nil
		}
		switch before - after {
		case 1:
			return slices.Insert(lines, before, e.indented(lines[after])), nil
		case 2:
			if e.is(lines[after+1]) || e.is(strings.TrimLeft(lines[after+1], whitespace)) {
				return lines, nil
			}
			lines[after+1] = e.indented(lines[after])
			return lines, nil
		}
		return nil, errorf(`Found more than one line between boundaries "before" and "after".`)
	case before >= 0:
		if before > 0 && e.is(lines[before-1]) {
			return lines, nil
		}
		return slices.Insert(lines, before, e.indented(lines[(before-1+len(lines))%len(lines)])), nil
	case after >= 0:
		if after+1 < len(lines) && e.is(lines[after+1]) {
			return lines, nil
		}
		return slices.Insert(lines, after+1, e.indented(lines[after])), nil
	}
	return nil, errorf("Wrong conditions? Unable to ensure line without knowing where to put it before and/or after.")
}

const whitespace = " \t\n\r\v\f"

// is reports whether a line equals the content, ignoring its line end.
func (e Line) is(line string) bool {
	return strings.TrimRight(line, "\r\n") == strings.TrimRight(*e.Content, "\r\n")
}

// indented returns the content with the indentation of a line.
func (e Line) indented(like string) string {
	if !e.Indent {
		return *e.Content
	}
	return like[:len(like)-len(strings.TrimLeft(like, " \t"))] + strings.TrimLeft(*e.Content, whitespace)
}

func withEOL(like, line string) string {
	end := eol(like)
	if end == "" {
		end = "\n"
	}
	return strings.TrimRight(line, whitespace) + end
}

// find returns the lines that a pattern matches or that contain it.
func find(lines []string, pattern *string) ([]string, error) {
	if pattern == nil || *pattern == "" {
		return nil, nil
	}
	re, err := pyre.Compile(*pattern, pyre.DotAll)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, l := range lines {
		m, err := re.Search(l)
		if err != nil {
			return nil, err
		}
		if m != nil || strings.Contains(l, *pattern) {
			found = append(found, l)
		}
	}
	return found, nil
}

// one returns the only line that a pattern finds, or -1 if there is none.
func one(lines []string, pattern *string, what string) (int, error) {
	found, err := find(lines, pattern)
	switch {
	case err != nil || len(found) == 0:
		return -1, err
	case len(found) > 1:
		return -1, errorf(`Found more than expected occurrences in "%s" expression`, what)
	}
	return slices.Index(lines, found[0]), nil
}
