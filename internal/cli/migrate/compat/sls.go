package compat

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"brine/internal/py/jinja"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/internal/sls/render"
	"brine/internal/store/returner"
)

// chunk is a state declared in an SLS file, as far as it is known without rendering.
type chunk struct {
	id, full string
	line     int
	// args are the arguments whose names contain no template.
	args []line
}

// text is the outline of one SLS file.
type text struct {
	root   root
	path   string
	chunks []*chunk
	// calls are functions named by conditions (onlyif, unless, check_cmd).
	calls []line
	// orders are the functions called by a reaction: local.x.y, runner.x.y ...
	orders []line
}

// read parses the outline of an SLS file with states.
func (t *text) read(source string) {
	var cur *chunk
	id := ""
	outline(source, func(l line) {
		chain := l.chain
		if len(chain) > 0 && chain[0] == "extend" {
			chain = chain[1:]
		} else if l.key == "extend" && len(chain) == 0 {
			return
		}
		switch {
		case len(chain) == 0:
			id, cur = l.key, nil
			if !l.plain && isFunction(l.value) {
				t.chunks = append(t.chunks, &chunk{id: id, full: l.value, line: l.number})
			}
		case slices.Contains(chain[:1], "-") || id == "include" || id == "exclude":
		case len(chain) == 1 && !l.item:
			if strings.Contains(l.key, hole) {
				cur = nil
				return
			}
			if orderOf(l.key) != "" || strings.Count(l.key, ".") == 2 && isFunction(l.key[strings.Index(l.key, ".")+1:]) {
				t.orders = append(t.orders, l)
				cur = nil
				return
			}
			cur = &chunk{id: id, full: l.key, line: l.number}
			t.chunks = append(t.chunks, cur)
			cur.flow(l)
		case cur != nil && len(chain) == 3 && chain[2] == "-":
			cur.add(l)
		case len(chain) > 4 && l.key == "fun" && isFunction(l.value) && slices.Contains([]string{"onlyif", "unless", "check_cmd"}, chain[3]):
			l.key = l.value
			t.calls = append(t.calls, l)
		}
	})
	t.chunks = slices.DeleteFunc(t.chunks, func(c *chunk) bool { return !isFunction(c.full) })
}

// add adds an item of a state's list: an argument, or the function's name.
func (c *chunk) add(l line) {
	switch {
	case strings.Contains(l.key, hole):
	case l.plain && !strings.Contains(c.full, "."):
		c.full += "." + l.key
	case !l.plain:
		c.args = append(c.args, l)
	}
}

// flow parses a flow list after the name of a state: [running, {enable: true}].
func (c *chunk) flow(l line) {
	if l.hole || l.value == "" {
		return
	}
	items, err := flow(l.value)
	if err != nil {
		return
	}
	for _, it := range items {
		switch it := it.(type) {
		case string:
			if !strings.Contains(c.full, ".") {
				c.full += "." + it
			}
		case *value.Dict:
			for k, v := range it.All() {
				c.args = append(c.args, line{number: l.number, key: value.Str(k), value: value.Str(v)})
			}
		}
	}
}

// flow parses a value that is written in one line: the items of a list, or the one item that it is.
func flow(text string) ([]any, error) {
	v, err := yaml.LoadText(text, "")
	if err != nil {
		return nil, err
	}
	if list, ok := v.(*value.List); ok {
		return list.Items, nil
	}
	return []any{v}, nil
}

// value returns an argument's value, "" if unknown.
func (c *chunk) value(arg string) string {
	for _, a := range c.args {
		if a.key == arg && !a.hole {
			return strings.Trim(a.value, `'"`)
		}
	}
	return ""
}

