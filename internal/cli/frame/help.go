package frame

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// helpColumn is where the explanations of options begin.
const helpColumn = 24

// help prints what the program does and all its options.
func (c *Command) help(env *Env, opts any) {
	var b strings.Builder
	wide := env.Width()
	b.WriteString(c.usageLine() + "\n")
	if c.Doc != "" {
		b.WriteString("\n" + fill(c.Doc, wide, 0) + "\n")
	}
	b.WriteString("\nOptions:\n")
	for _, g := range allOptions(opts) {
		if g.Name != "" {
			b.WriteString("\n" + g.Name + ":\n")
			if g.Doc != "" {
				b.WriteString(fill(g.Doc, wide, 2) + "\n\n")
			}
		}
		for _, o := range g.Options {
			if !o.Hidden {
				b.WriteString(o.help(wide))
			}
		}
	}
	fmt.Fprint(env.Stdout, b.String())
}

// allOptions are those of every program and those of opts.
func allOptions(opts any) []Group {
	groups := Options(opts)
	groups[0].Options = append(Options(base{})[0].Options, groups[0].Options...)
	return groups
}

func (o *Option) help(wide int) string {
	var names []string
	arg := ""
	if o.Arg != "" {
		arg = o.Arg
	}
	if o.Short != "" {
		names = append(names, strings.TrimSpace("-"+o.Short+" "+arg))
	}
	for _, l := range o.Long {
		if arg != "" {
			l += "=" + arg
		}
		names = append(names, "--"+l)
	}
	doc := o.Text()
	head := "  " + strings.Join(names, ", ")
	text := fill(doc, wide, helpColumn)
	if utf8.RuneCountInString(head)+2 > helpColumn || text == "" {
		if text == "" {
			return head + "\n"
		}
		return head + "\n" + text + "\n"
	}
	return head + text[utf8.RuneCountInString(head):] + "\n"
}

// Text is the whole explanation of the option.
func (o *Option) Text() string {
	doc := strings.ReplaceAll(o.Doc, "%default", o.Default)
	if len(o.Choices) > 0 {
		doc += " One of " + strings.Join(o.Choices, ", ") + "."
	}
	return doc
}

// fill breaks text at blanks into lines of at most wide columns, indented.
func fill(text string, wide, indent int) string {
	pad := strings.Repeat(" ", indent)
	var lines []string
	line := ""
	for _, w := range strings.Fields(text) {
		switch {
		case line == "":
			line = pad + w
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(w) > wide:
			lines = append(lines, line)
			line = pad + w
		default:
			line += " " + w
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
