package doc

import (
	"fmt"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue"
	"brine/internal/catalogue/runners"
	"brine/internal/catalogue/states/orchestration"
	"brine/internal/catalogue/wheel"
	"brine/internal/daemons/minion"
	"brine/internal/py/value"
)

// functionKinds returns the kinds of functions.
func functionKinds() []kind {
	return []kind{
		{name: "modules", title: "Execution modules", paged: true, about: "Functions that `salt` and `salt-call` run on minions.",
			units: func() ([]unit, error) { return modules(minion.Catalogue()), nil }},
		{name: "states", title: "State modules", paged: true, about: "Functions that SLS files name.",
			units: func() ([]unit, error) { return modules(stateModules()), nil }},
		{name: "runners", title: "Runners", paged: true, about: "Functions that `salt-run` runs on the master.",
			units: func() ([]unit, error) { return modules(runners.New(runners.Deps{})), nil }},
		{name: "wheel", title: "Wheel modules", paged: true, about: "Functions of the master for programs, such as the API and the reactor.",
			units: func() ([]unit, error) { return modules(wheel.New(wheel.Deps{})), nil }},
	}
}

// stateModules returns the declarations of the state functions.
func stateModules() []fn.Module {
	all := catalogue.States(orchestration.Deps{})
	out := make([]fn.Module, len(all))
	for i, m := range all {
		out[i] = fn.Module{Name: m.Name, Doc: m.Doc, Aliases: m.Aliases}
		for j := range m.Funcs {
			out[i].Funcs = append(out[i].Funcs, m.Funcs[j].Func)
		}
	}
	return out
}

// modules returns one unit per module name, sorted.
func modules(all []fn.Module) []unit {
	byName := map[string]*unit{}
	for _, m := range all {
		u := byName[m.Name]
		if u == nil {
			u = &unit{name: m.Name, summary: firstSentence(m.Doc)}
			byName[m.Name] = u
			doc, aliases := m.Doc, m.Aliases
			u.write = func(w *page, level int) {
				w.heading(level, m.Name)
				w.text(doc)
				if len(aliases) > 0 {
					w.text("Also called " + quoted(strings.Join(aliases, "`, `")) + ".")
				}
			}
		}
		for i := range m.Funcs {
			f := &m.Funcs[i]
			full := m.Name + "." + f.Name()
			u.parts = append(u.parts, part{f.Name(), func(w *page, level int) { w.function(full, f, level) }})
		}
	}
	out := make([]unit, 0, len(byName))
	for _, u := range byName {
		slices.SortFunc(u.parts, func(a, b part) int { return strings.Compare(a.name, b.name) })
		out = append(out, *u)
	}
	slices.SortFunc(out, func(a, b unit) int { return strings.Compare(a.name, b.name) })
	return out
}

// function writes one function: its signature, description, arguments and examples.
func (w *page) function(full string, f *fn.Func, level int) {
	w.heading(level, full)
	w.signature(full, f)
	w.text(f.Text())
	wrote := false
	for _, p := range f.Params() {
		doc := p.Doc
		if p.Ignored != "" {
			doc = "accepted, but not used: " + p.Ignored
		}
		if p.Optional {
			doc = fmt.Sprintf("%s (default %s)", doc, quoted(value.Repr(p.Default)))
		}
		w.item(quoted(p.Name) + ": " + strings.TrimSpace(escape(doc)))
		wrote = true
	}
	if wrote {
		w.line("")
	}
	if len(f.Examples()) > 0 {
		w.code("sh", strings.Join(f.Examples(), "\n"))
	}
}

// signature writes the call signature in Python's notation.
func (w *page) signature(full string, f *fn.Func) {
	var args []string
	for _, p := range f.Params() {
		if p.Optional {
			args = append(args, p.Name+"="+value.Repr(p.Default))
		} else {
			args = append(args, p.Name)
		}
	}
	more, keywords := f.Variadic()
	if more != "" {
		args = append(args, "*"+more)
	}
	if keywords != "" {
		args = append(args, "**"+keywords)
	}
	w.code("python", fill(full+"(", args, ")"))
}

// fill wraps a call to the width of a page.
func fill(begin string, args []string, end string) string {
	indent := strings.Repeat(" ", min(len(begin), 24))
	var lines []string
	line := begin
	for i, a := range args {
		if i < len(args)-1 {
			a += ","
		}
		if i > 0 && len(line)+1+len(a) > columns-5 {
			lines = append(lines, line)
			line = indent + a
			continue
		}
		if i > 0 {
			a = " " + a
		}
		line += a
	}
	return strings.Join(append(lines, line+end), "\n")
}
