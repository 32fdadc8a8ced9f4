// Package output renders returned data as text, one file per outputter: nested, highstate, json,
// yaml, txt, raw and the others of Salt's --out. The bytes are the same as Salt's, including
// colours.
//
// A Printer is built once from Options and then renders any number of returns. It keeps no state
// between calls and is safe for concurrent use. The package writes only to the given writer and
// does not handle flags, terminals or files: the caller decides on colours and loads the theme.
package output

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"brine/internal/base/registry"
	"brine/internal/base/textedit"
	"brine/internal/py/value"
)

// Options are the settings of a Printer. The tagged ones are keys of the master's or minion's
// configuration; the others come from the command line.
type Options struct {
	StripColors   bool   `salt:"strip_colors" default:"true" doc:"show ? instead of the escape character in returned text, so that data cannot control the terminal"`
	StateVerbose  bool   `salt:"state_verbose" default:"true" doc:"show states that succeeded without changes too"`
	StateProfile  bool   `salt:"state_output_profile" default:"true" doc:"show when each state started and how long it took"`
	StateDiff     bool   `salt:"state_output_diff" default:"false" doc:"show only states that failed or made changes"`
	StatePercent  bool   `salt:"state_output_pct" default:"false" doc:"show percentages of success and failure in the summary of a state run"`
	StateCompress bool   `salt:"state_compress_ids" default:"false" doc:"merge the names of a state ID with the same result into one block"`
	Color         *bool  `salt:"color" default:"null" doc:"whether to use colours; null means only on a terminal"`
	ColorTheme    string `salt:"color_theme" default:"" doc:"path of a YAML file that maps colour names to codes such as 0;31"`
	Outputter     string `salt:"output" default:"" doc:"outputter that overrides the one suggested by the returned data"`
	NestedIndent  int    `salt:"nested_indent" default:"0" doc:"number of spaces before nested output"`
	StateTabular  bool   `salt:"state_tabular" default:"false" doc:"align terse state results in columns"`
	Indent        Indent `salt:"output_indent" doc:"spaces per level of json, yaml and pprint output; null for one line, pretty for four and sorted keys"`
	StateOutput   string `salt:"state_output" default:"full" doc:"form of state results: full, terse, mixed, changes or filter, each also with _id to show the ID instead of the name"`

	// Theme replaces colours: names like RED or LIGHT_GREEN, values like "0;31".
	Theme map[string]string
	// StateExclude and StateTerse are the results ("True", "False", "None")
	// that the state output "filter" hides or shortens.
	StateExclude, StateTerse []string
}

// Indent is the value of --out-indent or output_indent. With the zero value the outputter decides.
type Indent struct {
	Given bool // a width was given
	Width int  // spaces per level; negative means a single line
	Sort  bool // sort the keys (json only)
}

// SetValue parses the configuration's output_indent: null for one line, "pretty" for four spaces
// and sorted keys, or a number.
func (i *Indent) SetValue(v any) error {
	switch x := v.(type) {
	case nil:
		*i = Indent{Given: true, Width: -1}
		return nil
	case int64:
		*i = Indent{Given: true, Width: int(max(-1, min(x, 64)))}
		return nil
	case string:
		if x == "pretty" {
			*i = Indent{Given: true, Width: 4, Sort: true}
			return nil
		}
	}
	return fmt.Errorf("%s is neither a number, null nor pretty", value.Repr(v))
}

// Value is the inverse of SetValue.
func (i Indent) Value() any {
	switch {
	case i.Sort:
		return "pretty"
	case i.Given && i.Width >= 0:
		return int64(i.Width)
	}
	return nil
}

// Call holds options of a single return.
type Call struct {
	Retcode int // return code of the function; names turn red unless it is 0
	Indent  int // spaces before nested output
}

// Printer renders data with fixed options.
type Printer struct {
	opts Options
	log  *slog.Logger
	pal  palette
	own  Own
}

// Own provides outputters from the user's own modules. They take precedence over built-in ones of
// the same name.
type Own interface {
	// Has reports whether an outputter with the name exists.
	Has(name string) bool
	// Output renders data. color reports whether to use colours.
	Output(name string, data any, c Call, color bool) (string, error)
}

// Use adds outputters. Call it before the Printer is used.
func (p *Printer) Use(own Own) { p.own = own }

// New returns a printer. It logs unknown outputters and data that does not fit.
func New(opts Options, log *slog.Logger) *Printer {
	return &Printer{opts: opts, log: log, pal: newPalette(opts.Color != nil && *opts.Color, opts.Theme)}
}

// outputter renders data without a trailing newline, or returns an error if the data has the wrong shape.
type outputter func(p *Printer, data any, c Call) (string, error)

