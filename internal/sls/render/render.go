// Package render renders the text of an SLS, a pillar file or a template of a managed
// file into data or text, with Salt's renderers: jinja, yaml, json, text and gpg, and
// pipes of them such as "jinja|yaml" or "#!yaml|gpg".
//
// One Renderer serves a whole process and caches parsed templates. It knows nothing of
// file servers or minions; the Request has everything that a template can reach:
// functions, trees of data and a Loader of further templates.
//
// Templates may come from unauthenticated peers, and authors make mistakes: depth, size
// of the output and time (by the context) are bounded.
package render

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"brine/internal/base/registry"
	"brine/internal/py/value"
)

// DefaultPipe is the default of Salt's option renderer.
const DefaultPipe = "jinja|yaml"

// Loader loads the templates that a template imports, includes or extends.
type Loader interface {
	// Load returns the content of a file of an environment of the file server
	// (or of the pillar roots). path is relative and has no ".." in it. An
	// error that is fs.ErrNotExist means that there is no such file.
	Load(ctx context.Context, saltenv, path string) ([]byte, error)
}

// LocalFiles returns the content of a file that a template imports by its
// absolute, clean path. An error that is fs.ErrNotExist means that there is no
// such file, or that templates may not read it.
type LocalFiles func(saltenv, path string) ([]byte, error)

// maxImport bounds a file of AnyFile in bytes.
const maxImport = 64 << 20

// AnyFile reads every regular file of this machine, as Salt does. It is only
// for minions: on a master a minion may influence the name.
func AnyFile(_, path string) ([]byte, error) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, &fs.PathError{Op: "import", Path: path, Err: fs.ErrNotExist}
	case st.Size() > maxImport:
		return nil, fmt.Errorf("cannot import %s: it has %d bytes, more than the %d of the largest template", path, st.Size(), maxImport)
	}
	return os.ReadFile(path)
}

// Functions are the functions that a template calls as salt['module.function']
// or salt.module.function. It is used by one goroutine at a time.
type Functions interface {
	// Has reports whether a function with a full name exists.
	Has(name string) bool
	// Names returns all full names, sorted.
	Names() []string
	// Call calls a function.
	Call(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error)
}

// Request is one text to render and everything that its template can reach.
type Request struct {
	// Source is the text.
	Source []byte
	// Path is the full path of the text; templates see it as tplpath and errors
	// name it. It may be empty for a text that is not a file.
	Path string
	// SLS is the dotted name of the SLS, or "" for other texts.
	SLS string
	// Saltenv is the environment of the text, in which imports are searched.
	// Without one they are searched in the directory of Path.
	Saltenv string
	// Default is the pipe for a text that does not begin with "#!" and a
	// pipe, DefaultPipe if empty.
	Default string
	// Argument is passed to the first renderer that takes one and has none.
	Argument string

	// Funcs may be nil: then there are no functions.
	Funcs Functions
	// Grains, Pillar and Opts are the trees that templates see under these names.
	// As in Salt a template can modify them, so they belong to the run of the text.
	Grains, Pillar, Opts *value.Dict
	// Context has further names for templates, which override those above.
	Context *value.Dict
	// StateConf is the state of the renderer stateconf from earlier files of the
	// run; nil if none is to be kept.
	StateConf *StateConf
	// Loader may be nil: then imports fail.
	Loader Loader
	// Local, if set, is used for absolute paths before that of the Options.
	Local LocalFiles
	// Whitelist and Blacklist, unless empty, name the permitted and the forbidden
	// renderers: a pipe skips the others.
	Whitelist, Blacklist []string
}

// Options are the configuration of a Renderer.
type Options struct {
	Log *slog.Logger
	// Local reads templates by absolute path. Without it, and without that of the
	// Request, such a path is searched in the tree.
	Local LocalFiles
	// Python runs the renderers that are written in Python. It may be nil.
	Python Python
	Limits
}

// Limits bound the rendering of one template, so that a mistake or a hostile
// template fails alone.
type Limits struct {
	MaxMemory int           `salt:"template_max_memory" default:"268435456" doc:"bytes that a Jinja template may have in memory, intermediate values included" change:"restart"`
	MaxSteps  int           `salt:"template_max_steps" default:"20000000" doc:"steps that a Jinja template may take: turns of loops, calls, and parts of long texts" change:"restart"`
	MaxTime   time.Duration `salt:"template_max_time" default:"60" doc:"seconds that a Jinja template may take, without the time of the functions that it calls" change:"restart"`
}

// Renderer renders texts. It is safe for concurrent use.
type Renderer struct {
	log       *slog.Logger
	local     LocalFiles
	python    Python
	limits    Limits
	large     chan struct{} // slots of large renderings
	templates templates
}

// New returns a Renderer.
func New(o Options) *Renderer {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Renderer{log: o.Log, local: o.Local, python: o.Python, limits: o.Limits, large: make(chan struct{}, largeAtOnce)}
}

// largeAtOnce is the number of concurrent renderings that need many megabytes or
// steps. Others wait, so that together they do not use all memory and processors. It
// is more than one, so that a blocked rendering does not stop all.
const largeAtOnce = 2

type largeKey struct{}

// turn waits until a large rendering may continue. A nested one, in a function
// that the outer one calls, shares its slot.
func (r *Renderer) turn(ctx context.Context) (context.Context, func(), error) {
	if ctx.Value(largeKey{}) != nil {
		return ctx, func() {}, nil
	}
	select {
	case r.large <- struct{}{}:
		return context.WithValue(ctx, largeKey{}, true), func() { <-r.large }, nil
	case <-ctx.Done():
		return ctx, nil, context.Cause(ctx)
	}
}

