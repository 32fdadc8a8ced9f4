package serialize

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"brine/internal/py/value"
)

// config is the state of Python's ConfigParser: sections of options, and
// defaults for all sections. Keys are in lower case.
type config struct {
	allowNone, strict, emptyLines, plain bool
	delimiters, comments, inline         []string
	defaultName                          string
	defaults                             *value.Dict
	sections                             *value.Dict
}

func newConfig(opts *value.Dict) (*config, error) {
	o := of("configparser", opts)
	c := &config{allowNone: o.truth("allow_no_value", false), strict: o.truth("strict", true), emptyLines: o.truth("empty_lines_in_values", true),
		delimiters: o.texts("delimiters", []string{"=", ":"}), comments: o.texts("comment_prefixes", []string{"#", ";"}),
		inline: o.texts("inline_comment_prefixes", nil), defaultName: "DEFAULT", defaults: value.NewDict(0), sections: value.NewDict(0)}
	if s, ok := o.take("default_section"); ok {
		c.defaultName = value.Str(s)
	}
	if how, ok := o.take("interpolation"); ok {
		if c.plain = true; how != nil {
			o.fail("interpolation can only be null, for none")
		}
	}
	defaults, _ := o.take("defaults")
	if len(c.delimiters) == 0 {
		o.fail("delimiters must not be empty")
	}
	if err := o.done(); err != nil {
		return nil, err
	}
	if value.Truth(defaults) {
		return c, c.set(c.defaultName, defaults, c.defaults)
	}
	return c, nil
}

var reference = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`%\(([^)]+)\)s`) })

// set stores the options of one section.
func (c *config) set(section string, options any, into *value.Dict) error {
	d, ok := options.(*value.Dict)
	if !ok {
		return fmt.Errorf("configparser: the section %s must be a map, not a %s", section, value.TypeName(options))
	}
	for k, v := range d.All() {
		key := strings.ToLower(value.Str(k))
		if v == nil {
			if !c.allowNone {
				return fmt.Errorf("configparser: the value of %s in %s is null; set the option allow_no_value to allow that", key, section)
			}
			into.Set(key, nil)
			continue
		}
		text := value.Str(v)
		if !c.plain && strings.Contains(reference().ReplaceAllString(strings.ReplaceAll(text, "%%", ""), ""), "%") {
			return fmt.Errorf("configparser: %s in %s has a %% that is neither %%%% nor %%(name)s: %s", key, section, value.Repr(text))
		}
		into.Set(key, text)
	}
	return nil
}

func init() { register("configparser", Format{writeConfig, readConfig}) }

func writeConfig(v any, opts *value.Dict) (any, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	d, ok := v.(*value.Dict)
	if !ok {
		return nil, fmt.Errorf("configparser can write a map of sections only, not a %s", value.TypeName(v))
	}
	for k, options := range d.All() {
		name := value.Str(k)
		into := c.defaults
		switch {
		case name == "DEFAULT" && c.defaultName != name:
			if n, ok := options.(*value.Dict); !ok || n.Len() > 0 {
				return nil, errors.New("configparser: a section DEFAULT cannot be written if default_section is another")
			}
			continue
		case name == "DEFAULT":
		case name == c.defaultName, c.sections.Has(name):
			return nil, fmt.Errorf("configparser: there are two sections %s", name)
		default:
			into = value.NewDict(0)
			c.sections.Set(name, into)
			if name == "" { // as in Python: options of the section without name are defaults
				into = c.defaults
			}
		}
		if err := c.set(name, options, into); err != nil {
			return nil, err
		}
	}
	var b strings.Builder
	if c.defaults.Len() > 0 {
		c.write(&b, c.defaultName, c.defaults)
	}
	for k, options := range c.sections.All() {
		c.write(&b, k.(string), options.(*value.Dict))
	}
	return b.String(), nil
}

