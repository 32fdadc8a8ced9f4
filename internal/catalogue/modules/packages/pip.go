package packages

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/account"
	hostpkgs "brine/internal/host/packages"
	"brine/internal/py/value"
)

type pip struct{ m *host.Machine }

func init() { units.Register("pip", pipModule) }

func pipModule(m *host.Machine) fn.Module {
	p := pip{m}
	place := fn.Params("bin_env", "user", "cwd")
	return fn.Module{Name: "pip",
		Doc: `Packages of Python, by way of pip. bin_env is a virtual environment, or the path of pip or Python; without it they are those of the ` +
			`system's Python.`, Funcs: []fn.Func{
			fn.Of("install", p.install, `Install packages and return what cmd.run_all does.
			All further keywords go to cmd.run_all.`, fn.Example("salt '*' pip.install markdown,django upgrade=true"),
				fn.Example("salt '*' pip.install requirements=/path/to/requirements.txt bin_env=/srv/venv")),
			fn.Of("uninstall", p.uninstall, `Remove packages and return what cmd.run_all does.`, fn.Example("salt '*' pip.uninstall markdown,django")),
			fn.Of("freeze", p.freeze, `Return the lines of pip freeze.`, fn.Params("bin_env", "user", "cwd", "use_vt", "env_vars"),
				fn.Example("salt '*' pip.freeze bin_env=/home/code/path/to/virtualenv")),
			fn.Of("list", p.list, `Return the versions of the installed packages, or of those whose names begin like this.`,
				fn.Params("prefix", "bin_env", "user", "cwd", "env_vars"), fn.Example("salt '*' pip.list salt")),
			fn.Of("list_freeze_parse", p.listFrozen, `Return what pip.list does, as pip freeze tells it.`,
				fn.Params("prefix", "bin_env", "user", "cwd", "env_vars"), fn.Example("salt '*' pip.list_freeze_parse salt")),
			fn.Of("version", p.versionOf, `Return the version of pip.`, fn.Params("bin_env", "cwd", "user"), fn.Example("salt '*' pip.version")),
			fn.Of("list_upgrades", p.listUpgrades, `Return the versions that installed packages could be upgraded to.`, place,
				fn.Example("salt '*' pip.list_upgrades")),
			fn.Of("is_installed", p.isInstalled, `Say whether a package is installed.`, fn.Params("pkgname", "bin_env", "user", "cwd"),
				fn.Example("salt '*' pip.is_installed salt")),
			fn.Of("upgrade_available", p.upgradeAvailable, `Say whether a package could be upgraded.`, fn.Params("pkg", "bin_env", "user", "cwd"),
				fn.Example("salt '*' pip.upgrade_available salt")),
			fn.Of("upgrade", p.upgrade, `Upgrade all packages that can be.`, fn.Params("bin_env", "user", "cwd", "use_vt"),
				fn.Example("salt '*' pip.upgrade")),
			fn.Of("list_all_versions", p.allVersions, `Return all versions of a package that could be installed.`,
				fn.Params("pkg", "bin_env", "include_alpha", "include_beta", "include_rc", "user", "cwd", "index_url", "extra_index_url"),
				fn.Example("salt '*' pip.list_all_versions salt")),
		}}
}

