package extmods

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"brine/internal/py/value"
)

// TestExtensions checks that the modules of installed Salt extensions are found, below those of the
// options and above those that are fetched from the file server.
func TestExtensions(t *testing.T) {
	dir := t.TempDir()
	packages := "venv/lib/python3.11/site-packages/"
	write(t, dir, map[string]string{
		"python3.11": "", "own/modules/both.py": "1", "extmods/modules/both.py": "2", "extmods/modules/tool.py": "3",
		packages + "mine-1.dist-info/entry_points.txt":                    "[console_scripts]\nx = other:main\n\n[salt.loader]\nmine = saltext.mine\n",
		packages + "saltext/mine/modules/tool.py":                         "__virtualname__ = 'hammer'\n",
		packages + "saltext/mine/modules/both.py":                         "4",
		packages + "saltext/mine/states/tool.py":                          "5",
		packages + "old-1.egg-info/entry_points.txt":                      "[salt.loader]\nmodule_dirs = saltext.old.loader:get_module_dirs\nx=../../own\n",
		packages + "saltext/old/loader.py":                                "",
		packages + "saltext/old/modules/old.py":                           "6",
		packages + "strange-1.dist-info/entry_points.txt":                 "[other]\nmine = own\n",
		packages + "own/modules/strange.py":                               "7",
		"venv/lib/python3.9/site-packages/x-1.dist-info/entry_points.txt": "[salt.loader]\nx = x\n",
		"venv/lib/python3.9/site-packages/x/modules/ninth.py":             "8",
	})
	program := filepath.Join(dir, "venv", "bin", "python3")
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "python3.11"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../python3.11", program); err != nil {
		t.Fatal(err)
	}
	opts := value.DictOf("python", program, "module_dirs", value.ListOf(filepath.Join(dir, "own")))
	places := func(kind string) (found []string) {
		for name, path := range Scan(Dirs(opts, filepath.Join(dir, "extmods"), kind)).Paths {
			place, _ := filepath.Rel(dir, path)
			found = append(found, name+" "+place)
		}
		slices.Sort(found)
		return found
	}
	want := []string{"both own/modules/both.py", "old " + packages + "saltext/old/modules/old.py", "tool " + packages + "saltext/mine/modules/tool.py"}
	if got := places("modules"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := places("states"); !slices.Equal(got, []string{"tool " + packages + "saltext/mine/states/tool.py"}) {
		t.Errorf("%q", got)
	}

	// An extension that is removed is no longer used.
	for _, gone := range []string{"mine-1.dist-info", "saltext/mine"} {
		if err := os.RemoveAll(filepath.Join(dir, packages, gone)); err != nil {
			t.Fatal(err)
		}
	}
	later := time.Now().Add(time.Second) // a file system may have coarse times
	if err := os.Chtimes(filepath.Join(dir, packages), later, later); err != nil {
		t.Fatal(err)
	}
	if got := places("modules"); slices.Contains(got, want[2]) || !slices.Contains(got, want[1]) {
		t.Errorf("%q", got)
	}
}
