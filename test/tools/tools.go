// Package tools has the tests ask for what the machine may lack. The script
// install beside it fetches all of it from Debian's packages.
package tools

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Required tells whether a lacking tool is a fault, as in CI, and no reason to
// skip: BRINE_REQUIRE_TOOLS is 1.
func Required() bool { return os.Getenv("BRINE_REQUIRE_TOOLS") == "1" }

// Find returns the path of the first program that is there, each a name of
// PATH or a pattern of paths, of which the last match counts (the newest of
// several versions); "" if none is.
func Find(programs ...string) string {
	for _, p := range programs {
		if found, _ := filepath.Glob(p); len(found) > 0 {
			return found[len(found)-1]
		}
		if found, err := exec.LookPath(p); err == nil {
			return found
		}
		if found, err := exec.LookPath("/usr/sbin/" + p); err == nil { // not on everybody's PATH
			return found
		}
	}
	return ""
}

// Need is Find for a test that cannot do without the program of a Debian
// package.
func Need(t testing.TB, pkg string, programs ...string) string {
	t.Helper()
	p := Find(programs...)
	if p == "" {
		Missing(t, pkg)
	}
	return p
}

// NeedPython returns the Python of the machine, which must have the modules
// (as in "zmq, yaml") of Debian packages.
func NeedPython(t testing.TB, pkg, modules string) string {
	t.Helper()
	const python = "/usr/bin/python3"
	if exec.Command(python, "-c", "import "+modules).Run() != nil {
		Missing(t, pkg)
	}
	return python
}

// Missing skips the test for want of Debian packages, or fails it where they
// are required.
func Missing(t testing.TB, pkg string) {
	t.Helper()
	Without(t, "it needs Debian's "+pkg+" (test/tools/install gets it)")
}

// Without skips the test for a reason that a machine for CI must not have, or
// fails it there.
func Without(t testing.TB, why string) {
	t.Helper()
	if Required() {
		t.Fatal(why)
	}
	t.Skip(why)
}
