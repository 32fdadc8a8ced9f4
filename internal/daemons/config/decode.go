package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"brine/internal/base/field"
	"brine/internal/base/salt"
	"brine/internal/base/textedit"
	"brine/internal/py/value"
)

// Checker is implemented by Options whose values need checks beyond their types. Decode calls
// Check on each part after setting all; a value that could not be set is zero then, and the
// error of Check for it is dropped. An error created by Wrong is reported with the origin of
// the option.
type Checker interface {
	Check() error
}

// wrong is an error about one option.
type wrong struct {
	key string
	err error
}

func (w *wrong) Error() string { return w.key + ": " + w.err.Error() }
func (w *wrong) Unwrap() error { return w.err }

// Wrong returns an error about the option key, for Check.
func Wrong(key, format string, args ...any) error {
	return &wrong{key, fmt.Errorf(format, args...)}
}

// slot is one field that receives the value of an option.
type slot struct {
	part reflect.Value
	field.Field
}

// option is one option with all its fields: two packages may both declare an
// option.
type option struct {
	name  string
	slots []slot
}

// options lists the options of the struct that ptr points to: of its own tagged
// fields and of its parts, the fields that are structs. It fails if two parts
// declare an option differently, which is a programming error.
func options(ptr any) ([]option, []reflect.Value, error) {
	rv := reflect.ValueOf(ptr)
	if rv.Kind() != reflect.Pointer || rv.Elem().Kind() != reflect.Struct {
		return nil, nil, fmt.Errorf("config: %T is not a pointer to a struct", ptr)
	}
	var out []option
	index := map[string]int{}
	parts := partsOf(rv.Elem())
	for _, p := range append([]reflect.Value{rv.Elem()}, parts...) {
		fields, err := fieldsOf(p.Type())
		if err != nil {
			return nil, nil, err
		}
		for _, f := range fields {
			i, ok := index[f.Name]
			if !ok {
				index[f.Name] = len(out)
				out = append(out, option{f.Name, []slot{{p, f}}})
				continue
			}
			first := out[i].slots[0]
			if first.Default != f.Default || first.HasDefault != f.HasDefault {
				return nil, nil, fmt.Errorf("config: %v and %v disagree about the default of %s", first.part.Type(), p.Type(), f.Name)
			}
			out[i].slots = append(out[i].slots, slot{p, f})
		}
	}
	return out, parts, nil
}

// declared caches the fields of parts: each start of a program needs them
// several times, and a minion's configuration has hundreds.
var declared sync.Map // of []field.Field by reflect.Type

func fieldsOf(t reflect.Type) ([]field.Field, error) {
	if fields, ok := declared.Load(t); ok {
		return fields.([]field.Field), nil
	}
	fields, err := field.Of(t)
	if err == nil {
		declared.Store(t, fields)
	}
	return fields, err
}

func partsOf(st reflect.Value) []reflect.Value {
	var parts []reflect.Value
	for i := range st.NumField() {
		sf := st.Type().Field(i)
		if _, tagged := sf.Tag.Lookup("salt"); tagged || !sf.IsExported() || sf.Type.Kind() != reflect.Struct {
			continue
		}
		parts = append(parts, st.Field(i))
	}
	return parts
}

// Decode fills the struct that ptr points to. Each exported struct field is the
// Options of one package; an option that several declare is set in all. Options
// that the tree does not set get their defaults. A null counts as not set,
// unless null is the default.
//
// All errors are reported as one. WarnUnknown reports undeclared names.
func Decode(t *Tree, ptr any) error {
	opts, parts, err := options(ptr)
	if err != nil {
		return err
	}
	var faults []error
	for _, o := range opts {
		if err := t.decode(o); err != nil {
			faults = append(faults, err)
		}
	}
	all := faultList{}
	all.stage(faults...)
	for _, p := range parts {
		if c, ok := p.Addr().Interface().(Checker); ok {
			all.stage(t.blame(c.Check())...)
		}
	}
	return all.err(t)
}

// decode sets one option.
func (t *Tree) decode(o option) error {
	key, v, ok := t.lookup(o)
	if ok && v == nil && o.slots[0].DefaultValue() != nil {
		t.warn(key, "option has no value; using its default")
		ok = false
	}
	for _, s := range o.slots {
		err := error(nil)
		if ok {
			if err = s.Set(s.part, v); err == nil {
				err = inBounds(s.In(s.part), s.Tag)
			}
		} else {
			err = s.SetDefault(s.part)
		}
		if err != nil {
			return t.fault(key, err)
		}
	}
	return nil
}

// inBounds checks the value of an option that declares bounds: least and most, in seconds for a duration.
func inBounds(v reflect.Value, tag reflect.StructTag) error {
	least, most := tag.Get("least"), tag.Get("most")
	if least == "" && most == "" {
		return nil
	}
	var n float64
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		n = time.Duration(v.Int()).Seconds()
	case v.CanInt():
		n = float64(v.Int())
	case v.CanUint():
		n = float64(v.Uint())
	case v.CanFloat():
		n = v.Float()
	default:
		return nil
	}
	if low, err := strconv.ParseFloat(least, 64); err == nil && !(n >= low) {
		return fmt.Errorf("%v is less than %s", n, least)
	}
	if high, err := strconv.ParseFloat(most, 64); err == nil && !(n <= high) {
		return fmt.Errorf("%v is more than %s", n, most)
	}
	return nil
}

