package runners

import (
	"context"
	"errors"
	"strings"

	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

type mine struct {
	minions Commander
	data    func(asker string, load *value.Dict) *value.Dict
}

func init() { runners.Register("mine", mineModule) }

func mineModule(d Deps) fn.Module {
	m := mine{d.Client, d.Mine}
	return fn.Module{Name: "mine", Doc: `Mine data of minions.`, Funcs: []fn.Func{
		fn.Of("get", m.get, `Return mine data of minions for a function, as far as the master's id has access.`,
			fn.Example("salt-run mine.get '*' network.interfaces")),
		fn.Of("update", m.update, `Make minions update their mine data.`, fn.Example("salt-run mine.update '*'"),
			fn.Example("salt-run mine.update edges tgt_type=nodegroup")),
	}}
}

type mineGetArgs struct {
	Tgt     any    `salt:"tgt" doc:"target"`
	Fun     any    `salt:"fun" doc:"function, or several as a list or with commas"`
	TgtType string `salt:"tgt_type" doc:"type of the target" default:"glob"`
}

func (m mine) get(_ context.Context, c *fn.Call, a mineGetArgs) (*value.Dict, error) {
	return m.data(strings.TrimSuffix(c.ID, "_master"), value.DictOf("tgt", a.Tgt, "fun", a.Fun, "tgt_type", a.TgtType)), nil
}

type mineUpdateArgs struct {
	Tgt       any    `salt:"tgt" doc:"target"`
	TgtType   string `salt:"tgt_type" doc:"type of the target" default:"glob"`
	Clear     bool   `salt:"clear" doc:"drop the old data first" default:"false"`
	Functions any    `salt:"mine_functions" doc:"only these functions; null: all" default:"null"`
}

func (m mine) update(ctx context.Context, _ *fn.Call, a mineUpdateArgs) (*value.Dict, error) {
	kwargs := value.DictOf("clear", a.Clear, "mine_functions", a.Functions)
	ret := value.NewDict(0)
	_, results, err := m.minions.Call(ctx, client.Job{Target: a.Tgt, Type: a.TgtType, Fun: "mine.update", Arg: value.ListOf(fn.Wire(nil, kwargs)...)})
	for _, r := range results {
		if !r.Absent {
			ret.Set(r.ID, r.Return)
		}
	}
	if errors.Is(err, client.ErrNoMatch) {
		err = nil
	}
	return ret, err
}
