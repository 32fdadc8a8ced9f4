package states

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/textedit"
	"brine/internal/call/fn"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/sls/highstate"
	"brine/internal/sls/state"
	"brine/internal/sls/top"
)

func (m *mod) apply(ctx context.Context, c *fn.Call, a args) (any, error) {
	a.fromKwargs()
	if value.Truth(a.Mods) {
		return m.sls(ctx, c, a)
	}
	return m.highstate(ctx, c, a)
}

// passed are the keywords that functions pass on.
var passed = strings.Fields(`cache concurrent exclude localconfig mock orchestration_jid pillar pillar_enc pillarenv queue saltenv snapshot state_events
	sync_mods test whitelist`)

// refuseMisspelt returns an error for a keyword that is close to test: the states would be applied.
func (a *args) refuseMisspelt(fun string) error {
	for k := range a.Kwargs.All() {
		name := value.Str(k)
		if near := textedit.Nearest(name, passed); len(near) > 0 && near[0] == "test" && name != "test" {
			return fn.Invalidf("%s has no argument %s; did you mean test? Nothing was done", fun, name)
		}
	}
	return nil
}

// fromKwargs reads arguments that a function does not declare but passes on.
func (a *args) fromKwargs() {
	for k, p := range map[string]*any{"test": &a.Test, "exclude": &a.Exclude, "queue": &a.Queue, "sync_mods": &a.SyncMods} {
		if v, ok := a.Kwargs.Get(k); ok {
			*p = v
		}
	}
	if v, ok := a.Kwargs.Get("state_events"); ok && v != nil {
		b := value.Truth(v)
		a.StateEvents = &b
	}
}

func (m *mod) test(ctx context.Context, c *fn.Call, a args) (any, error) {
	a.Kwargs.Set("test", true)
	return m.apply(ctx, c, a)
}

const textDisabled = "Salt highstate run is disabled. To re-enable, run state.enable highstate"

// noStates is the result of a run without states.
func noStates(comment string) *value.Dict {
	return value.DictOf("no_|-states_|-states_|-None", value.DictOf("result", false, "comment", comment, "name", "No States",
		"changes", value.NewDict(0), "__run_num__", 0))
}

func (m *mod) highstate(ctx context.Context, c *fn.Call, a args) (any, error) {
	if v, ok := a.Kwargs.Get("exclude"); ok {
		a.Exclude = v
	}
	if err := a.refuseMisspelt("state.highstate"); err != nil {
		return nil, err
	}
	if len(disabledSLS(c, []string{"highstate"})) > 0 {
		return value.DictOf("name", textDisabled, "result", "False", "comment", "Disabled"), nil
	}
	return m.in(ctx, c, a, session{"state.highstate", "", listFaults}, func(s *highstate.Session) (any, error) {
		return m.runTop(ctx, c, a, s)
	})
}

func (m *mod) top(ctx context.Context, c *fn.Call, a args) (any, error) {
	return m.in(ctx, c, a, session{"state.top", "", listFaults}, func(s *highstate.Session) (any, error) {
		if v, ok := a.Kwargs.Get("exclude"); ok {
			a.Exclude = v
		}
		return m.runTop(ctx, c, a, s)
	})
}

// runTop applies the states that the top file assigns to the minion.
func (m *mod) runTop(ctx context.Context, c *fn.Call, a args, s *highstate.Session) (any, error) {
	if a.Kwargs.Bool("cache") {
		if high := m.cached(c, a); high != nil {
			return m.finish(ctx, c, a, s, high)
		}
	}
	matches, faults, err := s.Matches(ctx)
	switch {
	case err != nil:
		c.SetRetcode(codeFailure)
		return noStates("Unable to render top file: " + err.Error()), nil
	case len(faults) > 0:
		return faulty(c, faults), nil
	case len(matches) == 0:
		c.SetRetcode(codeFailure)
		return noStates("No Top file or master_tops data matches found. Please see master log for details."), nil
	}
	matches = whitelisted(matches, a.Kwargs.At("whitelist"))
	if err := m.autoload(ctx, c, s, matches); err != nil {
		return nil, err
	}
	high, faults := s.High(ctx, matches)
	if len(faults) > 0 {
		return faulty(c, faults), nil
	}
	addExclude(high, a.Exclude)
	if high.Len() == 0 {
		c.SetRetcode(codeFailure)
		return noStates("No states found for this minion"), nil
	}
	name, err := cacheName(a)
	if err != nil {
		return nil, fn.Invalidf("%w", err)
	}
	keep(c, name, high)
	return m.finish(ctx, c, a, s, high)
}

