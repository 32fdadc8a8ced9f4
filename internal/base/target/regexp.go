package target

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"brine/internal/base/salt"
)

// MaxRegexp bounds the length in bytes of a regular expression.
const MaxRegexp = 16 << 10

// CompileRegexp compiles a Python regular expression that, as with re.match,
// matches at the start of a string but not necessarily up to its end. Go's
// engine, which takes linear time, lacks look-around, back-references, atomic
// groups and the verbose flag. These are errors that name the construct.
func CompileRegexp(expr string) (*regexp.Regexp, error) {
	return compileRegexp(expr, `\A`, "")
}

// CompileFullRegexp is CompileRegexp for an expression that must match the
// whole string.
func CompileFullRegexp(expr string) (*regexp.Regexp, error) {
	return compileRegexp(expr, `\A`, `\z`)
}

// SearchRegexp is CompileRegexp for an expression that may match anywhere, as
// Python's re.search.
func SearchRegexp(expr string) (*regexp.Regexp, error) {
	return compileRegexp(expr, "", "")
}

func compileRegexp(expr, begin, end string) (*regexp.Regexp, error) {
	if len(expr) > MaxRegexp {
		return nil, salt.Errorf(salt.Invalid, "regular expression is longer than %d bytes", MaxRegexp)
	}
	t := translator{in: expr}
	if err := t.run(); err != nil {
		return nil, salt.Errorf(salt.Invalid, "cannot use the regular expression %q: %w", expr, err)
	}
	re, err := regexp.Compile(begin + `(?:` + t.out.String() + `)` + end)
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "cannot use the regular expression %q: %w", expr, err)
	}
	return re, nil
}

// translator rewrites Python's syntax where Go's differs. It copies everything
// else, which Go then accepts or rejects.
type translator struct {
	in  string
	pos int
	out strings.Builder
}

