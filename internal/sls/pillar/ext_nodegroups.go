package pillar

import (
	"context"

	"brine/internal/base/target"
	"brine/internal/py/value"
)

func init() { externals.Register("nodegroups", nodegroups) }

var nodegroupArgs = []string{"pillar_name"}

// nodegroups lists the nodegroups of the minion.
func nodegroups(_ context.Context, r *run, _ *value.Dict, a args) (any, error) {
	in, err := a.bind(nodegroupArgs...)
	if err != nil {
		return nil, err
	}
	name := "nodegroups"
	if value.Truth(in["pillar_name"]) {
		name = value.Str(in["pillar_name"])
	}
	return value.DictOf(name, value.Strings(r.groups())), nil
}

// groups returns the nodegroups of the minion, in the order of the option.
func (r *run) groups() []string {
	out := []string{}
	subject := target.Data{MinionID: r.q.ID, GrainData: r.q.Grains, PillarData: r.pillar}
	names := r.c.Opts.Dict("nodegroups").Keys()
	for _, k := range names {
		m, err := r.c.Nodegroups.Parse("nodegroup", value.Str(k), "")
		if err != nil {
			r.log.Error("cannot evaluate a nodegroup", "nodegroup", value.Str(k), "err", err)
			continue
		}
		if m.Match(subject) {
			out = append(out, value.Str(k))
		}
	}
	return out
}
