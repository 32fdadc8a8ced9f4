package runners

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/store/job"
	"brine/internal/store/returner"
)

// JobStores gives access to the jobs of the master and of its returners.
type JobStores struct {
	Jobs
	// Returners may be nil.
	Returners JobReturners
	// Database is nil for a master that keeps its jobs in Salt's files.
	Database JobDatabase
	// Sites is nil unless this master commands sites.
	Sites Federation
	// Running returns the active runners, each a dict of fun, jid, user and fun_args.
	Running func() []*value.Dict
}

// JobReturners gives access to returners that store jobs.
type JobReturners interface {
	// JobsOf returns the jobs in a returner.
	JobsOf(name string) (Jobs, error)
	// Statuses returns the status of the servers that receive this master's jobs.
	Statuses() []returner.OutboxStatus
}

// JobDatabase is the master's own database of jobs.
type JobDatabase interface {
	// Snapshot writes the jobs to a directory of the master, and returns its path.
	Snapshot() (dir string, err error)
	// Adopt imports the jobs in Salt's files, and returns how many it examined.
	Adopt() (int, error)
}

type jobs struct {
	JobStores
	minions Commander
}

func init() { runners.Register("jobs", jobsModule) }

func jobsModule(d Deps) fn.Module {
	j := jobs{d.Jobs, d.Client}
	return fn.Module{Name: "jobs", Doc: `Current and former jobs, and their returns.`, Funcs: []fn.Func{
		fn.Of("active", j.active, `Return the jobs that minions are running now.`, fn.Example("salt-run jobs.active")),
		fn.Of("master", j.master, `Return the runners that the master runs now, except this one.`, fn.Example("salt-run jobs.master")),
		fn.Of("lookup_jid", j.lookupJID, `Return what the minions returned for a job.`,
			fn.Example("salt-run jobs.lookup_jid 20130916125524463507"), fn.Example("salt-run jobs.lookup_jid 20130916125524463507 --out=highstate")),
		fn.Of("list_job", j.listJob, `Return the details of a job.`, fn.Example("salt-run jobs.list_job 20130916125524463507")),
		fn.Of("list_jobs", j.listJobs, `Return all jobs, or those that match all filters.`,
			fn.Example("salt-run jobs.list_jobs"), fn.Example("salt-run jobs.list_jobs search_function='test.*' search_target=localhost"),
			fn.Example("salt-run jobs.list_jobs start_time='2015, Mar 16 19:00' end_time='2015, Mar 18 22:00'")),
		fn.Of("list_jobs_filter", j.listJobsFilter, `Return the newest jobs, in the order of their ids.`,
			fn.Example("salt-run jobs.list_jobs_filter 50"), fn.Example("salt-run jobs.list_jobs_filter 100 filter_find_job=False")),
		fn.Of("print_job", j.printJob, `Return the details of a job, under its id.`, fn.Example("salt-run jobs.print_job 20130916125524463507")),
		fn.Of("exit_success", j.exitSuccess, `Return for each minion of a job whether its return counts as true.`,
			fn.Example("salt-run jobs.exit_success 20160520145827701627")),
		fn.Of("cache_status", j.cacheStatus, `Return for each returner whether it is reachable, and how much is queued for it.`,
			fn.Example("salt-run jobs.cache_status")),
		fn.Of("snapshot", j.snapshot,
			`Write a copy of the master's own job database into a directory in cachedir and return the path. Used by brine migrate.`,
			fn.Example("salt-run jobs.snapshot")),
		fn.Of("adopt", j.adopt,
			`Import the jobs from Salt's files in cachedir that have not expired into the master's own database, and return how many were read. `+
				`Existing jobs stay.`, fn.Example("salt-run jobs.adopt")),
		fn.Of("last_run", j.lastRun, `Return the details of the last job, or of the last that matches all filters.`,
			fn.Example("salt-run jobs.last_run"), fn.Example("salt-run jobs.last_run target=nodename"),
			fn.Example("salt-run jobs.last_run function=cmd.run")),
	}}
}

