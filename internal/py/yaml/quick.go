package yaml

import (
	"strings"

	"brine/internal/py/value"
)

// Most documents are block mappings and sequences of scalars on one line.
// quickLoad parses these line by line, without tokens and nodes. It leaves
// everything else, and every error, to the general loader, so that one place
// decides what a document means and one makes error messages.
// TestQuickAgreesWithGeneral and FuzzQuick check that both agree.

// quickDepth bounds the nesting of collections in quickLoad.
const quickDepth = 64

// quickKey is the maximum length of a key in quickLoad. YAML rejects longer
// ones, depending on the position.
const quickKey = 900

// quickLoad returns the value of a document. ok is false if the general loader
// must read it.
func quickLoad(data string) (v any, ok bool) {
	if len(data) > MaxBytes || !quickCharacters(data) {
		return nil, false
	}
	q := quick{s: data}
	q.advance()
	if q.bad || !q.more {
		return nil, false
	}
	switch {
	case isItem(q.text):
		v = q.sequence(q.indent, false, 0)
	default:
		v = q.mapping(q.indent, 0)
	}
	return v, !q.bad && !q.more
}

// quickCharacters reports whether text has only characters that need no further
// check.
func quickCharacters(data string) bool {
	high := false
	for i := range len(data) {
		c := data[i]
		if c < 0x20 && c != '\n' && c != '\t' || c == 0x7f {
			return false
		}
		high = high || c >= 0x80
	}
	if !high {
		return true
	}
	for _, s := range []string{"\u0085", "\u2028", "\u2029", "\ufeff"} {
		if strings.Contains(data, s) {
			return false
		}
	}
	return checkCharacters([]byte(data)) == nil
}

// quick iterates over the lines of a document.
type quick struct {
	s    string
	next int // start of the line after the current one
	// more reports whether there is a current line. text is the line without
	// indentation and trailing blanks.
	more   bool
	text   string
	indent int
	bad    bool // leave the document to the general loader
}

// advance goes to the next line that is neither empty nor a comment.
func (q *quick) advance() {
	for !q.bad && q.next < len(q.s) {
		line := q.s[q.next:]
		if i := strings.IndexByte(line, '\n'); i >= 0 {
			line = line[:i]
			q.next += i + 1
		} else {
			q.next = len(q.s)
		}
		n := 0
		for n < len(line) && line[n] == ' ' {
			n++
		}
		if n == len(line) {
			continue
		}
		if strings.IndexByte(line, '\t') >= 0 {
			q.give()
			return
		}
		if line[n] == '#' {
			continue
		}
		if n == 0 && (line[0] == '%' || strings.HasPrefix(line, "---") || strings.HasPrefix(line, "...")) {
			q.give()
			return
		}
		q.text, q.indent, q.more = strings.TrimRight(line[n:], " "), n, true
		return
	}
	q.more = false
}

// give leaves the document to the general loader.
func (q *quick) give() { q.bad, q.more = true, false }

// isItem reports whether text begins an item of a block sequence.
func isItem(s string) bool { return s[0] == '-' && (len(s) == 1 || s[1] == ' ') }

// empty reports whether text is empty or a comment.
func empty(s string) bool { return s == "" || s[0] == '#' }

// mapping reads a block mapping whose keys are in a column.
func (q *quick) mapping(indent, depth int) any {
	if depth > quickDepth {
		q.give()
		return nil
	}
	d := value.NewDict(4)
	for q.more && q.indent == indent {
		k, rest, ok := q.key(q.text)
		if !ok || d.Has(k) {
			q.give()
			return nil
		}
		d.Set(k, q.entry(rest, indent, depth))
	}
	if q.more && q.indent > indent {
		q.give()
	}
	return d
}

// entry reads the value of a key whose line continues with rest.
func (q *quick) entry(rest string, indent, depth int) any {
	if !empty(rest) {
		return q.inline(rest, indent, depth)
	}
	q.advance()
	switch {
	case !q.more || q.indent < indent:
		return nil
	case q.indent > indent:
		return q.nested(indent, depth)
	case isItem(q.text):
		return q.sequence(indent, true, depth+1)
	}
	return nil
}

// nested reads the value below a key or dash in the column parent.
func (q *quick) nested(parent, depth int) any {
	if isItem(q.text) {
		return q.sequence(q.indent, false, depth+1)
	}
	if _, _, ok := q.key(q.text); ok {
		return q.mapping(q.indent, depth+1)
	}
	if q.bad || q.text[0] == '|' {
		q.give()
		return nil
	}
	return q.inline(q.text, parent, depth)
}

