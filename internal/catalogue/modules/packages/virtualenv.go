package packages

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// virtualenv creates Python environments that are separate from the system's.
type virtualenv struct{ m *host.Machine }

func init() { units.Register("virtualenv", virtualenvModule) }

func virtualenvModule(m *host.Machine) fn.Module {
	v := virtualenv{m}
	return fn.Module{Name: "virtualenv",
		Doc: `Virtual environments of Python. The option venv_bin, in the pillar or the minion's configuration, names the program; without it that ` +
			`is virtualenv, or Python's own venv where there is none.`, Funcs: []fn.Func{
			fn.Of("create", v.create, `Make a virtual environment and return what cmd.run_all does.
			All further keywords go to cmd.run_all.`, fn.Example("salt '*' virtualenv.create /path/to/new/virtualenv")),
			fn.Of("virtualenv_ver", v.programVersion, `Return the version of the program virtualenv, as numbers.`,
				fn.Example("salt '*' virtualenv.virtualenv_ver /usr/bin/virtualenv")),
			fn.Of("get_site_packages", v.sitePackages, `Return the directory of the packages of a virtual environment.`, fn.Params("venv"),
				fn.Example("salt '*' virtualenv.get_site_packages /path/to/my/venv")),
			fn.Of("get_distribution_path", v.distribution, `Return where a package of a virtual environment is.`, fn.Params("venv", "distribution"),
				fn.Example("salt '*' virtualenv.get_distribution_path /path/to/my/venv my_distribution")),
			fn.Of("get_resource_path", v.resourcePath, `Return the path of a file that belongs to a package of a virtual environment.`,
				fn.Params("venv", "package", "resource"), fn.Example("salt '*' virtualenv.get_resource_path /path/to/my/venv my_package my/resource.xml")),
			fn.Of("get_resource_content", v.resourceContent, `Return a file that belongs to a package of a virtual environment, as Python writes bytes.`,
				fn.Params("venv", "package", "resource"), fn.Example("salt '*' virtualenv.get_resource_content /path/to/my/venv my_package my/resource.xml")),
		}}
}

type virtualenvArgs struct {
	Path           string    `salt:"path" doc:"directory to make"`
	Bin            any       `salt:"venv_bin" doc:"program: virtualenv, venv, or the path of one" default:"null"`
	SystemPackages bool      `salt:"system_site_packages" doc:"the system's packages are there, too" default:"false"`
	Distribute     bool      `salt:"distribute" doc:"option of virtualenv before 1.10" default:"false"`
	Clear          bool      `salt:"clear" doc:"empty an environment that is there" default:"false"`
	Python         string    `salt:"python" doc:"Python to use, of virtualenv alone" default:"null"`
	SearchDir      any       `salt:"extra_search_dir" doc:"directories, as a list or a text with commas, to look for packages in, of virtualenv alone" default:"null"`
	NeverDownload  any       `salt:"never_download" doc:"do not fetch packages, of virtualenv alone" default:"null"`
	Prompt         string    `salt:"prompt" doc:"what the shell shows before its prompt, of virtualenv alone" default:"null"`
	Pip            bool      `salt:"pip" doc:"install pip if it is not there afterwards" default:"false"`
	Symlinks       any       `salt:"symlinks" doc:"link to Python in place of a copy, of venv alone" default:"null"`
	Upgrade        any       `salt:"upgrade" doc:"adapt the environment to the Python that is there now, of venv alone" default:"null"`
	User           string    `salt:"user" doc:"whose environment it is" default:"null"`
	UseVT          bool      `salt:"use_vt" ignored:"the output is not shown while the program runs" default:"false"`
	Saltenv        string    `salt:"saltenv" ignored:"nothing is fetched from the file server" default:"base"`
	Kwargs         fn.Kwargs `salt:"kwargs"`
}

// virtualenvNames are the programs that create environments; the first
// existing one is used.
var virtualenvNames = []string{"virtualenv-3", "virtualenv3", "virtualenv"}

// program returns the name of the program, "venv" for Python's own module.
func (v virtualenv) program(c *fn.Call, given any) string {
	for _, from := range []any{given, c.Pillar.Get("venv_bin"), c.Config.Get("venv_bin"), c.Config.Get("virtualenv.venv_bin")} {
		if value.Truth(from) {
			return value.Str(from)
		}
	}
	for _, name := range virtualenvNames {
		if path := v.m.Which(name); path != "" {
			return path
		}
	}
	return "venv"
}