type progressArgs struct {
	Progress bool `salt:"display_progress" doc:"show progress" default:"false"`
}

// from returns the job functions of the named returner, or of the job cache.
func (j jobs) from(source any) (jobs, error) {
	if !value.Truth(source) || j.Returners == nil {
		return j, nil
	}
	far, err := j.Returners.JobsOf(value.Str(source))
	if err != nil {
		return j, fn.Errorf("%w", err)
	}
	j.Jobs = far
	return j, nil
}

func (j jobs) cacheStatus(context.Context, *fn.Call, none) (*value.List, error) {
	out := &value.List{}
	if j.Returners == nil {
		return out, nil
	}
	for _, s := range j.Returners.Statuses() {
		d := value.DictOf("returner", s.Name, "connected", s.Unreachable == nil, "waiting", s.Waiting, "since",
			s.Since.UTC().Format("2006-01-02T15:04:05.000000"))
		if s.Unreachable != nil {
			d.Set("error", s.Unreachable.Error())
		}
		out.Append(d)
	}
	return out, nil
}

// errNoDatabase is the error of a master that keeps its jobs in Salt's files.
var errNoDatabase = fn.Errorf("this master is in a cluster and keeps its jobs in the files in cachedir; it has no database of its own")

func (j jobs) snapshot(context.Context, *fn.Call, none) (string, error) {
	if j.Database == nil {
		return "", errNoDatabase
	}
	return j.Database.Snapshot()
}

func (j jobs) adopt(context.Context, *fn.Call, none) (int, error) {
	if j.Database == nil {
		return 0, errNoDatabase
	}
	return j.Database.Adopt()
}

// returnerName is the name of Salt's master job cache.
const returnerName = "local_cache"

// tell reports progress if requested.
func (a progressArgs) tell(c *fn.Call, text string) {
	if a.Progress {
		c.Report(value.DictOf("message", text))
	}
}

// jidArgs are the arguments of functions for one job.
type jidArgs struct {
	JID    string `salt:"jid" doc:"job id"`
	Source any    `salt:"ext_source" doc:"returner to ask instead of the job cache" default:"null"`
}

type lookupArgs struct {
	jidArgs
	Returned bool `salt:"returned" doc:"include the minions that returned" default:"true"`
	Missing  bool `salt:"missing" doc:"include the minions that did not return" default:"false"`
	progressArgs
}

func (j jobs) lookupJID(_ context.Context, c *fn.Call, a lookupArgs) (any, error) {
	j, err := j.from(a.Source)
	if err != nil {
		return nil, err
	}
	returns, err := j.Jobs.Returns(a.JID)
	if err != nil {
		return nil, err
	}
	ids := slices.Sorted(maps.Keys(returns))
	ret := value.NewDict(len(ids))
	out := ""
	a.tell(c, "Querying returner: "+returnerName)
	for i, id := range ids {
		a.tell(c, id)
		if a.Returned {
			ret.Set(id, returns[id].At("return"))
		}
		if i == 0 {
			out = returns[id].Str("out")
		}
	}
	if a.Missing {
		minions, err := j.Jobs.Minions(a.JID)
		if err != nil {
			return nil, err
		}
		for _, id := range minions {
			if returns[id] == nil {
				ret.Set(id, "Minion did not return")
			}
		}
	}
	return withOutputter(out, ret), nil
}

type listJobArgs struct {
	jidArgs
	progressArgs
}

func (j jobs) listJob(_ context.Context, c *fn.Call, a listJobArgs) (*value.Dict, error) {
	j, err := j.from(a.Source)
	if err != nil {
		return nil, err
	}
	a.tell(c, "Querying returner: "+returnerName)
	d, err := j.describe(a.JID)
	if err != nil {
		return nil, err
	}
	d.Insert(0, "jid", a.JID)
	return d, nil
}

