package textedit

import (
	"strings"
	"unicode/utf8"

	"brine/internal/py/pyre"
)

// ReplaceOptions are the options of Replace.
type ReplaceOptions struct {
	Count   int        // maximum number of replacements, 0 for all
	Flags   pyre.Flags // of the pattern
	Literal bool       // backslashes in the replacement are literal
	// Append and Prepend add a line if the pattern was not found: NotFound or,
	// if that is nil, the replacement.
	Append, Prepend bool
	NotFound        *string
}

// Replace replaces the matches of a pattern. \w, \d, \s and \b are ASCII only,
// since Salt edits bytes. Text that is not UTF-8 is edited as bytes.
func Replace(text, pattern, repl string, o ReplaceOptions) (string, error) {
	o.Flags |= pyre.ASCII
	if utf8.ValidString(text) {
		return replace(text, pattern, repl, o)
	}
	if o.NotFound != nil {
		b := byBytes(*o.NotFound)
		o.NotFound = &b
	}
	result, err := replace(byBytes(text), byBytes(pattern), byBytes(repl), o)
	if err != nil {
		return "", err
	}
	out := make([]byte, 0, len(result))
	for _, r := range result {
		out = append(out, byte(r))
	}
	return string(out), nil
}

// byBytes converts each byte to a character.
func byBytes(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

func replace(text, pattern, repl string, o ReplaceOptions) (string, error) {
	if o.Append && o.Prepend {
		return "", errorf("Only one of append and prepend_if_not_found is permitted")
	}
	re, err := pyre.Compile(pattern, o.Flags)
	if err != nil {
		return "", err
	}
	with := repl
	if o.Literal {
		with = strings.ReplaceAll(repl, `\`, `\\`)
	}
	result, n, err := re.Sub(with, text, o.Count)
	if err != nil {
		return "", err
	}
	if n > 0 || !o.Append && !o.Prepend {
		return result, nil
	}
	add := repl
	if o.NotFound != nil {
		add = *o.NotFound
	}
	there := add
	if there == "" {
		there = repl
	}
	if re, err = pyre.Compile("^"+pyre.Escape(there)+`($|(?=\r\n))`, o.Flags); err != nil {
		return "", err
	}
	if m, err := re.Search(text); m != nil || err != nil {
		return text, err
	}
	if o.Prepend {
		return add + "\n" + text, nil
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + add + "\n", nil
}

// Comment inserts the comment character before every line that the pattern
// matches at its beginning. found reports whether there was one.
func Comment(text, pattern, char string) (result string, found bool, err error) {
	begin, end := "", ""
	if strings.HasPrefix(pattern, "^") {
		begin = "^"
	}
	if strings.HasSuffix(pattern, "$") {
		end = "$"
	}
	return eachLine(text, begin+"("+strings.TrimRight(strings.TrimLeft(pattern, "^"), "$")+")"+end, func(l string) string { return char + l })
}

// Uncomment removes the comment character from every line where a match of the
// pattern follows it.
func Uncomment(text, pattern, char string) (result string, found bool, err error) {
	end := ""
	if strings.HasSuffix(pattern, "$") {
		end = "$"
	}
	pattern = "^" + char + `\s*(` + strings.TrimRight(strings.TrimLeft(pattern, "^"), "$") + ")" + end
	return eachLine(text, pattern, func(l string) string { return strings.TrimLeft(l, char) })
}

func eachLine(text, pattern string, change func(string) string) (result string, found bool, err error) {
	re, err := pyre.Compile(pattern, 0)
	if err != nil {
		return "", false, err
	}
	var b strings.Builder
	for _, l := range SplitLines(text) {
		m, err := re.Match(l)
		if err != nil {
			return "", false, err
		}
		if m != nil {
			found = true
			l = change(l)
		}
		b.WriteString(l)
	}
	return b.String(), found, nil
}
