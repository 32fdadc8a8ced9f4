package master

import (
	"context"
	"iter"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/control"
	"brine/internal/catalogue/runners"
	"brine/internal/catalogue/wheel"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/store/job"
	"brine/internal/store/keystore"
)

// running knows which runners work now.
type running struct {
	mu   sync.Mutex
	jobs []*value.Dict
}

// begin adds a runner and returns what takes it away when it has ended.
func (r *running) begin(about *value.Dict) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jobs = append(r.jobs, about)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.jobs = slices.DeleteFunc(r.jobs, func(d *value.Dict) bool { return d == about })
	}
}

// list returns the runners in the order in which they began. They must not be
// changed.
func (r *running) list() []*value.Dict {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.jobs)
}

// newRunners collects the runners. They command minions as any command line
// does, only without sockets.
func (m *Master) newRunners() (*fn.Registry, error) {
	here := &client.InProcess{Publish: m.Publish, Events: m.bus, User: "root"}
	c := client.New(m.cfg.Client, value.Str(m.cfg.Opts.At("conf_file")), here, here, m.log)
	snapshot, adopt := m.ownJobs()
	var in runners.Cluster // not m.cluster: one that holds nil is not nil
	if m.cluster != nil {
		in = m.cluster
	}
	return fn.NewRegistry(nil, runners.New(runners.Deps{
		Snapshot: snapshot, Adopt: adopt,
		Cluster: in, ID: m.cfg.ID, ClusterCheck: m.clusterCheck, ClusterWork: m.works.show, ClusterKeys: m.clusterKeys, ClusterHealth: m.clusterHealth, ClusterLeave: m.leaveCluster,
		ClusterSync: m.revisions.sync, ClusterRevision: m.revisions.show, ClusterRollback: m.revisions.rollback,
		Jobs: m.history(), JobsOf: m.jobsOf, JobCaches: m.JobCaches, Keys: m.keys, Cache: m.cache, Connected: m.connected, Holders: m.holders, Standings: m.minionStandings, Client: c,
		Fire: m.bus.Fire, Subscribe: m.bus.Subscribe, Running: m.running.list, Nodegroups: m.nodegroups,
		Audit:  m.audit.Recent,
		Wheels: func() *value.Dict { return m.wheels.Docs() },
		Files:  func() runners.FileServer { return m.fileServer() }, TellChanges: m.tellFetchedChanges,
		GitPillar: func() runners.GitPillar { return tellingPillar{m.live.Load().git, m} },
		Pillars:   func() runners.Pillars { return m.live.Load().pillar },
		Here:      (&orchestra{m: m}).Call,
		Matches:   m.matches, PKIDir: m.cfg.PKIDir, Tokens: runnerTokens{m},
		Mine: func(asker string, load *value.Dict) *value.Dict { return (&minionData{m}).mineFor(asker, load) },
		Reactor: func() runners.Reactor {
			if m.reactor == nil {
				return nil // and not an interface that holds nil
			}
			return m.reactor
		},
	})...)
}

// matches reports whether an accepted minion is known to match a target.
func (m *Master) matches(typ string, tgt any, id string) (bool, error) {
	t, err := m.nodegroups().ParseWithin(target.NewBudget(minionTargetTime), typ, tgt, "")
	if err != nil {
		return false, err
	}
	if st, _, err := m.keys.Lookup(id); err != nil || st != keystore.Accepted {
		return false, err
	}
	return t.Match(m.subject(id)), nil
}

// runnerTokens makes and ends tokens for the runner auth.
type runnerTokens struct{ m *Master }

// NewToken implements runners.Tokens.
func (t runnerTokens) NewToken(ctx context.Context, creds *value.Dict) (*value.Dict, error) {
	expire, _ := strconv.ParseFloat(value.Str(creds.At("token_expire")), 64)
	d, err := t.m.auth().NewToken(ctx, credentials(creds), expire)
	if salt.KindOf(err) == salt.Denied {
		return nil, nil
	}
	return d, err
}

// DropToken implements runners.Tokens.
func (t runnerTokens) DropToken(token string) (bool, error) {
	if there := t.m.auth().Token(token); there == nil {
		return false, nil
	}
	return true, t.m.tokens.Remove(token)
}

// snapshotFolder, in the folder of the master's own, has a copy of its jobs for
// who moves them.
const snapshotFolder = "snapshot"

// ownJobs returns what copies this master's database of jobs and what takes
// over those of Salt's, nil in a cluster, whose jobs are files.
func (m *Master) ownJobs() (snapshot func() (string, error), adopt func() (int, error)) {
	s, ok := m.jobs.(*job.Store)
	if !ok {
		return nil, nil
	}
	snapshot = func() (string, error) {
		own, err := m.ownDir()
		if err != nil {
			return "", err
		}
		dir := filepath.Join(own, snapshotFolder)
		return dir, s.Snapshot(dir)
	}
	return snapshot, func() (int, error) { return s.Adopt(m.stockJobs) }
}

// adoptJobs takes over what a master of Salt's has left of jobs in cachedir.
func (m *Master) adoptJobs(ctx context.Context) {
	s, ok := m.jobs.(*job.Store)
	if !ok {
		return // one that shares a folder reads the files
	}
	n, err := s.AdoptNew(ctx, m.stockJobs)
	if n > 0 {
		m.log.Info("jobs were taken over that a master of Salt's has left in cachedir", "jobs", n)
	}
	if err != nil && ctx.Err() == nil {
		m.log.Warn("some jobs that a master of Salt's has left in cachedir could not be taken over; the next start tries again", "err", err)
	}
}

// events yields what is fired on the master's bus.
func (m *Master) events(ctx context.Context) iter.Seq2[*event.Event, error] {
	return control.Subscribed(ctx, m.bus.Subscribe)
}

// newWheels collects the functions that manage this master.
func (m *Master) newWheels() (*fn.Registry, error) {
	return fn.NewRegistry(nil, wheel.New(wheel.Deps{
		Keys: m.keys, HashType: m.cfg.Options.HashType, KeySize: m.cfg.Options.Keysize, Connected: m.connected,
		Changed: func(act, id string) { m.bus.Fire("salt/key", value.DictOf("result", true, "act", act, "id", id)) },
		Forget: func(id string) error {
			_, err := m.cache.Flush("minions/"+id, "")
			return err
		},
		Revoked: func() {
			if m.options().RotateAESKey {
				m.RotateAES()
			}
		},
	})...)
}
