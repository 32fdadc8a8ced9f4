// Package runners holds the functions that a master runs itself, for salt-run
// and others: what jobs there were, which minions are up, what is known of
// them. A module is one file.
//
// New makes the modules of what the master has (Deps), Run executes one
// function and puts errors in the words in which salt-run's users know them.
// Functions that ask minions do so through a client, as any command line does.
package runners

import (
	"context"
	"errors"
	"fmt"

	"brine/internal/base/registry"
	"brine/internal/base/target"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/job"
	"brine/internal/store/keystore"
)

// Jobs is the memory of jobs.
type Jobs interface {
	// Load returns what was published, or nil for a job that is not known.
	Load(jid string) (*value.Dict, error)
	// Minions returns whom the job was meant for.
	Minions(jid string) ([]string, error)
	// Returns returns by minion dicts of return, retcode, success and out.
	Returns(jid string) (map[string]*value.Dict, error)
	// List returns the jobs there are.
	List(f job.Filter) ([]*job.Job, error)
}

// Keys are the keys of minions.
type Keys interface {
	Accepted() ([]string, error)
	Delete(st keystore.State, id string) error
}

// Cache is what the master keeps of minions, and banks of values.
type Cache interface {
	MinionData(id string) cache.Minion
	StoreMinion(id string, m cache.Minion) error
	Fetch(bank, key string) (v any, ok bool, err error)
	Store(bank, key string, v any) error
	Flush(bank, key string) (bool, error)
	List(bank string) ([]string, error)
	// Status says how the store is, if masters share one.
	Status() cache.Status
}

var (
	_ Jobs  = (*job.Store)(nil)
	_ Keys  = (*keystore.Store)(nil)
	_ Cache = (*cache.Cache)(nil)
)

// Bus is the master's event bus.
type Bus interface {
	Firer
	Subscriber
}

// Firer puts an event on a bus.
type Firer interface {
	Fire(tag string, data *value.Dict) error
}

// Subscriber receives events of a bus.
type Subscriber interface {
	Subscribe(size int, prefixes ...string) *event.Subscription
}

// Commander commands the minions of the master, and waits for their returns.
type Commander interface {
	Call(ctx context.Context, j client.Job) (client.Published, []client.Result, error)
}

var (
	_ Bus       = (*event.Bus)(nil)
	_ Commander = (*client.Client)(nil)
)

// Deps is what a master offers to runners. A module keeps only what it uses; an interface is declared in the
// file of the module that it is for, or here if several use it.
type Deps struct {
	Jobs    JobStores
	Keys    Keys
	Cache   Cache
	Minions Minions
	Targets Targets
	// Cluster is nil for a master of its own.
	Cluster *Clustering
	Client  Commander
	Bus     Bus
	// Serves returns the file server and the pillars as they are configured now.
	Serves Serves
	// Running returns the runners that work now, each a dict of fun, jid, user and fun_args.
	Running func() []*value.Dict
	// Wheels returns the documentation of the wheel functions, by name.
	Wheels func() *value.Dict
	// Audit returns the newest records of who asked for what.
	Audit func(limit int, keep func(*value.Dict) bool) ([]*value.Dict, error)
	// Here runs an execution function on the master's machine, with states that can order minions.
	Here HereFunc
	// Mine returns the mine data that a request {tgt, tgt_type, fun} means, as far as asker may see them.
	Mine func(asker string, load *value.Dict) *value.Dict
	// Reactor returns the master's reactor, nil if none is configured.
	Reactor func() Reactor
	// Tokens makes and ends tokens of external_auth.
	Tokens Tokens
	// PKIDir has the master's keys and those of minions.
	PKIDir string
}

// Serves is what a master serves, as its configuration is now.
type Serves interface {
	FileServers
	GitPillars
	PillarSource
	ModuleSource
}

// runners make the modules of what the master has.
var runners = registry.New[func(Deps) fn.Module]("runner")

// New returns the modules, in the order of their names.
func New(d Deps) []fn.Module {
	var all []fn.Module
	for _, name := range runners.Names() {
		build, _ := runners.Lookup(name)
		all = append(all, build(d))
	}
	return all
}

// Texts that salt-run's users know.
const (
	textInvalid   = "\nPassed invalid arguments: %s\n\nUsage:\n%s"
	textException = "Exception occurred in runner %s: %s"
)

// Run executes a runner as a job. Wrong arguments and unknown functions have
// retcode 0, because salt-run counts as successful when it could show what is
// wrong.
func Run(ctx context.Context, r *fn.Registry, c *fn.Call, j fn.Job) fn.Outcome {
	o := r.Run(ctx, c, j)
	var (
		unknown    *fn.UnknownError
		argument   *fn.ArgumentError
		invocation *fn.InvocationError
	)
	switch {
	case o.Err == nil:
		o.Retcode = c.Retcode() // a map that says of itself that it failed is data here
		o.Success = o.Retcode == 0
	case errors.As(o.Err, &unknown):
		o.Retcode = 0
	case errors.As(o.Err, &argument), errors.As(o.Err, &invocation):
		f, err := r.Lookup(j.Fun)
		if err == nil {
			o.Return, o.Retcode = fmt.Sprintf(textInvalid, o.Err, f.Doc()), 0
		}
	default:
		o.Return = fmt.Sprintf(textException, j.Fun, o.Err)
	}
	return o
}

// none is the argument of functions without any.
type none struct{}

// targetArgs choose minions.
type targetArgs struct {
	Tgt     any    `salt:"tgt" doc:"target" default:"*"`
	TgtType string `salt:"tgt_type" doc:"type of the target" default:"glob"`
}

// Targets matches minions by targets.
type Targets interface {
	// Nodegroups returns the named targets.
	Nodegroups() target.Nodegroups
	// Matches reports whether an accepted minion is known to match a target.
	Matches(typ string, tgt any, id string) (bool, error)
}

// selection finds the accepted minions of a target.
type selection struct {
	targets Targets
	keys    Keys
	cache   Cache
}

func (d Deps) selection() selection { return selection{d.Targets, d.Keys, d.Cache} }

// minions returns the accepted minions that a target means, as far as that is
// known.
func (s selection) minions(tgt any, typ string) ([]string, error) {
	m, err := s.targets.Nodegroups().Parse(typ, tgt, "")
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	accepted, err := s.keys.Accepted()
	if err != nil {
		return nil, err
	}
	ids, _ := m.Expected(accepted, func(id string) (grains, pillar *value.Dict) {
		data := s.cache.MinionData(id)
		return data.Grains, data.Pillar
	})
	return ids, nil
}

// patterns reads a list, or a text with commas, as globs.
func patterns(v any) []target.Glob {
	var out []target.Glob
	for _, p := range value.Split(v) {
		out = append(out, target.ParseGlob(p))
	}
	return out
}

func matchAny(globs []target.Glob, text string) bool {
	for _, g := range globs {
		if g.Match(text) {
			return true
		}
	}
	return false
}

// withOutputter wraps data so that salt-run shows it in a certain form.
func withOutputter(out string, data any) any {
	if out == "" {
		return data
	}
	return value.DictOf("outputter", out, "data", data)
}
