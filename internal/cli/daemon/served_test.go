package daemon

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestServedNames: the check and the start report what top files and reactions name and what does not exist, and
// nothing of what exists.
func TestServedNames(t *testing.T) {
	for _, program := range []string{"salt-master", "salt-minion"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "")
			kind := configOf(program)
			p.write("top.sls", "base:\n  '*':\n    - web\n    - wbe\n  'os:Debian':\n    - match: grian\n    - web\n")
			p.write("web.sls", "x:\n  test.nop: []\n")
			p.write("react.sls", "go:\n  local.tset.ping:\n    - tgt: x\nok:\n  local.test.ping:\n    - tgt: x\n")
			text := p.read(kind) + "file_roots: {base: [" + p.dir + "]}\npillar_roots: {base: [" + p.dir + "/pillar]}\n"
			wants := []string{"top file wbe: there is no such SLS file in the environment base; did you mean web? at=" + filepath.Join(p.dir, "top.sls") + ":4",
				"top file os:Debian: there is no type of targets \"grian\"; did you mean grain? at=" + filepath.Join(p.dir, "top.sls") + ":5"}
			if program == "salt-master" {
				text += "reactor: [{'a/b': [" + p.dir + "/react.sls]}]\n"
				wants = append(wants, "function tset.ping: Brine does not have the execution module tset; did you mean test.ping? at="+
					filepath.Join(p.dir, "react.sls")+":2")
			} else {
				text += "file_client: local\nmaster_type: disable\n"
			}
			p.write(kind, text)
			check := p.start(program, "--check-config")
			code := check.wait()
			out := check.stdout.String() + check.stderr.String()
			if code != 0 {
				t.Errorf("exit code %d", code)
			}
			d := p.up(program, "-l", "warning")
			d.end(syscall.SIGTERM)
			for what, out := range map[string]string{"check": out, "start": d.stderr.String()} {
				for _, want := range wants {
					if !strings.Contains(out, want) {
						t.Errorf("%s: no %q in\n%s", what, want, out)
					}
				}
				if n := strings.Count(out, "top.sls:") + strings.Count(out, "react.sls:"); n != len(wants) {
					t.Errorf("%s: %d places, want %d, in\n%s", what, n, len(wants), out)
				}
			}
		})
	}
}
