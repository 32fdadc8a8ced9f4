package packages

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/account"
	hostpkgs "brine/internal/host/packages"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() { units.Declare("pip", pipModule) }

// pipModule returns the states for Python packages.
func pipModule() state.Module {
	return state.Module{Name: "pip", Doc: `Keep packages of Python installed, or not, by way of pip.`, Funcs: []state.Func{
		state.Of("installed", pipInstalled, `Have packages of Python installed, possibly in a version.
			All further arguments are those of the function pip.install.`),
		state.Of("removed", pipRemoved, `Have a package of Python not installed.`),
		state.Of("uptodate", pipUptodate, `Have the newest version of all installed packages of Python.`),
	}}
}

// pipPlace selects the pip that a state uses.
type pipPlace struct {
	BinEnv string `salt:"bin_env" doc:"virtual environment, or path of pip or Python" default:"null"`
	User   string `salt:"user" doc:"user to run pip as" default:"null"`
	Cwd    string `salt:"cwd" doc:"working directory" default:"null"`
}

// words returns these arguments, with more, for the execution functions.
func (p pipPlace) words(more ...any) *value.Dict {
	d := value.NewDict(6)
	for k, v := range map[string]string{"bin_env": p.BinEnv, "user": p.User, "cwd": p.Cwd} {
		if v != "" {
			d.Set(k, v)
		}
	}
	for i := 0; i+1 < len(more); i += 2 {
		if more[i+1] != nil {
			d.Set(more[i], more[i+1])
		}
	}
	return d
}

// versions returns the versions of installed packages by their normalized
// names.
func (p pipPlace) versions(ctx context.Context, e *state.Env, env any) (map[string]string, error) {
	v, err := e.Exec(ctx, "pip.list", p.words("env_vars", env))
	if err != nil {
		return nil, err
	}
	d, _ := v.(*value.Dict)
	out := map[string]string{}
	for k, version := range d.All() {
		out[plainName(value.Str(k))] = value.Str(version)
	}
	return out, nil
}

var separators = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[-_.]+`) })

// plainName normalizes a name, so that equivalent names are equal.
func plainName(name string) string { return separators().ReplaceAllString(strings.ToLower(name), "-") }

type pipInstalledArgs struct {
	Name         string `salt:"name" doc:"what to install, such as django, django>=4,<5 or git+https://…#egg=django, unless pkgs is given"`
	Pkgs         any    `salt:"pkgs" doc:"list of such texts" default:"null"`
	PipBin       string `salt:"pip_bin" doc:"old name of bin_env" default:"null"`
	Requirements any    `salt:"requirements" doc:"file of requirements, or a list" default:"null"`
	Editable     any    `salt:"editable" doc:"checkout that is installed as it stands" default:"null"`
	pipPlace
	Upgrade         bool      `salt:"upgrade" doc:"have the newest version" default:"false"`
	ForceReinstall  bool      `salt:"force_reinstall" doc:"install each time" default:"false"`
	IgnoreInstalled bool      `salt:"ignore_installed" doc:"install without a look at what is installed" default:"false"`
	EnvVars         any       `salt:"env_vars" doc:"map of environment variables" default:"null"`
	Index           any       `salt:"index_url" doc:"address of the index of packages" default:"null"`
	ExtraIndex      any       `salt:"extra_index_url" doc:"address of a further index" default:"null"`
	Kwargs          fn.Kwargs `salt:"kwargs"`
}

// requirement is a package to install.
type requirement struct {
	text string
	// name is the package's name, "" if only pip can tell.
	name  string
	specs []spec
}

// spec is a requirement on the version.
type spec struct{ op, version string }

var (
	requirementText = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*\(?([^;()]*)\)?\s*(?:;.*)?$`)
	})
	// directText is a package of an address: name @ https://…
	directText = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*@\s*\S+`)
	})
	specText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*(===|==|~=|!=|<=|>=|<|>)\s*([^\s,]+)\s*$`) })
	eggName  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[#&]egg=([A-Za-z0-9._-]+)`) })
)

