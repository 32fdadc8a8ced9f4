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
	"brine/internal/py/value"
	"brine/internal/sls/pillar/gitpillar"
)

// askFetched is how a master tells the others what it has fetched, as a question
// that needs no answer: of a master that is unreachable it is not kept, because the next
// one says all again. Its data:
//
//	leads   it comes from the one that fetches for all
//	states  what it serves now of what it has fetched (fetch.States)
const askFetched = "fetched"

// fileUpdates keeps the files and pillars up to date that come from elsewhere,
// and tells the event bus and the other masters of a cluster what has changed.
type fileUpdates struct {
	ctx      func() context.Context
	settings *settings
	events   bool // fileserver_events
	bus      *event.Bus
	cluster  *cluster.Cluster // nil for a master of its own
	log      *slog.Logger
}

// tellTime bounds the wait for another master.
const tellTime = 10 * time.Second

// fetchesForAll reports whether this master fetches what all of them serve.
func (u *fileUpdates) fetchesForAll() bool { return u.cluster == nil || u.cluster.Leads() }

// tellFetched tells the other masters of the cluster what this one has fetched.
func (u *fileUpdates) tellFetched(states fetch.States) {
	if u.cluster == nil || len(states) == 0 {
		return
	}
	told := value.NewDict(len(states))
	for name, state := range states {
		told.Set(name, state)
	}
	arg := value.DictOf("leads", u.cluster.Leads(), "states", told)
	for _, p := range u.cluster.Members() {
		go func() { // one may take its time
			ctx, cancel := context.WithTimeout(u.ctx(), tellTime)
			defer cancel()
			if _, err := u.cluster.Queries.AskOne(ctx, p.ID, askFetched, arg); err != nil {
				u.log.Debug("a peer was not told what was fetched", "peer", p.ID, "err", err)
			}
		}()
	}
}

// toldFetched takes what another master has told.
func (u *fileUpdates) toldFetched(arg *value.Dict) *value.Dict {
	states := fetch.States{}
	for name, state := range arg.Dict("states").All() {
		n, _ := name.(string)
		s, _ := state.(string)
		if n != "" && s != "" {
			states[n] = s
		}
	}
	leads := arg.Bool("leads")
	for _, f := range u.settings.fileServer().Fetchers() {
		f.Told(states, leads)
	}
	u.settings.current().git.Told(states, leads)
	return value.NewDict(0)
}

// tellFetchedChanges is for who has updated a file server in between.
func (u *fileUpdates) tellFetchedChanges(changes []fileserver.Changes) {
	u.tellChanges(changes)
	for _, c := range changes {
		u.tellFetched(c.Fetched)
	}
}

// look looks for changed files and tells the bus, if it is to.
func (u *fileUpdates) look(ctx context.Context) {
	if !u.events {
		return // no listener: changes are seen at each request
	}
	var here []string // others have times of their own
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
		u.log.Error("cannot look for changed files", "err", err)
	}
	u.tellChanges(changes)
}

// fetch keeps what is served from elsewhere up to date, until ctx ends.
// Fetching may take minutes and delays no other work.
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
				u.log.Error("cannot bring a file server up to date; it goes on serving what it has", "fileserver_backend", f.Name(), "err", err)
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

// fetchPillars does the same for the git repositories of the pillar.
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
		u.log.Info("git_pillar has fetched changes")
	}
	for _, f := range faults {
		d := value.DictOf("backend", "git_pillar", "remote", f.Remote, "error", nil)
		if f.Error != "" {
			u.log.Error("cannot update a git repository of the pillar; its last state stays in use", "remote", f.Remote, "err", f.Error)
			d.Set("error", f.Error)
		}
		u.bus.Fire(salt.Tag("pillar", "git", "fault"), d)
	}
}

// tellChanges puts on the bus what has changed, if it is to hear of that, and
// what goes wrong for the first time or no more.
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

// tellingPillar are the git repositories of the pillar, of whose updates the
// other masters hear.
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