// pipArgs are the arguments of the functions that only read.
type pipArgs struct {
	pipPlace
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// pipPlace selects the pip to run.
type pipPlace struct {
	Prefix     string `salt:"prefix" doc:"how names begin" default:"null"`
	Name       string `salt:"pkgname" doc:"name of the package"`
	Pkg        string `salt:"pkg" doc:"name of the package"`
	BinEnv     string `salt:"bin_env" doc:"virtual environment, or path of pip or Python" default:"null"`
	Alpha      bool   `salt:"include_alpha" doc:"also alpha versions" default:"false"`
	Beta       bool   `salt:"include_beta" doc:"also beta versions" default:"false"`
	RC         bool   `salt:"include_rc" doc:"also release candidates" default:"false"`
	User       string `salt:"user" doc:"user to run pip as" default:"null"`
	Cwd        string `salt:"cwd" doc:"working directory" default:"null"`
	UseVT      bool   `salt:"use_vt" ignored:"the output is not shown while the program runs" default:"false"`
	EnvVars    any    `salt:"env_vars" doc:"map of environment variables" default:"null"`
	Index      string `salt:"index_url" doc:"address of the index of packages" default:"null"`
	ExtraIndex string `salt:"extra_index_url" doc:"address of a further index" default:"null"`
}

// program returns the command line of pip.
func (p pip) program(binEnv string) ([]string, error) {
	if binEnv == "" {
		for _, name := range []string{"python3", "python"} {
			if path := p.m.Which(name); path != "" {
				return []string{path, "-m", "pip"}, nil
			}
		}
		return nil, &fn.ProgramError{Program: "python3"}
	}
	st, err := p.m.Stat(binEnv)
	if err == nil && st.IsDir() {
		for _, name := range []string{"python", "bin/python", "Scripts/python"} {
			if path := filepath.Join(binEnv, name); p.m.Which(path) != "" {
				return []string{path, "-m", "pip"}, nil
			}
		}
		return nil, &fn.ProgramError{Reason: "Could not find a pip binary in virtualenv " + binEnv}
	}
	switch path := filepath.Clean(binEnv); {
	case err != nil || p.m.Which(path) == "" || !filepath.IsAbs(path):
		return nil, &fn.ProgramError{Reason: "Access denied to " + binEnv + ", could not find a pip binary"}
	case strings.Contains(filepath.Base(path), "python"):
		return []string{path, "-m", "pip"}, nil
	default:
		return []string{path}, nil
	}
}

// run runs pip through the cmd module, which handles users and environments.
func (p pip) run(ctx context.Context, c *fn.Call, a pipPlace, more *value.Dict, words ...string) (*value.Dict, error) {
	program, err := p.program(a.BinEnv)
	if err != nil {
		return nil, err
	}
	kwargs := value.NewDict(8)
	kwargs.Update(more)
	kwargs.Set("python_shell", false)
	if a.User != "" {
		kwargs.Set("runas", a.User)
	}
	if a.Cwd != "" {
		kwargs.Set("cwd", a.Cwd)
	}
	env := value.NewDict(4)
	if d, ok := kwargs.At("env").(*value.Dict); ok {
		env.Update(d)
	}
	if a.EnvVars != nil {
		d, ok := a.EnvVars.(*value.Dict)
		if !ok {
			return nil, fn.Errorf("env_vars %s is not a dictionary", value.Str(a.EnvVars))
		}
		for k, v := range d.All() {
			env.Set(value.Str(k), value.Str(v))
		}
	}
	if a.BinEnv != "" && p.m.IsDir(a.BinEnv) {
		env.Set("VIRTUAL_ENV", a.BinEnv)
	}
	if env.Len() > 0 {
		kwargs.Set("env", env)
	}
	ret, err := c.Funcs.Call(ctx, c, "cmd.run_all", []any{value.Strings(append(program, words...))}, kwargs)
	if err != nil {
		return nil, err
	}
	d, ok := ret.(*value.Dict)
	if !ok {
		return nil, fn.Errorf("pip did not run: %s", value.Repr(ret))
	}
	return d, nil
}

// output returns the output of pip, and fails if pip does.
func (p pip) output(ctx context.Context, c *fn.Call, a pipPlace, more *value.Dict, words ...string) (string, error) {
	d, err := p.run(ctx, c, a, more, words...)
	if err != nil {
		return "", err
	}
	if d.Int("retcode") != 0 {
		return "", fn.Errorf("%s", d.Str("stderr"))
	}
	return d.Str("stdout"), nil
}

func (p pip) versionOf(ctx context.Context, c *fn.Call, a pipPlace) (any, error) {
	v, err := p.version(ctx, c, a)
	if v == "" {
		return nil, err
	}
	return v, err
}

// version returns the version of pip, "" if pip does not print it.
func (p pip) version(ctx context.Context, c *fn.Call, a pipPlace) (string, error) {
	a.EnvVars = nil
	d, err := p.run(ctx, c, a, nil, "--version")
	if err != nil {
		return "", err
	}
	if d.Int("retcode") != 0 {
		return "", &fn.ProgramError{Reason: "Could not find a `pip` binary"}
	}
	f := strings.Fields(d.Str("stdout"))
	if len(f) < 2 || f[0] != "pip" {
		return "", nil
	}
	return f[1], nil
}

// atLeast compares the beginning of a version, number by number.
func atLeast(version string, want ...int) bool {
	parts := strings.Split(version, ".")
	for i, w := range want {
		have := 0
		if i < len(parts) {
			have, _ = strconv.Atoi(parts[i])
		}
		if have != w {
			return have > w
		}
	}
	return true
}

func (p pip) freeze(ctx context.Context, c *fn.Call, a pipArgs) ([]string, error) {
	v, err := p.version(ctx, c, a.pipPlace)
	if err != nil {
		return nil, err
	}
	words := []string{"freeze"}
	if atLeast(v, 8, 0, 3) {
		words = append(words, "--all")
	}
	out, err := p.output(ctx, c, a.pipPlace, a.Kwargs.Clean(), words...)
	if err != nil || out == "" {
		return []string{}, err
	}
	return strings.Split(out, "\n"), nil
}

func (p pip) listFrozen(ctx context.Context, c *fn.Call, a pipArgs) (*value.Dict, error) {
	found := value.NewDict(32)
	if strings.HasPrefix("pip", a.Prefix) {
		v, err := p.versionOf(ctx, c, a.pipPlace)
		if err != nil {
			return nil, err
		}
		found.Set("pip", v)
	}
	lines, err := p.freeze(ctx, c, a)
	for _, line := range lines {
		name, version, ok := frozen(line)
		if !ok && line != "" && line[0] != '#' && !strings.HasPrefix(line, "-") {
			c.Log.Error("pip freeze printed a line that names no package", "line", line)
		}
		if ok && begins(name, a.Prefix) {
			found.Set(name, version)
		}
	}
	return found, err
}

func begins(name, prefix string) bool {
	return strings.HasPrefix(strings.ToLower(name), strings.ToLower(prefix))
}

// frozen parses a line such as "a==1.0" or "-e git+https://host/a@abc#egg=a".
func frozen(line string) (name, version string, ok bool) {
	if text, editable := strings.CutPrefix(line, "-e "); editable {
		if version, name, ok = strings.Cut(text, "#egg="); ok {
			return name, version, true
		}
		line = text
	}
	if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "-") {
		return "", "", false
	}
	for _, sign := range []string{"===", "=="} {
		if name, version, ok = strings.Cut(line, sign); ok {
			return name, version, true
		}
	}
	return "", "", false
}

