package fn

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"brine/internal/py/value"
)

// Bound is a function with bound arguments.
type Bound struct {
	f *Func
	a reflect.Value // pointer to the argument struct

	args   []any // of a foreign function, which binds them itself
	kwargs *value.Dict
}

// Call runs the function.
func (b Bound) Call(ctx context.Context, c *Call) (any, error) {
	if b.f.foreign != nil {
		return b.f.foreign.Call(ctx, c, b.args, b.kwargs)
	}
	return b.f.invoke(ctx, c, b.a)
}

// Args returns a pointer to the argument struct, for callers that pass the function more than a Call.
func (b Bound) Args() any { return b.a.Interface() }

// Call binds the arguments and runs the function.
func (f *Func) Call(ctx context.Context, c *Call, args []any, kwargs *value.Dict) (any, error) {
	b, err := f.Bind(args, kwargs)
	if err != nil {
		return nil, err
	}
	return b.Call(ctx, c)
}

// Bind binds positional and keyword arguments by Python's rules and with Python's messages. The
// error is an *ArgumentError.
func (f *Func) Bind(args []any, kwargs *value.Dict) (Bound, error) {
	if f.foreign != nil {
		return Bound{f: f, args: args, kwargs: kwargs}, nil
	}
	given := slots(len(f.sig().params))
	defer given.free()
	rest, extra, err := f.place(given.all, args, kwargs)
	if err != nil {
		return Bound{}, &ArgumentError{Err: err}
	}
	ptr := reflect.New(f.argType)
	st := ptr.Elem()
	if err := setFields(f, st, given.all); err != nil {
		return Bound{}, &ArgumentError{Err: err}
	}
	if f.sig().args != nil {
		st.FieldByIndex(f.sig().args).Set(reflect.ValueOf(rest))
	}
	if f.sig().kwargs != nil {
		st.FieldByIndex(f.sig().kwargs).Set(reflect.ValueOf(extra))
	}
	return Bound{f: f, a: ptr}, nil
}

// slot is a given argument.
type slot struct {
	set bool
	v   any
}

// placed is a reusable list of slots. Reuse matters: a state has dozens of arguments, and a run
// thousands of states.
type placed struct{ all []slot }

var freeSlots = sync.Pool{New: func() any { return new(placed) }}

// slots returns n empty slots.
func slots(n int) *placed {
	p := freeSlots.Get().(*placed)
	p.all = slices.Grow(p.all, n)[:n]
	return p
}

func (p *placed) free() {
	clear(p.all)
	p.all = p.all[:0]
	freeSlots.Put(p)
}

// place assigns each value to its argument.
func (f *Func) place(given []slot, args []any, kw *value.Dict) (rest Args, extra Kwargs, err error) {
	positional := f.positional()
	for i, v := range args[:min(len(args), positional)] {
		given[i] = slot{true, v}
	}
	rest = Args{}
	if len(args) > positional {
		rest = append(rest, args[positional:]...)
	}
	extra = Kwargs{value.NewDict(0)}
	for k, v := range kw.All() {
		i := f.index(k)
		switch {
		case i >= 0 && given[i].set:
			return nil, extra, fmt.Errorf(textMultiple, f.name, f.sig().params[i].Name)
		case i >= 0:
			given[i] = slot{true, v}
		case f.sig().kwargs != nil:
			extra.Set(k, v)
		default:
			return nil, extra, fmt.Errorf(textUnexpected, f.name, value.Str(k))
		}
	}
	if len(rest) > 0 && f.sig().args == nil {
		return nil, extra, f.tooMany(len(args), given)
	}
	if err := f.missing(given); err != nil {
		return nil, extra, err
	}
	return rest, extra, nil
}

// setFields fills a struct of zero values: first all defaults, including those of hidden fields,
// then the given arguments.
func setFields(f *Func, st reflect.Value, given []slot) error {
	for _, fd := range f.sig().defaults {
		if err := fd.SetDefault(st); err != nil {
			return err
		}
	}
	for i, s := range given {
		if !s.set {
			continue
		}
		if err := f.sig().params[i].set(st, s.v); err != nil {
			return fmt.Errorf(textMisfit, f.name, f.sig().params[i].Name, err)
		}
	}
	return nil
}

// set assigns an argument. A bool accepts any value and uses Python's truth value, since Salt's
// callers do not always pass a bool. None counts as not given for an optional string or number.
func (p Param) set(st reflect.Value, v any) error {
	err := p.field.Set(st, v)
	if err != nil {
		switch at := p.field.In(st); {
		case at.Kind() == reflect.Bool:
			at.SetBool(value.Truth(v))
			return nil
		case v == nil && p.Optional && (at.Kind() == reflect.String || at.CanInt() || at.CanUint() || at.CanFloat()):
			at.SetZero()
			return nil
		}
	}
	return err
}

// positional counts the arguments that may be given by position.
func (f *Func) positional() int {
	n := 0
	for _, p := range f.sig().params {
		if !p.Keyword {
			n++
		}
	}
	return n
}

func (f *Func) tooMany(got int, given []slot) error {
	least, most, keyword := 0, 0, 0
	for i, p := range f.sig().params {
		switch {
		case p.Keyword && given[i].set:
			keyword++
		case p.Keyword:
		default:
			most++
			if !p.Optional {
				least++
			}
		}
	}
	takes, many := strconv.Itoa(most), plural(most)
	if least != most {
		many = "s" // as in Python
		takes = fmt.Sprintf("from %d to %d", least, most)
	}
	were := "were"
	if got == 1 && keyword == 0 {
		were = "was"
	}
	count := strconv.Itoa(got)
	if keyword > 0 {
		count = fmt.Sprintf("%d positional argument%s (and %d keyword-only argument%s)", got, plural(got), keyword, plural(keyword))
	}
	return fmt.Errorf(textTooMany, f.name, takes, many, count, were)
}

func (f *Func) missing(given []slot) error {
	for _, keyword := range []bool{false, true} {
		var names []string
		for i, p := range f.sig().params {
			if p.Keyword == keyword && !p.Optional && !given[i].set {
				names = append(names, "'"+p.Name+"'")
			}
		}
		if len(names) == 0 {
			continue
		}
		kind := "positional"
		if keyword {
			kind = "keyword-only"
		}
		return fmt.Errorf(textMissing, f.name, len(names), kind, plural(len(names)), enumerate(names))
	}
	return nil
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// enumerate joins names as Python's messages do: 'a', 'b', and 'c'.
func enumerate(names []string) string {
	switch n := len(names); n {
	case 1:
		return names[0]
	case 2:
		return names[0] + " and " + names[1]
	default:
		return strings.Join(names[:n-1], ", ") + ", and " + names[n-1]
	}
}
