// Package doc is the program `brine doc`: it prints the reference of options and units as Markdown,
// generated from their declarations. docs/reference has all pages.
package doc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/cli/frame"
)

var command = frame.Command{
	Name: "doc", Usage: "[options] KIND [NAME]",
	Doc: "Prints the reference of a kind as Markdown: " + kindNames + ". With NAME only one option, module, function or other unit. " +
		"With options, NAME may also be master, minion, api, witness or hub. Example: brine doc states file.managed. " +
		"The kind sample prints a configuration file with all options, of NAME master, minion, witness or hub. " +
		"With --dir the pages of all kinds are written to files.",
}

type options struct {
	Dir string `flag:"--dir" arg:"DIR" doc:"Write the whole reference to this directory and remove outdated pages."`
}

// kind is a part of the reference.
type kind struct {
	name string
	// title is the heading of the page.
	title string
	// about introduces the overview page.
	about string
	// units returns the units in page order.
	units func() ([]unit, error)
	// paged means that each unit has its own page, in a directory with the kind's name.
	paged bool
}

// unit is an option, a module or another named item of a kind.
type unit struct {
	name string
	// group is the unit's heading on a common page, or "".
	group string
	// summary is one sentence for overviews.
	summary string
	// parts are its functions, if it has any.
	parts []part
	// write writes the description below a heading of the level.
	write func(w *page, level int)
}

// part is a function of a module.
type part struct {
	name  string
	write func(w *page, level int)
}

func kinds() []kind {
	return slices.Concat(optionKinds(), functionKinds(), otherKinds())
}

// kindNames lists the kinds in the help.
const kindNames = "options, modules, states, runners, wheel, beacons or returners"

// Applet returns the program.
func Applet() frame.Applet {
	return frame.Applet{Name: command.Name, Summary: "print the reference of options, functions and other units", Run: execute}
}

func execute(_ context.Context, env *frame.Env, args []string) int {
	o := &options{}
	inv, code, ok := command.Parse(env, o, args)
	if !ok {
		return code
	}
	switch {
	case o.Dir != "" && len(inv.Args) > 0:
		return command.Fail(env, "--dir writes the whole reference: name no kind")
	case o.Dir != "":
		if err := Write(o.Dir); err != nil {
			env.Errorf("doc: %v", err)
			return frame.ExitFailure
		}
		return frame.ExitOK
	case len(inv.Args) == 0 || len(inv.Args) > 2:
		return command.Fail(env, "name a kind, and optionally one of its units: "+kindNames)
	}
	name := ""
	if len(inv.Args) == 2 {
		name = inv.Args[1]
	}
	text, err := find(inv.Args[0], name)
	if err != nil {
		env.Errorf("doc: %v", err)
		return frame.ExitFailure
	}
	env.Stdout.Write(text)
	return frame.ExitOK
}

// find returns the description of one unit of a kind, or of all if name is empty. The kind
// "options" has the options of all daemons.
func find(kindName, name string) ([]byte, error) {
	if kindName == sampleKind {
		return sampleFile(name)
	}
	all := kinds()
	if kindName == "options" {
		all = optionKinds()
		if i := slices.IndexFunc(all, func(k kind) bool { return k.name == optionPrefix+name }); i >= 0 {
			all, name = all[i:i+1], ""
		}
	} else {
		all = slices.DeleteFunc(all, func(k kind) bool { return k.name != kindName })
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no kind %q: %s are known", kindName, kindNames)
	}
	w := &page{}
	for _, k := range all {
		units, err := k.units()
		if err != nil {
			return nil, err
		}
		if name == "" {
			w.kind(k, units, "")
			continue
		}
		for _, u := range units {
			if u.name == name {
				w.unit(u, 1)
			}
			for _, p := range u.parts {
				if u.name+"."+p.name == name {
					p.write(w, 1)
				}
			}
		}
	}
	if w.Len() == 0 {
		return nil, fmt.Errorf("there is no %q in %s: brine doc %s lists what there is", name, kindName, kindName)
	}
	return w.Bytes(), nil
}

// Write writes all pages of the reference to a directory and removes the pages of units that no
// longer exist.
func Write(dir string) error {
	pages, err := Pages()
	if err != nil {
		return err
	}
	if err := removeStale(dir, pages); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		path, text := filepath.Join(dir, name), pages[name]
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := atomicfile.Write(path, text, 0o644, false); err != nil {
			return err
		}
	}
	return nil
}

// removeStale removes generated pages that are no longer part of the reference. It keeps all files
// that do not begin like a generated page.
func removeStale(dir string, pages map[string][]byte) error {
	var faults []error
	for _, sub := range append([]string{"."}, pagedKinds()...) {
		entries, err := os.ReadDir(filepath.Join(dir, sub))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		faults = append(faults, err)
		for _, e := range entries {
			name := filepath.Join(sub, e.Name())
			text, err := os.ReadFile(filepath.Join(dir, name))
			if _, current := pages[name]; current || err != nil || !bytes.HasPrefix(text, []byte(generated)) {
				continue
			}
			faults = append(faults, os.Remove(filepath.Join(dir, name)))
		}
	}
	return errors.Join(faults...)
}

func pagedKinds() []string {
	var names []string
	for _, k := range kinds() {
		if k.paged {
			names = append(names, k.name)
		}
	}
	return names
}

// Pages returns the pages of the reference by their paths in the reference directory.
func Pages() (map[string][]byte, error) {
	pages := map[string][]byte{}
	index := &page{}
	index.WriteString(generated)
	index.heading(1, "Reference")
	index.text("All options, functions and other units of Brine, from their declarations. The program prints the same: `brine doc --help`.")
	index.line("| page | what |")
	index.line("|---|---|")
	for _, k := range kinds() {
		units, err := k.units()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
		w := &page{}
		w.WriteString(generated)
		dir := ""
		if k.paged {
			dir = k.name
			for _, u := range units {
				one := &page{}
				one.WriteString(generated)
				one.unit(u, 1)
				pages[filepath.Join(k.name, u.name+".md")] = one.Bytes()
			}
		}
		w.kind(k, units, dir)
		pages[k.name+".md"] = w.Bytes()
		index.line(fmt.Sprintf("| [%s](%s.md) | %s |", k.title, k.name, firstSentence(k.about)))
	}
	pages["README.md"] = index.Bytes()
	return pages, nil
}

// kind writes the page of a kind. If dir is set, the units have their own pages in it, and this
// page lists them.
func (w *page) kind(k kind, units []unit, dir string) {
	w.heading(1, k.title)
	w.text(k.about)
	if dir != "" {
		w.line("| name | what | functions |")
		w.line("|---|---|---|")
		for _, u := range units {
			names := make([]string, len(u.parts))
			for i, p := range u.parts {
				names[i] = "`" + p.name + "`"
			}
			w.line(fmt.Sprintf("| [%s](%s/%s.md) | %s | %s |", u.name, dir, u.name, cell(u.summary), strings.Join(names, " ")))
		}
		return
	}
	group := ""
	level := 2
	for _, u := range units {
		if u.group != group {
			group = u.group
			w.heading(2, group)
			level = 3
		}
		w.unit(u, level)
	}
}

func (w *page) unit(u unit, level int) {
	u.write(w, level)
	for _, p := range u.parts {
		p.write(w, level+1)
	}
}
