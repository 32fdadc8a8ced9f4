// Package runner runs the jobs of a minion: those that masters publish, scheduled ones, and
// the one of startup_states. Each job runs once, through the executors, within
// process_count_max. Its return goes to the outbox and the returners.
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"brine/internal/base/liveness"
	"brine/internal/base/salt"
	"brine/internal/base/trace"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/background"
	"brine/internal/daemons/minion/calls"
	"brine/internal/daemons/minion/jobs"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/daemons/minion/returners"
	"brine/internal/host/proc"
	"brine/internal/py/value"
)

// Options are the options of the minion that this package uses.
type Options struct {
	ProcessCountMax int      `salt:"process_count_max" default:"-1" doc:"jobs that may run at the same time; further ones wait; -1 is no limit" change:"restart"`
	ModuleExecutors any      `salt:"module_executors" default:"direct_call" doc:"what functions are called by, one or a list: direct_call, sudo, modules of the user, or splay before one of them" change:"restart"`
	SudoUser        string   `salt:"sudo_user" default:"" doc:"user as whom functions of jobs run, by sudo and salt-call (the executor sudo, which then is the last one of every list)" change:"restart"`
	StartupStates   string   `salt:"startup_states" default:"" doc:"states to run once at the start, whichever master is connected first: highstate, sls (those of sls_list) or top (those of top_file)" change:"restart"`
	SLSList         []string `salt:"sls_list" default:"[]" doc:"states for startup_states: sls" change:"restart"`
	TopFile         string   `salt:"top_file" default:"" doc:"top file for startup_states: top" change:"restart"`
}

// Config is the configuration of a Runner.
type Config struct {
	Options Options
	// ID is the minion's id.
	ID string
	// ConfDir is the directory of the configuration.
	ConfDir string
	// Once says that this process makes one call, as salt-call does. Like Salt's it does not use sudo_user unless an executor is named.
	Once bool
	// Executors are the user's executors, nil for none.
	Executors Executors
	// ScheduledReturners are the returners of all scheduled jobs.
	ScheduledReturners any
	Jobs               *jobs.Table
	Notes              *jobs.Notes
	Outbox             *outbox.Outbox
	Links              *link.Set
	Returners          *returners.Returners
	Calls              *calls.Factory
	// Funcs returns the callable functions.
	Funcs      func() *fn.Registry
	Grains     func() *value.Dict
	Background *background.Group
	// Tracer sends spans of jobs; nil for none.
	Tracer *trace.Tracer
	Log    *slog.Logger
}

// Runner runs jobs.
type Runner struct {
	cfg   Config
	slots *slots // nil: process_count_max sets no limit
	plain bool   // the configuration names direct_call alone

	starts liveness.Steps // jobs that are being accepted or recorded
}

// New returns a Runner.
func New(c Config) *Runner {
	r := &Runner{cfg: c}
	names, err := executorsOf(c.Options.ModuleExecutors)
	r.plain = err == nil && len(names) == 1 && names[0] == directCall && (c.Options.SudoUser == "" || c.Once)
	if n := c.Options.ProcessCountMax; n > 0 {
		r.slots = &slots{free: n}
	}
	return r
}

// CheckLive returns an error if a job that was published does not start. Jobs that wait for a free
// slot, and those that run, do not count. It blocks while the lock of the slots is held.
func (r *Runner) CheckLive() error {
	if r.slots != nil {
		r.slots.count()
	}
	return r.starts.Check("the start of a job", liveness.StepTime)
}

// controls are the job control functions. They never wait for a free slot;
// otherwise a busy minion could not be asked what it is doing.
var controls = map[string]bool{
	"saltutil.find_job": true, "saltutil.running": true, "saltutil.is_running": true,
	"saltutil.kill_job": true, "saltutil.term_job": true, "saltutil.signal_job": true,
	"saltutil.kill_all_jobs": true, "saltutil.term_all_jobs": true,
}

// begin runs a job in the background. Jobs that wait for a free slot get one in the
// order of the calls.
func (r *Runner) begin(j *jobs.Job) {
	name, one := j.Fun.(string)
	lasting := !one || !controls[name]
	var turn chan struct{}
	if r.slots != nil && lasting {
		turn = r.slots.enter()
	}
	r.cfg.Background.Go(func() {
		if turn != nil {
			defer r.slots.leave(turn)
		}
		r.execute(r.cfg.Background.Context(), j, lasting, turn)
	})
}

// execute runs a job and queues its return for every master that published it. lasting
// means that the job is recorded; turn, if not nil, is closed when the job may run.
func (r *Runner) execute(ctx context.Context, j *jobs.Job, lasting bool, turn <-chan struct{}) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	procs := &proc.Group{}
	r.cfg.Jobs.Start(j, cancel, procs)
	if turn != nil {
		select {
		case <-turn:
		case <-ctx.Done():
		}
	}
	if lasting {
		started := r.starts.Begin()
		end, err := r.note(ctx, j, procs)
		started()
		if err != nil {
			ret := r.returnLoad(j, fn.Outcome{Return: "ERROR: " + err.Error(), Retcode: 1, Out: "nested", Err: err})
			r.cfg.Outbox.GiveBack(ret, queues(r.cfg.Jobs.Finish(j, ret)), true)
			return
		}
		defer end()
	}
	r.cfg.Jobs.Begun(j)
	r.cfg.Log.Info("job", "jid", j.JID, "fun", value.Str(j.Fun), "user", j.Pub.User)
	record := r.fetchRecord(j)
	forget := r.cfg.Notes.Record(j)
	began := time.Now()
	ret := r.bounded(proc.WithGroup(ctx, procs), j)
	forget()
	if lasting {
		traceJob(r.cfg.Tracer, r.cfg.ID, j, ret, began)
	}
	if lasting {
		r.cfg.Returners.Send(&j.Pub, r.pillarOf(j), ret)
	}
	ret, to := r.forActive(ret, record, r.cfg.Jobs.Finish(j, ret))
	r.cfg.Outbox.GiveBack(ret, queues(to), lasting)
}