// readRequirement parses a requirement in pip's syntax.
func readRequirement(text string) (requirement, error) {
	r := requirement{text: text}
	switch {
	case eggName().MatchString(text):
		r.name = eggName().FindStringSubmatch(text)[1]
		return r, nil
	case directText().MatchString(text):
		r.name = directText().FindStringSubmatch(text)[1]
		return r, nil
	case strings.Contains(text, "://"), strings.ContainsAny(text, "/\\"), strings.HasSuffix(text, ".whl"), strings.HasSuffix(text, ".tar.gz"),
		strings.HasSuffix(text, ".zip"):
		return r, nil
	}
	m := requirementText().FindStringSubmatch(text)
	if m == nil {
		return r, badRequirement(text)
	}
	r.name = m[1]
	if strings.TrimSpace(m[2]) == "" {
		return r, nil
	}
	for part := range strings.SplitSeq(m[2], ",") {
		s := specText().FindStringSubmatch(part)
		if s == nil {
			return r, badRequirement(text)
		}
		r.specs = append(r.specs, spec{s[1], s[2]})
	}
	return r, nil
}

func badRequirement(text string) error {
	if strings.Contains(text, "=") && !strings.Contains(text, "==") {
		return fn.Errorf("Invalid version specification in package %s. '=' is not supported, use '==' instead.", text)
	}
	return fn.Errorf("pip raised an exception while parsing '%s': it is no name of a package with conditions such as >=1.2,<2", text)
}

// fulfilled reports whether a version meets the requirement.
func (r requirement) fulfilled(version string) bool {
	for _, s := range r.specs {
		c := hostpkgs.ComparePython(version, s.version)
		ok := false
		switch s.op {
		case "==", "!=":
			if prefix, any := strings.CutSuffix(s.version, ".*"); any {
				ok = version == prefix || strings.HasPrefix(version, prefix+".")
			} else {
				ok = c == 0
			}
			ok = ok == (s.op == "==")
		case "===":
			ok = version == s.version
		case "~=":
			ok = c >= 0
			if i := strings.LastIndexByte(s.version, '.'); i > 0 {
				ok = ok && strings.HasPrefix(version+".", s.version[:i]+".")
			}
		case "<=":
			ok = c <= 0
		case ">=":
			ok = c >= 0
		case "<":
			ok = c < 0
		case ">":
			ok = c > 0
		}
		if !ok {
			return false
		}
	}
	return true
}

func pipInstalled(ctx context.Context, e *state.Env, a pipInstalledArgs) (state.Plan, error) {
	p, err := a.plan(ctx, e)
	if l, ok := a.Pkgs.(*value.List); ok && l.Len() > 0 { // as in Salt, the result has the packages as its name
		p.Extra = value.DictOf("name", strings.Join(value.Texts(l), ";"))
	}
	return p, err
}

// plan returns the plan of pip.installed.
func (a pipInstalledArgs) plan(ctx context.Context, e *state.Env) (state.Plan, error) {
	if a.BinEnv == "" {
		a.BinEnv = a.PipBin
	}
	option := func(name string) bool { return value.Truth(a.Kwargs.At(name)) }
	if err := pipSupports(ctx, e, a.words(), option("use_wheel"), option("no_use_wheel"), option("no_binary")); err != nil {
		return state.Plan{}, err
	}
	if value.Truth(a.Requirements) || value.Truth(a.Editable) {
		return a.planFiles(e), nil
	}
	wanted, err := a.wanted()
	if err != nil {
		return state.Plan{}, err
	}
	if _, ok := account.ByName(ctx, &host.Machine{}, a.User); a.User != "" && !ok {
		return state.Plan{}, fn.Errorf("User %s does not exist", a.User)
	}
	have, err := a.versions(ctx, e, a.EnvVars)
	if err != nil {
		return state.Plan{}, fn.Errorf("Error installing '%s': %w", a.Name, err)
	}
	var missing []requirement
	var notes []string
	for _, r := range wanted {
		note, there, err := a.there(ctx, e, r, have)
		switch {
		case err != nil:
			return state.Plan{}, fn.Errorf("Error installing '%s': %w", a.Name, err)
		case there:
			notes = append(notes, note)
		default:
			missing = append(missing, r)
		}
	}
	if len(missing) == 0 {
		last := "All specified packages are already installed"
		if a.Upgrade {
			last += " and up-to-date"
		}
		return state.Plan{Comment: strings.Join(append(notes, last), "\n")}, nil
	}
	would := "Python package " + missing[0].text + " is set to be installed"
	if len(wanted) > 1 {
		would = "Python package(s) set to be installed:"
		for _, r := range missing {
			would += "\n" + r.text
		}
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: would}, Do: func(ctx context.Context) (state.Change, error) {
		return a.install(ctx, e, missing, notes)
	}}}}, nil
}

