package grains

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/host"
	"brine/internal/py/value"
)

// machines parses a file of testdata into the files of each machine.
func machines(t *testing.T, name string) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]string{}
	var files map[string]string
	file := ""
	for line := range strings.SplitAfterSeq(string(text), "\n") {
		if name, ok := strings.CutPrefix(line, "== "); ok {
			files = map[string]string{}
			all[strings.TrimSpace(name)] = files
		} else if name, ok := strings.CutPrefix(line, "-- "); ok {
			file = strings.TrimSpace(name)
			files[file] = ""
		} else if files != nil {
			files[file] += line
		}
	}
	return all
}

// machine writes files below a new root.
func machine(t *testing.T, files map[string]string) *host.Machine {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if strings.Contains(name, "bin/") {
			mode = 0o755
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	return &host.Machine{Root: root}
}

// answers reads the grains that Salt derived.
func answers(t *testing.T, name string) map[string]any {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var golden map[string]any
	if err := dec.Decode(&golden); err != nil {
		t.Fatal(err)
	}
	return golden
}

// compare reports where got differs from Salt's grains. If only is set, it
// skips grains that Salt was not asked for.
func compare(t *testing.T, got, want *value.Dict, only func(name string) bool) {
	t.Helper()
	for k, w := range want.All() {
		if v, ok := got.Get(k); !ok || !value.Equal(untuple(v), w) {
			t.Errorf("%s is %s, Salt has %s", k, value.Repr(v), value.Repr(w))
		}
	}
	for k, v := range got.All() {
		if !want.Has(k) && only(k.(string)) {
			t.Errorf("%s is %s, Salt has none", k, value.Repr(v))
		}
	}
}

// TestDistributions compares the os grains of many distributions with what
// Salt derives from the same files. testdata/os.py wrote those.
func TestDistributions(t *testing.T) {
	golden := answers(t, "os.json")
	all := machines(t, "os.txt")
	if len(all) != len(golden) || len(all) < 70 {
		t.Fatalf("%d machines, %d answers", len(all), len(golden))
	}
	for name, files := range all {
		t.Run(name, func(t *testing.T) {
			got := distribution(machine(t, files))
			got.Update(releaseGrains(got.Str("os"), got.Str("osfullname"), got.Str("osrelease")))
			want := model(golden[name]).(*value.Dict)
			compare(t, got, want, func(string) bool { return true })
		})
	}
}
