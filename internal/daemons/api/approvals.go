package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/acl"
	"brine/internal/call/client"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// approvals keeps the jobs that wait for a second user (approval_above). The master decides which
// jobs need one, and whether a user may approve: this server keeps the requests, and their tokens in
// memory only.
type approvals struct {
	master Master
	log    *slog.Logger
	now    func() time.Time
	files  *approvalFiles

	mu       sync.Mutex
	list     []*approval // the oldest first
	watching bool        // whether the master is asked for decisions
}

const (
	// approvalTime is how long a job waits for approval, and stays in the list afterwards.
	approvalTime = time.Hour
	// maxApprovals bounds the waiting jobs, maxApprovalsOfOne those of one user.
	maxApprovals, maxApprovalsOfOne = 500, 50
)

// States of an approval.
const (
	waiting  = "waiting"
	starting = "started" // the approved job is being started
	approved = "approved"
	rejected = "rejected"
	failed   = "failed" // approved, but the master did not start the job
	expired  = "expired"
)

// approval is a job that waits for a second user.
type approval struct {
	id, user, from string
	why            string // the master's reason, which has the number of minions
	chunk          *value.Dict
	asked          time.Time
	session        string // name of the session of the user, which has the token

	state   string
	by      string // who approved or rejected it
	jid     string
	problem string
}

// needs reports whether an error of the master means that a second user must approve.
func needs(err error) bool {
	var r *client.Refused
	return errors.As(err, &r) && r.Name == wire.ApprovalRequired
}

// add keeps a job that needs approval, and returns what the client gets instead of its result.
func (a *approvals) add(c *call, chunk *value.Dict, why error) (*value.Dict, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clean()
	own := 0
	for _, p := range a.list {
		if p.user == c.of.User && p.state == waiting {
			own++
		}
	}
	if len(a.list) >= maxApprovals || own >= maxApprovalsOfOne {
		return nil, &failure{http.StatusTooManyRequests, "too many jobs wait for approval: withdraw some, or have them decided"}
	}
	p := &approval{id: newID(), user: c.of.User, from: c.address(), why: why.Error(), chunk: chunk.Clone(), asked: a.now(), session: hashed(c.id), state: waiting}
	if err := a.files.save(p); err != nil {
		a.log.Warn("cannot store a job that needs approval; refused it", "id", p.id, "err", err)
		return nil, unstored("the job was refused", err)
	}
	a.list = append(a.list, p)
	a.share(c, p)
	a.note(p, c, "approval", "requested")
	return value.DictOf("approval", p.id, "reason", p.why, "expire", unix(p.asked.Add(approvalTime))), nil
}

// clean expires jobs and forgets old ones. The lock is held.
func (a *approvals) clean() {
	at := a.now()
	for _, p := range a.list {
		if p.state == waiting && at.Sub(p.asked) > approvalTime {
			p.state = expired
			p.forget()
			a.keep(p)
		}
	}
	a.list = slices.DeleteFunc(a.list, func(p *approval) bool { return at.Sub(p.asked) > 2*approvalTime })
}

// note writes a record of the log.
func (a *approvals) note(p *approval, c *call, more ...any) {
	a.log.Info("audit", append([]any{"user", fmt.Sprintf("%.80s", c.of.User), "from", c.address(), "of", fmt.Sprintf("%.80s", p.user), "id", p.id,
		"fun", fmt.Sprintf("%.200s", value.Str(p.chunk.At("fun"))), "tgt", fmt.Sprintf("%.200s", value.Str(p.chunk.At("tgt")))}, more...)...)
}

// forget removes the token of the user who asked, which is no longer needed.
func (p *approval) forget() {
	p.chunk = p.chunk.Clone()
	p.chunk.Delete("token")
}

// seenBy reports whether a user may see a job: its own, and those of functions that it may run
// itself. The master checks the target when the user approves.
func (p *approval) seenBy(user string, rights []any) bool {
	if p.user == user {
		return true
	}
	var calls []acl.Call
	switch fun := p.chunk.At("fun").(type) {
	case string:
		calls = []acl.Call{{Fun: fun}}
	case *value.List:
		for _, f := range fun.Items {
			calls = append(calls, acl.Call{Fun: value.Str(f)})
		}
	}
	return acl.Allowed(rights, calls, func(string) bool { return true })
}

// describe returns a job as the API shows it.
func (p *approval) describe(user string) *value.Dict {
	d := value.DictOf("id", p.id, "user", p.user, "from", p.from, "reason", p.why, "asked", unix(p.asked), "expire", unix(p.asked.Add(approvalTime)),
		"state", p.state, "own", p.user == user, "by", orNone(p.by), "jid", orNone(p.jid), "problem", orNone(p.problem))
	for _, k := range []string{"client", "tgt", "tgt_type", "fun", "arg", "kwarg", "batch", "timeout"} {
		if v, ok := p.chunk.Get(k); ok {
			d.Set(k, v)
		}
	}
	return d
}

// unix returns a time in Unix seconds.
func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1e3 }

// rights returns the permissions of a session.
func (a *approvals) rights(c *call) ([]any, error) {
	t, err := a.master.Token(c.r.Context(), c.of.Token)
	if err == nil && t == nil {
		err = &failure{http.StatusUnauthorized, textNoPermission}
	}
	if err != nil {
		return nil, err
	}
	return t.List("perms"), nil
}

