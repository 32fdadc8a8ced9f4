package python

import (
	"context"
	"errors"
	"iter"
	"os"
	"sync"

	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Serve answers the requests of a program that uses the package salt of Brine, and not Salt's: in
// that program there is no helper that calls functions of modules. It returns when the program
// closes its end, or sends what cannot be read. refused, if not nil, is what the program is told
// instead.
func Serve(ctx context.Context, p *Pool, env *Env, from, to *os.File, refused error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errCallEnded)
	h := &helper{pool: p, log: p.cfg.Log, out: to, environ: os.Environ(), gone: make(chan struct{}), answers: map[int64]chan answer{},
		envs: map[int64]*activity{0: {ctx, env}}}
	if refused != nil {
		return h.send("r", int64(0), false, h.described(refused))
	}
	if err := h.send("r", int64(0), true, nil); err != nil {
		return err
	}
	h.read(from)
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.why
}

// jobs are those of a call whose results Python asks for one by one, by number.
type jobs struct {
	mu   sync.Mutex
	last int64
	all  map[int64]*pending
}

type pending struct {
	mu   sync.Mutex // of next
	sent client.Published
	next func() (client.Result, error, bool)
	end  func()
}

// start sends a job, described as for command. It returns the job id, the ids of the minions that
// were meant, and the number for next.
func (e *Env) start(ctx context.Context, a arguments) (any, error) {
	commander, j, err := e.job(a)
	if err != nil {
		return nil, err
	}
	running, err := commander.Start(ctx, j)
	if errors.Is(err, client.ErrNoMatch) {
		return value.Tuple{"", &value.List{}, int64(0)}, nil
	}
	if err != nil {
		return nil, ClientError(err)
	}
	next, stop := iter.Pull2(running.Results(ctx))
	p := &pending{sent: running.Published, next: next}
	p.end = sync.OnceFunc(func() { stop(); running.Close() })
	context.AfterFunc(ctx, func() { // Results ends by itself then
		p.mu.Lock()
		defer p.mu.Unlock()
		p.end()
	})
	e.jobs.mu.Lock()
	defer e.jobs.mu.Unlock()
	if e.jobs.all == nil {
		e.jobs.all = map[int64]*pending{}
	}
	e.jobs.last++
	e.jobs.all[e.jobs.last] = p
	return value.Tuple{p.sent.JID, value.Strings(p.sent.Minions), e.jobs.last}, nil
}

// next waits for the next return of a job: the id of the minion and its fields. nil means that there
// is none left. With an argument true it forgets the job instead.
func (e *Env) next(a arguments) (any, error) {
	number, _ := a.at(0).(int64)
	e.jobs.mu.Lock()
	p := e.jobs.all[number]
	e.jobs.mu.Unlock()
	if p == nil {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for a.at(1) != true {
		r, err, ok := p.next()
		if err != nil {
			return nil, ClientError(err)
		}
		if !ok {
			break
		}
		if !r.Absent {
			return value.Tuple{r.ID, r.Fields(p.sent.JID)}, nil
		}
	}
	p.end()
	e.jobs.mu.Lock()
	delete(e.jobs.all, number)
	e.jobs.mu.Unlock()
	return nil, nil
}

// job reads the description of a job and chooses who commands: credentials of an external
// authentication replace those of this process.
func (e *Env) job(a arguments) (Commander, client.Job, error) {
	d, _ := a.at(0).(*value.Dict)
	if e.Commander == nil {
		return nil, client.Job{}, fn.Errorf("there is no master here that could command minions")
	}
	commander := e.Commander
	if creds := d.Dict("creds"); creds.Len() > 0 {
		if e.As == nil {
			return nil, client.Job{}, fn.Errorf("a module of the master commands minions with the rights of its caller: eauth and token cannot be given here")
		}
		commander = e.As(creds)
	}
	j := client.Job{Target: d.At("tgt"), Type: d.Str("tgt_type"), Fun: d.At("fun"), Arg: value.ListOf(value.Items(d.At("arg"))...), Ret: d.Str("ret"),
		JID: d.Str("jid"), Kwargs: d.Dict("kwargs")}
	j.Timeout, _ = duration(d.At("timeout"))
	return commander, j, nil
}

// low runs a chunk of low data with the credentials in it.
func (e *Env) low(ctx context.Context, a arguments) (any, error) {
	chunk, ok := a.at(0).(*value.Dict)
	if e.Low == nil || !ok {
		return nil, fn.Errorf("there is no connection to a master here for eauth and token")
	}
	got, err := e.Low(ctx, chunk)
	if err != nil {
		return nil, ClientError(err)
	}
	return &value.List{Items: got}, nil
}
