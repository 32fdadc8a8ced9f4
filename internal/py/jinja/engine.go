// Package jinja is a template engine for the language of Jinja2 on the value
// model: a lexer, a parser and a tree-walking interpreter. It does not depend
// on Salt; its caller supplies further tags, filters, tests and the template
// loader.
//
// An Env parses templates and holds the settings that they share. A Template
// does not change after parsing, so any number of goroutines may render it. All
// state of a rendering is in its Run.
//
// Values are those of package value, and further ones that exist only during
// rendering: Undefined, Markup, ranges, iterators, macros and objects that
// implement the interfaces in object.go. Plain converts a value to types of
// package value.
//
// Templates may be hostile or wrong. Attributes that expose Python's internals
// do not exist. Nesting, call depth, memory, steps and time are bounded.
package jinja

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"strings"
	"time"
	"unsafe"

	"brine/internal/py/value"
)

// Options configure the template language of an Env. The zero value means
// Jinja2's defaults.
type Options struct {
	// Delimiters of tags; "{%", "%}" and so on if empty.
	BlockStart, BlockEnd       string
	VariableStart, VariableEnd string
	CommentStart, CommentEnd   string
	// LineStatementPrefix, unless empty, makes the rest of a line a tag;
	// LineCommentPrefix a comment.
	LineStatementPrefix, LineCommentPrefix string
	// TrimBlocks drops the newline after a tag, LstripBlocks the blanks before
	// one.
	TrimBlocks, LstripBlocks bool
	// KeepTrailingNewline keeps the newline at the end of a template.
	KeepTrailingNewline bool
	// NewlineSequence replaces newlines of the template; "\n" if empty.
	NewlineSequence string
	// Autoescape escapes output for HTML.
	Autoescape bool
	// Undefined sets the behaviour of undefined names.
	Undefined UndefinedKind

	// Filters and Tests are added to the built-in ones and override them.
	Filters, Tests map[string]*Func
	// CaptureTags pass the text up to their end tag to a filter and assign the
	// result: {% tag as name %}…{% end %}.
	CaptureTags map[string]CaptureTag
	// ImportTags pass the output of a template to a filter and assign the
	// result: {% tag "file" as name %}. The map values are names of filters.
	ImportTags map[string]string
	// TimedTags measure the time of a part of a template: {% tag as label %}…{%
	// end %}. The map values are the end tags.
	TimedTags map[string]string
	// Finalize, if set, converts a value before it is written.
	Finalize func(v any) any

	// MaxOutput bounds the bytes that one rendering has in memory, intermediate
	// values included; see reclaim. MaxSteps bounds its work, MaxDepth the nesting of calls,
	// imports and includes. A step is about 100 ns: a loop iteration, a call,
	// or reading 64 bytes of a string. Zero means 256 MiB, 20 million and 250.
	MaxOutput, MaxSteps, MaxDepth int
	// MaxTime bounds the time of one rendering, without the time spent in
	// Outsider functions. Zero means a minute.
	MaxTime time.Duration
}

// CaptureTag is a tag that passes text to a filter.
type CaptureTag struct{ End, Filter string }

// Env parses templates.
type Env struct {
	o       Options
	filters map[string]*Func
	tests   map[string]*Func
	globals map[string]any
	methods *methodTables
}

// New returns an Env. The caller must not change the Options afterwards.
func New(o Options) *Env {
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&o.BlockStart, "{%")
	def(&o.BlockEnd, "%}")
	def(&o.VariableStart, "{{")
	def(&o.VariableEnd, "}}")
	def(&o.CommentStart, "{#")
	def(&o.CommentEnd, "#}")
	def(&o.NewlineSequence, "\n")
	if o.MaxOutput == 0 {
		o.MaxOutput = 256 << 20
	}
	if o.MaxSteps == 0 {
		o.MaxSteps = 20_000_000
	}
	if o.MaxTime == 0 {
		o.MaxTime = time.Minute
	}
	if o.MaxDepth == 0 {
		o.MaxDepth = 250
	}
	e := &Env{o: o, filters: builtinFilters(), tests: builtinTests(), methods: newMethods()}
	maps.Copy(e.filters, o.Filters)
	maps.Copy(e.tests, o.Tests)
	e.globals = builtinGlobals()
	return e
}

