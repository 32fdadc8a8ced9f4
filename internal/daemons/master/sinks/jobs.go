// Package sinks writes a master's jobs, returns and events to destinations other
// than its own store: the servers of master_job_cache and ext_job_cache, the files
// that stock programs read, and the returners of event_return.
package sinks

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/catalogue/runners"
	"brine/internal/net/remote"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/job"
	"brine/internal/store/returner"
)

// LocalJobs is the value of master_job_cache that selects only this master's own
// store.
const LocalJobs = "local_cache"

// Jobs are the servers of master_job_cache and ext_job_cache, which store jobs
// in addition to this master's own store.
type Jobs struct {
	cfg  Config
	list []*jobSink
	own  runners.Jobs
	log  *slog.Logger
}

// Config are the options of job sinks.
type Config struct {
	MasterID string // id of this master
	Jobs     job.Options
	Returner returner.MasterOptions
	Ext      string      // ext_job_cache
	Opts     *value.Dict // all options by name, for returners
	// Python are the user's own returners, or nil.
	Python PythonReturners
	// Ctx is the context of server requests.
	Ctx func() context.Context
	// Leads reports whether this master removes old jobs from the servers.
	Leads func() bool
}

// PythonReturners are the user's own returners, which replace those of the same names.
type PythonReturners interface {
	// Has reports whether there is a returner of a name.
	Has(name string) bool
	// Open returns a returner.
	Open(name string) (returner.Returner, error)
}

// inOrder is a returner that must get the entries one at a time, in order.
type inOrder interface{ InOrder() }

// patient is a returner whose calls have a time limit of their own.
type patient interface{ Patience() time.Duration }

// waitLimit returns the time limit for a call of a returner: its own or usual.
func waitLimit(r returner.Returner, usual time.Duration) time.Duration {
	if p, ok := r.(patient); ok {
		return p.Patience()
	}
	return usual
}

// jobSink is a server that stores jobs in addition to this master's own store.
type jobSink struct {
	name string
	r    returner.Returner
	box  *returner.Outbox
	// returns means that this master also sends returns (master_job_cache); for
	// ext_job_cache minions do.
	returns bool
}

// The kinds of queue entries.
const (
	parcelLoad   = "load"
	parcelReturn = "return"
)

// Open connects to the server of a returner.
func (c *Config) Open(name string) (returner.Returner, error) {
	if c.has(name) {
		return c.Python.Open(name)
	}
	r, err := returner.Open(name, returner.Config{
		Source: remote.Options(c.Opts), Keep: c.Jobs.Keep(), Timeout: c.Returner.Timeout, MasterID: c.MasterID,
	})
	if err != nil && salt.KindOf(err) == salt.NotFound && c.Python != nil {
		err = fmt.Errorf("%w; if it is a module of your own, fetch it with salt-run saltutil.sync_returners", err)
	}
	return r, err
}

// has reports whether name is one of the user's own returners.
func (c *Config) has(name string) bool { return c.Python != nil && c.Python.Has(name) }

// Open opens the servers of master_job_cache and ext_job_cache. dir is the
// directory of their queues; own is the master's own store.
func Open(cfg Config, dir string, own runners.Jobs, log *slog.Logger) (*Jobs, error) {
	list, err := cfg.servers()
	s := &Jobs{cfg: cfg, list: list, own: own, log: log}
	if err != nil {
		s.Close()
		return nil, err
	}
	for _, o := range s.list {
		limit := waitLimit(o.r, 2*max(cfg.Returner.Timeout, time.Second))
		if o.box, err = returner.OpenOutbox(filepath.Join(dir, "outbox."+o.name), o.name, limit, o.deliver, log); err != nil {
			s.Close()
			return nil, err
		}
		if _, ok := o.r.(inOrder); ok {
			o.box.InOrder()
		}
	}
	return s, nil
}

// Check returns the error with which Open would reject the options. It changes nothing and connects
// to no server.
func Check(cfg Config) error {
	list, err := cfg.servers()
	(&Jobs{list: list}).Close()
	return err
}

// servers opens the returners of master_job_cache and ext_job_cache, without their queues.
func (c *Config) servers() (list []*jobSink, err error) {
	for _, o := range []struct{ option, name string }{{"master_job_cache", c.Returner.JobCache}, {"ext_job_cache", c.Ext}} {
		returns := o.option == "master_job_cache"
		if o.name == "" || o.name == LocalJobs || o.name == "local" || !returns && o.name == c.Returner.JobCache {
			continue
		}
		r, err := c.Open(o.name)
		if err != nil {
			return list, salt.Errorf(salt.KindOf(err), "%s: %s: %w", o.option, o.name, err)
		}
		list = append(list, &jobSink{name: o.name, r: r, returns: returns})
	}
	return list, nil
}

