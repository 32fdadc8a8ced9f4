package render

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/py/jinja"
	"brine/internal/py/value"
)

// templates caches parsed templates, for all renderings of a process.
type templates struct {
	mu    sync.Mutex
	envs  map[jinjaOptions]*jinja.Env
	kept  map[templateKey]*jinja.Template
	bytes int
}

// jinjaOptions are Salt's options that change the language.
type jinjaOptions struct {
	lax, trim, lstrip, keepEnd           bool
	lineStatement, lineComment, newlines string
	blockStart, blockEnd, varStart       string
	varEnd, commentStart, commentEnd     string
}

type templateKey struct {
	env          *jinja.Env
	name, source string
}

// maxKept bounds the cached templates, in bytes.
const maxKept = 32 << 20

func (t *templates) env(o jinjaOptions, limits Limits) *jinja.Env {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.envs[o]; e != nil {
		return e
	}
	l := o.language()
	l.MaxOutput, l.MaxSteps, l.MaxTime = limits.MaxMemory, limits.MaxSteps, limits.MaxTime
	e := jinja.New(l)
	if t.envs == nil || len(t.envs) > 64 {
		t.envs, t.kept, t.bytes = map[jinjaOptions]*jinja.Env{}, map[templateKey]*jinja.Template{}, 0
	}
	t.envs[o] = e
	return e
}

func (t *templates) parse(env *jinja.Env, name, source string) (*jinja.Template, error) {
	k := templateKey{env, name, source}
	t.mu.Lock()
	tpl := t.kept[k]
	t.mu.Unlock()
	if tpl != nil {
		return tpl, nil
	}
	tpl, err := env.Parse(name, source)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bytes += len(source) + 256; t.bytes > maxKept {
		t.kept, t.bytes = map[templateKey]*jinja.Template{}, len(source)
	}
	t.kept[k] = tpl
	return tpl, nil
}

// language returns the language of Salt's templates.
func (o jinjaOptions) language() jinja.Options {
	l := jinja.Options{
		BlockStart: o.blockStart, BlockEnd: o.blockEnd, VariableStart: o.varStart, VariableEnd: o.varEnd,
		CommentStart: o.commentStart, CommentEnd: o.commentEnd,
		LineStatementPrefix: o.lineStatement, LineCommentPrefix: o.lineComment, NewlineSequence: o.newlines,
		TrimBlocks: o.trim, LstripBlocks: o.lstrip, KeepTrailingNewline: o.keepEnd,
		Undefined: jinja.StrictUndefined,
		CaptureTags: map[string]jinja.CaptureTag{
			"load_yaml": {End: "endload", Filter: "load_yaml"},
			"load_json": {End: "endload", Filter: "load_json"},
			"load_text": {End: "endload", Filter: "load_text"},
		},
		ImportTags: map[string]string{"import_yaml": "load_yaml", "import_json": "load_json", "import_text": "load_text"},
		TimedTags:  map[string]string{"profile": "endprofile"},
		Filters:    saltFilters(),
		Tests:      saltTests(),
	}
	if o.lax {
		l.Undefined = jinja.DefaultUndefined
	}
	return l
}

// settings returns the settings of jinja_env and jinja_sls_env: texts and flags.
func (o *jinjaOptions) settings() (texts map[string]*string, flags map[string]*bool) {
	texts = map[string]*string{"line_statement_prefix": &o.lineStatement, "line_comment_prefix": &o.lineComment,
		"newline_sequence": &o.newlines, "block_start_string": &o.blockStart, "block_end_string": &o.blockEnd,
		"variable_start_string": &o.varStart, "variable_end_string": &o.varEnd,
		"comment_start_string": &o.commentStart, "comment_end_string": &o.commentEnd}
	flags = map[string]*bool{"trim_blocks": &o.trim, "lstrip_blocks": &o.lstrip, "keep_trailing_newline": &o.keepEnd}
	return texts, flags
}

// JinjaSettings returns the names of the settings of jinja_env and jinja_sls_env that are texts, and
// of those that are flags.
func JinjaSettings() (texts, flags []string) {
	t, f := new(jinjaOptions).settings()
	return slices.Sorted(maps.Keys(t)), slices.Sorted(maps.Keys(f))
}

// readOptions reads jinja_sls_env, or jinja_env for other texts than SLS.
func readOptions(opts *value.Dict, sls bool) jinjaOptions {
	o := jinjaOptions{lax: opts.Bool("allow_undefined"), trim: opts.Bool("jinja_trim_blocks"), lstrip: opts.Bool("jinja_lstrip_blocks")}
	name := "jinja_env"
	if sls {
		name = "jinja_sls_env"
	}
	texts, flags := o.settings()
	for k, v := range opts.Dict(name).All() {
		key := strings.ToLower(value.Str(k))
		if p := texts[key]; p != nil {
			*p, _ = v.(string)
		}
		if p := flags[key]; p != nil {
			*p = value.Truth(v)
		}
	}
	return o
}

