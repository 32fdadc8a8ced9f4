package packages

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/packages"
	"brine/internal/py/value"
)

func init() { units.Register("lowpkg", lowpkgModule) }

// lowpkgModule returns the module for the level below a package manager: files
// of packages, and dpkg's selections.
func lowpkgModule(m *host.Machine) fn.Module {
	p := pkg{m}
	return fn.Module{Name: "lowpkg", When: p.whenLow, Doc: `Files of packages and the package database itself.`, Funcs: []fn.Func{
		fn.Of("bin_pkg_info", p.fileInfo, `Return name, version and architecture of a package in a file.`,
			fn.Example("salt '*' lowpkg.bin_pkg_info /root/foo-1.2.3-1_all.deb")),
		fn.Of("list_pkgs", p.listLow, `Return the versions of installed packages, all if none is named.`, fn.Example("salt '*' lowpkg.list_pkgs hostname")),
		fn.Of("file_list", p.fileList, `Return the files of packages in one list.`, fn.Example("salt '*' lowpkg.file_list hostname")),
		fn.Of("file_dict", p.fileDict, `Return the files of packages by package.`, fn.Example("salt '*' lowpkg.file_dict hostname")),
		fn.Of("info", p.infoLow, `Return what dpkg knows of packages, under its own names.`, fn.Example("salt '*' lowpkg.info bash failhard=false")),
		fn.Of("unpurge", p.unpurge, `Keep packages that wait to be removed (dpkg).`, fn.Example("salt '*' lowpkg.unpurge curl")),
	}}
}

// whenLow reports whether the module works. On Red Hat systems, rpm suffices.
func (p pkg) whenLow(grains fn.Reader) (string, bool) {
	if family(grains) != "RedHat" {
		return p.when(grains)
	}
	if p.m.Which("rpm") == "" {
		return "rpm was not found", false
	}
	return "", true
}

type fileArgs struct {
	Path    string `salt:"path" doc:"full path or URL of the file"`
	Saltenv string `salt:"saltenv" doc:"environment of the file server" default:"base"`
}

func (p pkg) fileInfo(ctx context.Context, c *fn.Call, a fileArgs) (*value.Dict, error) {
	r, ok := p.manager(c).(packages.FileReader)
	if !ok {
		return nil, fn.Errorf("files of packages cannot be read on this system")
	}
	path := a.Path
	if strings.Contains(path, "://") {
		var err error
		if path, err = c.Files.CacheFile(ctx, a.Path, a.Saltenv); err != nil {
			return nil, fn.Errorf("Unable to retrieve %s from saltenv '%s': %w", a.Path, a.Saltenv, err)
		}
	}
	if !filepath.IsAbs(path) || !p.m.Exists(path) {
		return nil, fn.Errorf("%s does not exist on minion", path)
	}
	name, version, arch, err := r.FileInfo(ctx, path)
	if err != nil {
		return nil, fn.Errorf("Unable to get info for %s: %w", path, err)
	}
	return value.DictOf("name", name, "version", version, "arch", arch), nil
}

func (p pkg) listLow(ctx context.Context, c *fn.Call, a namesArgs) (any, error) {
	if _, dpkg := packages.AptOf(p.manager(c)); dpkg {
		return p.listDpkg(ctx, a.texts())
	}
	all, err := p.installed(ctx, c, packages.Installed)
	if err != nil {
		return nil, err
	}
	if len(a.Names) > 0 {
		some := map[string][]string{}
		for _, n := range packages.Match(all, a.texts()) {
			some[n] = all[n]
		}
		all = some
	}
	return shown(all, false), nil
}

// listDpkg names packages as dpkg does: with their architecture if several can
// be installed at once.
func (p pkg) listDpkg(ctx context.Context, names []string) (any, error) {
	for _, name := range names {
		if strings.HasPrefix(name, "-") {
			return nil, fn.Invalidf("%q is no name of a package", name)
		}
	}
	out, err := p.m.Do(ctx, "dpkg-query", append([]string{"-f=${db:Status-Status}\t${binary:Package}\t${Version}\n", "-W"}, names...)...)
	if err != nil {
		return nil, fn.Errorf("cannot run dpkg-query: %w", err)
	}
	if out.Exit != 0 {
		return "Error:  " + out.Stderr, nil
	}
	all := value.NewDict(64)
	for line := range strings.SplitSeq(out.Stdout, "\n") {
		if f := strings.Split(line, "\t"); len(f) == 3 && f[0] == "installed" {
			all.Set(f[1], f[2])
		}
	}
	return all, nil
}

func (p pkg) infoLow(ctx context.Context, c *fn.Call, a namesArgs) (*value.Dict, error) {
	apt, err := p.apt(c, "lowpkg.info")
	if err != nil {
		return nil, err
	}
	list, err := informed(ctx, apt, a)
	all := value.NewDict(len(list))
	for _, info := range list {
		d := value.NewDict(len(info))
		for _, k := range slices.Sorted(maps.Keys(info)) {
			d.Set(k, strings.TrimRight(info[k], " "))
		}
		all.Set(info["package"], d)
	}
	return all, err
}

type unpurgeArgs struct {
	Packages fn.Args `salt:"packages"`
}

func (p pkg) unpurge(ctx context.Context, c *fn.Call, a unpurgeArgs) (*value.Dict, error) {
	apt, err := p.apt(c, "lowpkg.unpurge")
	if err != nil {
		return nil, err
	}
	before, err := packages.Present(ctx, apt, packages.PurgeDesired)
	if err != nil {
		return nil, expected(err)
	}
	names := make([]string, len(a.Packages))
	for i, n := range a.Packages {
		names[i] = value.Str(n)
	}
	if err := apt.Select(ctx, names, "install"); err != nil {
		return nil, expected(err)
	}
	after, err := packages.Present(ctx, apt, packages.PurgeDesired)
	return shownChanges(packages.Difference(before, after)), expected(err)
}

type downloadedArgs struct {
	Root   string    `salt:"root" doc:"directory that is the root of the file system to look in" default:"null"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (p pkg) listDownloaded(ctx context.Context, c *fn.Call, a downloadedArgs) (*value.Dict, error) {
	apt, err := p.apt(c, "pkg.list_downloaded")
	if err != nil {
		return nil, err
	}
	found := map[string]*value.Dict{}
	top := p.m.Path(filepath.Join("/", a.Root, "/var/cache/apt"))
	err = filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".deb" {
			return nil // skip unreadable directories
		}
		info, err := e.Info()
		if err != nil {
			return nil // removed in the meantime
		}
		name, version, _, err := apt.FileInfo(ctx, path)
		if err != nil {
			return err
		}
		changed := info.ModTime()
		if found[name] == nil {
			found[name] = value.NewDict(1)
		}
		found[name].Set(version, value.DictOf("path", path, "size", info.Size(), "creation_date_time_t", changed.Unix(),
			"creation_date_time", changed.UTC().Format("2006-01-02T15:04:05")))
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		return nil, expected(err)
	}
	out := value.NewDict(len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		out.Set(name, found[name])
	}
	return out, nil
}
