package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"brine/internal/base/target"
	"brine/internal/base/textedit"
	"brine/internal/call/acl"
	"brine/internal/call/fn"
	"brine/internal/catalogue/runners"
	"brine/internal/catalogue/wheel"
	"brine/internal/daemons/minion"
	"brine/internal/files/extmods"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
)

// Kinds of modules with functions that options name, as in the names of their directories.
const (
	ExecutionModules = "modules"
	RunnerModules    = "runners"
	WheelModules     = "wheel"
)

// NamedFunction is a function that an option names.
type NamedFunction struct {
	// Key is the option, At the part of it that names the function.
	Key, At string
	// Kind is the kind of the function's module.
	Kind string
	// Name is the function. If Pattern is set, it is a regular expression for permitted functions.
	Name    string
	Pattern bool
}

// NamedFunctions returns the functions that the options name.
func (t *Tree) NamedFunctions() (out []NamedFunction) {
	kind := ExecutionModules
	if t.Kind == MasterKind {
		kind = RunnerModules // Salt's master has a schedule of runners
	}
	for k, v := range t.Values.Dict("schedule").All() {
		job, _ := v.(*value.Dict)
		for _, key := range []string{"function", "func", "fun"} {
			if fun := job.Str(key); fun != "" {
				out = append(out, NamedFunction{Key: "schedule", At: inside(value.Str(k), key), Kind: kind, Name: fun})
				break
			}
		}
	}
	for k, v := range t.Values.Dict("mine_functions").All() {
		name := value.Str(k)
		out = append(out, NamedFunction{Key: "mine_functions", At: name, Kind: ExecutionModules, Name: MineFunction(name, v)})
	}
	if t.Kind != MasterKind {
		return out
	}
	add := func(key, kind string) func(at string, v any) {
		return func(at string, v any) { out = append(out, permitted(key, at, kind, v)...) }
	}
	lists := func(d *value.Dict, at string, add func(at string, v any)) {
		for k, v := range d.All() {
			if name := value.Str(k); !strings.HasPrefix(name, "^") { // a setting of a system
				add(inside(at, name), v)
			}
		}
	}
	lists(t.Values.Dict("peer"), "", add("peer", ExecutionModules))
	lists(t.Values.Dict("peer_run"), "", add("peer_run", RunnerModules))
	lists(t.Values.Dict("publisher_acl"), "", add("publisher_acl", ExecutionModules))
	for k, v := range t.Values.Dict("external_auth").All() {
		users, _ := v.(*value.Dict)
		lists(users, value.Str(k), add("external_auth", ExecutionModules))
	}
	for k, v := range t.Values.Dict(acl.RolesOption).All() {
		if role, ok := v.(*value.Dict); ok {
			add(acl.RolesOption, ExecutionModules)(inside(value.Str(k), "permissions"), role.At("permissions"))
		}
	}
	return out
}

// MineFunction returns the function of an entry of mine_functions.
func MineFunction(alias string, v any) string {
	items := []any{v}
	if l, ok := v.(*value.List); ok {
		items = l.Items
	}
	for _, it := range items {
		if d, ok := it.(*value.Dict); ok && d.Str("mine_function") != "" {
			alias = d.Str("mine_function")
		}
	}
	return alias
}

// permitted returns the functions in a list of permissions, see package acl.
func permitted(key, at, kind string, v any) (out []NamedFunction) {
	l, _ := v.(*value.List)
	if l == nil {
		return nil
	}
	add := func(at, kind string, v any) {
		if name, ok := v.(string); ok && !strings.HasPrefix(name, "@") {
			out = append(out, NamedFunction{Key: key, At: at, Kind: kind, Name: name, Pattern: true})
		}
	}
	for i, it := range l.Items {
		place := at + "[" + strconv.Itoa(i) + "]"
		d, ok := it.(*value.Dict)
		if !ok || d.Len() != 1 {
			add(place, kind, it)
			continue
		}
		k, conditions := d.Entry(0)
		form := strings.TrimSuffix(value.Str(k), "s")
		inner := map[string]string{"@" + acl.Runner: RunnerModules, "@" + acl.Wheel: WheelModules}[form]
		switch {
		case inner != "":
		case strings.HasPrefix(form, "@"):
			continue // names within one module
		default:
			inner = kind
		}
		place = inside(place, value.Str(k))
		items := []any{conditions}
		if more, ok := conditions.(*value.List); ok {
			items = more.Items
		}
		for j, c := range items {
			if d, ok := c.(*value.Dict); ok && d.Len() == 1 {
				c, _ = d.Entry(0)
			}
			add(place+"["+strconv.Itoa(j)+"]", inner, c)
		}
	}
	return out
}

// functionSet has the functions of one kind.
type functionSet struct {
	names   []string
	modules map[string]bool
	// own are the modules of the user.
	own map[string][]string
}

