package call

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/test/tools"
)

// TestExtensions calls modules of a Salt extension, a package that pip has installed in the virtual
// environment that the option python names.
func TestExtensions(t *testing.T) {
	python := tools.NeedPython(t, "python3", "marshal")
	version, err := exec.CommandContext(t.Context(), python, "-c", "import sys; print('python%d.%d' % sys.version_info[:2])").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	packages := "venv/lib/" + strings.TrimSpace(string(version)) + "/site-packages/"
	for name, text := range map[string]string{
		"srv/x.sls":           "a: {hammer.hit: []}\n",
		"venv/pyvenv.cfg":     "home = " + filepath.Dir(python) + "\ninclude-system-site-packages = false\n",
		"venv/bin/unused.txt": "",
		packages + "saltext.mine-1.0.dist-info/entry_points.txt": "[salt.loader]\nsaltext.mine = saltext.mine\n",
		packages + "saltext/mine/__init__.py":                    "",
		packages + "saltext/mine/utils/nails.py":                 "def kind():\n    return 'steel ' + __opts__['id']\n",
		packages + "saltext/mine/grains/box.py":                  "def box():\n    return {'toolbox': 'full'}\n",
		packages + "saltext/mine/states/hammer.py": "def hit(name):\n    return {'name': name, 'result': True, 'changes': {}, " +
			"'comment': __salt__['hammer.nail']()}\n",
		packages + "saltext/mine/modules/tool.py": "from saltext.mine.utils import nails\n\n__virtualname__ = 'hammer'\n\n" +
			"def __virtual__():\n    return __virtualname__\n\ndef nail():\n    return __utils__['nails.kind']() + ' ' + nails.__name__\n",
		"minion": "root_dir: " + dir + "\nid: alpha\nfile_client: local\nenable_fqdns_grains: false\nfile_roots: {base: [" + dir + "/srv]}\n" +
			"pillar_roots: {base: [" + dir + "/pillar]}\npython: " + dir + "/venv/bin/python3\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(python, filepath.Join(dir, "venv", "bin", "python3")); err != nil {
		t.Fatal(err)
	}
	for call, want := range map[string]string{
		"hammer.nail":               `"steel alpha saltext.mine.utils.nails"`,
		"grains.get toolbox":        `"full"`,
		"sys.list_functions hammer": `["hammer.nail"]`,
	} {
		if v, r := local(t, dir, strings.Fields(call)...); jsonText(v) != want {
			t.Errorf("%s: %s, want %s; %+v", call, jsonText(v), want, r)
		}
	}
	if v, r := local(t, dir, "state.sls", "x"); !strings.Contains(jsonText(v), "steel alpha") {
		t.Errorf("%s %+v", jsonText(v), r)
	}
}