// pipSupports returns an error for an option that this version of pip lacks. at selects the pip.
func pipSupports(ctx context.Context, e *state.Env, at *value.Dict, useWheel, noUseWheel, noBinary bool) error {
	for _, o := range []struct {
		name        string
		on          bool
		least, most string
	}{{"use_wheel", useWheel, "1.4", "9.0.3"}, {"no_use_wheel", noUseWheel, "1.4", "9.0.3"}, {"no_binary", noBinary, "7.0.0", ""}} {
		if !o.on {
			continue
		}
		v, err := e.Exec(ctx, "pip.version", at)
		if err != nil {
			return err
		}
		version, within := value.Str(v), o.least+" and newer"
		if o.most != "" {
			within = "between " + o.least + " and " + o.most
		}
		if hostpkgs.ComparePython(version, o.least) < 0 || o.most != "" && hostpkgs.ComparePython(version, o.most) > 0 {
			return fn.Errorf("The '%s' option is only supported in pip %s. The version of pip detected was %s.", o.name, within, version)
		}
	}
	return nil
}

// wanted reads name or pkgs.
func (a pipInstalledArgs) wanted() ([]requirement, error) {
	texts := []any{a.Name}
	if value.Truth(a.Pkgs) {
		l, ok := a.Pkgs.(*value.List)
		if !ok {
			return nil, fn.Errorf("pkgs argument must be formatted as a list")
		}
		texts = l.Items
	}
	var out []requirement
	var faults []string
	for _, t := range texts {
		r, err := readRequirement(value.Str(t))
		if err != nil {
			faults = append(faults, err.Error())
		}
		out = append(out, r)
	}
	if len(faults) > 0 {
		return nil, fn.Errorf("%s", strings.Join(faults, "\n"))
	}
	return out, nil
}

// there reports whether a package is installed as required.
func (a pipInstalledArgs) there(ctx context.Context, e *state.Env, r requirement, have map[string]string) (note string, ok bool, err error) {
	version, installed := have[plainName(r.name)]
	if r.name == "" || !installed || a.IgnoreInstalled || a.ForceReinstall {
		return "", false, nil
	}
	note = "Python package " + r.text + " was already installed"
	if !a.Upgrade {
		return note, r.fulfilled(version), nil
	}
	hasWord := func(w string) bool {
		return slices.ContainsFunc(r.specs, func(s spec) bool { return strings.Contains(s.version, w) })
	}
	v, err := e.Exec(ctx, "pip.list_all_versions", a.words("include_alpha", hasWord("a"), "include_beta", hasWord("b"), "include_rc", hasWord("rc"),
		"index_url", a.Index, "extra_index_url", a.ExtraIndex), r.name)
	if err != nil {
		return "", false, err
	}
	newest := ""
	if l, ok := v.(*value.List); ok {
		for _, it := range l.Items {
			if s := value.Str(it); r.fulfilled(s) {
				newest = s
			}
		}
	}
	if newest == "" {
		return "Python package " + r.name + " was already installed and\nthe available upgrade doesn't fulfills the version requirements", true, nil
	}
	return note, hostpkgs.ComparePython(version, newest) == 0, nil
}

