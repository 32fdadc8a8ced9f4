package compat

import (
	"fmt"
	"slices"
	"strings"

	"brine/internal/base/textedit"
	"brine/internal/call/fn"
	"brine/internal/catalogue"
	"brine/internal/catalogue/runners"
	"brine/internal/catalogue/states/orchestration"
	"brine/internal/catalogue/wheel"
	"brine/internal/daemons/minion"
	"brine/internal/sls/state"
)

// where is the side that renders a template and runs its functions.
type where int

const (
	onMinion where = iota
	onMaster
)

// functionSet is a set of functions by full name, with the names of their modules.
type functionSet struct {
	functions map[string]*fn.Func
	modules   map[string]bool
}

func newSet(all []fn.Module) functionSet {
	s := functionSet{map[string]*fn.Func{}, map[string]bool{}}
	for _, m := range all {
		for _, name := range append([]string{m.Name}, m.Aliases...) {
			s.modules[name] = true
			for i := range m.Funcs {
				if full := name + "." + m.Funcs[i].Name(); s.functions[full] == nil {
					s.functions[full] = &m.Funcs[i]
				}
			}
		}
	}
	return s
}

// known is everything that Brine has.
type known struct {
	minion, master, runners, wheel functionSet
	states                         *state.Registry
	stateMods                      map[string]bool
	all                            []fn.Module // execution modules
	// python are the Python modules in the trees, by kind and name.
	python map[string]pythonModule
}

func newKnown() (*known, error) {
	k := &known{stateMods: map[string]bool{}, python: map[string]pythonModule{}}
	k.all = minion.Catalogue()
	k.minion, k.master = newSet(k.all), newSet(catalogue.Modules())
	// These exist on masters in a different form.
	for _, m := range k.all {
		switch m.Name {
		case "grains", "state":
			k.master.add(m, "")
		case "saltutil":
			for _, name := range []string{"runner", "cmd", "cmd_iter"} {
				k.master.add(m, name)
			}
		}
	}
	k.runners, k.wheel = newSet(runners.New(runners.Deps{})), newSet(wheel.New(wheel.Deps{}))
	mods := catalogue.States(orchestration.Deps{})
	for i := range mods {
		mods[i].When = nil // independent of this machine
		for _, name := range append([]string{mods[i].Name}, mods[i].Aliases...) {
			k.stateMods[name] = true
		}
	}
	// Several modules with one name are for different machines; use the first.
	seen := map[string]bool{}
	mods = slices.DeleteFunc(mods, func(m state.Module) bool {
		twice := seen[m.Name]
		seen[m.Name] = true
		return twice
	})
	var err error
	k.states, err = state.NewRegistry(nil, mods...)
	return k, err
}

// add adds a module, or one function of it.
func (s functionSet) add(m fn.Module, only string) {
	s.modules[m.Name] = true
	for i := range m.Funcs {
		if name := m.Funcs[i].Name(); only == "" || name == only {
			s.functions[m.Name+"."+name] = &m.Funcs[i]
		}
	}
}

// missingState returns why a state function is not available, or "".
func (k *known) missingState(full string) (why, kind string) {
	module, _, _ := strings.Cut(full, ".")
	if k.states.Declarations().Has(full) {
		return "", ""
	}
	if p := k.python["_states/"+module]; p != nil {
		return p.missing(full)
	}
	switch {
	case k.stateMods[module] && !k.hasFunctions(module): // a module for other systems, which refuses to run on Linux
		return "", ""
	case k.stateMods[module] && !ofSalt(lackingStates, full):
		return "neither Brine nor Salt has this function of the state module " + module + near(full, k.states.Declarations().Names()), KindState
	case k.stateMods[module]:
		return "Brine has the state module " + module + ", but not this function" + near(full, k.states.Declarations().Names()), KindState
	case state.Unsupported(module):
		return "Brine does not have Salt's state module " + module, KindState
	}
	return "neither Brine nor Salt has the state module " + module + near(full, k.states.Declarations().Names()), KindState
}

