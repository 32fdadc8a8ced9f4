package packages

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() { units.Declare("npm", npmModule) }

// npmModule returns the states for Node.js packages.
func npmModule() state.Module {
	return state.Module{Name: "npm", Doc: `Keep packages of Node.js installed, or not, by way of npm: in a directory, or on the whole machine.`,
		Funcs: []state.Func{
			state.Of("installed", npmInstalled, `Have packages of Node.js installed, possibly in a version.`),
			state.Of("removed", npmRemoved, `Have a package of Node.js not installed.`),
			state.Of("bootstrap", npmBootstrap, `Have what a directory's package.json asks for installed there.`),
			state.Of("cache_cleaned", npmCacheCleaned, `Have npm's cache empty.`),
		}}
}

type npmInstalledArgs struct {
	Name     string `salt:"name" doc:"package in any form that npm knows, such as name@version, unless pkgs is given"`
	Pkgs     any    `salt:"pkgs" doc:"list of packages" default:"null"`
	Dir      any    `salt:"dir" doc:"directory; the whole machine without" default:"null"`
	User     any    `salt:"user" doc:"user to run npm as" default:"null"`
	Force    bool   `salt:"force_reinstall" doc:"install each time" default:"false"`
	Registry any    `salt:"registry" doc:"address that the packages come from" default:"null"`
	Env      any    `salt:"env" doc:"environment variables, as a map or a list of maps" default:"null"`
}

var npmName = regexp.MustCompile(`^(@?[^@\s]+)(?:@(\S+))?`)

// environment converts variables given as a map or a list of maps.
func environment(v any) any {
	l, ok := v.(*value.List)
	if !ok {
		return v
	}
	all := value.NewDict(l.Len())
	for _, it := range l.Items {
		d, _ := it.(*value.Dict)
		all.Update(d)
	}
	return all
}

// sort splits packages into missing ones and installed ones, the latter with their
// versions.
func (a npmInstalledArgs) sort(pkgs []string, have *value.Dict) (missing, there []string, err error) {
	for _, pkg := range pkgs {
		m := npmName.FindStringSubmatch(pkg)
		if m == nil {
			return nil, nil, fn.Errorf("'%s' is no name of a package", pkg)
		}
		name, version := m[1], m[2]
		found := have.Dict(name)
		switch {
		case a.Force || !found.Has("version") && !fromAddress(name, have):
			missing = append(missing, pkg)
		case found == nil: // a URL: the package is installed under its own name
			there = append(there, pkg)
		case version != "" && found.Str("version") != version:
			missing = append(missing, pkg)
		default:
			there = append(there, name+"@"+found.Str("version"))
		}
	}
	return missing, there, nil
}

// fromAddress reports whether a package was installed from a URL.
func fromAddress(address string, have *value.Dict) bool {
	_, place, ok := strings.Cut(address, "://")
	if !ok {
		return false
	}
	for _, v := range have.All() {
		d, _ := v.(*value.Dict)
		_, from, ok := strings.Cut(d.Str("from"), "://")
		if strings.HasPrefix(address, "git://") && !strings.HasSuffix(from, ".git") {
			from += ".git"
		}
		if ok && from == place {
			return true
		}
	}
	return false
}

func npmInstalled(ctx context.Context, e *state.Env, a npmInstalledArgs) (state.Plan, error) {
	pkgs := value.Texts(a.Pkgs)
	if len(pkgs) == 0 {
		pkgs = []string{a.Name}
	}
	env := environment(a.Env)
	v, err := e.Exec(ctx, "npm.list", with("dir", a.Dir, "runas", a.User, "env", env, "depth", int64(0)))
	if err != nil {
		return state.Plan{}, fn.Errorf("Error looking up '%s': %w", a.Name, err)
	}
	have, _ := v.(*value.Dict)
	missing, there, err := a.sort(pkgs, have)
	if err != nil {
		return state.Plan{}, err
	}
	satisfied := "Package(s) '" + strings.Join(pkgs, ", ") + "' satisfied by " + strings.Join(there, ", ")
	if len(missing) == 0 {
		return state.Plan{Comment: satisfied}, nil
	}
	diff := value.DictOf("old", value.ListOf(), "new", value.Strings(missing))
	would := "NPM package(s) '" + strings.Join(missing, ", ") + "' are set to be installed"
	if len(there) > 0 {
		would += ". " + satisfied
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Diff: diff, Comment: would}, Do: func(ctx context.Context) (state.Change, error) {
		_, err := e.Exec(ctx, "npm.install", with("dir", a.Dir, "runas", a.User, "registry", a.Registry, "env", env, "pkgs", value.Strings(pkgs)))
		if err != nil {
			err = fn.Errorf("Error installing '%s': %w", strings.Join(pkgs, ", "), err)
		}
		return made(err, diff, "Package(s) '"+strings.Join(missing, ", ")+"' successfully installed")
	}}}}, nil
}