func (p pip) list(ctx context.Context, c *fn.Call, a pipArgs) (*value.Dict, error) {
	return p.installed(ctx, c, a)
}

func (p pip) installed(ctx context.Context, c *fn.Call, a pipArgs) (*value.Dict, error) {
	v, err := p.version(ctx, c, a.pipPlace)
	if err != nil {
		return nil, err
	}
	if !atLeast(v, 9) {
		return p.listFrozen(ctx, c, a)
	}
	out, err := p.output(ctx, c, a.pipPlace, a.Kwargs.Clean(), "list", "--format=json")
	if err != nil {
		return nil, err
	}
	list, err := listed(out)
	found := value.NewDict(len(list))
	for _, one := range list {
		if begins(one.Name, a.Prefix) {
			found.Set(one.Name, one.Version)
		}
	}
	return found, err
}

// pipPackage is an entry of pip's lists in JSON.
type pipPackage struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Latest  string `json:"latest_version"`
	Type    string `json:"latest_filetype"`
}

func listed(text string) ([]pipPackage, error) {
	var list []pipPackage
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fn.Errorf("Invalid JSON: %w", err)
	}
	return list, nil
}

var oldUpgrade = regexp.MustCompile(`^(\S+)\s+\(.*?(?:\)\s+-\s+)?Latest:\s+(.*?)\)?$`)

