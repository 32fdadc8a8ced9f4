package migrate

import (
	"context"
	"maps"
	"slices"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/store/job"
	"brine/internal/store/returner"
)

// Jobs is a store of jobs to copy from.
type Jobs interface {
	// JIDs returns the ids of all jobs.
	JIDs(ctx context.Context) ([]string, error)
	// Job returns a job, nil if there is none.
	Job(ctx context.Context, jid string) (*job.Whole, error)
}

// Target is a store to which jobs can be added.
type Target interface {
	Jobs
	// Put adds the missing parts of a job and keeps existing ones.
	Put(ctx context.Context, w *job.Whole) error
	// Expired reports whether the target would expire a job with that id.
	Expired(jid string) bool
	// Settle is called after the last Put, before jobs are read again.
	Settle(ctx context.Context) error
	// Texts reports whether results are returned as strings, which cannot be compared.
	Texts() bool
}

// lateRounds is how often jobs that arrived during the copy are copied before they count as
// missing.
const lateRounds = 3

// CopyJobs copies jobs, oldest first, and then those that arrived at the source meanwhile. It fails only if a
// store is unreachable.
func CopyJobs(ctx context.Context, from Jobs, to Target, o Options) (r Report, err error) {
	jids, err := from.JIDs(ctx)
	if err != nil {
		return r, err
	}
	slices.Sort(jids)
	known := map[string]bool{}
	failed := map[string]bool{}
	for i, jid := range jids {
		if err := ended(ctx); err != nil {
			return r, err
		}
		known[jid] = true
		if err := copyJob(ctx, from, to, jid, o, &r, failed); err != nil {
			return r, err
		}
		o.progress("jobs", i+1, len(jids))
	}
	if o.DryRun {
		return r, nil
	}
	if err := to.Settle(ctx); err != nil {
		return r, err
	}
	if m, ok := from.(*Running); ok {
		m.Close() // so that it makes a new snapshot
	}
	if jids, err = from.JIDs(ctx); err != nil {
		return r, err
	}
	slices.Sort(jids)
	for round := range lateRounds + 1 {
		late, err := compareJobs(ctx, from, to, jids, round < lateRounds, o, &r, failed)
		if err != nil {
			return r, err
		}
		if len(late) == 0 {
			break
		}
		for _, jid := range late {
			if !known[jid] {
				known[jid] = true
				r.Found++
				r.Copied++
			}
		}
		if err := to.Settle(ctx); err != nil {
			return r, err
		}
		jids = late
	}
	return r, nil
}

// compareJobs reads jobs again at the target. If again, it copies and returns jobs that arrived at the source
// meanwhile.
func compareJobs(ctx context.Context, from Jobs, to Target, jids []string, again bool, o Options, r *Report, failed map[string]bool) (late []string,
	err error) {
	for i, jid := range jids {
		if err := ended(ctx); err != nil {
			return nil, err
		}
		w, err := from.Job(ctx, jid)
		if err != nil || w == nil || failed[jid] || to.Expired(jid) {
			continue // already reported, or expired meanwhile
		}
		there, err := to.Job(ctx, jid)
		if err != nil {
			return nil, err
		}
		text := differs(w, there, to.Texts())
		switch {
		case text == "":
			r.Verified++
		case again && (there == nil || len(lacking(w, there)) > 0):
			if err := to.Put(ctx, w); err != nil && salt.KindOf(err) == salt.Unavailable {
				return nil, err
			} else if err != nil {
				failed[jid] = true
				r.fail("%s: %v", jid, err)
				continue
			}
			late = append(late, jid)
		default:
			r.fail("%s: %s", jid, text)
		}
		o.progress("jobs: compared", i+1, len(jids))
	}
	return late, nil
}

func copyJob(ctx context.Context, from Jobs, to Target, jid string, o Options, r *Report, failed map[string]bool) error {
	fail := func(err error) error {
		if ctx.Err() != nil {
			return ended(ctx)
		}
		if salt.KindOf(err) == salt.Unavailable {
			return err
		}
		failed[jid] = true
		r.fail("%s: %v", jid, err)
		return nil
	}
	w, err := from.Job(ctx, jid)
	if err != nil {
		r.Found++
		return fail(err)
	}
	if w == nil { // expired meanwhile
		return nil
	}
	r.Found++
	if to.Expired(jid) {
		r.Expired++
		return nil
	}
	there, err := to.Job(ctx, jid)
	if err != nil {
		return fail(err)
	}
	if there != nil && len(lacking(w, there)) == 0 {
		r.Same++
		return nil
	}
	if !o.DryRun {
		if err := to.Put(ctx, w); err != nil {
			return fail(err)
		}
	}
	r.Copied++
	return nil
}

