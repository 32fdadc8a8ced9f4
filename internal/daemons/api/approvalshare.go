package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Functions of the master for jobs that wait for a second user. The master has a record of each, without a token, so
// that users of other salt-apis see and decide on it. This server starts the job.
const (
	approvalsAsk     = "approvals.ask"
	approvalsList    = "approvals.list"
	approvalsApprove = "approvals.approve"
	approvalsReject  = "approvals.reject"
	approvalsDone    = "approvals.done"
)

// shareTime is the interval of questions for decisions elsewhere, shareLimit bounds one question.
const shareTime, shareLimit = time.Second, 10 * time.Second

// share tells the master of a job that waits, and asks for decisions. The lock is held. A job that the master does not
// take, since it is too large, waits at this server alone.
func (a *approvals) share(c *call, p *approval) {
	chunk := p.chunk.Clone()
	chunk.Delete("token")
	token, ctx := c.of.Token, context.WithoutCancel(c.r.Context())
	start := !a.watching
	a.watching = true
	go func() {
		within, cancel := context.WithTimeout(ctx, shareLimit)
		defer cancel()
		if _, err := a.master.Look(within, token, approvalsAsk, value.DictOf("id", p.id, "chunk", chunk, "from", p.from)); err != nil {
			a.log.Info("a job waits for approval at this salt-api only", "id", p.id, "err", err)
		}
		if start {
			a.watch(ctx, c)
		}
	}()
}

// watch asks the master for decisions on the jobs that wait here, until none does.
func (a *approvals) watch(ctx context.Context, c *call) {
	for {
		time.Sleep(shareTime)
		a.mu.Lock()
		a.clean()
		byToken := map[string][]*approval{}
		for _, p := range a.list {
			if p.state == waiting {
				byToken[p.chunk.Str("token")] = append(byToken[p.chunk.Str("token")], p)
			}
		}
		a.watching = len(byToken) > 0
		a.mu.Unlock()
		if len(byToken) == 0 {
			return
		}
		for token, jobs := range byToken {
			within, cancel := context.WithTimeout(ctx, shareLimit)
			out, err := a.master.Look(within, token, approvalsList, value.NewDict(0))
			cancel()
			if err != nil {
				continue
			}
			for _, d := range elsewhere(out, nil) {
				a.decided(ctx, c, d.(*value.Dict), jobs)
			}
		}
	}
}

// decided does what was decided at another server about one of the jobs that wait here.
func (a *approvals) decided(ctx context.Context, c *call, d *value.Dict, jobs []*approval) {
	i := slices.IndexFunc(jobs, func(p *approval) bool { return p.id == d.Str("id") })
	granted := d.At("granted") == true
	if i < 0 || !granted && d.Str("state") != rejected {
		return
	}
	p := jobs[i]
	a.mu.Lock()
	if p.state != waiting {
		a.mu.Unlock()
		return
	}
	p.state, p.by = starting, d.Str("by")
	if !granted {
		p.state = rejected
		p.forget()
		a.keep(p)
		a.mu.Unlock()
		return
	}
	a.keep(p)
	chunk := p.chunk.Clone()
	a.mu.Unlock()
	chunk.Set(wire.ApproverKey, wire.ApprovalPrefix+p.id)
	if chunk.Str("client") == "local_batch" {
		if !chunk.Has("jid") {
			chunk.Set("jid", salt.NewJID(time.Now())) // the parts of a batch share the approval by their id
		}
	} else {
		chunk.Set("client", "local_async")
	}
	go func() { _, _ = a.start(ctx, c, p, chunk) }() // the list has the result
}

// report tells the master what became of a job.
func (a *approvals) report(token string, p *approval) {
	a.mu.Lock()
	d := value.DictOf("id", p.id, "state", p.state, "by", p.by, "jid", p.jid, "problem", p.problem)
	final := p.state != waiting && p.state != starting
	a.mu.Unlock()
	if token == "" || !final {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), shareLimit)
	defer cancel()
	if _, err := a.master.Look(ctx, token, approvalsDone, d); err != nil {
		a.log.Debug("cannot tell the master what became of an approval", "id", p.id, "err", err)
	}
}

// claim records a decision on a job that waits here at the master (fun is approvalsApprove or approvalsReject), unless another one was made at
// another server meanwhile. A decision that cannot be recorded is refused. An older master, or one without the job, knows of no decisions.
func (a *approvals) claim(c *call, p *approval, fun string) error {
	within, cancel := context.WithTimeout(c.r.Context(), shareLimit)
	defer cancel()
	_, err := a.master.Look(within, c.of.Token, fun, value.DictOf("id", p.id))
	status := http.StatusConflict
	switch salt.KindOf(err) {
	case salt.Invalid:
	case salt.Unavailable: // the decision may be recorded or not: watch shows it
		status = http.StatusServiceUnavailable
	default:
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p.state, p.by = waiting, "" // until the decision arrives here
	a.keep(p)
	if !a.watching { // no job has waited for a moment
		a.watching = true
		go a.watch(context.WithoutCancel(c.r.Context()), c)
	}
	return &failure{status, err.Error()}
}

// errNone is the failure of a decision on a job that does not wait here.
var errNone = &failure{http.StatusNotFound, "there is no such job, or you may not run its function"}

func isNone(err error) bool {
	f := failureOf(err)
	return err != nil && f != nil && f.status == http.StatusNotFound
}

// decideElsewhere decides on a job that waits at another server.
func (a *approvals) decideElsewhere(c *call, fun string, none error) (any, error) {
	out, err := a.master.Look(c.r.Context(), c.of.Token, fun, value.DictOf("id", c.part()))
	if err != nil && salt.KindOf(err) == salt.Invalid {
		return nil, &failure{http.StatusConflict, err.Error()}
	}
	if err != nil && salt.KindOf(err) == salt.Unavailable {
		return nil, &failure{http.StatusServiceUnavailable, err.Error()}
	}
	if err != nil { // also an older master, which does not know these functions
		return nil, none
	}
	a.log.Info("audit", "user", cut80(c.of.User), "from", c.address(), "id", cut80(c.part()), "approval", fun)
	return out, nil
}

func cut80(s string) string { return s[:min(len(s), 80)] }

// elsewhere returns the jobs in an answer of the master that do not wait here.
func elsewhere(answer any, own map[string]bool) (out []any) {
	d, _ := answer.(*value.Dict)
	for _, x := range d.List("approvals") {
		if one, ok := x.(*value.Dict); ok && !own[one.Str("id")] {
			out = append(out, one)
		}
	}
	return out
}

// askedAt returns when a job was asked for.
func askedAt(row any) float64 {
	d, _ := row.(*value.Dict)
	at, _ := d.At("asked").(float64)
	return cmp.Or(at, 0)
}