// call calls pip.install and returns pip's output.
func (a pipInstalledArgs) call(ctx context.Context, e *state.Env, pkgs string) (stdout string, err error) {
	kw := a.Kwargs.Clone()
	kw.Update(a.words("env_vars", a.EnvVars, "index_url", a.Index, "extra_index_url", a.ExtraIndex, "requirements", a.Requirements, "editable", a.Editable,
		"upgrade", a.Upgrade, "force_reinstall", a.ForceReinstall, "ignore_installed", a.IgnoreInstalled, "saltenv", e.Saltenv, "disable_version_check",
		true))
	if pkgs != "" {
		kw.Set("pkgs", pkgs)
	}
	v, err := e.Exec(ctx, "pip.install", kw)
	if err != nil {
		return "", err
	}
	d, _ := v.(*value.Dict)
	switch {
	case d.Has("stdout") && d.Int("retcode") == 0:
		return d.Str("stdout"), nil
	case d.Has("stdout"):
		return "", fn.Errorf("Error: %s %s", d.Str("stdout"), d.Str("stderr"))
	}
	return "", fn.Errorf("Error: %s", value.Str(d.At("comment")))
}

func (a pipInstalledArgs) install(ctx context.Context, e *state.Env, missing []requirement, notes []string) (state.Change, error) {
	texts := make([]string, len(missing))
	for i, r := range missing {
		texts[i] = strings.ReplaceAll(r.text, ",", ";")
	}
	stdout, err := a.call(ctx, e, strings.Join(texts, ","))
	if err != nil {
		return state.Change{}, fn.Errorf("%s", strings.Join(append(notes, "Failed to install packages: "+strings.Join(texts, ", ")+". "+err.Error()), "\n"))
	}
	have, err := a.versions(ctx, e, a.EnvVars)
	if err != nil {
		return state.Change{}, err
	}
	diff := value.NewDict(len(missing))
	var lost []string
	for _, r := range missing {
		version, ok := have[plainName(r.name)]
		switch {
		case r.name == "":
			diff.Set(r.text+"==???", "Installed")
		case !ok:
			lost = append(lost, "There was no error installing package '"+r.text+"' although it does not show when calling 'pip.freeze'.")
		case !strings.Contains(strings.ToLower(stdout), "requirement already up-to-date: "+strings.ToLower(r.name)):
			diff.Set(r.name+"=="+version, "Installed")
		}
	}
	last := "All packages were successfully installed"
	if len(lost) > 0 {
		last = strings.Join(lost, "\n")
	}
	return state.Change{Diff: diff, Comment: strings.Join(append(notes, last), "\n")}, nil
}

// unchanged lists the beginnings of pip's lines when a requirements file
// changes nothing.
var unchanged = []string{"Requirement already satisfied", "Requirement already up-to-date", "Requirement not upgraded", "Collecting", "Cloning",
	"Cleaning up...", "Looking in indexes"}

// planFiles returns the plan for requirements files and checkouts. It always
// runs pip, as only pip knows what is missing.
func (a pipInstalledArgs) planFiles(e *state.Env) state.Plan {
	var would []string
	if value.Truth(a.Requirements) {
		would = append(would, "Requirements file '"+value.Str(a.Requirements)+"' will be processed.")
	}
	if value.Truth(a.Editable) {
		would = append(would, "Package will be installed in editable mode (i.e. setuptools \"develop mode\") from "+value.Str(a.Editable)+".")
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: strings.Join(would, " ")}, Do: func(ctx context.Context) (state.Change, error) {
		return a.installFiles(ctx, e)
	}}}}
}

