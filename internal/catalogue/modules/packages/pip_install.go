package packages

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

type pipInstallArgs struct {
	Pkgs            any       `salt:"pkgs" doc:"packages, as a text with commas or a list" default:"null"`
	Requirements    any       `salt:"requirements" doc:"files of requirements, which may be salt:// addresses, as a text with commas or a list" default:"null"`
	BinEnv          string    `salt:"bin_env" doc:"virtual environment, or path of pip or Python" default:"null"`
	UseWheel        bool      `salt:"use_wheel" doc:"pip's option, of pip 1.4 to 9.0.3" default:"false"`
	NoUseWheel      bool      `salt:"no_use_wheel" doc:"pip's option, of pip 1.4 to 9.0.3" default:"false"`
	Log             string    `salt:"log" doc:"path of a file for pip's log" default:"null"`
	Proxy           any       `salt:"proxy" doc:"address of a proxy; false is not to use the one that the minion is configured with" default:"null"`
	Timeout         any       `salt:"timeout" doc:"seconds to wait for a server" default:"null"`
	Editable        any       `salt:"editable" doc:"addresses to install in place, as a text with commas or a list" default:"null"`
	FindLinks       any       `salt:"find_links" doc:"addresses or paths to look for packages in" default:"null"`
	Index           string    `salt:"index_url" doc:"address of the index of packages" default:"null"`
	ExtraIndex      string    `salt:"extra_index_url" doc:"address of a further index" default:"null"`
	NoIndex         bool      `salt:"no_index" doc:"ask no index" default:"false"`
	Mirrors         any       `salt:"mirrors" doc:"mirrors, of pip before 7" default:"null"`
	Build           string    `salt:"build" doc:"directory to build in" default:"null"`
	Target          string    `salt:"target" doc:"directory to install to" default:"null"`
	Download        string    `salt:"download" doc:"directory to download to instead of installing" default:"null"`
	DownloadCache   string    `salt:"download_cache" doc:"directory to keep downloads in" default:"null"`
	Source          string    `salt:"source" doc:"directory for editable packages" default:"null"`
	Upgrade         bool      `salt:"upgrade" doc:"upgrade what is installed" default:"false"`
	ForceReinstall  bool      `salt:"force_reinstall" doc:"install again what is installed" default:"false"`
	IgnoreInstalled bool      `salt:"ignore_installed" doc:"do not look at what is installed" default:"false"`
	ExistsAction    string    `salt:"exists_action" doc:"what to do with a path that exists: s, i, w or b" default:"null"`
	NoDeps          bool      `salt:"no_deps" doc:"do not install what packages need" default:"false"`
	NoInstall       bool      `salt:"no_install" doc:"download only" default:"false"`
	NoDownload      bool      `salt:"no_download" doc:"install what was downloaded" default:"false"`
	GlobalOptions   any       `salt:"global_options" doc:"options of setup.py" default:"null"`
	InstallOptions  any       `salt:"install_options" doc:"options of setup.py install" default:"null"`
	User            string    `salt:"user" doc:"user to run pip as" default:"null"`
	Cwd             string    `salt:"cwd" doc:"working directory" default:"null"`
	PreReleases     bool      `salt:"pre_releases" doc:"also versions that are not released" default:"false"`
	Cert            string    `salt:"cert" doc:"path of a file of certificates" default:"null"`
	AllExternal     bool      `salt:"allow_all_external" doc:"old option of pip" default:"false"`
	AllowExternal   any       `salt:"allow_external" doc:"old option of pip" default:"null"`
	AllowUnverified any       `salt:"allow_unverified" doc:"old option of pip" default:"null"`
	DependencyLinks bool      `salt:"process_dependency_links" doc:"old option of pip" default:"false"`
	Saltenv         string    `salt:"saltenv" doc:"environment of salt:// addresses" default:"base"`
	EnvVars         any       `salt:"env_vars" doc:"map of environment variables" default:"null"`
	UseVT           bool      `salt:"use_vt" ignored:"the output is not shown while the program runs" default:"false"`
	TrustedHost     string    `salt:"trusted_host" doc:"host whose certificate is not checked" default:"null"`
	NoCacheDir      bool      `salt:"no_cache_dir" doc:"do not use the cache" default:"false"`
	ExtraArgs       any       `salt:"extra_args" doc:"list of further options, or maps of one option and its value" default:"null"`
	CacheDir        string    `salt:"cache_dir" doc:"directory of the cache" default:"null"`
	NoBinary        any       `salt:"no_binary" doc:"packages to build from source, or :all:" default:"null"`
	NoVersionCheck  bool      `salt:"disable_version_check" doc:"do not look for a newer pip" default:"false"`
	Kwargs          fn.Kwargs `salt:"kwargs"`
}

