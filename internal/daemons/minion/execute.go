package minion

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/catalogue/runners"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/host/proc"
	"brine/internal/py/value"
)

// overseers names the functions that look after other jobs; they never wait for
// a free slot, or a full minion could not be asked what it is doing.
var overseers = map[string]bool{
	"saltutil.find_job": true, "saltutil.running": true, "saltutil.is_running": true,
	"saltutil.kill_job": true, "saltutil.term_job": true, "saltutil.signal_job": true,
	"saltutil.kill_all_jobs": true, "saltutil.term_all_jobs": true,
}

// execute runs a job and queues what it returns for every master that
// published it.
func (m *Minion) execute(ctx context.Context, j *job) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	procs := &proc.Group{}
	m.jobs.start(j, cancel, procs)
	name, one := j.fun.(string)
	lasting := !one || !overseers[name] // worth to be remembered
	if m.slots != nil && lasting {
		select {
		case m.slots <- struct{}{}:
			defer func() { <-m.slots }()
		case <-ctx.Done():
		}
	}
	if lasting {
		defer m.note(j, procs)()
	}
	m.log.Info("job", "jid", j.jid, "fun", value.Str(j.fun), "user", j.load.Str("user"))
	forget := m.recordProc(j)
	ret := m.bounded(proc.WithGroup(ctx, procs), j)
	forget()
	if lasting {
		m.returners.send(j, ret)
	}
	m.outbox.GiveBack(ret, queues(m.jobs.finish(j, ret)), lasting)
}

// splitWords divides a text at commas; it is empty of empty text.
func splitWords(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

// grace is how long a job that was told to end may take to do so.
const grace = 3 * time.Second

// bounded runs the job, and gives up waiting for a function that does not end
// when it is told to.
func (m *Minion) bounded(ctx context.Context, j *job) *value.Dict {
	done := make(chan *value.Dict, 1)
	m.background.Go(func() { done <- m.perform(ctx, j) })
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
	return m.returnLoad(j, ended(ctx))
}

func ended(ctx context.Context) fn.Outcome {
	err := context.Cause(ctx)
	code := 1
	var s signalled
	if errors.As(err, &s) {
		code = 128 + int(s.sig)
	}
	return fn.Outcome{Return: "ERROR: " + err.Error(), Retcode: code, Out: "nested", Err: err}
}

// perform calls the function, or functions, of the job.
func (m *Minion) perform(ctx context.Context, j *job) *value.Dict {
	args := j.load.List("arg")
	if name, ok := j.fun.(string); ok {
		o := m.call(ctx, j, name, args)
		if ctx.Err() != nil {
			o = ended(ctx)
		}
		return m.returnLoad(j, o)
	}
	funs, _ := j.fun.(*value.List)
	rets, codes, oks := value.NewDict(4), value.NewDict(4), value.NewDict(4)
	for i := range funs.Len() {
		name := value.Str(funs.Items[i])
		var own []any
		if i < len(args) {
			if l, ok := args[i].(*value.List); ok {
				own = l.Items
			}
		}
		o := m.call(ctx, j, name, own)
		rets.Set(name, o.Return)
		codes.Set(name, int64(o.Retcode))
		oks.Set(name, o.Success)
	}
	load := m.returnLoad(j, fn.Outcome{Return: rets, Success: true})
	load.Set("retcode", codes)
	load.Set("success", oks)
	return load
}

func (m *Minion) call(ctx context.Context, j *job, name string, args []any) fn.Outcome {
	c := m.newCall(j.first, j.jid)
	n := 0
	c.Progress = func(part any) {
		n++
		j.first.Out.Put(value.DictOf("id", m.cfg.ID, "cmd", "_minion_event", "pretag", nil,
			"tag", fmt.Sprintf("salt/job/%s/prog/%s/%d", j.jid, m.cfg.ID, n), "data", value.DictOf("return", part)))
	}
	return m.through(ctx, j, name, func() fn.Outcome {
		return m.funcs.Run(ctx, c, fn.Job{Fun: name, Arg: args, Pub: j.load, Blackout: true})
	})
}

// newCall prepares what a function sees of this minion and of one master.
func (m *Minion) newCall(from *link.Link, jid string) *fn.Call {
	pillar, opts := value.NewDict(0), m.cfg.Opts
	if from != nil {
		opts = from.Opts()
		if p := from.Pillar(); p != nil {
			pillar = p
		}
	}
	c := &fn.Call{
		ID: m.cfg.ID, JID: jid, Log: m.log,
		Grains: m.grainReader(from), Pillar: fn.Tree{Dict: pillar}, Config: fn.Tree{Dict: opts},
		Files: m.fileClient(from), Template: m.template, Render: m.render, Catalogues: map[string]*fn.Registry{"states": m.states.Declarations(), "runners": runnerDocs()},
	}
	switch {
	case m.own != nil:
		c.Pillar, c.CompilePillar = m.own, m.own.compile
	case from != nil:
		c.CompilePillar = from.AskPillar
	}
	return c
}

// fitting replaces a result that is too large for the way to the master.
func fitting(o fn.Outcome) fn.Outcome {
	if value.Weight(o.Return, outbox.MaxReturn) <= outbox.MaxReturn {
		return o
	}
	err := salt.Errorf(salt.Invalid, "the result has more than %d MiB, which no master takes: write it to a file", outbox.MaxReturn>>20)
	return fn.Outcome{Return: "ERROR: " + err.Error(), Retcode: 1, Err: err}
}

// returnLoad builds the message that carries a return to the master.
func (m *Minion) returnLoad(j *job, o fn.Outcome) *value.Dict {
	o = fitting(o)
	load := value.DictOf("cmd", "_return", "id", m.cfg.ID, "success", o.Success, "return", o.Return,
		"retcode", o.Retcode, "jid", j.jid, "fun", j.fun, "fun_args", j.load.At("arg"))
	for _, k := range []string{"user", "master_id", "metadata", "ret_config", "ret_kwargs"} {
		if v, ok := j.load.Get(k); ok {
			load.Set(k, v)
		}
	}
	if j.load.Has("schedule") || j.load.Has(startupKey) {
		// No master published this job: the return says what ran where.
		load.Set("arg", j.load.At("arg"))
		load.Set("tgt", m.cfg.ID)
		load.Set("tgt_type", "glob")
	}
	if o.Out != "" {
		load.Set("out", o.Out)
	}
	load.Set("_stamp", time.Now().UTC().Format("2006-01-02T15:04:05.000000"))
	return load
}

// runnerDocs returns the runners of a master, for their documentation.
var runnerDocs = sync.OnceValue(func() *fn.Registry {
	r, err := fn.NewRegistry(nil, runners.New(runners.Deps{})...)
	if err != nil {
		panic(err) // two functions of one name
	}
	return r
})