// outputters are the values of --out.
var outputters = registry.New[outputter]("outputter")

// Names returns the names of all outputters, sorted.
func Names() []string { return outputters.Names() }

// Choose returns the outputter to use: the one the user requested, if any, otherwise the one
// suggested by the returned data. A request for highstate yields to the suggestion, because
// highstate fits only state runs.
func Choose(wanted, suggested string) string {
	if wanted != "" && wanted != "highstate" {
		return wanted
	}
	return suggested
}

func (p *Printer) owns(name string) bool { return p.own != nil && p.own.Has(name) }

func (p *Printer) find(name string) outputter {
	switch name {
	case "":
		name = "nested"
	case "text":
		name = "txt"
	}
	if p.owns(name) {
		return func(p *Printer, data any, c Call) (string, error) {
			text, err := p.own.Output(name, data, c, p.opts.Color != nil && *p.opts.Color)
			if err != nil {
				p.log.Error("outputter failed; using nested", "outputter", name, "err", err)
			}
			return text, err
		}
	}
	if f, ok := outputters.Lookup(name); ok {
		return f
	}
	if name != "grains" { // requested by very old minions
		hint := ""
		if near := textedit.Nearest(name, Names()); len(near) > 0 {
			hint = "; did you mean " + near[0] + "?"
		}
		p.log.Error("Invalid outputter " + name + " specified, fall back to nested" + hint)
	}
	return (*Printer).nested
}

// Render renders data with the named outputter, without trailing white space. It logs an unknown
// name and uses nested for it, and for data that does not fit the outputter.
func (p *Printer) Render(name string, data any, c Call) string {
	return strings.TrimRightFunc(p.Format(name, data, c), pySpace)
}

// Format returns what an outputter makes of data, with a line end if the outputter writes one.
func (p *Printer) Format(name string, data any, c Call) string {
	text, err := p.find(name)(p, data, c)
	if err != nil {
		p.log.Debug("data does not fit the outputter; using nested", "outputter", name, "err", err)
		text, _ = p.nested(data, c)
	}
	return text
}

// Print renders data and writes it to w in whole lines. It writes nothing for empty output.
func (p *Printer) Print(w io.Writer, name string, data any, c Call) error {
	b := bufio.NewWriterSize(w, printBuffer)
	if name == "json" && !p.owns(name) { // fits any data, and is streamed
		p.writeJSON(b, data)
	} else {
		text := p.Render(name, data, c)
		if text == "" {
			return nil
		}
		b.WriteString(text)
	}
	b.WriteByte('\n')
	return b.Flush()
}

// printBuffer is the size of writes in bytes.
const printBuffer = 16 << 10

// clean makes untrusted text safe for a terminal.
func (p *Printer) clean(s string) string {
	// Fast path: few strings have any of these bytes. 0xc2 is the first byte of U+0080 to U+00BF.
	if !p.opts.StripColors || !strings.ContainsAny(s, "\x1b\a\b") && strings.IndexByte(s, 0xc2) < 0 {
		return s
	}
	return terminalControls().Replace(s)
}

// terminalControls replaces terminal control characters: escape, bell, backspace, and U+0080 to
// U+009F, of which U+009B starts a sequence like escape. Bytes that are not UTF-8 are kept.
var terminalControls = sync.OnceValue(func() *strings.Replacer {
	pairs := []string{"\x1b", "?", "\a", "?", "\b", "?"}
	for r := rune(0x80); r <= 0x9f; r++ {
		pairs = append(pairs, string(r), "?")
	}
	return strings.NewReplacer(pairs...)
})

// pySpace follows Python's str.isspace.
func pySpace(r rune) bool {
	return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
}

// sortedKeys returns the keys of d in the order of Python's sorted, or in string order if Python
// cannot compare them.
func sortedKeys(d *value.Dict) []any {
	keys := d.Keys()
	comparable := true
	slices.SortStableFunc(keys, func(a, b any) int {
		c, ok := value.Compare(a, b)
		comparable = comparable && ok
		return c
	})
	if !comparable {
		slices.SortStableFunc(keys, func(a, b any) int {
			return strings.Compare(value.Str(a), value.Str(b))
		})
	}
	return keys
}

// items returns the items of a list or tuple.
func items(v any) ([]any, bool) {
	switch x := v.(type) {
	case *value.List:
		return x.Items, true
	case value.Tuple:
		return x, true
	}
	return nil, false
}

func width(s string) int { return utf8.RuneCountInString(s) }

// Nested renders a value like the outputter nested, without colours, for messages with details.
func Nested(v any) string {
	p := New(Options{}, slog.New(slog.DiscardHandler))
	return strings.TrimRight(p.Render("nested", v, Call{}), "\n")
}