// Template is a parsed template.
type Template struct {
	env    *Env
	name   string
	source string
	root   *function
	blocks map[string]*function
	// selfSlot is the slot of the variable self; -1 if unused.
	selfSlot int
}

// Name returns the name given to Parse.
func (t *Template) Name() string { return t.name }

// Source returns the source of the template.
func (t *Template) Source() string { return t.source }

// Parse parses a template. name appears in errors, which are of type *Error.
func (e *Env) Parse(name, source string) (t *Template, err error) {
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(*Error)
			if !ok {
				panic(r)
			}
			t, err = nil, f
		}
	}()
	p := newStatementParser(&e.o, name, source)
	body := p.subparse(nil)
	t = &Template{env: e, name: name, source: source, blocks: map[string]*function{}}
	b := &binder{t: t, blocks: p.blocks, fails: p.tokenReader}
	b.template(body)
	return t, nil
}

// Run holds the variables, loader and callbacks of one rendering.
type Run struct {
	// Globals are visible to every template, also to one imported without
	// context. They override the built-in ones.
	Globals map[string]any
	// Vars are visible to the rendered template and to the templates it
	// includes.
	Vars map[string]any
	// Load finds a template by name; nil means no loader. Its error matches
	// fs.ErrNotExist if there is no such template. The globals it returns, if
	// any, are set from then on.
	Load func(ctx context.Context, name string, globals func(string) any) (*Template, map[string]any, error)
	// Tail is appended to the output and does not count towards MaxOutput.
	Tail string
	// Large, if set, is called before a rendering allocates more than largeFrom
	// bytes or takes more than longFrom steps, and may wait for other renderings;
	// MaxTime does not count that. The returned function is called at the end; the
	// returned context replaces that of the rendering.
	Large func(ctx context.Context) (_ context.Context, end func(), err error)
	// Unnamed leaves the name of the template out of messages of Jinja, which has none for a template that is made of
	// a string.
	Unnamed bool
	// Timed, if set, receives the duration of each part within TimedTags.
	Timed func(source, label string, d time.Duration)
}

// Render renders the template. Errors are of type *Error, or those of ctx.
func (t *Template) Render(ctx context.Context, r Run) (out string, err error) {
	rt := &runtime{ctx: ctx, run: &r, env: t.env, left: t.env.o.MaxOutput, small: t.env.o.MaxOutput, began: time.Now()}
	if r.Large != nil {
		rt.small -= largeFrom
	} else {
		rt.small = -1
	}
	if r.Unnamed {
		rt.unnamed = t
	}
	rt.globals = &scopeVars{vars: t.env.globals}
	if r.Globals != nil {
		rt.globals = &scopeVars{vars: r.Globals, up: rt.globals}
	}
	defer func() {
		if rt.end != nil {
			rt.end()
		}
	}()
	defer func() {
		if x := recover(); x != nil {
			out, err = "", rt.failure(x)
		}
	}()
	c := rt.newContext(t, &scopeVars{vars: r.Vars, up: rt.globals})
	var b buffer
	rt.render(t, c, &b)
	switch s := b.String(); {
	case len(s)+len(r.Tail) == len(t.source) && strings.HasPrefix(t.source, s) && strings.HasSuffix(t.source, r.Tail):
		return t.source, nil // which is kept anyway
	case b.whole():
		return s + r.Tail, nil
	}
	b.add(r.Tail)
	return b.String(), nil
}

// failure converts a panic of the engine to an error with its position.
func (rt *runtime) failure(x any) error {
	e, ok := x.(*Error)
	if !ok {
		panic(x)
	}
	c := *e
	c.ended = true
	if c.Template == "" && c.Line == 0 && rt.cur != nil {
		c.Template, c.Line = rt.cur.tmpl.name, rt.cur.line
		if rt.cur.tmpl != nil {
			c.Source = rt.cur.tmpl.source
		}
		for f := rt.cur; f != nil; f = f.caller {
			c.Stack = append(c.Stack, Place{f.tmpl.name, f.line})
		}
	}
	if c.Kind == cancelled {
		return context.Cause(rt.ctx)
	}
	return &c
}

