package frame

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"brine/internal/base/textedit"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// Command describes how a program is called.
type Command struct {
	Name  string // "salt-key"
	Usage string // follows the name; "" means "[options]"
	Doc   string // a sentence or two for the help
	// Subs are the subcommands, the first argument of the program.
	Subs []Sub
}

// Sub is a subcommand of a program.
type Sub struct {
	Name    string
	Args    string // follow the name
	Doc     string
	Example string // a complete command line
	// Options are the long names of the options for this subcommand only. An option that no
	// subcommand names is for all.
	Options []string
}

// sub returns the first subcommand on a command line, or nil.
func (c *Command) sub(args []string) *Sub {
	for _, a := range args {
		if i := slices.IndexFunc(c.Subs, func(s Sub) bool { return s.Name == a }); i >= 0 {
			return &c.Subs[i]
		}
	}
	return nil
}

// Invocation is a parsed command line.
type Invocation struct {
	// Args are the positional arguments, in order.
	Args []string

	slots []*slot
	extra *value.Dict // from the Saltfile, names that are not options
}

// Given reports whether the command line or the Saltfile set the option with this configuration
// name (its Dest).
func (inv *Invocation) Given(dest string) bool {
	for _, s := range inv.slots {
		if s.Dest == dest {
			return s.given
		}
	}
	return inv.extra.Has(dest)
}

// Overrides returns the given options by their configuration names. They take precedence over the
// configuration file.
func (inv *Invocation) Overrides() *value.Dict {
	d := inv.extra.Clone()
	for _, s := range inv.slots {
		if s.given {
			d.Set(s.Dest, s.value())
		}
	}
	return d
}

// base is the group of options of every program.
type base struct {
	Version bool `flag:"--version" doc:"Show the version of this program and exit."`
	Report  bool `flag:"-V --versions-report" doc:"Show the versions of this program and all it is made of, and exit."`
	Help    bool `flag:"-h --help" doc:"Show this help and exit."`
}

// stop is the error of an option that ends parsing.
type stop string

func (s stop) Error() string { return string(s) }

// Parse reads the command line into opts, a pointer to a struct with tagged fields. Defaults come
// from the tags, then from the environment, then from the Saltfile if opts embeds Saltfile. If ok
// is false, Parse has shown the help, the version or a usage error, and the program exits with
// code.
func (c *Command) Parse(env *Env, opts any, args []string) (inv *Invocation, code int, ok bool) {
	if env.describe != nil {
		env.describe(Description{*c, allOptions(opts)})
		return nil, ExitOK, false
	}
	var b base
	p := newParser(env, opts, &b)
	err := p.parse(args)
	if err == nil {
		if in, is := opts.(interface{ argsFromStdin() bool }); is && in.argsFromStdin() {
			err = p.parseStdin(env.Stdin)
		}
	}
	switch {
	case errors.Is(err, stop("help")):
		c.help(env, opts, c.sub(args))
		return nil, ExitOK, false
	case errors.Is(err, stop("version")):
		fmt.Fprintln(env.Stdout, VersionLine(c.Name))
		return nil, ExitOK, false
	case err == nil && b.Report:
		fmt.Fprint(env.Stdout, VersionsReport())
		return nil, ExitOK, false
	}
	if err == nil {
		if s, is := opts.(interface{ saltfilePath() string }); is {
			err = p.saltfile(env, c.Name, s.saltfilePath())
		}
	}
	if err != nil {
		return nil, c.Fail(env, err.Error()), false
	}
	return &Invocation{Args: p.args, slots: p.slots[:len(p.slots)-p.own], extra: p.extra}, ExitOK, true
}

// Fail reports a usage error in the format of all programs and returns its exit code.
func (c *Command) Fail(env *Env, text string) int {
	fmt.Fprintf(env.Stderr, "%s\n\n%s: error: %s\n", c.usageLine(), c.Name, text)
	return ExitUsage
}

func (c *Command) usageLine() string {
	usage := c.Usage
	if usage == "" {
		usage = "[options]"
	}
	return "Usage: " + c.Name + " " + usage
}

type parser struct {
	flags *pflag.FlagSet
	slots []*slot
	own   int // number of slots of base, at the end of slots
	names map[string]string
	args  []string
	extra *value.Dict
}

func newParser(env *Env, opts any, b *base) *parser {
	p := &parser{flags: pflag.NewFlagSet("", pflag.ContinueOnError), names: map[string]string{}, extra: value.NewDict(0)}
	p.flags.SetOutput(io.Discard)
	p.flags.Usage = func() {}
	p.add(env, opts)
	n := len(p.slots)
	p.add(env, b)
	p.own = len(p.slots) - n
	// Resolve aliases and abbreviations to the canonical name, as in Python.
	p.flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if found := p.find(name); len(found) == 1 {
			return pflag.NormalizedName(found[0])
		}
		return pflag.NormalizedName(name)
	})
	return p
}

func (p *parser) add(env *Env, opts any) {
	st := reflect.ValueOf(opts).Elem()
	for _, g := range Options(opts) {
		for _, o := range g.Options {
			s := &slot{Option: o, field: st.FieldByIndex(o.index)}
			if o.Env != "" {
				if v := env.Getenv(o.Env); v != "" {
					s.Default = v
				}
			}
			if s.Default != "" {
				if err := s.set(s.Default); err != nil {
					panic(fmt.Sprintf("frame: default of --%s: %v", o.Long[0], err))
				}
			}
			var v pflag.Value = s
			switch o.Long[0] {
			case "help", "version":
				v = stopper{s}
			}
			f := p.flags.VarPF(v, o.Long[0], o.Short, "")
			if o.Arg == "" {
				f.NoOptDefVal = noArgument
			}
			for _, name := range o.Long {
				p.names[name] = o.Long[0]
			}
			p.slots = append(p.slots, s)
		}
	}
}

