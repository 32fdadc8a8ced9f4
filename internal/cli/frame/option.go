package frame

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"brine/internal/py/value"
)

// Option is one declared option.
type Option struct {
	Long    []string // without dashes; the first is the canonical name
	Short   string   // one letter, or ""
	Arg     string   // name of the argument in help; "" if the option has none
	Default string
	Env     string   // environment variable that overrides the default
	Doc     string   // may contain %default
	Choices []string // the only values allowed, unless empty
	// Dest is the name in the configuration and in the Saltfile.
	Dest   string
	Group  string
	Hidden bool // accepted, but not in the help

	index []int // of the field in the options struct
}

// Group is a heading in the help.
type Group struct {
	Name, Doc string
	Options   []Option
}

// Options returns the options declared by opts, a struct or a pointer to one, by group in the order
// of declaration. Options without a group come first. It panics on an invalid declaration, which is
// a bug.
func Options(opts any) []Group {
	t := reflect.TypeOf(opts)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	groups := []Group{{}}
	collect(&groups, t, nil, "", "")
	// If several structs declare a short name, the outermost gets it, as Go resolves embedded
	// fields; at the same depth, the one embedded first. So a program's own options win over shared
	// ones.
	owner := map[string][]int{}
	for _, g := range groups {
		for _, o := range g.Options {
			if d, ok := owner[o.Short]; !ok || len(o.index) < len(d) || len(o.index) == len(d) && slices.Compare(o.index, d) < 0 {
				owner[o.Short] = o.index
			}
		}
	}
	seen := map[string]bool{}
	for gi := range groups {
		for oi := range groups[gi].Options {
			o := &groups[gi].Options[oi]
			if home := len(o.index) - 1; o.Short != "" && !slices.Equal(owner[o.Short][:len(owner[o.Short])-1], o.index[:home]) {
				o.Short = ""
			}
			for _, name := range append([]string{"-" + o.Short}, o.Long...) {
				if name != "-" && seen[name] {
					panic("frame: option " + name + " is declared twice")
				}
				seen[name] = true
			}
		}
	}
	return groups
}

func collect(groups *[]Group, t reflect.Type, index []int, group, doc string) {
	for i := range t.NumField() {
		f := t.Field(i)
		at := append(index[:len(index):len(index)], i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			g, d := group, doc
			if name, ok := f.Tag.Lookup("group"); ok {
				g, d = name, f.Tag.Get("doc")
			}
			collect(groups, f.Type, at, g, d)
			continue
		}
		spec, ok := f.Tag.Lookup("flag")
		if !ok {
			continue
		}
		o := optionOf(f, spec)
		o.index, o.Group = at, group
		if name, ok := f.Tag.Lookup("group"); ok {
			o.Group = name
		}
		addTo(groups, o, doc)
	}
}

func addTo(groups *[]Group, o Option, doc string) {
	for i := range *groups {
		if (*groups)[i].Name == o.Group {
			(*groups)[i].Options = append((*groups)[i].Options, o)
			return
		}
	}
	*groups = append(*groups, Group{Name: o.Group, Doc: doc, Options: []Option{o}})
}

func optionOf(f reflect.StructField, spec string) Option {
	o := Option{
		Default: f.Tag.Get("default"), Env: f.Tag.Get("env"), Doc: f.Tag.Get("doc"),
		Dest: f.Tag.Get("dest"), Arg: f.Tag.Get("arg"), Hidden: f.Tag.Get("hidden") != "",
	}
	for _, w := range strings.Fields(spec) {
		if long, ok := strings.CutPrefix(w, "--"); ok && long != "" {
			o.Long = append(o.Long, long)
		} else if len(w) == 2 && w[0] == '-' && o.Short == "" {
			o.Short = w[1:]
		} else {
			panic(fmt.Sprintf("frame: field %s: bad spelling %q", f.Name, w))
		}
	}
	if len(o.Long) == 0 {
		panic("frame: field " + f.Name + " has no long option")
	}
	if o.Dest == "" {
		o.Dest = strings.ReplaceAll(o.Long[0], "-", "_")
	}
	if c := f.Tag.Get("choices"); c != "" {
		o.Choices = strings.Split(c, ",")
	}
	if o.Arg == "" && f.Type.Kind() != reflect.Bool {
		o.Arg = strings.ToUpper(o.Dest)
	}
	return o
}

// slot is an option and the field that it sets. It implements pflag.Value.
type slot struct {
	Option
	field reflect.Value
	given bool
}

// noArgument marks a boolean option as used without "=value".
const noArgument = "\x00"

type optionError string

func (e optionError) Error() string { return string(e) }

const errNoValue optionError = "does not take a value"

// Set parses the value from the command line.
func (s *slot) Set(text string) error {
	if s.Arg == "" {
		if text != noArgument {
			return errNoValue
		}
		text = "true"
	}
	if err := s.set(text); err != nil {
		return err
	}
	s.given = true
	return nil
}

func (s *slot) String() string { return s.Default }
func (s *slot) Type() string   { return s.Arg }

func (s *slot) set(text string) error {
	if len(s.Choices) > 0 && text != s.Default {
		ok := false
		for _, c := range s.Choices {
			ok = ok || c == text
		}
		if !ok {
			return optionError("invalid choice: " + value.Repr(text) + " (choose from '" + strings.Join(s.Choices, "', '") + "')")
		}
	}
	dst := s.field
	if dst.Kind() == reflect.Pointer {
		dst.Set(reflect.New(dst.Type().Elem()))
		dst = dst.Elem()
	}
	switch dst.Kind() {
	case reflect.String:
		dst.SetString(text)
	case reflect.Bool:
		b, err := parseBool(text)
		if err != nil {
			return err
		}
		dst.SetBool(b)
	case reflect.Int:
		i, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
		if err != nil {
			return optionError("invalid integer value: " + value.Repr(text))
		}
		dst.SetInt(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil {
			return optionError("invalid floating-point value: " + value.Repr(text))
		}
		dst.SetFloat(f)
	case reflect.Slice:
		dst.Set(reflect.Append(dst, reflect.ValueOf(text)))
	default:
		panic("frame: option --" + s.Long[0] + " has a type that cannot be set: " + dst.Type().String())
	}
	return nil
}

func parseBool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "true", "yes", "on", "1":
		return true, nil
	case "false", "no", "off", "0":
		return false, nil
	}
	return false, optionError("invalid boolean value: " + value.Repr(text) + " (choose from 'True', 'False')")
}

// value returns the value of the field in the value model.
func (s *slot) value() any {
	v := s.field
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	return value.From(v.Interface())
}