// sequence reads a block sequence whose dashes are in a column. If that is the
// column of its key, another key may follow.
func (q *quick) sequence(indent int, flush bool, depth int) any {
	if depth > quickDepth {
		q.give()
		return nil
	}
	l := &value.List{Items: make([]any, 0, 4)}
	for q.more && q.indent == indent && isItem(q.text) {
		rest := strings.TrimLeft(q.text[1:], " ")
		var v any
		switch {
		case empty(rest):
			q.advance()
			if q.more && q.indent > indent {
				v = q.nested(indent, depth)
			}
		case isItem(rest):
			q.indent, q.text = indent+len(q.text)-len(rest), rest
			v = q.sequence(q.indent, false, depth+1)
		default:
			if _, _, ok := q.key(rest); ok {
				q.indent, q.text = indent+len(q.text)-len(rest), rest
				v = q.mapping(q.indent, depth+1)
			} else if !q.bad {
				v = q.inline(rest, indent, depth)
			}
		}
		l.Items = append(l.Items, v)
		if q.more && q.indent > indent {
			q.give()
		}
	}
	if q.more && q.indent == indent && !flush {
		q.give()
	}
	return l
}

// inline reads a value that begins and ends in the current line, or a literal
// block scalar, and advances to the next line.
func (q *quick) inline(s string, indent, depth int) (v any) {
	switch s[0] {
	case '|':
		return q.literal(s, indent)
	case '[', '{':
		f := flow{q: q, s: s}
		v = f.value(depth + 1)
		q.ends(f.s)
	case '\'', '"':
		var rest string
		v, rest = q.quoted(s)
		q.ends(rest)
	default:
		if i := strings.Index(s, " #"); i >= 0 {
			s = strings.TrimRight(s[:i], " ")
		}
		if !plainBegins(s) || strings.HasSuffix(s, ":") || strings.Contains(s, ": ") {
			q.give()
			return nil
		}
		v = q.scalar(s)
	}
	if q.bad {
		q.give()
		return nil
	}
	q.advance()
	if q.more && q.indent > indent {
		q.give()
	}
	return v
}

// ends requires that at most a comment follows.
func (q *quick) ends(rest string) {
	if rest != "" && (rest[0] != ' ' || !empty(strings.TrimLeft(rest, " "))) {
		q.give()
	}
}

// plainBegins reports whether a scalar without quotes can begin so.
func plainBegins(s string) bool {
	switch c := s[0]; {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c >= 0x80:
		return true
	case c == '-':
		return len(s) > 1 && s[1] != ' '
	default:
		return strings.IndexByte("_/.$()+~^<=;\\", c) >= 0
	}
}

// key reads a key and its colon. ok is false if there is no key.
func (q *quick) key(s string) (k any, rest string, ok bool) {
	if s[0] == '\'' || s[0] == '"' {
		text, rest := q.quoted(s)
		if q.bad || len(s)-len(rest) > quickKey {
			q.give()
			return nil, "", false
		}
		if rest == ":" || strings.HasPrefix(rest, ": ") {
			return text, strings.TrimLeft(rest[1:], " "), true
		}
		return nil, "", false
	}
	if !plainBegins(s) {
		return nil, "", false
	}
	for i := 0; ; i++ {
		n := strings.IndexAny(s[i:], ":#")
		if n < 0 {
			return nil, "", false
		}
		i += n
		switch {
		case s[i] == '#' && s[i-1] == ' ':
			return nil, "", false
		case s[i] == ':' && (i+1 == len(s) || s[i+1] == ' '):
			if i > quickKey {
				q.give()
				return nil, "", false
			}
			k = q.scalar(strings.TrimRight(s[:i], " "))
			return k, strings.TrimLeft(s[i+1:], " "), !q.bad
		}
	}
}

// scalar returns the value of a scalar without quotes.
func (q *quick) scalar(s string) any {
	switch tag := implicitTag(s); tag {
	case tagStr:
		return s
	case tagNull, tagBool, tagInt, tagFloat:
		v, err := convert(tag, s)
		if err != nil {
			q.give()
		}
		return v
	}
	q.give()
	return nil
}

// quoted reads a scalar in quotes and returns the text after it.
func (q *quick) quoted(s string) (text, rest string) {
	if s[0] == '\'' {
		for i := 1; i < len(s); i++ {
			if s[i] != '\'' {
				continue
			}
			if i+1 == len(s) || s[i+1] != '\'' {
				return strings.ReplaceAll(s[1:i], "''", "'"), s[i+1:]
			}
			i++
		}
		q.give()
		return "", ""
	}
	i := strings.IndexAny(s[1:], `"\`) + 1
	if i == 0 || s[i] == '\\' {
		return q.escaped(s)
	}
	return s[1:i], s[i+1:]
}

// escaped is quoted for a scalar in double quotes with backslashes.
func (q *quick) escaped(s string) (text, rest string) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return b.String(), s[i+1:]
		case '\\':
			if i++; i == len(s) {
				q.give()
				return "", ""
			}
			at := strings.IndexByte(`nt"\/`, s[i])
			if at < 0 {
				q.give()
				return "", ""
			}
			b.WriteByte("\n\t\"\\/"[at])
		default:
			b.WriteByte(c)
		}
	}
	q.give()
	return "", ""
}