// stopper is an option that ends parsing at once.
type stopper struct{ *slot }

func (s stopper) Set(string) error { return stop(s.Long[0]) }

// find returns the canonical names that name may mean: an exact match, or all that it abbreviates.
func (p *parser) find(name string) []string {
	if proper, ok := p.names[name]; ok {
		return []string{proper}
	}
	var found []string
	for full, proper := range p.names {
		if name != "" && strings.HasPrefix(full, name) && !slices.Contains(found, proper) {
			found = append(found, proper)
		}
	}
	slices.Sort(found)
	return found
}

func (p *parser) parse(args []string) error {
	if err := p.flags.Parse(args); err != nil {
		return p.explain(err, args)
	}
	p.args = append(p.args, p.flags.Args()...)
	return nil
}

// parseStdin reads further options and arguments, one per line.
func (p *parser) parseStdin(r io.Reader) error {
	var args []string
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		args = append(args, strings.TrimRight(sc.Text(), "\r"))
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("cannot read arguments from stdin: %w", err)
	}
	return p.parse(args)
}

// spelling returns how args spell the option of an invalid value, which pflag does not report.
func spelling(args []string, bad *pflag.InvalidValueError) string {
	f := bad.GetFlag()
	for i, a := range args {
		if a == "--" || f.Shorthand == "" {
			break
		}
		if strings.HasPrefix(a, "--") || !strings.HasPrefix(a, "-") {
			continue
		}
		_, rest, ok := strings.Cut(a[1:], f.Shorthand)
		if ok && (rest != "" && strings.TrimPrefix(rest, "=") == bad.GetValue() || rest == "" && i+1 < len(args) && args[i+1] == bad.GetValue()) {
			return "-" + f.Shorthand
		}
	}
	return "--" + f.Name
}

// explain converts an error of pflag about args to the message of Python's optparse.
func (p *parser) explain(err error, args []string) error {
	var (
		missing *pflag.NotExistError
		value   *pflag.ValueRequiredError
		invalid *pflag.InvalidValueError
		end     stop
	)
	switch {
	case errors.As(err, &missing):
		return p.unknown(missing)
	case errors.As(err, &value):
		name := "--" + value.GetSpecifiedName()
		if value.GetSpecifiedShortnames() != "" {
			name = "-" + value.GetSpecifiedName()
		}
		return fmt.Errorf("%s option requires 1 argument", name)
	case errors.As(err, &end):
		return end
	case errors.As(err, &invalid):
		cause := invalid.Unwrap()
		if errors.As(cause, &end) {
			return end
		}
		name := spelling(args, invalid)
		if errors.Is(cause, errNoValue) {
			return fmt.Errorf("%s option %w", name, cause)
		}
		return fmt.Errorf("option %s: %w", name, cause)
	}
	return err
}

func (p *parser) unknown(e *pflag.NotExistError) error {
	name := e.GetSpecifiedName()
	if e.GetSpecifiedShortnames() != "" {
		return fmt.Errorf("no such option: -%s", name)
	}
	if found := p.find(name); len(found) > 1 {
		return fmt.Errorf("ambiguous option: --%s (--%s?)", name, strings.Join(found, ", --"))
	}
	all := make([]string, 0, len(p.names))
	for n := range p.names {
		all = append(all, n)
	}
	slices.Sort(all)
	if near := textedit.Nearest(name, all); len(near) > 0 {
		return fmt.Errorf("no such option: --%s (did you mean --%s?)", name, strings.Join(near, " or --"))
	}
	return fmt.Errorf("no such option: --%s", name)
}

// saltfile sets options that were not given from the Saltfile section with the program's name.
func (p *parser) saltfile(env *Env, program, path string) error {
	named := path != ""
	for _, try := range []string{path, env.Getenv("SALT_SALTFILE"), "Saltfile", filepath.Join(env.Getenv("HOME"), ".salt", "Saltfile")} {
		if path == "" {
			path, named = try, try != "" && try == env.Getenv("SALT_SALTFILE")
		}
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
			break
		}
		if named {
			return fmt.Errorf("'%s' file does not exist", path)
		}
		path = ""
	}
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cannot read the Saltfile: %w", err)
	}
	doc, err := yaml.Load(text, path)
	if err != nil {
		return err
	}
	all, _ := doc.(*value.Dict)
	for k, v := range all.Dict(program).All() {
		if err := p.preset(value.Str(k), v); err != nil {
			return fmt.Errorf("%s: %s: %w", path, value.Str(k), err)
		}
	}
	return nil
}

// preset sets an option from the Saltfile, unless the command line has set it.
func (p *parser) preset(dest string, v any) error {
	for _, s := range p.slots {
		if s.Dest != dest {
			continue
		}
		if s.given {
			return nil
		}
		s.given = true
		if l, ok := v.(*value.List); ok {
			for _, it := range l.Items {
				if err := s.set(value.Str(it)); err != nil {
					return err
				}
			}
			return nil
		}
		return s.set(value.Str(v))
	}
	p.extra.Set(dest, v)
	return nil
}
