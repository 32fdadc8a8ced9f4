package master

import (
	"context"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/call/acl"
	"brine/internal/call/fn"
	"brine/internal/catalogue/runners"
	"brine/internal/net/channel"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// looks answers consoles. It runs the runners for which runners.IsLook holds, with the
// permissions of runners, but without a job: a console asks every few seconds, and
// would fill the job cache, the event bus and the audit log.
type looks struct {
	id       string // id of this master
	ctx      func() context.Context
	access   *access
	registry func() *fn.Registry
	opts     *value.Dict
	approval *approvals
	runs     *runs // refuses requests and records refusals
}

// answer handles {fun, kwarg} and credentials.
func (l *looks) answer(c *channel.Call) {
	who := l.access.sender(c)
	var in wire.Look
	wire.View(c.Load, &in)
	if who == nil {
		l.runs.refuse(c, nil, refusedOnMaster(c.Load, nil))
		return
	}
	// Each user sees and decides on what it may start itself.
	if fun, ok := strings.CutPrefix(in.Fun, approvalsModule); ok {
		out, err := l.approval.answer(who, fun, in.Kwarg)
		if err == nil && fun != "list" {
			l.runs.recorder.recordApproval(c, who, out)
		}
		if err != nil {
			c.Reply(lookFailure(err))
			return
		}
		c.Reply(value.DictOf("return", out))
		return
	}
	if reply := mayRun(who, acl.Runner, in.Fun, nil, in.Kwarg, c.Load); reply != nil {
		l.runs.refuse(c, who, reply)
		return
	}
	if !runners.IsLook(in.Fun) {
		c.Reply(failure("SaltInvocationError", "only runners that a console reads run without a job: "+
			"fleet, saved, auth.can, auth.permissions, auth.roles, audit.list and pillar.show_pillar"))
		return
	}
	if in.Fun == runners.ShowPillar {
		var of wire.PillarOf
		wire.View(in.Kwarg, &of)
		l.runs.recorder.recordOf(c, who, resultDone, value.Str(of.Minion))
	}
	if strings.HasPrefix(in.Fun, runners.SavedModule+".") && in.Fun != runners.SavedModule+".list" {
		l.runs.recorder.recordOf(c, who, resultDone, "")
	}
	kwargs := value.NewDict(0)
	kwargs.Update(in.Kwarg)
	call := &fn.Call{ID: l.id, User: who.name, Config: fn.Tree{Dict: l.opts}}
	o := l.registry().Run(l.ctx(), call, fn.Job{Fun: in.Fun, Arg: positional(nil, kwargs)})
	if o.Err != nil {
		c.Reply(lookFailure(o.Err))
		return
	}
	c.Reply(value.DictOf("return", o.Return))
}

// lookFailure is the reply for an error.
func lookFailure(err error) *value.Dict {
	switch salt.KindOf(err) {
	case salt.NotFound:
		return failure(wire.NotFoundError, err.Error())
	case salt.Denied:
		return failure("AuthorizationError", err.Error())
	case salt.Unavailable:
		return failure(wire.UnavailableError, err.Error())
	}
	return failure("SaltInvocationError", err.Error())
}
