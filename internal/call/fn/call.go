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

// Files accesses the files of a file server and of the web. *fileclient.Client implements it, and
// has further methods that few functions use.
type Files interface {
	Fetcher
	Lister
	Cache
}

// Fetcher fetches files; the methods are those of *fileclient.Client.
type Fetcher interface {
	CacheFile(ctx context.Context, url, saltenv string) (string, error)
	Content(ctx context.Context, url, saltenv string) (string, error)
	GetURL(ctx context.Context, text, dest string, o fileclient.URLOptions) (string, error)
	Read(ctx context.Context, url, saltenv string) ([]byte, error)
	Small(ctx context.Context, url, saltenv string) (data []byte, path string, err error)
}

// Lister lists and describes files without fetching them; the methods are those of *fileclient.Client.
type Lister interface {
	Hash(ctx context.Context, path, saltenv string) (fileclient.Hash, error)
	List(ctx context.Context, what fileclient.Listing, saltenv, prefix string) ([]string, error)
	Stat(ctx context.Context, path, saltenv string) ([]int64, error)
	Symlinks(ctx context.Context, saltenv, prefix string) (*value.Dict, error)
}

// Cache has the copies of fetched files; the methods are those of *fileclient.Client.
type Cache interface {
	CacheDir() string
	ExternPath(text, saltenv string) (string, error)
	Forget(url, saltenv string) error
	IsCached(path, saltenv string) string
}

var _ Files = (*fileclient.Client)(nil)

// Call is the environment of a function call besides its arguments. A function that calls another
// passes its own Call on. It is used by one goroutine at a time.
type Call struct {
	// ID is the id of the minion (or master).
	ID string
	// User is the user who called a function of the master, "" if unknown.
	User string
	// JID is the job's id, "" or "req" outside of a job.
	JID string
	// Grains, Pillar and Config are never nil once Run or Prepare prepared
	// the Call. Pillar is a PillarCompiler if the pillar can be compiled again.
	Grains, Pillar, Config Reader
	// Files fetches files from the master that ordered the job, or from the
	// file_roots of this machine. It is never nil after preparation.
	Files Files
	// Templates renders templates. It is nil where templates are not supported.
	Templates Templates
	// SDB has the user's drivers for sdb:// references; nil if there are none.
	SDB SDB
	// Log is never nil after preparation.
	Log *slog.Logger
	// Funcs are the functions that the function may call.
	Funcs *Registry
	// RunAs is the default user of commands; "" is the minion's own user.
	RunAs string
	// Progress, if set, receives each part of the result as soon as it is complete.
	Progress func(part any)
	// Print, if set, receives what a function in Python prints to "stdout" or "stderr". If it is
	// nil, that is logged.
	Print func(stream, text string)

	retcode int
	failed  bool
	out     string
}

// SDB has drivers for sdb:// references.
type SDB interface {
	// Has reports whether there is a driver of a name.
	Has(driver string) bool
	// Call calls a function of a driver: get, set or delete.
	Call(ctx context.Context, c *Call, driver, function string, args []any, profile *value.Dict) (any, error)
}

// Templates renders templates with the grains, pillar, options and functions of a Call.
type Templates interface {
	// Text renders a template.
	Text(ctx context.Context, c *Call, t Template) (string, error)
	// Data turns a source into data by a pipe of renderers, usually "jinja|yaml", unless the source
	// names its own.
	Data(ctx context.Context, c *Call, pipe string, t Template) (any, error)
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
	// Context has further variables; they override those of the Call.
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

// PillarCompiler is a pillar that can be compiled again, on the master that ordered the job or on this machine.
type PillarCompiler interface {
	Reader
	Compile(ctx context.Context, q PillarQuery) (*value.Dict, error)
}

// NewPillar returns the pillar d, which compile compiles again. If compile is nil, the result is no
// PillarCompiler.
func NewPillar(d *value.Dict, compile func(context.Context, PillarQuery) (*value.Dict, error)) Reader {
	if compile == nil {
		return Tree{d}
	}
	return compilable{Tree{d}, compile}
}

type compilable struct {
	Tree
	compile func(context.Context, PillarQuery) (*value.Dict, error)
}

// Compile implements PillarCompiler.
func (p compilable) Compile(ctx context.Context, q PillarQuery) (*value.Dict, error) {
	return p.compile(ctx, q)
}

// PillarQuery selects a pillar.
type PillarQuery struct {
	// Saltenv and Pillarenv are names of environments, or "" for the configured ones.
	Saltenv, Pillarenv string
	// Override is merged over the pillar. It may be nil.
	Override *value.Dict
	// External is an additional source in the form of an item of ext_pillar, if
	// on_demand_ext_pillar allows it; nil means none.
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

// Retcode returns the last value of SetRetcode, or 0.
func (c *Call) Retcode() int { return c.retcode }

// SetFailed makes a runner count as failed, although its retcode is 0.
func (c *Call) SetFailed() { c.failed = true }

// Failed reports whether SetFailed was called.
func (c *Call) Failed() bool { return c.failed }

// SetOut names the outputter for this result.
func (c *Call) SetOut(name string) { c.out = name }

// Report sends a part of the result to Progress. The result must contain it, too.
func (c *Call) Report(part any) {
	if c.Progress != nil {
		c.Progress(value.From(part))
	}
}
