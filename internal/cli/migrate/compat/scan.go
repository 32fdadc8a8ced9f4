package compat

import (
	"strings"
)

// line is a key, or a word of a list, in a YAML file after its Jinja was removed. A key with a
// template in it contains hole.
type line struct {
	number int
	// chain are the enclosing keys, outermost first. A list is "-".
	chain []string
	// key is the part before the colon, or the whole line if it has none; then plain is true.
	key   string
	plain bool
	// value is the part after the colon, without a comment. hole means that it contains a template.
	value string
	hole  bool
	// item means that the key begins an item of a list.
	item bool
}

// hole replaces the output of a template.
const hole = "\x00"

// level is a key or item that encloses later lines.
type level struct {
	indent int
	key    string
}

// outline calls visit for each line of a file. The file need not be valid YAML; invalid lines are
// skipped.
func outline(text string, visit func(line)) {
	var stack []level
	scalar := -1 // the indent of a key whose block scalar follows
	n := 0
	for raw := range strings.Lines(withoutJinja(text)) {
		n++
		raw = strings.TrimRight(raw, "\r\n \t")
		body := strings.TrimLeft(raw, " ")
		indent := len(raw) - len(body)
		if body == "" {
			continue
		}
		if scalar >= 0 {
			if indent > scalar {
				continue
			}
			scalar = -1
		}
		if body[0] == '#' || body == "---" || body == "..." || body[0] == '%' && indent == 0 {
			continue
		}
		isItem := body[0] == '-' && (len(body) == 1 || body[1] == ' ')
		for len(stack) > 0 {
			last := stack[len(stack)-1]
			if last.indent < indent || last.indent == indent && isItem && last.key != "-" {
				break
			}
			stack = stack[:len(stack)-1]
		}
		l := line{number: n, item: isItem}
		for body != "" && body[0] == '-' && (len(body) == 1 || body[1] == ' ') {
			stack = append(stack, level{indent, "-"})
			rest := strings.TrimLeft(body[1:], " ")
			indent += len(body) - len(rest)
			body = rest
		}
		if body == "" || body[0] == '#' {
			continue
		}
		l.key, l.value, l.plain = split(body)
		l.hole = strings.Contains(l.value, hole)
		for _, s := range stack {
			l.chain = append(l.chain, s.key)
		}
		if len(stack) < maxDepth {
			visit(l)
		}
		if !l.plain {
			stack = append(stack, level{indent, l.key})
			if v := l.value; v != "" && (v[0] == '|' || v[0] == '>') {
				scalar = indent
			}
		}
	}
}

// split splits a line into key and value.
func split(body string) (key, value string, plain bool) {
	if q := body[0]; q == '"' || q == '\'' {
		if end := strings.IndexByte(body[1:], q); end >= 0 {
			key, rest := body[1:1+end], body[2+end:]
			if rest == "" || rest[0] != ':' {
				return key, "", true
			}
			return key, withoutComment(rest[1:]), false
		}
	}
	if strings.HasSuffix(body, ":") && !strings.Contains(body, ": ") {
		return body[:len(body)-1], "", false
	}
	if i := strings.Index(body, ": "); i >= 0 {
		return strings.TrimSpace(body[:i]), withoutComment(body[i+1:]), false
	}
	s := withoutComment(body)
	return strings.TrimSuffix(s, ":"), "", !strings.HasSuffix(s, ":")
}

func withoutComment(s string) string {
	s = strings.TrimSpace(s)
	if s != "" && s[0] == '#' {
		return ""
	}
	if i := strings.Index(s, " #"); i >= 0 && s[0] != '"' && s[0] != '\'' {
		s = s[:i]
	}
	return strings.TrimSpace(s)
}

// withoutJinja removes statements and comments of Jinja, and replaces each expression by hole. Line
// numbers do not change.
func withoutJinja(text string) string {
	if !strings.Contains(text, "{{") && !strings.Contains(text, "{%") && !strings.Contains(text, "{#") {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	for {
		i := strings.IndexByte(text, '{')
		if i < 0 || i+1 >= len(text) {
			b.WriteString(text)
			return b.String()
		}
		end := map[byte]string{'{': "}}", '%': "%}", '#': "#}"}[text[i+1]]
		if end == "" {
			b.WriteString(text[:i+1])
			text = text[i+1:]
			continue
		}
		b.WriteString(text[:i])
		if text[i+1] == '{' {
			b.WriteString(hole)
		}
		inside, rest, found := strings.Cut(text[i+2:], end)
		if !found {
			return b.String()
		}
		for range strings.Count(inside, "\n") {
			b.WriteByte('\n')
		}
		text = rest
	}
}
