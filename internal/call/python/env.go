package python

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"brine/internal/base/field"
	"brine/internal/call/fn"
	"brine/internal/call/output"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// Functions are Brine functions that Python calls by name.
type Functions interface {
	// Has reports whether a function with the full name exists.
	Has(name string) bool
	// Names returns all full names.
	Names() []string
	// Call calls a function.
	Call(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error)
}

// Env is the environment of a call of a Python function.
type Env struct {
	// Call has the grains, pillar, options and templates.
	Call *fn.Call
	// Functions are Brine's functions by kind: "modules", "states", "runners". They do not include
	// functions of the user's modules, which the helper has itself.
	Functions map[string]Functions
	// Trees are further data that a module can request by name: "running".
	Trees map[string]func() any
	// Bus and Commander are those of the master that makes the call, or nil. OnMinion means that
	// the bus is that of a minion.
	Bus       Bus
	Commander Commander
	OnMinion  bool
	// As returns who commands with credentials: eauth with username and password, or token. Low runs a
	// chunk of low data with the credentials in it. Both are for programs outside of Brine, else nil.
	As  func(creds *value.Dict) Commander
	Low func(ctx context.Context, chunk *value.Dict) ([]any, error)
	// Stop ends the call's waits for events when it is closed; nil means never.
	Stop <-chan struct{}
	// Vars are variables of the call: "test", and names with underscores, which become globals of
	// the module.
	Vars *value.Dict

	subscribed subscriptions
	jobs       jobs
}

// vars returns the variables that are sent with the call.
func (e *Env) vars() *value.Dict {
	d := value.NewDict(e.Vars.Len() + 3)
	if jid := e.Call.JID; jid != "" && jid != "req" {
		d.Set("job", jid)
	}
	if e.Call.Print != nil {
		d.Set("prints", true)
	}
	if e.Bus != nil && e.OnMinion {
		d.Set("minion_bus", true)
	} else if e.Bus != nil {
		d.Set("bus", true)
	}
	d.Update(e.Vars)
	return d
}

// trees numbers large dicts, so that a helper does not receive the same dict twice. It holds
// references to the dicts, so that their addresses are not reused.
type trees struct {
	mu   sync.Mutex
	last int64
	kept []numbered // newest first
}

type numbered struct {
	number int64
	dict   *value.Dict
}

const maxTrees = 16

func (t *trees) number(d *value.Dict) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.kept {
		if k.dict == d {
			return k.number
		}
	}
	t.last++
	t.kept = append([]numbered{{t.last, d}}, t.kept[:min(len(t.kept), maxTrees-1)]...)
	return t.last
}

// request answers one request of Python.
func (e *Env) request(ctx context.Context, p *Pool, name string, args []any) (v any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the request %s of a Python module panicked: %v", name, cause)
		}
	}()
	a := arguments(args)
	switch name {
	case "tree":
		return e.tree(p, a.text(0), a.at(1))
	case "has":
		f := e.Functions[a.text(0)]
		return f != nil && f.Has(a.text(1)), nil
	case "names":
		if f := e.Functions[a.text(0)]; f != nil {
			return value.Strings(f.Names()), nil
		}
		return &value.List{}, nil
	case "doc":
		return e.doc(a.text(0), a.text(1)), nil
	case "call":
		f := e.Functions[a.text(0)]
		if f == nil {
			return nil, fn.Errorf("no function of the kind %s can be called here", a.text(0))
		}
		kwargs, _ := a.at(3).(*value.Dict)
		return f.Call(ctx, a.text(1), value.Items(a.at(2)), kwargs)
	case "progress":
		e.Call.Report(a.at(0))
		return nil, nil
	case "yaml_load":
		return yaml.LoadText(a.text(0), "")
	case "yaml_dump":
		return dumpYAML(a)
	case "outputters":
		return value.Strings(output.Names()), nil
	case "output":
		return e.output(a)
	case "render":
		return e.render(ctx, p, a)
	case "match":
		return e.match(a)
	case "sdb":
		return e.sdb(ctx, a)
	case "subscribe", "unsubscribe", "event", "fire":
		return e.bus(ctx, name, a)
	case "command":
		return e.command(ctx, a)
	case "start":
		return e.start(ctx, a)
	case "next":
		return e.next(a)
	case "low":
		return e.low(ctx, a)
	}
	return nil, fmt.Errorf("there is no request %q", name)
}

