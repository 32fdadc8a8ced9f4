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

// Call is the environment of a function call besides its arguments. A function that calls another passes its own Call on. It is used by one
// goroutine at a time.
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
	// Template renders a template with the grains, pillar, options and functions of this Call. It is nil where templates are not supported.
	Template func(ctx context.Context, c *Call, t Template) (string, error)
	// Render turns a source into data by a pipe of renderers, usually "jinja|yaml", unless the source names its own. It is nil if Template
	// is.
	Render func(ctx context.Context, c *Call, pipe string, t Template) (any, error)
	// Log is never nil after preparation.
	Log *slog.Logger
	// Funcs holds the functions that the function may call.
	Funcs *Registry
	// Catalogues holds the functions of other kinds, for documentation only:
	// "states", "runners", "returners", "renderers".
	Catalogues map[string]*Registry
	// CompilePillar compiles the minion's pillar again, on the master that ordered the job or on this machine. It is nil if neither is
	// possible.
	CompilePillar func(ctx context.Context, q PillarQuery) (*value.Dict, error)
	// RunAs is the default user of commands; "" is the minion's own user.
	RunAs string
	// Progress, if set, receives each part of the result as soon as it is complete.
	Progress func(part any)

	retcode int
	out     string
}

// Template is a template to render.
type Template struct {
	// Engine is the template engine, usually "jinja".
	Engine string
	// Source is the template, Path its location for errors.
	Source []byte
	Path   string
	// Saltenv is the environment of imports.
	Saltenv string
	// Context holds further variables; they override those of the Call.
	Context *value.Dict
}

// prepare sets defaults for missing fields, so that functions need no nil checks.
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

// PillarQuery selects a pillar.
type PillarQuery struct {
	// Saltenv and Pillarenv are names of environments, or "" for the configured ones.
	Saltenv, Pillarenv string
	// Override is merged over the pillar. It may be nil.
	Override *value.Dict
	// External is an additional source in the form of an item of ext_pillar, if on_demand_ext_pillar allows it; nil means none.
	External any
	// CleanCache drops the minion's entry in the master's pillar_cache, so that the pillar is compiled again.
	CleanCache bool
}

// Prepare sets defaults for a Call that is used without Run, and returns it.
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

// Report sends a part of the result to Progress. The result must contain it, too.
func (c *Call) Report(part any) {
	if c.Progress != nil {
		c.Progress(value.From(part))
	}
}
