// Package packages lists installed and available software, and installs and
// removes it, with the package managers of Debian (dpkg, apt), Red Hat (rpm, dnf
// or yum) and Alpine (apk).
package packages

import (
	"context"
	"fmt"
	"strings"

	"brine/internal/host"
)

// State is the desired and current state of a package.
type State int

const (
	// Installed packages are installed, possibly selected for removal.
	Installed State = iota
	// Removed packages left their configuration behind.
	Removed
	// PurgeDesired packages are installed and selected for purging.
	PurgeDesired
)

// Package is one version of a package.
type Package struct {
	Name    string // with ":i386" or ".i686" if it is for another architecture
	Version string // the full version: "1:2.3-4"
	State   State
}

// Options restrict the available packages. Each field may be empty.
type Options struct {
	// From is the only repository, or for apt the release that is preferred.
	From string
	// Enable and Disable are repositories to enable or to disable; Red Hat only.
	Enable, Disable []string
	// Dist permits upgrades that add or remove other packages; apt only.
	Dist bool
}

// Manager is a package manager.
type Manager interface {
	// List returns the installed packages, in any order.
	List(ctx context.Context) ([]Package, error)
	// Candidates returns the installable versions by name; for Alpine and Red Hat
	// only those newer than the installed ones. Alternatives of a name, such as
	// "libc6:i386", may be among them.
	Candidates(ctx context.Context, names []string, o Options) (map[string]string, error)
	// Upgrades returns the versions that an upgrade of all would install.
	Upgrades(ctx context.Context, o Options) (map[string]string, error)
	// Refresh updates the package lists.
	Refresh(ctx context.Context, o Options) ([]Source, error)
	// Owner returns the name of the package that owns a file, or "".
	Owner(ctx context.Context, path string) (string, error)
	// Compare orders two versions.
	Compare(ctx context.Context, a, b string) (int, error)
}

// Source is a package list checked by Refresh.
type Source struct {
	Name    string
	Fetched bool // downloaded again
	Failed  bool
}

// For returns the manager of a machine by its OS family, "Debian", "RedHat" or
// "Alpine", and the system's name of its architecture. It is nil for any other
// family.
func For(m *host.Machine, family, arch string) Manager {
	switch family {
	case "Debian":
		return apt{m, arch}
	case "RedHat":
		return rpm{m, arch}
	case "Alpine":
		return apk{m}
	}
	return nil
}

// plain rejects names that a program would parse as options.
func plain(names ...string) error {
	for _, n := range names {
		if n == "" || n[0] == '-' || strings.ContainsAny(n, "\x00\n") {
			return fmt.Errorf("%q is not a package name", n)
		}
	}
	return nil
}

// ask runs a program that must succeed, and returns its stdout.
func ask(ctx context.Context, m *host.Machine, program string, args ...string) (string, error) {
	out, err := m.Do(ctx, program, args...)
	if err != nil {
		return "", fmt.Errorf("cannot run %s: %w", program, err)
	}
	if out.Exit != 0 {
		text := out.Stderr
		if text == "" {
			text = out.Stdout
		}
		return "", fmt.Errorf("%s failed: %s", program, text)
	}
	return out.Stdout, nil
}