// NewReader returns sinks that only read from servers.
func NewReader(cfg Config, own runners.Jobs, log *slog.Logger) *Jobs {
	return &Jobs{cfg: cfg, own: own, log: log}
}

// Beside returns the jobs of the own store and of a server.
func (s *Jobs) Beside(remote returner.Returner) runners.Jobs {
	return &history{sinks: s, remote: remote, local: s.own, away: func() bool { return false }}
}

func (o *jobSink) deliver(ctx context.Context, d *value.Dict) error {
	var p wire.Parcel
	wire.View(d, &p)
	if p.Kind == parcelLoad {
		return o.r.SaveLoad(ctx, p.JID, p.Data)
	}
	return o.r.Return(ctx, p.Data)
}

// SendLoad queues a job for the servers.
func (s *Jobs) SendLoad(load *value.Dict, jid string, minions []string) {
	if len(s.list) == 0 || !s.cfg.Jobs.JobCache {
		return
	}
	load = load.Clone()
	load.Set("Minions", value.Strings(slices.Sorted(slices.Values(minions)))) // Salt's runners read this key
	for _, o := range s.list {
		o.box.Put(wire.Encode(&wire.Parcel{Kind: parcelLoad, JID: jid, Data: load}))
	}
}

// SendReturn queues a return for the server of master_job_cache.
func (s *Jobs) SendReturn(ret *value.Dict) {
	jid := ret.Str("jid")
	if !s.cfg.Jobs.JobCache || strings.HasSuffix(jid, "nocache") {
		return
	}
	for _, o := range s.list {
		if o.returns {
			o.box.Put(wire.Encode(&wire.Parcel{Kind: parcelReturn, JID: jid, Data: ret}))
		}
	}
}

// Run delivers queued entries until ctx ends.
func (s *Jobs) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, o := range s.list {
		wg.Go(func() { o.box.Run(ctx) })
	}
	wg.Wait()
	return nil
}

// Close closes the connections. A nil *Jobs has none.
func (s *Jobs) Close() {
	if s == nil {
		return
	}
	for _, o := range s.list {
		if o.box != nil {
			o.box.Close()
		}
		o.r.Close()
	}
}

// Clean removes old jobs from the server of master_job_cache. It must run
// concurrently with other maintenance, because the server may be slow. In a cluster
// with a common server only the leader removes jobs: that is expensive, and two
// masters that archive rows at once would duplicate them.
func (s *Jobs) Clean(ctx context.Context) {
	if !s.cfg.Leads() {
		return
	}
	keep := s.cfg.Jobs.Keep()
	for _, o := range s.list {
		if keep <= 0 || !o.returns || o.box.Status().Unreachable != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		err := o.r.Clean(ctx, keep, s.cfg.Returner.Archive)
		cancel()
		if err != nil {
			s.log.Warn("cannot remove old jobs from a returner", "returner", o.name, "err", err)
		}
	}
}

// Statuses returns the status of each server.
func (s *Jobs) Statuses() []returner.OutboxStatus {
	out := make([]returner.OutboxStatus, 0, len(s.list))
	for _, o := range s.list {
		out = append(out, o.box.Status())
	}
	return out
}

// History returns the jobs for runners: those of this master's own store, and the
// additional ones of the preferred server.
func (s *Jobs) History() runners.Jobs {
	if len(s.list) == 0 {
		return s.own
	}
	o := s.list[len(s.list)-1] // ext_job_cache is preferred to master_job_cache
	return &history{sinks: s, remote: o.r, local: s.own, away: func() bool { return o.box.Status().Unreachable != nil }}
}

// JobsOf returns the jobs of a named returner, or of the own store for LocalJobs.
func (s *Jobs) JobsOf(name string) (runners.Jobs, error) {
	if name == LocalJobs || name == "local" {
		if s.own == nil {
			return NoJobs{}, nil
		}
		return s.own, nil
	}
	for _, o := range s.list {
		if o.name == name {
			return &history{sinks: s, remote: o.r, away: func() bool { return false }}, nil
		}
	}
	r, err := s.cfg.Open(name)
	if err != nil {
		return nil, err
	}
	return &history{sinks: s, remote: r, away: func() bool { return false }, once: true}, nil
}

