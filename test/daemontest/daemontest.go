// Package daemontest runs real daemons for tests: Brine's binary, built once for all packages of
// tests, and stock Salt's programs where the environment says where they are. Every daemon is a
// process with its own directory as root_dir, and usually its own loopback address.
//
//	BRINE_STOCK_SALT    source tree of Salt 3007; without it the tests that
//	                    need stock Salt skip
//	BRINE_STOCK_PYTHON  its interpreter, default /usr/bin/python3
package daemontest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"brine/test/eventually"
	"brine/test/tools"
)

// binary is the path of the program, set by Main.
var binary string

// Main builds the binary and runs the tests of a package; it is for TestMain.
func Main(m *testing.M) {
	// The shell and the language of the user who runs the tests would change outputs.
	os.Setenv("SHELL", "/bin/bash")
	os.Setenv("LANG", "C.UTF-8")
	os.Unsetenv("LC_ALL")
	dir, err := os.MkdirTemp("", "brine-test-")
	if err != nil {
		panic(err)
	}
	if binary, err = tools.Binary(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.RemoveAll(dir)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// Kind is the implementation of a program.
type Kind string

// The kinds.
const (
	Brine Kind = "brine"
	Stock Kind = "stock"
	// Hub is brine-hub, which is built when a test first uses it.
	Hub Kind = "hub"
)

// hubBinary is the path of brine-hub.
var hubBinary = sync.OnceValues(func() (string, error) { return tools.Program(filepath.Dir(binary), "brine-hub") })

// StockTree returns the source tree of stock Salt or skips the test.
func StockTree(t testing.TB) string {
	t.Helper()
	tree, _ := tools.StockSalt(t)
	return tree
}

// Command prepares one of the programs, such as salt-key.
func (k Kind) Command(ctx context.Context, t testing.TB, program string, args ...string) *exec.Cmd {
	t.Helper()
	if k == Hub {
		path, err := hubBinary()
		if err != nil {
			t.Fatal(err)
		}
		return exec.CommandContext(ctx, path, args...)
	}
	if k == Brine {
		return exec.CommandContext(ctx, binary, append([]string{program}, args...)...)
	}
	tree, python := tools.StockSalt(t)
	c := exec.CommandContext(ctx, python, append([]string{"-W", "ignore", filepath.Join(tree, "scripts", program)}, args...)...)
	c.Env = append(os.Environ(), "PYTHONPATH="+tree)
	return c
}

// ShortDir returns a directory whose path is short enough for sockets in it. It is removed when the
// test ends.
func ShortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Shared returns the paths of a new directory that n masters share, one for each. BRINE_SHARE names directories, separated by colons, at
// which a file system of several machines, such as GlusterFS or NFS, is mounted more than once: each master then uses a mount of its own in
// turn, with its caches. Without it there is one local directory.
func Shared(t testing.TB, n int) []string {
	t.Helper()
	mounts := filepath.SplitList(os.Getenv("BRINE_SHARE"))
	if len(mounts) == 0 {
		return slices.Repeat([]string{ShortDir(t)}, n)
	}
	dir, err := os.MkdirTemp(mounts[0], "bri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	var out []string
	for i := range n {
		path := filepath.Join(mounts[i%len(mounts)], filepath.Base(dir))
		eventually.Nil(t, time.Minute, "the directory is at "+path, func() error { _, err := os.Stat(path); return err })
		out = append(out, path)
	}
	return out
}

var hosts atomic.Int32

// Host returns a loopback address that no other test uses. It depends on the process, too, so that
// concurrent test runs do not conflict.
func Host() string {
	pid, n := os.Getpid(), int(hosts.Add(1))
	return fmt.Sprintf("127.%d.%d.%d", 64+pid>>8&0x3f, pid&0xff, 1+n%250)
}