// sdb calls a function of the module sdb: its name, other options than the daemon's or nil, and
// arguments.
func (e *Env) sdb(ctx context.Context, a arguments) (any, error) {
	c := *e.Call
	if given, ok := a.at(1).(*value.Dict); ok {
		opts := c.Config.All().Clone()
		opts.Update(given)
		c.Config, c.Pillar = fn.Tree{Dict: opts}, fn.Tree{}
	}
	f, ok := c.Funcs.Builtin("sdb." + a.text(0))
	if !ok {
		return nil, fn.Errorf("values of sdb cannot be looked up here")
	}
	return f.Call(ctx, &c, a[min(2, len(a)):], nil)
}

// arguments are the arguments of a request; a missing one is nil.
type arguments []any

func (a arguments) at(i int) any {
	if i < len(a) {
		return a[i]
	}
	return nil
}

func (a arguments) text(i int) string {
	s, _ := a.at(i).(string)
	return s
}

// tree returns the number and the content of a tree, or its number alone if the helper already has
// it.
func (e *Env) tree(p *Pool, name string, known any) (any, error) {
	var d *value.Dict
	switch name {
	case "grains":
		d = e.Call.Grains.All()
	case "pillar":
		d = e.Call.Pillar.All()
	case "opts":
		d = e.Call.Config.All()
	default:
		if get := e.Trees[name]; get != nil {
			return value.Tuple{int64(0), get()}, nil
		}
		return value.Tuple{int64(0), value.NewDict(0)}, nil
	}
	if d == nil {
		d = value.NewDict(0)
	}
	number := p.numbers.number(d)
	for _, k := range value.Items(known) {
		if k == number {
			return value.Tuple{number, nil}, nil
		}
	}
	if name == "opts" && (d.Has("grains") || d.Has("pillar")) {
		d = d.Clone() // Python adds them on demand
		d.Delete("grains")
		d.Delete("pillar")
	}
	return value.Tuple{number, d}, nil
}

// doc returns the documentation of a function, or nil.
func (e *Env) doc(kind, name string) any {
	if kind != "modules" || e.Call.Funcs == nil {
		return nil
	}
	if f, err := e.Call.Funcs.Lookup(name); err == nil {
		return f.Doc()
	}
	return nil
}

// output formats data with an outputter. Its arguments are the outputter's name, the data and the options.
func (e *Env) output(a arguments) (any, error) {
	var o output.Options
	if err := field.Defaults(&o); err != nil {
		return nil, err
	}
	given, _ := a.at(2).(*value.Dict)
	fields, err := field.Of(reflect.TypeFor[output.Options]())
	if err != nil {
		return nil, err
	}
	for _, f := range fields {
		if v, ok := given.Get(f.Name); ok {
			if err := f.Set(reflect.ValueOf(&o).Elem(), v); err != nil {
				return nil, &fn.InvocationError{Err: fmt.Errorf("the option %s: %w", f.Name, err)}
			}
		}
	}
	return output.New(o, e.Call.Log).Format(a.text(0), a.at(1), output.Call{}), nil
}

// render runs a renderer on a text: name, text, saltenv, path, context, and the objects of Python in
// the context.
func (e *Env) render(ctx context.Context, p *Pool, a arguments) (any, error) {
	c := e.Call
	variables, _ := a.at(4).(*value.Dict)
	if objects, ok := a.at(5).(*value.Dict); ok && objects.Len() > 0 {
		if variables = variables.Clone(); variables == nil {
			variables = value.NewDict(objects.Len())
		}
		for name, described := range objects.All() {
			o, err := p.lent(ctx, e, described)
			if err != nil {
				return nil, err
			}
			variables.Set(name, o)
		}
	}
	t := fn.Template{Engine: a.text(0), Source: []byte(a.text(1)), Saltenv: a.text(2), Path: a.text(3), Context: variables}
	if c.Templates == nil {
		return nil, fn.Errorf("there are no renderers here")
	}
	if t.Engine == "jinja" {
		text, err := c.Templates.Text(ctx, c, t)
		return text, renderError(err)
	}
	v, err := c.Templates.Data(ctx, c, t.Engine, t)
	return v, renderError(err)
}

// renderError returns an error of a template as Salt raises it.
func renderError(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &fn.ExceptionError{Class: "salt.exceptions.SaltRenderError", Text: err.Error()}
}
