package pyre

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dlclark/regexp2/v2"
)

// Flags are options of a pattern. Their values are Python's.
type Flags int

// The flags.
const (
	IgnoreCase Flags = 2
	Locale     Flags = 4
	MultiLine  Flags = 8
	DotAll     Flags = 16
	Unicode    Flags = 32
	Verbose    Flags = 64
	Debug      Flags = 128
	ASCII      Flags = 256
)

var flagNames = map[string]Flags{
	"I": IgnoreCase, "IGNORECASE": IgnoreCase, "L": Locale, "LOCALE": Locale, "M": MultiLine, "MULTILINE": MultiLine, "S": DotAll, "DOTALL": DotAll,
	"U": Unicode, "UNICODE": Unicode, "X": Verbose, "VERBOSE": Verbose, "DEBUG": Debug, "A": ASCII, "ASCII": ASCII,
}

// FlagByName returns the flag of a name such as "MULTILINE" or "m".
func FlagByName(name string) (Flags, bool) {
	f, ok := flagNames[strings.ToUpper(name)]
	return f, ok
}

func (f Flags) options() regexp2.RegexOptions {
	o := regexp2.None
	for flag, option := range map[Flags]regexp2.RegexOptions{
		IgnoreCase: regexp2.IgnoreCase, MultiLine: regexp2.Multiline, DotAll: regexp2.Singleline, Verbose: regexp2.IgnorePatternWhitespace,
	} {
		if f&flag != 0 {
			o |= option
		}
	}
	return o
}

// translated is a pattern in the engine's syntax.
type translated struct {
	text   string
	flags  Flags // with those at the beginning
	groups int
	names  map[string]int
	order  []string
}

type translator struct {
	translated
	in      string
	at      int
	out     strings.Builder
	verbose bool
	ascii   bool
}

// Classes with the flag ASCII: outside of sets and within them.
var (
	asciiClasses = map[byte]string{
		'w': `[a-zA-Z0-9_]`, 'W': `[^a-zA-Z0-9_]`, 'd': `[0-9]`, 'D': `[^0-9]`, 's': `[ \t\n\r\f\v]`, 'S': `[^ \t\n\r\f\v]`,
		'b': `(?:(?<=[a-zA-Z0-9_])(?![a-zA-Z0-9_])|(?<![a-zA-Z0-9_])(?=[a-zA-Z0-9_]))`,
		'B': `(?:(?<=[a-zA-Z0-9_])(?=[a-zA-Z0-9_])|(?<![a-zA-Z0-9_])(?![a-zA-Z0-9_]))`,
	}
	asciiInSet = map[byte]string{
		'w': `a-zA-Z0-9_`, 'd': `0-9`, 's': ` \t\n\r\f\v`, 'W': `\x00-/:-@\[-\^` + "`" + `{-` + string(rune(0x10ffff)), 'D': `\x00-/:-` + string(rune(0x10ffff)),
		'S': `\x00-\x08\x0e-\x1f!-` + string(rune(0x10ffff)),
	}
)

// translate rewrites syntax that differs in the engine: named groups and
// references to them, \Z, {,n}, flags, brackets in sets.
func translate(pattern string, flags Flags) (translated, error) {
	t := &translator{in: pattern}
	t.flags = flags
	t.names = map[string]int{}
	if letters, rest, ok := leadingFlags(pattern); ok {
		for _, c := range letters {
			f, known := FlagByName(string(c))
			if !known {
				return t.translated, fmt.Errorf("unknown flag %q", c)
			}
			t.flags |= f
		}
		t.in = rest
	}
	t.verbose, t.ascii = t.flags&Verbose != 0, t.flags&ASCII != 0
	for t.at < len(t.in) {
		if err := t.step(); err != nil {
			return t.translated, fmt.Errorf("%w at position %d", err, t.at)
		}
	}
	t.text = t.out.String()
	return t.translated, nil
}

// leadingFlags removes a leading "(?ims)".
func leadingFlags(pattern string) (letters, rest string, ok bool) {
	body, ok := strings.CutPrefix(pattern, "(?")
	if !ok {
		return "", pattern, false
	}
	letters, rest, ok = strings.Cut(body, ")")
	if !ok || letters == "" || strings.Trim(letters, "aiLmsux") != "" {
		return "", pattern, false
	}
	return letters, rest, true
}

func (t *translator) step() error {
	switch c := t.in[t.at]; {
	case c == '\\':
		return t.escape(false)
	case c == '[':
		return t.set()
	case c == '(':
		return t.group()
	case c == '{' && strings.HasPrefix(t.in[t.at:], "{,"):
		if end := strings.IndexByte(t.in[t.at:], '}'); end > 2 && digits(t.in[t.at+2:t.at+end]) {
			t.out.WriteString("{0,")
			t.at += 2
			return nil
		}
		t.copy(1)
	case c == '#' && t.verbose:
		end := strings.IndexByte(t.in[t.at:], '\n')
		if end < 0 {
			end = len(t.in) - t.at
		}
		t.at += end
	default:
		t.copy(1)
	}
	return nil
}

