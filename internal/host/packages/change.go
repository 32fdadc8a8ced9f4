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
	// Version is the wanted one in full, possibly after "=", or a condition
	// such as ">=1.2"; "" is the newest.
	Version string
	// File is the package itself, in place of a repository.
	File string
}

// InstallOptions say how to install. The zero value is what most want.
type InstallOptions struct {
	Options
	// Reinstall installs what is there in this version again.
	Reinstall bool
	// DownloadOnly fetches packages and changes nothing.
	DownloadOnly bool
	// SkipVerify does without signatures.
	SkipVerify bool
	// OnlyUpgrade leaves out what is not installed, with apt.
	OnlyUpgrade bool
	// NewConfig replaces changed configuration files, with apt.
	NewConfig bool
	// Recommends says whether to install recommended packages, nil for what
	// the system's configuration says, with apt.
	Recommends *bool
	// Extra are further options of the program.
	Extra []string
}

// Change is what happened to a package. An empty text is a package that is not
// there; several versions are separated by commas.
type Change struct{ Old, New string }

// Changes are changes by name.
type Changes map[string]Change

// Changer changes what is installed. Each function reports what changed even
// if it failed in the middle.
type Changer interface {
	// Install installs packages, or upgrades and downgrades them.
	Install(ctx context.Context, targets []Target, o InstallOptions) (Changes, error)
	// Remove removes installed packages, with purge their configuration too.
	// left are packages of which only the configuration was there.
	Remove(ctx context.Context, names []string, purge bool) (gone, left Changes, err error)
	// Upgrade installs the newest versions of all.
	Upgrade(ctx context.Context, o InstallOptions) (Changes, error)
	// AutoRemove removes what was installed for the sake of others alone.
	AutoRemove(ctx context.Context, purge bool) (Changes, error)
	// Held returns the packages that keep their version.
	Held(ctx context.Context) ([]string, error)
	// Hold makes packages keep their version, or not.
	Hold(ctx context.Context, names []string, hold bool) error
	// Files returns the files of installed packages by package.
	Files(ctx context.Context, names []string) (map[string][]string, error)
	// Versions returns the versions that a package can be had in, newest first.
	Versions(ctx context.Context, name string, o Options) ([]string, error)
}

var (
	_ Changer = apt{}
	_ Changer = rpm{}
	_ Changer = apk{}
)

// Present returns the versions of packages by name, several separated by
// commas, of those in one of the states.
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

// Difference returns what differs between two results of Present.
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

// whileLooking runs do between two looks at what is installed.
func whileLooking(ctx context.Context, m Manager, do func(before map[string]string) error) (Changes, error) {
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

// satisfies reports whether a version fulfils a condition: an operator and a
// version, a version with or without "=", or a pattern with stars.
func satisfies(ctx context.Context, m Manager, version, condition string) (bool, error) {
	op, want := operator(condition)
	if op == "=" {
		return version == want || strings.Contains(want, "*") && wildcard(want, version), nil
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

// operator takes a condition apart.
func operator(condition string) (op, version string) {
	for _, op := range []string{">=", "<=", "==", ">", "<", "="} {
		if v, ok := strings.CutPrefix(condition, op); ok {
			if op == "==" {
				op = "="
			}
			return op, strings.TrimSpace(v)
		}
	}
	return "=", condition
}

// wildcard matches a text with a pattern in which stars stand for anything.
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

// Match returns the names that are in a set, or match by a pattern with stars,
// sorted.
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

// pick turns a condition into the newest version that fulfils it; "" stays.
func pick(ctx context.Context, m interface {
	Manager
	Changer
}, t Target, o Options) (string, error) {
	op, version := operator(t.Version)
	if t.Version == "" || op == "=" && !strings.Contains(version, "*") {
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

// checkTargets refuses names, versions and files that a program would take
// for options.
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
			return fmt.Errorf("%q is no version", t.Version)
		}
	}
	return nil
}

// perform runs a program that changes something; what it complains about is
// the error.
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
