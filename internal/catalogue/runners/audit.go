package runners

import (
	"context"
	"maps"
	"slices"
	"time"

	"brine/internal/call/audit"
	"brine/internal/call/fn"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// Audits finds records in the audit logs of masters.
type Audits interface {
	// Find returns the newest records of this master, newest first.
	Find(audit.Query) ([]*value.Dict, error)
	// Others asks the console_store, the other masters of the cluster, or those of hot_masters, all at the same time. own
	// is this master's id, "" if it is alone, of which byMaster may have older records. silent has the reason for each master that does not answer.
	Others(ctx context.Context, q audit.Query) (own string, byMaster map[string][]*value.Dict, silent map[string]string)
	// Verify checks the chain of records of this master, and its copies in the console_store.
	Verify(ctx context.Context) (*audit.Report, error)
	// VerifyOthers asks the other masters to do so: a report or the reason for none for each.
	VerifyOthers(ctx context.Context) (reports map[string]*value.Dict, silent map[string]string)
}

type auditing struct{ logs Audits }

func init() { runners.Register("audit", auditModule) }

func auditModule(d Deps) fn.Module {
	return fn.Module{Name: "audit", Doc: `The audit logs: who called what on the masters, and with which result.`, Funcs: []fn.Func{
		fn.Of("list", auditing{d.Audits}.list, `Return the newest requests of users to this master, or to all masters of its cluster, of hot_masters or of its console_store, newest first.

With several masters each record names its master. A master that does not answer has a record with the result "no answer" and the reason as problem, and the
return code is 1. here=True asks this master alone.`,
			fn.Example("salt-run audit.list"), fn.Example("salt-run audit.list user=alice limit=10"), fn.Example("salt-run audit.list result=denied"),
			fn.Example("salt-run audit.list here=True")),
		fn.Of("verify", auditing{d.Audits}.verify, `Check whether audit records were changed, removed or inserted: by master from where to where the chain of their hashes is whole (ranges), and where it is not (breaks).

notes are what is no sign of a change: a crash, a full disk, another key of the master. unhashed is the number of records from before there were hashes. With
console_store the copies there are compared; lacking is how many records have none. A master that does not answer has a problem. The return code is 1 if not
all masters answer and are whole. here=True checks this master alone.`,
			fn.Example("salt-run audit.verify"), fn.Example("salt-run audit.verify here=True")),
	}}
}

type auditArgs struct {
	User   string `salt:"user" doc:"glob for the user" default:"'*'"`
	Fun    string `salt:"fun" doc:"glob for the function" default:"'*'"`
	Result string `salt:"result" doc:"glob for the result: done, refused (unknown user), denied (no permission), needs approval (of a second user) or failed" default:"'*'"`
	Limit  int    `salt:"limit" doc:"maximum number of records, up to 1000" default:"100"`
	Here   bool   `salt:"here" doc:"only the records of this master" default:"false"`
}

type auditVerifyArgs struct {
	Here bool `salt:"here" doc:"only the records of this master" default:"false"`
}

func (a auditing) verify(ctx context.Context, c *fn.Call, x auditVerifyArgs) (*value.Dict, error) {
	own, err := a.logs.Verify(ctx)
	if err != nil {
		return nil, err
	}
	all, silent := map[string]*value.Dict{}, map[string]string{}
	if !x.Here {
		ctx, cancel := context.WithTimeout(ctx, auditTime)
		defer cancel()
		all, silent = a.logs.VerifyOthers(ctx)
	}
	all[c.ID] = own.Dict()
	for id, why := range silent {
		all[id] = value.DictOf("problem", why)
	}
	out := value.NewDict(len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		out.Set(id, all[id])
		if all[id].At("whole") != true {
			c.SetRetcode(1)
		}
	}
	return out, nil
}

// auditTime bounds the wait for other masters.
const auditTime = 5 * time.Second

// resultSilent is the result in the record of a master that does not answer.
const resultSilent = "no answer"

func (a auditing) list(ctx context.Context, c *fn.Call, x auditArgs) (*value.List, error) {
	q := audit.Query{User: x.User, Fun: x.Fun, Result: x.Result, Limit: x.Limit}
	found, err := a.logs.Find(q)
	if x.Here || err != nil {
		return listed(found), err
	}
	ctx, cancel := context.WithTimeout(ctx, auditTime)
	defer cancel()
	own, all, silent := a.logs.Others(ctx, q)
	if own == "" {
		return listed(found), nil
	}
	all[own] = audit.Union(found, all[own])
	now := event.Stamp(time.Now())
	var out []*value.Dict
	for _, id := range slices.Sorted(maps.Keys(silent)) {
		c.SetRetcode(1)
		out = append(out, value.DictOf("time", now, "user", "", "result", resultSilent, "master", id, "problem", silent[id]))
	}
	return listed(append(out, q.Merge(all)...)), nil
}

func listed(records []*value.Dict) *value.List {
	out := &value.List{}
	for _, d := range records {
		out.Append(d)
	}
	return out
}