func (t *translator) copy(n int) {
	t.out.WriteString(t.in[t.at : t.at+n])
	t.at += n
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// escape handles a backslash escape.
func (t *translator) escape(inSet bool) error {
	if t.at+1 >= len(t.in) {
		return errors.New("bad escape (end of pattern)")
	}
	switch c := t.in[t.at+1]; {
	case c == 'Z' && !inSet:
		t.out.WriteString(`\z`)
		t.at += 2
	case c == 'U':
		if t.at+10 > len(t.in) {
			return errors.New(`incomplete escape \U`)
		}
		n, err := strconv.ParseUint(t.in[t.at+2:t.at+10], 16, 32)
		if err != nil || n > 0x10ffff {
			return errors.New(`bad escape \U`)
		}
		t.out.WriteString(quoteRune(rune(n)))
		t.at += 10
	case t.ascii && inSet && asciiInSet[c] != "":
		t.out.WriteString(asciiInSet[c])
		t.at += 2
	case t.ascii && !inSet && asciiClasses[c] != "":
		t.out.WriteString(asciiClasses[c])
		t.at += 2
	case strings.IndexByte("abfnrtvxu0123456789dDsSwW", c) >= 0, strings.IndexByte("ABb", c) >= 0 && !inSet:
		t.copy(2)
	case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		return fmt.Errorf(`bad escape \%c`, c)
	default: // the engine has no other escapes that are not letters
		t.copy(2)
	}
	return nil
}

func quoteRune(r rune) string {
	if strings.ContainsRune(`\.+*?()|[]{}^$# -`, r) {
		return `\` + string(r)
	}
	return string(r)
}

// set copies a set in brackets. The engine would read "[" in a set as the start
// of a subtraction or a class.
func (t *translator) set() error {
	begin := t.at
	t.copy(1)
	if strings.HasPrefix(t.in[t.at:], "^") {
		t.copy(1)
	}
	if strings.HasPrefix(t.in[t.at:], "]") {
		t.out.WriteString(`\]`)
		t.at++
	}
	for t.at < len(t.in) {
		switch t.in[t.at] {
		case ']':
			t.copy(1)
			return nil
		case '\\':
			if err := t.escape(true); err != nil {
				return err
			}
		case '[':
			t.out.WriteString(`\[`)
			t.at++
		default:
			t.copy(1)
		}
	}
	t.at = begin
	return errors.New("unterminated character set")
}

// group handles an opening bracket.
func (t *translator) group() error {
	rest := t.in[t.at:]
	switch {
	case strings.HasPrefix(rest, "(?P<"):
		name, _, ok := strings.Cut(rest[4:], ">")
		if !ok || !identifier(name) {
			return fmt.Errorf("bad character in group name %q", name)
		}
		if _, taken := t.names[name]; taken {
			return fmt.Errorf("redefinition of group name %q", name)
		}
		t.groups++
		t.names[name] = t.groups
		t.order = append(t.order, name)
		t.out.WriteByte('(')
		t.at += 4 + len(name) + 1
	case strings.HasPrefix(rest, "(?P="):
		name, _, ok := strings.Cut(rest[4:], ")")
		i, known := t.names[name]
		if !ok || !known {
			return fmt.Errorf("unknown group name %q", name)
		}
		fmt.Fprintf(&t.out, `(?:\k<%d>)`, i)
		t.at += 4 + len(name) + 1
	case strings.HasPrefix(rest, "(?("):
		name, _, ok := strings.Cut(rest[3:], ")")
		i, known := t.names[name]
		if n, err := strconv.Atoi(name); err == nil {
			i, known = n, n > 0
		}
		if !ok || !known {
			return fmt.Errorf("unknown group name %q", name)
		}
		fmt.Fprintf(&t.out, `(?(%d)`, i)
		t.at += 3 + len(name) + 1
	case strings.HasPrefix(rest, "(?#"):
		end := strings.IndexByte(rest, ')')
		if end < 0 {
			return errors.New("missing ), unterminated comment")
		}
		t.at += end + 1
	case strings.HasPrefix(rest, "(?"):
		return t.extension(rest)
	default:
		t.groups++
		t.copy(1)
	}
	return nil
}

// extension copies the extensions that Python and the engine write alike, and
// rejects others.
func (t *translator) extension(rest string) error {
	for _, known := range []string{"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"} {
		if strings.HasPrefix(rest, known) {
			t.copy(len(known))
			return nil
		}
	}
	flags, _, ok := strings.Cut(rest[2:], ":")
	if !ok || flags == "" || strings.Trim(flags, "aiLmsux-") != "" {
		return errors.New("unknown extension " + rest[:min(len(rest), 3)])
	}
	kept := strings.Map(func(r rune) rune {
		if strings.ContainsRune("aLu", r) {
			return -1 // all strings are Unicode
		}
		return r
	}, flags)
	t.out.WriteString("(?" + strings.TrimSuffix(kept, "-") + ":")
	t.at += 2 + len(flags) + 1
	return nil
}

func identifier(s string) bool {
	for i, r := range s {
		if r != '_' && !(r >= 'a' && r <= 'z') && !(r >= 'A' && r <= 'Z') && (i == 0 || r < '0' || r > '9') && r < 0x80 {
			return false
		}
	}
	return s != ""
}
