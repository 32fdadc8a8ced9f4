package compat

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"brine/internal/call/python"
)

// imports are the modules that the Python files of the trees import from outside of Salt.
type imports struct {
	of map[string][]imported // by the name of the module
}

// imported is the place of an import.
type imported struct {
	place    Place
	optional bool
}

func (i *imports) add(path string, text []byte) {
	lines := lineCounter{text: text}
	for _, m := range python.Imports(text) {
		if i.of == nil {
			i.of = map[string][]imported{}
		}
		i.of[m.Name] = append(i.of[m.Name], imported{Place{File: path, Line: lines.at(m.Offset)}, m.Optional})
	}
}

// reportImports records the modules that this machine's python3 does not find. Those of the trees
// themselves are found elsewhere.
func (c *checker) reportImports(i *imports) {
	for _, m := range c.known.python {
		for _, p := range m {
			delete(i.of, p.name)
			delete(i.of, strings.TrimSuffix(fileName(p.path), ".py"))
		}
	}
	for _, kind := range pythonKinds {
		delete(i.of, kind) // such as from _utils import x, in tests of the tree
	}
	var names []string
	for name := range i.of {
		names = append(names, name)
	}
	slices.Sort(names)
	program, absent, err := notFound(c.ctx, names)
	if err != nil {
		c.add(Finding{Kind: KindNote, Name: "imports", Why: fmt.Sprintf("the tree's Python files import %s; not checked whether they are installed: %v",
			strings.Join(names, ", "), err)})
		return
	}
	for _, name := range absent {
		places := i.of[name]
		slices.SortFunc(places, func(a, b imported) int { return strings.Compare(a.place.File, b.place.File) })
		why := "the files import it, and " + program + " of this machine does not have it; install it for the Python of the machines that run them"
		optional := !slices.ContainsFunc(places, func(p imported) bool { return !p.optional })
		if optional {
			why = "the files import it within try or if, and " + program + " of this machine does not have it; functions may be missing without it"
		}
		f := Finding{Kind: KindPython, Name: "package " + name, Why: why, Missing: !optional}
		for _, p := range places {
			f.Places = append(f.Places, p.place)
		}
		c.add(f)
	}
}

// fileName returns the last part of a path.
func fileName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// findTime bounds the search for modules.
const findTime = 30 * time.Second

// findProgram prints those of the modules on its standard input that Python does not find. It
// imports none of them.
const findProgram = `
import importlib.util, sys
for name in sys.stdin.read().split():
    try:
        found = name in sys.builtin_module_names or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        found = False
    if not found:
        print(name)
`

// notFound returns the path of the machine's python3, and those of the modules that it does not
// find. The search path has no directory of the caller's.
func notFound(ctx context.Context, names []string) (program string, absent []string, err error) {
	if len(names) == 0 {
		return "", nil, nil
	}
	if program, err = python.System(); err != nil {
		return "", nil, err
	}
	limited, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	cmd := exec.CommandContext(limited, program, "-I", "-c", findProgram)
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(strings.Join(names, "\n"))
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return program, nil, fmt.Errorf("%s failed: %w", program, err)
	}
	return program, strings.Fields(out.String()), nil
}