func (j jobs) printJob(_ context.Context, _ *fn.Call, a jidArgs) (*value.Dict, error) {
	j, err := j.from(a.Source)
	if err != nil {
		return nil, err
	}
	d, err := j.describe(a.JID)
	if err != nil {
		return nil, err
	}
	return value.DictOf(a.JID, d), nil
}

// describe returns the details of a job.
func (j jobs) describe(jid string) (*value.Dict, error) {
	load, err := j.Jobs.Load(jid)
	if err != nil {
		return nil, err
	}
	minions, err := j.Jobs.Minions(jid)
	if err != nil {
		return nil, err
	}
	returns, err := j.Jobs.Returns(jid)
	if err != nil {
		return nil, err
	}
	d := instance(load)
	if load != nil && minions != nil {
		slices.Sort(minions)
		d.Set("Minions", value.Strings(minions))
	}
	d.Set("StartTime", startTime(jid))
	result := value.NewDict(len(returns))
	for _, id := range slices.Sorted(maps.Keys(returns)) {
		r := returns[id].Clone()
		r.Delete("_stamp") // internal to the store
		result.Set(id, r)
	}
	d.Set("Result", result)
	return d, nil
}

// instance describes a job by its published load.
func instance(load *value.Dict) *value.Dict {
	if load.Len() == 0 {
		return value.DictOf("Error", "Cannot contact returner or no job with this jid")
	}
	or := func(key string, other any) any {
		if v, ok := load.Get(key); ok {
			return v
		}
		return other
	}
	d := value.DictOf("Function", or("fun", "unknown-function"), "Arguments", value.ListOf(load.List("arg")...),
		"Target", or("tgt", "unknown-target"), "Target-type", or("tgt_type", "list"), "User", or("user", "root"))
	if md, ok := load.Get("metadata"); ok {
		d.Set("Metadata", md)
	} else if md, ok := load.Dict("kwargs").Get("metadata"); ok {
		d.Set("Metadata", md)
	}
	if r, ok := load.Get("revision"); ok {
		d.Set("Revision", r)
	}
	return d
}

// startTime formats the time in a job id.
func startTime(jid string) string {
	t, err := salt.JIDTime(jid)
	if err != nil {
		return ""
	}
	return t.Format("2006, Jan 02 15:04:05.000000")
}

func (j jobs) exitSuccess(_ context.Context, _ *fn.Call, a jidArgs) (*value.Dict, error) {
	j, err := j.from(a.Source)
	if err != nil {
		return nil, err
	}
	minions, err := j.Jobs.Minions(a.JID)
	if err != nil {
		return nil, err
	}
	returns, err := j.Jobs.Returns(a.JID)
	if err != nil {
		return nil, err
	}
	slices.Sort(minions)
	ret := value.NewDict(len(minions))
	for _, id := range minions {
		ret.Set(id, value.Truth(returns[id].At("return")))
	}
	for _, id := range slices.Sorted(maps.Keys(returns)) {
		if value.Truth(returns[id].At("return")) {
			ret.Set(id, true)
		}
	}
	return ret, nil
}

type listArgs struct {
	Source    any    `salt:"ext_source" doc:"returner to ask instead of the job cache" default:"null"`
	Outputter string `salt:"outputter" doc:"outputter for the result" default:""`
	Metadata  any    `salt:"search_metadata" doc:"map; a job matches with one of these entries in its metadata" default:"null"`
	Function  any    `salt:"search_function" doc:"pattern, or list of patterns, for the function" default:"null"`
	Target    any    `salt:"search_target" doc:"pattern, or list of patterns, for the target" default:"null"`
	Start     any    `salt:"start_time" doc:"only jobs before this time (UTC)" default:"null"`
	End       any    `salt:"end_time" doc:"only jobs after this time (UTC)" default:"null"`
	progressArgs
}

