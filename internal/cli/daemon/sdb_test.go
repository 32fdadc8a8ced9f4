package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brine/test/eventually"
	"brine/test/tools"
)

// TestSDB: a master gets options by a driver of the user before it starts, and its runners and pillar
// templates look references up.
func TestSDB(t *testing.T) {
	tools.NeedPython(t, "python3", "marshal")
	p := newPlace(t, "")
	p.write("master", strings.ReplaceAll(strings.Replace(p.read("master"), "interface: 127.0.0.1", "interface: sdb://store/interface", 1)+
		"store: {driver: own, file: DIR/store}\nfiles: {driver: yaml, files: [DIR/store]}\nsome: {deep: [x, 'sdb://store/deep']}\n"+
		"pillar_roots: {base: [DIR/pillar]}\nengines: [{looks: {to: DIR}}]\n", "DIR", p.dir))
	p.write("store", "{\"interface\": \"127.0.0.1\", \"deep\": \"down\"}\n")
	p.write("pillar/top.sls", "base: {'*': [a]}\n")
	p.write("pillar/a.sls", "by_sdb: {{ salt['sdb.get']('sdb://store/deep') }}\nby_config: {{ salt['config.get']('no:such', 'none') }}\n"+
		"of_grains: {{ salt['config.get']('evil') }}\n")
	p.write("var/cache/salt/master/extmods/sdb/own.py", "import json\n\n\ndef get(key, profile=None):\n    return json.load(open(profile['file']))[key]\n")
	p.write("var/cache/salt/master/extmods/engines/looks.py", `import json
import os
import time
import salt.utils.sdb


def start(to):
    data = {"runner": __runners__["sdb.get"]("sdb://store/deep"), "yaml": __runners__["sdb.get"]("sdb://files/deep"),
            "module": __salt__["sdb.get"]("sdb://store/deep"), "option": __opts__["some"], "config": __runners__["config.get"]("some:deep"),
            "utils": salt.utils.sdb.sdb_get("sdb://store/deep", __opts__),
            "pillar": __runners__["pillar.show_pillar"]("one", evil="sdb://store/deep")}
    with open(to + "/new", "w") as file:
        json.dump(data, file)
    os.rename(to + "/new", to + "/looked")
    time.sleep(1000)
`)
	d := p.up("salt-master")
	var got map[string]any
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.read("var/log/salt/master"))
		}
	})
	eventually.True(t, "the engine has looked", func() bool {
		text, err := os.ReadFile(filepath.Join(p.dir, "looked"))
		return err == nil && json.Unmarshal(text, &got) == nil
	})
	want := map[string]any{"runner": "down", "yaml": "down", "module": "down", "option": map[string]any{"deep": []any{"x", "down"}},
		"config": []any{"x", "down"}, "utils": "down",
		"pillar": map[string]any{"by_sdb": "down", "by_config": "none", "of_grains": "sdb://store/deep"}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Error(code)
	}
	// A driver that fails, and one that would run as root for another user.
	for text, want := range map[string]string{
		"broken: sdb://store/absent\n":             "broken: cannot look up sdb://store/absent: ",
		"broken: sdb://store/deep\nuser: nobody\n": "the driver own is a module in Python, which does not run as root for the user nobody",
	} {
		if os.Geteuid() != 0 && strings.Contains(text, "user") {
			continue
		}
		other := newPlace(t, "")
		other.write("master", other.read("master")+strings.ReplaceAll("store: {driver: own, file: DIR/store}\n"+text, "DIR", p.dir))
		other.write("var/cache/salt/master/extmods/sdb/own.py", p.read("var/cache/salt/master/extmods/sdb/own.py"))
		d := other.start("salt-master", "--check-config")
		if code, out := d.wait(), d.stdout.String()+d.stderr.String(); code != 1 || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d, no %q in %s", text, code, want, out)
		}
	}
}
