package textedit

import (
	"strings"

	"brine/internal/py/pyre"
)

// Block is a part of a text between two markers.
type Block struct {
	// Start and End are the markers; the rest of the marked lines stays.
	Start, End string
	// Content is the text between the markers.
	Content string
	// Newline says what to do if the content does not end with a newline: "yes"
	// for a line break before the end marker, "no" to put the marker after the
	// content, "auto" for a line break only if the content has none.
	Newline string
	// Append and Prepend add a missing block, Before and After insert it next
	// to the first line that matches a pattern. Only one of them may be set.
	Append, Prepend bool
	Before, After   string
}

// ErrNoBlock means that the markers were not found.
var ErrNoBlock error = &Error{"Cannot edit marked block. Markers were not found in file."}

// Apply returns the text with the block applied.
func (k Block) Apply(text string) (string, error) {
	ways := 0
	for _, set := range []bool{k.Append, k.Prepend, k.Before != "", k.After != ""} {
		if set {
			ways++
		}
	}
	if ways > 1 {
		return "", errorf("Only one of append_if_not_found, prepend_if_not_found, insert_before_match, and insert_after_match is permitted")
	}
	lines := SplitLines(text)
	sep := "\n"
	if len(lines) > 0 && strings.HasSuffix(lines[0], "\r\n") {
		sep = "\r\n"
	}
	var out []string
	inside, found := false, false
	for _, l := range lines {
		switch {
		case strings.Contains(l, k.Start):
			inside = true
		case inside:
			at := strings.Index(l, k.End)
			if at < 0 {
				continue // the old content
			}
			inside, found = false, true
			out = append(out, k.body(sep, l[at:])...)
			continue
		}
		out = append(out, l)
	}
	if inside {
		return "", errorf("Unterminated marked block. End of file reached before marker_end.")
	}
	if !found {
		var err error
		if out, err = k.insert(out, sep); err != nil {
			return "", err
		}
	}
	return strings.Join(out, ""), nil
}

// body returns the content and the line of the end marker.
func (k Block) body(sep, end string) []string {
	end = strings.TrimRight(end, "\r\n") + sep
	var out []string
	lines := strings.Split(strings.ReplaceAll(k.Content, "\r\n", "\n"), "\n")
	for _, l := range lines[:len(lines)-1] {
		out = append(out, l+sep)
	}
	last := lines[len(lines)-1]
	if k.Newline == "yes" || k.Newline == "auto" && !strings.HasSuffix(k.Content, "\n") {
		return append(out, last+sep, end)
	}
	return append(out, last+end)
}

func (k Block) insert(lines []string, sep string) ([]string, error) {
	whole := append([]string{k.Start + sep}, k.body(sep, k.End)...)
	switch {
	case k.Prepend:
		return append(whole, lines...), nil
	case k.Append:
		if n := len(lines); n > 0 && !strings.HasSuffix(lines[n-1], sep) {
			lines[n-1] += sep
		}
		return append(lines, whole...), nil
	}
	at, err := k.place(lines)
	if err != nil {
		return nil, err
	}
	return append(append(append([]string{}, lines[:at]...), whole...), lines[at:]...), nil
}

// place returns the line before which a new block is inserted.
func (k Block) place(lines []string) (int, error) {
	pattern, add := k.Before, 0
	if k.After != "" {
		pattern, add = k.After, 1
	}
	if pattern == "" {
		return 0, ErrNoBlock
	}
	re, err := pyre.Compile(pattern, 0)
	if err != nil {
		return 0, err
	}
	for i, l := range lines {
		m, err := re.Search(l)
		if err != nil {
			return 0, err
		}
		if m != nil {
			return i + add, nil
		}
	}
	return 0, ErrNoBlock
}
