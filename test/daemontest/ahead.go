package daemontest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Ahead builds the program with a clock that is five minutes ahead, and returns the command that
// runs it instead of the usual one (Node.Within). This compiles everything again with a modified
// time.Now, so the test is skipped unless BRINE_CLOCK is set.
func Ahead(t testing.TB) []string {
	t.Helper()
	return Off(t, 5*time.Minute)
}

// Off is Ahead with another clock difference.
func Off(t testing.TB, by time.Duration) []string {
	t.Helper()
	return otherClock(t, fmt.Sprintf("\tsec += %d\n", int64(by/time.Second)), "", "")
}

// Jumping is Ahead with a clock that is right until jump(true) sets it five minutes ahead, and
// right again after jump(false). The times of files are always those of the kernel.
func Jumping(t testing.TB) (within []string, jump func(ahead bool)) {
	t.Helper()
	return JumpingBy(t, 5*time.Minute)
}

// JumpingBy is Jumping with another clock difference, which may be negative.
func JumpingBy(t testing.TB, by time.Duration) (within []string, jump func(off bool)) {
	t.Helper()
	within, set := NewClocks(t).One(t)
	return within, func(off bool) {
		t.Helper()
		if off {
			set(by)
		} else {
			set(0)
		}
	}
}

// Clocks is the program with a clock that a test sets while the program runs. The times of files are always those of the kernel.
type Clocks struct{ program []string }

// clockEnv names the file with the clock difference in seconds.
const clockEnv = "BRINE_TEST_CLOCK"

// NewClocks builds the program. Like Ahead it skips the test unless BRINE_CLOCK is set.
func NewClocks(t testing.TB) *Clocks {
	t.Helper()
	return &Clocks{otherClock(t, "\tsec += Ahead\n", "\n// Ahead is added to the clock.\nvar Ahead int64\n", `package main

import (
	"os"
	"strconv"
	"time"
)

func init() {
	go func() {
		for {
			b, _ := os.ReadFile(os.Getenv("`+clockEnv+`"))
			time.Ahead, _ = strconv.ParseInt(string(b), 10, 64)
			time.Sleep(20 * time.Millisecond)
		}
	}()
}
`)}
}

// One returns the command that runs the program with a clock of its own (Node.Within), and sets its difference from the right time.
func (c *Clocks) One(t testing.TB) (within []string, set func(by time.Duration)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clock")
	set = func(by time.Duration) {
		t.Helper()
		next := path + ".new"
		err := os.WriteFile(next, strconv.AppendInt(nil, int64(by/time.Second), 10), 0o600)
		if err = errors.Join(err, os.Rename(next, path)); err != nil { // rename: the program never reads half of it
			t.Fatal(err)
		}
	}
	set(0)
	return append([]string{"env", clockEnv + "=" + path}, c.program...), set
}

// otherClock builds the program with a modified time.Now: line is inserted after the query of the
// system clock, more is appended to its file, and main is the content of another file of the
// command.
func otherClock(t testing.TB, line, more, main string) []string {
	t.Helper()
	if os.Getenv("BRINE_CLOCK") == "" {
		t.Skip("BRINE_CLOCK is not set: a program with another clock takes a minute to build")
	}
	out, err := exec.Command("go", "env", "GOROOT", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	root, module, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	original := filepath.Join(root, "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	const now = "sec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(source), now) != 1 {
		t.Fatalf("%s does not have %q once: this test must follow it", original, now)
	}
	dir := t.TempDir()
	changed, added, overlay, program := filepath.Join(dir, "time.go"), filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json"),
		filepath.Join(dir, "brine")
	files := map[string]string{original: changed}
	if main != "" {
		files[filepath.Join(filepath.Dir(module), "cmd", "brine", "clock_of_tests.go")] = added
	}
	replace, err := json.Marshal(map[string]any{"Replace": files})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(source), now, now+line, 1) + more
	for path, b := range map[string][]byte{changed: []byte(text), added: []byte(main), overlay: replace} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("go", "build", "-overlay", overlay, "-o", program, "brine/cmd/brine")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return []string{"sh", "-c", `shift; exec "` + program + `" "$@"`, "sh"}
}
