package fn

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"brine/internal/base/field"
	"brine/internal/py/value"
)

// Args is the type of the field for all further positional arguments (Python's *args).
type Args []any

// Kwargs is the type of the field for all keywords without a field of their own (Python's
// **kwargs). The dict is never nil and belongs to the function.
type Kwargs struct{ *value.Dict }

var (
	argsType   = reflect.TypeFor[Args]()
	kwargsType = reflect.TypeFor[Kwargs]()
)

// Clean returns the keywords given by the user, without those that begin with two underscores, such
// as __pub_jid.
func (k Kwargs) Clean() *value.Dict {
	d := value.NewDict(k.Len())
	for key, v := range k.All() {
		if s, ok := key.(string); !ok || !strings.HasPrefix(s, "__") {
			d.Set(key, v)
		}
	}
	return d
}

// Param describes one named argument of a function.
type Param struct {
	Name string
	// Doc is one line of help.
	Doc string
	// Optional means that the argument has a default, stored in Default.
	Optional bool
	Default  any
	// Ignored, if set, is the reason why the function accepts the argument but does not use it. The
	// tag "ignored" of the field or the option Ignored sets it.
	Ignored string
	// Keyword marks an argument that can only be given by name.
	Keyword bool

	field field.Field
}

// Func is a function with its description, made by Of.
type Func struct {
	name     string
	summary  string
	examples []string
	out      string

	argType reflect.Type
	invoke  func(ctx context.Context, c *Call, a reflect.Value) (any, error)

	only     []string
	defaults []string
	shown    map[string]func() any
	ignored  map[string]string
	sig      func() *signature
	foreign  *Foreign // of a function that is not written in Go, else nil
}

// signature is derived from the fields of the argument struct on first use: a program declares
// hundreds of functions and usually calls one.
type signature struct {
	params  []Param
	places  map[string]int // of the params, by name
	args    []int          // index of the Args field, if any
	kwargs  []int          // index of the Kwargs field, if any
	varArgs string         // names of these two fields
	varKw   string
	hidden  []field.Field // fields that are not arguments of this function
	// defaults are the fields, including hidden ones, whose default is not the zero value.
	defaults []field.Field
}

// Option adds to the declaration of a function.
type Option func(*Func)

// Example adds a shell command line that calls the function.
func Example(line string) Option {
	return func(f *Func) { f.examples = append(f.examples, line) }
}

// Out sets the outputter for the function's result.
func Out(name string) Option {
	return func(f *Func) { f.out = name }
}

// Params lists the fields of the argument struct that are arguments of this function, in order. It
// lets related functions share one struct. Other fields keep their default. Args and Kwargs fields
// are always included.
func Params(names ...string) Option {
	return func(f *Func) { f.only = names }
}

// Default overrides the default of an argument, written as in a tag, for this function.
func Default(name, text string) Option {
	return func(f *Func) { f.defaults = append(f.defaults, name, text) }
}

// Shown makes ArgSpec show another default for an argument, where the declared one means "depends
// on the machine".
func Shown(name string, means func() any) Option {
	return func(f *Func) {
		if f.shown == nil {
			f.shown = map[string]func() any{}
		}
		f.shown[name] = means
	}
}

// Ignored sets the reason why a function does not use some arguments of a shared argument struct.
func Ignored(reason string, names ...string) Option {
	return func(f *Func) {
		if f.ignored == nil {
			f.ignored = map[string]string{}
		}
		for _, n := range names {
			f.ignored[n] = reason
		}
	}
}

// Of declares a function. Its argument type A is a struct whose tagged fields are the arguments;
// its result is passed through value.From. The first line of doc is the summary. Invalid tags are a
// programming error: the first use of the function panics, and package fntest finds them.
func Of[A, R any](name string, f func(ctx context.Context, c *Call, a A) (R, error), doc string, opts ...Option) Func {
	fu := Func{name: name, summary: doc, argType: reflect.TypeFor[A]()}
	fu.invoke = func(ctx context.Context, c *Call, a reflect.Value) (any, error) {
		r, err := f(ctx, c, *a.Interface().(*A))
		if err != nil {
			return nil, err
		}
		return fromResult(r), nil
	}
	for _, o := range opts {
		o(&fu)
	}
	decl := fu
	fu.sig = sync.OnceValue(func() *signature {
		s := &signature{}
		if err := decl.readParams(s); err != nil {
			panic(fmt.Sprintf("fn: %s: %v", name, err))
		}
		return s
	})
	return fu
}

// WithErrors returns a copy of f that maps its errors with change.
func (f Func) WithErrors(change func(fun string, err error) error) Func {
	invoke := f.invoke
	f.invoke = func(ctx context.Context, c *Call, a reflect.Value) (any, error) {
		v, err := invoke(ctx, c, a)
		if err != nil {
			err = change(f.name, err)
		}
		return v, err
	}
	return f
}

// fromResult converts a result. A nil container becomes None, not an empty one.
func fromResult(r any) any {
	switch x := r.(type) {
	case *value.Dict:
		if x == nil {
			return nil
		}
	case *value.List:
		if x == nil {
			return nil
		}
	case Kwargs:
		return x.Dict
	case Args:
		return value.Tuple(x)
	}
	return value.From(r)
}

