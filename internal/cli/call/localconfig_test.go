package call

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLocalConfig overlays the minion's options with a file for one run: files, pillar, environment
// and renderer are those of the file.
func TestLocalConfig(t *testing.T) {
	dir := newMinion(t, "")
	for name, text := range map[string]string{
		"own/srv/web.sls": "own: test.nop", "own/pillar/top.sls": "base: {'*': [p]}", "own/pillar/p.sls": "color: red",
		"other/srv/web.sls":    "{{ pillar.color }} {{ grains.id }} {{ opts.motto }}: test.nop",
		"other/pillar/top.sls": "base: {'*': [p]}", "other/pillar/p.sls": "color: blue",
		"other/srv/top.sls": "base: {'*': [web]}",
		"bad":               "hash_type: crc",
		"over":              "motto: short\nfile_roots: {base: [DIR/other/srv]}\npillar_roots: {base: [DIR/other/pillar]}\n",
		"over.d/x.conf":     "",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	call := func(args ...string) result {
		return runCall(t.Context(), dir, "", append([]string{"--local", "--file-root", dir + "/own/srv", "--pillar-root", dir + "/own/pillar", "--out",
			"quiet", "--log-level", "quiet"}, args...)...)
	}
	shown := func(args ...string) string {
		r := call(append(args, "--out", "txt")...)
		return r.stdout + r.stderr
	}
	if got := shown("state.show_low_sls", "web"); !strings.Contains(got, "'own'") {
		t.Errorf("without localconfig: %s", got)
	}
	for _, args := range [][]string{{"state.show_low_sls", "web"}, {"state.show_lowstate"}, {"state.apply", "web"}, {"state.highstate"}} {
		if got := shown(append(args, "localconfig="+dir+"/over")...); !strings.Contains(got, "blue alpha short") {
			t.Errorf("%s with localconfig: %s", args[0], got)
		}
	}
	for file, want := range map[string]string{"/none": "no such file", "/bad": "hash_type"} {
		r := call("state.apply", "web", "localconfig="+dir+file)
		if r.code == 0 || !strings.Contains(r.stdout+r.stderr, want) || !strings.Contains(r.stdout+r.stderr, dir+file) {
			t.Errorf("%s: %+v, want it named and %q", file, r, want)
		}
	}
}
