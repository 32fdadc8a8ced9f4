package runners

import (
	"context"
	"errors"
	"slices"

	"brine/internal/base/textedit"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

type survey struct{ minions Commander }

func init() { runners.Register("survey", surveyModule) }

func surveyModule(d Deps) fn.Module {
	s := survey{d.Client}
	return fn.Module{Name: "survey", Doc: `Compare the returns of minions.`, Funcs: []fn.Func{
		fn.Of("hash", s.hash, `Run a function on minions, and return groups of minions with equal returns, the largest first; survey_sort=up: the smallest.
			All further arguments go to the function. tgt_type is compound or pcre.`,
			fn.Example("salt-run survey.hash '*' test.ping"), fn.Example("salt-run survey.hash '*' file.get_hash /etc/salt/minion survey_sort=up")),
		fn.Of("diff", s.diff, `Return the groups of survey.hash, each but the first with the diff from the first result.`,
			fn.Example("salt-run survey.diff survey_sort=up '*' cp.get_file_str file:///etc/hosts")),
	}}
}

type surveyArgs struct {
	Args   fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (s survey) hash(ctx context.Context, _ *fn.Call, a surveyArgs) (*value.List, error) {
	if len(a.Args) < 2 {
		return nil, fn.Invalidf("a target and a function are needed, as in survey.hash '*' test.ping")
	}
	kwargs := a.Kwargs.Clean()
	up := kwargs.At("survey_sort") == "up"
	typ := kwargs.Str("tgt_type")
	if typ != "pcre" {
		typ = "compound"
	}
	kwargs.Delete("survey_sort")
	kwargs.Delete("tgt_type")
	_, results, err := s.minions.Call(ctx, client.Job{Target: a.Args[0], Type: typ, Fun: value.Str(a.Args[1]), Arg: value.ListOf(fn.Wire(a.Args[2:], kwargs)...)})
	if errors.Is(err, client.ErrNoMatch) {
		return &value.List{}, nil
	}
	if err != nil {
		return nil, err
	}
	byMinion := map[string]string{}
	var ids []string
	for _, r := range results {
		if !r.Absent {
			byMinion[r.ID] = value.Str(r.Return)
			ids = append(ids, r.ID)
		}
	}
	slices.Sort(ids)
	type pool struct {
		ids    []string
		result string
	}
	var pools []*pool
	byResult := map[string]*pool{}
	for _, id := range ids {
		p := byResult[byMinion[id]]
		if p == nil {
			p = &pool{result: byMinion[id]}
			byResult[p.result] = p
			pools = append(pools, p)
		}
		p.ids = append(p.ids, id)
	}
	slices.SortStableFunc(pools, func(a, b *pool) int {
		if up {
			return len(a.ids) - len(b.ids)
		}
		return len(b.ids) - len(a.ids)
	})
	out := &value.List{}
	for _, p := range pools {
		out.Append(value.DictOf("pool", value.Strings(p.ids), "result", p.result))
	}
	return out, nil
}

func (s survey) diff(ctx context.Context, c *fn.Call, a surveyArgs) (*value.List, error) {
	pools, err := s.hash(ctx, c, a)
	if err != nil || pools.Len() < 2 {
		return pools, err
	}
	first := pools.Items[0].(*value.Dict)
	for _, it := range pools.Items[1:] {
		p := it.(*value.Dict)
		p.Set("diff", textedit.Diff(first.Str("result")+"\n", p.Str("result")+"\n", value.Str(first.List("pool")[0]), value.Str(p.List("pool")[0])))
	}
	return pools, nil
}
