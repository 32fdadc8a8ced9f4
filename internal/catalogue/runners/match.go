package runners

import (
	"context"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

type match struct{ Targets }

func init() { runners.Register("match", matchModule) }

func matchModule(d Deps) fn.Module {
	return fn.Module{Name: "match", Doc: `Targets, evaluated on the master.`, Funcs: []fn.Func{
		fn.Of("compound_matches", match{d.Targets}.compound, `Return {res: ID} if an accepted minion matches a compound target, by its cached data, else {res: False}.
			Pillar globs are compared exactly, since a minion may call this by peer_run.`,
			fn.Example("salt-run match.compound_matches 'I@foo:bar and G@os:Deb* and not db*' myminion")),
	}}
}

type compoundArgs struct {
	Expr     string `salt:"expr" doc:"compound target"`
	MinionID string `salt:"minion_id" doc:"id of the minion"`
}

// compound returns False for any error, as Salt does, so that the caller learns
// nothing about other minions.
func (m match) compound(_ context.Context, c *fn.Call, a compoundArgs) (*value.Dict, error) {
	if cached, ok := c.Config.Get("minion_data_cache").(bool); ok && !cached {
		c.Log.Warn("match.compound_matches needs the option minion_data_cache")
		return value.DictOf("res", false), nil
	}
	if salt.CheckID(a.MinionID) != nil {
		return value.DictOf("res", false), nil
	}
	ok, err := m.Matches("compound_pillar_exact", a.Expr, a.MinionID)
	if err != nil {
		c.Log.Warn("cannot evaluate a compound target", "expr", a.Expr, "err", err)
	}
	if err != nil || !ok {
		return value.DictOf("res", false), nil
	}
	return value.DictOf("res", a.MinionID), nil
}
