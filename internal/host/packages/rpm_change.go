package packages

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"brine/internal/host"
)

// change runs dnf or yum.
func (r rpm) change(ctx context.Context, args ...string) error {
	program, err := r.program()
	if err != nil {
		return err
	}
	_, err = perform(ctx, r.m, host.Cmd{Program: program, Args: append([]string{"-y"}, args...)})
	return err
}

func (r rpm) installArgs(o InstallOptions) []string {
	args := repositories(o.Options)
	if program, err := r.program(); err == nil && strings.HasPrefix(program, "dnf") {
		args = append([]string{"--best", "--allowerasing"}, args...)
	}
	if o.SkipVerify {
		args = append(args, "--nogpgcheck")
	}
	if o.DownloadOnly {
		args = append(args, "--downloadonly")
	}
	return append(args, o.Extra...)
}

// word returns dnf's notation of a version: name-version-release.arch, with the
// epoch before the name's version.
func (r rpm) word(t Target, version string) string {
	if t.File != "" {
		return t.File
	}
	if version == "" {
		return t.Name
	}
	name, arch := t.Name, ""
	if i := strings.LastIndexByte(name, '.'); i > 0 && knownArch(name[i+1:]) {
		name, arch = name[:i], name[i:]
	}
	return name + "-" + version + arch
}

func knownArch(s string) bool {
	return slices.Contains(arches32, s) || slices.Contains(arches32a, s) ||
		slices.Contains([]string{"x86_64", "aarch64", "ppc64le", "s390x", "noarch", "src"}, s)
}

func (r rpm) Install(ctx context.Context, targets []Target, o InstallOptions) (Changes, error) {
	if err := checkTargets(targets); err != nil {
		return nil, err
	}
	var same []string
	changes, err := withChanges(ctx, r, func(before map[string]string) error {
		var install, downgrade, again []string
		var failed error
		for _, t := range targets {
			version, err := pick(ctx, r, t, o.Options)
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			have := before[t.Name]
			switch word := r.word(t, version); {
			case o.Reinstall && have != "" && (version == "" || compareRPM(version, have) == 0):
				again = append(again, word)
				same = append(same, t.Name)
			case have != "" && version != "" && !strings.Contains(have, ",") && compareRPM(version, have) < 0:
				downgrade = append(downgrade, word)
			default:
				install = append(install, word)
			}
		}
		for _, step := range []struct {
			action string
			words  []string
		}{{"install", install}, {"downgrade", downgrade}, {"reinstall", again}} {
			if len(step.words) > 0 {
				failed = errors.Join(failed, r.change(ctx, append(append(r.installArgs(o), step.action), step.words...)...))
			}
		}
		return failed
	})
	if err == nil && len(same) > 0 && !o.DownloadOnly {
		now, err := Present(ctx, r, presentStates...)
		if err != nil {
			return changes, err
		}
		for _, name := range same {
			if _, ok := changes[name]; !ok {
				changes[name] = Change{Old: now[name], New: now[name]}
			}
		}
	}
	return changes, err
}

// Remove ignores purge: rpm leaves no configuration.
func (r rpm) Remove(ctx context.Context, names []string, _ bool) (gone, left Changes, err error) {
	if err := plain(names...); err != nil {
		return nil, nil, err
	}
	gone, err = withChanges(ctx, r, func(before map[string]string) error {
		targets := Match(before, names)
		if len(targets) == 0 {
			return nil
		}
		return r.change(ctx, append([]string{"remove"}, targets...)...)
	})
	return gone, Changes{}, err
}

func (r rpm) Upgrade(ctx context.Context, o InstallOptions) (Changes, error) {
	return withChanges(ctx, r, func(map[string]string) error {
		return r.change(ctx, append(repositories(o.Options), append(o.Extra, "upgrade")...)...)
	})
}

func (r rpm) AutoRemove(ctx context.Context, _ bool) (Changes, error) {
	return withChanges(ctx, r, func(map[string]string) error { return r.change(ctx, "autoremove") })
}

// Held reads the list of dnf's plugin versionlock, whose lines are patterns
// such as "bash-0:5.1.8-6.el9.*".
func (r rpm) Held(ctx context.Context) ([]string, error) {
	program, err := r.program()
	if err != nil {
		return nil, err
	}
	out, exit, err := r.m.Run(ctx, program, "--quiet", "versionlock", "list")
	if err != nil {
		return nil, fmt.Errorf("cannot run %s: %w", program, err)
	}
	if exit != 0 {
		return nil, errors.New("packages can be held only with the plugin versionlock of dnf or yum, which is not installed")
	}
	var held []string
	for line := range strings.SplitSeq(out, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "!") {
			continue
		}
		if name := lockedName(line); name != "" {
			held = append(held, name)
		}
	}
	slices.Sort(held)
	return slices.Compact(held), nil
}

// lockedName splits name-epoch:version-release.arch, or the older
// epoch:name-version-release.arch.
func lockedName(line string) string {
	if head, rest, ok := strings.Cut(line, ":"); ok && strings.Trim(head, "0123456789") == "" {
		line = rest
	}
	for range 2 {
		i := strings.LastIndexByte(line, '-')
		if i <= 0 {
			return ""
		}
		line = line[:i]
	}
	return line
}

func (r rpm) Hold(ctx context.Context, names []string, hold bool) error {
	if len(names) == 0 {
		return nil
	}
	if err := plain(names...); err != nil {
		return err
	}
	action := "delete"
	if hold {
		action = "add"
	}
	return r.change(ctx, append([]string{"versionlock", action}, names...)...)
}

func (r rpm) Files(ctx context.Context, names []string) (map[string][]string, error) {
	if err := plain(names...); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		all, err := Present(ctx, r, presentStates...)
		if err != nil {
			return nil, err
		}
		for name := range all {
			names = append(names, name)
		}
	}
	files := map[string][]string{}
	for _, name := range names {
		out, exit, err := r.m.Run(ctx, "rpm", "-ql", "--", name)
		if err != nil {
			return nil, fmt.Errorf("cannot run rpm: %w", err)
		}
		if exit == 0 {
			files[name] = strings.Split(out, "\n")
		}
	}
	return files, nil
}

func (r rpm) Versions(ctx context.Context, name string, o Options) ([]string, error) {
	if err := plain(name); err != nil {
		return nil, err
	}
	program, err := r.program()
	if err != nil {
		return nil, err
	}
	args := append(append([]string{"--quiet"}, repositories(o)...), "--showduplicates", "list", name)
	out, exit, err := r.m.Run(ctx, program, args...)
	if err != nil {
		return nil, fmt.Errorf("cannot run %s: %w", program, err)
	}
	if exit != 0 {
		return nil, nil
	}
	var versions []string
	for _, p := range r.table(out) {
		if p.Name == name && !slices.Contains(versions, p.Version) {
			versions = append(versions, p.Version)
		}
	}
	slices.SortFunc(versions, func(a, b string) int { return compareRPM(b, a) })
	return versions, nil
}