func (a pipInstallArgs) place() pipPlace {
	return pipPlace{BinEnv: a.BinEnv, User: a.User, Cwd: a.Cwd, EnvVars: a.EnvVars}
}

func (p pip) install(ctx context.Context, c *fn.Call, a pipInstallArgs) (*value.Dict, error) {
	files, done, missing, err := p.requirements(ctx, c, a.Requirements, a.Cwd, a.User, a.Saltenv)
	if err != nil {
		return nil, err
	}
	defer done()
	if missing != "" {
		return value.DictOf("result", false, "comment", "pip requirements file '"+missing+"' not found"), nil
	}
	version, err := p.version(ctx, c, a.place())
	if err != nil {
		return nil, err
	}
	words := append([]string{"install"}, files...)
	for _, part := range []func(*fn.Call, string) ([]string, error){a.wheels, a.network, a.directories, a.manner, a.packages, a.rest} {
		more, err := part(c, version)
		if err != nil {
			return nil, err
		}
		words = append(words, more...)
	}
	if !value.Truth(a.Pkgs) && len(files) == 0 && !value.Truth(a.Editable) {
		return value.DictOf("retcode", 0, "stdout", "No packages to install."), nil // pip would fail without packages
	}
	return p.run(ctx, c, a.place(), a.Kwargs.Clean(), words...)
}

func (a pipInstallArgs) wheels(c *fn.Call, version string) (words []string, err error) {
	for _, o := range []struct {
		option string
		on     bool
	}{{"--use-wheel", a.UseWheel}, {"--no-use-wheel", a.NoUseWheel}} {
		switch {
		case !o.on:
		case atLeast(version, 1, 4) && !atLeast(version, 9, 0, 4):
			words = append(words, o.option)
		default:
			c.Log.Error("ignoring an option that this version of pip lacks", "option", o.option, "version", version)
		}
	}
	if names := value.Split(a.NoBinary); len(names) > 0 {
		words = append(words, "--no-binary", strings.Join(names, ","))
	}
	return words, nil
}

// proxy returns the option for a proxy: the given one, or the minion's.
func proxy(c *fn.Call, given any) []string {
	if value.Truth(given) {
		return []string{"--proxy", value.Str(given)}
	}
	get := func(name string) string {
		if v := c.Config.Get(name); value.Truth(v) {
			return value.Str(v)
		}
		return ""
	}
	if given == false || get("proxy_host") == "" || get("proxy_port") == "" {
		return nil
	}
	login := ""
	if get("proxy_username") != "" && get("proxy_password") != "" {
		login = get("proxy_username") + ":" + get("proxy_password") + "@"
	}
	return []string{"--proxy", "http://" + login + get("proxy_host") + ":" + get("proxy_port")}
}

// logFile returns the option for the log file, which must be writable.
func logFile(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	st, err := os.Stat(path)
	parent := filepath.Dir(path)
	switch {
	case err == nil && st.IsDir():
		return nil, fn.Errorf("'%s' is a directory. Use --log path_to_file", path)
	case err == nil && unix.Access(path, unix.W_OK) != nil:
		return nil, fn.Errorf("'%s' is not writeable", path)
	case err == nil:
	case !errors.Is(err, os.ErrNotExist):
		return nil, fn.Errorf("cannot look at the log: %w", err)
	default:
		if _, err := os.Stat(parent); err != nil {
			return nil, fn.Errorf("Trying to create '%s' but parent directory '%s' does not exist.", path, parent)
		}
		if unix.Access(parent, unix.W_OK) != nil {
			return nil, fn.Errorf("Trying to create '%s' but parent directory '%s' is not writeable.", path, parent)
		}
	}
	return []string{"--log", path}, nil
}

