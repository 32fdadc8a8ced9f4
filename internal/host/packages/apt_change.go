package packages

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"brine/internal/base/wait"
	"brine/internal/host"
)

// aptEnv makes apt and the scripts of packages non-interactive.
var aptEnv = []string{"APT_LISTBUGS_FRONTEND=none", "APT_LISTCHANGES_FRONTEND=none", "DEBIAN_FRONTEND=noninteractive", "UCF_FORCE_CONFFOLD=1"}

// change runs apt-get, and waits for the lock if another process holds it.
func (a apt) change(ctx context.Context, args ...string) error {
	c := host.Cmd{Program: "apt-get", Args: append([]string{"-q", "-y"}, args...), Env: aptEnv}
	for try := 1; ; try++ {
		out, err := perform(ctx, a.m, c)
		if err == nil || !strings.Contains(out.Stderr, "Could not get lock") || try > lockTries {
			return err
		}
		if !wait.Sleep(ctx, time.Second<<try) {
			return context.Cause(ctx)
		}
	}
}

func confArgs(o InstallOptions) []string {
	if o.NewConfig {
		return []string{"-o", "DPkg::Options::=--force-confnew"}
	}
	return []string{"-o", "DPkg::Options::=--force-confold", "-o", "DPkg::Options::=--force-confdef"}
}

func installArgs(o InstallOptions) []string {
	args := confArgs(o)
	if o.Recommends != nil && *o.Recommends {
		args = append(args, "--install-recommends")
	} else if o.Recommends != nil {
		args = append(args, "--no-install-recommends")
	}
	for _, f := range []struct {
		on   bool
		flag string
	}{{o.OnlyUpgrade, "--only-upgrade"}, {o.SkipVerify, "--allow-unauthenticated"}, {o.DownloadOnly, "--download-only"}} {
		if f.on {
			args = append(args, f.flag)
		}
	}
	if o.From != "" {
		args = append(args, "-t", o.From)
	}
	return append(args, o.Extra...)
}

// orders are the arguments for apt-get by kind, and the package names.
type orders struct{ install, downgrade, reinstall, names []string }

func (a apt) sort(ctx context.Context, targets []Target, before map[string]string, o InstallOptions) (r orders, err error) {
	var faults []error
	for _, t := range targets {
		version, err := pick(ctx, a, t, o.Options)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		word := t.Name
		switch {
		case t.File != "":
			word = t.File
		case version != "":
			word += "=" + version
		}
		r.names = append(r.names, t.Name)
		have := before[t.Name]
		switch {
		case o.Reinstall && have != "" && (version == "" || compareDebian(version, have) == 0):
			r.reinstall = append(r.reinstall, word)
		case have != "" && version != "" && compareDebian(version, have) < 0:
			r.downgrade = append(r.downgrade, word)
		default:
			r.install = append(r.install, word)
		}
	}
	return r, errors.Join(faults...)
}

func (a apt) Install(ctx context.Context, targets []Target, o InstallOptions) (Changes, error) {
	if err := checkTargets(targets); err != nil {
		return nil, err
	}
	var again []string
	changes, err := withChanges(ctx, a, func(before map[string]string) error {
		r, failed := a.sort(ctx, targets, before, o)
		again = r.names
		held, err := a.Held(ctx)
		if err != nil {
			return err
		}
		held = slices.DeleteFunc(held, func(name string) bool { return !slices.Contains(r.names, name) })
		if err := a.Hold(ctx, held, false); err != nil {
			return err
		}
		for _, step := range []struct {
			words []string
			flags []string
		}{{r.install, nil}, {r.downgrade, []string{"--allow-downgrades"}}, {r.reinstall, []string{"--reinstall"}}} {
			if len(step.words) > 0 {
				args := append(append(installArgs(o), step.flags...), "install")
				failed = errors.Join(failed, a.change(ctx, append(args, step.words...)...))
			}
		}
		return errors.Join(failed, a.Hold(ctx, held, true))
	})
	return a.reinstalled(ctx, changes, again, o, err)
}