// whitelisted drops SLS files from the matches that are not on the list.
func whitelisted(matches []top.Match, v any) []top.Match {
	if !value.Truth(v) {
		return matches
	}
	white := value.Split(v)
	var out []top.Match
	for _, mt := range matches {
		var names []string
		for _, n := range mt.SLS {
			if slices.Contains(white, n) {
				names = append(names, n)
			}
		}
		if len(names) > 0 {
			out = append(out, top.Match{Saltenv: mt.Saltenv, SLS: names})
		}
	}
	return out
}

// cached returns the high data of an earlier run.
func (m *mod) cached(c *fn.Call, a args) *value.Dict {
	name, err := cacheName(a)
	if err != nil {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(cacheDir(c), name))
	if err != nil {
		return nil
	}
	v, err := msgpack.Unmarshal(b)
	high, ok := v.(*value.Dict)
	if err != nil || !ok {
		c.Log.Warn("cannot read cached high data", "path", name, "err", err)
		return nil
	}
	return high
}

// finish runs high data and sets the exit code.
func (m *mod) finish(ctx context.Context, c *fn.Call, a args, s *highstate.Session, high *value.Dict) (any, error) {
	onfail := state.OnFail(high) // the run modifies high
	results, faults := s.Run(ctx, high)
	if len(faults) > 0 {
		return faulty(c, faults), nil
	}
	if s.Options().Data == "terse" || a.Kwargs.Bool("terse") {
		results = withChanges(results)
	}
	setRetcode(c, results, onfail)
	return results, nil
}

// withChanges drops results that succeeded without changes.
func withChanges(results *value.Dict) *value.Dict {
	out := value.NewDict(0)
	for tag, v := range results.All() {
		d, _ := v.(*value.Dict)
		if !value.Truth(d.At("result")) || value.Truth(d.At("changes")) {
			out.Set(tag, v)
		}
	}
	return out
}

func (m *mod) sls(ctx context.Context, c *fn.Call, a args) (any, error) {
	if err := a.refuseMisspelt("state.sls"); err != nil {
		return nil, err
	}
	mods := value.Split(a.Mods)
	if off := disabledSLS(c, mods); len(off) > 0 {
		return faulty(c, off), nil
	}
	return m.in(ctx, c, a, session{"state.sls", "base", listFaults}, func(s *highstate.Session) (any, error) {
		if a.Kwargs.Bool("cache") {
			if high := m.cached(c, a); high != nil {
				return m.finish(ctx, c, a, s, high)
			}
		}
		if err := m.syncMods(ctx, c, s, a.SyncMods); err != nil {
			return nil, err
		}
		high, faults := s.High(ctx, []top.Match{{Saltenv: s.Saltenv(), SLS: mods}})
		if len(faults) > 0 {
			return faulty(c, faults), nil
		}
		addExclude(high, a.Exclude)
		name, err := cacheName(a)
		if err != nil {
			return nil, fn.Invalidf("%w", err)
		}
		keep(c, name, high)
		results, err := m.finish(ctx, c, a, s, high)
		if err == nil {
			keep(c, "sls.p", results)
		}
		return results, err
	})
}

func (m *mod) slsID(ctx context.Context, c *fn.Call, a args) (any, error) {
	return m.in(ctx, c, a, session{"state.sls_id", "base", listFaults}, func(s *highstate.Session) (any, error) {
		high, faults := s.High(ctx, []top.Match{{Saltenv: s.Saltenv(), SLS: value.Split(a.Mods)}})
		faults = append(faults, s.Verify(ctx, high)...)
		if len(faults) == 0 {
			faults = s.RequisiteIn(ctx, high)
		}
		if len(faults) > 0 {
			return faulty(c, faults), nil
		}
		chunks, faults := s.Chunks(ctx, high)
		if len(faults) > 0 {
			return faulty(c, faults), nil
		}
		results := s.Engine().RunID(ctx, chunks, a.ID)
		if results.Len() == 0 {
			return nil, fn.Invalidf("No matches for ID '%s' found in SLS '%s' within saltenv '%s'", a.ID, value.Str(a.Mods), s.Saltenv())
		}
		setRetcode(c, results, nil)
		return results, nil
	})
}

