package runners

import (
	"context"

	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

type auditing struct {
	recent func(limit int, keep func(*value.Dict) bool) ([]*value.Dict, error)
}

func init() { runners.Register("audit", auditModule) }

func auditModule(d Deps) fn.Module {
	return fn.Module{Name: "audit", Doc: `The audit log: who called what on this master, and with which result.`, Funcs: []fn.Func{
		fn.Of("list", auditing{d.Audit}.list, `Return the newest requests of users, newest first.`,
			fn.Example("salt-run audit.list"), fn.Example("salt-run audit.list user=alice limit=10"), fn.Example("salt-run audit.list result=denied")),
	}}
}

type auditArgs struct {
	User   string `salt:"user" doc:"glob for the user" default:"'*'"`
	Fun    string `salt:"fun" doc:"glob for the function" default:"'*'"`
	Result string `salt:"result" doc:"glob for the result: done, refused (unknown user), denied (no permission) or failed" default:"'*'"`
	Limit  int    `salt:"limit" doc:"maximum number of records" default:"100"`
}

func (a auditing) list(_ context.Context, _ *fn.Call, x auditArgs) (*value.List, error) {
	user, fun, result := target.ParseGlob(x.User), target.ParseGlob(x.Fun), target.ParseGlob(x.Result)
	found, err := a.recent(x.Limit, func(d *value.Dict) bool {
		return user.Match(d.Str("user")) && fun.Match(d.Str("fun")) && result.Match(d.Str("result"))
	})
	out := &value.List{}
	for _, d := range found {
		out.Append(d)
	}
	return out, err
}