// runtime is the state of one rendering.
type runtime struct {
	ctx     context.Context
	run     *Run
	env     *Env
	globals *scopeVars
	// cur is the innermost frame; after a failure, the frame that failed.
	cur   *frame
	depth int
	// unnamed is the template that has no name in messages.
	unnamed *Template
	left    int // bytes that may still be allocated
	dead    reclaimer
	// value of left at which the rendering counts as large; -1 once it does
	small int
	end   func() // of a large rendering
	ticks int    // steps
	check int    // steps at which to look at the limits
	began time.Time
	// outside is the time spent in Outsider functions.
	outside time.Duration
	// loaded holds the templates by the requested name.
	loaded  map[string]*Template
	modules map[*Template]*Module
}

// largeFrom is the number of bytes a rendering may allocate, and longFrom the
// number of steps it may take, before Run.Large is called. So many steps take
// about a tenth of a second of a processor. Time would not do as a measure: on a
// busy machine every rendering takes long.
const (
	largeFrom = 4 << 20
	longFrom  = 1_000_000
)

// tick counts one step.
func (rt *runtime) tick() {
	if rt.ticks++; rt.ticks >= rt.check {
		rt.checkSteps()
	}
}

// work counts the steps for reading n bytes.
func (rt *runtime) work(n int) {
	if rt.ticks += n >> 6; rt.ticks >= rt.check {
		rt.checkSteps()
	}
}

// copied counts the steps of copying n bytes, which is faster than reading them.
func (rt *runtime) copied(n int) { rt.work(n >> 4) }

// checkSteps ends a rendering that is cancelled or exceeds its limits.
func (rt *runtime) checkSteps() {
	rt.check = rt.ticks + 256
	if rt.ctx.Err() != nil {
		panic(&Error{Kind: cancelled, Message: rt.ctx.Err().Error()})
	}
	if took := time.Since(rt.began) - rt.outside; took > rt.env.o.MaxTime {
		raise("TimeoutError", "the template takes more than %v; the option template_max_time allows more", rt.env.o.MaxTime)
	}
	if rt.ticks > longFrom {
		rt.large()
	}
	if rt.ticks > rt.env.o.MaxSteps {
		raise("TimeoutError", "the template takes more than %d steps: it loops too long; the option template_max_steps allows more", rt.env.o.MaxSteps)
	}
}

// spend counts n allocated bytes.
func (rt *runtime) spend(n int) {
	if rt.left -= n; rt.left < rt.small {
		rt.spent()
	}
}

// reserve fails unless n more bytes may be allocated. The caller counts them
// with spend after allocation.
func (rt *runtime) reserve(n int) {
	if n > rt.left {
		rt.reclaim(n)
	}
	if n > rt.left || n < 0 {
		rt.left = -1
		rt.exhausted()
	}
	if rt.left-n < rt.small {
		rt.large()
	}
}

func (rt *runtime) spent() {
	if rt.left < 0 {
		rt.reclaim(0)
	}
	if rt.left < 0 {
		rt.exhausted()
	}
	rt.large()
}

func (rt *runtime) exhausted() {
	raise("MemoryError", "the template needs more than %d bytes; the option template_max_memory allows more", rt.env.o.MaxOutput)
}

// large calls Run.Large once.
func (rt *runtime) large() {
	if rt.small < 0 {
		return
	}
	rt.small = -1
	asked := time.Now()
	ctx, end, err := rt.run.Large(rt.ctx)
	if err != nil {
		raiseErr(err)
	}
	rt.outside += time.Since(asked)
	rt.ctx, rt.end = ctx, end
}

// made counts the bytes of a value that a function returned, until it is freed.
func (rt *runtime) made(v any) {
	switch x := v.(type) {
	case string:
		rt.spend(len(x))
		lend(rt, unsafe.StringData(x), len(x))
	case Markup:
		rt.spend(len(x))
		lend(rt, unsafe.StringData(string(x)), len(x))
	case []byte:
		rt.spend(len(x))
		lend(rt, unsafe.SliceData(x), len(x))
	case *value.List:
		if x != nil {
			rt.spend(32 * len(x.Items))
			lend(rt, x, 32*len(x.Items))
		}
	case value.Tuple:
		rt.spend(32 * len(x))
		lend(rt, unsafe.SliceData(x), 32*len(x))
	case *value.Dict:
		rt.spend(128 * x.Len())
		lend(rt, x, 128*x.Len())
	case *Set:
		rt.spend(128 * x.d.Len())
		lend(rt, x, 128*x.d.Len())
	}
}