// lookup finds the value of an option under its current or a former name.
func (t *Tree) lookup(o option) (key string, v any, ok bool) {
	if v, ok := t.Values.Get(o.name); ok {
		return o.name, v, true
	}
	for _, s := range o.slots {
		for _, a := range s.Alias {
			if v, ok := t.Values.Get(a); ok {
				return a, v, true
			}
		}
	}
	return o.name, nil, false
}

// blame adds the origin of the option to errors of Check.
func (t *Tree) blame(err error) []error {
	if err == nil {
		return nil
	}
	out := flatten([]error{err})
	for i, e := range out {
		if w, ok := e.(*wrong); ok { // exact: the messages around a wrapped one would be lost
			out[i] = t.fault(w.key, w.err)
		}
	}
	return out
}

// WarnUnknown logs Remarks. It is for daemons: a command would repeat the warnings at each
// call.
func (t *Tree) WarnUnknown(declare ...any) {
	declared := declaredNames(declare)
	for _, r := range append(t.Remarks(declare...), t.missingFunctions(func(f NamedFunction) bool { return declared[f.Key] })...) {
		t.warn(r.Key, r.Text)
	}
}

// Remark is about an option that a daemon does not use.
type Remark struct{ Key, Text string }

// Remarks returns the options in the tree that neither Brine nor Salt knows, those of Salt
// without effect that Unsupported does not return, and parts of others that have a wrong form; declare are the structs with Brine's
// options. A name with a dot or colon belongs to a module of the user's own, unless it is
// close to an option of a server, such as mysql.host.
func (t *Tree) Remarks(declare ...any) (out []Remark) {
	declared := declaredNames(declare)
	all := append(slices.Collect(maps.Keys(declared)), knownNames()...)
	slices.Sort(all)
	read := t.readByName()
	out = append(out, t.idle()...)
	for _, k := range t.Values.Keys() {
		name := value.Str(k)
		v := t.Values.At(name)
		if declared[name] || read[name] {
			out = append(out, formRemarks(name, v)...)
		}
		if declared[name] {
			continue
		}
		if o := ineffective(name, v); o != nil {
			if !o.Refused {
				out = append(out, Remark{name, "this option of Salt has no effect in Brine: " + o.Why})
			}
			continue
		}
		if value.Truth(v) && strings.Contains(ofMinions, " "+name+" ") {
			out = append(out, Remark{name, "this option of Salt has an effect only on minions in Brine: see docs/differences.md"})
		}
		if meant := misspelt(name, declared); meant != "" && !isKnown(name) {
			out = append(out, Remark{name, "unknown option; did you mean " + meant + "?"})
			continue
		}
		if isKnown(name) || ineffectiveOptions()[name] != nil || strings.ContainsAny(name, ".:") || strings.HasPrefix(name, "__") {
			continue
		}
		if near := textedit.Nearest(name, all); len(near) > 0 {
			out = append(out, Remark{name, "unknown option; did you mean " + near[0] + "?"})
			continue
		}
		out = append(out, Remark{name, "unknown option; keeping it for config.get"})
	}
	return out
}

// readByName returns the options of the tree's kind that functions and programs read by their names.
func (t *Tree) readByName() map[string]bool {
	names := map[string]bool{}
	all, err := DescribeByName(t.Kind)
	if err != nil {
		return nil // a test reads the embedded file
	}
	for _, d := range all {
		names[d.Name] = true
	}
	return names
}

// declaredNames returns the options of structs under all of their names.
func declaredNames(structs []any) map[string]bool {
	declared := map[string]bool{}
	for _, ptr := range structs {
		opts, _, err := options(ptr)
		if err != nil {
			continue // Decode reports it
		}
		for _, o := range opts {
			declared[o.name] = true
			for _, s := range o.slots {
				for _, a := range s.Alias {
					declared[a] = true
				}
			}
		}
	}
	return declared
}

// Extra returns the options in the tree that the struct behind ptr does not
// declare.
func (t *Tree) Extra(ptr any) *value.Dict {
	opts, _, err := options(ptr)
	if err != nil {
		return value.NewDict(0)
	}
	extra := t.Values.Clone()
	for _, o := range opts {
		extra.Delete(o.name)
		for _, s := range o.slots {
			for _, a := range s.Alias {
				extra.Delete(a)
			}
		}
	}
	return extra
}

// Dump returns the options in effect by Salt's names, sorted: every declared
// one with its value or default, and all others in the files. --config-dump
// prints it and config.get searches it; it may contain secrets.
func Dump(t *Tree, ptr any) (*value.Dict, error) {
	opts, _, err := options(ptr)
	if err != nil {
		return nil, salt.Errorf(salt.Internal, "%w", err)
	}
	all := map[string]any{}
	for k, v := range t.Extra(ptr).All() {
		all[value.Str(k)] = v
	}
	for _, o := range opts {
		v := field.Get(o.slots[0].In(o.slots[0].part))
		if key, raw, ok := t.lookup(o); ok && !isPath(key) && raw != nil {
			v = raw // as the user wrote it: a string, not a list of one
		} else if v == "" && o.slots[0].HasDefault && o.slots[0].DefaultValue() == nil {
			v = nil
		}
		all[o.name] = v
	}
	d := value.NewDict(len(all))
	for _, k := range slices.Sorted(maps.Keys(all)) {
		d.Set(k, all[k])
	}
	return d, nil
}