// lacking returns the minions whose return is missing at the target.
func lacking(w, there *job.Whole) (ids []string) {
	for _, id := range slices.Sorted(maps.Keys(w.Returns)) {
		if there.Returns[id] == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// differs describes the difference of a job at the target, "" for none.
func differs(w, there *job.Whole, texts bool) string {
	if there == nil {
		return "it is missing at the target"
	}
	if ids := lacking(w, there); len(ids) > 0 {
		return "the return of " + ids[0] + " is missing at the target"
	}
	if w.Load.Str("fun") != there.Load.Str("fun") {
		return "the target has a job with another function"
	}
	if texts {
		return ""
	}
	for _, id := range slices.Sorted(maps.Keys(w.Returns)) {
		ret := w.Returns[id]
		a, err := returner.AsStored(ret.At("return"))
		if err != nil {
			return err.Error()
		}
		b, err := returner.AsStored(there.Returns[id].At("return"))
		if err != nil || !value.Equal(a, b) {
			return "the target has a different return of " + id
		}
	}
	return ""
}

// Files is the job cache of Salt's files in a cachedir.
type Files struct{ Cache *job.LocalCache }

// JIDs returns the ids of all jobs.
func (f Files) JIDs(context.Context) (jids []string, err error) {
	err = f.Cache.Jobs(func(j *job.Job) bool {
		if salt.ValidJID(j.JID) {
			jids = append(jids, j.JID)
		}
		return true
	})
	return jids, err
}

// Job returns a job.
func (f Files) Job(_ context.Context, jid string) (*job.Whole, error) { return f.Cache.Lookup(jid) }

// Put adds the missing parts of a job.
func (f Files) Put(_ context.Context, w *job.Whole) error { return f.Cache.Put(w) }

// Expired is false: the age of files is their time of writing.
func (f Files) Expired(string) bool { return false }

// Settle does nothing.
func (f Files) Settle(context.Context) error { return nil }

// Texts is false.
func (f Files) Texts() bool { return false }

// Database is the job database of a master that is not running.
type Database struct{ Store *job.Store }

// JIDs returns the ids of all jobs.
func (d Database) JIDs(context.Context) (jids []string, err error) {
	_, err = d.Store.List(job.Filter{Oldest: true, Keep: func(j *job.Job) bool {
		jids = append(jids, j.JID)
		return false
	}})
	return jids, err
}

// Job returns a job.
func (d Database) Job(_ context.Context, jid string) (*job.Whole, error) { return d.Store.Whole(jid) }

// Put adds the missing parts of a job.
func (d Database) Put(_ context.Context, w *job.Whole) error { return d.Store.Put(w) }

// Expired reports whether the store would expire the job.
func (d Database) Expired(jid string) bool { return d.Store.Expired(jid) }

// Settle does nothing.
func (d Database) Settle(context.Context) error { return nil }

// Texts is false.
func (d Database) Texts() bool { return false }

// Running is the database of a running master. The master provides a snapshot, and adopts new jobs
// from Salt's files.
type Running struct {
	// Snapshot returns a copy of the current jobs.
	Snapshot func(ctx context.Context) (*job.Store, error)
	// Adopt makes the master adopt the jobs in Files.
	Adopt func(ctx context.Context) error
	Files *job.LocalCache
	// Options are the master's, for the expiry of jobs.
	Options job.Options

	now *job.Store
}

func (m *Running) look(ctx context.Context) (*job.Store, error) {
	if m.now != nil {
		return m.now, nil
	}
	s, err := m.Snapshot(ctx)
	if err == nil {
		m.now = s
	}
	return s, err
}

// JIDs returns the ids of all jobs.
func (m *Running) JIDs(ctx context.Context) ([]string, error) {
	s, err := m.look(ctx)
	if err != nil {
		return nil, err
	}
	return Database{s}.JIDs(ctx)
}

// Job returns a job from the snapshot.
func (m *Running) Job(ctx context.Context, jid string) (*job.Whole, error) {
	s, err := m.look(ctx)
	if err != nil {
		return nil, err
	}
	return s.Whole(jid)
}

// Put adds a job to the files that the master will adopt.
func (m *Running) Put(_ context.Context, w *job.Whole) error { return m.Files.Put(w) }

// Expired reports whether the master would expire the job.
func (m *Running) Expired(jid string) bool { return m.Options.Expired(jid, time.Now()) }

// Settle makes the master adopt the added jobs.
func (m *Running) Settle(ctx context.Context) error {
	if err := m.Adopt(ctx); err != nil {
		return err
	}
	m.Close()
	return nil
}

// Texts is false.
func (m *Running) Texts() bool { return false }

// Close closes the snapshot.
func (m *Running) Close() {
	if m.now != nil {
		m.now.Close()
		m.now = nil
	}
}

// Server is the jobs on the server of a returner.
type Server struct {
	R returner.Returner
	// OnlyTexts is returner.Texts of its name.
	OnlyTexts bool
	// Timeout bounds each call.
	Timeout time.Duration
}

func (s Server) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.Timeout)
}