var functionName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z_][a-z0-9_]*\.[a-z_][A-Za-z0-9_]*$`) })

func isFunction(s string) bool { return functionName().MatchString(s) }

// reactionKinds are the kinds of calls of a reaction.
var reactionKinds = []string{"local", "runner", "wheel", "caller"}

// orderOf returns the kind of a call of a reaction: local, runner, wheel or caller.
func orderOf(key string) string {
	kind, fun, _ := strings.Cut(key, ".")
	if kind == "cmd" {
		kind = "local"
	}
	if isFunction(fun) && slices.Contains(reactionKinds, kind) {
		return kind
	}
	return ""
}

// isOrchestration reports whether the file has states that run on a master.
func (t *text) isOrchestration() bool {
	return slices.ContainsFunc(t.chunks, func(c *chunk) bool {
		module, _, _ := strings.Cut(c.full, ".")
		return module == "salt"
	})
}

// sls checks one SLS file.
func (c *checker) sls(r root, path string, source []byte) {
	t := &text{root: r, path: path}
	pipe := pipeOf(string(source), r.renderer)
	complete := c.renderers(pipe, path)
	stateconf := slices.Contains(pipe, "stateconf")
	switch {
	case slices.ContainsFunc(pipe, pythonRenderer):
		where := onMinion
		if r.pillar {
			where = onMaster
		}
		c.pythonCalls(path, source, where)
		c.pythonSLS[path] = source
		return
	case !slices.Contains(pipe, "yaml") && !stateconf:
		c.jinja(t, source, pipe, onMinion)
		return
	}
	at := onMinion
	isTop := filepath.Base(path) == r.top
	if isTop && filepath.Dir(path) == r.dir {
		newSLSNames(c, r).topFile(path, string(source))
	}
	switch {
	case r.pillar:
		at = onMaster
		if !isTop {
			c.pillarText(path, string(source))
		}
	case !isTop:
		t.read(string(source))
		if t.isOrchestration() || len(t.orders) > 0 {
			at = onMaster
		}
		c.texts(t)
	}
	c.jinja(t, source, pipe, at)
	if complete && len(pipe) <= 2 && !stateconf {
		c.plainYAML(path, string(source))
	}
}

// texts checks the names in the outline of a file.
func (c *checker) texts(t *text) {
	for _, l := range t.calls {
		c.function(l.key, t.path, l.number, onMinion)
	}
	for _, l := range t.orders {
		kind, fun, _ := strings.Cut(l.key, ".")
		if orderOf(l.key) == "" {
			c.add(Finding{Kind: KindReaction, Name: l.key, Places: at(t.path, l.number), Why: fmt.Sprintf("there is no kind of reaction %.80q%s", kind,
				near(kind, reactionKinds))})
			continue
		}
		c.called(orderOf(l.key), fun, t.path, l.number)
	}
	for _, ch := range t.chunks {
		module, _, _ := strings.Cut(ch.full, ".")
		if !c.known.isState(module) {
			if !strings.Contains(ch.full, hole) {
				c.add(Finding{Kind: KindState, Name: ch.full, Places: at(t.path, ch.line),
					Why: "neither Brine nor Salt has the state module " + module + near(ch.full, c.known.states.Declarations().Names())})
			}
			continue
		}
		c.state(ch.full, t.path, ch.line, "")
		c.arguments(t, ch)
		c.namedBy(t, ch)
	}
}

// arguments checks the names of a state's arguments.
func (c *checker) arguments(t *text, ch *chunk) {
	f, err := c.known.states.Lookup(ch.full)
	if err != nil {
		return
	}
	low := value.DictOf("state", "", "fun", "", "name", ch.id, "__id__", ch.id)
	lines := map[string]int{}
	for _, a := range ch.args {
		if !strings.HasPrefix(a.key, "<<") && a.key != "names" {
			low.Set(a.key, a.value)
			lines[a.key] = a.number
		}
	}
	c.low(f, ch.full, low, func(arg string) []Place { return at(t.path, lines[arg]) }, "")
}

// namedBy checks the functions, returners and renderers named by arguments of a state.
func (c *checker) namedBy(t *text, ch *chunk) {
	function := func(kind, fun string) {
		if isFunction(fun) {
			c.called(kind, fun, t.path, ch.line)
		}
	}
	name := ch.value("name")
	if name == "" {
		name = ch.id
	}
	switch ch.full {
	case "module.run", "module.wait":
		function("local", ch.value("name"))
		for _, a := range ch.args {
			if isFunction(a.key) {
				c.called("local", a.key, t.path, a.number)
			}
		}
	case "salt.function":
		function("local", name)
	case "salt.runner":
		function("runner", name)
	case "salt.wheel":
		function("wheel", name)
	case "schedule.present":
		function("local", ch.value("function"))
	}
	for _, a := range ch.args {
		v := strings.Trim(a.value, `'"`)
		if a.key == "template" && !templated(a.value) {
			continue
		}
		if a.hole || v == "" || strings.ContainsAny(v, "[{,") {
			continue
		}
		switch {
		case a.key == "template" && v != "jinja" && !slices.Contains(render.Names(), v) && !pythonRenderer(v) &&
			(ch.full == "file.managed" || ch.full == "file.recurse"):
			c.add(Finding{Kind: KindRenderer, Name: v, Places: at(t.path, a.number), Why: "Brine does not have this template engine", Missing: true})
		case a.key == "ret" && strings.HasPrefix(ch.full, "salt."), a.key == "returner" && ch.full == "schedule.present":
			c.returner(v, t.path, a.number)
		}
	}
}

