package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestPillar: minions of both kinds request their pillar, made from the same tree, from masters of
// both kinds. All answers are those of a stock pair.
func TestPillar(t *testing.T) {
	stockTree(t)
	tree := pillarTree(t)
	config := fmt.Sprintf(`
pillar_roots:
  base: [%[1]s/base]
  dev: [%[1]s/dev]
ext_pillar:
  - cmd_yaml: 'echo "ext: {id: %%s}"'
  - nodegroups: {}
  - file_tree: {root_dir: %[1]s/tree}
nodegroups:
  ours: 'G@role:web'
on_demand_ext_pillar: [cmd_json]
`, tree)
	answers := map[string]map[string]string{}
	for _, mk := range []kind{stock, brine} {
		host := daemontest.Host()
		master := newMaster(t, mk, "pillar-"+string(mk), host, config).Start()
		for _, k := range []kind{stock, brine} {
			newMinion(t, k, string(k), []string{host}, "grains: {role: web}\n").Start()
		}
		master.Accept("brine", "stock")
		eventually.Nil(t, stockLimit, "the minions answer", func() error { return master.PingAll(mk, "brine", "stock") })
		var mu sync.Mutex
		t.Run(string(mk)+"-master", func(t *testing.T) {
			for _, k := range []kind{stock, brine} {
				t.Run(string(k)+"-minion", func(t *testing.T) {
					t.Parallel()
					got := pillarAnswers(t, master, string(k))
					mu.Lock()
					defer mu.Unlock()
					answers[string(mk)+" master, "+string(k)+" minion"] = got
				})
			}
		})
	}
	want := answers["stock master, stock minion"]
	for who, got := range answers {
		for call, text := range got {
			if text != want[call] {
				t.Errorf("%s: %s\n got %s\nwant %s", who, call, text, want[call])
			}
		}
	}
}

func pillarTree(t *testing.T) string {
	t.Helper()
	tree := daemontest.ShortDir(t)
	for name, text := range map[string]string{
		"base/top.sls":    "base:\n  '*': [common, app]\n  'role:web': [{match: grain}, web]\n  'nobody': [secret]\ndev:\n  '*': [dev]\n",
		"base/common.sls": "{% set id = grains['id'] %}\nwho: {{ id }}\nlist: [1, 2]\nnested: {a: {b: c}, n: [x]}\n",
		"base/app.sls":    "include:\n  - common: {key: again}\napp: {{ salt['grains.get']('role') }}\nnested: {a: {d: e}}\n",
		"base/web.sls":    "web: true\n", "base/secret.sls": "secret: true\n", "dev/dev.sls": "dev: 1\n", "dev/top.sls": "dev:\n  '*': [dev]\n",
		"tree/hosts/stock/f": "of stock\n", "tree/hosts/brine/f": "of brine\n", "tree/nodegroups/ours/g": "group\n",
	} {
		p := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

func pillarAnswers(t *testing.T, master *node, id string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, args := range [][]string{
		{"pillar.items"}, {"pillar.raw"}, {"pillar.items", "pillarenv=dev"}, {"pillar.items", "pillarenv=nosuch"},
		{"pillar.items", "pillar={web: 2, nested: {a: {b: over}}, new: 1}"},
		{"pillar.get", "nested:a:b"}, {"pillar.get", "dev", "pillarenv=dev"}, {"pillar.item", "who", "nested:n"}, {"pillar.obfuscate"},
		{"pillar.keys", "nested"},
		{"pillar.ext", "{cmd_json: 'echo {\"demand\":1}'}"}, {"pillar.ext", "{cmd_yaml: 'echo 1'}"}, {"saltutil.refresh_pillar", "wait=True"},
		{"pillar.get", "secret", "none"},
	} {
		rets, err := master.SaltJSON(brine, append([]string{"-t", "60", id}, args...)...)
		text, _ := json.Marshal(rets[id])
		if err != nil {
			text = []byte(err.Error())
		}
		out[strings.Join(args, " ")] = strings.ReplaceAll(string(text), id, "ID")
	}
	for _, tgt := range []string{"web:True", "nested:a:d:e", "who:" + id, "secret:True"} {
		rets, err := master.SaltJSON(brine, "-t", "20", "-C", id+" and I@"+tgt, "test.ping")
		out["-I "+strings.ReplaceAll(tgt, id, "ID")] = fmt.Sprint(rets[id], err != nil)
	}
	return out
}