func newFunctionSet(all []fn.Module, own map[string][]string) *functionSet {
	s := &functionSet{modules: map[string]bool{}, own: own}
	for _, m := range all {
		for _, name := range append([]string{m.Name}, m.Aliases...) {
			s.modules[name] = true
			for i := range m.Funcs {
				s.names = append(s.names, name+"."+m.Funcs[i].Name())
			}
		}
	}
	slices.Sort(s.names)
	s.names = slices.Compact(s.names)
	return s
}

func (s *functionSet) has(name string) bool {
	_, found := slices.BinarySearch(s.names, name)
	module, _, _ := strings.Cut(name, ".")
	return found || s.own[module] != nil
}

// missing returns why a function is not available, and the nearest name, or "". fetch is the command that
// fetches the user's own modules.
func (s *functionSet) missing(name, fetch string) string {
	if s.has(name) {
		return ""
	}
	module, _, full := strings.Cut(name, ".")
	why := fmt.Sprintf("there is no function %.80q", name)
	near := textedit.Nearest(name, s.names)
	switch {
	case !full:
		return why + "; expected the name of a module, a dot and the name of its function"
	case len(near) > 0:
		return why + "; did you mean " + near[0] + "?"
	case s.modules[module]:
		return why + " in the module " + module
	}
	return why + "; if its module is one of your own, fetch it with " + fetch
}

// plainPattern matches expressions for permitted functions that are names: of a function, or of a module with all
// its functions.
var plainPattern = regexp.MustCompile(`^\^?([A-Za-z_]\w*)(?:\\?\.([A-Za-z_]\w*|\.?\*)?)?(?:\.\*)?\$?$`)

// meant returns the nearest name to a pattern that permits nothing, or "". Patterns that are far from all names
// may be for the user's own modules.
func (s *functionSet) meant(pattern string) string {
	m := plainPattern.FindStringSubmatch(pattern)
	if m == nil || s.modules[m[1]] && m[2] == "" || s.own[m[1]] != nil {
		return ""
	}
	re, err := target.CompileRegexp(pattern)
	if err != nil || slices.ContainsFunc(s.names, re.MatchString) {
		return ""
	}
	names := s.names
	name := m[1] + "." + m[2]
	if m[2] == "" || strings.HasSuffix(m[2], "*") {
		name, names = m[1], slices.Sorted(maps.Keys(s.modules))
	}
	if near := textedit.Nearest(name, names); len(near) > 0 {
		return near[0]
	}
	return ""
}

// ownFunctions returns the user's own modules of a kind: those on disk, and those in the directories that this
// daemon serves.
func (t *Tree) ownFunctions(kind string) map[string][]string {
	own := t.ownClaims(kind)
	if t.Kind == MinionKind && t.Values.Str("file_client") != "local" {
		return own
	}
	var dirs []string
	for _, r := range fileserver.Roots(t.Values.At("file_roots"), "/srv/salt") {
		for _, dir := range r.Dirs {
			dirs = append(dirs, filepath.Join(dir, "_"+kind))
		}
	}
	maps.Copy(own, extmods.Scan(dirs).Claims)
	return own
}

// MissingPermissions returns remarks about permissions for functions that do not exist.
func (t *Tree) MissingPermissions() []Remark {
	return t.missingFunctions(func(f NamedFunction) bool { return f.Pattern })
}

// missingFunctions returns remarks about functions that do not exist, among those that options name.
func (t *Tree) missingFunctions(among func(NamedFunction) bool) (out []Remark) {
	sets := map[string]*functionSet{}
	set := func(kind string) *functionSet {
		if sets[kind] == nil {
			all := map[string]func() []fn.Module{
				ExecutionModules: minion.Catalogue,
				RunnerModules:    func() []fn.Module { return runners.New(runners.Deps{}) },
				WheelModules:     func() []fn.Module { return wheel.New(wheel.Deps{}) },
			}[kind]
			sets[kind] = newFunctionSet(all(), t.ownFunctions(kind))
		}
		return sets[kind]
	}
	if t.Values.Str("python_fallback") != "" {
		return nil // stock Salt may have them
	}
	count := map[string]int{}
	for _, f := range t.NamedFunctions() {
		if !among(f) || count[f.Key] >= maxFormRemarks {
			continue
		}
		s := set(f.Kind)
		why := ""
		if f.Pattern {
			if near := s.meant(f.Name); near != "" {
				why = fmt.Sprintf("%.80q permits no function; did you mean %s?", f.Name, near)
			}
		} else {
			why = s.missing(f.Name, t.syncProgram()+" saltutil.sync_"+f.Kind)
		}
		if why != "" {
			count[f.Key]++
			out = append(out, Remark{f.Key, f.At + ": " + why})
		}
	}
	return out
}

// syncProgram returns the program that fetches the user's own modules for the daemon.
func (t *Tree) syncProgram() string {
	switch {
	case t.Kind == MasterKind:
		return "salt-run"
	case t.Values.Str("file_client") == "local":
		return "salt-call --local"
	}
	return "salt-call"
}