// readParams derives the arguments from the fields of A.
func (f *Func) readParams(s *signature) error {
	fields, err := field.Of(f.argType)
	if err != nil {
		return err
	}
	for _, fd := range fields {
		switch {
		case fd.Type == argsType:
			s.args, s.varArgs = fd.Index, fd.Name
		case fd.Type == kwargsType:
			s.kwargs, s.varKw = fd.Index, fd.Name
		default:
			p := Param{Name: fd.Name, Doc: fd.Doc, Optional: fd.HasDefault, Keyword: s.args != nil, Ignored: fd.Tag.Get("ignored"), field: fd}
			if reason := f.ignored[fd.Name]; reason != "" {
				p.Ignored = reason
			}
			if fd.HasDefault {
				p.Default = fd.DefaultValue()
			}
			s.params = append(s.params, p)
		}
	}
	if err := f.applyDefaults(s); err != nil {
		return err
	}
	if err := f.pick(s); err != nil {
		return err
	}
	optional := false
	for _, p := range s.params {
		if optional && !p.Optional && !p.Keyword {
			return fmt.Errorf("argument %q without default follows one with a default", p.Name)
		}
		optional = p.Optional
	}
	return f.prepare(s)
}

// prepare precomputes what each call needs.
func (f *Func) prepare(s *signature) error {
	optional := slices.Clone(s.hidden)
	s.places = make(map[string]int, len(s.params))
	for i, p := range s.params {
		s.places[p.Name] = i
		if p.Optional {
			optional = append(optional, p.field)
		}
	}
	st := reflect.New(f.argType).Elem()
	for _, fd := range optional {
		if err := fd.SetDefault(st); err != nil {
			return err
		}
		if !fd.In(st).IsZero() {
			s.defaults = append(s.defaults, fd)
		}
	}
	return nil
}

// pick selects the arguments listed by the option Params.
func (f *Func) pick(s *signature) error {
	if f.only == nil {
		return nil
	}
	all := s.params
	s.params = make([]Param, 0, len(f.only))
	for _, name := range f.only {
		i := slices.IndexFunc(all, func(p Param) bool { return p.Name == name })
		if i < 0 {
			return fmt.Errorf("no field is named %q", name)
		}
		s.params = append(s.params, all[i])
	}
	for _, p := range all {
		if p.Optional && !slices.Contains(f.only, p.Name) {
			s.hidden = append(s.hidden, p.field)
		}
	}
	return nil
}

// applyDefaults applies the option Default, using a struct type with one field that has the new tag.
func (f *Func) applyDefaults(s *signature) error {
	for i := 0; i < len(f.defaults); i += 2 {
		name, text := f.defaults[i], f.defaults[i+1]
		j := slices.IndexFunc(s.params, func(p Param) bool { return p.Name == name })
		if j < 0 {
			return fmt.Errorf("no field is named %q", name)
		}
		tag := reflect.StructTag(fmt.Sprintf("salt:%q default:%q", name, text))
		one := reflect.StructOf([]reflect.StructField{{Name: "F", Type: s.params[j].field.Type, Tag: tag}})
		fields, err := field.Of(one)
		if err != nil {
			return err
		}
		p := &s.params[j]
		fields[0].Index = p.field.Index
		p.field, p.Optional, p.Default = fields[0], true, fields[0].DefaultValue()
	}
	return nil
}

// Name returns the name within the module.
func (f *Func) Name() string { return f.name }

// Params returns the named arguments in their order.
func (f *Func) Params() []Param { return f.sig().params }

// Examples returns the example lines.
func (f *Func) Examples() []string { return f.examples }

// Summary returns the first line of the description.
func (f *Func) Summary() string {
	s, _, _ := strings.Cut(strings.TrimSpace(f.summary), "\n")
	return s
}

// Text returns the whole description, without the arguments.
func (f *Func) Text() string { return dedent(f.summary) }

// Outputter returns the outputter that the function asks for, or "".
func (f *Func) Outputter() string { return f.out }

// TakesKwargs reports whether the function takes any keyword.
func (f *Func) TakesKwargs() bool { return f.sig().kwargs != nil }

// TakesArgs reports whether the function takes any number of positional
// arguments.
func (f *Func) TakesArgs() bool { return f.sig().args != nil }

// Variadic returns the names of the *args and **kwargs parameters, "" if there are none.
func (f *Func) Variadic() (args, kwargs string) { return f.sig().varArgs, f.sig().varKw }

// Param returns the argument with the name.
func (f *Func) Param(name string) (Param, bool) {
	if i := f.index(name); i >= 0 {
		return f.sig().params[i], true
	}
	return Param{}, false
}

// Takes reports whether the argument with the name accepts the value.
func (f *Func) Takes(name string, v any) bool {
	i := f.index(name)
	if f.foreign != nil {
		return i >= 0
	}
	return i >= 0 && f.sig().params[i].set(reflect.New(f.argType).Elem(), v) == nil
}

func (f *Func) index(name any) int {
	s, ok := name.(string)
	if !ok {
		return -1
	}
	if i, ok := f.sig().places[s]; ok {
		return i
	}
	return -1
}