// waiting returns the option for a timeout in seconds.
func waiting(v any) ([]string, error) {
	if !value.Truth(v) {
		return nil, nil
	}
	text := value.Str(v)
	if n, err := strconv.Atoi(text); err != nil || n < 0 {
		return nil, fn.Errorf("'%s' is not a valid timeout, must be an integer", text)
	}
	return []string{"--timeout", text}, nil
}

func (a pipInstallArgs) network(c *fn.Call, version string) ([]string, error) {
	words, err := logFile(a.Log)
	if err != nil {
		return nil, err
	}
	words = append(words, proxy(c, a.Proxy)...)
	seconds, err := waiting(a.Timeout)
	if err != nil {
		return nil, err
	}
	words = append(words, seconds...)
	for _, link := range value.Split(a.FindLinks) {
		if _, err := os.Stat(link); err != nil && !pipURL.MatchString(link) {
			return nil, fn.Errorf("'%s' is not a valid URL or path", link)
		}
		words = append(words, "--find-links", link)
	}
	if a.NoIndex && (a.Index != "" || a.ExtraIndex != "") {
		return nil, fn.Errorf("'no_index' and ('index_url' or 'extra_index_url') are mutually exclusive.")
	}
	if words, err = withURL(words, "--index-url", a.Index); err != nil {
		return nil, err
	}
	if words, err = withURL(words, "--extra-index-url", a.ExtraIndex); err != nil {
		return nil, err
	}
	if a.NoIndex {
		words = append(words, "--no-index")
	}
	if mirrors := value.Split(a.Mirrors); len(mirrors) > 0 {
		if atLeast(version, 7) {
			return nil, fn.Errorf("pip >= 7.0.0 does not support mirror argument: use index_url and/or extra_index_url instead")
		}
		words = append(words, "--use-mirrors")
		for _, m := range mirrors {
			if !strings.HasPrefix(m, "http://") {
				return nil, fn.Errorf("'%s' is not a valid URL", m)
			}
			words = append(words, "--mirrors", m)
		}
	}
	if a.NoVersionCheck {
		words = append(words, "--disable-pip-version-check")
	}
	return words, nil
}

func (a pipInstallArgs) directories(_ *fn.Call, version string) (words []string, err error) {
	target, cache, option := a.Target, a.DownloadCache, "--download-cache"
	if target == "" && a.BinEnv == "" {
		target = os.Getenv("VENV_PIP_TARGET")
	}
	if cache == "" {
		cache = a.CacheDir
	}
	if atLeast(version, 6) {
		option = "--cache-dir"
	}
	for _, o := range [][2]string{{"--build", a.Build}, {"--target", target}, {"--download", a.Download}, {option, cache}, {"--source", a.Source}} {
		if o[1] != "" {
			words = append(words, o[0], o[1])
		}
	}
	return words, nil
}

func (a pipInstallArgs) manner(_ *fn.Call, version string) (words []string, err error) {
	flag := func(option string, on bool) {
		if on {
			words = append(words, option)
		}
	}
	flag("--upgrade", a.Upgrade)
	flag("--force-reinstall", a.ForceReinstall)
	flag("--ignore-installed", a.IgnoreInstalled)
	if a.ExistsAction != "" {
		if !strings.Contains("siwb", strings.ToLower(a.ExistsAction)) || len(a.ExistsAction) != 1 {
			return nil, fn.Errorf("The exists_action pip option only supports the values s, i, w, and b. '%s' is not valid.", a.ExistsAction)
		}
		words = append(words, "--exists-action", a.ExistsAction)
	}
	flag("--no-deps", a.NoDeps)
	flag("--no-install", a.NoInstall)
	flag("--no-download", a.NoDownload)
	flag("--no-cache-dir", a.NoCacheDir)
	flag("--pre", a.PreReleases && atLeast(version, 1, 4))
	if a.Cert != "" {
		words = append(words, "--cert", a.Cert)
	}
	for _, o := range value.Split(a.GlobalOptions) {
		words = append(words, "--global-option", o)
	}
	for _, o := range value.Split(a.InstallOptions) {
		words = append(words, "--install-option", o)
	}
	return words, nil
}

