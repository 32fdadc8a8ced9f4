package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/py/value"
)

const iniSignatures = "testdata/ini-signatures.json"

func TestINISignatures(t *testing.T) {
	stocktest.Signatures(t, iniSignatures, []fn.Module{iniModule()}, nil)
}

func TestINIRecordingIsTrue(t *testing.T) { stocktest.Verify(t, iniSignatures) }

// TestINILikeSalt changes two equal files with Salt and with Brine, step by step.
func TestINILikeSalt(t *testing.T) {
	one := func(k string, v any) map[string]any { return map[string]any{k: v} }
	jobs := func(dir string) [][]any {
		f := filepath.Join(dir, "f")
		if err := os.WriteFile(f, []byte("# top\nglobal = 1\n[a]\n#k = 1\nx=y\n\tz\n; more\n[b]\nu = v # w\n[a]\nagain = 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return [][]any{
			{"ini.get_ini", f}, {"ini.get_section", f, "a"}, {"ini.get_section", f, "none"}, {"ini.get_option", f, "a", "x"},
			{"ini.get_option", f, "a", "none"}, {"ini.get_option", f, "none", "x"},
			{"ini.get_option", f, nil, "global"}, {"ini.set_option", f, one("a", one("k", 2))}, {"ini.set_option", f, one("a", one("x", 5))},
			{"ini.set_option", f, one("c", one("d", true))}, {"ini.set_option", f, one("global", "3")}, {"ini.get_ini", f},
			{"ini.set_option", f, one("a", one("k", 2))},
			{"ini.remove_option", f, "a", "k"}, {"ini.remove_option", f, "a", "k"}, {"ini.remove_option", f, nil, "global"}, {"ini.remove_section", f, "b"},
			{"ini.remove_section", f, "b"},
			{"ini.set_option", f, one("c", one("d", 1)), "no_spaces=True"}, {"ini.get_ini", f}, {"ini.get_ini", filepath.Join(dir, "none")},
		}
	}
	theirs, ours := t.TempDir(), t.TempDir()
	recorded := stocktest.Ask(t, nil, jobs(theirs)...)
	r, err := fn.NewRegistry(nil, iniModule())
	if err != nil {
		t.Fatal(err)
	}
	for i, job := range jobs(ours) {
		args := make([]any, 0, len(job))
		for _, a := range job[1:] {
			args = append(args, value.From(a))
		}
		got := strings.ReplaceAll(value.Repr(r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: job[0].(string), Arg: args}).Return), ours, theirs)
		if want := value.Repr(recorded[i].At("return")); got != want {
			t.Errorf("%v: returns %s\nSalt: %s", job, got, want)
		}
	}
	a, errA := os.ReadFile(filepath.Join(theirs, "f"))
	b, errB := os.ReadFile(filepath.Join(ours, "f"))
	if errA != nil || errB != nil || string(a) != string(b) {
		t.Errorf("the file is %q, Salt's %q", b, a)
	}
}