// called checks a function that is named as an execution, runner or wheel function.
func (c *checker) called(kind, full, path string, line int) {
	switch kind {
	case "runner":
		if why := c.known.missingIn(c.known.runners, KindRunner, full); why != "" {
			c.missingPython(KindRunner, "_runners", full, path, line, why)
		}
	case "wheel":
		if why := c.known.missingIn(c.known.wheel, KindWheel, full); why != "" {
			c.missingPython(KindWheel, "_wheel", full, path, line, why)
		}
	case "caller":
		c.function(full, path, line, onMaster)
	default:
		c.function(full, path, line, onMinion)
	}
}

// missingPython records a missing function, unless a Python module may have it.
func (c *checker) missingPython(kind, dir, full, path string, line int, why string) {
	module, _, _ := strings.Cut(full, ".")
	if p := c.known.python[dir+"/"+module]; p != nil {
		if why, kind = p.missing(full); why == "" {
			return
		}
	}
	c.add(Finding{Kind: kind, Name: full, Places: at(path, line), Why: why, Missing: true})
}

func (c *checker) returner(name, path string, line int) {
	if slices.Contains(returner.Names(), name) {
		return
	}
	c.add(Finding{Kind: KindReturner, Name: name, Places: at(path, line), Why: "there is no such returner; use one of " + strings.Join(returner.Names(), ", "),
		Missing: true})
}

// jinja checks the functions called by templates of a file.
func (c *checker) jinja(t *text, source []byte, pipe []string, at where) {
	if !slices.Contains(pipe, "jinja") && !slices.Contains(pipe, "stateconf") {
		return
	}
	lines := lineCounter{text: source}
	for _, m := range slot().FindAllSubmatchIndex(source, -1) {
		c.function(string(source[m[2]:m[3]]), t.path, lines.at(m[0]), onMinion)
	}
	uses, err := c.renderer.Uses(render.Request{Source: withoutFirst(source), Path: t.path, SLS: "x"}, "salt")
	if err != nil {
		line := 0
		if e, ok := errors.AsType[*render.Error](err); ok {
			line = e.Line
			err = errors.New(e.Message)
		}
		c.add(Finding{Kind: KindRender, Name: filepath.Base(t.path), Places: places(t.path, line), Why: oneLine(err.Error()), Missing: true})
		c.byText(t.path, source, at)
		return
	}
	for _, u := range uses {
		c.use(t.path, u, at)
	}
}

// use checks one use of the variable salt in a template.
func (c *checker) use(path string, u jinja.Use, where where) {
	if u.Path == "get" && len(u.Args) > 0 {
		u.Path = u.Args[0]
	}
	parts := strings.Split(u.Path, ".")
	if len(parts) < 2 {
		return
	}
	full := parts[0] + "." + parts[1]
	if !isFunction(full) {
		return
	}
	c.function(full, path, u.Line, where)
	if len(u.Args) > 0 && isFunction(u.Args[0]) {
		switch full {
		case "saltutil.runner", "publish.runner":
			c.called("runner", u.Args[0], path, u.Line)
		case "saltutil.wheel":
			c.called("wheel", u.Args[0], path, u.Line)
		}
	}
	set := c.known.minion
	if where == onMaster {
		set = c.known.master
	}
	f := set.functions[full]
	if f == nil || !u.Called || f.TakesKwargs() || c.known.python["_modules/"+parts[0]] != nil {
		return
	}
	for _, k := range u.Kwargs {
		if p, ok := f.Param(k); !ok && !strings.HasPrefix(k, "__") {
			c.add(Finding{Kind: KindArgument, Name: full + " " +
				k, Places: at(path, u.Line), Why: "the function has no such argument and would fail", Missing: true})
		} else if p.Ignored != "" {
			c.add(Finding{Kind: KindArgument, Name: full + " " + k, Places: at(path, u.Line), Why: "has no effect: " + p.Ignored})
		}
	}
}