var egg = regexp.MustCompile(`(?:#|#.*?&)egg=([^&]+)`)

func (a pipInstallArgs) packages(*fn.Call, string) (words []string, err error) {
	for _, name := range value.Split(a.Pkgs) {
		if err := pipName(name); err != nil {
			return nil, err
		}
		words = append(words, strings.ReplaceAll(name, ";", ",")) // ; stands for a comma, which separates names
	}
	for _, e := range value.Split(a.Editable) {
		if e != "." && !strings.HasPrefix(e, "file://") && !strings.HasPrefix(e, "/") && !egg.MatchString(e) {
			return nil, fn.Errorf("You must specify an egg for this editable")
		}
		words = append(words, "--editable", e)
	}
	return words, nil
}

func (a pipInstallArgs) rest(*fn.Call, string) (words []string, err error) {
	if a.AllExternal {
		words = append(words, "--allow-all-external")
	}
	for _, name := range value.Split(a.AllowExternal) {
		words = append(words, "--allow-external", name)
	}
	for _, name := range value.Split(a.AllowUnverified) {
		words = append(words, "--allow-unverified", name)
	}
	if a.DependencyLinks {
		words = append(words, "--process-dependency-links")
	}
	if a.TrustedHost != "" {
		words = append(words, "--trusted-host", a.TrustedHost)
	}
	extra, ok := a.ExtraArgs.(*value.List)
	if !ok && value.Truth(a.ExtraArgs) {
		return nil, fn.Invalidf("extra_args is a list, not %s", value.Repr(a.ExtraArgs))
	}
	if extra == nil {
		return words, nil
	}
	for _, it := range extra.Items {
		d, ok := it.(*value.Dict)
		if !ok {
			words = append(words, value.Str(it))
			continue
		}
		for k, v := range d.All() {
			switch v.(type) {
			case *value.Dict, *value.List:
				return nil, fn.Invalidf("Too many levels in: %s", value.Str(k))
			}
			words = append(words, value.Str(k), value.Str(v))
		}
	}
	return words, nil
}

type pipUninstallArgs struct {
	Pkgs         any    `salt:"pkgs" doc:"packages, as a text with commas or a list" default:"null"`
	Requirements any    `salt:"requirements" doc:"files of requirements, as a text with commas or a list" default:"null"`
	BinEnv       string `salt:"bin_env" doc:"virtual environment, or path of pip or Python" default:"null"`
	Log          string `salt:"log" doc:"path of a file for pip's log" default:"null"`
	Proxy        any    `salt:"proxy" doc:"address of a proxy; false is not to use the one that the minion is configured with" default:"null"`
	Timeout      any    `salt:"timeout" doc:"seconds to wait for a server" default:"null"`
	User         string `salt:"user" doc:"user to run pip as" default:"null"`
	Cwd          string `salt:"cwd" doc:"working directory" default:"null"`
	Saltenv      string `salt:"saltenv" doc:"environment of salt:// addresses" default:"base"`
	UseVT        bool   `salt:"use_vt" ignored:"the output is not shown while the program runs" default:"false"`
}

func (p pip) uninstall(ctx context.Context, c *fn.Call, a pipUninstallArgs) (*value.Dict, error) {
	files, done, missing, err := p.requirements(ctx, c, a.Requirements, a.Cwd, a.User, a.Saltenv)
	if err != nil {
		return nil, err
	}
	defer done()
	if missing != "" {
		return value.DictOf("result", false, "comment", "pip requirements file '"+missing+"' not found"), nil
	}
	words := append([]string{"uninstall", "-y"}, files...)
	log, err := logFile(a.Log)
	if err != nil {
		return nil, err
	}
	seconds, err := waiting(a.Timeout)
	if err != nil {
		return nil, err
	}
	words = append(append(append(words, log...), proxy(c, a.Proxy)...), seconds...)
	for _, name := range value.Split(a.Pkgs) {
		if err := pipName(name); err != nil {
			return nil, err
		}
		words = append(words, name)
	}
	return p.run(ctx, c, pipPlace{BinEnv: a.BinEnv, User: a.User, Cwd: a.Cwd}, nil, words...)
}