func (rt *runtime) enter() {
	if rt.depth++; rt.depth > rt.env.o.MaxDepth {
		raise("RecursionError", "maximum recursion depth exceeded: more than %d calls, imports or includes within each other", rt.env.o.MaxDepth)
	}
}

func (rt *runtime) leave() { rt.depth-- }

// load finds a template by name, once per rendering.
func (rt *runtime) load(name string) (*Template, bool) {
	if t, ok := rt.loaded[name]; ok {
		return t, true
	}
	if rt.run.Load == nil {
		raise("TypeError", "no loader for this environment specified")
	}
	globals := rt.globals
	t, more, err := rt.run.Load(rt.ctx, name, func(n string) any { v, _ := globals.get(n); return v })
	if more != nil {
		rt.globals = &scopeVars{vars: more, up: rt.globals}
	}
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, false
		}
		raiseErr(err)
	}
	if rt.loaded == nil {
		rt.loaded = map[string]*Template{}
	}
	rt.loaded[name] = t
	return t, true
}

// scopeVars is a map of names that shadows outer ones.
type scopeVars struct {
	vars map[string]any
	up   *scopeVars
}

func (s *scopeVars) get(name string) (any, bool) {
	for ; s != nil; s = s.up {
		if v, ok := s.vars[name]; ok {
			return v, true
		}
	}
	return nil, false
}

// all stores all names that are not shadowed in d.
func (s *scopeVars) all(d map[string]any) {
	if s == nil {
		return
	}
	s.up.all(d)
	maps.Copy(d, s.vars)
}

// Context resolves names that are not variables of the template.
type Context struct {
	rt       *runtime
	parent   *scopeVars
	vars     map[string]any
	exported map[string]bool
	blocks   map[string][]*function
	owner    map[*function]*Template
	tmpl     *Template
	escape   bool
}

func (rt *runtime) newContext(t *Template, parent *scopeVars) *Context {
	c := &Context{rt: rt, parent: parent, tmpl: t, escape: t.env.o.Autoescape}
	c.addBlocks(t)
	return c
}

func (c *Context) addBlocks(t *Template) {
	if len(t.blocks) == 0 {
		return
	}
	if c.blocks == nil {
		c.blocks, c.owner = map[string][]*function{}, map[*function]*Template{}
	}
	for name, b := range t.blocks {
		c.blocks[name] = append(c.blocks[name], b)
		c.owner[b] = t
	}
}

// resolve looks a name up.
func (c *Context) resolve(name string) any {
	if v, ok := c.vars[name]; ok {
		return v
	}
	if v, ok := c.parent.get(name); ok {
		return v
	}
	return missing
}

// Get returns the value of a name, nil if it has none.
func (c *Context) Get(name string) any {
	if v := c.resolve(name); v != missing {
		return v
	}
	return nil
}

// all returns the names visible to an included template.
func (c *Context) all() *scopeVars {
	if len(c.vars) == 0 {
		return c.parent
	}
	return &scopeVars{vars: maps.Clone(c.vars), up: c.parent}
}

func (c *Context) set(name string, v any) {
	if c.vars == nil {
		c.vars = map[string]any{}
	}
	c.vars[name] = v
}

// derived returns a context for a scoped block.
func (c *Context) derived(locals map[string]any) *Context {
	d := &Context{rt: c.rt, parent: c.all(), tmpl: c.tmpl, escape: c.escape, owner: c.owner}
	if len(locals) > 0 {
		d.parent = &scopeVars{vars: locals, up: d.parent}
	}
	d.blocks = maps.Clone(c.blocks)
	return d
}

// Names returns all names of the context as a dict.
func (c *Context) Names() *value.Dict {
	m := map[string]any{}
	c.all().all(m)
	d := value.NewDict(len(m))
	for _, k := range sortedNames(m) {
		d.Set(k, m[k])
	}
	return d
}
