package daemontest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// WithFile builds the program with one more file in its package main, which sets what only tests set, and returns the
// path of the program.
func WithFile(t testing.TB, source string) (program string) {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	added, overlay := filepath.Join(dir, "added.go"), filepath.Join(dir, "overlay.json")
	program = filepath.Join(dir, "brine")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), "cmd", "brine", "settings_of_tests.go"): added,
	}})
	if err != nil {
		t.Fatal(err)
	}
	for path, b := range map[string][]byte{added: []byte(source), overlay: replace} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("go", "build", "-overlay", overlay, "-o", program, "brine/cmd/brine")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}
