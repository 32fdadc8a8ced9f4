package master

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"brine/internal/call/audit"
	"brine/internal/ha/cluster"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// askAudit is the query among masters for their audit logs.
const askAudit = "audit"

// auditTime bounds the wait for hot masters.
const auditTime = 5 * time.Second

// askHot asks all hot masters at once, and calls do for each, one at a time.
type askHot func(ctx context.Context, within time.Duration, name string, arg *value.Dict, do func(id string, data *value.Dict, err error))

// audits finds records in the audit logs of this master and of those that it works with.
type audits struct {
	*audit.Log
	id      string           // of this master
	cluster *cluster.Cluster // nil without a cluster
	hot     askHot           // nil without hot_masters
	store   *consoleStore    // nil without console_store
}

// answer answers another member of the cluster or hot master. It may read all that this master's
// own users may: these masters trust each other.
func (a audits) answer(arg *value.Dict) *value.Dict {
	var q wire.AuditQuestion
	wire.View(arg, &q)
	found, err := a.Find(audit.Query{User: q.User, Fun: q.Fun, Result: q.Result, Limit: int(min(max(q.Limit, 0), audit.MaxRecords))})
	answer := wire.AuditAnswer{Records: &value.List{}}
	for _, d := range found {
		answer.Records.Append(d)
	}
	if err != nil {
		answer.Failure = err.Error()
	}
	return wire.Encode(&answer)
}

// Others implements runners.Audits.
func (a audits) Others(ctx context.Context, q audit.Query) (own string, byMaster map[string][]*value.Dict, silent map[string]string) {
	byMaster, silent = map[string][]*value.Dict{}, map[string]string{}
	if a.store != nil {
		found, err := a.store.found(ctx, q)
		if err == nil {
			return a.id, found, silent
		}
		silent["console_store"] = fmt.Sprintf("%.300s", err) // the masters may answer
	}
	question := wire.Encode(&wire.AuditQuestion{User: q.User, Fun: q.Fun, Result: q.Result, Limit: int64(q.Limit)})
	switch {
	case a.cluster != nil:
		a.members(ctx, question, byMaster, silent)
	case a.hot != nil:
		a.hot(ctx, auditTime, askAudit, question, func(id string, data *value.Dict, err error) { keepAudit(id, data, err, byMaster, silent) })
	case a.store == nil:
		return "", nil, nil
	}
	return a.id, byMaster, silent
}

// members asks the other members of the cluster.
func (a audits) members(ctx context.Context, question *value.Dict, byMaster map[string][]*value.Dict, silent map[string]string) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, m := range a.cluster.Members() {
		if m.Gone {
			continue
		}
		wg.Go(func() {
			data, err := a.cluster.Queries.AskOne(ctx, m.ID, askAudit, question)
			if err != nil && m.Problem != "" {
				err = errors.New(m.Problem)
			}
			mu.Lock()
			defer mu.Unlock()
			keepAudit(m.ID, data, err, byMaster, silent)
		})
	}
	wg.Wait()
}

// keepAudit stores another master's answer, or why there is none.
func keepAudit(id string, data *value.Dict, err error, byMaster map[string][]*value.Dict, silent map[string]string) {
	if err != nil {
		silent[id] = fmt.Sprintf("%.300s", err.Error())
		return
	}
	var answer wire.AuditAnswer
	wire.View(data, &answer)
	switch {
	case answer.Failure != "":
		silent[id] = "it cannot read its audit log: " + answer.Failure
		return
	case answer.Records == nil:
		silent[id] = "its version cannot be asked for its audit log; upgrade it"
		return
	}
	records := []*value.Dict{}
	for _, x := range answer.Records.Items[:min(len(answer.Records.Items), audit.MaxRecords)] {
		if d, ok := x.(*value.Dict); ok {
			records = append(records, d)
		}
	}
	byMaster[id] = records
}
