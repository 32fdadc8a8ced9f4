// Package field reads the struct tags by which Brine declares things once,
// and converts values of the shared model into the Go fields so declared. An
// option of a daemon and an argument of a function are both a field:
//
//	type Options struct {
//		Port    uint16        `salt:"publish_port" default:"4505" doc:"port that minions subscribe to"`
//		Timeout time.Duration `salt:"timeout"      default:"5"    doc:"seconds to wait for minions"`
//		Peers   []string      `salt:"peers"        default:"[]"   list:"comma"`
//	}
//
// The tags are:
//
//	salt     the name that users write; a field without it is not read
//	default  the value when the user gives none; without it there is none
//	doc      one line of help
//	alias    former names, separated by commas
//	change   when a changed option takes effect: "live" or "restart"
//	list     "comma": one text is split at its commas into a list
//
// Embedded structs without a salt tag are flattened: their fields count as
// fields of the outer struct. Names must be unique.
//
// The text of default is null, true, false, a decimal number, [], {}, a flat
// list such as [udp, tcp], or else a text; quotes make anything a text, and a
// field of type string takes all but null literally.
//
// The package knows nothing of files, of YAML or of Salt.
package field

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Field is one declared field of a struct.
type Field struct {
	// Name is what users write.
	Name string
	// Doc is one line of help, possibly empty.
	Doc string
	// Default is the text of the default tag, meaningful if HasDefault.
	Default    string
	HasDefault bool
	// Alias holds former names that are still understood.
	Alias []string
	// Change is "live", "restart" or "".
	Change string
	// Comma says that a text is split at commas into a list.
	Comma bool
	// Index is the path for reflect.Value.FieldByIndex.
	Index []int
	// Type is the Go type of the field.
	Type reflect.Type
	// Go is the name in Go, with the embedded structs that lead to it.
	Go string
	// Tag is the whole tag, for words that only the caller knows.
	Tag reflect.StructTag

	value any // the default, parsed
}

// Of returns the fields of struct type t (or of what pointer type t points
// to) in the order of their declaration. It fails when a tag is wrong: two
// fields of one name, an unknown word in change or list, or a default that
// does not fit its field. Callers treat that as a programmer's mistake.
func Of(t reflect.Type) ([]Field, error) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("field: %v is not a struct", t)
	}
	fields, err := walk(nil, t, nil, "")
	if err != nil {
		return nil, err
	}
	seen := make(map[string]string, len(fields))
	for _, f := range fields {
		for _, name := range append([]string{f.Name}, f.Alias...) {
			if other, ok := seen[name]; ok {
				return nil, fmt.Errorf("field: %v: %s and %s are both named %q", t, other, f.Go, name)
			}
			seen[name] = f.Go
		}
	}
	return fields, nil
}

func walk(out []Field, t reflect.Type, index []int, prefix string) ([]Field, error) {
	for i := range t.NumField() {
		sf := t.Field(i)
		at := append(append([]int(nil), index...), i)
		name, tagged := sf.Tag.Lookup("salt")
		switch {
		case name == "-":
			continue
		case !tagged && sf.Anonymous && sf.Type.Kind() == reflect.Struct:
			var err error
			if out, err = walk(out, sf.Type, at, prefix+sf.Name+"."); err != nil {
				return nil, err
			}
			continue
		case !tagged:
			if _, ok := sf.Tag.Lookup("default"); ok {
				return nil, fmt.Errorf("field: %v.%s has a default but no salt tag", t, sf.Name)
			}
			continue
		case !sf.IsExported():
			return nil, fmt.Errorf("field: %v.%s has a salt tag but is not exported", t, sf.Name)
		case name == "":
			return nil, fmt.Errorf("field: %v.%s has an empty salt tag", t, sf.Name)
		}
		f, err := read(sf, name)
		if err != nil {
			return nil, fmt.Errorf("field: %v.%s: %w", t, sf.Name, err)
		}
		f.Index, f.Go = at, prefix+sf.Name
		out = append(out, f)
	}
	return out, nil
}

// read makes a Field of one tagged struct field, and tries its default.
func read(sf reflect.StructField, name string) (Field, error) {
	f := Field{Name: name, Doc: sf.Tag.Get("doc"), Type: sf.Type, Tag: sf.Tag}
	if a := sf.Tag.Get("alias"); a != "" {
		for s := range strings.SplitSeq(a, ",") {
			f.Alias = append(f.Alias, strings.TrimSpace(s))
		}
	}
	switch f.Change = sf.Tag.Get("change"); f.Change {
	case "", "live", "restart":
	default:
		return f, fmt.Errorf("change is %q, not live or restart", f.Change)
	}
	switch l := sf.Tag.Get("list"); l {
	case "":
	case "comma":
		f.Comma = true
	default:
		return f, fmt.Errorf("list is %q, not comma", l)
	}
	f.Default, f.HasDefault = sf.Tag.Lookup("default")
	if !f.HasDefault {
		return f, nil
	}
	var err error
	if f.value, err = parseDefault(f.Default, sf.Type.Kind() == reflect.String); err != nil {
		return f, err
	}
	if err := f.set(reflect.New(sf.Type).Elem(), f.value); err != nil {
		return f, fmt.Errorf("default %q: %w", f.Default, err)
	}
	return f, nil
}

// DefaultValue returns the default as a fresh value of the model; nil when
// there is none or it is null.
func (f Field) DefaultValue() any {
	if !f.HasDefault {
		return nil
	}
	v, err := parseDefault(f.Default, f.Type.Kind() == reflect.String)
	if err != nil {
		return nil // cannot be: Of has tried it
	}
	return v
}

// In returns the field of st, a struct of the type that Of was asked about.
func (f Field) In(st reflect.Value) reflect.Value { return st.FieldByIndex(f.Index) }

// Set converts v into the field of st, an addressable struct. Besides what
// the function Set does, it heeds the list tag, and takes null (as the zero
// value) where null is the default.
func (f Field) Set(st reflect.Value, v any) error { return f.set(f.In(st), v) }

func (f Field) set(dst reflect.Value, v any) error {
	if v == nil && f.HasDefault && f.value == nil {
		dst.SetZero()
		return nil
	}
	if s, ok := v.(string); ok && f.Comma {
		v = splitComma(s)
	}
	return Set(dst, v)
}

// SetDefault sets the field of st to its default, or to its zero value when
// it has none.
func (f Field) SetDefault(st reflect.Value) error {
	dst := f.In(st)
	if !f.HasDefault {
		dst.SetZero()
		return nil
	}
	return f.set(dst, f.DefaultValue())
}

// Defaults sets every field that has a default in the struct that ptr points
// to; others keep their value. It fails only when the tags are wrong.
func Defaults(ptr any) error {
	rv := reflect.ValueOf(ptr)
	if rv.Kind() != reflect.Pointer || rv.IsNil() || rv.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("field: Defaults wants a pointer to a struct, not %T", ptr)
	}
	fields, err := Of(rv.Elem().Type())
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range fields {
		if f.HasDefault {
			errs = append(errs, f.SetDefault(rv.Elem()))
		}
	}
	return errors.Join(errs...)
}
