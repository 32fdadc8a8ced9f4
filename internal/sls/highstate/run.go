package highstate

import (
	"context"
	"fmt"
	"strings"

	"brine/internal/base/log/redact"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/sls"
	"brine/internal/sls/state"
	"brine/internal/sls/state/engine"
	"brine/internal/sls/top"
)

// High renders SLS files into high data. Faults of some files are returned in
// faults, together with the data of the others.
func (s *Session) High(ctx context.Context, matches []top.Match) (high *value.Dict, faults []string) {
	c := sls.New(slsSource{s}, s.o.Options)
	list := make([]sls.Match, len(matches))
	for i, m := range matches {
		list[i] = sls.Match(m)
	}
	high, errs := c.Render(ctx, list)
	return high, s.texts(ctx, errs)
}

// Verify returns the errors in the structure of high data.
func (s *Session) Verify(ctx context.Context, high *value.Dict) []string {
	return s.texts(ctx, sls.Verify(high))
}

// RequisiteIn resolves require_in and the like.
func (s *Session) RequisiteIn(ctx context.Context, high *value.Dict) []string {
	return s.texts(ctx, s.o.RequisiteIn(high))
}

// Chunks converts high data into chunks without changing requisites. It
// modifies high.
func (s *Session) Chunks(ctx context.Context, high *value.Dict) ([]*value.Dict, []string) {
	chunks, errs := sls.Chunks(high, nil)
	return chunks, s.texts(ctx, errs)
}

// Low converts high data into chunks with all passes of the compiler. It
// modifies high.
func (s *Session) Low(ctx context.Context, high *value.Dict) ([]*value.Dict, []string) {
	chunks, errs := s.o.Low(high)
	return chunks, s.texts(ctx, errs)
}

// Run compiles and runs high data, which it modifies. It returns results or
// faults.
func (s *Session) Run(ctx context.Context, high *value.Dict) (*value.Dict, []string) {
	chunks, faults := s.Low(ctx, high)
	if len(faults) > 0 {
		return nil, faults
	}
	return s.Engine().Run(ctx, chunks), nil
}

// Engine returns an engine for chunks of this session.
func (s *Session) Engine() *engine.Engine {
	d := engine.Deps{
		States: s.deps.States, Call: s.Call, Template: s.template, Reload: s.reload,
		Where: func(ctx context.Context, low *value.Dict) string {
			return s.place(ctx, &sls.Error{SLS: value.Str(low.At("__sls__")), Saltenv: state.SaltenvOf(low), ID: value.Str(low.At("__id__"))})
		},
		Hold: s.req.Hold, Watch: s.deps.Watch, Fire: s.deps.Fire, Log: s.call.Log,
	}
	o := engine.Options{
		Test: s.o.Test, Mock: s.req.Mock, Failhard: s.o.Failhard, Events: s.o.StateEvents, Aggregate: s.o.Aggregate,
		DisabledRequisites: s.o.DisabledRequisites, DisabledStates: DisabledStates(s.grains),
	}
	o.Conditions, _ = s.o.Conditions.(*value.Dict)
	return engine.New(d, o)
}

// Tag is the key of a chunk's result.
func Tag(low *value.Dict) string { return state.Tag(low) }

// DisabledStates returns the states that state.disable has disabled.
func DisabledStates(grains *value.Dict) []string {
	var out []string
	for _, v := range grains.List("state_runs_disabled") {
		out = append(out, value.Str(v))
	}
	return out
}

// Reload collects "grains", "pillar" or "modules" again, for the rest of the session.
func (s *Session) Reload(ctx context.Context, what string) error { return s.reload(ctx, what) }

// reload collects again what later states read.
func (s *Session) reload(ctx context.Context, what string) error {
	if what == "pillar" {
		if s.compiler == nil {
			return nil
		}
		p, err := s.compiler.Compile(ctx, fn.PillarQuery{Saltenv: s.env, Pillarenv: text(s.opts.At("pillarenv")), Override: s.req.Pillar})
		if err != nil {
			return err
		}
		s.pillar = p
		s.opts.Set("pillar", p)
		return nil
	}
	if s.deps.Reload == nil {
		return nil
	}
	err := s.deps.Reload(ctx, what)
	if s.deps.Grains != nil {
		s.grains = s.deps.Grains()
	}
	s.opts.Set("grains", s.grains)
	return err
}

// texts formats faults, each with its location if known.
func (s *Session) texts(ctx context.Context, errs []*sls.Error) []string {
	var out []string
	for _, e := range errs {
		out = append(out, redact.Text(withPlace(e.Text, s.place(ctx, e))))
	}
	return out
}

// withPlace adds a location on a separate line, because scripts compare Salt's message
// as a whole or by its beginning.
func withPlace(text, place string) string {
	if place == "" {
		return text
	}
	return strings.TrimSuffix(text, "\n") + "\n" + place
}

// place returns the location of a fault: the line on which the id begins in its SLS.
func (s *Session) place(ctx context.Context, e *sls.Error) string {
	if e.SLS == "" || e.Saltenv == "" {
		return ""
	}
	f, err := s.files.State(ctx, e.SLS, e.Saltenv)
	if err != nil {
		return ""
	}
	source, err := s.files.Read(ctx, f.Source, e.Saltenv)
	if err != nil {
		return ""
	}
	path := strings.TrimPrefix(f.Source, "salt://")
	if n := lineOf(string(source), e.ID); n > 0 {
		return fmt.Sprintf("(%s, line %d)", path, n)
	}
	return fmt.Sprintf("(%s)", path)
}

// lineOf returns the line on which a key begins, or 0.
func lineOf(source, key string) int {
	if key == "" {
		return 0
	}
	n := 0
	for line := range strings.Lines(source) {
		n++
		word := strings.TrimSpace(line)
		for _, quote := range []string{"", "'", `"`} {
			rest, ok := strings.CutPrefix(word, quote+key+quote)
			if rest = strings.TrimSpace(rest); ok && strings.HasPrefix(rest, ":") {
				return n
			}
		}
	}
	return 0
}

// Usage returns for every environment which of its SLS files the top file
// assigns to this minion: state.show_state_usage.
func (s *Session) Usage(ctx context.Context) (*value.Dict, []string, error) {
	matches, faults, err := s.Matches(ctx)
	if err != nil || len(faults) > 0 {
		return nil, faults, err
	}
	envs, err := s.files.Envs(ctx)
	if err != nil {
		return nil, nil, err
	}
	if !contains(envs, "base") {
		envs = append([]string{"base"}, envs...)
	}
	out := value.NewDict(len(envs))
	for _, env := range envs {
		names, err := s.states(ctx, env)
		if err != nil {
			return nil, nil, err
		}
		used, unused := &value.List{}, &value.List{}
		for _, n := range names {
			is := false
			for _, m := range matches {
				is = is || m.Saltenv == env && contains(m.SLS, n)
			}
			if is {
				used.Append(n)
			} else {
				unused.Append(n)
			}
		}
		out.Set(env, value.DictOf("used", used, "unused", unused, "count_all", len(names), "count_used", used.Len(), "count_unused", unused.Len()))
	}
	return out, nil, nil
}
