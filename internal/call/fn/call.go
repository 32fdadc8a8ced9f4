package fn

import (
	"context"
	"log/slog"

	"brine/internal/files/fileclient"
	"brine/internal/py/value"
)

// Reader reads a tree of named values: grains, pillar or options.
type Reader interface {
	// Get returns the value of a top-level key, or nil.
	Get(key string) any
	// All returns the whole tree. The caller must not change it.
	All() *value.Dict
}

// Tree is a Reader of a dict that does not change.
type Tree struct{ *value.Dict }

// Get returns the value of a top-level key, or nil.
func (t Tree) Get(key string) any { return t.At(key) }

// All returns the dict.
func (t Tree) All() *value.Dict { return t.Dict }

// Call is what a function sees of the world besides its arguments. A function
// that calls another passes its own Call on. It is used by one goroutine at a
// time.
type Call struct {
	// ID is the id of the minion (or master).
	ID string
	// JID is the job's id, "" or "req" outside of a job.
	JID string
	// Grains, Pillar and Config are never nil once Run or Prepare prepared
	// the Call.
	Grains, Pillar, Config Reader
	// Files fetches files from the master that ordered the job, or from the
	// file_roots of this machine. It is never nil after preparation.
	Files *fileclient.Client
	// Template fills in a template, with grains, pillar, options and functions
	// of this Call. It is nil where there are no templates.
	Template func(ctx context.Context, c *Call, t Template) (string, error)
	// Render turns a text into data by a pipe of renderers, "jinja|yaml" for
	// most, unless the text itself names one. It is nil where Template is.
	Render func(ctx context.Context, c *Call, pipe string, t Template) (any, error)
	// Log is never nil after preparation.
	Log *slog.Logger
	// Funcs holds the functions that can be called.
	Funcs *Registry
	// Catalogues holds the functions of other kinds, for documentation only:
	// "states", "runners", "returners", "renderers".
	Catalogues map[string]*Registry
	// CompilePillar compiles the minion's pillar anew, by the master that
	// ordered the job or on this machine. It is nil where there is neither.
	CompilePillar func(ctx context.Context, q PillarQuery) (*value.Dict, error)
	// RunAs is the user that commands run as unless they name one; "" is the
	// minion's own.
	RunAs string
	// Progress, if set, is told of every part of the result as it is done.
	Progress func(part any)

	retcode int
	out     string
}

// Template is a text to fill in.
type Template struct {
	// Engine is the template engine, "jinja" for most.
	Engine string
	// Source is the text, Path where it lies, for errors.
	Source []byte
	Path   string
	// Saltenv is the environment of what the text imports.
	Saltenv string
	// Context holds further names for the text; they win over those of the
	// Call.
	Context *value.Dict
}

// prepare fills what is missing, so that functions need not ask.
func (c *Call) prepare() {
	for _, r := range []*Reader{&c.Grains, &c.Pillar, &c.Config} {
		if *r == nil {
			*r = Tree{}
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Funcs == nil {
		c.Funcs = &Registry{}
	}
	if c.Files == nil {
		c.Files = fileclient.New(nil, fileclient.Options{}, c.Log)
	}
}

// PillarQuery says which pillar is wanted.
type PillarQuery struct {
	// Saltenv and Pillarenv are names of environments, or "" for what the
	// configuration says.
	Saltenv, Pillarenv string
	// Override is merged over the pillar. It may be nil.
	Override *value.Dict
	// External is one further source to ask, as an item of the option
	// ext_pillar, if on_demand_ext_pillar allows; nil is none.
	External any
	// CleanCache has the master forget what its pillar_cache keeps of the
	// minion, so that the pillar is made anew.
	CleanCache bool
}

// Prepare fills what is missing, for a Call that is used without Run, and
// returns it.
func (c *Call) Prepare() *Call {
	c.prepare()
	return c
}

// SetRetcode sets the exit status of the job, as a module does through
// __context__["retcode"].
func (c *Call) SetRetcode(code int) { c.retcode = code }

// Retcode returns what SetRetcode set last, or 0.
func (c *Call) Retcode() int { return c.retcode }

// SetOut names the outputter for this result.
func (c *Call) SetOut(name string) { c.out = name }

// Report tells of a part of the result, which is also to be in the result.
func (c *Call) Report(part any) {
	if c.Progress != nil {
		c.Progress(value.From(part))
	}
}