// reinstalled adds packages that were reinstalled in the same version.
func (a apt) reinstalled(ctx context.Context, changes Changes, names []string, o InstallOptions, err error) (Changes, error) {
	if !o.Reinstall || o.DownloadOnly || err != nil {
		return changes, err
	}
	now, err := Present(ctx, a, presentStates...)
	for _, name := range names {
		if _, ok := changes[name]; !ok && now[name] != "" {
			changes[name] = Change{Old: now[name], New: now[name]}
		}
	}
	return changes, err
}

func (a apt) Remove(ctx context.Context, names []string, purge bool) (gone, left Changes, err error) {
	if err := plain(names...); err != nil {
		return nil, nil, err
	}
	rests, err := Present(ctx, a, Removed)
	if err != nil {
		return nil, nil, err
	}
	gone, failed := withChanges(ctx, a, func(before map[string]string) error {
		action, targets := "remove", Match(before, names)
		if purge {
			action = "purge"
			targets = append(targets, Match(rests, names)...)
		}
		if len(targets) == 0 {
			return nil
		}
		return a.change(ctx, append([]string{action}, targets...)...)
	})
	after, err := Present(context.WithoutCancel(ctx), a, Removed)
	if err != nil {
		return gone, nil, errors.Join(failed, err)
	}
	return gone, Difference(rests, after), failed
}

func (a apt) Upgrade(ctx context.Context, o InstallOptions) (Changes, error) {
	return withChanges(ctx, a, func(map[string]string) error {
		action := "upgrade"
		if o.Dist {
			action = "dist-upgrade"
		}
		return a.change(ctx, append(installArgs(o), action)...)
	})
}

func (a apt) AutoRemove(ctx context.Context, purge bool) (Changes, error) {
	return withChanges(ctx, a, func(map[string]string) error {
		if purge {
			return a.change(ctx, "--purge", "autoremove")
		}
		return a.change(ctx, "autoremove")
	})
}

// Unneeded returns what AutoRemove would remove, sorted.
func (a apt) Unneeded(ctx context.Context) ([]string, error) {
	out, err := a.m.Do(ctx, "apt-get", "--just-print", "autoremove")
	if err != nil {
		return nil, fmt.Errorf("cannot run apt-get: %w", err)
	}
	names := []string{}
	for line := range strings.SplitSeq(out.Stdout, "\n") {
		if f := strings.Fields(line); len(f) > 1 && (f[0] == "Remv" || f[0] == "Purg") {
			names = append(names, f[1])
		}
	}
	slices.Sort(names)
	return names, nil
}

// Selections returns dpkg's selection of each package: install, hold, deinstall
// or purge.
func (a apt) Selections(context.Context) (map[string]string, error) {
	b, err := a.m.ReadFile("/var/lib/dpkg/status")
	if err != nil {
		return nil, fmt.Errorf("cannot read the packages: %w", err)
	}
	out := map[string]string{}
	for entry := range strings.SplitSeq(strings.ToValidUTF8(string(b), "\ufffd"), "\n\n") {
		f := fields(entry)
		if words := strings.Fields(f["Status"]); len(words) == 3 && f["Package"] != "" {
			name := f["Package"]
			if arch := f["Architecture"]; a.arch == "amd64" && arch != "all" && arch != "amd64" {
				name += ":" + arch
			}
			out[name] = words[0]
		}
	}
	return out, nil
}

// fields parses an entry of a Debian control file; continued values keep their
// line ends.
func fields(entry string) map[string]string {
	out, last := map[string]string{}, ""
	for line := range strings.SplitSeq(entry, "\n") {
		if line == "" {
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			out[last] += "\n" + line
			continue
		}
		if k, v, ok := strings.Cut(line, ":"); ok {
			last = k
			out[k] = strings.TrimSpace(v)
		}
	}
	delete(out, "")
	return out
}

func (a apt) Held(ctx context.Context) ([]string, error) {
	all, err := a.Selections(ctx)
	var held []string
	for name, want := range all {
		if want == "hold" {
			held = append(held, name)
		}
	}
	slices.Sort(held)
	return held, err
}

func (a apt) Hold(ctx context.Context, names []string, hold bool) error {
	want := "install"
	if hold {
		want = "hold"
	}
	return a.Select(ctx, names, want)
}