func init() { steps.Register("jinja", renderJinja) }

// renderJinja renders a template.
func renderJinja(ctx context.Context, r *Renderer, req *Request, in any, arg string) (any, error) {
	if arg != "" && arg != "-s" {
		return nil, &Error{Message: "Unknown renderer option: " + arg, Name: req.name(), Line: 1}
	}
	source, err := asText(req, in, "jinja")
	if err != nil {
		return nil, err
	}
	return r.fill(ctx, req, source, true)
}

// Uses returns what a Jinja template reads from a variable such as salt, without
// rendering it. The error is the parser's.
func (r *Renderer) Uses(req Request, root string) ([]jinja.Use, error) {
	tpl, err := r.templates.parse(r.templates.env(readOptions(req.Opts, req.SLS != ""), r.limits), req.name(), string(req.Source))
	if err != nil {
		return nil, jinjaError(&req, string(req.Source), err)
	}
	return tpl.Uses(root), nil
}

// Text renders the template of a managed file. engine is Salt's name of the
// template engine: "jinja", or another that causes a clear error. The names
// that depend on the SLS (tplpath, slspath …) are set only if the Request has
// an SLS.
func (r *Renderer) Text(ctx context.Context, engine string, req Request) (string, error) {
	if engine != "jinja" {
		return r.pythonText(ctx, engine, &req)
	}
	return r.fill(ctx, &req, string(req.Source), req.SLS != "")
}

// fill renders one template. sls means that names that depend on the SLS are
// set.
func (r *Renderer) fill(ctx context.Context, req *Request, source string, sls bool) (string, error) {
	env := r.templates.env(readOptions(req.Opts, req.SLS != ""), r.limits)
	tpl, err := r.templates.parse(env, req.name(), source)
	if err != nil {
		return "", jinjaError(req, source, err)
	}
	vars := names(ctx, req, sls)
	l := &templateLoader{r: r, req: req, env: env}
	run := jinja.Run{Globals: vars, Vars: vars, Load: l.load, Unnamed: true, Timed: r.timed, Large: r.turn}
	if strings.HasSuffix(source, "\n") {
		run.Tail = "\n"
	}
	out, err := tpl.Render(ctx, run)
	if err != nil {
		return "", jinjaError(req, source, err)
	}
	return out, nil
}

// timed logs the duration of a part of a template, as Salt does at the level
// profile.
func (r *Renderer) timed(source, label string, d time.Duration) {
	r.log.Debug("rendered a part of a template", "tag", source, "label", label, "seconds", d.Seconds())
}

// names returns the variables of every template of a rendering.
func names(ctx context.Context, req *Request, sls bool) map[string]any {
	tree := func(d *value.Dict) *value.Dict {
		if d == nil {
			return value.NewDict(0)
		}
		return d
	}
	m := map[string]any{
		"salt": &saltObject{funcs: req.Funcs}, "grains": tree(req.Grains), "pillar": tree(req.Pillar), "opts": tree(req.Opts),
		"saltenv": req.Saltenv, "proxy": nil,
		"odict": jinja.Global(odict()), "raise": jinja.Global(raiseFunc()), "show_full_context": jinja.Global(showContext()),
		"ifelse": jinja.Global(ifelse(req.Funcs)),
	}
	if sls {
		m["sls"] = req.SLS
		slsNames(m, req)
	}
	for k, v := range req.Context.All() {
		if s, ok := k.(string); ok {
			m[s] = v
		}
	}
	return m
}

// slsNames adds the names that locate the template.
func slsNames(m map[string]any, req *Request) {
	slspath := strings.ReplaceAll(req.SLS, ".", "/")
	if req.Path != "" {
		file := filepath.ToSlash(req.Path)
		switch {
		case req.SLS == "":
			file = path.Base(file)
		case strings.HasSuffix(file, slspath+".sls"):
			file = file[len(file)-len(slspath)-4:]
		case strings.HasSuffix(file, slspath+"/init.sls"):
			file = file[len(file)-len(slspath)-9:]
		}
		slspath = parent(file)
		m["tplpath"], m["tplfile"] = req.Path, file
		m["tpldir"], m["tpldot"] = orDot(slspath), strings.ReplaceAll(slspath, "/", ".")
	}
	// the first directory of the tree, tplroot in templates of formulas
	m["slspath"] = slspath
	m["slsdotpath"] = strings.ReplaceAll(slspath, "/", ".")
	m["slscolonpath"] = strings.ReplaceAll(slspath, "/", ":")
	m["sls_path"] = strings.ReplaceAll(slspath, "/", "_")
}

func parent(file string) string {
	if i := strings.LastIndexByte(file, '/'); i >= 0 {
		return file[:i]
	}
	return ""
}