func (a pipInstalledArgs) installFiles(ctx context.Context, e *state.Env) (state.Change, error) {
	stdout, err := a.call(ctx, e, "")
	var said []string
	if err != nil {
		if value.Truth(a.Requirements) {
			said = append(said, `Unable to process requirements file "`+value.Str(a.Requirements)+`"`)
		}
		if value.Truth(a.Editable) {
			said = append(said, "Unable to install from VCS checkout "+value.Str(a.Editable)+".")
		}
		return state.Change{}, fn.Errorf("%s", strings.Join(append(said, err.Error()), " "))
	}
	diff := value.NewDict(2)
	if value.Truth(a.Requirements) {
		for line := range strings.SplitSeq(stdout, "\n") {
			line = strings.TrimSpace(line)
			if !slices.ContainsFunc(unchanged, func(begin string) bool { return strings.HasPrefix(line, begin) }) {
				diff.Set("requirements", true)
			}
		}
		if diff.Len() > 0 {
			said = append(said, "Successfully processed requirements file "+value.Str(a.Requirements)+".")
		} else {
			said = append(said, "Requirements were already installed.")
		}
	}
	if value.Truth(a.Editable) {
		said = append(said, "Package successfully installed from VCS checkout "+value.Str(a.Editable)+".")
		diff.Set("editable", true)
	}
	return state.Change{Diff: diff, Comment: strings.Join(said, " ")}, nil
}

type pipRemovedArgs struct {
	Name         string `salt:"name" doc:"name of the package"`
	Requirements any    `salt:"requirements" doc:"file of requirements, or a list" default:"null"`
	pipPlace
	Log     any  `salt:"log" doc:"file that pip logs to" default:"null"`
	Proxy   any  `salt:"proxy" doc:"proxy, as user:password@host:port" default:"null"`
	Timeout any  `salt:"timeout" doc:"seconds to wait for a server" default:"null"`
	UseVT   bool `salt:"use_vt" ignored:"the output is not shown while the program runs" default:"false"`
}

func pipRemoved(ctx context.Context, e *state.Env, a pipRemovedArgs) (state.Plan, error) {
	have, err := a.versions(ctx, e, nil)
	if err != nil {
		return state.Plan{}, fn.Errorf("Error uninstalling '%s': %w", a.Name, err)
	}
	if _, there := have[plainName(a.Name)]; !there {
		return state.Plan{Comment: "Package is not installed."}, nil
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "Package " + a.Name + " is set to be removed"},
		Do: func(ctx context.Context) (state.Change, error) {
			v, err := e.Exec(ctx, "pip.uninstall", a.words("pkgs", a.Name, "requirements", a.Requirements, "log", a.Log, "proxy", a.Proxy, "timeout",
				a.Timeout))
			if d, ok := v.(*value.Dict); err == nil && ok && d.Int("retcode") != 0 {
				err = fn.Errorf("%s", strings.TrimSpace(d.Str("stdout")+"\n"+d.Str("stderr")))
			}
			if err != nil {
				return state.Change{}, fn.Errorf("Could not remove package. %w", err)
			}
			return state.Change{Diff: value.DictOf(a.Name, "Removed"), Comment: "Package was successfully removed."}, nil
		},
	}}}, nil
}

type pipUptodateArgs struct {
	Name string `salt:"name" doc:"any text"`
	pipPlace
	UseVT bool `salt:"use_vt" ignored:"the output is not shown while the program runs" default:"false"`
}

func pipUptodate(ctx context.Context, e *state.Env, a pipUptodateArgs) (state.Plan, error) {
	v, err := e.Exec(ctx, "pip.list_upgrades", a.words())
	switch {
	case err != nil:
		return state.Plan{}, err
	case !value.Truth(v):
		return state.Plan{Comment: "System is already up-to-date."}, nil
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "System update will be performed"},
		Do: func(ctx context.Context) (state.Change, error) {
			v, err := e.Exec(ctx, "pip.upgrade", a.words())
			if err != nil {
				return state.Change{}, err
			}
			d, _ := v.(*value.Dict)
			c := state.Change{Diff: d.Dict("changes"), Comment: "Upgrade successful."}
			if d.At("result") == false {
				return c, fn.Errorf("%s", d.Str("comment"))
			}
			return c, nil
		},
	}}}, nil
}
