package yaml

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// prepare makes the checks of Salt's reader that the YAML library lacks: the
// characters, and a "..." without a document. It changes the version 1.2 to
// 1.1.
func prepare(data []byte) ([]byte, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if err := checkCharacters(data); err != nil {
		return nil, err
	}
	line, rest, n := []byte(nil), data, 0
	for len(rest) > 0 {
		at := len(data) - len(rest)
		line, rest, _ = bytes.Cut(rest, []byte("\n"))
		n++
		text := bytes.TrimSpace(line)
		switch {
		case len(text) == 0 || text[0] == '#':
		case marker(line, "..."):
			return nil, &Error{Stage: Parser, Mark: Mark{n, 1}, Reason: "did not find expected node content", Context: "while parsing a block node"}
		case bytes.HasPrefix(line, []byte("%YAML 1.2")):
			data = bytes.Clone(data)
			data[at+len("%YAML 1.")] = '1'
			return data, nil
		case line[0] != '%':
			return data, nil
		}
	}
	return data, nil
}

// marker reports whether a line begins with a document marker.
func marker(line []byte, m string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(m))
	return ok && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\r')
}

func checkCharacters(data []byte) error {
	for i := 0; i < len(data); {
		c := data[i]
		if c >= 0x20 && c < 0x7f || c == '\n' || c == '\r' || c == '\t' {
			i++
			continue
		}
		r, n := utf8.DecodeRune(data[i:])
		reason := ""
		switch {
		case r == utf8.RuneError && n == 1:
			reason = fmt.Sprintf("the text is not UTF-8: byte 0x%02x", c)
		case r < 0xa0 && r != 0x85, r >= 0xfffe && r < 0x10000:
			reason = fmt.Sprintf("unacceptable character #x%04x: control characters are not allowed", r)
		}
		if reason != "" {
			before := data[:i]
			start := bytes.LastIndexByte(before, '\n') + 1
			return &Error{
				Stage:  Reader,
				Mark:   Mark{bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[start:]) + 1},
				Reason: reason,
			}
		}
		i += n
	}
	return nil
}
