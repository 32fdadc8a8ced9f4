package pillar

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/internal/base/target"
	"brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/sls/pillar/gitpillar"
	"brine/internal/sls/render"
	"brine/test/gittest"
)

// repository creates a repository with some branches, and returns its
// directory.
func repository(t testing.TB, branches map[string]map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	gittest.Run(t, dir, "init", "--quiet", "--initial-branch=unused", dir)
	for branch, files := range branches {
		gittest.Run(t, dir, "checkout", "--quiet", "--orphan", branch)
		gittest.Run(t, dir, "rm", "-rfq", "--ignore-unmatch", ".")
		put(t, dir, files)
		gittest.Run(t, dir, "commit", "--quiet", "-m", "x")
	}
	return dir
}

func put(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Run(t, dir, "add", "-A")
}

// gitCases are compared with stock Salt. @A@, @B@ and @C@ are repositories.
const gitCases = `[
 {"options": {"ext_pillar": [{"git": ["main @A@"]}], "git_pillar_base": "main"}},
 {"options": {"ext_pillar": [{"git": ["main @A@", {"main @B@": [{"mountpoint": "web/server/"}]}]}], "git_pillar_base": "main"}},
 {"options": {"ext_pillar": [{"git": ["main @A@", {"main @B@": [{"mountpoint": "salt://web/server"}, {"root": "sub"}]}]}], "git_pillar_base": "main"}},
 {"options": {"ext_pillar": [{"git": ["main @A@", "main @C@"]}], "git_pillar_base": "main"}},
 {"options": {"ext_pillar": [{"git": ["main @C@", "main @A@"]}], "git_pillar_base": "main", "git_pillar_includes": false}},
 {"options": {"ext_pillar": [{"git": ["main @C@"]}, {"git": ["main @A@"]}], "git_pillar_base": "main"}},
 {"options": {"ext_pillar": [{"git": ["dev @A@"]}], "git_pillar_base": "main"}},
 {"options": {"ext_pillar": [{"git": ["dev @A@"]}], "git_pillar_base": "main"}, "pillarenv": "dev"},
 {"options": {"ext_pillar": [{"git": ["dev @A@"]}], "git_pillar_base": "main"}, "pillarenv": "base"},
 {"options": {"ext_pillar": [{"git": [{"dev @A@": [{"env": "base"}]}]}], "git_pillar_base": "main"}},
 {"options": {"ext_pillar": [{"git": [{"dev @A@": [{"env": "prod"}]}]}], "git_pillar_base": "main"}, "pillarenv": "prod"},
 {"options": {"ext_pillar": [{"git": [{"main @A@": [{"root": "sub"}]}]}], "git_pillar_base": "main"}},
 {"options": {"ext_pillar": [{"git": [{"main @A@": [{"root": "none"}]}, "main @C@"]}], "git_pillar_base": "main"}},
 {"options": {"ext_pillar": [{"git": ["@A@"]}], "git_pillar_base": "main", "git_pillar_branch": "main"}},
 {"options": {"ext_pillar": [{"git": ["@A@"]}], "git_pillar_base": "main", "git_pillar_branch": "dev", "git_pillar_env": "base"}},
 {"options": {"ext_pillar": [{"git": ["nosuch @A@", "main @C@"]}], "git_pillar_base": "main"}},
 {"options": {"ext_pillar": [{"git": [{"nosuch @A@": [{"fallback": "main"}]}]}], "git_pillar_base": "main"}, "pillarenv": "nosuch"},
 {"options": {"ext_pillar": [{"git": ["__env__ @A@"]}], "git_pillar_base": "main"}},
 {"options": {"ext_pillar": [{"git": ["__env__ @A@"]}], "git_pillar_base": "main"}, "pillarenv": "dev"},
 {"options": {"ext_pillar": [{"git": ["__env__ @A@"]}], "git_pillar_base": "main"}, "saltenv": "dev"},
 {"options": {"ext_pillar": [{"git": [{"__env__ @A@": [{"base": "dev"}]}]}], "git_pillar_base": "main"}},
 {"options": {"ext_pillar": [{"git": [{"__env__ @A@": [{"all_saltenvs": "main"}, {"name": "a"}]}, {"__env__ @B@": [{"mountpoint": "web/server"}, {"fallback": "main"}]}]}], "git_pillar_base": "main"}, "pillarenv": "dev"},
 {"options": {"ext_pillar": [{"git": [{"__env__ @C@": [{"fallback": "main"}]}]}], "git_pillar_base": "main"}, "pillarenv": "dev"},
 {"options": {"ext_pillar": [{"git": ["main @A@", {"main @C@": [{"name": "c"}]}]}], "git_pillar_base": "main", "pillar_source_merging_strategy": "overwrite"}},
 {"options": {"ext_pillar": [{"git": ["main @A@", "main @C@"]}], "git_pillar_base": "main", "pillar_merge_lists": true}},
 {"options": {"ext_pillar": [{"git": ["v1 @A@"]}], "git_pillar_base": "v1"}}
]`

