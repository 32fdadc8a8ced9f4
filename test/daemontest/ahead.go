package daemontest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Ahead builds the program with a clock that is five minutes ahead, and returns
// the command that runs it in the place of the usual one (Node.Within). All has
// to be compiled anew for that, with a time.Now of its own, so the test is
// skipped unless BRINE_CLOCK is set.
func Ahead(t testing.TB) []string {
	t.Helper()
	if os.Getenv("BRINE_CLOCK") == "" {
		t.Skip("BRINE_CLOCK is not set: a program with another clock takes a minute to build")
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	const now = "sec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(source), now) != 1 {
		t.Fatalf("%s does not have %q once: this test must follow it", original, now)
	}
	dir := t.TempDir()
	changed, overlay, program := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "brine")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for path, b := range map[string][]byte{changed: []byte(strings.Replace(string(source), now, now+"\tsec += 300\n", 1)), overlay: replace} {
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