// listing is the timeout of listing all jobs, as a multiple of Timeout.
const listing = 60

// JIDs returns the ids of all jobs.
func (s Server) JIDs(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, listing*s.Timeout)
	defer cancel()
	all, err := s.R.Jobs(ctx)
	var jids []string
	for jid := range all {
		if salt.ValidJID(jid) {
			jids = append(jids, jid)
		}
	}
	return jids, err
}

// Job returns a job.
func (s Server) Job(ctx context.Context, jid string) (*job.Whole, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	load, err := s.R.Load(ctx, jid)
	if load == nil || err != nil {
		return nil, err
	}
	w := &job.Whole{Job: job.Job{JID: jid, Load: load.Clone()}}
	w.Returns, err = s.R.Returns(ctx, jid)
	if w.Load.Has("Minions") {
		w.Minions = []string{}
		for _, id := range w.Load.List("Minions") {
			w.Minions = append(w.Minions, value.Str(id))
		}
		w.Load.Delete("Minions")
	}
	for id := range w.Returns {
		if salt.CheckID(id) != nil {
			delete(w.Returns, id)
		}
	}
	return w, err
}

// Put adds the missing parts of a job: returns first, so that the job becomes visible when it is complete.
func (s Server) Put(ctx context.Context, w *job.Whole) error {
	there, err := s.Job(ctx, w.JID)
	if err != nil {
		return err
	}
	var has map[string]*value.Dict
	if there != nil {
		has = there.Returns
	} else if has, err = s.returns(ctx, w.JID); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(w.Returns)) {
		if has[id] != nil {
			continue
		}
		ret := w.Returns[id].Clone()
		ret.Set("jid", w.JID)
		ret.Set("id", id)
		for k, v := range map[string]any{"fun": w.Load.At("fun"), "fun_args": w.Load.At("arg"), "success": true, "retcode": 0} {
			if !ret.Has(k) {
				ret.Set(k, v)
			}
		}
		if err := s.call(ctx, func(ctx context.Context) error { return s.R.Return(ctx, ret) }); err != nil {
			return err
		}
	}
	if there != nil {
		return nil
	}
	load := w.Load.Clone()
	if w.Minions != nil {
		load.Set("Minions", value.Strings(w.Minions))
	}
	return s.call(ctx, func(ctx context.Context) error { return s.R.SaveLoad(ctx, w.JID, load) })
}

func (s Server) call(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return do(ctx)
}

func (s Server) returns(ctx context.Context, jid string) (out map[string]*value.Dict, err error) {
	err = s.call(ctx, func(ctx context.Context) error {
		out, err = s.R.Returns(ctx, jid)
		return err
	})
	return out, err
}

// Expired is false: a server expires jobs by its own rules.
func (s Server) Expired(string) bool { return false }

// Settle does nothing.
func (s Server) Settle(context.Context) error { return nil }

// Texts reports whether results are returned as strings.
func (s Server) Texts() bool { return s.OnlyTexts }