var (
	// salt['module.function'] and salt["module.function"].
	byKey = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\b(?:salt|__salt__)\[\s*['"]([a-z0-9_]+\.[A-Za-z0-9_]+)['"]\s*\]`)
	})
	// salt.module.function(, but not variable.salt.module.function(
	byName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?:^|[^.\w])salt\.([a-z0-9_]+\.[A-Za-z0-9_]+)\s*\(`)
	})
	// __slot__:salt:module.function(
	slot         = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`__slot__:salt:([a-z0-9_]+\.[A-Za-z0-9_]+)\(`) })
	jinjaComment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)\{#.*?#\}`) })
	jinjaMarkup  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{\{.*?\}\}|\{%.*?%\}`) })
)

// templated reports whether the value of an argument template names an engine: null and false do not.
func templated(text string) bool {
	v, err := yaml.LoadText(text, "")
	return err != nil || value.Truth(v)
}

// byText searches a file that may not be a template for functions that it calls.
func (c *checker) byText(path string, source []byte, at where) {
	source = jinjaComment().ReplaceAllFunc(source, func(m []byte) []byte { return newlines(m) })
	if isPython(path, source) {
		source = markup(source) // salt.client.Caller() is a name of Salt's package there
	}
	for _, pattern := range []*regexp.Regexp{byKey(), byName()} {
		lines := lineCounter{text: source}
		for _, m := range pattern.FindAllSubmatchIndex(source, -1) {
			c.function(string(source[m[2]:m[3]]), path, lines.at(m[2]), at)
		}
	}
}

// isPython reports whether a file is a program in Python.
func isPython(path string, source []byte) bool {
	first, _, _ := bytes.Cut(source, []byte{'\n'})
	return filepath.Ext(path) == ".py" || bytes.HasPrefix(first, []byte("#!")) && bytes.Contains(first, []byte("python"))
}

// markup returns a text of the same length with the expressions and statements of templates alone.
func markup(source []byte) []byte {
	out := bytes.Repeat([]byte{' '}, len(source))
	for i, b := range source {
		if b == '\n' {
			out[i] = b
		}
	}
	for _, m := range jinjaMarkup().FindAllIndex(source, -1) {
		copy(out[m[0]:m[1]], source[m[0]:m[1]])
	}
	return out
}

// plainYAML parses a file without templates as YAML.
func (c *checker) plainYAML(path, source string) {
	if strings.Contains(source, "{{") || strings.Contains(source, "{%") || strings.Contains(source, "{#") {
		return
	}
	if _, err := yaml.LoadText(source, ""); err != nil {
		line := 0
		if e, ok := errors.AsType[*yaml.Error](err); ok {
			line = e.Line
		}
		c.add(Finding{Kind: KindRender, Name: filepath.Base(path), Places: places(path, line), Why: oneLine(err.Error()), Missing: true})
	}
}

// pillarText checks what a pillar file configures on minions: schedules, beacons and mine
// functions.
func (c *checker) pillarText(path, source string) {
	beacons, mine := map[string]int{}, map[string]int{}
	outline(source, inFlow(func(l line) {
		v := strings.Trim(l.value, `'"`)
		if len(l.chain) == 0 || strings.Contains(l.key+v, hole) {
			return
		}
		switch l.chain[0] {
		case "schedule":
			switch {
			case len(l.chain) == 2 && l.key == "function" && isFunction(v):
				c.function(v, path, l.number, onMinion)
			case len(l.chain) == 2 && l.key == "returner" && v != "":
				c.returner(v, path, l.number)
			}
		case "mine_functions":
			switch {
			case len(l.chain) == 1 && isFunction(l.key):
				mine[l.key] = l.number
			case l.key == "mine_function" && isFunction(v):
				if len(l.chain) > 1 {
					delete(mine, l.chain[1]) // it is the name of the value
				}
				c.function(v, path, l.number, onMinion)
			}
		case "beacons":
			switch {
			case len(l.chain) == 1 && l.key != "enabled" && !l.item:
				beacons[l.key] = l.number
			case l.key == "beacon_module" && len(l.chain) > 1:
				delete(beacons, l.chain[1])
				c.beacon(v, path, l.number)
			}
		}
	}))
	for name, n := range beacons {
		c.beacon(name, path, n)
	}
	for name, n := range mine {
		c.function(name, path, n, onMinion)
	}
}

