package usermodules

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// StockKinds are the kinds that the helper of a stock Salt loads, StockEngineKinds those that the
// process of one of its engines loads.
var (
	StockKinds       = []string{kindModules, kindStates}
	StockEngineKinds = []string{kindEngines, kindModules}
)

// kept are modules that are never Salt's own, because Salt's would use the minion's key and
// sockets at the same time as the minion.
var kept = []string{"beacons", "config", "cp", "event", "grains", "mine", "minion", "pillar", "publish", "saltutil", "schedule", "state", "sys"}

// Stock has the modules of a stock Salt on this machine, for functions that neither the
// user's modules nor Brine have. It searches for Salt when such a function is first called.
type Stock struct {
	// Modules returns modules of some kinds of the package in the directory dir, for the
	// interpreter python.
	Modules func(kinds []string, python, dir string) *Modules
	// Python is the interpreter that has the package; "" means that of Salt's packages, or
	// the system's.
	Python string
	// Allowed reports whether the options of the minion allow a module.
	Allowed func(module string) bool
	Log     *slog.Logger

	once        sync.Once
	python, dir string // empty if there is no stock Salt
	m           atomic.Pointer[Modules]
}

// stockPython is the interpreter of Salt's own packages.
const stockPython = "/opt/saltstack/salt/bin/python3"

// modules returns the modules, or nil if there are none.
func (s *Stock) modules() *Modules {
	s.once.Do(func() {
		var err error
		if s.python, s.dir, err = s.locate(); err != nil {
			s.Log.Error("cannot use a stock Salt's modules", "err", err)
			return
		}
		s.m.Store(s.Modules(StockKinds, s.python, s.dir))
	})
	return s.m.Load()
}

// Engine returns the modules for an engine of the stock Salt, or nil if there is no such Salt.
func (s *Stock) Engine() *Modules {
	if s == nil || s.modules() == nil {
		return nil
	}
	return s.Modules(StockEngineKinds, s.python, s.dir)
}

// locate asks Python for the directory of the package salt.
func (s *Stock) locate() (python, dir string, err error) {
	python = s.Python
	if python == "" {
		if python, err = exec.LookPath(stockPython); err != nil {
			python = "/usr/bin/python3"
		}
	}
	ctx, cancel := loading()
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", "import importlib.util; print(importlib.util.find_spec('salt').submodule_search_locations[0])")
	cmd.Dir = "/"
	out, err := cmd.Output()
	dir = strings.TrimSpace(string(out))
	if err != nil || !filepath.IsAbs(dir) {
		return "", "", fmt.Errorf("the option python_fallback is salt, but %s does not have Salt's package: install it, or name the Python that has it "+
			"by the option python", python)
	}
	return python, filepath.Dir(dir), nil
}

// Close ends the helpers.
func (s *Stock) Close() {
	if s == nil {
		return
	}
	if m := s.m.Load(); m != nil {
		m.Close()
	}
}

// finder finds functions of the user's modules. own means that Brine has the function as
// well: then only modules that claim its name are used.
type finder interface {
	Find(full string, own bool) *fn.Func
}

// find returns the user's function, or that of stock Salt. It loads only modules that are
// likely to have it.
func (s *Stock) find(user finder, kind, full string, own bool) *fn.Func {
	if f := user.Find(full, own); f != nil || own {
		return f
	}
	module, _, _ := strings.Cut(full, ".")
	if slices.Contains(kept, module) || !s.Allowed(module) {
		return nil
	}
	m := s.modules()
	if m == nil {
		return nil
	}
	return source{m, kind}.Find(full, true)
}

// Source returns the user's execution modules, with those of stock Salt for functions that
// neither they nor Brine have.
func (s *Stock) Source(user fn.Source) fn.Source { return withStock{user, s} }

type withStock struct {
	fn.Source
	s *Stock
}

// Find implements fn.Source.
func (w withStock) Find(full string, own bool) *fn.Func {
	return w.s.find(w.Source, kindModules, full, own)
}

// States returns the user's state modules, with those of stock Salt in the same way.
func (s *Stock) States(user state.Source) state.Source { return statesWithStock{user, s} }

type statesWithStock struct {
	state.Source
	s *Stock
}

// Find implements fn.Source.
func (w statesWithStock) Find(full string, own bool) *fn.Func {
	return w.s.find(w.Source, kindStates, full, own)
}

// Aggregate implements state.Source.
func (w statesWithStock) Aggregate(module string, own bool) state.Merge {
	if merge := w.Source.Aggregate(module, own); merge != nil || own || w.Find(module+"."+funcAggregate, false) == nil {
		return merge
	}
	return w.s.m.Load().States().Aggregate(module, false)
}

// Plan implements state.Source.
func (w statesWithStock) Plan(ctx context.Context, e *state.Env, full string, kwargs *value.Dict) (state.Plan, error) {
	m := w.s.m.Load()
	if m == nil || w.Source.Find(full, true) != nil || w.Source.Find(full, false) != nil {
		return w.Source.Plan(ctx, e, full, kwargs)
	}
	return m.States().Plan(ctx, e, full, kwargs)
}