func (v virtualenv) create(ctx context.Context, c *fn.Call, a virtualenvArgs) (*value.Dict, error) {
	bin := v.program(c, a.Bin)
	words := []string{bin}
	if bin == "venv" {
		python := v.m.Which("python3")
		if python == "" {
			return nil, &fn.ProgramError{Program: "python3"}
		}
		words = []string{python, "-m", "venv"}
	}
	options := a.ofVirtualenv
	if strings.Contains(bin, "venv") && !strings.Contains(filepath.Base(bin), "virtualenv") {
		options = a.ofVenv
	}
	more, err := options(ctx, c, v, bin)
	if err != nil {
		return nil, err
	}
	words = append(words, more...)
	if a.Clear {
		words = append(words, "--clear")
	}
	if a.SystemPackages {
		words = append(words, "--system-site-packages")
	}
	ret, err := v.run(ctx, c, a, append(words, host.Operands(a.Path)...))
	if err != nil || ret.Int("retcode") != 0 || !a.Pip {
		return ret, err
	}
	python := filepath.Join(a.Path, "bin", "python")
	if _, err := os.Stat(v.m.Path(filepath.Join(a.Path, "bin", "pip"))); err == nil {
		return ret, nil
	}
	pip, err := v.run(ctx, c, a, []string{python, "-m", "ensurepip"})
	if err != nil {
		return nil, err
	}
	ret.Set("retcode", pip.At("retcode"))
	for _, key := range []string{"stdout", "stderr"} {
		ret.Set(key, strings.TrimSpace(ret.Str(key)+"\n"+pip.Str(key)))
	}
	return ret, nil
}

// run runs a program as the user with cmd.run_all.
func (v virtualenv) run(ctx context.Context, c *fn.Call, a virtualenvArgs, words []string) (*value.Dict, error) {
	kw := a.Kwargs.Clean()
	kw.Set("python_shell", false)
	if a.User != "" {
		kw.Set("runas", a.User)
	}
	ret, err := c.Funcs.Call(ctx, c, "cmd.run_all", []any{value.Strings(words)}, kw)
	if err != nil {
		return nil, err
	}
	d, _ := ret.(*value.Dict)
	return d, nil
}

func (a virtualenvArgs) searchDirs() []string {
	return slices.DeleteFunc(value.Split(a.SearchDir), func(dir string) bool { return dir == "" })
}

func notSupported(option, bin string) error {
	return fn.Errorf("The `%s`(`--%s`) option is not supported by '%s'", option, strings.ReplaceAll(option, "_", "-"), bin)
}

// ofVirtualenv returns the options that virtualenv has and venv lacks.
func (a virtualenvArgs) ofVirtualenv(ctx context.Context, c *fn.Call, v virtualenv, bin string) ([]string, error) {
	switch {
	case a.Upgrade != nil:
		return nil, notSupported("upgrade", bin)
	case a.Symlinks != nil:
		return nil, notSupported("symlinks", bin)
	}
	kw := a.Kwargs.Clean()
	version, err := v.numbers(ctx, c, bin, a.User, kw)
	if err != nil {
		return nil, err
	}
	var words []string
	if a.Distribute && slices.Compare(version, []int{1, 10}) < 0 {
		words = append(words, "--distribute")
	}
	if python := strings.TrimSpace(a.Python); python != "" {
		if v.m.Which(python) == "" {
			return nil, fn.Errorf("Cannot find requested python (%s).", a.Python)
		}
		words = append(words, "--python="+a.Python)
	}
	for _, dir := range a.searchDirs() {
		words = append(words, "--extra-search-dir="+dir)
	}
	if a.NeverDownload == true && (slices.Compare(version, []int{1, 10}) < 0 || slices.Compare(version, []int{14}) >= 0) {
		words = append(words, "--never-download")
	}
	if strings.TrimSpace(a.Prompt) != "" {
		words = append(words, "--prompt='"+a.Prompt+"'")
	}
	return words, nil
}

