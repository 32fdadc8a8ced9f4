package packages

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"brine/internal/host"
)

// Alternatives manages links such as /usr/bin/editor, each to one of several
// programs.
type Alternatives struct {
	Machine *host.Machine
	// Program is update-alternatives, or alternatives on Red Hat.
	Program string
}

// Run runs the program and returns its stdout, and its stderr if it failed.
func (a Alternatives) Run(ctx context.Context, args ...string) (said string, ok bool, err error) {
	for i, w := range args[1:] {
		if _, err := strconv.Atoi(w); err == nil && i == 3 {
			continue // a priority, which may be negative
		}
		if w == "" || w[0] == '-' {
			return "", false, fmt.Errorf("%q is not a name, path or number", w)
		}
	}
	out, err := a.Machine.Do(ctx, a.Program, args...)
	if err != nil {
		return "", false, fmt.Errorf("cannot run %s: %w", a.Program, err)
	}
	if out.Exit != 0 && out.Stderr != "" {
		return out.Stderr, false, nil
	}
	return out.Stdout, out.Exit == 0, nil
}

// Current returns the target of a name, or "".
func (a Alternatives) Current(name string) string {
	if name == "" || strings.Contains(name, "/") {
		return ""
	}
	path, err := os.Readlink(a.Machine.Path("/etc/alternatives/" + name))
	if err != nil {
		return ""
	}
	return path
}
