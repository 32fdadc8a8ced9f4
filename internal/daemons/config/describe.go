package config

import (
	"bufio"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// Description is what there is to know about one option.
type Description struct {
	Name    string
	Alias   []string
	Doc     string
	Default any    // in terms of the value model
	Type    string // in a user's words: "number", "seconds", "list" …
	Change  string // "live", "restart" or ""
	// Group is the name of the part that declares it, such as "Log".
	Group string
}

// Describe lists the options of Master or Minion (ptr points to one of them),
// in the order of their declaration.
func Describe(ptr any) ([]Description, error) {
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
	}
	return out, nil
}

func groupOf(ptr any, part reflect.Value) string {
	st := reflect.ValueOf(ptr).Elem()
	for i := range st.NumField() {
		if st.Field(i).Kind() == reflect.Struct && st.Field(i).Addr() == part.Addr() {
			return st.Type().Field(i).Name
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
func WriteSample(w io.Writer, ptr any) error {
	all, err := Describe(ptr)
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

// wrap breaks a text into lines of at most width bytes, where it has blanks.
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
