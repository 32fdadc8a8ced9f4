package master

import (
	"context"
	"fmt"

	"brine/internal/base/salt"
	"brine/internal/call/audit"
	"brine/internal/ha/cluster"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// askAudit is the query among masters for their audit logs.
const askAudit = "audit"

// audits finds records in the audit logs of the masters of a cluster.
type audits struct {
	*audit.Log
	cluster *cluster.Cluster // nil for a standalone master
}

// answer answers another member. It may read all that this master's own users may: members trust
// each other.
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

// Ask returns the records of another member.
func (a audits) Ask(ctx context.Context, master string, q audit.Query) ([]*value.Dict, error) {
	d, err := a.cluster.Queries.AskOne(ctx, master, askAudit,
		wire.Encode(&wire.AuditQuestion{User: q.User, Fun: q.Fun, Result: q.Result, Limit: int64(q.Limit)}))
	if err != nil {
		return nil, err
	}
	var answer wire.AuditAnswer
	wire.View(d, &answer)
	switch {
	case answer.Failure != "":
		return nil, fmt.Errorf("it cannot read its audit log: %s", answer.Failure)
	case answer.Records == nil:
		return nil, salt.Errorf(salt.Unavailable, "its version cannot be asked for its audit log; upgrade it")
	}
	var out []*value.Dict
	for _, x := range answer.Records.Items[:min(len(answer.Records.Items), audit.MaxRecords)] {
		if d, ok := x.(*value.Dict); ok {
			out = append(out, d)
		}
	}
	return out, nil
}
