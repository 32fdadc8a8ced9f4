package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// TestOwnUnits: the user's own modules count as sources of ext_pillar and master_tops once they
// are on disk; before, the message says how to fetch them.
func TestOwnUnits(t *testing.T) {
	root := t.TempDir()
	tree := func(text string) *Tree {
		v, err := yaml.Load([]byte(text), "master")
		if err != nil {
			t.Fatal(err)
		}
		return &Tree{Kind: MasterKind, Values: v.(*value.Dict)}
	}
	names := func(text string) string {
		needed, _ := tree(text).MissingUnits()
		var out []string
		for _, u := range needed {
			out = append(out, u.Key+"."+u.Unit)
			if !strings.Contains(u.Why, "salt-run saltutil.sync_") {
				t.Errorf("%s: %s", u.Key, u.Why)
			}
		}
		return strings.Join(out, " ")
	}
	text := "root_dir: " + root + "\next_pillar: [{mine: 1}]\nmaster_tops: {where: 2}\nexternal_auth: {sso: {}}\nevent_return: kept\noutput: own\n"
	if got := names(text); got != "external_auth.sso event_return.kept master_tops.where ext_pillar.mine" {
		t.Errorf("before they are fetched: %q", got)
	}
	for path, source := range map[string]string{
		"var/cache/salt/master/extmods/pillar/own.py": "__virtualname__ = 'mine'\n", "var/cache/salt/master/extmods/tops/where.py": "",
		"var/cache/salt/master/extmods/auth/own.py": "__virtualname__ = 'sso'\n", "var/cache/salt/master/extmods/returners/kept.py": "",
		"var/cache/salt/master/extmods/output/own.py": "",
		"elsewhere/mine.py":                           "",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(text); got != "" {
		t.Errorf("after they were fetched: %q", got)
	}
	if _, other := tree(text).MissingUnits(); len(other) > 0 {
		t.Errorf("warnings after they were fetched: %v", other)
	}
	text = "root_dir: " + root + "\next_pillar: [{mine: 1}]\nmaster_tops: {where: 2}\n"
	if got := names(text + "extension_modules: /none\n"); got != "master_tops.where ext_pillar.mine" {
		t.Errorf("with another directory: %q", got)
	}
	if got := names(text + "extension_modules: /none\npillar_dirs: [" + root + "/elsewhere]\n"); got != "master_tops.where" {
		t.Errorf("with a directory of the option pillar_dirs: %q", got)
	}
}
