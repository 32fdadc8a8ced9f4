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
	return fn.Module{Name: "match", Doc: `Targets, seen from the master.`, Funcs: []fn.Func{
		fn.Of("compound_matches", match{d.Targets}.compound, `Return {res: ID} if an accepted minion is known to match a compound target, else {res: False}.
			Pillar is compared exactly, since a minion may ask by peer_run.`,
			fn.Example("salt-run match.compound_matches 'I@foo:bar and G@os:Deb* and not db*' myminion")),
	}}
}

type compoundArgs struct {
	Expr     string `salt:"expr" doc:"compound target"`
	MinionID string `salt:"minion_id" doc:"id of the minion"`
}

// compound answers False for whatever is wrong, as Salt does: who asks learns
// nothing of other minions by errors.
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