// near returns a hint with the name that is closest to a misspelt one, or "".
func near(full string, names []string) string {
	if found := textedit.Nearest(full, names); len(found) > 0 {
		return "; did you mean " + found[0] + "?"
	}
	return ""
}

// near returns a hint with the function that is closest to a misspelt one. A function of an unknown module may be
// one of Salt's or of the user's own, so that its own name and the first letter of its module must be right.
func (s functionSet) near(full string) string {
	module, fun, _ := strings.Cut(full, ".")
	var names []string
	for name := range s.functions {
		switch m, f, _ := strings.Cut(name, "."); {
		case s.modules[module] && m == module:
			names = append(names, name)
		case !s.modules[module] && f == fun && m[0] == module[0] && len(textedit.Nearest(module, []string{m})) > 0:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return near(full, names)
}

// neither reports whether Salt lacks a missing function as well: its module is there, and is not in Python.
func (k *known) neither(full string, states bool) bool {
	module, _, _ := strings.Cut(full, ".")
	if states {
		return k.stateMods[module] && k.python["_states/"+module] == nil && !ofSalt(lackingStates, full)
	}
	return k.minion.modules[module] && k.minion.functions[full] == nil && k.python["_modules/"+module] == nil && !ofSalt(lackingFunctions, full)
}

// isState reports whether a word is probably the name of a state module.
func (k *known) isState(module string) bool {
	return k.stateMods[module] || state.Unsupported(module) || k.python["_states/"+module] != nil
}

// hasFunctions reports whether a state module has at least one function.
func (k *known) hasFunctions(module string) bool {
	return slices.ContainsFunc(k.states.Declarations().Names(), func(n string) bool { return strings.HasPrefix(n, module+".") })
}

// missing returns why a function of a Python module is not available, or "".
func (m pythonModule) missing(full string) (why, kind string) {
	_, name, _ := strings.Cut(full, ".")
	var paths []string
	for _, p := range m {
		switch {
		case !available(p):
			return "the function is in a module in Python, which is not run: " + p.path, KindPython
		case p.has(name):
			return "", ""
		}
		paths = append(paths, p.path)
	}
	verb := " does"
	if len(paths) > 1 {
		verb = " do"
	}
	return strings.Join(paths, ", ") + verb + " not define this function", KindPython
}

// ofProxies are functions of modules that Brine has completely, of which Salt has more for proxy minions
// alone.
var ofProxies = map[string]bool{"pkg.installed": true, "service.list": true, "service.running": true}

// missingFunction returns why an execution function is not available, or "".
func (k *known) missingFunction(full string, at where) (why, kind string) {
	module, _, _ := strings.Cut(full, ".")
	set := k.minion
	if at == onMaster {
		set = k.master
	}
	if set.functions[full] != nil {
		return "", ""
	}
	if p := k.python["_modules/"+module]; p != nil {
		return p.missing(full)
	}
	switch {
	case k.minion.functions[full] != nil:
		return "minions have this function, and templates that a master renders do not", KindFunction
	case k.minion.modules[module] && !ofSalt(lackingFunctions, full):
		return "neither Brine nor Salt on Linux has this function of the execution module " + module + k.minion.near(full), KindFunction
	case k.minion.modules[module]:
		return "Brine has the execution module " + module + ", but not this function" + k.minion.near(full), KindFunction
	}
	return "Brine does not have the execution module " + module + k.minion.near(full), KindFunction
}

// missingIn returns why a runner or wheel function is not available, or "".
func (k *known) missingIn(set functionSet, what, full string) string {
	module, _, _ := strings.Cut(full, ".")
	switch {
	case set.functions[full] != nil, what == KindRunner && module == "state":
		return ""
	case set.modules[module]:
		return fmt.Sprintf("Brine has the %s module %s, but not this function%s", what, module, set.near(full))
	}
	return fmt.Sprintf("Brine does not have the %s module %s%s", what, module, set.near(full))
}