// Select sets dpkg's selection of packages: install, hold, deinstall or purge.
func (a apt) Select(ctx context.Context, names []string, want string) error {
	if len(names) == 0 {
		return nil
	}
	if err := plain(names...); err != nil {
		return err
	}
	var in strings.Builder
	for _, name := range names {
		fmt.Fprintf(&in, "%s %s\n", name, want)
	}
	_, err := perform(ctx, a.m, host.Cmd{Program: "dpkg", Args: []string{"--set-selections"}, Stdin: in.String()})
	return err
}

// ClearSelections sets "deinstall" for all packages that are not essential.
func (a apt) ClearSelections(ctx context.Context) error {
	_, err := perform(ctx, a.m, host.Cmd{Program: "dpkg", Args: []string{"--clear-selections"}})
	return err
}

func (a apt) Files(ctx context.Context, names []string) (map[string][]string, error) {
	if err := plain(names...); err != nil {
		return nil, err
	}
	out, err := perform(ctx, a.m, host.Cmd{Program: "dpkg-query", Args: append([]string{"-f=${db:Status-Status}\t${binary:Package}\n", "-W"}, names...)})
	if err != nil {
		return nil, err
	}
	files := map[string][]string{}
	for line := range strings.SplitSeq(out.Stdout, "\n") {
		state, name, _ := strings.Cut(line, "\t")
		if state != "installed" {
			continue
		}
		list, err := ask(ctx, a.m, "dpkg-query", "-L", name)
		if err != nil {
			return nil, err
		}
		files[name] = strings.Split(list, "\n")
	}
	return files, nil
}

func (a apt) Versions(ctx context.Context, name string, _ Options) ([]string, error) {
	all, err := a.Available(ctx, []string{name})
	return all[name], err
}

// Available returns the available versions of packages, newest first; of all
// packages if none is named.
func (a apt) Available(ctx context.Context, names []string) (map[string][]string, error) {
	if err := plain(names...); err != nil {
		return nil, err
	}
	args := []string{"dump"}
	if len(names) > 0 {
		args = append([]string{"show"}, names...)
	}
	out, err := a.m.Do(ctx, "apt-cache", args...) // apt-cache fails if one name is unknown
	if err != nil {
		return nil, fmt.Errorf("cannot run apt-cache: %w", err)
	}
	found, current := map[string][]string{}, ""
	for line := range strings.SplitSeq(out.Stdout, "\n") {
		if name, ok := strings.CutPrefix(line, "Package: "); ok {
			current = name
		} else if v, ok := strings.CutPrefix(strings.TrimSpace(line), "Version: "); ok && current != "" && !slices.Contains(found[current], v) {
			found[current] = append(found[current], v)
		}
	}
	for _, versions := range found {
		slices.SortStableFunc(versions, func(x, y string) int { return compareDebian(y, x) })
	}
	return found, nil
}

// Show returns the entries of apt's lists for packages, each with its fields.
func (a apt) Show(ctx context.Context, names []string) ([]map[string]string, error) {
	if err := plain(names...); err != nil {
		return nil, err
	}
	out, err := a.m.Do(ctx, "apt-cache", append([]string{"show"}, names...)...)
	if err != nil {
		return nil, fmt.Errorf("cannot run apt-cache: %w", err)
	}
	var all []map[string]string
	for entry := range strings.SplitSeq(out.Stdout, "\n\n") {
		if f := fields(entry); len(f) > 0 {
			all = append(all, f)
		}
	}
	return all, nil
}

// FileReader is a package manager that can read package files.
type FileReader interface {
	// FileInfo returns the name, version and architecture of the package in a
	// file, given by its full path.
	FileInfo(ctx context.Context, path string) (name, version, arch string, err error)
}

var (
	_ FileReader = apt{}
	_ FileReader = rpm{}
)

// FileInfo returns the name, version and architecture of a package in a file.
func (a apt) FileInfo(ctx context.Context, path string) (name, version, arch string, err error) {
	if !strings.HasPrefix(path, "/") {
		return "", "", "", fmt.Errorf("%s is not a full path", path)
	}
	out, err := ask(ctx, a.m, "dpkg-deb", "-f", path, "Package", "Version", "Architecture")
	if err != nil {
		return "", "", "", err
	}
	f := fields(out)
	if f["Package"] == "" || f["Version"] == "" {
		return "", "", "", fmt.Errorf("%s is no package", path)
	}
	return f["Package"], f["Version"], f["Architecture"], nil
}
