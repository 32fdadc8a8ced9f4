package daemon

import (
	"strings"
	"testing"
)

// TestCheckNamesUnits: --check-config names what no unit has, with its place and what exists.
func TestCheckNamesUnits(t *testing.T) {
	p := newPlace(t, "")
	p.write("master", p.read("master")+`
fileserver_backend: [roots, svnfs]
ext_pillar:
  - hiera: /etc/hiera.yaml
  - cmd_yaml: 'true'
external_auth: {django: {amy: [test.*]}}
master_tops: {cobbler: {}}
output: nestd
`)
	d := p.start("salt-master", "--check-config")
	code, out := d.wait(), d.stdout.String()
	for _, want := range []string{
		`fileserver_backend: there is no "svnfs"; use one of git, gitfs, minion, minionfs, roots, s3, s3fs`,
		`ext_pillar: there is no "hiera"; use one of cmd_json, `,
		`external_auth: there is no "django"; use one of auto, `,
		`master_tops: there is no "cobbler"; use one of ext_nodes`,
		`output: there is no "nestd"; use one of highstate, `,
	} {
		if code != 0 || strings.Count(out, want) != 1 || !strings.Contains(out, "warning: "+p.dir+"/master") {
			t.Errorf("code %d, no %s in\n%s", code, want, out)
		}
	}
	if strings.Count(out, "warning: ") != 5 {
		t.Errorf("more warnings than expected:\n%s", out)
	}

	p.write("minion", "root_dir: "+p.dir+
		"/other\nid: one\nmaster: 127.0.0.1\nmodule_executors: [splay, sudo]\nbeacons:\n  enabled: true\n  lod: []\n  own: [{beacon_module: load}]\n")
	d = p.start("salt-minion", "--check-config")
	d.wait()
	out = d.stdout.String()
	for _, want := range []string{`module_executors: there is no "sudo"; use one of direct_call, splay`, `beacons: there is no "lod"; use one of btmp, `} {
		if strings.Count(out, want) != 1 || strings.Count(out, "there is no \"") != 2 {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
}