func (c *config) write(b *strings.Builder, name string, options *value.Dict) {
	b.WriteString("[" + name + "]\n")
	for k, v := range options.All() {
		b.WriteString(k.(string))
		if v != nil {
			b.WriteString(" " + c.delimiters[0] + " " + strings.ReplaceAll(v.(string), "\n", "\n\t"))
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
}

func readConfig(data []byte, opts *value.Dict) (any, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(data) {
		return nil, errText
	}
	if err := c.read(string(data)); err != nil {
		return nil, err
	}
	out := value.NewDict(c.sections.Len())
	budget := MaxBytes
	for name, options := range c.sections.All() {
		all := c.defaults.Clone()
		all.Update(options.(*value.Dict))
		section := value.NewDict(all.Len())
		for k, v := range all.All() {
			if !c.plain {
				if v, err = c.interpolate(all, v, 1, &budget); err != nil {
					return nil, fmt.Errorf("configparser: %v in %v: %w", k, name, err)
				}
			}
			section.Set(k, v)
		}
		out.Set(name, section)
	}
	return out, nil
}

// interpolate replaces %(name)s by the value of that option.
func (c *config) interpolate(all *value.Dict, v any, depth int, budget *int) (any, error) {
	rest, _ := v.(string)
	if depth > 10 {
		return nil, errors.New("references between values nest more than 10 deep")
	}
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(rest, "%")
		b.WriteString(before)
		if *budget -= len(before) + 1; *budget < 0 {
			return nil, errLarge
		}
		if !ok {
			return b.String(), nil
		}
		if strings.HasPrefix(after, "%") {
			b.WriteByte('%')
			rest = after[1:]
			continue
		}
		at := reference().FindStringSubmatchIndex("%" + after)
		if at == nil || at[0] != 0 {
			return nil, fmt.Errorf("a %% must be followed by %% or (name)s: %s", value.Repr("%"+after))
		}
		name := ("%" + after)[at[2]:at[3]]
		rest = ("%" + after)[at[1]:]
		other, ok := all.Get(strings.ToLower(name))
		text, isText := other.(string)
		switch {
		case !ok:
			return nil, fmt.Errorf("the option %s does not exist", name)
		case !isText:
			return nil, fmt.Errorf("%s has no value to refer to", name)
		}
		if strings.Contains(text, "%") {
			more, err := c.interpolate(all, text, depth+1, budget)
			if err != nil {
				return nil, err
			}
			text = more.(string)
		}
		if *budget -= len(text); *budget < 0 {
			return nil, errLarge
		}
		b.WriteString(text)
	}
}

// reader is the state of ConfigParser while reading.
type reader struct {
	*config
	section string
	cur     *value.Dict // of nil, or *value.List of lines
	key     any         // lines of the option whose value may continue; nil if none
	indent  int
	added   map[[2]string]bool
	badLine int
}

func (c *config) read(text string) error {
	r := reader{config: c, added: map[[2]string]bool{}}
	for n, line := range strings.Split(text, "\n") {
		if err := r.line(line, n+1); err != nil {
			return err
		}
	}
	if r.badLine > 0 {
		return fmt.Errorf("configparser: line %d is neither a section nor an option", r.badLine)
	}
	c.join(c.defaults)
	for _, s := range c.sections.All() {
		c.join(s.(*value.Dict))
	}
	return nil
}

// join joins the lines of each value.
func (c *config) join(options *value.Dict) {
	for k, v := range options.All() {
		if l, ok := v.(*value.List); ok {
			lines := make([]string, l.Len())
			for i, it := range l.Items {
				lines[i] = it.(string)
			}
			options.Set(k, strings.TrimRightFunc(strings.Join(lines, "\n"), unicode.IsSpace))
		}
	}
}

const noIndent = int(^uint(0) >> 1)

func (r *reader) line(line string, n int) error {
	kept, comment := r.withoutComment(line)
	text := strings.TrimSpace(kept)
	if text == "" {
		switch l, _ := r.open(); {
		case !r.emptyLines:
			r.indent = noIndent
		case !comment && l != nil:
			l.Append("")
		}
		return nil
	}
	indent := utf8.RuneCountInString(line) - utf8.RuneCountInString(strings.TrimLeftFunc(line, unicode.IsSpace))
	if l, ok := r.open(); ok && indent > r.indent {
		if l == nil {
			return fmt.Errorf("configparser: line %d continues an option that has no value", n)
		}
		l.Append(text)
		return nil
	}
	r.indent = indent
	if end := strings.LastIndexByte(text, ']'); text[0] == '[' && end > 1 {
		return r.header(text[1:end], n)
	}
	if r.cur == nil {
		return fmt.Errorf("configparser: line %d is before the first section", n)
	}
	return r.option(text, n)
}

// open returns the lines of the option whose value may continue; ok is false if
// there is none.
func (r *reader) open() (*value.List, bool) {
	if r.cur == nil || r.key == nil || r.key == "" {
		return nil, false
	}
	l, _ := r.cur.At(r.key).(*value.List)
	return l, true
}

// withoutComment removes a comment.
func (r *reader) withoutComment(line string) (string, bool) {
	for _, p := range r.comments {
		if strings.HasPrefix(strings.TrimSpace(line), p) {
			return "", true
		}
	}
	cut := -1
	for _, p := range r.inline {
		for i := 0; i <= len(line); {
			at := strings.Index(line[i:], p)
			if at < 0 {
				break
			}
			at += i
			before, _ := utf8.DecodeLastRuneInString(line[:at])
			if at == 0 || unicode.IsSpace(before) {
				if cut < 0 || at < cut {
					cut = at
				}
				break
			}
			i = at + 1
		}
	}
	if cut < 0 {
		return line, false
	}
	return line[:cut], true
}

func (r *reader) header(name string, n int) error {
	switch {
	case name == r.defaultName:
		r.cur = r.defaults
	case r.sections.Has(name):
		if r.strict {
			return fmt.Errorf("configparser: line %d repeats the section %s", n, name)
		}
		r.cur = r.sections.At(name).(*value.Dict)
	default:
		r.cur = value.NewDict(0)
		r.sections.Set(name, r.cur)
	}
	r.section, r.key = name, nil
	return nil
}

func (r *reader) option(text string, n int) error {
	at, long := -1, 0
	for _, d := range r.delimiters {
		if i := strings.Index(text, d); i >= 0 && (at < 0 || i < at) {
			at, long = i, len(d)
		}
	}
	name := text
	if at >= 0 {
		name = text[:at]
	} else if !r.allowNone {
		r.bad(n)
		return nil
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		r.bad(n)
	}
	r.key = name
	if k := [2]string{r.section, name}; r.strict && r.added[k] {
		return fmt.Errorf("configparser: line %d repeats the option %s of %s", n, name, r.section)
	} else {
		r.added[k] = true
	}
	if at < 0 {
		r.cur.Set(name, nil)
		return nil
	}
	r.cur.Set(name, value.ListOf(strings.TrimSpace(text[at+long:])))
	return nil
}

func (r *reader) bad(n int) {
	if r.badLine == 0 {
		r.badLine = n
	}
}