type npmRemovedArgs struct {
	Name string `salt:"name" doc:"name of the package"`
	Dir  any    `salt:"dir" doc:"directory; the whole machine without" default:"null"`
	User any    `salt:"user" doc:"user to run npm as" default:"null"`
}

func npmRemoved(ctx context.Context, e *state.Env, a npmRemovedArgs) (state.Plan, error) {
	v, err := e.Exec(ctx, "npm.list", with("dir", a.Dir, "depth", int64(0)))
	if err != nil {
		return state.Plan{}, fn.Errorf("Error uninstalling '%s': %w", a.Name, err)
	}
	if have, _ := v.(*value.Dict); !have.Has(a.Name) {
		return state.Plan{Comment: "Package '" + a.Name + "' is not installed"}, nil
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "Package '" + a.Name + "' is set to be removed"},
		Do: func(ctx context.Context) (state.Change, error) {
			v, err := e.Exec(ctx, "npm.uninstall", with("pkg", a.Name, "dir", a.Dir, "runas", a.User))
			if err == nil && !value.Truth(v) {
				err = fn.Errorf("Error removing package '%s'", a.Name)
			}
			return made(err, value.DictOf(a.Name, "Removed"), "Package '"+a.Name+"' was successfully removed")
		},
	}}}, nil
}

type npmBootstrapArgs struct {
	Name   string `salt:"name" doc:"the directory"`
	User   any    `salt:"user" doc:"user to run npm as" default:"null"`
	Silent bool   `salt:"silent" doc:"have npm print no more than the result" default:"true"`
}

// npmBootstrap always runs npm, as only npm knows what is missing.
func npmBootstrap(ctx context.Context, e *state.Env, a npmBootstrapArgs) (state.Plan, error) {
	call := func(ctx context.Context, more ...any) (any, error) {
		v, err := e.Exec(ctx, "npm.install", with(append(more, "dir", a.Name, "runas", a.User, "silent", a.Silent)...))
		if err != nil {
			return nil, fn.Errorf("Error Bootstrapping '%s': %w", a.Name, err)
		}
		return v, nil
	}
	run := func(ctx context.Context, test bool) state.Result {
		more := []any{}
		if test {
			more = []any{"dry_run", true}
		}
		v, err := call(ctx, more...)
		switch {
		case err != nil:
			return state.Result{Verdict: state.Failed, Comment: err.Error()}
		case test && value.Truth(v):
			return state.Result{Comment: a.Name + " is set to be bootstrapped", Changes: value.DictOf("old", value.ListOf(), "new", v)}
		case test:
			return state.Result{Verdict: state.Succeeded, Comment: a.Name + " is already bootstrapped"}
		case !value.Truth(v):
			return state.Result{Verdict: state.Succeeded, Comment: "Directory is already bootstrapped"}
		}
		if text, ok := v.(string); ok { // not JSON: an error message
			return state.Result{Verdict: state.Failed, Comment: "Could not bootstrap directory: " + text}
		}
		return state.Result{Verdict: state.Succeeded, Comment: "Directory was successfully bootstrapped", Changes: value.DictOf(a.Name, "Bootstrapped")}
	}
	return state.Plan{Whole: run}, nil
}

type npmCacheArgs struct {
	Name  any  `salt:"name" doc:"package; the whole cache without" default:"null"`
	User  any  `salt:"user" doc:"user to run npm as" default:"null"`
	Force bool `salt:"force" doc:"have npm do it, which it needs since version 5" default:"false"`
}

func npmCacheCleaned(ctx context.Context, e *state.Env, a npmCacheArgs) (state.Plan, error) {
	what, path := "packages", a.Name
	if value.Truth(a.Name) {
		what = value.Str(a.Name)
	} else {
		path = nil
	}
	list := func(path any) ([]string, error) {
		v, err := e.Exec(ctx, "npm.cache_list", with("path", path, "runas", a.User))
		if err != nil {
			return nil, fn.Errorf("Error looking up cached %s: %w", what, err)
		}
		return strings.Split(value.Str(v), "\n"), nil
	}
	cached, err := list(path)
	if err != nil {
		return state.Plan{}, err
	}
	if path != nil {
		all, err := list(nil)
		if err != nil {
			return state.Plan{}, err
		}
		if !slices.Contains(cached, all[0]+"/"+what+"/") { // the first line is the cache directory
			return state.Plan{Comment: "Package " + what + " is not in the cache"}, nil
		}
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "Cached " + what + " set to be removed"},
		Do: func(ctx context.Context) (state.Change, error) {
			v, err := e.Exec(ctx, "npm.cache_clean", with("path", path, "runas", a.User, "force", a.Force))
			if err == nil && !value.Truth(v) {
				err = fn.Errorf("Error cleaning cached %s", what)
			}
			key := "cache"
			if path != nil {
				key = what
			}
			return made(err, value.DictOf(key, "Removed"), "Cached "+what+" successfully removed")
		},
	}}}, nil
}
