package frame

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// helpColumn is the column at which explanations of options begin.
const helpColumn = 24

// help prints the help of the program or of one of its subcommands.
func (c *Command) help(env *Env, opts any, sub *Sub) {
	var b strings.Builder
	wide := env.Width()
	groups := allOptions(opts)
	if sub == nil {
		b.WriteString(c.usageLine() + "\n")
		if c.Doc != "" {
			b.WriteString("\n" + fill(c.Doc, wide, 0) + "\n")
		}
		if len(c.Subs) > 0 {
			b.WriteString("\nSubcommands (" + c.Name + " SUBCOMMAND --help says more of one):\n")
		}
		for _, s := range c.Subs {
			b.WriteString(row("  "+strings.TrimSpace(s.Name+" "+s.Args), s.summary(), wide))
		}
	} else {
		b.WriteString("Usage: " + strings.Join(strings.Fields(c.Name+" "+sub.Name+" "+sub.Args+" [options]"), " ") + "\n\n" + fill(sub.Doc, wide, 0) + "\n")
		if sub.Example != "" {
			b.WriteString("\nExample:\n    " + sub.Example + "\n")
		}
		groups = c.optionsOf(groups, sub)
	}
	b.WriteString("\nOptions:\n")
	for _, g := range groups {
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

// summary returns the first sentence of the explanation.
func (s *Sub) summary() string {
	first, _, _ := strings.Cut(s.Doc, ". ")
	return strings.TrimSuffix(first, ".") + "."
}

// optionsOf leaves out the options of other subcommands.
func (c *Command) optionsOf(groups []Group, sub *Sub) (out []Group) {
	others := map[string]bool{}
	for _, s := range c.Subs {
		for _, name := range s.Options {
			others[name] = true
		}
	}
	for _, name := range sub.Options {
		delete(others, name)
	}
	for _, g := range groups {
		g.Options = slices.DeleteFunc(slices.Clone(g.Options), func(o Option) bool { return len(o.Long) > 0 && others[o.Long[0]] })
		if len(g.Options) > 0 {
			out = append(out, g)
		}
	}
	return out
}

// allOptions returns the options of every program and those of opts.
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
	return row("  "+strings.Join(names, ", "), o.Text(), wide)
}

// row returns an indented name with its explanation in the next column, or on the next line.
func row(head, doc string, wide int) string {
	text := fill(doc, wide, helpColumn)
	if utf8.RuneCountInString(head)+2 > helpColumn || text == "" {
		if text == "" {
			return head + "\n"
		}
		return head + "\n" + text + "\n"
	}
	return head + text[utf8.RuneCountInString(head):] + "\n"
}

// Text returns the complete explanation of the option.
func (o *Option) Text() string {
	doc := strings.ReplaceAll(o.Doc, "%default", o.Default)
	if len(o.Choices) > 0 {
		doc += " One of " + strings.Join(o.Choices, ", ") + "."
	}
	return doc
}

// fill wraps text at blanks into indented lines of at most wide columns.
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
