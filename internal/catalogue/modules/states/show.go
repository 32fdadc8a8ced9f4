package states

import (
	"context"
	"slices"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/highstate"
	"brine/internal/sls/top"
)

// ofTop renders the states that the top file assigns to the minion.
func ofTop(ctx context.Context, s *highstate.Session) (*value.Dict, []string) {
	matches, faults, err := s.Matches(ctx)
	if err != nil {
		return nil, []string{"Unable to render top file: " + err.Error()}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return s.High(ctx, matches)
}

func (m *mod) showHighstate(ctx context.Context, c *fn.Call, a args) (any, error) {
	return m.in(ctx, c, a, session{"state.show_highstate", "", failOnFaults}, func(s *highstate.Session) (any, error) {
		high, faults := ofTop(ctx, s)
		if len(faults) > 0 {
			return faulty(c, faults), nil
		}
		setRetcode(c, high, nil)
		return high, nil
	})
}

func (m *mod) showLowstate(ctx context.Context, c *fn.Call, a args) (any, error) {
	return m.in(ctx, c, a, session{"state.show_lowstate", "", failOnFaults}, func(s *highstate.Session) (any, error) {
		chunks, faults := lowOfTop(ctx, s)
		if len(faults) > 0 {
			return faulty(c, faults), nil
		}
		return chunks, nil
	})
}

func lowOfTop(ctx context.Context, s *highstate.Session) ([]*value.Dict, []string) {
	high, faults := ofTop(ctx, s)
	if len(faults) > 0 {
		return nil, faults
	}
	return s.Low(ctx, high)
}

func (m *mod) showStates(ctx context.Context, c *fn.Call, a args) (any, error) {
	return m.in(ctx, c, a, session{"state.show_states", "", failOnFaults}, func(s *highstate.Session) (any, error) {
		chunks, faults := lowOfTop(ctx, s)
		if len(faults) > 0 {
			return faulty(c, faults), nil
		}
		names := value.NewDict(0)
		for _, low := range chunks {
			names.Set(low.At("__sls__"), true)
		}
		return names.Keys(), nil
	})
}

func (m *mod) showUsage(ctx context.Context, c *fn.Call, a args) (any, error) {
	return m.in(ctx, c, a, session{"state.show_state_usage", "", failOnFaults}, func(s *highstate.Session) (any, error) {
		usage, faults, err := s.Usage(ctx)
		if err != nil {
			return nil, fn.Errorf("%w", err)
		}
		if len(faults) > 0 {
			return faulty(c, faults), nil
		}
		setRetcode(c, usage, nil)
		return usage, nil
	})
}

func (m *mod) showTop(ctx context.Context, c *fn.Call, a args) (any, error) {
	return m.in(ctx, c, a, session{"state.show_top", "", failOnFaults}, func(s *highstate.Session) (any, error) {
		matches, faults, err := s.Matches(ctx)
		if err != nil {
			faults = []string{"Unable to render top file: " + err.Error()}
		}
		if len(faults) > 0 {
			return faulty(c, faults), nil
		}
		d := value.NewDict(len(matches))
		for _, mt := range matches {
			d.Set(mt.Saltenv, value.Strings(mt.SLS))
		}
		return d, nil
	})
}

// highOf renders SLS files and validates their form.
func (m *mod) highOf(ctx context.Context, a args, s *highstate.Session) (*value.Dict, []string) {
	high, faults := s.High(ctx, []top.Match{{Saltenv: s.Saltenv(), SLS: value.Split(a.Mods)}})
	return high, append(faults, s.Verify(ctx, high)...)
}

func (m *mod) showSLS(ctx context.Context, c *fn.Call, a args) (any, error) {
	return m.in(ctx, c, a, session{"state.show_sls", "base", failOnFaults}, func(s *highstate.Session) (any, error) {
		high, faults := m.highOf(ctx, a, s)
		if len(faults) > 0 {
			return faulty(c, faults), nil
		}
		return high, nil
	})
}

func (m *mod) showLowSLS(ctx context.Context, c *fn.Call, a args) (any, error) {
	return m.in(ctx, c, a, session{"state.show_low_sls", "base", failOnFaults}, func(s *highstate.Session) (any, error) {
		high, faults := m.highOf(ctx, a, s)
		if len(faults) > 0 {
			return faulty(c, faults), nil
		}
		chunks, faults := s.Chunks(ctx, high)
		if len(faults) > 0 {
			return faulty(c, faults), nil
		}
		return chunks, nil
	})
}

func (m *mod) slsExists(ctx context.Context, c *fn.Call, a args) (any, error) {
	v, err := m.showSLS(ctx, c, a)
	_, ok := v.(*value.Dict)
	return ok, err
}

func (m *mod) idExists(ctx context.Context, c *fn.Call, a args) (any, error) {
	v, err := m.showLowSLS(ctx, c, a)
	if err != nil {
		return nil, err
	}
	chunks, ok := v.([]*value.Dict)
	if !ok {
		return v, nil
	}
	for _, id := range value.Split(a.IDs) {
		if !slices.ContainsFunc(chunks, func(low *value.Dict) bool { return value.Str(low.At("__id__")) == id }) {
			return false, nil
		}
	}
	return true, nil
}
