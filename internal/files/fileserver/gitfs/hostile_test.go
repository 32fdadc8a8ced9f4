package gitfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"brine/internal/py/value"
	"brine/test/gittest"
)

// tree lists everything below a directory.
func tree(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		out = append(out, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestHostileEnvironments uses environment and file names that are paths, which
// minions can choose. Nothing must be served, created or deleted for them.
func TestHostileEnvironments(t *testing.T) {
	t.Parallel()
	url, _ := sample(t)
	top := t.TempDir()
	cache := filepath.Join(top, "a", "b", "cache")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(top, "a", "victim")
	gittest.Write(t, victim, map[string]string{"keep": "me\n"})
	srv, _ := server(t, value.DictOf("gitfs_remotes", value.ListOf(url), "gitfs_base", "main"), cache)
	if _, err := srv.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := srv.Find("top.sls", "base"); !ok {
		t.Fatal("nothing is served")
	}
	before := tree(t, top)
	for _, env := range []string{"..", "../..", "../../..", "../../../victim", victim, "/", "base/../..", "main", "dev/../../..", "\x00", "-x",
		"--upload-pack=touch /tmp/x", "refs/heads/main", "HEAD", "main:top.sls", "main^{tree}", ""} {
		for _, path := range []string{"keep", "top.sls", "../keep", "../../victim/keep", victim + "/keep", "../top.sls", "web/../../../victim/keep", "-x",
			"\x00"} {
			if env == "main" && path == "top.sls" {
				continue // not hostile, only another name than base
			}
			if f, ok := srv.Find(path, env); ok {
				t.Errorf("%q in %q: %v", path, env, f)
			}
			for _, cmd := range []string{"_file_find", "_file_hash", "_serve_file", "_file_list", "_dir_list", "_symlink_list", "_file_hash_and_stat"} {
				srv.Request(t.Context(), value.DictOf("cmd", cmd, "path", path, "saltenv", env, "tgt_env", env, "loc", 0, "prefix", path))
			}
		}
	}
	if after := tree(t, top); !slices.Equal(before, after) {
		t.Errorf("files were made or deleted:\n%q\n%q", before, after)
	}
}

// TestRepositoriesOfOneName checks that two repositories whose URLs end alike
// are distinct.
func TestRepositoriesOfOneName(t *testing.T) {
	t.Parallel()
	base, cache := t.TempDir(), t.TempDir()
	var urls []any
	for _, who := range []string{"one", "two"} {
		dir := filepath.Join(base, who, "same.git")
		if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
			t.Fatal(err)
		}
		gittest.Run(t, base, "init", "--quiet", "--initial-branch=main", dir)
		gittest.Write(t, dir, map[string]string{"only-" + who: who, "both": who})
		gittest.Run(t, dir, "add", "-A")
		gittest.Run(t, dir, "commit", "--quiet", "-m", "x")
		urls = append(urls, "file://"+dir)
	}
	// The second one serves another environment.
	srv,
		_ := server(t, value.DictOf("gitfs_remotes",
		value.ListOf(urls[0], value.DictOf(urls[1].(string), value.ListOf(value.DictOf("base", "none"),
			value.DictOf("saltenv", value.ListOf(value.DictOf("other", value.ListOf(value.DictOf("ref", "main")))))))), "gitfs_base", "main"), cache)
	if _, err := srv.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	for env, who := range map[string]string{"base": "one", "other": "two"} {
		f, ok := srv.Find("both", env)
		b, err := os.ReadFile(f.Path)
		if !ok || err != nil || string(b) != who {
			t.Errorf("both in %s: %q, %v", env, b, err)
		}
		if _, ok := srv.Find("only-"+map[string]string{"one": "two", "two": "one"}[who], env); ok {
			t.Errorf("%s serves the other repository's file", env)
		}
	}
}