func (j jobs) listJobs(_ context.Context, c *fn.Call, a listArgs) (any, error) {
	j, err := j.from(a.Source)
	if err != nil {
		return nil, err
	}
	a.tell(c, "Querying returner "+returnerName+" for jobs.")
	list, err := j.filtered(a)
	if err != nil {
		return nil, err
	}
	ret := value.NewDict(len(list))
	for _, jb := range list {
		d := instance(jb.Load)
		d.Set("StartTime", startTime(jb.JID))
		ret.Set(jb.JID, d)
	}
	return withOutputter(a.Outputter, ret), nil
}

// filtered returns the matching jobs, sorted by their ids.
func (j jobs) filtered(a listArgs) ([]*job.Job, error) {
	var start, end time.Time
	var err error
	if value.Truth(a.Start) {
		if start, err = parseTime(value.Str(a.Start)); err != nil {
			return nil, err
		}
	}
	if value.Truth(a.End) {
		if end, err = parseTime(value.Str(a.End)); err != nil {
			return nil, err
		}
	}
	funs, tgts := patterns(a.Function), patterns(a.Target)
	list, err := j.Jobs.List(job.Filter{Oldest: true, Keep: func(jb *job.Job) bool {
		if value.Truth(a.Metadata) && !hasMetadata(jb.Load, a.Metadata) ||
			len(funs) > 0 && !matchAny(funs, value.Str(jb.Load.At("fun"))) ||
			len(tgts) > 0 && !targets(jb.Load.At("tgt"), tgts) {
			return false
		}
		if start.IsZero() && end.IsZero() {
			return true
		}
		t, err := salt.JIDTime(jb.JID)
		return err == nil && (start.IsZero() || !t.Before(start)) && (end.IsZero() || !t.After(end))
	}})
	slices.SortFunc(list, func(a, b *job.Job) int {
		if a.JID < b.JID {
			return -1
		}
		return 1
	})
	return list, err
}

func hasMetadata(load *value.Dict, want any) bool {
	d, _ := want.(*value.Dict)
	have, _ := instance(load).At("Metadata").(*value.Dict)
	for k, v := range d.All() {
		if w, ok := have.Get(k); ok && value.Equal(v, w) {
			return true
		}
	}
	return false
}

func targets(tgt any, globs []target.Glob) bool {
	l, ok := tgt.(*value.List)
	if !ok {
		return matchAny(globs, value.Str(tgt))
	}
	return slices.ContainsFunc(l.Items, func(it any) bool { return matchAny(globs, value.Str(it)) })
}

// timeLayouts are the accepted formats of times.
var timeLayouts = []string{
	"2006, Jan 2 15:04:05.999999", "2006, Jan 2 15:04", "2006, Jan 2", "2006-1-2 15:04:05.999999", "2006-1-2T15:04:05.999999", time.RFC3339Nano,
	"2006-1-2 15:04", "2006-1-2T15:04", "2006-1-2", "Jan 2 2006 15:04:05", "Jan 2 2006 15:04", "Jan 2 2006", "Jan 2, 2006", "2 Jan 2006", "2 Jan 2006 15:04",
	"2006/1/2 15:04:05", "2006/1/2 15:04", "2006/1/2", "20060102T150405", "20060102150405", "20060102",
}

func parseTime(text string) (time.Time, error) {
	for _, l := range timeLayouts {
		if t, err := time.Parse(l, text); err == nil {
			return t.UTC(), nil
		}
	}
	if t, err := salt.JIDTime(text); err == nil {
		return t, nil
	}
	return time.Time{}, fn.Errorf("cannot parse time %q: write it as 2026-11-21 15:04 or 2026, Nov 21 15:04", text)
}

type filterArgs struct {
	Count     int    `salt:"count" doc:"number of jobs"`
	NoFindJob bool   `salt:"filter_find_job" doc:"leave out saltutil.find_job" default:"true"`
	Source    any    `salt:"ext_source" doc:"returner to ask instead of the job cache" default:"null"`
	Outputter string `salt:"outputter" doc:"outputter for the result" default:""`
	progressArgs
}

