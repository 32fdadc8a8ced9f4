package core

import (
	"context"
	"slices"
	"strings"

	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// sys describes the functions of one kind; "" means execution functions.
type sys struct{ kind string }

func init() { units.Declare("sys", sysModule) }

func sysModule() fn.Module {
	m := fn.Module{Name: "sys", Doc: `What functions there are and how they are called.`, Funcs: []fn.Func{
		fn.Of("doc", sys{}.doc, `Return the documentation of functions.
			Without a name, of all. A name is a function, a module, or a pattern with an asterisk.`, fn.Example("salt '*' sys.doc test.ping")),
		fn.Of("argspec", sys{}.argspec, `Return the arguments of functions.`, fn.Example("salt '*' sys.argspec test.echo")),
		fn.Of("list_functions", sys{}.listFunctions, `Return the names of functions.`, fn.Example("salt '*' sys.list_functions 'test.*'")),
		fn.Of("list_modules", sys{}.listModules, `Return the names of modules.`, fn.Example("salt '*' sys.list_modules 's*'")),
		fn.Of("reload_modules", sys{}.reload, `Return nothing: modules are part of the program and need no reload.`,
			fn.Example("salt '*' sys.reload_modules")),
	}}
	for _, k := range []struct{ one, modules, kind string }{
		{"state", "list_state_modules", "states"}, {"runner", "list_runners", "runners"}, {"returner", "list_returners", "returners"},
	} {
		s := sys{k.kind}
		m.Funcs = append(m.Funcs,
			fn.Of(k.one+"_doc", s.doc, `Return the documentation of `+k.kind+`.`, fn.Example("salt '*' sys."+k.one+"_doc")),
			fn.Of(k.one+"_argspec", s.argspec, `Return the arguments of `+k.kind+`.`, fn.Example("salt '*' sys."+k.one+"_argspec '*'")),
			fn.Of("list_"+k.one+"_functions", s.listFunctions, `Return the names of `+k.kind+` with their functions.`,
				fn.Example("salt '*' sys.list_"+k.one+"_functions")),
			fn.Of(k.modules, s.listModules, `Return the names of `+k.kind+`.`, fn.Example("salt '*' sys."+k.modules)),
		)
	}
	m.Funcs = append(m.Funcs,
		fn.Of("renderer_doc", sys{"renderers"}.doc, `Return the documentation of renderers.`, fn.Example("salt '*' sys.renderer_doc")),
		fn.Of("list_renderers", sys{"renderers"}.listModules, `Return the names of renderers.`, fn.Example("salt '*' sys.list_renderers")),
	)
	return m
}

func (s sys) registry(c *fn.Call) *fn.Registry {
	if s.kind == "" {
		return c.Funcs
	}
	return c.Funcs.Kind(s.kind)
}

type namesArgs struct {
	Names fn.Args `salt:"args"`
}

func (a namesArgs) texts() []string {
	var names []string
	for _, n := range a.Names {
		names = append(names, value.Str(n))
	}
	return names
}

func (s sys) doc(_ context.Context, c *fn.Call, a namesArgs) (*value.Dict, error) {
	return s.registry(c).Docs(a.texts()...), nil
}

type specArgs struct {
	Module string `salt:"module" doc:"module, function or pattern" default:""`
}

func (s sys) argspec(_ context.Context, c *fn.Call, a specArgs) (*value.Dict, error) {
	return s.registry(c).ArgSpecs(a.Module), nil
}

type listArgs struct {
	namesArgs
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (s sys) listFunctions(_ context.Context, c *fn.Call, a listArgs) (*value.List, error) {
	return value.Strings(s.registry(c).Functions(a.texts()...)), nil
}

func (s sys) listModules(_ context.Context, c *fn.Call, a namesArgs) (*value.List, error) {
	r, names := s.registry(c), a.texts()
	if len(names) == 0 {
		return value.Strings(r.Modules()), nil
	}
	found := map[string]bool{}
	for _, name := range names {
		if !strings.Contains(name, "*") {
			found[name] = true
			continue
		}
		glob := target.ParseGlob(name)
		for _, full := range r.Names() {
			if mod, _, _ := strings.Cut(full, "."); glob.Match(full) {
				found[mod] = true
			}
		}
	}
	return value.Strings(slices.DeleteFunc(r.Modules(), func(m string) bool { return !found[m] })), nil
}

type reloadArgs struct {
	Initial bool `salt:"initial_load" ignored:"modules are part of the program" default:"false"`
	Context any  `salt:"context" ignored:"modules are part of the program" default:"null"`
}

func (sys) reload(context.Context, *fn.Call, reloadArgs) (any, error) { return nil, nil }