func (m *mod) single(ctx context.Context, c *fn.Call, a args) (any, error) {
	module, fun, ok := strings.Cut(a.Fun, ".")
	if !ok {
		c.SetRetcode(codeCompile)
		return "Invalid function passed", nil
	}
	fun, _, _ = strings.Cut(fun, ".")
	low := a.Kwargs.Dict.Clone()
	for _, kv := range [][2]any{{"state", module}, {"fun", fun}, {"__id__", a.Name}, {"name", a.Name}} {
		low.Set(kv[0], kv[1])
	}
	return m.in(ctx, c, a, session{"state.single", "", anyPillar}, func(s *highstate.Session) (any, error) {
		for _, k := range []any{"pillar", "pillar_enc", "saltenv", "pillarenv", "localconfig", "concurrent", "mock", "test"} {
			if k != "saltenv" {
				low.Delete(k)
			}
		}
		if faults := s.Engine().Verify(ctx, low); len(faults) > 0 {
			return faulty(c, faults), nil
		}
		results, tag := value.NewDict(1), highstate.Tag(low)
		results.Set(tag, s.Engine().Single(ctx, low))
		setRetcode(c, results, nil)
		return results, nil
	})
}

func (m *mod) low(ctx context.Context, c *fn.Call, a args) (any, error) {
	low, ok := a.Data.(*value.Dict)
	if !ok {
		return nil, fn.Invalidf("a low chunk is a mapping, not a %s", value.TypeName(a.Data))
	}
	low = low.Clone()
	for _, k := range []string{"state", "fun", "name"} {
		if !low.Has(k) {
			return faulty(c, []string{`Missing "` + k + `" data`}), nil
		}
	}
	if !low.Has("__id__") {
		low.Set("__id__", low.At("name"))
	}
	return m.in(ctx, c, a, session{"state.low", "", anyPillar}, func(s *highstate.Session) (any, error) {
		if faults := s.Engine().Verify(ctx, low); len(faults) > 0 {
			return faulty(c, faults), nil
		}
		// A failure sets no exit code here. As for every function, a result of
		// false sets 1, not 2 as for a run.
		return s.Engine().Single(ctx, low), nil
	})
}

func (m *mod) high(ctx context.Context, c *fn.Call, a args) (any, error) {
	return m.in(ctx, c, a, session{"state.high", "", anyPillar}, func(s *highstate.Session) (any, error) {
		high, ok := a.Data.(*value.Dict)
		if !ok {
			return faulty(c, []string{"High data is not a dictionary and is invalid"}), nil
		}
		return m.finish(ctx, c, a, s, value.DeepCopy(high).(*value.Dict))
	})
}

func (m *mod) template(ctx context.Context, c *fn.Call, a args) (any, error) {
	return m.in(ctx, c, a, session{"state.template", "", failOnFaults}, func(s *highstate.Session) (any, error) {
		if !strings.HasSuffix(a.Tem, ".sls") {
			a.Tem += ".sls"
		}
		high, faults := s.File(ctx, a.Tem)
		if len(faults) > 0 {
			return faulty(c, faults), nil
		}
		return m.finish(ctx, c, a, s, high)
	})
}

func (m *mod) templateStr(ctx context.Context, c *fn.Call, a args) (any, error) {
	return m.in(ctx, c, a, session{"state.template_str", "", anyPillar}, func(s *highstate.Session) (any, error) {
		high, faults, err := s.Text(ctx, a.Tem)
		if err != nil {
			return nil, fn.Errorf("%w", err)
		}
		if len(faults) > 0 {
			return faulty(c, faults), nil
		}
		return m.finish(ctx, c, a, s, high)
	})
}
