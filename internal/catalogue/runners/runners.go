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
	"time"

	"brine/internal/base/registry"
	"brine/internal/base/target"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/files/fileserver"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/job"
	"brine/internal/store/keystore"
	"brine/internal/store/returner"
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

// ClusterSyncOptions say how masters are to agree on other files.
type ClusterSyncOptions struct {
	// Test has nothing changed.
	Test bool
	// Force does not wait for masters that have not got all of it.
	Force bool
	// Timeout bounds that.
	Timeout time.Duration
}

// Deps is what runners need of the master.
type Deps struct {
	Jobs Jobs
	// JobsOf returns the jobs that a returner has, JobCaches how the servers are
	// that get this master's. Both may be nil.
	JobsOf    func(name string) (Jobs, error)
	JobCaches func() []returner.OutboxStatus
	// Snapshot writes the master's own database of jobs into a directory of the
	// master's and returns that; Adopt takes over the jobs in Salt's files. Nil
	// where there is no such database.
	Snapshot func() (string, error)
	Adopt    func() (int, error)
	Keys     Keys
	Cache    Cache
	// Connected returns the minions that are connected now. The map is only
	// read.
	Connected func() map[string]bool
	// Holders returns, in a cluster, to which masters each minion is connected;
	// nil for a master of its own.
	Holders func() map[string][]string
	// Cluster is the cluster of this master, whose name there is ID; nil for a
	// master of its own, as ClusterVoting. ClusterCheck compares what its masters have,
	// ClusterLeave has this one leave it, and end.
	Cluster       Cluster
	ClusterVoting ClusterVoting
	ID            string
	ClusterCheck  func(context.Context) (*value.Dict, error)
	ClusterLeave  func() error
	// ClusterWork returns what was ordered for the whole cluster, or one of it.
	ClusterWork func(jid string) (*value.Dict, error)
	// ClusterHealth asks the masters how they find the cluster, by their ids.
	ClusterHealth func(ctx context.Context) map[string]*value.Dict
	// ClusterKeys returns when and where was decided about keys that a glob means.
	ClusterKeys func(match string) (*value.Dict, error)
	// ClusterSync makes this master's file_roots and pillar_roots what all of a
	// cluster serve, ClusterRevision tells what that is, also of a job, and
	// ClusterRollback goes back to an earlier state.
	ClusterSync     func(ctx context.Context, o ClusterSyncOptions) (*value.Dict, error)
	ClusterRevision func(ctx context.Context, jid string) (*value.Dict, error)
	ClusterRollback func(ctx context.Context, revision string, o ClusterSyncOptions) (*value.Dict, error)
	// Standings returns what these minions have reported about their masters,
	// in a cluster to any of its masters. Minions that reported nothing are
	// missing.
	Standings func(ctx context.Context, ids []string) map[string]Standing
	// Client commands the minions of this master.
	Client *client.Client
	// Fire puts an event on the master's bus.
	Fire func(tag string, data *value.Dict) error
	// Subscribe hears of events on the master's bus, as event.Bus.Subscribe.
	Subscribe func(size int, prefixes ...string) *event.Subscription
	// Running returns the runners that work now, each a dict of fun, jid, user
	// and fun_args.
	Running func() []*value.Dict
	// Wheels returns the documentation of the wheel functions, by name.
	Wheels func() *value.Dict
	// Audit returns the newest records of who asked for what.
	Audit func(limit int, keep func(*value.Dict) bool) ([]*value.Dict, error)
	// Files returns the file server, Pillars what makes pillars, as the
	// configuration has them now.
	Files func() FileServer
	// GitPillar returns the git repositories of the pillar.
	GitPillar func() GitPillar
	// TellChanges puts on the bus what an update of the file server has found,
	// and tells the other masters of a cluster what was fetched.
	TellChanges func([]fileserver.Changes)
	Pillars     func() Pillars
	// Here runs an execution function on the master's machine, with states that
	// can order minions, as part of the job jid.
	Here func(ctx context.Context, jid, fun string, args []any, kwargs *value.Dict) (any, error)
	// Nodegroups returns the named targets.
	Nodegroups func() target.Nodegroups
	// Matches reports whether an accepted minion is known to match a target.
	Matches func(typ string, tgt any, id string) (bool, error)
	// Mine returns the mine data that a request {tgt, tgt_type, fun} means, as
	// far as asker may see them.
	Mine func(asker string, load *value.Dict) *value.Dict
	// Reactor returns the master's reactor, nil if none is configured.
	Reactor func() Reactor
	// Tokens makes and ends tokens of external_auth.
	Tokens Tokens
	// PKIDir has the master's keys and those of minions.
	PKIDir string
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

// minions returns the accepted minions that a target means, as far as that is
// known.
func (d Deps) minions(tgt any, typ string) ([]string, error) {
	m, err := d.Nodegroups().Parse(typ, tgt, "")
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	accepted, err := d.Keys.Accepted()
	if err != nil {
		return nil, err
	}
	ids, _ := m.Expected(accepted, func(id string) (grains, pillar *value.Dict) {
		data := d.Cache.MinionData(id)
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