// ofVenv returns the options that venv has and virtualenv lacks.
func (a virtualenvArgs) ofVenv(_ context.Context, _ *fn.Call, _ virtualenv, bin string) ([]string, error) {
	switch {
	case strings.TrimSpace(a.Python) != "":
		return nil, notSupported("python", bin)
	case len(a.searchDirs()) > 0:
		return nil, notSupported("extra_search_dir", bin)
	case a.NeverDownload != nil:
		return nil, notSupported("never_download", bin)
	case strings.TrimSpace(a.Prompt) != "":
		return nil, notSupported("prompt", bin)
	}
	var words []string
	if a.Upgrade == true {
		words = append(words, "--upgrade")
	}
	if a.Symlinks == true {
		words = append(words, "--symlinks")
	}
	return words, nil
}

type virtualenvVersionArgs struct {
	Bin    string    `salt:"venv_bin" doc:"the program"`
	User   string    `salt:"user" doc:"user to run it as" default:"null"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (v virtualenv) programVersion(ctx context.Context, c *fn.Call, a virtualenvVersionArgs) (*value.List, error) {
	numbers, err := v.numbers(ctx, c, a.Bin, a.User, a.Kwargs.Clean())
	l := value.ListOf()
	for _, n := range numbers {
		l.Append(int64(n))
	}
	return l, err
}

var versionNumbers = regexp.MustCompile(`\b\d+(?:\.\d+)+`)

func (v virtualenv) numbers(ctx context.Context, c *fn.Call, bin, user string, kw *value.Dict) ([]int, error) {
	kw.Set("redirect_stderr", true)
	ret, err := v.run(ctx, c, virtualenvArgs{User: user, Kwargs: fn.Kwargs{Dict: kw}}, []string{bin, "--version"})
	if err != nil {
		return nil, err
	}
	text := versionNumbers.FindString(ret.Str("stdout"))
	if ret.Int("retcode") > 0 || text == "" {
		return nil, fn.Errorf("Unable to get the virtualenv version output using '%s --version': %s", bin, ret.Str("stdout"))
	}
	var numbers []int
	for part := range strings.SplitSeq(text, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, fn.Errorf("the version of '%s' is not understood: %s", bin, text)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

type insideArgs struct {
	Venv         string `salt:"venv" doc:"directory of the virtual environment"`
	Distribution string `salt:"distribution" doc:"name of the package"`
	Package      string `salt:"package" doc:"name of the package" default:"null"`
	Resource     string `salt:"resource" doc:"path of the file within the package" default:"null"`
}

// code runs code with the environment's Python and passes arguments
// separately.
func (v virtualenv) code(ctx context.Context, venv, text string, args ...string) (string, error) {
	python := filepath.Join(venv, "bin", "python")
	if v.m.Which(python) == "" {
		return "", fn.Errorf("Path '%s' does not appear to be a virtualenv: '%s' not found.", venv, python)
	}
	out, err := v.m.Command(ctx, host.Cmd{Program: python, Args: append([]string{"-W", "ignore", "-c", text}, args...)})
	if err != nil {
		return "", err
	}
	if out.Exit != 0 {
		return "", fn.Errorf("%s\n%s", out.Stdout, out.Stderr)
	}
	return strings.TrimRight(out.Stdout, "\r\n"), nil
}

func (v virtualenv) sitePackages(ctx context.Context, _ *fn.Call, a insideArgs) (string, error) {
	return v.code(ctx, a.Venv, `import sysconfig; print(sysconfig.get_path("purelib"))`)
}

func (v virtualenv) distribution(ctx context.Context, _ *fn.Call, a insideArgs) (string, error) {
	return v.code(ctx, a.Venv, `import sys, importlib.metadata as m; print(m.distribution(sys.argv[1]).locate_file(""))`, a.Distribution)
}

const resource = `import sys, importlib.util, os; p = os.path.join(importlib.util.find_spec(sys.argv[1]).submodule_search_locations[0], sys.argv[2]); `

func (v virtualenv) resourcePath(ctx context.Context, _ *fn.Call, a insideArgs) (string, error) {
	return v.code(ctx, a.Venv, resource+`print(p)`, a.Package, a.Resource)
}

func (v virtualenv) resourceContent(ctx context.Context, _ *fn.Call, a insideArgs) (string, error) {
	return v.code(ctx, a.Venv, resource+`print(open(p, "rb").read())`, a.Package, a.Resource)
}
