package master

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"brine/internal/base/salt"
	"brine/internal/catalogue/runners"
	"brine/internal/files/fetch"
	"brine/internal/files/fileserver"
	"brine/internal/ha/cluster"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/sls/pillar/gitpillar"
)

// askFetched is the query with which a master reports to other masters what it
// fetched; the reply is empty. It is not queued for unreachable masters, because
// the next one repeats everything. Its data:
//
//	leads   the sender fetches for all masters
//	states  the state of the fetched data that it serves now (fetch.States)
const askFetched = "fetched"

// fileUpdates updates the files and pillars that come from remotes, and reports
// changes on the event bus and to the other masters of a cluster.
type fileUpdates struct {
	ctx      func() context.Context
	settings *settings
	events   bool // fileserver_events
	bus      *event.Bus
	cluster  *cluster.Cluster // nil without a cluster
	log      *slog.Logger
}

// tellTime bounds the wait for the reply of another master.
const tellTime = 10 * time.Second

// fetchesForAll reports whether this master fetches for the whole cluster.
func (u *fileUpdates) fetchesForAll() bool { return u.cluster == nil || u.cluster.Leads() }

// tellFetched reports to the other masters what this one fetched.
func (u *fileUpdates) tellFetched(states fetch.States) {
	if u.cluster == nil || len(states) == 0 {
		return
	}
	told := value.NewDict(len(states))
	for name, state := range states {
		told.Set(name, state)
	}
	arg := wire.Encode(&wire.FetchedReport{Leads: u.cluster.Leads(), States: told})
	for _, p := range u.cluster.Members() {
		go func() { // a slow master must not delay the others
			ctx, cancel := context.WithTimeout(u.ctx(), tellTime)
			defer cancel()
			if _, err := u.cluster.Queries.AskOne(ctx, p.ID, askFetched, arg); err != nil {
				u.log.Debug("cannot notify a peer of fetched files", "peer", p.ID, "err", err)
			}
		}()
	}
}

// toldFetched handles askFetched from another master.
func (u *fileUpdates) toldFetched(arg *value.Dict) *value.Dict {
	var in wire.FetchedReport
	wire.View(arg, &in)
	states := fetch.States{}
	for name, state := range in.States.All() {
		n, _ := name.(string)
		s, _ := state.(string)
		if n != "" && s != "" {
			states[n] = s
		}
	}
	for _, f := range u.settings.fileServer().Fetchers() {
		f.Told(states, in.Leads)
	}
	u.settings.current().git.Told(states, in.Leads)
	return value.NewDict(0)
}

// tellFetchedChanges reports the changes of a file server update on the bus and to
// the other masters.
func (u *fileUpdates) tellFetchedChanges(changes []fileserver.Changes) {
	u.tellChanges(changes)
	for _, c := range changes {
		u.tellFetched(c.Fetched)
	}
}

// look checks for changed files of the backends without remotes, and fires events,
// if that is configured.
func (u *fileUpdates) look(ctx context.Context) {
	if !u.events {
		return // without events, the check at each request suffices
	}
	var here []string // backends with remotes have their own intervals; see fetch
	files := u.settings.fileServer()
	for _, name := range files.Backends(nil) {
		if len(files.Fetchers(name)) == 0 {
			here = append(here, name)
		}
	}
	if len(here) == 0 {
		return
	}
	changes, err := files.Update(ctx, here...)
	if err != nil {
		u.log.Error("cannot check for changed files", "err", err)
	}
	u.tellChanges(changes)
}

// fetch updates file servers and pillars from their remotes until ctx ends. It has
// a goroutine of its own, because fetching may take minutes.
func (u *fileUpdates) fetch(ctx context.Context) error {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		for _, f := range u.settings.fileServer().Fetchers() {
			leads := u.fetchesForAll()
			c, any, err := f.Due(ctx, leads)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				u.log.Error("cannot update a file server; serving its old files", "fileserver_backend", f.Name(), "err", err)
			}
			if any {
				u.tellChanges([]fileserver.Changes{c})
				if leads {
					u.tellFetched(c.Fetched)
				}
			}
		}
		u.fetchPillars(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-second.C:
		}
	}
}

// fetchPillars updates the git repositories of the pillar that are due.
func (u *fileUpdates) fetchPillars(ctx context.Context) {
	leads := u.fetchesForAll()
	changed, fetched, faults := u.settings.current().git.Due(ctx, leads)
	if ctx.Err() != nil {
		return
	}
	if leads {
		u.tellFetched(fetched)
	}
	if changed {
		u.log.Info("git_pillar fetched changes")
	}
	for _, f := range faults {
		d := value.DictOf("backend", "git_pillar", "remote", f.Remote, "error", nil)
		if f.Error != "" {
			u.log.Error("cannot update a git repository of the pillar; using its last state", "remote", f.Remote, "err", f.Error)
			d.Set("error", f.Error)
		}
		u.bus.Fire(salt.Tag("pillar", "git", "fault"), d)
	}
}

// tellChanges fires events for changes, if configured, and for errors that
// begin or end.
func (u *fileUpdates) tellChanges(changes []fileserver.Changes) {
	for _, c := range changes {
		if u.events && c.Backend != "" {
			u.bus.Fire(salt.Tag("fileserver", c.Backend, "update"), c.Event())
		}
		for _, id := range slices.Sorted(maps.Keys(c.Faults)) {
			d := value.DictOf("backend", c.Backend, "remote", id, "error", nil)
			if text := c.Faults[id]; text != "" {
				d.Set("error", text)
			}
			u.bus.Fire(salt.Tag("fileserver", c.Backend, "fault"), d)
		}
	}
}

// tellingPillar is a source of git pillars that reports its updates to the other
// masters.
type tellingPillar struct {
	*gitpillar.Source
	tell func(fetch.States)
}

var _ runners.GitPillar = tellingPillar{}

// Update implements runners.GitPillar.
func (p tellingPillar) Update(ctx context.Context, branch, repo string) (*value.Dict, error) {
	out, fetched, err := p.Source.Update(ctx, branch, repo)
	p.tell(fetched)
	return out, err
}