// literal reads a literal block scalar (|) of a key or dash in a column.
func (q *quick) literal(head string, indent int) any {
	if head != "|" && head != "|-" && head != "|+" {
		q.give()
		return nil
	}
	var b strings.Builder
	column, ends := -1, 0 // of the text; pending line ends
	for q.next < len(q.s) {
		line, _, whole := strings.Cut(q.s[q.next:], "\n")
		n := len(line) - len(strings.TrimLeft(line, " "))
		blank := n == len(line)
		if column < 0 && !blank {
			if n <= indent || line[n] == '\t' || ends > 0 && n < q.widest(ends) {
				q.give()
				return nil
			}
			column = n
		}
		if column >= 0 && !blank && n < column {
			break
		}
		if !whole { // the general loader decides what ends the last line
			q.give()
			return nil
		}
		q.next += len(line) + 1
		if column >= 0 && n >= column && len(line) > column {
			for ; ends > 0; ends-- {
				b.WriteByte('\n')
			}
			b.WriteString(line[column:])
		}
		ends++
	}
	if column < 0 {
		q.give()
		return nil
	}
	if head == "|" {
		ends = 1
	}
	for ; ends > 0 && head != "|-"; ends-- {
		b.WriteByte('\n')
	}
	q.advance()
	if q.more && q.indent > indent {
		q.give()
	}
	return b.String()
}

// widest returns the length of the longest of the n lines before the next.
func (q *quick) widest(n int) int {
	w, end := 0, q.next
	for ; n > 0; n-- {
		start := strings.LastIndexByte(q.s[:end-1], '\n') + 1
		w = max(w, end-1-start)
		end = start
	}
	return w
}

// flow reads a collection in brackets that ends in its line.
type flow struct {
	q *quick
	s string // text after the value
}

func (f *flow) blanks() { f.s = strings.TrimLeft(f.s, " ") }

func (f *flow) value(depth int) any {
	if f.s == "" || depth > quickDepth {
		f.q.give()
	}
	if f.q.bad {
		return nil
	}
	switch f.s[0] {
	case '[':
		return f.list(depth)
	case '{':
		return f.dict(depth)
	case '\'', '"':
		v, rest := f.q.quoted(f.s)
		f.s = rest
		return v
	}
	i := strings.IndexAny(f.s, ",[]{}:#?")
	if i <= 0 || strings.IndexByte(",]}:", f.s[i]) < 0 {
		f.q.give()
		return nil
	}
	text := strings.TrimRight(f.s[:i], " ")
	f.s = f.s[i:]
	if !plainBegins(text) || text[0] == '-' && strings.Trim(text, "-") == "" {
		f.q.give()
		return nil
	}
	return f.q.scalar(text)
}

func (f *flow) list(depth int) any {
	l := &value.List{Items: []any{}}
	f.s = f.s[1:]
	if f.blanks(); strings.HasPrefix(f.s, "]") {
		f.s = f.s[1:]
		return l
	}
	for !f.q.bad {
		f.blanks()
		l.Items = append(l.Items, f.value(depth+1))
		f.blanks()
		if f.closes(']') {
			return l
		}
	}
	return l
}

func (f *flow) dict(depth int) any {
	d := value.NewDict(2)
	f.s = f.s[1:]
	if f.blanks(); strings.HasPrefix(f.s, "}") {
		f.s = f.s[1:]
		return d
	}
	for !f.q.bad {
		f.blanks()
		if f.s != "" && (f.s[0] == '[' || f.s[0] == '{') {
			f.q.give()
			return d
		}
		before := len(f.s)
		k := f.value(depth + 1)
		if f.q.bad || !strings.HasPrefix(f.s, ": ") || before-len(f.s) > quickKey || d.Has(k) {
			f.q.give()
			return d
		}
		f.s = f.s[2:]
		f.blanks()
		d.Set(k, f.value(depth+1))
		f.blanks()
		if f.closes('}') {
			return d
		}
	}
	return d
}

// closes reads a comma, or the end of a collection.
func (f *flow) closes(end byte) bool {
	if f.q.bad || f.s == "" || f.s[0] != end && f.s[0] != ',' {
		f.q.give()
		return true
	}
	c := f.s[0]
	f.s = f.s[1:]
	return c == end
}