func (j jobs) listJobsFilter(_ context.Context, c *fn.Call, a filterArgs) (any, error) {
	j, err := j.from(a.Source)
	if err != nil {
		return nil, err
	}
	a.tell(c, "Querying returner "+returnerName+" for jobs.")
	ret := &value.List{}
	if a.Count <= 0 {
		return withOutputter(a.Outputter, ret), nil
	}
	list, err := j.Jobs.List(job.Filter{Limit: a.Count, Keep: func(jb *job.Job) bool {
		return !a.NoFindJob || jb.Load.At("fun") != "saltutil.find_job"
	}})
	if err != nil {
		return nil, err
	}
	slices.Reverse(list)
	for _, jb := range list {
		d := instance(jb.Load)
		d.Set("JID", jb.JID)
		d.Set("StartTime", startTime(jb.JID))
		ret.Append(d)
	}
	return withOutputter(a.Outputter, ret), nil
}

type lastArgs struct {
	Source    any    `salt:"ext_source" doc:"returner to ask instead of the job cache" default:"null"`
	Outputter string `salt:"outputter" ignored:"the result has the form of jobs.print_job" default:""`
	Metadata  any    `salt:"metadata" doc:"map; a job matches with one of these entries in its metadata" default:"null"`
	Function  any    `salt:"function" doc:"pattern, or list of patterns, for the function" default:"null"`
	Target    any    `salt:"target" doc:"pattern, or list of patterns, for the target" default:"null"`
	progressArgs
}

func (j jobs) lastRun(ctx context.Context, c *fn.Call, a lastArgs) (any, error) {
	j, err := j.from(a.Source)
	if err != nil {
		return nil, err
	}
	if _, ok := a.Metadata.(*value.Dict); a.Metadata != nil && !ok {
		c.Log.Info("The metadata parameter must be specified as a dictionary")
		return false, nil
	}
	a.tell(c, "Querying returner "+returnerName+" for jobs.")
	list, err := j.filtered(listArgs{Metadata: a.Metadata, Function: a.Function, Target: a.Target})
	if err != nil || len(list) == 0 {
		return false, err
	}
	return j.printJob(ctx, c, jidArgs{JID: list[len(list)-1].JID})
}

func (j jobs) master(_ context.Context, c *fn.Call, _ none) (*value.List, error) {
	ret := &value.List{}
	for _, d := range j.Running() {
		if d.Str("jid") != c.JID {
			ret.Append(d)
		}
	}
	return ret, nil
}

func (j jobs) active(ctx context.Context, c *fn.Call, a progressArgs) (*value.Dict, error) {
	ret := value.NewDict(0)
	_, results, err := j.minions.Call(ctx, client.Job{Target: "*", Fun: "saltutil.running"})
	if errors.Is(err, client.ErrNoMatch) {
		return ret, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, r := range results {
		if !r.Absent {
			ids = append(ids, r.ID)
		}
	}
	a.tell(c, "Attempting to contact minions: "+value.Repr(value.Strings(ids)))
	for _, r := range results {
		if !r.Absent {
			a.tell(c, "Received reply from minion "+r.ID)
		}
		l, _ := r.Return.(*value.List)
		if l == nil {
			continue
		}
		for _, it := range l.Items {
			if d, ok := it.(*value.Dict); ok && salt.ValidJID(d.Str("jid")) {
				addRunning(ret, d, r.ID)
			}
		}
	}
	for jid, d := range ret.All() {
		returns, err := j.Jobs.Returns(value.Str(jid))
		if err != nil {
			return nil, err
		}
		d.(*value.Dict).Set("Returned", value.Strings(slices.Sorted(maps.Keys(returns))))
	}
	return ret, nil
}

// addRunning records that a minion runs a job.
func addRunning(ret, running *value.Dict, id string) {
	jid := running.Str("jid")
	if !ret.Has(jid) {
		d := instance(running)
		d.Set("StartTime", startTime(jid))
		d.Set("Running", &value.List{})
		d.Set("Returned", &value.List{})
		ret.Set(jid, d)
	}
	ret.Dict(jid).At("Running").(*value.List).Append(value.DictOf(id, running.At("pid")))
}