func (p pip) upgrades(ctx context.Context, c *fn.Call, a pipPlace) (*value.Dict, error) {
	v, err := p.version(ctx, c, a)
	if err != nil {
		return nil, err
	}
	words := []string{"list", "--outdated"}
	if atLeast(v, 9) {
		words = append(words, "--format=json")
	}
	out, err := p.output(ctx, c, a, nil, words...)
	if err != nil {
		return nil, err
	}
	found := value.NewDict(8)
	if !atLeast(v, 9) {
		for line := range strings.SplitSeq(out, "\n") {
			if m := oldUpgrade.FindStringSubmatch(line); m != nil {
				found.Set(m[1], m[2])
			}
		}
		return found, nil
	}
	list, err := listed(out)
	for _, one := range list {
		found.Set(one.Name, one.Latest+" ["+one.Type+"]")
	}
	return found, err
}

func (p pip) listUpgrades(ctx context.Context, c *fn.Call, a pipPlace) (*value.Dict, error) {
	return p.upgrades(ctx, c, a)
}

func (p pip) isInstalled(ctx context.Context, c *fn.Call, a pipPlace) (bool, error) {
	a.Prefix = a.Name
	all, err := p.installed(ctx, c, pipArgs{pipPlace: a, Kwargs: fn.Kwargs{Dict: value.NewDict(0)}})
	for name := range all.All() {
		if strings.EqualFold(value.Str(name), a.Name) {
			return true, err
		}
	}
	return false, err
}

func (p pip) upgradeAvailable(ctx context.Context, c *fn.Call, a pipPlace) (bool, error) {
	all, err := p.upgrades(ctx, c, a)
	return all.Has(a.Pkg), err
}

func (p pip) upgrade(ctx context.Context, c *fn.Call, a pipPlace) (*value.Dict, error) {
	args := pipArgs{pipPlace: a, Kwargs: fn.Kwargs{Dict: value.NewDict(0)}}
	old, err := p.installed(ctx, c, args)
	if err != nil {
		return nil, err
	}
	all, err := p.upgrades(ctx, c, a)
	if err != nil {
		return nil, err
	}
	ok, said := true, ""
	for name := range all.All() {
		d, err := p.run(ctx, c, a, nil, "install", "-U", value.Str(name))
		if err != nil {
			return nil, err
		}
		ok = ok && d.Int("retcode") == 0
		said += d.Str("stderr")
	}
	now, err := p.installed(ctx, c, args)
	if err != nil {
		return nil, err
	}
	changes := value.NewDict(0)
	for name, version := range now.All() {
		if before, had := old.Get(name); !had {
			changes.Set(name, value.DictOf("old", "", "new", version))
		} else if before != version {
			changes.Set(name, value.DictOf("old", before, "new", version))
		}
	}
	for name, version := range old.All() {
		if !now.Has(name) {
			changes.Set(name, value.DictOf("old", version, "new", ""))
		}
	}
	return value.DictOf("changes", changes, "result", ok, "comment", said), nil
}

var (
	availableVersions = regexp.MustCompile(`\s*Available versions: (.*)`)
	refusedVersions   = regexp.MustCompile(`\s*Could not find a version.* \(from versions: (.*)\)`)
)