// grace is how long a cancelled job may take to end.
const grace = 3 * time.Second

// bounded runs the job. It stops waiting for a function that does not end in time after it
// is cancelled.
func (r *Runner) bounded(ctx context.Context, j *jobs.Job) *value.Dict {
	done := make(chan *value.Dict, 1)
	r.cfg.Background.Go(func() { done <- r.perform(ctx, j) })
	select {
	case ret := <-done:
		return ret
	case <-ctx.Done():
	}
	select {
	case ret := <-done:
		return ret
	case <-time.After(grace):
	}
	return r.returnLoad(j, ended(ctx))
}

func ended(ctx context.Context) fn.Outcome {
	err := context.Cause(ctx)
	code := 1
	var s jobs.Signalled
	if errors.As(err, &s) {
		code = 128 + int(s.Signal)
	}
	return fn.Outcome{Return: "ERROR: " + err.Error(), Retcode: code, Out: "nested", Err: err}
}

// perform calls the function or functions of the job.
func (r *Runner) perform(ctx context.Context, j *jobs.Job) *value.Dict {
	args := j.Pub.Args()
	if name, ok := j.Fun.(string); ok {
		o := r.call(ctx, j, name, args)
		if ctx.Err() != nil {
			o = ended(ctx)
		}
		return r.returnLoad(j, o)
	}
	funs, _ := j.Fun.(*value.List)
	rets, codes, oks := value.NewDict(4), value.NewDict(4), value.NewDict(4)
	for i := range funs.Len() {
		name := value.Str(funs.Items[i])
		var own []any
		if i < len(args) {
			if l, ok := args[i].(*value.List); ok {
				own = l.Items
			}
		}
		o := r.call(ctx, j, name, own)
		rets.Set(name, o.Return)
		codes.Set(name, int64(o.Retcode))
		oks.Set(name, o.Success)
	}
	load := r.returnLoad(j, fn.Outcome{Return: rets, Success: true})
	load.Set("retcode", codes)
	load.Set("success", oks)
	return load
}

func (r *Runner) call(ctx context.Context, j *jobs.Job, name string, args []any) fn.Outcome {
	c := r.cfg.Calls.New(j.First, j.JID)
	n := 0
	c.Progress = func(part any) {
		n++
		j.First.Out.Put(value.DictOf("id", r.cfg.ID, "cmd", "_minion_event", "pretag", nil,
			"tag", fmt.Sprintf("salt/job/%s/prog/%s/%d", j.JID, r.cfg.ID, n), "data", value.DictOf("return", part)))
	}
	return r.Through(ctx, j, c, fn.Job{Fun: name, Arg: args, Pub: j.Load, Blackout: true, Missing: true})
}

// pillarOf returns the pillar of the master that published a job; for other jobs, that of
// the first master that has sent one.
func (r *Runner) pillarOf(j *jobs.Job) *value.Dict {
	if j.First != nil {
		return j.First.Pillar()
	}
	return r.cfg.Links.Pillar()
}

// fitting replaces a result that is too large to send by an error.
func fitting(o fn.Outcome) fn.Outcome {
	if value.Weight(o.Return, outbox.MaxReturn) <= outbox.MaxReturn {
		return o
	}
	err := salt.Errorf(salt.Invalid, "the result has more than %d MiB, which no master takes: write it to a file", outbox.MaxReturn>>20)
	return fn.Outcome{Return: "ERROR: " + err.Error(), Retcode: 1, Err: err}
}

// returnLoad builds the return message of a job.
func (r *Runner) returnLoad(j *jobs.Job, o fn.Outcome) *value.Dict {
	o = fitting(o)
	load := value.DictOf("cmd", "_return", "id", r.cfg.ID, "success", o.Success, "return", o.Return,
		"retcode", o.Retcode, "jid", j.JID, "fun", j.Fun, "fun_args", j.Pub.Arg)
	for _, k := range []string{"user", "master_id", "metadata", "ret_config", "ret_kwargs"} {
		if v, ok := j.Load.Get(k); ok {
			load.Set(k, v)
		}
	}
	if j.Pub.Schedule != nil || j.Load.Has(startupKey) {
		// No master published this job, so the return has to describe it.
		load.Set("arg", j.Pub.Arg)
		load.Set("tgt", r.cfg.ID)
		load.Set("tgt_type", "glob")
	}
	if o.Out != "" {
		load.Set("out", o.Out)
	}
	load.Set("_stamp", time.Now().UTC().Format("2006-01-02T15:04:05.000000"))
	return load
}