func (t *translator) run() error {
	for t.pos < len(t.in) {
		var err error
		switch rest := t.in[t.pos:]; {
		case rest[0] == '\\':
			err = t.escape(false)
		case rest[0] == '[':
			err = t.class()
		case strings.HasPrefix(rest, "(?"):
			err = t.group(rest)
		case strings.HasPrefix(rest, "{,"):
			// In Python an omitted lower bound is 0.
			t.out.WriteString("{")
			if end := strings.IndexByte(rest, '}'); end == 2 || end > 2 && digits(rest[2:end]) {
				t.out.WriteString("0")
			}
			t.pos++
		default:
			t.out.WriteByte(rest[0])
			t.pos++
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

var unsupportedGroups = []struct{ prefix, name string }{
	{"(?=", "looking ahead (?=...)"},
	{"(?!", "looking ahead (?!...)"},
	{"(?<=", "looking behind (?<=...)"},
	{"(?<!", "looking behind (?<!...)"},
	{"(?P=", "a reference to an earlier group (?P=...)"},
	{"(?P>", "a repeated group (?P>...)"},
	{"(?(", "a conditional group (?(...)...)"},
	{"(?>", "an atomic group (?>...)"},
}

// group handles an extension that starts with "(?".
func (t *translator) group(rest string) error {
	for _, u := range unsupportedGroups {
		if strings.HasPrefix(rest, u.prefix) {
			return fmt.Errorf("%s is not supported", u.name)
		}
	}
	if strings.HasPrefix(rest, "(?#") {
		end := strings.IndexByte(rest, ')')
		if end < 0 {
			return fmt.Errorf("missing ) after a comment")
		}
		t.pos += end + 1
		return nil
	}
	if strings.HasPrefix(rest, "(?P<") {
		t.out.WriteString("(?P<")
		t.pos += 4
		return nil
	}
	return t.flags(rest)
}

// flags handles (?flags) and (?flags:...). Python's flag u is the default. Its
// flag a restricts classes to ASCII, which this package does not support.
func (t *translator) flags(rest string) error {
	i := 2
	kept := []byte{}
	for ; i < len(rest) && rest[i] != ')' && rest[i] != ':'; i++ {
		switch c := rest[i]; c {
		case 'i', 'm', 's', '-':
			kept = append(kept, c)
		case 'a', 'u':
		case 'x', 'L':
			return fmt.Errorf("the flag (?%c) is not supported", c)
		default:
			return fmt.Errorf("unknown group (?%c", c)
		}
	}
	if i == len(rest) {
		return fmt.Errorf("missing ) after (?")
	}
	if len(kept) > 0 && kept[len(kept)-1] == '-' {
		kept = kept[:len(kept)-1]
	}
	if len(kept) > 0 || rest[i] == ':' {
		t.out.WriteString("(?" + string(kept) + rest[i:i+1])
	}
	t.pos += i + 1
	return nil
}

// classes are Python's classes, which include Unicode. The two negated ones
// cannot be expressed inside a set and stay ASCII there.
var classes = map[byte]struct{ bare, inSet string }{
	'd': {`\p{Nd}`, `\p{Nd}`},
	'D': {`\P{Nd}`, `\P{Nd}`},
	'w': {`[\p{L}\p{N}_]`, `\p{L}\p{N}_`},
	'W': {`[^\p{L}\p{N}_]`, `\W`},
	's': {`[\s\v\x1c-\x1f\x85\p{Z}]`, `\s\v\x1c-\x1f\x85\p{Z}`},
	'S': {`[^\s\v\x1c-\x1f\x85\p{Z}]`, `\S`},
}

func (t *translator) escape(inSet bool) error {
	if t.pos+1 >= len(t.in) {
		return fmt.Errorf(`a backslash at the end`)
	}
	c := t.in[t.pos+1]
	if cl, ok := classes[c]; ok {
		t.pos += 2
		if inSet {
			t.out.WriteString(cl.inSet)
		} else {
			t.out.WriteString(cl.bare)
		}
		return nil
	}
	switch c {
	case 'a', 'f', 'n', 'r', 't', 'v':
		t.out.WriteString(t.in[t.pos : t.pos+2])
		t.pos += 2
		return nil
	case 'b':
		t.out.WriteString(map[bool]string{true: `\x08`, false: `\b`}[inSet])
		t.pos += 2
		return nil
	case 'x':
		return t.hex(2)
	case 'u':
		return t.hex(4)
	case 'U':
		return t.hex(8)
	}
	if !inSet {
		switch c {
		case 'A', 'B':
			t.out.WriteString(t.in[t.pos : t.pos+2])
			t.pos += 2
			return nil
		case 'Z':
			t.out.WriteString(`\z`)
			t.pos += 2
			return nil
		}
	}
	if c >= '0' && c <= '9' {
		return t.octal(inSet)
	}
	if c < utf8.RuneSelf && (c|0x20) >= 'a' && (c|0x20) <= 'z' {
		return fmt.Errorf(`bad escape \%c`, c)
	}
	_, n := utf8.DecodeRuneInString(t.in[t.pos+1:])
	t.out.WriteString(quoteRune(t.in[t.pos+1 : t.pos+1+n]))
	t.pos += 1 + n
	return nil
}

// quoteRune escapes one character so that it matches itself, inside or outside
// of a set.
func quoteRune(s string) string {
	if s == "-" || s == "&" || s == "~" {
		return `\` + s
	}
	return regexp.QuoteMeta(s)
}

func (t *translator) hex(n int) error {
	from := t.pos + 2
	if from+n > len(t.in) {
		return fmt.Errorf(`incomplete escape %s`, t.in[t.pos:])
	}
	h := t.in[from : from+n]
	for i := range n {
		if !strings.ContainsRune("0123456789abcdefABCDEF", rune(h[i])) {
			return fmt.Errorf(`incomplete escape %s`, t.in[t.pos:from+n])
		}
	}
	t.out.WriteString(`\x{` + h + `}`)
	t.pos = from + n
	return nil
}

// octal handles \0, \0o, \0oo and \ooo; any other number is a reference to a
// group.
func (t *translator) octal(inSet bool) error {
	from := t.pos + 1
	end := from
	for end < len(t.in) && end < from+3 && t.in[end] >= '0' && t.in[end] <= '7' {
		end++
	}
	if t.in[from] != '0' && !inSet && end < from+3 || end == from {
		return fmt.Errorf(`a reference to an earlier group (\%c) is not supported`, t.in[from])
	}
	v := 0
	for _, c := range []byte(t.in[from:end]) {
		v = v*8 + int(c-'0')
	}
	fmt.Fprintf(&t.out, `\x{%x}`, v)
	t.pos = end
	return nil
}

// class copies a set in brackets. It escapes brackets inside, so that Go does
// not read a POSIX class.
func (t *translator) class() error {
	start := t.pos
	t.out.WriteByte('[')
	t.pos++
	if strings.HasPrefix(t.in[t.pos:], "^") {
		t.out.WriteByte('^')
		t.pos++
	}
	for first := true; ; first = false {
		if t.pos >= len(t.in) {
			return fmt.Errorf("missing ] after %s", t.in[start:])
		}
		switch c := t.in[t.pos]; {
		case c == ']' && !first:
			t.out.WriteByte(']')
			t.pos++
			return nil
		case c == '\\':
			if err := t.escape(true); err != nil {
				return err
			}
		case c == '[' || c == ']':
			t.out.WriteString(`\` + string(c))
			t.pos++
		default:
			t.out.WriteByte(c)
			t.pos++
		}
	}
}
