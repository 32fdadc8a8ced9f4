package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// ownBackend is a file server backend that a user has written: some of its files are on disk, others exist
// in the module only.
const ownBackend = `
import hashlib
import os

import salt.fileserver
import salt.utils.files
import salt.utils.gzip_util
import salt.utils.hashutils
import salt.utils.path
import salt.utils.stringutils

__virtualname__ = "mine"
ENVS = {"base": "base", "dev": "dev"}

def __virtual__():
    return __virtualname__ if "mine" in __opts__["fileserver_backend"] else False

def _made(saltenv):
    made = {"made/hello": b"hello from " + saltenv.encode() + b"\n", "made/empty": b"", "made/large": b"0123456789abcdef" * 90000,
            "made/binary": b"\xff\xfe\x00", "shadow": b"of mine\n", "liar": b"x\n"}
    if saltenv == "base":
        made["states/made.sls"] = ("made file:\n  file.managed:\n    - name: {}\n    - source: salt://made/hello\n"
                                   .format(__opts__["mine.target"])).encode()
    return made

def _root(saltenv):
    return os.path.join(__opts__["mine.root"], ENVS[saltenv])

def envs():
    return set(ENVS)

def find_file(path, saltenv="base", **kwargs):
    if path == "raises":
        raise ValueError("no way to " + path)
    if path == "strange":
        return None
    if saltenv not in ENVS:
        return {"path": "", "rel": ""}
    if path in _made(saltenv):
        return {"path": "made:" + path, "rel": path, "stat": [0o100644], "kwargs": sorted(kwargs)}
    full = os.path.join(_root(saltenv), path)
    if os.path.isfile(full) and not salt.fileserver.is_file_ignored(__opts__, full):
        return {"path": full, "rel": path, "stat": list(os.stat(full))[:1]}
    return {"path": "", "rel": ""}

def serve_file(load, fnd):
    ret = {"data": "", "dest": ""}
    if "path" not in load or "loc" not in load or "saltenv" not in load or not fnd["path"]:
        return ret
    ret["dest"] = fnd["rel"]
    if fnd["path"].startswith("made:"):
        data = _made(load["saltenv"])[fnd["rel"]][load["loc"]:load["loc"] + __opts__["file_buffer_size"]]
    else:
        with salt.utils.files.fopen(fnd["path"], "rb") as source:
            source.seek(load["loc"])
            data = source.read(__opts__["file_buffer_size"])
    gzip = load.get("gzip")
    if gzip and data:
        data = salt.utils.gzip_util.compress(data, gzip)
        ret["gzip"] = gzip
    ret["data"] = data
    return ret

def file_hash(load, fnd):
    if not fnd.get("path"):
        return ""
    form = __opts__["hash_type"]
    if fnd["rel"] == "liar":
        return {"hash_type": form, "hsum": hashlib.new(form, b"y\n").hexdigest()}
    if fnd["path"].startswith("made:"):
        return {"hash_type": form, "hsum": hashlib.new(form, _made(load["saltenv"])[fnd["rel"]]).hexdigest()}
    return {"hash_type": form, "hsum": salt.utils.hashutils.get_hash(fnd["path"], form)}

def _walk(load):
    if load["saltenv"] not in ENVS:
        return [], [], []
    files, dirs, empty = set(_made(load["saltenv"])), {"made", "states"}, []
    root = _root(load["saltenv"])
    for top, inner, names in salt.utils.path.os_walk(root):
        rel = os.path.relpath(top, root)
        if rel != ".":
            dirs.add(rel)
            if not inner and not names:
                empty.append(rel)
        for name in names:
            full = os.path.join(top, name)
            if not salt.fileserver.is_file_ignored(__opts__, full):
                files.add(os.path.normpath(os.path.join(rel, name)))
    return files, dirs, empty

def file_list(load):
    return _walk(load)[0]

def dir_list(load):
    return iter(_walk(load)[1])

def file_list_emptydirs(load):
    return _walk(load)[2]

def symlink_list(load):
    return {"link": "made/hello"} if load["saltenv"] == "base" else {}

def update(remotes=None):
    with salt.utils.files.fopen(os.path.join(__opts__["mine.root"], "base", "updated"), "w") as out:
        out.write("updated {}\n".format(remotes))

def lock(remote=None):
    return ["locked {}".format(remote)], []

def clear_lock(remote=None, lock_type="update"):
    return [], ["cannot unlock {} {}".format(remote, lock_type)]

def clear_cache():
    return []
`