// show returns the jobs that a user may see, the newest first.
func (a *approvals) show(c *call) (any, error) {
	if len(c.rest) > 0 {
		return nil, &failure{http.StatusMethodNotAllowed, "POST approves a job, DELETE rejects it; the list is at /v1/approvals"}
	}
	rights, err := a.rights(c)
	if err != nil {
		return nil, err
	}
	shared, err := a.master.Look(c.r.Context(), c.of.Token, approvalsList, value.NewDict(0))
	if err != nil { // an older master, or one without room
		a.log.Debug("cannot read the jobs that wait at other servers", "err", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clean()
	rows := &value.List{}
	own := map[string]bool{}
	for _, p := range slices.Backward(a.list) {
		if own[p.id] = true; p.seenBy(c.of.User, rights) {
			rows.Append(p.describe(c.of.User))
		}
	}
	rows.Items = append(rows.Items, elsewhere(shared, own)...)
	slices.SortStableFunc(rows.Items, func(x, y any) int { return cmp.Compare(askedAt(y), askedAt(x)) })
	return value.DictOf("approvals", rows), nil
}

// take returns a waiting job that a user may decide on, in its new state.
func (a *approvals) take(c *call, state string) (*approval, error) {
	rights, err := a.rights(c)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clean()
	i := slices.IndexFunc(a.list, func(p *approval) bool { return p.id == c.part() && p.seenBy(c.of.User, rights) })
	switch {
	case i < 0:
		return nil, errNone
	case a.list[i].state != waiting:
		return nil, &failure{http.StatusConflict, "this job no longer waits: it is " + a.list[i].state}
	case state == starting && salt.SamePerson(a.list[i].user, c.of.User):
		return nil, &failure{http.StatusForbidden, "a user cannot approve its own job"}
	}
	p := a.list[i]
	p.state, p.by = state, c.of.User
	if err := a.files.save(p); err != nil { // after a restart it would wait again, and could start twice
		p.state, p.by = waiting, ""
		a.log.Warn("cannot store a decision on a job; refused it", "id", p.id, "err", err)
		return nil, unstored("the decision was refused, and the job waits further", err)
	}
	return p, nil
}

// unstored is the failure of a request that cannot be recorded.
func unstored(result string, err error) error {
	return &failure{http.StatusServiceUnavailable, result + ": " + err.Error() + "; make the directory writable, or free space there, and repeat the request"}
}

// approve starts a job with the approval of the session's user.
func (a *approvals) approve(c *call) (any, error) {
	p, err := a.take(c, starting)
	if isNone(err) {
		return a.decideElsewhere(c, approvalsApprove, err)
	}
	if err != nil {
		return nil, err
	}
	if err := a.claim(c, p, approvalsApprove); err != nil {
		return nil, err
	}
	chunk := p.chunk.Clone()
	chunk.Set(wire.ApproverKey, c.of.Token)
	if chunk.Str("client") != "local_batch" {
		chunk.Set("client", "local_async")
		return a.start(c.r.Context(), c, p, chunk)
	}
	// A batch lasts as long as its minions need.
	ctx := context.WithoutCancel(c.r.Context())
	go func() { _, _ = a.start(ctx, c, p, chunk) }() // the list has the result
	return a.answer(c, p), nil
}

// start lets the master start a job. If the approving user may not start it, it waits further.
func (a *approvals) start(ctx context.Context, c *call, p *approval, chunk *value.Dict) (any, error) {
	out, err := a.master.Low(ctx, chunk)
	var r *client.Refused
	a.mu.Lock()
	switch {
	case err == nil:
		p.state = approved
		if d, ok := firstOf(out).(*value.Dict); ok {
			p.jid = d.Str("jid")
		}
	case errors.As(err, &r) && r.Name == "TokenAuthenticationError":
		p.state, p.problem = failed, sessionEnded(p.user)
	case salt.KindOf(err) == salt.Denied && !strings.HasPrefix(chunk.Str(wire.ApproverKey), wire.ApprovalPrefix):
		p.state, p.by = waiting, ""
	default:
		p.state, p.problem = failed, err.Error()
	}
	token := p.chunk.Str("token")
	if p.state != waiting {
		p.forget()
	}
	a.keep(p)
	result := cmp.Or(p.problem, p.state)
	a.mu.Unlock()
	a.report(token, p)
	a.note(p, c, "approval", "given", "by", fmt.Sprintf("%.80s", p.by), "jid", p.jid, "result", result)
	if err != nil {
		if salt.KindOf(err) == salt.Denied {
			return nil, &failure{http.StatusForbidden, err.Error()}
		}
		return nil, err
	}
	return a.answer(c, p), nil
}

// reject rejects a job of another user, or withdraws an own one.
func (a *approvals) reject(c *call) (any, error) {
	p, err := a.take(c, rejected)
	if isNone(err) {
		return a.decideElsewhere(c, approvalsReject, err)
	}
	if err != nil {
		return nil, err
	}
	if err := a.claim(c, p, approvalsReject); err != nil {
		return nil, err
	}
	a.mu.Lock()
	token := p.chunk.Str("token")
	p.forget()
	a.mu.Unlock()
	go a.report(token, p)
	a.note(p, c, "approval", "rejected")
	return a.answer(c, p), nil
}

func (a *approvals) answer(c *call, p *approval) *value.Dict {
	a.mu.Lock()
	defer a.mu.Unlock()
	return p.describe(c.of.User)
}

// firstOf returns the first of several results, nil if there is none.
func firstOf(out []any) any {
	if len(out) == 0 {
		return nil
	}
	return out[0]
}