// inFlow returns a visit that also visits the items of maps and lists that are written in one line.
func inFlow(visit func(line)) func(line) {
	var into func(l line, v any)
	into = func(l line, v any) {
		switch v := v.(type) {
		case *value.Dict:
			for k, x := range v.All() {
				in := line{number: l.number, chain: append(slices.Clone(l.chain), l.key), key: value.Str(k), value: value.Str(x)}
				visit(in)
				into(in, x)
			}
		case *value.List:
			for _, x := range v.Items {
				into(line{number: l.number, chain: append(slices.Clone(l.chain), l.key), key: "-"}, x)
			}
		}
	}
	return func(l line) {
		visit(l)
		if v := l.value; v != "" && (v[0] == '{' || v[0] == '[') && !l.hole {
			if d, err := yaml.LoadText(v, ""); err == nil {
				into(l, d)
			}
		}
	}
}

// pipeOf returns the renderers of an SLS file.
func pipeOf(text, usual string) []string {
	first, _, _ := strings.Cut(text, "\n")
	line, ok := strings.CutPrefix(strings.TrimSpace(first), "#!")
	if !ok || strings.HasPrefix(line, "/") {
		line = usual
	}
	var names []string
	for step := range strings.SplitSeq(line, "|") {
		if words := strings.Fields(step); len(words) > 0 {
			names = append(names, words[0])
		}
	}
	return names
}

// renderers reports whether Brine has all renderers of a file.
func (c *checker) renderers(pipe []string, path string) bool {
	ok := true
	for _, name := range pipe {
		if slices.Contains(render.Names(), name) || pythonRenderer(name) {
			continue
		}
		ok = false
		why := "Brine does not have the renderer " + name + "; it has " + strings.Join(render.Names(), ", ")
		if m := c.known.python["_renderers/"+name]; m != nil {
			if available(m[0]) {
				ok = true
				continue
			}
			why = "the renderer is a module in Python: " + m[0].path
		}
		c.add(Finding{Kind: KindRenderer, Name: name, Places: at(path, 1), Why: why, Missing: true})
	}
	return ok
}

func (c *checker) function(full, path string, line int, where where) {
	if module, _, _ := strings.Cut(full, "."); ofProxies[full] && c.known.python["_modules/"+module] == nil {
		c.add(Finding{Kind: KindFunction, Name: full, Places: places(path, line),
			Why: "only proxy minions of Salt have this function: a minion on Linux has it neither with Salt nor here"})
		return
	}
	if why, kind := c.known.missingFunction(full, where); why != "" {
		c.add(Finding{Kind: kind, Name: full, Places: places(path, line), Why: why, Missing: !c.known.neither(full, false)})
		return
	}
	c.differs("function", full, path, line)
}

func (c *checker) state(full, path string, line int, minion string) {
	if why, kind := c.known.missingState(full); why != "" {
		f := Finding{Kind: kind, Name: full, Places: places(path, line), Why: why, Missing: !c.known.neither(full, true)}
		if minion != "" {
			f.Minions = []string{minion}
		}
		c.add(f)
		return
	}
	c.differs("state", full, path, line)
}

// oneLine returns the beginning of a message as one line.
func oneLine(s string) string {
	s, _, _ = strings.Cut(s, "\n---")
	return strings.Join(strings.Fields(s), " ")
}

// newlines returns only the newlines of a text.
func newlines(m []byte) []byte { return bytes.Repeat([]byte{'\n'}, bytes.Count(m, []byte{'\n'})) }

// withoutFirst blanks the first line, which names the renderers.
func withoutFirst(source []byte) []byte {
	if len(source) < 2 || source[0] != '#' || source[1] != '!' {
		return source
	}
	for i, b := range source {
		if b == '\n' {
			return source[i:]
		}
	}
	return nil
}

func at(path string, line int) []Place { return []Place{{path, line}} }

func places(path string, line int) []Place { return at(path, max(line, 0)) }

func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}