// TestOwnBackend: minions of both kinds use masters of both kinds with a file server backend of the user.
// All answers are those of a stock pair.
func TestOwnBackend(t *testing.T) {
	stockTree(t)
	answers := map[string]map[string]string{}
	for _, mk := range []kind{stock, brine} {
		tree := daemontest.ShortDir(t)
		for name, text := range map[string]string{
			"backends/own.py": ownBackend, "mine/base/disk": "on disk\n", "mine/base/sub/deep": "deep\n", "mine/base/x.swp": "no\n", "mine/dev/disk": "dev\n",
			"roots/shadow": "of roots\n", "roots/plain": "plain\n", "roots/top.sls": "base:\n  '*': [states.made]\n", "roots/raises": "of roots\n",
			"backends/broken.py": "def envs(:\n",
		} {
			path := filepath.Join(tree, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(filepath.Join(tree, "mine/base/void"), 0o755); err != nil {
			t.Fatal(err)
		}
		host := daemontest.Host()
		master := newMaster(t, mk, "own-"+string(mk), host, fmt.Sprintf(`
fileserver_backend: [mine, roots]
fileserver_dirs: [%[1]s/backends]
file_roots: {base: [%[1]s/roots]}
file_ignore_glob: ['*.swp']
file_buffer_size: 65536
mine.root: %[1]s/mine
mine.target: %[1]s/target
`, tree)).Start()
		minions := map[string]*node{}
		for _, k := range []kind{stock, brine} {
			minions[string(k)] = newMinion(t, k, string(k), []string{host}, "").Start()
		}
		master.Accept("brine", "stock")
		eventually.Nil(t, stockLimit, "the minions answer", func() error { return master.PingAll(mk, "brine", "stock") })
		for id, n := range minions {
			t.Run(string(mk)+"-master/"+id+"-minion", func(t *testing.T) {
				answers[string(mk)+" master, "+id+" minion"] = ownBackendAnswers(t, master, n, tree)
			})
		}
		answers[string(mk)+" runners"] = ownBackendRunners(master, mk, tree)
		updated, err := os.ReadFile(filepath.Join(tree, "mine/base/updated"))
		if want := "updated ['a', 'b']\n"; string(updated) != want && mk == brine || err != nil {
			t.Errorf("%s: the function update: %q, %v", mk, updated, err)
		}
	}
	for who, got := range answers {
		want := answers["stock master, stock minion"]
		if strings.HasSuffix(who, " runners") {
			want = answers["stock runners"]
		}
		for call, text := range got {
			if call == "cp.list_master_symlinks" { // Salt returns those of the last backend alone
				if text != `{"link":"made/hello"}` && strings.HasPrefix(who, "brine") {
					t.Errorf("%s: %s: %s", who, call, text)
				}
				continue
			}
			if text != want[call] {
				t.Errorf("%s: %s\n got %s\nwant %s", who, call, text, want[call])
			}
		}
	}
}

// ownBackendAnswers calls functions of a minion that fetch files.
func ownBackendAnswers(t *testing.T, master, minion *node, tree string) map[string]string {
	t.Helper()
	out := map[string]string{}
	var mu sync.Mutex
	for _, args := range [][]string{
		{"cp.envs"}, {"cp.list_master"}, {"cp.list_master", "dev"}, {"cp.list_master", "nosuch"}, {"cp.list_master", "prefix=made"},
		{"cp.list_master_dirs"}, {"cp.list_master_symlinks"}, {"cp.list_states"},
		{"cp.get_file_str", "salt://made/hello"}, {"cp.get_file_str", "salt://made/hello", "saltenv=dev"}, {"cp.get_file_str", "salt://made/empty"},
		{"cp.get_file_str", "salt://disk"}, {"cp.get_file_str", "salt://disk?saltenv=dev"}, {"cp.get_file_str", "salt://sub/deep"},
		{"cp.get_file_str", "salt://shadow"}, {"cp.get_file_str", "salt://plain"}, {"cp.get_file_str", "salt://nosuch"},
		{"cp.get_file_str", "salt://x.swp"}, {"cp.hash_file", "salt://made/hello"}, {"cp.hash_file", "salt://disk"}, {"cp.hash_file", "salt://liar"},
		{"cp.hash_file", "salt://x.swp"}, {"cp.hash_file", "salt://../roots/plain"},
		{"cp.stat_file", "salt://made/hello"}, {"cp.stat_file", "salt://disk"},
		{"cp.get_file", "salt://made/large", minion.Path("large")}, {"hashutil.digest_file", minion.Path("large")},
		{"cp.get_file", "salt://made/large", minion.Path("large-z"), "gzip=9"}, {"hashutil.digest_file", minion.Path("large-z")},
		{"cp.get_file", "salt://made/binary", minion.Path("binary")}, {"hashutil.digest_file", minion.Path("binary")},
		{"cp.get_dir", "salt://made", minion.Path("tree")}, {"cp.cache_dir", "salt://sub"},
		{"cp.hash_file", "salt://raises"}, {"cp.hash_file", "salt://strange"},
		{"state.apply"}, {"state.single", "file.managed", "name=" + minion.Path("managed"), "source=salt://made/large"},
		{"state.single", "file.recurse", "name=" + minion.Path("recursed"), "source=salt://sub"},
	} {
		rets, err := master.SaltJSON(brine, append([]string{"-t", "120", minion.Name}, args...)...)
		if l, ok := rets[minion.Name].([]any); ok && args[0] == "cp.envs" {
			slices.SortFunc(l, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		text, _ := json.Marshal(rets[minion.Name])
		if err != nil {
			text = []byte(err.Error())
		}
		clean := strings.NewReplacer(minion.Dir, "MINION", tree, "TREE")
		mu.Lock()
		out[clean.Replace(strings.Join(args, " "))] = timed.ReplaceAllString(clean.Replace(string(text)), "")
		mu.Unlock()
	}
	_ = os.Remove(filepath.Join(tree, "target"))
	return out
}

// timed matches what differs between two runs of states.
var timed = regexp.MustCompile(`"(duration|start_time|__run_num__)":("[^"]*"|[\d.]+),?`)

// TestOwnBackendMasterless: salt-call --local uses a file server backend of the user as stock salt-call does.
func TestOwnBackendMasterless(t *testing.T) {
	stockTree(t)
	answers := map[kind]map[string]string{}
	for _, k := range []kind{stock, brine} {
		tree := daemontest.ShortDir(t)
		for name, text := range map[string]string{"backends/own.py": ownBackend, "mine/base/disk": "on disk\n", "mine/dev/disk": "dev\n", "roots/plain": "plain\n"} {
			path := filepath.Join(tree, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		minion := newMinion(t, k, "alone", []string{"127.0.0.1"}, fmt.Sprintf(`
file_client: local
fileserver_backend: [mine, roots]
fileserver_dirs: [%[1]s/backends]
file_roots: {base: [%[1]s/roots]}
file_ignore_glob: ['*.swp']
mine.root: %[1]s/mine
mine.target: %[1]s/target
`, tree))
		answers[k] = map[string]string{}
		for _, call := range []string{
			"cp.list_master", "cp.list_master dev", "cp.get_file_str salt://made/hello", "cp.get_file_str salt://disk", "cp.get_file_str salt://plain",
			"cp.hash_file salt://made/large", "cp.get_file_str salt://updated", "state.apply states.made", "cp.get_file_str salt://nosuch",
		} {
			stdout, stderr, code := minion.Run(k, "salt-call", append([]string{"--local", "--out=json", "--no-color"}, strings.Fields(call)...)...)
			if k == stock {
				stderr = ""
			}
			clean := strings.NewReplacer(minion.Dir, "MINION", tree, "TREE")
			text := clean.Replace(fmt.Sprintf("%d\n%s%s", code, stdout, stderr))
			answers[k][call] = regexp.MustCompile(`(?m)^ *"(duration|start_time)":.*\n`).ReplaceAllString(text, "")
		}
	}
	for call, want := range answers[stock] {
		if got := answers[brine][call]; got != want {
			t.Errorf("%s\n got %s\nwant %s", call, got, want)
		}
	}
}

// ownBackendRunners calls the runners of the file server.
func ownBackendRunners(master *node, k kind, tree string) map[string]string {
	out := map[string]string{}
	for _, args := range [][]string{
		{"fileserver.envs"}, {"fileserver.envs", "backend=mine"}, {"fileserver.file_list"}, {"fileserver.file_list", "saltenv=dev", "backend=mine"},
		{"fileserver.file_list", "backend=roots"}, {"fileserver.dir_list", "backend=mine"}, {"fileserver.empty_dir_list"},
		{"fileserver.symlink_list", "backend=mine"}, {"fileserver.update"}, {"fileserver.clear_cache"}, {"fileserver.lock"},
		{"fileserver.lock", "remote=x*"}, {"fileserver.clear_lock", "remote=x*"}, {"fileserver.update", "backend=mine", "remotes=a,b"},
	} {
		stdout, stderr, code := master.Run(k, "salt-run", append([]string{"--out=json", "--no-color"}, args...)...)
		if k == stock {
			stderr = ""
		}
		out[strings.Join(args, " ")] = strings.ReplaceAll(fmt.Sprintf("%d\n%s%s", code, stdout, stderr), tree, "TREE")
	}
	return out
}
