// Package tools finds programs that tests need and a machine may lack. The script install beside it
// installs all of them from Debian packages.
package tools

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Required reports whether a missing tool is a failure, as in CI, instead of a reason to skip:
// BRINE_REQUIRE_TOOLS is 1.
func Required() bool { return os.Getenv("BRINE_REQUIRE_TOOLS") == "1" }

// Find returns the path of the first existing program, "" if there is none. Each argument is a name
// in PATH or a pattern of paths, whose last match is used (the newest of several versions).
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

// Need is Find for a test that requires the program of a Debian package.
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

// Slow skips a test that takes much of the time of `make test`, which sets -short; `make test-all`
// runs it.
func Slow(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it is slow: without -short, as in make test-all, it runs")
	}
}

// Missing skips the test because Debian packages are missing, or fails it if they are required.
func Missing(t testing.TB, pkg string) {
	t.Helper()
	Without(t, "it needs Debian's "+pkg+" (test/tools/install gets it)")
}

// NeedAccount skips the test if the current user has no name, which the program requires.
func NeedAccount(t testing.TB, program string) {
	t.Helper()
	if _, err := user.LookupId(strconv.Itoa(os.Getuid())); err != nil {
		Without(t, fmt.Sprintf("%s needs the name of the user that runs it: %v", program, err))
	}
}

// Without skips the test for a reason that must not occur in CI, or fails it there.
func Without(t testing.TB, why string) {
	t.Helper()
	if Required() {
		t.Fatal(why)
	}
	t.Skip(why)
}

// StockTests matches the names of the tests that need stock Salt; `make interop` uses it.
const StockTests = "Stock|Salt|(Is|Are)True"

var stockTest = regexp.MustCompile(StockTests)

// StockSalt returns the source tree of stock Salt 3007 from BRINE_STOCK_SALT, and the Python that
// runs it: BRINE_STOCK_PYTHON, by default /usr/bin/python3. Without a tree it skips the test.
func StockSalt(t testing.TB) (tree, python string) {
	t.Helper()
	if name, _, _ := strings.Cut(t.Name(), "/"); strings.HasPrefix(name, "Test") && !stockTest.MatchString(name) && !isInterop() {
		t.Fatalf("make interop does not run %s: give it a name that matches %s", name, StockTests)
	}
	if tree = os.Getenv("BRINE_STOCK_SALT"); tree == "" {
		t.Skip("BRINE_STOCK_SALT does not name a source tree of Salt 3007")
	}
	if python = os.Getenv("BRINE_STOCK_PYTHON"); python == "" {
		python = "/usr/bin/python3"
	}
	if _, err := os.Stat(filepath.Join(tree, "salt", "ext", "tornado")); err == nil {
		// Salt 3006 has a Tornado of its own. Beside another one, its minion waits a minute for the
		// reply to its first request.
		return tree, python
	}
	return tree, withQueues(t, python)
}

// withQueues returns a program that runs Python with tornado.queues imported.
// Salt 3007 uses that module without importing it, which works with tornado
// 6.3 and later, but not with the one of Debian 12.
func withQueues(t testing.TB, python string) string {
	t.Helper()
	if exec.Command(python, "-c", "import tornado\ntornado.queues").Run() == nil {
		return python
	}
	// Salt's child processes inherit the path, including those of other users and with another
	// Python, such as in a virtual environment.
	dir, err := os.MkdirTemp("", "brine-python-")
	if err == nil {
		t.Cleanup(func() { os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	wrapper := filepath.Join(dir, "python")
	for name, text := range map[string]string{
		filepath.Join(dir, "sitecustomize.py"): "try:\n    import tornado.queues\nexcept ImportError:\n    pass\n",
		wrapper:                                "#!/bin/sh\nPYTHONPATH=\"${PYTHONPATH:+$PYTHONPATH:}" + dir + "\" exec " + python + " \"$@\"\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return wrapper
}

// isInterop reports whether this is test/interop, which make interop runs as a
// whole.
func isInterop() bool {
	dir, err := os.Getwd()
	return err == nil && filepath.Base(dir) == "interop"
}
