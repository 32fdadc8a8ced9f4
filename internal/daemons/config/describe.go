package config

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// Description describes one option.
type Description struct {
	Name    string
	Alias   []string
	Doc     string
	Default any    // as a type of package value
	Type    string // for users: "number", "seconds", "list" …
	Change  string // "live", "restart" or ""
	// Example is a value other than the default.
	Example any
	// Group is the title of the part of the configuration that declares it, such as "Log".
	Group string
}

//go:embed examples.yaml
var examplesText []byte

// examples returns the examples of examples.yaml by kind; "both" is for master and
// minion.
var examples = sync.OnceValues(func() (*value.Dict, error) {
	v, err := yaml.Load(examplesText, "examples.yaml")
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return v.(*value.Dict), nil
})

// example returns the example for an option: the one in examples.yaml, or else one derived from
// the default; nil if there is none.
func example(k Kind, d *Description) (any, error) {
	all, err := examples()
	if err != nil {
		return nil, err
	}
	for _, section := range []string{string(k), "both"} {
		if own, ok := all.At(section).(*value.Dict); ok && own.Has(d.Name) {
			return own.At(d.Name), nil
		}
	}
	switch x := d.Default.(type) {
	case bool:
		return !x, nil
	case int64:
		if x > 0 {
			return 2 * x, nil
		}
	case float64:
		if x > 0 {
			return 2 * x, nil
		}
	}
	return nil, nil
}

// Describe lists the options of a kind of configuration in the order of their declaration. ptr
// points to the struct with the options: Master, Minion or that of one program.
func Describe(k Kind, ptr any) ([]Description, error) {
	opts, _, err := options(ptr)
	if err != nil {
		return nil, err
	}
	usual := map[string]any{}
	if u, ok := ptr.(interface{ usual() map[string]any }); ok {
		usual = u.usual()
	}
	out := make([]Description, len(opts))
	for i, o := range opts {
		f := o.slots[0].Field
		out[i] = Description{
			Name: o.name, Alias: f.Alias, Doc: f.Doc, Default: f.DefaultValue(),
			Type: typeWord(f.Type), Change: f.Change, Group: groupOf(ptr, o.slots[0].part),
		}
		if v, ok := usual[o.name]; ok {
			out[i].Default = v
		}
		if out[i].Example, err = example(k, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

//go:embed byname.yaml
var byNameText []byte

// byName returns the content of byname.yaml.
var byName = sync.OnceValues(func() (*value.Dict, error) {
	v, err := yaml.Load(byNameText, "byname.yaml")
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return v.(*value.Dict), nil
})

// DescribeByName lists the options that functions and programs read by their name,
// which Describe does not find.
func DescribeByName(k Kind) ([]Description, error) {
	all, err := byName()
	if err != nil {
		return nil, err
	}
	var out []Description
	for name, own := range all.All() {
		d := own.(*value.Dict)
		if slices.Contains(value.Texts(d.At("kinds")), string(k)) {
			out = append(out, Description{
				Name: value.Str(name), Doc: d.Str("doc"), Type: d.Str("type"), Default: d.At("default"), Example: d.At("example"),
				Group: "Read by functions and programs",
			})
		}
	}
	return out, nil
}

func groupOf(ptr any, part reflect.Value) string {
	st := reflect.ValueOf(ptr).Elem()
	for i := range st.NumField() {
		if st.Field(i).Kind() == reflect.Struct && st.Field(i).Addr() == part.Addr() {
			f := st.Type().Field(i)
			if title := f.Tag.Get("title"); title != "" {
				return title
			}
			return f.Name
		}
	}
	return ""
}

func typeWord(t reflect.Type) string {
	if t.PkgPath() == "time" && t.Name() == "Duration" {
		return "seconds"
	}
	if t == reflect.TypeFor[*value.Dict]() {
		return "mapping"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeWord(t.Elem())
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float64:
		return "number"
	case reflect.Slice:
		return "list"
	case reflect.Map, reflect.Struct:
		return "mapping"
	}
	return "any"
}

// WriteSample writes a sample file with every option commented out: its help
// and its default.
func WriteSample(w io.Writer, k Kind, ptr any) error {
	all, err := Describe(k, ptr)
	if err != nil {
		return err
	}
	b := bufio.NewWriter(w)
	group := ""
	for _, d := range all {
		if d.Group != group {
			group = d.Group
			fmt.Fprintf(b, "##### %s #####\n\n", group)
		}
		help := d.Doc
		if d.Change == "restart" {
			help += " (needs a restart)"
		}
		for _, line := range wrap(help, 78) {
			fmt.Fprintf(b, "# %s\n", line)
		}
		for line := range strings.Lines(yaml.Dump(value.DictOf(d.Name, d.Default), yaml.Width(-1))) {
			b.WriteString("#" + line)
		}
		b.WriteByte('\n')
	}
	return b.Flush()
}

// wrap breaks a string at spaces into lines of at most width bytes.
func wrap(text string, width int) []string {
	var lines []string
	for word := range strings.FieldsSeq(text) {
		if n := len(lines); n > 0 && len(lines[n-1])+1+len(word) <= width {
			lines[n-1] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return slices.Clip(lines)
}
