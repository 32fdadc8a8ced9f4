package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestFiles: minions of both kinds use the file servers of masters of both kinds, which serve the
// same tree. All answers are those of a stock pair.
func TestFiles(t *testing.T) {
	stockTree(t)
	tree := fileTree(t)
	config := fmt.Sprintf(`
file_roots:
  base: [%[1]s/base, %[1]s/more]
  dev: [%[1]s/dev]
  __env__: ['%[1]s/any/__env__']
file_ignore_glob: ['*.swp']
file_ignore_regex: ['/hidden/']
file_recv: True
file_recv_max_size: 1
file_buffer_size: 65536
`, tree)
	answers := map[string]map[string]string{}
	for _, mk := range []kind{stock, brine} {
		host := daemontest.Host()
		master := newMaster(t, mk, "files-"+string(mk), host, config).Start()
		minions := map[string]*node{}
		for _, k := range []kind{stock, brine} {
			minions[string(k)] = newMinion(t, k, string(k), []string{host}, "file_recv_max_size: 1\n").Start()
		}
		master.Accept("brine", "stock")
		eventually.Nil(t, stockLimit, "the minions answer", func() error { return master.PingAll(mk, "brine", "stock") })
		var mu sync.Mutex
		t.Run(string(mk)+"-master", func(t *testing.T) {
			for id, n := range minions {
				t.Run(id+"-minion", func(t *testing.T) {
					t.Parallel()
					got := fileAnswers(t, master, n, tree)
					mu.Lock()
					defer mu.Unlock()
					answers[string(mk)+" master, "+id+" minion"] = got
				})
			}
		})
		for id := range minions {
			got, err := os.ReadFile(master.Path("var/cache/salt/master/minions/" + id + "/files/pushed/file"))
			if want, _ := os.ReadFile(filepath.Join(tree, "base/large")); err != nil || string(got) != string(want) {
				t.Errorf("what %s pushed to the %s master: %d bytes, %v", id, mk, len(got), err)
			}
		}
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

// fileTree makes directories for a file server.
func fileTree(t *testing.T) string {
	t.Helper()
	tree := daemontest.ShortDir(t)
	for name, text := range map[string]string{
		"base/top.sls": "base: {}\n", "base/web/init.sls": "{}\n", "base/web/nginx.sls": "{}\n", "base/web/files/motd": "hello\n",
		"base/web/files/sub/deep": "deep\n", "base/webfarm/no": "no\n", "base/empty-file": "", "base/large": strings.Repeat("0123456789abcdef", 30000),
		"base/.dot": "dot\n", "base/x.swp": "", "base/hidden/secret": "", "base/a?b": "question\n", "base/ä ö": "umlaut\n", "base/bin": "\xff\xfe\x00",
		"more/web/files/motd": "shadowed\n", "more/only-more": "more\n", "dev/web/files/motd": "dev\n", "any/qa/from-any": "any\n", "outside": "outside\n",
	} {
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"base/void/inner", "base/web/files/none"} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"base/link": "web/files/motd", "base/up": "../outside", "base/linked-dir": "web/files", "base/broken": "nowhere", "base/web/back": "../large",
		"base/absolute": tree + "/base/large", "base/abs-out": tree + "/outside",
	} {
		if err := os.Symlink(to, filepath.Join(tree, name)); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

// fileAnswers calls the functions of cp on a minion and returns the answers, with the directories
// of the minion and of the tree replaced.
func fileAnswers(t *testing.T, master, minion *node, tree string) map[string]string {
	t.Helper()
	out := map[string]string{}
	dest := minion.Path("dest")
	for _, args := range [][]string{
		{"cp.envs"}, {"cp.list_master"}, {"cp.list_master", "dev"}, {"cp.list_master", "qa"}, {"cp.list_master", "prefix=web/"}, {"cp.list_master_dirs"},
		{"cp.list_master_symlinks"}, {"cp.list_master_symlinks", "prefix=web"}, {"cp.list_states"}, {"cp.list_states", "nosuch"},
		{"cp.hash_file", "salt://web/files/motd"}, {"cp.hash_file", "salt://web/files/motd?saltenv=dev"}, {"cp.hash_file", "salt://nosuch"},
		{"cp.hash_file", tree + "/outside"},
		{"cp.hash_file", "salt://../outside"}, {"cp.hash_file", "salt:///etc/passwd"}, {"cp.hash_file", "salt://web/../../outside"},
		{"cp.hash_file", "salt://hidden/secret"},
		{"cp.hash_file", "salt://x.swp"}, {"cp.hash_file", "salt://up"}, {"cp.hash_file", "salt://web"}, {"cp.hash_file", "salt://from-any", "saltenv=qa"},
		{"cp.stat_file", "salt://web/files/motd"}, {"cp.stat_file", "salt://web/files/motd", "octal=False"}, {"cp.stat_file", "salt://nosuch"},
		{"cp.stat_file", "/nosuch"},
		{"cp.is_cached", "salt://web/files/motd"}, {"cp.cache_file", "salt://web/files/motd"}, {"cp.is_cached", "salt://web/files/motd"},
		{"cp.is_cached", "web/files/motd"},
		{"cp.cache_file", "salt://nosuch"}, {"cp.cache_file", "salt://empty-file"}, {"cp.cache_file", "salt://|a?b"}, {"cp.get_file_str", "salt://|a?b"},
		{"cp.cache_file", "salt://ä ö"},
		{"cp.get_file_str", "salt://web/files/motd?saltenv=dev"}, {"cp.get_file_str", "salt://nosuch"}, {"cp.get_file_str", "salt://only-more"},
		{"cp.get_file_str", "salt://link"},
		{"cp.get_file", "salt://large", dest}, {"hashutil.digest_file", dest}, {"cp.get_file", "salt://large", dest + "-z", "gzip=9"},
		{"hashutil.digest_file", dest + "-z"},
		{"cp.get_file", "salt://nosuch", dest}, {"cp.get_file", "salt://large", minion.Path("no/such/dir")},
		{"cp.get_file", "salt://large", minion.Path("made/dir/f"), "makedirs=True"},
		{"cp.get_file", "salt://bin", minion.Path("made/")}, {"hashutil.digest_file", minion.Path("made/bin")},
		{"cp.get_file", "salt://web/files/motd?saltenv=dev", minion.Path("made/dir")},
		{"cp.get_dir", "salt://web", minion.Path("tree")}, {"cp.get_dir", "salt://web/files/", minion.Path("tree2")},
		{"cp.get_dir", "salt://web/files", minion.Path("tree3"), "saltenv=dev"}, {"cp.get_dir", "salt://nosuch", minion.Path("tree4")},
		{"cp.get_url", "salt://web/files/motd", minion.Path("url")}, {"cp.get_url", "salt://web/files/motd", "dest=None"}, {"cp.get_url", tree + "/outside"},
		{"cp.get_url", "file://" + tree + "/outside"}, {"cp.get_url", "salt://nosuch"},
		{"cp.cache_files", "salt://web/files/motd,salt://nosuch,salt://large"}, {"cp.cache_dir", "salt://web"},
		{"cp.cache_dir", "salt://web", "include_pat=*motd"},
		{"cp.cache_dir", "salt://web", "include_pat=E@mo[t]d$", "include_empty=True"}, {"cp.cache_dir", "salt://web", "exclude_pat=*.sls"},
		{"cp.cache_local_file", tree + "/outside"}, {"cp.cache_local_file", "/nosuch"}, {"cp.is_cached", tree + "/outside"}, {"cp.cache_dest", "salt://x/y"},
		{"cp.cache_dest", "http://h:80/p?q"},
		{"cp.push", tree + "/base/large", "upload_path=/pushed/file"}, {"cp.push", "/nosuch"}, {"cp.push", tree + "/../etc/passwd"},
		{"cp.push", tree + "/outside", "upload_path=../../../x"}, {"cp.push", "relative"},
		{"cp.push_dir", tree + "/base/web", "glob=motd"}, {"cp.cache_master", "dev"}, {"cp.list_minion", "dev"}, {"cp.list_minion"},
	} {
		rets, err := master.SaltJSON(brine, append([]string{"-t", "120", minion.Name}, args...)...)
		if l, ok := rets[minion.Name].([]any); ok && args[0] == "cp.envs" {
			slices.SortFunc(l, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) // a Python set has no order
		}
		text, _ := json.Marshal(rets[minion.Name])
		if err != nil {
			text = []byte(err.Error())
		}
		clean := strings.NewReplacer(minion.Dir, "MINION", tree, "TREE")
		key := clean.Replace(strings.Join(args, " "))
		if _, again := out[key]; again {
			key += " (again)"
		}
		out[key] = clean.Replace(string(text))
	}
	return out
}
