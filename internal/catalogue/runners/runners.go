// Package runners holds the functions that a master runs itself, for salt-run and other clients: past jobs,
// minions that are up, and data about minions. Each module is one file.
//
// New builds the modules from what the master provides (Deps). Run executes one function and formats errors
// as users of salt-run know them. Functions that send jobs to minions use a client, as any command line does.
package runners

import (
	"context"
	"errors"
	"fmt"

	"brine/internal/base/registry"
	"brine/internal/base/target"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/job"
	"brine/internal/store/keystore"
)

// Jobs is the job cache.
type Jobs interface {
	// Load returns the published load of a job, or nil for an unknown job.
	Load(jid string) (*value.Dict, error)
	// Minions returns the minions that the job was published to.
	Minions(jid string) ([]string, error)
	// Returns returns, by minion, dicts of return, retcode, success and out.
	Returns(jid string) (map[string]*value.Dict, error)
	// List returns the jobs that match a filter.
	List(f job.Filter) ([]*job.Job, error)
}

// Keys are the keys of minions.
type Keys interface {
	Accepted() ([]string, error)
	// Count returns the number of ids in a state.
	Count(st keystore.State) (int, error)
	Delete(st keystore.State, id string) error
}

// Cache stores data of minions, and banks of values.
type Cache interface {
	MinionData(id string) cache.Minion
	StoreMinion(id string, m cache.Minion) error
	Fetch(bank, key string) (v any, ok bool, err error)
	Store(bank, key string, v any) error
	Flush(bank, key string) (bool, error)
	List(bank string) ([]string, error)
	// Status returns the status of the store if masters share one.
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

// Firer fires events on a bus.
type Firer interface {
	Fire(tag string, data *value.Dict) error
}

// Subscriber receives events of a bus.
type Subscriber interface {
	Subscribe(size int, prefixes ...string) *event.Subscription
}

// Commander publishes jobs to the minions of the master, and waits for their returns.
type Commander interface {
	Call(ctx context.Context, j client.Job) (client.Published, []client.Result, error)
}

var (
	_ Bus       = (*event.Bus)(nil)
	_ Commander = (*client.Client)(nil)
)

// Deps is what a master provides for runners. A module keeps only what it uses. An interface is declared in
// the file of its module, or here if several modules use it.
type Deps struct {
	Jobs    JobStores
	Keys    Keys
	Cache   Cache
	Minions Minions
	Console Console
	Targets Targets
	// Cluster is nil for a standalone master.
	Cluster *Clustering
	Client  Commander
	Bus     Bus
	// Serves gives access to the file server and the pillars as currently configured.
	Serves Serves
	// Wheels returns the documentation of the wheel functions, by name.
	Wheels func() *value.Dict
	Audits Audits
	// Here runs an execution function on the master's machine, with states that can send jobs to minions.
	Here HereFunc
	// Mine returns the mine data for a request {tgt, tgt_type, fun}, as far as asker may read it.
	Mine func(asker string, load *value.Dict) *value.Dict
	// Reactor returns the master's reactor, nil if none is configured.
	Reactor func() Reactor
	// Tokens creates and deletes tokens of external_auth.
	Tokens Tokens
	// PKIDir is the directory of the master's keys and those of minions.
	PKIDir string
}

// Serves gives access to what a master serves, as currently configured.
type Serves interface {
	FileServers
	GitPillars
	PillarSource
	ModuleSource
}

// runners holds functions that build the modules.
var runners = registry.New[func(Deps) fn.Module]("runner")

// New returns the modules, sorted by name.
func New(d Deps) []fn.Module {
	var all []fn.Module
	for _, name := range runners.Names() {
		build, _ := runners.Lookup(name)
		all = append(all, build(d))
	}
	return all
}

// Messages that users of salt-run know.
const (
	textInvalid   = "\nPassed invalid arguments: %s\n\nUsage:\n%s"
	textException = "Exception occurred in runner %s: %s"
)

// Run executes a runner as a job. Wrong arguments and unknown functions have retcode 0, as salt-run regards
// showing the problem as success.
func Run(ctx context.Context, r *fn.Registry, c *fn.Call, j fn.Job) fn.Outcome {
	o := r.Run(ctx, c, j)
	var (
		unknown    *fn.UnknownError
		argument   *fn.ArgumentError
		invocation *fn.InvocationError
		raised     *python.Error
	)
	switch {
	case o.Err == nil:
		o.Retcode = c.Retcode() // a returned map with a failure is data here
		o.Success = o.Retcode == 0 && !c.Failed()
	case errors.As(o.Err, &unknown):
		o.Retcode = 0
	case errors.As(o.Err, &raised) && !errors.As(o.Err, &argument): // also for exceptions that have no traceback elsewhere
		o.Return = fmt.Sprintf(textException, j.Fun, raised.Trace)
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

// none is the argument type of functions without arguments.
type none struct{}

// targetArgs select minions.
type targetArgs struct {
	Tgt     any    `salt:"tgt" doc:"target" default:"*"`
	TgtType string `salt:"tgt_type" doc:"type of the target" default:"glob"`
}

// Targets matches minions against targets.
type Targets interface {
	// Nodegroups returns the named targets.
	Nodegroups() target.Nodegroups
	// Matches reports whether an accepted minion matches a target, according to its cached data.
	Matches(typ string, tgt any, id string) (bool, error)
}

// selection finds the accepted minions that match a target.
type selection struct {
	targets Targets
	keys    Keys
	cache   Cache
}

func (d Deps) selection() selection { return selection{d.Targets, d.Keys, d.Cache} }

// minions returns the accepted minions that match a target, according to their cached data.
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

// patterns reads a list, or a comma-separated string, as globs.
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

// withOutputter wraps data so that salt-run shows it with an outputter.
func withOutputter(out string, data any) any {
	if out == "" {
		return data
	}
	return value.DictOf("outputter", out, "data", data)
}