type history struct {
	sinks  *Jobs
	remote returner.Returner
	local  runners.Jobs // nil: only remote is read
	away   func() bool
	once   bool // remote is closed after one query
}

// ask queries the server, unless it is unreachable. It returns an error only if
// there is no own store to fall back to; otherwise it logs the error.
func (h *history) ask(f func(context.Context) error) error {
	if h.away() {
		return nil
	}
	if h.once {
		defer h.remote.Close()
	}
	ctx, cancel := context.WithTimeout(h.sinks.cfg.Ctx(), waitLimit(h.remote, 4*max(h.sinks.cfg.Returner.Timeout, time.Second)))
	defer cancel()
	err := f(ctx)
	if err != nil && h.local != nil {
		h.sinks.log.Warn("job cache is unreachable; showing only this master's jobs", "err", err)
		return nil
	}
	return err
}

func (h *history) remoteLoad(jid string) (load *value.Dict, err error) {
	err = h.ask(func(ctx context.Context) error {
		load, err = h.remote.Load(ctx, jid)
		return err
	})
	return load, err
}

// Load returns the load of a job.
func (h *history) Load(jid string) (*value.Dict, error) {
	if h.local != nil {
		if load, err := h.local.Load(jid); err != nil || load != nil {
			return load, err
		}
	}
	return h.remoteLoad(jid)
}

// Minions returns the targeted minions of a job.
func (h *history) Minions(jid string) ([]string, error) {
	if h.local != nil {
		if ids, err := h.local.Minions(jid); err != nil || ids != nil {
			return ids, err
		}
	}
	load, err := h.remoteLoad(jid)
	return minionsOf(load), err
}

func minionsOf(load *value.Dict) []string {
	var ids []string
	for _, v := range load.List("Minions") {
		ids = append(ids, value.Str(v))
	}
	return ids
}

// Returns returns the returns of a job, by minion. Those in the own store take
// precedence over those on the server.
func (h *history) Returns(jid string) (map[string]*value.Dict, error) {
	out := map[string]*value.Dict{}
	if h.local != nil {
		var err error
		if out, err = h.local.Returns(jid); err != nil {
			return nil, err
		}
	}
	var far map[string]*value.Dict
	err := h.ask(func(ctx context.Context) (err error) {
		far, err = h.remote.Returns(ctx, jid)
		return err
	})
	for id, full := range far {
		if out[id] != nil || salt.CheckID(id) != nil {
			continue
		}
		d := value.NewDict(4)
		for _, k := range []string{"return", "retcode", "success", "out"} {
			if v, ok := full.Get(k); ok {
				d.Set(k, v)
			}
		}
		out[id] = d
	}
	return out, err
}

// List returns the jobs in the own store and on the server.
func (h *history) List(f job.Filter) ([]*job.Job, error) {
	var out []*job.Job
	if h.local != nil {
		var err error
		if out, err = h.local.List(f); err != nil {
			return nil, err
		}
	}
	have := make(map[string]bool, len(out))
	for _, j := range out {
		have[j.JID] = true
	}
	var far map[string]*value.Dict
	err := h.ask(func(ctx context.Context) (err error) {
		far, err = h.remote.Jobs(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	for jid, load := range far {
		j := &job.Job{JID: jid, Load: load, Minions: minionsOf(load)}
		if have[jid] || !salt.ValidJID(jid) || f.After != "" && jid <= f.After || f.Before != "" && jid >= f.Before || f.Keep != nil && !f.Keep(j) {
			continue
		}
		out = append(out, j)
	}
	slices.SortStableFunc(out, func(a, b *job.Job) int {
		if f.Oldest {
			return strings.Compare(a.JID, b.JID)
		}
		return strings.Compare(b.JID, a.JID)
	})
	if f.Limit > 0 && len(out) > f.Limit {
		out = out[:f.Limit]
	}
	return out, nil
}

// NoJobs is a job store without jobs.
type NoJobs struct{}

func (NoJobs) Load(string) (*value.Dict, error)               { return nil, nil }
func (NoJobs) Minions(string) ([]string, error)               { return nil, nil }
func (NoJobs) Returns(string) (map[string]*value.Dict, error) { return map[string]*value.Dict{}, nil }
func (NoJobs) List(job.Filter) ([]*job.Job, error)            { return nil, nil }
