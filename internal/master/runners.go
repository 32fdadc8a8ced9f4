package master

import (
	"slices"
	"sync"

	"brine/internal/client"
	"brine/internal/fn"
	"brine/internal/runners"
	"brine/internal/value"
	"brine/internal/wheel"
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
	return fn.NewRegistry(nil, runners.New(runners.Deps{
		Jobs: m.history(), JobsOf: m.jobsOf, JobCaches: m.JobCaches, Keys: m.keys, Cache: m.cache, Connected: m.connected, Holders: m.holders, Standing: m.standings.of, Client: c,
		Fire: m.bus.Fire, Subscribe: m.bus.Subscribe, Running: m.running.list, Nodegroups: m.nodegroups,
		Audit:  m.audit.Recent,
		Wheels: func() *value.Dict { return m.wheels.Docs() },
		Files:  func() runners.FileServer { return m.fileServer() }, TellChanges: m.tellChanges,
		GitPillar: func() runners.GitPillar { return m.live.Load().git },
		Pillars:   func() runners.Pillars { return m.live.Load().pillar },
	})...)
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