// TestGitAsSalt compiles each pillar and expects the result of stock Salt
// 3007.10; BRINE_RECORD=1 with BRINE_STOCK_SALT records it again.
func TestGitAsSalt(t *testing.T) {
	a := repository(t, map[string]map[string]string{
		"main": {"top.sls": "base:\n  '*': [common, web.server.nginx, from_c]\ndev:\n  '*': [common]\n",
			"common.sls": "who: main\nlist: [a]\nenv: {{ saltenv }}\n", "sub/top.sls": "base:\n  '*': [x]\n", "sub/x.sls": "x: sub\n"},
		"dev": {"top.sls": "base:\n  '*': [common]\ndev:\n  '*': [common, web.server.nginx]\nprod:\n  '*': [common]\n", "common.sls": "who: dev\n"},
	})
	b := repository(t, map[string]map[string]string{"main": {"top.sls": "base:\n  '*': [never]\n", "never.sls": "never: true\n", "nginx.sls": "nginx: top\n",
		"sub/nginx.sls": "nginx: sub\n"}})
	c := repository(t, map[string]map[string]string{"main": {"top.sls": "base:\n  '*': [own]\ndev:\n  '*': [own]\n", "own.sls": "own: c\nwho: c\nlist: [c]\n",
		"from_c.sls": "from_c: 1\n"}})
	gittest.Run(t, a, "tag", "v1", "main")
	text := strings.NewReplacer("@A@", "file://"+a, "@B@", "file://"+b, "@C@", "file://"+c).Replace(gitCases)
	if stock := os.Getenv("BRINE_STOCK_SALT"); stock != "" && os.Getenv("BRINE_RECORD") != "" {
		cmd := exec.Command("/usr/bin/python3", "-W", "ignore", "testdata/record_git.py")
		cmd.Env, cmd.Stdin = append(os.Environ(), "PYTHONPATH="+stock), strings.NewReader(text)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, stderr.String())
		}
		if err := os.WriteFile("testdata/git.json", append(out, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	v, err := json.Load(text)
	if err != nil {
		t.Fatal(err)
	}
	cases, want := v.(*value.List).Items, readList(t, "testdata/git.json")
	if len(cases) != len(want) {
		t.Fatalf("%d cases, %d recorded", len(cases), len(want))
	}
	cache := t.TempDir()
	for i, it := range cases {
		c := it.(*value.Dict)
		opts := value.DictOf("renderer", "jinja|yaml", "pillar_roots", value.DictOf("base", value.ListOf(cache+"/none")))
		opts.Update(c.Dict("options"))
		p, _ := gitCompiler(t, opts, fmt.Sprint(cache, "/", i))
		got, err := p.Compile(t.Context(), Request{ID: "web1", Grains: value.DictOf("id", "web1"), Saltenv: c.Str("saltenv"), Pillarenv: c.Str("pillarenv")})
		if err != nil {
			t.Fatal(err)
		}
		// Of the errors of several repositories, Salt keeps one, as the merging strategy
		// decides. Brine keeps all.
		faults, salts := value.Texts(got.At("_errors")), value.Texts(want[i].(*value.Dict).At("_errors"))
		lost := slices.ContainsFunc(salts, func(f string) bool { return !slices.Contains(faults, f) }) || (len(faults) > 0) != (len(salts) > 0)
		got.Delete("_errors")
		want[i].(*value.Dict).Delete("_errors")
		if lost || !value.Equal(plain(got, "ROOT"), plain(want[i], "ROOT")) {
			t.Errorf("%s\n got %s\nSalt %s\n%q\n%q", value.Repr(c), value.Repr(got), value.Repr(want[i]), faults, salts)
		}
	}
}

func gitCompiler(t testing.TB, opts *value.Dict, cache string) (*Compiler, *gitpillar.Source) {
	t.Helper()
	var o gitpillar.Options
	cfg := Config{Renderer: render.New(render.Options{}), Opts: opts, Nodegroups: target.Nodegroups{}, CacheDir: cache}
	fill(t, &cfg.Options, opts)
	fill(t, &cfg.Top, opts)
	fill(t, &o, opts)
	s := gitpillar.New(o, gitpillar.Config{CacheDir: cache, HashType: "sha256"})
	cfg.Git = s
	return New(cfg), s
}

// TestGitFaults checks that a repository that becomes unreachable leaves the pillar
// unchanged, and that one that was never fetched is an error of the pillar.
func TestGitFaults(t *testing.T) {
	a := repository(t, map[string]map[string]string{"main": {"top.sls": "base:\n  '*': [x]\n", "x.sls": "x: 1\n"}})
	cache := t.TempDir()
	opts := value.DictOf("renderer", "jinja|yaml", "git_pillar_base", "main", "ext_pillar", value.ListOf(value.DictOf("git", value.ListOf("main file://"+a))))
	p, s := gitCompiler(t, opts, cache)
	made := func(p *Compiler) string {
		got, err := p.Compile(t.Context(), Request{ID: "web1"})
		if err != nil {
			t.Fatal(err)
		}
		return value.Repr(got)
	}
	if got := made(p); got != "{'x': 1}" {
		t.Fatal(got)
	}
	put(t, a, map[string]string{"x.sls": "x: 2\n"})
	gittest.Run(t, a, "commit", "--quiet", "-m", "x")
	if got, _, err := s.Update(t.Context(), "", ""); err != nil || value.Repr(got) != "{'main file://"+a+"': True}" {
		t.Error(value.Repr(got), err)
	}
	if got, _, err := s.Update(t.Context(), "main", "file://"+a); err != nil || value.Repr(got) != "{'main file://"+a+"': None}" {
		t.Error(value.Repr(got), err)
	}
	if got := made(p); got != "{'x': 2}" {
		t.Error(got)
	}
	if err := os.Rename(a, a+".away"); err != nil {
		t.Fatal(err)
	}
	if got, _, err := s.Update(t.Context(), "", ""); err == nil || value.Repr(got) != "{'main file://"+a+"': False}" {
		t.Error(value.Repr(got), err)
	}
	again, _ := gitCompiler(t, opts, cache)
	if got := made(again); got != "{'x': 2}" {
		t.Error(got)
	}
	none, _ := gitCompiler(t, opts, t.TempDir())
	if got := made(none); !strings.Contains(got, "_errors") || !strings.Contains(got, a) {
		t.Error(got)
	}
}
