package master

import (
	"context"
	"time"

	"brine/internal/catalogue/runners"
	"brine/internal/files/fetch"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
	"brine/internal/sls/pillar/gitpillar"
)

// askFetched is how a master tells the others what it has fetched, as a question
// that needs no answer: of a master that is away it is not kept, because the next
// one says all again. Its data:
//
//	leads   it comes from the one that fetches for all
//	states  what it serves now of what it has fetched (fetch.States)
const askFetched = "fetched"

// tellTime bounds the wait for another master.
const tellTime = 10 * time.Second

// fetchesForAll reports whether this master fetches what all of them serve.
func (m *Master) fetchesForAll() bool { return m.cluster == nil || m.cluster.Leads() }

// tellFetched tells the other masters of the cluster what this one has fetched.
func (m *Master) tellFetched(states fetch.States) {
	if m.cluster == nil || len(states) == 0 {
		return
	}
	told := value.NewDict(len(states))
	for name, state := range states {
		told.Set(name, state)
	}
	arg := value.DictOf("leads", m.cluster.Leads(), "states", told)
	for _, p := range m.cluster.Members() {
		go func() { // one may take its time
			ctx, cancel := context.WithTimeout(m.context(), tellTime)
			defer cancel()
			if _, err := m.cluster.AskOne(ctx, p.ID, askFetched, arg); err != nil {
				m.log.Debug("a peer was not told what was fetched", "peer", p.ID, "err", err)
			}
		}()
	}
}

// toldFetched takes what another master has told.
func (m *Master) toldFetched(arg *value.Dict) *value.Dict {
	states := fetch.States{}
	for name, state := range arg.Dict("states").All() {
		n, _ := name.(string)
		s, _ := state.(string)
		if n != "" && s != "" {
			states[n] = s
		}
	}
	leads := arg.Bool("leads")
	for _, f := range m.fileServer().Fetchers() {
		f.Told(states, leads)
	}
	m.live.Load().git.Told(states, leads)
	return value.NewDict(0)
}

// tellFetchedChanges is for who has updated a file server in between.
func (m *Master) tellFetchedChanges(changes []fileserver.Changes) {
	m.tellChanges(changes)
	for _, c := range changes {
		m.tellFetched(c.Fetched)
	}
}

// tellingPillar are the git repositories of the pillar, of whose updates the
// other masters hear.
type tellingPillar struct {
	*gitpillar.Source
	m *Master
}

var _ runners.GitPillar = tellingPillar{}

// Update implements runners.GitPillar.
func (p tellingPillar) Update(ctx context.Context, branch, repo string) (*value.Dict, error) {
	out, fetched, err := p.Source.Update(ctx, branch, repo)
	p.m.tellFetched(fetched)
	return out, err
}
