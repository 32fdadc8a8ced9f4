// Package output turns returned data into the text a user sees, one file per
// outputter: nested, highstate, json, yaml, txt, raw and the others that
// Salt's --out knows. The bytes are those of Salt, colours included.
//
// A Printer is built once from Options and then renders any number of returns;
// it holds no state between calls and may be used from several goroutines.
// The package writes only to the writer it is given and knows nothing of
// flags, terminals or files: the caller decides whether to colour, and loads the theme.
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

	"brine/internal/py/value"
)

// Options say how data is shown. The tagged ones are keys of the master's or
// minion's configuration; the others come from the command line.
type Options struct {
	StripColors   bool   `salt:"strip_colors" default:"true" doc:"show ? in place of the escape character in returned text, so that data cannot steer the terminal"`
	StateVerbose  bool   `salt:"state_verbose" default:"true" doc:"show states that succeeded without changes too"`
	StateProfile  bool   `salt:"state_output_profile" default:"true" doc:"show when each state started and how long it took"`
	StateDiff     bool   `salt:"state_output_diff" default:"false" doc:"show only states that failed or changed something"`
	StatePercent  bool   `salt:"state_output_pct" default:"false" doc:"show percentages of success and failure in the summary of a state run"`
	StateCompress bool   `salt:"state_compress_ids" default:"false" doc:"merge the names of one state ID and result into a single block"`
	Color         *bool  `salt:"color" default:"null" doc:"whether to use colours; null means only on a terminal"`
	ColorTheme    string `salt:"color_theme" default:"" doc:"path of a YAML file that maps the names of colours to codes such as 0;31"`
	Outputter     string `salt:"output" default:"" doc:"outputter to use in place of what the returned data suggests"`
	NestedIndent  int    `salt:"nested_indent" default:"0" doc:"number of blanks before nested output"`
	StateTabular  bool   `salt:"state_tabular" default:"false" doc:"align terse state results in columns"`
	Indent        Indent `salt:"output_indent" doc:"blanks per level of json, yaml and pprint output; null for one line, pretty for four and sorted keys"`
	StateOutput   string `salt:"state_output" default:"full" doc:"form of state results: full, terse, mixed, changes or filter, each also with _id to show the ID in place of the name"`

	// Theme replaces colours: names like RED or LIGHT_GREEN, values like "0;31".
	Theme map[string]string
	// StateExclude and StateTerse are the results ("True", "False", "None")
	// that the state output "filter" hides or shortens.
	StateExclude, StateTerse []string
}

// Indent is the value of --out-indent or output_indent. The zero value leaves
// the choice to the outputter.
type Indent struct {
	Given bool // a width was asked for
	Width int  // blanks per level; negative means all on one line
	Sort  bool // sort the keys (json only)
}

// SetValue reads the configuration's output_indent: null for one line,
// "pretty" for four blanks and sorted keys, or a number.
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

// Value is the counterpart of SetValue.
func (i Indent) Value() any {
	switch {
	case i.Sort:
		return "pretty"
	case i.Given && i.Width >= 0:
		return int64(i.Width)
	}
	return nil
}

// Call holds what may differ from one return to the next.
type Call struct {
	Retcode int // return code of the function; names turn red unless it is 0
	Indent  int // blanks before nested output
}

// Printer renders data with the options it was made with.
type Printer struct {
	opts Options
	log  *slog.Logger
	pal  palette
}

// New returns a printer. The log receives complaints about unknown outputters
// and unfit data.
func New(opts Options, log *slog.Logger) *Printer {
	return &Printer{opts: opts, log: log, pal: newPalette(opts.Color != nil && *opts.Color, opts.Theme)}
}

// outputter renders data without a newline at the end, or reports that the
// data has not the shape it needs.
type outputter func(p *Printer, data any, c Call) (string, error)

// outputters is the table by name, as --out takes it.
var outputters = map[string]outputter{
	"nested":              (*Printer).nested,
	"highstate":           (*Printer).highstate,
	"json":                (*Printer).json,
	"yaml":                (*Printer).yaml,
	"txt":                 (*Printer).txt,
	"raw":                 (*Printer).raw,
	"pprint":              (*Printer).pprint,
	"quiet":               (*Printer).quiet,
	"key":                 (*Printer).key,
	"newline_values_only": (*Printer).newlineValuesOnly,
	"table":               (*Printer).table,
	"no_return":           (*Printer).noReturn,
	"profile":             (*Printer).profile,
	"progress":            (*Printer).progress,
}

// Names returns the names of all outputters, sorted.
func Names() []string {
	names := make([]string, 0, len(outputters))
	for n := range outputters {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Choose returns the outputter to use: the one the user asked for, if any,
// otherwise the one suggested by the returned data. A wish for highstate
// gives way to the suggestion, because it fits only state runs.
func Choose(wanted, suggested string) string {
	if wanted != "" && wanted != "highstate" {
		return wanted
	}
	return suggested
}

func (p *Printer) find(name string) outputter {
	switch name {
	case "":
		name = "nested"
	case "text":
		name = "txt"
	}
	if f := outputters[name]; f != nil {
		return f
	}
	if name != "grains" { // asked for by very old minions
		p.log.Error("Invalid outputter " + name + " specified, fall back to nested")
	}
	return (*Printer).nested
}

// Render returns data in the form of the named outputter, without blanks or
// newlines at the end. An unknown name is logged and means nested. Data that
// does not fit the outputter is rendered nested as well.
func (p *Printer) Render(name string, data any, c Call) string {
	text, err := p.find(name)(p, data, c)
	if err != nil {
		p.log.Debug("data does not fit the outputter, using nested", "outputter", name, "error", err)
		text, _ = p.nested(data, c)
	}
	return strings.TrimRightFunc(text, pySpace)
}

// Print renders data and writes it to w as whole lines. It writes nothing
// when there is nothing to show.
func (p *Printer) Print(w io.Writer, name string, data any, c Call) error {
	b := bufio.NewWriterSize(w, printBuffer)
	if name == "json" { // fits any data, and is never held as a whole
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

// printBuffer is how much is written at a time, in bytes.
const printBuffer = 16 << 10

// clean makes text from elsewhere safe for a terminal.
func (p *Printer) clean(s string) string {
	// Few texts have any of these bytes, 0xc2 being the first of U+0080 to U+00BF.
	if !p.opts.StripColors || !strings.ContainsAny(s, "\x1b\a\b") && strings.IndexByte(s, 0xc2) < 0 {
		return s
	}
	return terminalControls().Replace(s)
}

// terminalControls replaces what steers a terminal: escape, bell, backspace, and
// the controls U+0080 to U+009F, of which U+009B begins a sequence as escape
// does. Bytes that are not UTF-8 stay as they are.
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

// sortedKeys returns the keys of d as Python's sorted would, and falls back
// to the order of their texts where Python cannot compare them.
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

// items returns the members of a list or tuple.
func items(v any) ([]any, bool) {
	switch x := v.(type) {
	case *value.List:
		return x.Items, true
	case value.Tuple:
		return x, true
	}
	return nil, false
}

// sortedItems returns the texts of items, sorted.
func sortedItems(items []any) []string {
	out := make([]string, len(items))
	for i, it := range items {
		out[i] = value.Str(it)
	}
	slices.Sort(out)
	return out
}

func width(s string) int { return utf8.RuneCountInString(s) }

// Nested shows a value as the outputter nested does, plain, for texts that
// hold details.
func Nested(v any) string {
	p := New(Options{}, slog.New(slog.DiscardHandler))
	return strings.TrimRight(p.Render("nested", v, Call{}), "\n")
}
