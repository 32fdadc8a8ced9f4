package packages

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/files/fileclient"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() { units.Declare("virtualenv", virtualenvModule) }

// virtualenvModule returns the states for Python's virtual environments.
func virtualenvModule() state.Module {
	return state.Module{Name: "virtualenv", Doc: `Keep virtual environments of Python.`, Funcs: []state.Func{
		state.Of("managed", virtualenvManaged, `Have a virtual environment, possibly with packages.
			All further arguments are those of the function virtualenv.create.`),
		state.Of("manage", virtualenvManaged, `Same as virtualenv.managed.`),
	}}
}

type virtualenvArgs struct {
	Name            string    `salt:"name" doc:"directory of the environment"`
	Bin             any       `salt:"venv_bin" doc:"program that makes it: virtualenv, venv, or the path of one" default:"null"`
	Requirements    any       `salt:"requirements" doc:"file of requirements, which may be a salt:// address, or a list" default:"null"`
	SystemPackages  bool      `salt:"system_site_packages" doc:"the system's packages are there, too" default:"false"`
	Distribute      bool      `salt:"distribute" doc:"option of virtualenv before 1.10" default:"false"`
	UseWheel        bool      `salt:"use_wheel" doc:"pip's option, of pip 1.4 to 9.0.3" default:"false"`
	Clear           bool      `salt:"clear" doc:"empty an environment that is there, each time" default:"false"`
	Python          any       `salt:"python" doc:"Python to use" default:"null"`
	SearchDir       any       `salt:"extra_search_dir" doc:"directories to look for packages in" default:"null"`
	NeverDownload   any       `salt:"never_download" doc:"do not fetch packages for the environment itself" default:"null"`
	Prompt          any       `salt:"prompt" doc:"what the shell shows before its prompt" default:"null"`
	User            any       `salt:"user" doc:"whose environment it is" default:"null"`
	Cwd             any       `salt:"cwd" doc:"directory to run pip in" default:"null"`
	Index           any       `salt:"index_url" doc:"address of the index of packages" default:"null"`
	ExtraIndex      any       `salt:"extra_index_url" doc:"address of a further index" default:"null"`
	PreReleases     bool      `salt:"pre_releases" doc:"also versions that are not released" default:"false"`
	NoDeps          bool      `salt:"no_deps" doc:"do not install what packages need" default:"false"`
	Download        any       `salt:"pip_download" doc:"directory to download to instead of installing" default:"null"`
	DownloadCache   any       `salt:"pip_download_cache" doc:"directory to keep downloads in" default:"null"`
	ExistsAction    any       `salt:"pip_exists_action" doc:"what to do with a path that exists: s, i, w or b" default:"null"`
	IgnoreInstalled bool      `salt:"pip_ignore_installed" doc:"do not look at what is installed" default:"false"`
	Proxy           any       `salt:"proxy" doc:"address of a proxy" default:"null"`
	UseVT           bool      `salt:"use_vt" ignored:"the output is not shown while the program runs" default:"false"`
	EnvVars         any       `salt:"env_vars" doc:"map of environment variables for pip" default:"null"`
	NoUseWheel      bool      `salt:"no_use_wheel" doc:"pip's option, of pip 1.4 to 9.0.3" default:"false"`
	Upgrade         bool      `salt:"pip_upgrade" doc:"upgrade what is installed" default:"false"`
	Pkgs            any       `salt:"pip_pkgs" doc:"list of packages to install" default:"null"`
	NoCacheDir      bool      `salt:"pip_no_cache_dir" doc:"do not use the cache" default:"false"`
	CacheDir        any       `salt:"pip_cache_dir" doc:"directory of the cache" default:"null"`
	DependencyLinks bool      `salt:"process_dependency_links" doc:"old option of pip" default:"false"`
	NoBinary        any       `salt:"no_binary" doc:"packages to build from source, or :all:" default:"null"`
	Kwargs          fn.Kwargs `salt:"kwargs"`
}

func (a virtualenvArgs) python() string { return filepath.Join(a.Name, "bin", "python") }

func virtualenvManaged(ctx context.Context, e *state.Env, a virtualenvArgs) (state.Plan, error) {
	_, err := os.Stat(a.python())
	exists := err == nil
	if text, ok := a.Requirements.(string); ok && strings.HasPrefix(text, "salt://") {
		path, err := e.Files.GetURL(ctx, text, "", fileclient.URLOptions{Saltenv: e.Saltenv})
		if err != nil || path == "" {
			return state.Plan{}, fn.Errorf("pip requirements file '%s' not found", text)
		}
		a.Requirements = path
	}
	p := state.Plan{Steps: []state.Step{{Do: func(ctx context.Context) (state.Change, error) { return a.run(ctx, e, exists) }}}}
	would := func(comment string) { p.Steps[0].Change.Comment = "Virtualenv " + a.Name + comment }
	switch {
	case !exists:
		would(" is set to be created")
	case a.Clear:
		would(" is set to be cleared")
		old, err := a.inside(ctx, e)
		if err != nil {
			return p, err
		}
		p.Steps[0].Change.Diff = old
	case !a.fills() && !a.UseWheel && !a.NoUseWheel && !value.Truth(a.NoBinary):
		p.Steps = nil
		p.Comment = "virtualenv exists"
		fallthrough
	default: // only pip knows what is missing
		p.Forecast = &state.Result{Verdict: state.Succeeded, Comment: "Virtualenv " + a.Name + " is already created"}
	}
	return p, nil
}

func (a virtualenvArgs) fills() bool { return value.Truth(a.Requirements) || value.Truth(a.Pkgs) }

