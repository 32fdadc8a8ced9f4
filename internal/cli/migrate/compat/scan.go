package compat

import (
	"strings"
)

// line is one key, or one word of a list, of a text that is YAML after its Jinja is
// removed. Keys with a template in them are none.
type line struct {
	number int
	// chain are the keys above, outermost first. A list is in it as "-".
	chain []string
	// key is what is before the colon, or all of a line without one; plain says so.
	key   string
	plain bool
	// value is what is after the colon, without a comment. hole says that a template
	// stands in it.
	value string
	hole  bool
	// item says that the key begins an item of a list.
	item bool
}

// hole stands for the output of a template.
const hole = "\x00"

// level is a key or an item that encloses later lines.
type level struct {
	indent int
	key    string
}

// outline calls visit for each line of a text. It needs no valid YAML: what it does not
// understand, it skips.
func outline(text string, visit func(line)) {
	var stack []level
	scalar := -1 // the indent of the key whose text follows
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

// split returns the key and the value of a line.
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

// withoutJinja returns a text without statements and comments of Jinja, and with hole for
// each expression. The lines stay where they are.
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
