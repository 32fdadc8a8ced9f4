package packages

import (
	"context"
	"os"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/account"
	"brine/internal/py/json"
	"brine/internal/py/value"
)

// npm manages Node.js packages.
type npm struct{ m *host.Machine }

func init() { units.Register("npm", npmModule) }

func npmModule(m *host.Machine) fn.Module {
	n := npm{m}
	return fn.Module{Name: "npm", When: n.when, Doc: `Packages of Node.js, by way of npm: those of a directory, or without one those of the whole machine.`,
		Funcs: []fn.Func{
			fn.Of("install", n.install, `Install packages, or what the directory's package.json asks for, and return what npm tells of it.`,
				fn.Example("salt '*' npm.install coffee-script"), fn.Example("salt '*' npm.install coffee-script@1.0.1")),
			fn.Of("uninstall", n.uninstall, `Remove a package and say whether that went well.`, fn.Example("salt '*' npm.uninstall coffee-script")),
			fn.Of("list", n.list, `Return the installed packages by name, as npm tells of them.`, fn.Params("pkg", "dir", "runas", "env", "depth"),
				fn.Example("salt '*' npm.list")),
			fn.Of("cache_clean", n.cacheClean, `Empty the cache and say whether that went well. Since version 5, npm needs force for it.`,
				fn.Params("path", "runas", "env", "force"), fn.Example("salt '*' npm.cache_clean force=True")),
			fn.Of("cache_list", n.cacheList, `Return the packages in the cache.`, fn.Params("path", "runas", "env"), fn.Example("salt '*' npm.cache_list")),
			fn.Of("cache_path", n.cachePath, `Return the directory of the cache.`, fn.Params("runas", "env"), fn.Example("salt '*' npm.cache_path")),
		}}
}

func (n npm) when(fn.Reader) (string, bool) {
	if n.m.Which("npm") == "" {
		return "npm was not found", false
	}
	return "", true
}

type npmInstallArgs struct {
	Pkg      string      `salt:"pkg" doc:"package in any form that npm knows, such as name@version" default:"null"`
	Pkgs     any         `salt:"pkgs" doc:"list of packages" default:"null"`
	Dir      string      `salt:"dir" doc:"directory; the whole machine without" default:"null"`
	Runas    string      `salt:"runas" doc:"user to run npm as" default:"null"`
	Registry string      `salt:"registry" doc:"address that the packages come from" default:"null"`
	Env      *value.Dict `salt:"env" doc:"map of environment variables" default:"null"`
	DryRun   bool        `salt:"dry_run" doc:"only tell what would be done" default:"false"`
	Silent   bool        `salt:"silent" doc:"have npm print no more than the result" default:"true"`
}

type npmArgs struct {
	Pkg   string      `salt:"pkg" doc:"name of the package" default:"null"`
	Path  string      `salt:"path" doc:"part of the cache; all without" default:"null"`
	Dir   string      `salt:"dir" doc:"directory; the whole machine without" default:"null"`
	Runas string      `salt:"runas" doc:"user to run npm as" default:"null"`
	Env   *value.Dict `salt:"env" doc:"map of environment variables" default:"null"`
	Depth any         `salt:"depth" doc:"how many levels of packages that others need to show" default:"null"`
	Force bool        `salt:"force" doc:"have npm do it" default:"false"`
}

// run runs npm through the cmd module and returns the result of cmd.run_all.
func (n npm) run(ctx context.Context, c *fn.Call, a npmArgs, words ...string) (*value.Dict, error) {
	kw := value.DictOf("python_shell", false, "ignore_retcode", true)
	env := value.NewDict(4)
	env.Update(a.Env)
	if a.Runas != "" {
		kw.Set("runas", a.Runas)
		if u, ok := account.ByName(ctx, n.m, a.Runas); ok && u.UID != 0 { // npm gives files to the user named by these variables
			env.Set("SUDO_UID", strconv.FormatInt(int64(u.UID), 10))
			env.Set("SUDO_USER", "")
		}
	}
	if env.Len() > 0 {
		kw.Set("env", env)
	}
	if a.Dir != "" {
		kw.Set("cwd", a.Dir)
	}
	v, err := c.Funcs.Call(ctx, c, "cmd.run_all", []any{value.Strings(append([]string{"npm"}, words...))}, kw)
	if err != nil {
		return nil, err
	}
	d, _ := v.(*value.Dict)
	return d, nil
}

