package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/cli/tempfleet"
)

// tree is the file tree of both masters, as in the tutorial for several masters: a top file, a
// file, a package, and a substitute for a service, which runs again when its file has changed. All
// effects stay in the minions' own directories. The package is one that every machine has, and is
// used only where Brine can query a package manager.
var tree = map[string]string{
	"srv/salt/top.sls": `base:
  '*': [common]
  'role:web':
    - match: grain
    - web
`,
	"srv/salt/common.sls": `{% if 'pkg.version' in salt %}
bash:
  pkg.installed
{% else %}
bash:
  test.nop
{% endif %}
`,
	"srv/salt/web/init.sls": `{% set root = opts['root_dir'] + '/srv/www' %}
site:
  file.managed:
    - name: {{ root }}/index.html
    - source: salt://web/files/index.html
    - template: jinja
    - makedirs: True
    - require:
      - bash

service:
  cmd.run:
    - name: date >> {{ root }}/restarts
    - onchanges:
      - file: site
`,
	"srv/salt/web/files/index.html": "Welcome to {{ grains['id'] }}, {{ pillar['greeting'] }}\n",
	"srv/pillar/top.sls":            "base: {'*': [site]}\n",
	"srv/pillar/site.sls":           "greeting: edition one\n",
}

// shareFiles writes the files to every master.
func (d *demo) shareFiles(files map[string]string) error {
	for _, m := range d.fleet.Masters {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			text := files[name]
			name = filepath.Join(m.Dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
				return err
			}
		}
	}
	return nil
}

// result is the part of a state's result that the demo checks.
type result struct {
	Result  *bool
	Changes map[string]any
	Comment string
}

// apply makes a master apply the top file to all minions. Every state must succeed. changed is the
// number of a web server's states that must report changes.
func (d *demo) apply(ctx context.Context, m *tempfleet.Daemon, changed int) (string, error) {
	out, err := m.Command(ctx, "salt", "--static", "--out=json", "-t", "60", "*", "state.apply")
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	var rets map[string]map[string]result
	if err := json.Unmarshal([]byte(out), &rets); err != nil {
		return "", fmt.Errorf("salt did not print results of states: %w: %s", err, out)
	}
	var lines []string
	for _, w := range minions {
		want, n := 1, 0
		if w.Role == "web" {
			want = 3
		}
		if len(rets[w.ID]) != want {
			return "", fmt.Errorf("%s ran %d states, not %d: %s", w.ID, len(rets[w.ID]), want, out)
		}
		for _, tag := range slices.Sorted(maps.Keys(rets[w.ID])) {
			r := rets[w.ID][tag]
			if r.Result == nil || !*r.Result {
				return "", fmt.Errorf("%s: %s: %s", w.ID, tag, r.Comment)
			}
			if len(r.Changes) > 0 {
				n++
			}
		}
		if w.Role == "web" && n != changed {
			return "", fmt.Errorf("%s: %d states changed something, not %d: %s", w.ID, n, changed, out)
		}
		lines = append(lines, fmt.Sprintf("%-5s %d states succeeded, %d with changes", w.ID, want, n))
	}
	return strings.Join(lines, "\n"), nil
}

// edit changes the pillar on both masters, and shows what the given master applies.
func (d *demo) edit(ctx context.Context, m *tempfleet.Daemon) (string, error) {
	if err := d.shareFiles(map[string]string{"srv/pillar/site.sls": "greeting: edition two\n"}); err != nil {
		return "", err
	}
	text, err := d.apply(ctx, m, 2)
	if err != nil {
		return "", err
	}
	www := filepath.Join(d.fleet.Minions[0].Dir, "srv/www") // of alpha
	page, err := os.ReadFile(filepath.Join(www, "index.html"))
	if err != nil {
		return "", err
	}
	if want := "Welcome to alpha, edition two\n"; string(page) != want {
		return "", fmt.Errorf("alpha's page is %q, not %q", page, want)
	}
	restarts, err := os.ReadFile(filepath.Join(www, "restarts"))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(restarts), "\n"); n != 2 {
		return "", fmt.Errorf("alpha's service was restarted %d times, not twice", n)
	}
	return text + "\nalpha's page: " + strings.TrimSpace(string(page)), nil
}
