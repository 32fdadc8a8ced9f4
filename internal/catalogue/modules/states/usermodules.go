package states

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/highstate"
	"brine/internal/sls/top"
)

// autoload fetches the user's own modules for the environments of a highstate. States then
// see grains and pillar that include the new grains modules.
func (m *mod) autoload(ctx context.Context, c *fn.Call, s *highstate.Session, matches []top.Match) error {
	if !m.deps.Autoload || !c.Funcs.Has("saltutil.sync_all") {
		return nil
	}
	envs := &value.List{}
	for _, match := range matches {
		envs.Append(match.Saltenv)
	}
	return m.sync(ctx, c, s, "all", envs)
}

// syncMods fetches the kinds of modules that an argument names.
func (m *mod) syncMods(ctx context.Context, c *fn.Call, s *highstate.Session, kinds any) error {
	if kinds == true {
		kinds = "all"
	}
	if !value.Truth(kinds) {
		return nil
	}
	env := s.Saltenv()
	if env == "" {
		env = "base"
	}
	for _, kind := range value.Split(kinds) {
		if err := m.sync(ctx, c, s, kind, env); err != nil {
			return err
		}
	}
	return nil
}

func (m *mod) sync(ctx context.Context, c *fn.Call, s *highstate.Session, kind string, envs any) error {
	v, err := c.Funcs.Call(ctx, c, "saltutil.sync_"+kind, nil, value.DictOf("saltenv", envs, "refresh", false))
	if err != nil {
		return err
	}
	if d, ok := v.(*value.Dict); ok {
		v = d.At("grains")
	} else if kind != "grains" {
		v = nil
	}
	if !value.Truth(v) {
		return nil
	}
	if err := s.Reload(ctx, "grains"); err != nil {
		return err
	}
	return s.Reload(ctx, "pillar")
}