// step is one renderer of a pipe. Its input is the output of the one before it.
type step func(ctx context.Context, r *Renderer, req *Request, in any, arg string) (any, error)

// steps are the renderers by name.
var steps = registry.New[step]("renderer")

// Names returns the names of the renderers, sorted.
func Names() []string { return steps.Names() }

// Render passes a text through its pipe and returns the result: data after yaml
// or json, a string after jinja or text. A blank text is an empty dict. Errors
// are of type *Error where a place in a text is known.
func (r *Renderer) Render(ctx context.Context, req Request) (any, error) {
	if len(bytes.TrimSpace(req.Source)) == 0 {
		return value.NewDict(0), nil
	}
	if !utf8.Valid(req.Source) {
		return nil, notUTF8(&req)
	}
	pipe, err := r.parsePipe(&req)
	if err != nil {
		return nil, err
	}
	var data any = string(req.Source)
	for _, p := range pipe {
		if data, err = p.do(ctx, r, &req, data, p.arg); err != nil {
			return nil, err
		}
	}
	if s, ok := data.(string); ok && bytes.Contains(req.Source, []byte("\r\n")) && !strings.Contains(s, "\r\n") {
		data = strings.ReplaceAll(s, "\n", "\r\n")
	}
	return data, nil
}

// notUTF8 returns where a text stops being UTF-8.
func notUTF8(req *Request) error {
	line := 1
	for rest := req.Source; len(rest) > 0; {
		c, n := utf8.DecodeRune(rest)
		if c == utf8.RuneError && n == 1 {
			break
		}
		if c == '\n' {
			line++
		}
		rest = rest[n:]
	}
	return &Error{Message: "the text is not valid UTF-8", Name: req.name(), Line: line}
}

func (q *Request) name() string {
	if q.Path != "" {
		return q.Path
	}
	return q.SLS
}

type pipeStep struct {
	name, arg string
	do        step
}

// parsePipe parses the first line of the text, or the default.
func (r *Renderer) parsePipe(req *Request) ([]pipeStep, error) {
	spec := req.Default
	if spec == "" {
		spec = DefaultPipe
	}
	first, _, _ := bytes.Cut(req.Source, []byte("\n"))
	if s, ok := strings.CutPrefix(strings.TrimSpace(string(first)), "#!"); ok && bytes.HasPrefix(first, []byte("#!")) && !strings.HasPrefix(s, "/") {
		spec = s
	}
	if s, ok := oldPipe(spec); ok {
		spec = s
	}
	var out []pipeStep
	for _, part := range strings.Split(spec, "|") {
		name, arg, _ := strings.Cut(strings.TrimSpace(part), " ")
		if !allowed(name, req.Whitelist, req.Blacklist) {
			continue
		}
		do := r.external(name, len(out) == 0)
		if do == nil {
			var ok bool
			if do, ok = steps.Lookup(name); !ok {
				return nil, unknownRenderer(req, name, spec)
			}
		}
		out = append(out, pipeStep{name, strings.TrimSpace(arg), do})
	}
	return out, nil
}

// NamesIn returns the names of the renderers in a pipe, such as the value of the option renderer.
func NamesIn(spec string) (names []string) {
	if s, ok := oldPipe(spec); ok {
		spec = s
	}
	for _, part := range strings.Split(spec, "|") {
		name, _, _ := strings.Cut(strings.TrimSpace(part), " ")
		names = append(names, name)
	}
	return names
}

// oldPipe converts renderer names from Salt versions without pipes.
func oldPipe(spec string) (string, bool) {
	data, template, ok := strings.Cut(spec, "_")
	if !ok || strings.ContainsAny(spec, "| ") {
		return "", false
	}
	switch data {
	case "yaml", "json", "yamlex":
		switch template {
		case "jinja", "mako", "wempy":
			return template + "|" + data, true
		}
	}
	return "", false
}

func allowed(name string, white, black []string) bool {
	has := func(list []string) bool {
		for _, n := range list {
			if n == name {
				return true
			}
		}
		return false
	}
	return (len(white) == 0 || has(white)) && !has(black)
}

// ErrNoRenderer is the cause if a pipe names a renderer that Salt lacks, too.
var ErrNoRenderer = errors.New("no such renderer")

// lacking lists renderers of Salt that Brine lacks.
var lacking = []string{"aws_kms", "dson", "hjson", "json5", "msgpack", "pass"}

func unknownRenderer(req *Request, name, spec string) error {
	e := &Error{Name: req.name(), Line: 1}
	switch name {
	case "mako", "py", "pyobjects":
		e.Message = fmt.Sprintf("the renderer %q runs Python, which is not available here: write the file with jinja and yaml", name)
	case "pydsl":
		e.Message = fmt.Sprintf("Brine does not have the renderer %q: write the file with py, or with jinja and yaml", name)
	case "wempy", "cheetah", "genshi":
		e.Message = fmt.Sprintf("the template engine %q is a Python program, which is not available here: use jinja", name)
	default:
		e.Message = fmt.Sprintf("The renderer %q is not available: it names %q, and there are %s", spec, name, strings.Join(Names(), ", "))
		if !slices.Contains(lacking, name) {
			e.Err = ErrNoRenderer
		}
	}
	return e
}
