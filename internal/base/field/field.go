// Package field reads the struct tags that declare options of daemons and
// arguments of functions, and converts values of package value to these Go
// fields:
//
//	type Options struct {
//		Port    uint16        `salt:"publish_port" default:"4505" doc:"port that minions subscribe to"`
//		Timeout time.Duration `salt:"timeout"      default:"5"    doc:"seconds to wait for minions"`
//		Peers   []string      `salt:"peers"        default:"[]"   list:"comma"`
//	}
//
// The tags are:
//
//	salt     the name that users write; a field without it is ignored
//	default  the value if the user gives none; without it there is none
//	doc      one line of help
//	alias    former names, separated by commas
//	change   when a changed option takes effect: "live" or "restart"
//	list     "comma": a string is split at its commas into a list
//
// Embedded structs without a salt tag are flattened: their fields count as
// fields of the outer struct. Names must be unique.
//
// The value of default is null, true, false, a decimal number, [], {}, a flat
// list such as [udp, tcp], or else a string. Quotes make anything a string, and
// a field of type string takes all but null literally.
//
// The package does not depend on files, YAML or Salt.
package field

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Field is one declared field of a struct.
type Field struct {
	// Name is the name that users write.
	Name string
	// Doc is one line of help, possibly empty.
	Doc string
	// Default is the default tag, valid if HasDefault.
	Default    string
	HasDefault bool
	// Alias holds former names that are still accepted.
	Alias []string
	// Change is "live", "restart" or "".
	Change string
	// Comma reports whether a string is split at commas into a list.
	Comma bool
	// Index is the path for reflect.Value.FieldByIndex.
	Index []int
	// Type is the Go type of the field.
	Type reflect.Type
	// Go is the Go name, qualified by the embedded structs.
	Go string
	// Tag is the whole tag, for keys specific to the caller.
	Tag reflect.StructTag

	value any // parsed default
}

// Of returns the fields of struct type t (or of the struct that t points to) in
// the order of their declaration. It fails for invalid tags: two fields with
// one name, an unknown value of change or list, or a default that does not fit
// its field. Callers treat that as a programming error.
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

// read returns the Field of one tagged struct field, and checks its default.
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

// DefaultValue returns the default as a new value of the model; nil if there is
// none or it is null.
func (f Field) DefaultValue() any {
	if !f.HasDefault {
		return nil
	}
	v, err := parseDefault(f.Default, f.Type.Kind() == reflect.String)
	if err != nil {
		return nil // cannot happen: Of checked it
	}
	return v
}

// In returns the field of st, a struct of the type given to Of.
func (f Field) In(st reflect.Value) reflect.Value { return st.FieldByIndex(f.Index) }

// Set converts v to the field of st, an addressable struct. Unlike the function
// Set, it honours the list tag, and accepts null (as the zero value) if null is
// the default.
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

// SetDefault sets the field of st to its default, or to its zero value if it
// has none.
func (f Field) SetDefault(st reflect.Value) error {
	dst := f.In(st)
	if !f.HasDefault {
		dst.SetZero()
		return nil
	}
	return f.set(dst, f.DefaultValue())
}

// Defaults sets every field that has a default in the struct that ptr points
// to; others keep their value. It fails only for invalid tags.
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
