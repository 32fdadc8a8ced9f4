package compat

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"brine/internal/call/python"
	"brine/internal/daemons/usermodules"
)

// pythonFile is a Python module in a tree.
type pythonFile struct {
	kind string // the directory, such as _modules
	name string // of the module
	path string
	// functions are the names that may be functions of the module.
	functions []string
	// more means that there may be others, because the file imports all names of another module.
	more bool
}

// pythonModule is all files of one kind with one module name. Salt looks up a function in all of
// them.
type pythonModule []*pythonFile

// pythonKinds are the directories of a tree from which Salt syncs modules.
var pythonKinds = []string{
	"_auth", "_beacons", "_cache", "_clouds", "_engines", "_executors", "_fileserver", "_grains", "_log_handlers", "_matchers", "_modules", "_output", "_pillar",
	"_proxy", "_queues", "_renderers", "_returners", "_roster", "_runners", "_sdb", "_serializers", "_states", "_thorium", "_tokens", "_tops", "_utils",
	"_wheel", "_wrapper",
}

// minionKinds are the kinds that Brine minions run with the machine's python3, masterKinds those
// that masters run.
var (
	minionKinds = []string{"_beacons", "_engines", "_executors", "_grains", "_modules", "_output", "_renderers", "_returners", "_sdb", "_states", "_utils"}
	masterKinds = []string{"_auth", "_engines", "_fileserver", "_modules", "_output", "_pillar", "_renderers", "_returners", "_runners", "_sdb",
		"_tops", "_utils", "_wheel"}
)

// available reports whether Brine runs a Python module.
func available(p *pythonFile) bool {
	return slices.Contains(minionKinds, p.kind) || slices.Contains(masterKinds, p.kind)
}

// pythonRenderer reports whether a renderer is available because Brine runs Python.
func pythonRenderer(name string) bool { return slices.Contains(usermodules.Renderers(), name) }

var (
	// definition matches what defines a function in a module: def, an assignment such as show =
	// _make("show"), or an import.
	definition = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^(?:(?:async )?def\s+([A-Za-z]\w*)\s*\(|([A-Za-z]\w*)\s*=[^=]|from\s+\S+\s+import\s+([^(\n#]+|\([^)]*\)))`)
	})
	word        = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Za-z]\w*`) })
	virtualName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^__virtualname__\s*=\s*['"](\w+)['"]`) })
)

// readPython returns a module with the names that it defines.
func readPython(kind, path string, text []byte) *pythonFile {
	p := &pythonFile{kind: kind, name: strings.TrimSuffix(filepath.Base(path), ".py"), path: path}
	if m := virtualName().FindSubmatch(text); m != nil {
		p.name = string(m[1])
	}
	for _, m := range definition().FindAllSubmatch(text, -1) {
		p.more = p.more || strings.Contains(string(m[3]), "*")
		for _, name := range word().FindAllString(string(m[1])+" "+string(m[2])+" "+string(m[3]), -1) {
			p.functions = append(p.functions, name, strings.TrimSuffix(name, "_"))
		}
	}
	return p
}

// has reports whether the module may have the function.
func (p *pythonFile) has(name string) bool {
	return p.more || len(p.functions) == 0 || slices.Contains(p.functions, name)
}

// findPython finds the Python modules of a tree.
func (c *checker) findPython(dir string) error {
	for _, kind := range pythonKinds {
		if err := c.pythonIn(kind, filepath.Join(dir, kind)); err != nil {
			return err
		}
	}
	return nil
}

// pythonIn finds the modules of a kind in a directory, if that exists.
func (c *checker) pythonIn(kind, dir string) error {
	w := &walker{ctx: c.ctx}
	w.failed = func(path string, err error) {
		if path != dir {
			c.unread(path, err)
		}
	}
	w.enter = func(string) bool { return true }
	w.file = func(path string, err error) {
		if filepath.Ext(path) != ".py" || filepath.Base(path) == "__init__.py" {
			return
		}
		var text []byte
		if err == nil {
			text, err = readFile(path, maxSLS)
		}
		if err != nil {
			c.unread(path, err)
			return
		}
		p := readPython(kind, path, text)
		key := kind + "/" + p.name
		same := func(other *pythonFile) bool { return filepath.Base(other.path) == filepath.Base(path) }
		if !slices.ContainsFunc(c.known.python[key], same) { // the first tree that has a file wins
			c.known.python[key] = append(c.known.python[key], p)
		}
	}
	return w.walk(dir, 0)
}

// pythonCalls checks the functions that Python code calls.
func (c *checker) pythonCalls(path string, text []byte, where where) {
	lines := lineCounter{text: text}
	text = python.Code(text)
	for _, m := range byKey().FindAllSubmatchIndex(text, -1) {
		full := string(text[m[2]:m[3]])
		if !strings.HasPrefix(full, "pkg_resource.") { // the helper has it for modules in Python
			c.function(full, path, lines.at(m[0]), where)
		}
	}
}

// pythonImports records the parts of Salt's package that a module uses and Brine does not provide.
func (c *checker) pythonImports(path string, text []byte) {
	for _, l := range python.Lacking(text) {
		lines := lineCounter{text: text}
		c.add(Finding{Kind: KindPython, Name: l.Name, Places: places(path, lines.at(l.Offset)), Missing: true,
			Why: "Brine does not provide this part of Salt's package; what uses it fails (docs/python-modules.md)"})
	}
}

// pythonUnits maps kinds of findings to the tree's directories with such units.
var pythonUnits = map[string]string{
	KindAuth: "_auth", KindBeacon: "_beacons", KindExecutor: "_executors", KindFileServer: "_fileserver", KindOutputter: "_output",
	KindPillar: "_pillar", KindEngine: "_engines", KindReturner: "_returners", KindTop: "_tops",
}

// reportPython records the Python modules: those that Brine does not run as missing, the others for
// information.
func (c *checker) reportPython() {
	for _, f := range c.findings {
		if dir := pythonUnits[f.Kind]; dir != "" && c.known.python[dir+"/"+f.Name] != nil {
			f.Why, f.Missing = "the tree has it as a module in Python", false
		}
	}
	var files []*pythonFile
	for _, m := range c.known.python {
		files = append(files, m...)
	}
	slices.SortFunc(files, func(a, b *pythonFile) int { return strings.Compare(a.path, b.path) })
	var imports imports
	for _, p := range files {
		f := Finding{Kind: KindPython, Name: p.kind + "/" + p.name, Places: at(p.path, 0)}
		if available(p) {
			where := onMinion
			f.Why = "minions run it by the machine's python3; try it as docs/python-modules.md says"
			if !slices.Contains(minionKinds, p.kind) {
				where = onMaster
				f.Why = "masters run it by the machine's python3 after salt-run saltutil.sync_" + strings.TrimPrefix(p.kind, "_") +
					"; try it as docs/python-modules.md says"
			}
			// __salt__ has runners in a runner, and no functions in a wheel module, an outputter or a backend.
			if text, err := readFile(p.path, maxSLS); err == nil {
				c.pythonImports(p.path, text)
				imports.add(p.path, text)
				if !slices.Contains([]string{"_fileserver", "_utils", "_runners", "_wheel", "_output"}, p.kind) {
					c.pythonCalls(p.path, text, where)
				}
			}
		} else {
			f.Why, f.Missing = "modules in Python of this kind are not run (docs/python-modules.md)", true
		}
		c.add(f)
	}
	for path, text := range c.pythonSLS {
		imports.add(path, text)
	}
	c.reportImports(&imports)
}
