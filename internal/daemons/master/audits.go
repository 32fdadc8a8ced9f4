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
	answer := wire.AuditAnswer{Records: &value.List{}}
	var err error
	if q.Verify {
		ctx, cancel := context.WithTimeout(context.Background(), auditTime)
		defer cancel()
		var r *audit.Report
		if r, err = a.Verify(ctx); err == nil {
			answer.Chain = r.Dict()
		}
	} else {
		var found []*value.Dict
		found, err = a.Find(audit.Query{User: q.User, Fun: q.Fun, Result: q.Result, Limit: int(min(max(q.Limit, 0), audit.MaxRecords))})
		for _, d := range found {
			answer.Records.Append(d)
		}
	}
	if err != nil {
		answer.Failure = err.Error()
	}
	return wire.Encode(&answer)
}

// Verify implements runners.Audits.
func (a audits) Verify(ctx context.Context) (*audit.Report, error) {
	if a.store == nil {
		return a.Log.Verify()
	}
	copies, err := a.store.copies(ctx)
	if err != nil { // the files can be checked all the same
		r, e := a.Log.Verify()
		if e == nil {
			r = r.With("the console_store cannot be compared: %.300s", err)
		}
		return r, e
	}
	return a.VerifyWith(copies)
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
	question := wire.AuditQuestion{User: q.User, Fun: q.Fun, Result: q.Result, Limit: int64(q.Limit)}
	asked := a.ask(ctx, &question, silent, func(id string, answer *wire.AuditAnswer) { byMaster[id] = auditRecords(answer) })
	if !asked && a.store == nil {
		return "", nil, nil
	}
	return a.id, byMaster, silent
}

// VerifyOthers implements runners.Audits.
func (a audits) VerifyOthers(ctx context.Context) (reports map[string]*value.Dict, silent map[string]string) {
	reports, silent = map[string]*value.Dict{}, map[string]string{}
	a.ask(ctx, &wire.AuditQuestion{Verify: true}, silent, func(id string, answer *wire.AuditAnswer) {
		if reports[id] = answer.Chain; answer.Chain == nil {
			delete(reports, id)
			silent[id] = "its version has no chain of audit records; upgrade it"
		}
	})
	return reports, silent
}

// ask asks the other masters, and reports whether this master works with any.
func (a audits) ask(ctx context.Context, q *wire.AuditQuestion, silent map[string]string, keep func(id string, answer *wire.AuditAnswer)) bool {
	question := wire.Encode(q)
	take := func(id string, data *value.Dict, err error) { keepAudit(id, data, err, silent, keep) }
	switch {
	case a.cluster != nil:
		a.members(ctx, question, take)
	case a.hot != nil:
		a.hot(ctx, auditTime, askAudit, question, take)
	default:
		return false
	}
	return true
}

// members asks the other members of the cluster.
func (a audits) members(ctx context.Context, question *value.Dict, take func(id string, data *value.Dict, err error)) {
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
			take(m.ID, data, err)
		})
	}
	wg.Wait()
}

// keepAudit keeps another master's answer, or why there is none.
func keepAudit(id string, data *value.Dict, err error, silent map[string]string, keep func(id string, answer *wire.AuditAnswer)) {
	if err != nil {
		silent[id] = fmt.Sprintf("%.300s", err.Error())
		return
	}
	var answer wire.AuditAnswer
	wire.View(data, &answer)
	switch {
	case answer.Failure != "":
		silent[id] = "it cannot read its audit log: " + answer.Failure
	case answer.Records == nil:
		silent[id] = "its version cannot be asked for its audit log; upgrade it"
	default:
		keep(id, &answer)
	}
}

// auditRecords returns the records of an answer.
func auditRecords(answer *wire.AuditAnswer) []*value.Dict {
	records := []*value.Dict{}
	for _, x := range answer.Records.Items[:min(len(answer.Records.Items), audit.MaxRecords)] {
		if d, ok := x.(*value.Dict); ok {
			records = append(records, d)
		}
	}
	return records
}
