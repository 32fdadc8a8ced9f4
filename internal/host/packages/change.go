package packages

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"brine/internal/host"
)

// Target is a package to install.
type Target struct {
	Name string
	// Version is the full version, possibly after "=", or a condition such as
	// ">=1.2"; "" is the newest.
	Version string
	// File is a package file, used instead of a repository.
	File string
}

// InstallOptions are the options of Install.
type InstallOptions struct {
	Options
	// Reinstall reinstalls packages that have this version.
	Reinstall bool
	// DownloadOnly fetches packages and changes nothing.
	DownloadOnly bool
	// SkipVerify does not verify signatures.
	SkipVerify bool
	// OnlyUpgrade skips packages that are not installed, with apt.
	OnlyUpgrade bool
	// NewConfig replaces changed configuration files, with apt.
	NewConfig bool
	// Recommends decides whether to install recommended packages, nil for the
	// system's configuration; apt only.
	Recommends *bool
	// Extra are further options of the program.
	Extra []string
}

// Change is the change of a package. An empty string means not installed;
// several versions are separated by commas.
type Change struct{ Old, New string }

// Changes maps package names to changes.
type Changes map[string]Change

// Changer installs and removes packages. Each function reports the changes even
// if it fails.
type Changer interface {
	// Install installs packages, or upgrades and downgrades them.
	Install(ctx context.Context, targets []Target, o InstallOptions) (Changes, error)
	// Remove removes installed packages and, with purge, their configuration.
	// left are packages of which only the configuration was left.
	Remove(ctx context.Context, names []string, purge bool) (gone, left Changes, err error)
	// Upgrade installs the newest versions of all.
	Upgrade(ctx context.Context, o InstallOptions) (Changes, error)
	// AutoRemove removes dependencies that are no longer needed.
	AutoRemove(ctx context.Context, purge bool) (Changes, error)
	// Held returns the packages that keep their version.
	Held(ctx context.Context) ([]string, error)
	// Hold holds packages at their version, or releases them.
	Hold(ctx context.Context, names []string, hold bool) error
	// Files returns the files of installed packages by package.
	Files(ctx context.Context, names []string) (map[string][]string, error)
	// Versions returns the available versions of a package, newest first.
	Versions(ctx context.Context, name string, o Options) ([]string, error)
}

var (
	_ Changer = apt{}
	_ Changer = rpm{}
	_ Changer = apk{}
)

// Present returns the versions of the packages in one of the states by name,
// several separated by commas.
func Present(ctx context.Context, m Manager, states ...State) (map[string]string, error) {
	list, err := m.List(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for _, p := range list {
		if slices.Contains(states, p.State) && !slices.Contains(all[p.Name], p.Version) {
			all[p.Name] = append(all[p.Name], p.Version)
		}
	}
	out := make(map[string]string, len(all))
	for name, versions := range all {
		slices.Sort(versions)
		out[name] = strings.Join(versions, ",")
	}
	return out, nil
}

// Difference returns the changes between two results of Present.
func Difference(before, after map[string]string) Changes {
	c := Changes{}
	for name, v := range before {
		if after[name] != v {
			c[name] = Change{Old: v, New: after[name]}
		}
	}
	for name, v := range after {
		if _, ok := before[name]; !ok {
			c[name] = Change{New: v}
		}
	}
	return c
}

// withChanges runs do and returns the changes of installed packages.
func withChanges(ctx context.Context, m Manager, do func(before map[string]string) error) (Changes, error) {
	before, err := Present(ctx, m, presentStates...)
	if err != nil {
		return nil, err
	}
	failed := do(before)
	after, err := Present(context.WithoutCancel(ctx), m, presentStates...)
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	return Difference(before, after), failed
}

// presentStates are the states in which a package counts as installed.
var presentStates = []State{Installed, PurgeDesired}

// satisfies reports whether a version matches all conditions, which are separated by
// commas: an operator and a version, a version with or without "=", or a pattern with *.
func satisfies(ctx context.Context, m Manager, version, conditions string) (bool, error) {
	for c := range strings.SplitSeq(conditions, ",") {
		if ok, err := satisfiesOne(ctx, m, version, strings.TrimSpace(c)); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func satisfiesOne(ctx context.Context, m Manager, version, condition string) (bool, error) {
	op, want := operator(condition)
	if op == "=" || op == "!=" {
		same := version == want || strings.Contains(want, "*") && wildcard(want, version)
		return same == (op == "="), nil
	}
	c, err := m.Compare(ctx, version, want)
	switch op {
	case ">=":
		return c >= 0, err
	case "<=":
		return c <= 0, err
	case ">":
		return c > 0, err
	}
	return c < 0, err
}

// operator splits a condition.
func operator(condition string) (op, version string) {
	for _, op := range []string{">=", "<=", "==", "!=", ">", "<", "="} {
		if v, ok := strings.CutPrefix(condition, op); ok {
			if op == "==" {
				op = "="
			}
			return op, strings.TrimSpace(v)
		}
	}
	return "=", condition
}

// wildcard matches a string with a pattern in which * matches anything.
func wildcard(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	rest, ok := strings.CutPrefix(text, parts[0])
	for i, p := range parts[1:] {
		if i == len(parts)-2 {
			return ok && strings.HasSuffix(rest, p)
		}
		_, after, found := strings.Cut(rest, p)
		rest, ok = after, ok && found
	}
	return ok && rest == ""
}

// Match returns the sorted names that are in a set or match a pattern with *.
func Match[V any](set map[string]V, names []string) []string {
	out := map[string]bool{}
	for _, name := range names {
		if !strings.Contains(name, "*") {
			if _, ok := set[name]; ok {
				out[name] = true
			}
			continue
		}
		for have := range set {
			if wildcard(name, have) {
				out[have] = true
			}
		}
	}
	return sorted(out)
}

func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

// pick returns the newest version that matches a condition; "" for "".
func pick(ctx context.Context, m interface {
	Manager
	Changer
}, t Target, o Options) (string, error) {
	op, version := operator(t.Version)
	if t.Version == "" || op == "=" && !strings.ContainsAny(version, "*,") {
		return version, nil
	}
	available, err := m.Versions(ctx, t.Name, o)
	if err != nil {
		return "", err
	}
	for _, v := range available {
		if ok, err := satisfies(ctx, m, v, t.Version); ok || err != nil {
			return v, err
		}
	}
	if len(available) == 0 {
		available = []string{"none"}
	}
	return "", fmt.Errorf("no version matching '%s%s' could be found (available: %s)", t.Name, t.Version, strings.Join(available, ", "))
}

// checkTargets rejects names, versions and files that a program would parse as
// options.
func checkTargets(targets []Target) error {
	for _, t := range targets {
		word := t.Name
		if t.File != "" {
			word = t.File
			if !strings.HasPrefix(word, "/") {
				return fmt.Errorf("the file %q of package %s needs a full path", word, t.Name)
			}
		}
		if err := plain(word); err != nil {
			return err
		}
		if strings.ContainsAny(t.Version, "\x00\n") {
			return fmt.Errorf("%q is not a version", t.Version)
		}
	}
	return nil
}

// perform runs a program that changes something; its stderr is the error.
func perform(ctx context.Context, m *host.Machine, c host.Cmd) (host.Output, error) {
	out, err := m.Command(ctx, c)
	if err != nil {
		return out, fmt.Errorf("cannot run %s: %w", c.Program, err)
	}
	if out.Exit != 0 {
		text := out.Stderr
		if text == "" {
			text = out.Stdout
		}
		return out, fmt.Errorf("%s", text)
	}
	return out, nil
}
