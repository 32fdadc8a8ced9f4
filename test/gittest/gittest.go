// Package gittest creates git repositories for tests with the program git. If git is missing the
// test is skipped, or fails if tools are required.
package gittest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/test/tools"
)

// A git hook sets GIT_DIR and other variables, which would make git commands of tests use the
// repository of the hook.
func init() {
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "GIT_") {
			os.Unsetenv(name)
		}
	}
}

// Run runs git in a directory and returns what it printed. No user
// configuration is used, and author and time of commits are always the same, so that equal
// files make equal commits.
func Run(t testing.TB, dir string, args ...string) string {
	t.Helper()
	return Feed(t, dir, "", args...)
}

// Feed is Run with an input.
func Feed(t testing.TB, dir, input string, args ...string) string {
	t.Helper()
	c := exec.Command(tools.Need(t, "git", "git"), args...)
	c.Dir = dir
	c.Stdin = strings.NewReader(input)
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a",
		"GIT_COMMITTER_EMAIL=a@b",
		"GIT_AUTHOR_DATE=2024-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2024-01-01T00:00:00Z")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Write writes files below a directory.
func Write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