// inside returns the packages and the Python version of an environment.
func (a virtualenvArgs) inside(ctx context.Context, e *state.Env) (*value.Dict, error) {
	frozen, err := e.Exec(ctx, "pip.freeze", value.DictOf("bin_env", a.Name))
	if err != nil {
		return nil, err
	}
	version, err := a.version(ctx, e)
	return value.DictOf("cleared_packages", frozen, "old", version), err
}

// version returns what the environment's Python prints to stderr. Salt reads
// only that, but since Python 3.4 the version is on stdout.
func (a virtualenvArgs) version(ctx context.Context, e *state.Env) (any, error) {
	v, err := e.Exec(ctx, "cmd.run_stderr", value.DictOf("python_shell", false), a.python()+" -V")
	return strings.Trim(value.Str(v), "\n"), err
}

// with returns pairs as keywords, without those that are not given.
func with(pairs ...any) *value.Dict {
	d := value.NewDict(len(pairs) / 2)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != nil {
			d.Set(pairs[i], pairs[i+1])
		}
	}
	return d
}

func (a virtualenvArgs) run(ctx context.Context, e *state.Env, exists bool) (state.Change, error) {
	c := state.Change{Diff: value.NewDict(4), Comment: "virtualenv exists"}
	if !exists || a.Clear {
		if err := a.create(ctx, e, exists, &c); err != nil {
			return c, err
		}
	}
	if err := a.checkPip(ctx, e); err != nil {
		c.Comment = "" // Salt only reports the option
		return c, err
	}
	if !a.fills() {
		return c, nil
	}
	return c, a.fill(ctx, e, &c)
}

func (a virtualenvArgs) create(ctx context.Context, e *state.Env, exists bool, c *state.Change) error {
	if exists {
		old, err := a.inside(ctx, e)
		if err != nil {
			return err
		}
		c.Diff.Update(old)
	}
	kw := a.Kwargs.Clean()
	kw.Update(with("venv_bin", a.Bin, "system_site_packages", a.SystemPackages, "distribute", a.Distribute, "clear", a.Clear, "python", a.Python,
		"extra_search_dir", a.SearchDir, "never_download", a.NeverDownload, "prompt", a.Prompt, "user", a.User))
	v, err := e.Exec(ctx, "virtualenv.create", kw, a.Name)
	if err != nil {
		c.Comment = ""
		return fn.Errorf("Failed to create virtualenv: %w", err)
	}
	d, _ := v.(*value.Dict)
	if d.Int("retcode") != 0 {
		c.Comment = ""
		return fn.Errorf("%s%s", d.Str("stdout"), d.Str("stderr"))
	}
	version, err := a.version(ctx, e)
	c.Diff.Set("new", version)
	if c.Comment = "Created new virtualenv"; a.Clear {
		c.Comment = "Cleared existing virtualenv"
	}
	return err
}

// checkPip rejects options that the environment's pip lacks.
func (a virtualenvArgs) checkPip(ctx context.Context, e *state.Env) error {
	return pipSupports(ctx, e, value.DictOf("bin_env", a.Name), a.UseWheel, a.NoUseWheel, value.Truth(a.NoBinary))
}

// fill installs packages, and compares the packages before and after.
func (a virtualenvArgs) fill(ctx context.Context, e *state.Env, c *state.Change) error {
	before, err := e.Exec(ctx, "pip.freeze", with("bin_env", a.Name, "user", a.User))
	if err != nil {
		return err
	}
	if first := value.Split(a.Requirements); len(first) > 0 && first[0] != "" {
		full, err := filepath.Abs(first[0])
		if err != nil {
			return err
		}
		if full != first[0] { // paths in the file are relative to it
			a.Cwd = filepath.Dir(full)
		}
	}
	kw := a.Kwargs.Clean()
	kw.Update(with("pkgs", a.Pkgs, "requirements", a.Requirements, "process_dependency_links", a.DependencyLinks, "bin_env", a.Name, "use_wheel", a.UseWheel,
		"no_use_wheel", a.NoUseWheel, "no_binary", a.NoBinary, "user", a.User, "cwd", a.Cwd, "index_url", a.Index, "extra_index_url", a.ExtraIndex,
		"download", a.Download, "download_cache", a.DownloadCache, "pre_releases", a.PreReleases, "exists_action", a.ExistsAction,
		"ignore_installed", a.IgnoreInstalled, "upgrade", a.Upgrade, "no_deps", a.NoDeps, "proxy", a.Proxy, "env_vars", a.EnvVars,
		"no_cache_dir", a.NoCacheDir, "cache_dir", a.CacheDir, "saltenv", e.Saltenv))
	v, err := e.Exec(ctx, "pip.install", kw)
	if err != nil {
		return err
	}
	var failed error
	if d, _ := v.(*value.Dict); !d.Has("retcode") {
		return fn.Errorf("%s", d.Str("comment"))
	} else if d.Int("retcode") != 0 {
		failed = fn.Errorf("%s\n%s", d.Str("stdout"), d.Str("stderr")) // appended to the comment
	}
	after, err := e.Exec(ctx, "pip.freeze", value.DictOf("bin_env", a.Name))
	if err != nil {
		return err
	}
	added, lost := missingIn(before, after), missingIn(after, before)
	if value.Truth(added) || value.Truth(lost) {
		c.Diff.Set("packages", value.DictOf("new", added, "old", lost))
	}
	return failed
}

// missingIn returns the items of list that others lacks, or "" if there are none.
func missingIn(others, list any) any {
	known := value.Texts(others)
	found := value.ListOf()
	for _, it := range value.Texts(list) {
		if !slices.Contains(known, it) {
			found.Append(it)
		}
	}
	if found.Len() == 0 {
		return ""
	}
	return found
}