func (p pip) allVersions(ctx context.Context, c *fn.Call, a pipPlace) (any, error) {
	if err := pipName(a.Pkg); err != nil {
		return nil, err
	}
	v, err := p.version(ctx, c, a)
	if err != nil {
		return nil, err
	}
	words, find := []string{"index", "versions", a.Pkg}, availableVersions
	if !atLeast(v, 21, 2) {
		words, find = []string{"install", a.Pkg + "==versions"}, refusedVersions
		if atLeast(v, 20, 3) {
			words = append([]string{"--use-deprecated=legacy-resolver"}, words...)
		}
	}
	for _, o := range []struct{ option, url string }{{"--index-url", a.Index}, {"--extra-index-url", a.ExtraIndex}} {
		if words, err = withURL(words, o.option, o.url); err != nil {
			return nil, err
		}
	}
	d, err := p.run(ctx, c, a, value.DictOf("output_loglevel", "quiet", "redirect_stderr", true), words...)
	if err != nil {
		return nil, err
	}
	m := find.FindStringSubmatch(d.Str("stdout"))
	if m == nil {
		return nil, nil
	}
	versions := slices.DeleteFunc(strings.Split(m[1], ", "), func(v string) bool {
		return v == "" || !a.Alpha && strings.Contains(v, "a") || !a.Beta && strings.Contains(v, "b") || !a.RC && strings.Contains(v, "rc")
	})
	if len(versions) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(versions, hostpkgs.ComparePython)
	return value.Strings(versions), nil
}

// pipName rejects names that pip would take for options.
func pipName(name string) error {
	if name == "" || name[0] == '-' {
		return fn.Invalidf("%q is no package; options go into extra_args", name)
	}
	return nil
}

var pipURL = regexp.MustCompile(`^(https?|ftp|file)://`)

// withURL adds an option with a URL, unless that is empty.
func withURL(words []string, option, url string) ([]string, error) {
	switch {
	case url == "":
		return words, nil
	case !pipURL.MatchString(url):
		return nil, fn.Errorf("'%s' is not a valid URL", url)
	}
	return append(words, option, url), nil
}

// requirements returns the options for requirements files, and a function that
// removes the copies made for another user. missing is a file that the master
// does not have.
func (p pip) requirements(ctx context.Context, c *fn.Call, v any, cwd, user, saltenv string) (words []string, done func(), missing string, err error) {
	done = func() {}
	for _, file := range value.Split(v) {
		if strings.HasPrefix(file, "salt://") {
			cached, err := c.Files.CacheFile(ctx, file, saltenv)
			if err != nil {
				c.Log.Error("cannot fetch requirements file", "path", file, "err", err)
				return nil, done, file, nil
			}
			file = cached
		}
		if user != "" {
			copied, remove, err := p.copyFor(ctx, user, cwd, file)
			if err != nil {
				return nil, done, "", fn.Errorf("cannot copy the requirements for %s: %w", user, err)
			}
			before := done
			done = func() { before(); remove() }
			file = copied
		}
		words = append(words, "--requirement", file)
	}
	return words, done, "", nil
}

var (
	furtherFile = regexp.MustCompile(`(?m)(?:-r\s|--requirement[=\s])(.*)$`)
	pipComment  = regexp.MustCompile(`(?m)(?:^|\s+)#.*$`)
)

// copyFor copies a file and the files that it names to a directory of a user,
// who usually cannot read the cache.
func (p pip) copyFor(ctx context.Context, user, cwd, file string) (copied string, remove func(), err error) {
	owner, ok := account.ByName(ctx, p.m, user)
	if !ok {
		return "", nil, fmt.Errorf("there is no user %s", user)
	}
	dir, err := os.MkdirTemp("", "brine-pip-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	if !filepath.IsAbs(file) {
		file = filepath.Join(cwd, file)
	}
	seen := map[string]bool{}
	var each func(file string) error
	each = func(file string) error {
		if seen[file] {
			return nil
		}
		seen[file] = true
		data, err := p.m.ReadFile(file)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(to, data, 0o600); err != nil {
			return err
		}
		if err := os.Chown(to, owner.UID, -1); err != nil {
			return err
		}
		for _, m := range furtherFile.FindAllSubmatch(pipComment.ReplaceAll(data, nil), -1) {
			if err := each(filepath.Join(filepath.Dir(file), strings.TrimSpace(string(m[1])))); err != nil {
				return err
			}
		}
		return nil
	}
	if err = each(file); err == nil {
		err = os.Chown(dir, owner.UID, -1)
	}
	if err != nil {
		remove()
		return "", nil, err
	}
	return filepath.Join(dir, filepath.Base(file)), remove, nil
}