func (n npm) install(ctx context.Context, c *fn.Call, a npmInstallArgs) (any, error) {
	words := []string{"install", "--json"}
	at := npmArgs{Dir: a.Dir, Runas: a.Runas, Env: a.Env}
	if a.Silent {
		words = append(words, "--silent")
	}
	if a.Dir == "" {
		at.Dir = os.TempDir()
		words = append(words, "--global")
	}
	if a.Registry != "" {
		words = append(words, "--registry="+a.Registry)
	}
	if a.DryRun {
		words = append(words, "--dry-run")
	}
	pkgs := value.Texts(a.Pkgs)
	if a.Pkg != "" {
		pkgs = []string{a.Pkg}
	}
	words = append(words, host.Operands(pkgs...)...)
	d, err := n.run(ctx, c, at, words...)
	if err != nil {
		return nil, err
	}
	if d.Int("retcode") != 0 {
		return nil, fn.Errorf("%s", d.Str("stderr"))
	}
	out := d.Str("stdout")
	if out == "" {
		out = d.Str("stderr")
	}
	if v, ok := jsonIn(out); ok {
		return v, nil
	}
	return out, nil
}

// jsonIn finds the JSON in a string with words before it.
func jsonIn(text string) (any, bool) {
	for i, r := range text {
		if (r == '{' || r == '[') && (i == 0 || text[i-1] == '\n') {
			if v, err := json.Load(text[i:]); err == nil {
				return v, true
			}
		}
	}
	return nil, false
}

type npmUninstallArgs struct {
	Pkg   string      `salt:"pkg" doc:"name of the package"`
	Dir   string      `salt:"dir" doc:"directory; the whole machine without" default:"null"`
	Runas string      `salt:"runas" doc:"user to run npm as" default:"null"`
	Env   *value.Dict `salt:"env" doc:"map of environment variables" default:"null"`
}

func (n npm) uninstall(ctx context.Context, c *fn.Call, a npmUninstallArgs) (bool, error) {
	words := []string{"uninstall"}
	if a.Dir == "" {
		words = append(words, "--global")
	}
	return n.went(ctx, c, npmArgs{Dir: a.Dir, Runas: a.Runas, Env: a.Env}, append(words, host.Operands(a.Pkg)...)...)
}

// went runs npm and reports whether it succeeded.
func (n npm) went(ctx context.Context, c *fn.Call, a npmArgs, words ...string) (bool, error) {
	d, err := n.run(ctx, c, a, words...)
	if err != nil {
		return false, err
	}
	if d.Int("retcode") != 0 {
		c.Log.Error("npm failed", "arguments", strings.Join(words, " "), "err", d.Str("stderr"))
		return false, nil
	}
	return true, nil
}

func (n npm) list(ctx context.Context, c *fn.Call, a npmArgs) (any, error) {
	words := []string{"list", "--json", "--silent"}
	if a.Dir == "" {
		words = append(words, "--global")
	}
	switch depth := a.Depth.(type) {
	case nil:
	case int64:
		words = append(words, "--depth="+strconv.FormatInt(depth, 10))
	case float64:
		words = append(words, "--depth="+strconv.FormatInt(int64(depth), 10))
	default:
		return nil, fn.Invalidf("depth %s must be a number", value.Repr(depth))
	}
	if a.Pkg != "" {
		words = append(words, host.Operands(a.Pkg)...)
	}
	d, err := n.run(ctx, c, a, words...)
	if err != nil {
		return nil, err
	}
	// Without packages, npm also fails, but without error output.
	if d.Int("retcode") != 0 && d.Str("stderr") != "" {
		return nil, fn.Errorf("%s", d.Str("stderr"))
	}
	v, err := json.Load(d.Str("stdout"))
	if err != nil {
		return nil, fn.Errorf("npm printed no JSON: %w", err)
	}
	all, _ := v.(*value.Dict)
	if found := all.Dict("dependencies"); found != nil {
		return found, nil
	}
	return value.NewDict(0), nil
}

func (n npm) cacheClean(ctx context.Context, c *fn.Call, a npmArgs) (bool, error) {
	words := []string{"cache", "clean"}
	if a.Force {
		words = append(words, "--force")
	}
	if a.Path != "" {
		words = append(words, host.Operands(a.Path)...)
	}
	return n.went(ctx, c, a, words...)
}

func (n npm) cacheList(ctx context.Context, c *fn.Call, a npmArgs) (string, error) {
	words := []string{"cache", "ls"}
	if a.Path != "" {
		words = append(words, host.Operands(a.Path)...)
	}
	d, err := n.run(ctx, c, a, words...)
	if err != nil {
		return "", err
	}
	if d.Int("retcode") != 0 && d.Str("stderr") != "" {
		return "", fn.Errorf("%s", d.Str("stderr"))
	}
	return d.Str("stdout"), nil
}

func (n npm) cachePath(ctx context.Context, c *fn.Call, a npmArgs) (string, error) {
	d, err := n.run(ctx, c, a, "config", "get", "cache")
	if err != nil {
		return "", err
	}
	if d.Str("stdout") == "" {
		return d.Str("stderr"), nil
	}
	return d.Str("stdout"), nil
}