func orDot(s string) string {
	if s == "" {
		return "."
	}
	return s
}

// templateLoader loads templates that others name.
type templateLoader struct {
	r   *Renderer
	req *Request
	env *jinja.Env
}

// load follows Salt: a name that begins with ./ or ../ is relative to the
// template that was loaded last, one that begins with / is a file of this
// machine, and any other is relative to the top of the environment.
func (l *templateLoader) load(ctx context.Context, name string, global func(string) any) (*jinja.Template, map[string]any, error) {
	if l.req.Saltenv == "" {
		return l.beside(name)
	}
	file, dir := name, ""
	first, _, _ := strings.Cut(name, "/")
	relative := first == "." || first == ".."
	if relative {
		base, ok := global("tpldir").(string)
		if !ok {
			return nil, nil, fs.ErrNotExist
		}
		file = path.Join(base, name)
		dir = base
	}
	local := path.IsAbs(file) && (l.req.Local != nil || l.r.local != nil)
	if file = path.Clean(file); !local {
		file = strings.TrimPrefix(file, "/")
	}
	if file == ".." || strings.HasPrefix(file, "../") || file == "." {
		return nil, nil, fs.ErrNotExist
	}
	tplfile := name
	if !relative {
		dir, tplfile = parent(file), file
	}
	globals := map[string]any{"tplfile": tplfile, "tpldir": orDot(dir), "tpldot": strings.ReplaceAll(dir, "/", ".")}
	if dir == "." {
		globals["tpldot"] = "."
	}
	b, err := l.read(ctx, file, local)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, globals, fs.ErrNotExist
		}
		return nil, globals, err
	}
	t, err := l.r.templates.parse(l.env, file, string(b))
	return t, globals, err
}

// read returns the content of a file of the environment, or of this machine.
func (l *templateLoader) read(ctx context.Context, file string, local bool) ([]byte, error) {
	if !local {
		if l.req.Loader == nil {
			return nil, fs.ErrNotExist
		}
		return l.req.Loader.Load(ctx, l.req.Saltenv, file)
	}
	for _, from := range []LocalFiles{l.req.Local, l.r.local} {
		if from == nil {
			continue
		}
		if b, err := from(l.req.Saltenv, file); !errors.Is(err, fs.ErrNotExist) {
			return b, err
		}
	}
	return nil, fs.ErrNotExist
}

// beside finds the template of a text without an environment in the directory
// of that text.
func (l *templateLoader) beside(name string) (*jinja.Template, map[string]any, error) {
	if l.req.Path == "" {
		return nil, nil, errors.New("no loader for this environment specified")
	}
	clean := strings.TrimLeft(path.Clean(name), "/")
	if !fs.ValidPath(clean) {
		return nil, nil, fs.ErrNotExist
	}
	root, err := os.OpenRoot(filepath.Dir(l.req.Path))
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	b, err := root.ReadFile(clean)
	if err != nil {
		return nil, nil, err
	}
	t, err := l.r.templates.parse(l.env, filepath.Join(filepath.Dir(l.req.Path), clean), string(b))
	return t, nil, err
}

// jinjaError formats a failure as Salt does: the reason, then the line with its
// neighbours, in the template where it happened.
func jinjaError(req *Request, source string, err error) error {
	var je *jinja.Error
	if !errors.As(err, &je) {
		return err
	}
	e := &Error{Name: req.name(), Line: je.Line, Err: err}
	var ce *fn.CommandError
	var ie *fn.InvocationError
	switch {
	case je.Kind == jinja.UndefinedError:
		e.Message = "Jinja variable " + je.Message
	case je.Kind == jinja.SyntaxError, je.Kind == jinja.AssertionError, je.Kind == jinja.RuntimeError,
		je.Kind == jinja.SecurityError, je.Kind == jinja.FilterArgument:
		e.Message = "Jinja syntax error: " + je.Message
	case !errors.As(je.Err, new(*Error)) && (errors.As(je.Err, &ce) || errors.As(je.Err, &ie)):
		e.Message = "Problem running salt function in Jinja template: " + je.Message
	default:
		e.Message = "Jinja error: " + je.Message
		switch trace := python.Trace(je.Err); {
		case trace != "":
			e.Message = "Jinja error: " + python.Text(je.Err) + "\n" + trace + "\n"
		case je.Kind == jinja.NotFound && path.IsAbs(je.Message):
			e.Message += "\nThis template was not found: minions look for an absolute path on their own disk, masters only below pillar_roots and file_roots"
		case je.Kind == jinja.NotFound:
			e.Message += fmt.Sprintf("\nThis template was not found in the environment %q", req.Saltenv)
		}
	}
	if je.Template != "" && je.Template != req.name() {
		e.Name, e.elsewhere = je.Template, true
		source = je.Source
	}
	e.Context = excerpt(source, e.Line)
	return e
}
