package gitfs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"brine/internal/base/field"
	"brine/internal/files/fileserver"
	"brine/internal/files/gitrepo"
	sjson "brine/internal/py/json"
	"brine/internal/py/value"
	"brine/test/gittest"
)

// sample creates the repository for all configurations, and returns its URL
// and the commit of its tag v1.
func sample(t testing.TB) (url, v1 string) {
	t.Helper()
	base := t.TempDir()
	dir, sub := filepath.Join(base, "work"), filepath.Join(base, "sub")
	gittest.Run(t, base, "init", "--quiet", "--initial-branch=main", sub)
	gittest.Write(t, sub, map[string]string{"in-sub": "s"})
	gittest.Run(t, sub, "add", "-A")
	gittest.Run(t, sub, "commit", "--quiet", "-m", "x")
	gittest.Run(t, base, "init", "--quiet", "--initial-branch=main", dir)
	gittest.Write(t, dir, map[string]string{"top.sls": "main\n", "web/init.sls": "web\n", "web/files/conf": "conf\n", "salt/nested/deep/x.sls": "x\n",
		"run.sh": "#!/bin/sh\n"})
	if err := os.Chmod(dir+"/run.sh", 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"link": "web/init.sls", "web/up": "../top.sls", "dirlink": "web", "dangling": "none", "loop1": "loop2",
		"loop2": "loop1", "out": "../../../etc/passwd"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Run(t, dir, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "--name", "sub", sub, "mod")
	// The URL of the submodule differs in each run, but the commits must not.
	gittest.Write(t, dir, map[string]string{".gitmodules": "[submodule \"sub\"]\n\tpath = mod\n\turl = /nowhere\n"})
	gittest.Run(t, dir, "add", "-A")
	gittest.Run(t, dir, "commit", "--quiet", "-m", "x")
	gittest.Run(t, dir, "tag", "v1")
	gittest.Run(t, dir, "tag", "-a", "-m", "annotated", "v1a")
	v1 = gittest.Run(t, dir, "rev-parse", "HEAD")
	gittest.Run(t, dir, "checkout", "--quiet", "-b", "dev")
	gittest.Write(t, dir, map[string]string{"web/init.sls": "dev\n", "dev-only": "d\n"})
	gittest.Run(t, dir, "add", "-A")
	gittest.Run(t, dir, "commit", "--quiet", "-m", "x")
	gittest.Run(t, dir, "checkout", "--quiet", "-b", "feature/one")
	gittest.Write(t, dir, map[string]string{"one": "1\n"})
	gittest.Run(t, dir, "add", "-A")
	gittest.Run(t, dir, "commit", "--quiet", "-m", "x")
	gittest.Run(t, dir, "branch", "v1", "dev") // a branch with the same name as a tag
	url = filepath.Join(base, "origin.git")
	gittest.Run(t, base, "clone", "--quiet", "--bare", dir, url)
	return "file://" + url, v1
}

// configurations are compared with stock Salt. @URL@ stands for the URL, @SHA@
// for a commit.
const configurations = `[
 {"gitfs_remotes": ["@URL@"], "gitfs_base": "main"},
 {"gitfs_remotes": ["@URL@"]},
 {"gitfs_remotes": ["@URL@"], "gitfs_base": "v1a"},
 {"gitfs_remotes": ["@URL@"], "gitfs_base": "@SHA@"},
 {"gitfs_remotes": [{"@URL@": [{"base": "dev"}, {"root": "web"}]}]},
 {"gitfs_remotes": [{"@URL@": [{"base": "main"}, {"mountpoint": "salt://a/b"}, {"root": "salt/nested"}]}]},
 {"gitfs_remotes": [{"@URL@": [{"base": "main"}, {"root": "web/files/conf"}]}]},
 {"gitfs_remotes": [{"@URL@": [{"base": "main"}, {"root": "no/such"}, {"mountpoint": "m"}]}]},
 {"gitfs_remotes": [{"@URL@": [{"ref_types": ["tag"]}, {"base": "v1"}]}]},
 {"gitfs_remotes": [{"@URL@": [{"ref_types": ["tag", "branch"]}, {"base": "main"}]}]},
 {"gitfs_remotes": [{"@URL@": [{"ref_types": "sha"}, {"base": "main"}]}]},
 {"gitfs_remotes": ["@URL@"], "gitfs_base": "main", "gitfs_saltenv_whitelist": ["base", "d.*", "feature/*"]},
 {"gitfs_remotes": ["@URL@"], "gitfs_base": "main", "gitfs_saltenv_blacklist": ["v*"]},
 {"gitfs_remotes": ["@URL@"], "gitfs_base": "main", "gitfs_saltenv_whitelist": ["base", "dev"], "gitfs_saltenv_blacklist": ["de."]},
 {"gitfs_remotes": [{"@URL@": [{"base": "main"}, {"all_saltenvs": "dev"}]}]},
 {"gitfs_remotes": [{"@URL@": [{"base": "main"}, {"disable_saltenv_mapping": true}]}]},
 {"gitfs_remotes": [{"@URL@": [{"base": "main"}, {"disable_saltenv_mapping": true}, {"saltenv": [{"prod": [{"ref": "v1a"}, {"root": "web"}]}, {"qa": [{"ref": "dev"}, {"mountpoint": "salt://q"}]}]}]}]},
 {"gitfs_remotes": [{"@URL@": [{"saltenv": [{"base": [{"ref": "dev"}]}]}]}]},
 {"gitfs_remotes": ["@URL@"], "gitfs_base": "main", "gitfs_saltenv": [{"prod": [{"ref": "dev"}]}, {"dev": [{"mountpoint": "salt://dd"}]}]},
 {"gitfs_remotes": [{"@URL@": [{"base": "main"}, {"fallback": "main"}]}]},
 {"gitfs_remotes": ["@URL@"], "gitfs_base": "main", "gitfs_fallback": "dev", "gitfs_saltenv_whitelist": "base,prod"},
 {"gitfs_remotes": [{"@URL@": [{"base": "dev"}, {"name": "one"}, {"mountpoint": "x"}]}, "@URL@"], "gitfs_base": "main"},
 {"gitfs_remotes": [{"@URL@": [{"base": "main"}, {"refspecs": ["+refs/heads/main:refs/remotes/origin/main"]}]}]}
]`

// asked returns the environments and paths that are requested.
func asked(sha string) map[string][]string {
	return map[string][]string{
		"envs": {"base", "main", "dev", "feature/one", "feature", "v1", "v1a", "prod", "qa", "none", sha},
		"paths": {
			"top.sls", "web/init.sls", "init.sls", "run.sh", "link", "web/up", "up", "dirlink", "dirlink/init.sls", "dangling", "loop1", "out", "mod",
			"mod/in-sub", "web", "dev-only", "one", "q/top.sls", "dd/top.sls",
			"a/b/deep/x.sls", "deep/x.sls", "x/top.sls", "m/top.sls", "files/conf", "../top.sls",
		},
	}
}

// options parses a configuration as the master does.
func options(t testing.TB, conf *value.Dict) Options {
	t.Helper()
	var o Options
	if err := field.Defaults(&o); err != nil {
		t.Fatal(err)
	}
	fields, err := field.Of(reflect.TypeFor[Options]())
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range conf.All() {
		i := slices.IndexFunc(fields, func(f field.Field) bool { return f.Name == k })
		if i < 0 {
			t.Fatalf("there is no option %v", k)
		}
		if err := fields[i].Set(reflect.ValueOf(&o).Elem(), v); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// answers queries our file server as stock.py queries Salt's.
func answers(t testing.TB, conf *value.Dict, ask map[string][]string) map[string]any {
	t.Helper()
	srv, _ := server(t, conf, t.TempDir())
	if _, err := srv.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := map[string]any{"envs": append([]string{}, srv.Envs()...)}
	for _, env := range ask["envs"] {
		request := func(cmd string, pairs ...any) any {
			load := value.DictOf(append([]any{"cmd", cmd, "saltenv", env, "prefix", ""}, pairs...)...)
			v, err := srv.Request(t.Context(), load)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		found := map[string]any{}
		for _, path := range ask["paths"] {
			f := request("_file_find", "path", path).(*value.Dict)
			if f.Str("path") == "" {
				continue
			}
			b, err := os.ReadFile(f.Str("path"))
			if err != nil {
				t.Fatal(err)
			}
			found[path] = []any{f.Str("rel"), plain(f.At("stat")), string(b)}
		}
		out[env] = map[string]any{
			"files": plain(request("_file_list")), "dirs": plain(request("_dir_list")), "links": plain(request("_symlink_list")),
			"empty": plain(request("_file_list_emptydirs")), "found": found,
		}
	}
	return out
}

func plain(v any) any {
	text, err := sjson.Dump(v, sjson.Format{})
	if err != nil {
		panic(err)
	}
	var out any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		panic(err)
	}
	return out
}

func server(t testing.TB, conf *value.Dict, cache string) (*fileserver.Server, *FS) {
	t.Helper()
	fs, err := New(options(t, conf), Config{Name: "gitfs", CacheDir: cache, HashType: "sha256"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fs.close)
	return fileserver.New(fileserver.Options{Backends: []string{"gitfs"}},
		fileserver.Config{CacheDir: cache, HashType: "sha256", More: map[string]func(string) (fileserver.Backend, error){
			"gitfs": func(string) (fileserver.Backend, error) { return fs, nil },
		}}, fs.log), fs
}

// close ends the processes that read the copies.
func (f *FS) close() {
	for _, r := range f.remotes {
		r.clone.Close()
	}
}

// TestAsSalt compares with the recorded answers of stock Salt 3007.10;
// BRINE_RECORD=1 with BRINE_STOCK_SALT records them again.
func TestAsSalt(t *testing.T) {
	t.Parallel()
	url, sha := sample(t)
	ask := asked(sha)
	text := strings.ReplaceAll(configurations, "@SHA@", sha)
	recording := filepath.Join("testdata", "stock.json")
	if stock := os.Getenv("BRINE_STOCK_SALT"); stock != "" && os.Getenv("BRINE_RECORD") != "" {
		record(t, stock, recording, url, text, ask)
	}
	b, err := os.ReadFile(recording)
	if err != nil {
		t.Fatal(err)
	}
	var want []map[string]any
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	v, err := sjson.Load(strings.ReplaceAll(text, "@URL@", url))
	if err != nil {
		t.Fatal(err)
	}
	for i, conf := range v.(*value.List).Items {
		var got map[string]any
		b, err := json.Marshal(answers(t, conf.(*value.Dict), ask))
		if err == nil {
			err = json.Unmarshal(b, &got)
		}
		if err != nil {
			t.Fatal(err)
		}
		for key, w := range want[i] {
			// For an environment that only exists by a fallback, Salt lists
			// the files, but not which of them are links. Brine lists these,
			// too.
			if e, ok := w.(map[string]any); ok && len(e["files"].([]any)) > 0 && !slices.Contains(want[i]["envs"].([]any), any(key)) && key != sha {
				e["links"] = got[key].(map[string]any)["links"]
			}
			if !reflect.DeepEqual(got[key], w) {
				g, _ := json.Marshal(got[key])
				s, _ := json.Marshal(w)
				t.Errorf("%s\n%s\n got %s\nSalt %s", value.Repr(conf), key, g, s)
			}
		}
	}
}

func record(t *testing.T, stock, file, url, text string, ask map[string][]string) {
	t.Helper()
	a, err := json.Marshal(ask)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/usr/bin/python3", "-W", "ignore", "testdata/stock.py")
	c.Env = append(os.Environ(), "PYTHONPATH="+stock)
	c.Stdin = strings.NewReader(fmt.Sprintf("[%q, %s, %s]", url, text, a))
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	if err := os.WriteFile(file, append(out, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestWrongConfigurations(t *testing.T) {
	for _, text := range []string{
		`{"gitfs_remotes": "x"}`, `{"gitfs_remotes": [7]}`, `{"gitfs_remotes": [{"/x": null}]}`, `{"gitfs_remotes": [{"/x": [{"nosuch": 1}]}]}`,
		`{"gitfs_remotes": ["--upload-pack=x"]}`,
		`{"gitfs_remotes": ["/x", "/x"]}`, `{"gitfs_remotes": [{"/x": [{"ref_types": ["blob"]}]}]}`, `{"gitfs_remotes": [{"/x": [{"name": "../x"}]}]}`,
		`{"gitfs_remotes": [{"https://h/x": [{"user": "u"}]}]}`,
		`{"gitfs_remotes": [{"http://h/x": [{"user": "u"}, {"password": "p"}]}]}`, `{"gitfs_remotes": ["ext::sh -c x"]}`,
		`{"gitfs_remotes": [{"/x": [{"update_interval": "soon"}]}]}`, `{"gitfs_remotes": [{"/x": [{"update_interval": -1}]}]}`,
		`{"gitfs_remotes": [{"/x": [{"ssl_verify": "no"}]}]}`, `{"gitfs_remotes": [{"/x": [{"saltenv": [{"dev": [{"reff": "x"}]}]}]}]}`,
		`{"gitfs_saltenv": [{"dev": [{"reff": "x"}]}], "gitfs_remotes": ["/x"]}`,
	} {
		v, err := sjson.Load(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(options(t, v.(*value.Dict)), Config{Name: "gitfs", CacheDir: t.TempDir(), HashType: "sha256"}); err == nil {
			t.Errorf("%s is taken", text)
		} else if strings.Contains(err.Error(), "panic") {
			t.Error(err)
		}
	}
}

// TestContents checks that equal contents are one file, and that a damaged
// content is created again.
func TestContents(t *testing.T) {
	t.Parallel()
	url, _ := sample(t)
	cache := t.TempDir()
	srv, _ := server(t, value.DictOf("gitfs_remotes", value.ListOf(url), "gitfs_base", "main"), cache)
	if _, err := srv.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, ok := srv.Find("top.sls", "base")
	b, ok2 := srv.Find("top.sls", "dev")
	if !ok || !ok2 || a.Path != b.Path {
		t.Error(a, b)
	}
	if err := os.WriteFile(a.Path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if again, _ := srv.Find("top.sls", "base"); again.Path != a.Path {
		t.Error(again)
	}
	if text, err := os.ReadFile(a.Path); err != nil || string(text) != "main\n" {
		t.Error(string(text), err)
	}
}

// TestFetcher tests the runner's functions: locks, the cache, and the status
// of remotes.
func TestFetcher(t *testing.T) {
	t.Parallel()
	url, sha := sample(t)
	cache := t.TempDir()
	srv, fs := server(t, value.DictOf("gitfs_remotes", value.ListOf(value.DictOf(url, value.ListOf(value.DictOf("name", "one")))), "gitfs_base", "main"),
		cache)
	if done, failed := fs.Lock("https:*"); len(done)+len(failed) != 0 {
		t.Error(done, failed)
	}
	done, failed := fs.Lock("*origin*")
	if want := fmt.Sprintf("[Set update lock for gitfs remote '%s' on machine_id '%s']", url, gitrepo.MachineID()); fmt.Sprint(done) != want ||
		len(failed) > 0 {
		t.Error(done, failed)
	}
	if _, failed := fs.Lock(""); len(failed) != 1 {
		t.Error("it was locked twice")
	}
	if c, any, err := fs.Due(t.Context(), true); err != nil || !any || c.Any || len(srv.Envs()) > 0 {
		t.Error("a locked remote was fetched", c, err)
	}
	done, _ = fs.ClearLock("", "update")
	if want := fmt.Sprintf("[Removed update lock for gitfs remote '%s' on machine_id '%s']", url, gitrepo.MachineID()); fmt.Sprint(done) != want {
		t.Error(done)
	}
	if done, failed := fs.ClearLock("", "update"); len(done)+len(failed) != 0 {
		t.Error(done, failed)
	}
	for _, names := range [][]string{{"one"}, {url}} {
		if c, err := srv.UpdateOnly(t.Context(), names); err != nil || len(c) != 1 {
			t.Error(c, err)
		}
	}
	if _, err := srv.UpdateOnly(t.Context(), []string{"two"}); err == nil {
		t.Error("a remote that there is none of was updated")
	}
	d := fs.Remotes().Dict(url)
	if d.At("error") != nil || d.Dict("commits").Str("main") != sha || d.Dict("commits").Str("tags/v1a") != sha || d.Str("name") != "one" ||
		len(srv.Envs()) == 0 {
		t.Error(value.Repr(d))
	}
	if failed := fs.ClearCache(); len(failed) > 0 || len(srv.Envs()) > 0 {
		t.Error(failed, srv.Envs())
	}
	if _, err := os.Stat(filepath.Join(cache, "gitfs")); !os.IsNotExist(err) {
		t.Error(err)
	}
	if _, any, err := fs.Due(t.Context(), true); err != nil || !any || len(srv.Envs()) == 0 {
		t.Error("it is not fetched again", err)
	}
	if _, any, _ := fs.Due(t.Context(), true); any {
		t.Error("it is fetched again at once")
	}
}

// TestFaults checks that an error is reported once, and its end once. The
// files must still be served, also by a process that starts meanwhile.
func TestFaults(t *testing.T) {
	t.Parallel()
	url, _ := sample(t)
	path := strings.TrimPrefix(url, "file://")
	cache := t.TempDir()
	conf := value.DictOf("gitfs_remotes", value.ListOf(url), "gitfs_base", "main")
	srv, _ := server(t, conf, cache)
	if _, err := srv.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	srv, fs := server(t, conf, cache)
	c, err := srv.Update(t.Context())
	if err == nil || len(c) != 1 || !strings.Contains(c[0].Faults[url], path) {
		t.Error(c, err)
	}
	if c, err = srv.Update(t.Context()); err == nil || len(c[0].Faults) > 0 {
		t.Error("a fault is told again", c, err)
	}
	if fs.Remotes().Dict(url).Str("error") == "" {
		t.Error("the runner does not tell what is wrong")
	}
	if f, ok := srv.Find("web/files/conf", "base"); !ok {
		t.Error("a file is served no more that was never asked for before", f)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	c, err = srv.Update(t.Context())
	if text, ok := c[0].Faults[url]; err != nil || !ok || text != "" {
		t.Error("the end of a fault is not told", c, err)
	}
}
