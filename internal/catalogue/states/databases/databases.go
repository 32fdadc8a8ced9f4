// Package databases holds the state modules for database servers: mysql_database, mysql_user,
// mysql_grants, mysql_query, postgres_database, postgres_user, postgres_group,
// postgres_privileges and others for parts of PostgreSQL databases. They call the execution
// module of the server. Further arguments of all of them select the server; see the execution
// module.
package databases

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/catalogue/states"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// units holds the modules, which the files of this package register.
var units = states.Family()

// Modules returns the state modules of this family.
func Modules() []state.Module { return units.Modules(nil) }

// server calls functions of an execution module for one server.
type server struct {
	e      *state.Env
	module string
	conn   fn.Kwargs
}

// call calls a function with keywords, given as pairs of name and value. Nil values are
// omitted.
func (s server) call(ctx context.Context, fun string, pairs ...any) (any, error) {
	kw := s.conn.Clone()
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != nil {
			kw.Set(pairs[i], pairs[i+1])
		}
	}
	return s.e.Exec(ctx, s.module+"."+fun, kw)
}

func (s server) is(ctx context.Context, fun string, pairs ...any) (bool, error) {
	v, err := s.call(ctx, fun, pairs...)
	return value.Truth(v), err
}

// one returns a plan of one step.
func one(would string, do func(ctx context.Context) (state.Change, error)) state.Plan {
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: would}, Do: do}}}
}

// done returns the outcome of a step: its change, or its failure.
func done(ok bool, err error, name, what, comment, failed string) (state.Change, error) {
	switch {
	case err != nil:
		return state.Change{}, state.Errorf("%s (%w)", failed, err)
	case !ok:
		return state.Change{}, state.Errorf("%s", failed)
	}
	return state.Change{Diff: value.DictOf(name, what), Comment: comment}, nil
}
