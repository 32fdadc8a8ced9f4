package runners

import (
	"context"
	"maps"
	"slices"
	"sync"
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
	// Ask returns those of another member of the cluster.
	Ask(ctx context.Context, master string, q audit.Query) ([]*value.Dict, error)
}

type auditing struct {
	logs    Audits
	cluster *Clustering
}

func init() { runners.Register("audit", auditModule) }

func auditModule(d Deps) fn.Module {
	return fn.Module{Name: "audit", Doc: `The audit logs: who called what on the masters, and with which result.`, Funcs: []fn.Func{
		fn.Of("list", auditing{d.Audits, d.Cluster}.list, `Return the newest requests of users to this master, or to all masters of its cluster, newest first.

In a cluster each record names its master. A master that does not answer has a record with the result "no answer" and the reason as problem, and the
return code is 1. here=True asks this master alone.`,
			fn.Example("salt-run audit.list"), fn.Example("salt-run audit.list user=alice limit=10"), fn.Example("salt-run audit.list result=denied"),
			fn.Example("salt-run audit.list here=True")),
	}}
}

type auditArgs struct {
	User   string `salt:"user" doc:"glob for the user" default:"'*'"`
	Fun    string `salt:"fun" doc:"glob for the function" default:"'*'"`
	Result string `salt:"result" doc:"glob for the result: done, refused (unknown user), denied (no permission) or failed" default:"'*'"`
	Limit  int    `salt:"limit" doc:"maximum number of records, up to 1000" default:"100"`
	Here   bool   `salt:"here" doc:"only the records of this master" default:"false"`
}

// auditTime bounds the wait for other masters.
const auditTime = 5 * time.Second

// resultSilent is the result in the record of a master that does not answer.
const resultSilent = "no answer"

func (a auditing) list(ctx context.Context, c *fn.Call, x auditArgs) (*value.List, error) {
	q := audit.Query{User: x.User, Fun: x.Fun, Result: x.Result, Limit: x.Limit}
	found, err := a.logs.Find(q)
	if a.cluster == nil || x.Here || err != nil {
		return listed(found), err
	}
	all, silent := a.ask(ctx, q)
	all[a.cluster.ID] = found
	now := event.Stamp(time.Now())
	var out []*value.Dict
	for _, id := range slices.Sorted(maps.Keys(silent)) {
		c.SetRetcode(1)
		out = append(out, value.DictOf("time", now, "user", "", "result", resultSilent, "master", id, "problem", silent[id]))
	}
	return listed(append(out, q.Merge(all)...)), nil
}

// ask asks the other members at the same time. silent has the reason for each one that does not
// answer.
func (a auditing) ask(ctx context.Context, q audit.Query) (all map[string][]*value.Dict, silent map[string]string) {
	ctx, cancel := context.WithTimeout(ctx, auditTime)
	defer cancel()
	all, silent = map[string][]*value.Dict{}, map[string]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, m := range a.cluster.Members() {
		if m.Gone {
			continue
		}
		wg.Go(func() {
			records, err := a.logs.Ask(ctx, m.ID, q)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				all[m.ID] = records
			case m.Problem != "":
				silent[m.ID] = m.Problem
			default:
				silent[m.ID] = err.Error()
			}
		})
	}
	wg.Wait()
	return all, silent
}

func listed(records []*value.Dict) *value.List {
	out := &value.List{}
	for _, d := range records {
		out.Append(d)
	}
	return out
}
