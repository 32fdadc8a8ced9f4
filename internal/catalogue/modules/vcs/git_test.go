package vcs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/base/log/redact"
	"brine/internal/call/fn"
	"brine/internal/call/fn/fntest"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/host"
	gitcmd "brine/internal/host/git"
	"brine/internal/py/value"
	_ "brine/test/gittest" // clears git's environment variables
	"brine/test/tools"
)

func TestCatalogue(t *testing.T) { fntest.Catalogue(t, Modules(&host.Machine{})) }

const signatures = "testdata/signatures.json"

func TestSignatures(t *testing.T) { stocktest.Signatures(t, signatures, Modules(&host.Machine{}), nil) }

func TestRecordingIsTrue(t *testing.T) { stocktest.Verify(t, signatures) }

// repository creates a repository with two commits, a branch and a tag.
func repository(t *testing.T) string {
	t.Helper()
	tools.Need(t, "git", "git")
	dir := filepath.Join(t.TempDir(), "origin")
	script := `set -e; git init -q -b main "$1"; cd "$1"; git config user.email a@b; git config user.name n
		echo 1 > f; git add f; git commit -q -m one; git tag v1; git branch side; echo 2 > f; git commit -q -a -m two; git tag v2`
	cmd := exec.Command("sh", "-c", script, "sh", dir)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_DATE=2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2026-01-01T00:00:00Z")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// TestLikeSalt uses a clone of one repository with Salt and with Brine.
func TestLikeSalt(t *testing.T) {
	origin := repository(t)
	t.Setenv("HOME", "/") // as in the recording: without the user's git configuration
	jobs := func(dir string) [][]any {
		d := dir + "/w"
		return [][]any{
			{"git.clone", d, origin}, {"git.clone", d, origin}, {"git.clone", dir, origin, "named"}, {"git.current_branch", d}, {"git.revision", d},
			{"git.revision", d, "v1", "short=True"}, {"git.revision", d, "nothing"},
			{"git.rev_parse", d, "HEAD~1"}, {"git.list_tags", d}, {"git.list_branches", d}, {"git.list_branches", d, "remote=True"}, {"git.describe", d},
			{"git.remotes", d}, {"git.remote_get", d}, {"git.remote_get", d, "none"},
			{"git.checkout", d, "v1", "opts=-b old"}, {"git.checkout", d}, {"git.branch", d, "more"}, {"git.status", d},
			{"git.config_set", "user.email", "x@y", "cwd=" + d},
			{"git.config_set", "a.b", "cwd=" + d, "multivar=[p, q]"}, {"git.config_get", "a.b", d}, {"git.config_get", "a.b", d, "all=True"},
			{"git.config_get", "a.none", d}, {"git.config_set", "user.name", "N", "cwd=" + d},
			{"git.config_unset", "a.b", "cwd=" + d}, {"git.config_unset", "a.b", "cwd=" + d, "all=True"}, {"git.config_unset", "a.c", "cwd=" + d},
			{"git.tag", d, "t1", "message=words"}, {"git.reset", d, "opts=--hard HEAD"}, {"git.fetch", d}, {"git.is_worktree", d}, {"git.is_worktree", dir},
			{"git.ls_remote", d, "origin", "main"}, {"git.remote_refs", origin, "heads=True"},
			{"git.remote_set", d, "https://example.com/x.git", "up", "https_user=u", "https_pass=p"}, {"git.remotes", d},
			{"git.version"}, {"git.version", true}, {"git.merge", d, "origin/main"}, {"git.pull", d, "opts=origin main"},
			{"git.init", dir + "/bare", "bare=True"}, {"git.add", d, "f"}, {"git.rm", d, "nothing"},
			{"git.config_get_regexp", `user\..*`, "cwd=" + d}, {"git.config_get_regex", `user\..*`, "@", "cwd=" + d},
			{"git.config_get_regexp", "nothing.at.all", "cwd=" + d}, {"git.config_get_regexp", "x"}, {"git.config_get_regexp", "x", "cwd=" + d, "more=1"},
			{"git.archive", d, dir + "/a.tar", "prefix=p"}, {"git.archive", d, dir + "/b.tar", "none"},
			{"git.archive", d, dir + "/c.zip", "v1", "format=zip"}, {"git.archive", d, dir + "/c.zip", "v1", "level=1"},
			{"git.diff", d, "v1", "v2"}, {"git.diff", d, "v1", "v2", "paths=none,f", "opts=--stat"}, {"git.diff", d, "nothing"},
			{"git.diff", d, "no_index=True", "cached=True"},
			{"git.diff", d, "no_index=True", "paths=[f, .git/HEAD]"}, {"git.diff", d, "cached=True"},
			{"git.discard_local_changes", d, "f"}, {"git.discard_local_changes", d, "none"},
			{"git.merge_base", d, "refs=v1,v2"}, {"git.merge_base", d, "refs=[v2, v1]", "all=True"}, {"git.merge_base", d, "refs=v1,v2", "is_ancestor=True"},
			{"git.merge_base", d, "refs=v2,v1", "is_ancestor=True"},
			{"git.merge_base", d, "refs=v1", "is_ancestor=True"}, {"git.merge_base", d, "refs=v1,v2", "octopus=True", "independent=True"},
			{"git.merge_base", d, "refs=v1,v2", "independent=True"}, {"git.merge_base", d, "fork_point=origin/main"},
			{"git.merge_base", d, "refs=v1,v2", "fork_point=v1"}, {"git.merge_base", d, "refs=v1,nothing"},
			{"git.merge_base", d, "refs=v1,v2", "all=True", "independent=True"},
			{"git.merge_tree", d, "v1", "v2"}, {"git.merge_tree", d, "v1", "nothing"}, {"git.merge_tree", d, "v1", "v2", "v1"},
			{"git.symbolic_ref", d, "HEAD"}, {"git.symbolic_ref", d, "none"}, {"git.symbolic_ref", d, "HEAD", "x", "opts=-d"},
			{"git.stash", d}, {"git.stash", d, "list"}, {"git.rebase", d, "v1"}, {"git.rebase", d, "v1", "opts=-i"}, {"git.rebase", d, "nothing"},
			{"git.worktree_add", d, dir + "/tree", "ref=v1"}, {"git.worktree_add", d, dir + "/tree", "ref=v1"},
			{"git.worktree_add", d, dir + "/loose", "v1", "detach=True"}, {"git.worktree_add", d, dir + "/loose", "detach=True", "branch=b"},
			{"git.list_worktrees", d}, {"git.list_worktrees", d, "all=True", "stale=True"}, {"git.worktree_rm", dir + "/tree"},
			{"git.worktree_rm", dir + "/tree"}, {"git.worktree_rm", d},
			{"git.list_worktrees", d, "stale=True"}, {"git.list_worktrees", d, "all=True"}, {"git.worktree_prune", d, "dry_run=True"},
			{"git.worktree_prune", d}, {"git.list_worktrees", d, "all=True"},
		}
	}
	theirs, ours := t.TempDir(), t.TempDir()
	recorded := stocktest.Ask(t, nil, jobs(theirs)...)
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	for i, job := range jobs(ours) {
		args := make([]any, 0, len(job))
		for _, a := range job[1:] {
			args = append(args, value.From(a))
		}
		got := strings.ReplaceAll(value.Repr(r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: job[0].(string), Arg: args}).Return), ours, theirs)
		if want := value.Repr(recorded[i].At("return")); got != want {
			t.Errorf("%v: returns %s\nSalt: %s", job, got, want)
		}
	}
}

func TestSecretsStayHidden(t *testing.T) {
	if got := redact.Text("fatal: https://me:secret@example.com/x and http://t@y/z"); strings.Contains(got, "secret") || strings.Contains(got, "t@y") {
		t.Error(got)
	}
	if url, err := gitcmd.WithPassword("https://example.com/x", "me", "p@ss/"); err != nil || url != "https://me:p%40ss%2F@example.com/x" {
		t.Errorf("%s, %v", url, err)
	}
	if _, err := gitcmd.WithPassword("http://example.com/x", "me", "p"); err == nil {
		t.Error("a password is sent in clear")
	}
}

// TestSeldomNeeded runs the functions of TestLikeSalt without Salt.
func TestSeldomNeeded(t *testing.T) {
	origin := repository(t)
	t.Setenv("HOME", "/")
	dir := t.TempDir()
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	call := func(fun string, args ...any) any {
		return r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "git." + fun, Arg: args}).Return
	}
	one, two := value.Str(call("revision", origin, "v1")), value.Str(call("revision", origin, "v2"))
	tree := dir + "/tree"
	for _, c := range []struct {
		want any
		fun  string
		args []any
	}{
		{one, "merge_base", []any{origin, "refs=v1,v2"}},
		{true, "merge_base", []any{origin, "refs=v1,v2", "is_ancestor=true"}},
		{false, "merge_base", []any{origin, "refs=v2,v1", "is_ancestor=true"}},
		{value.DictOf("user.email", value.ListOf("a@b"), "user.name", value.ListOf("n")), "config_get_regexp", []any{"user[.]", "cwd=" + origin}},
		{true, "archive", []any{origin, dir + "/a.tar"}},
		{"refs/heads/main", "symbolic_ref", []any{origin, "HEAD"}},
		{"", "symbolic_ref", []any{origin, "MINE", "refs/heads/side"}},
		{"refs/heads/side", "symbolic_ref", []any{origin, "MINE"}},
		{"No local changes to save", "stash", []any{origin}},
		{"Preparing worktree (new branch 'tree')\nHEAD is now at " + one[:7] + " one", "worktree_add", []any{origin, tree, "v1"}},
		{value.DictOf(origin, value.DictOf("stale", false, "HEAD", two, "detached", false, "branch", "main"),
			tree, value.DictOf("stale", false, "HEAD", one, "detached", false, "branch", "tree")), "list_worktrees", []any{origin}},
		{"ERROR: Command 'git checkout -- none' failed: error: pathspec 'none' did not match any file(s) known to git", "discard_local_changes",
			[]any{tree, "none"}},
		{true, "worktree_rm", []any{tree}},
		{value.DictOf(tree, value.DictOf("stale", true, "HEAD", one, "detached", false, "branch", "tree")), "list_worktrees", []any{origin, "stale=true"}},
		{"Removing worktrees/tree: gitdir file points to non-existent location", "worktree_prune", []any{origin}},
		{"", "diff", []any{origin, "v1", "side"}},
		{"ERROR: Unable to determine merge base for v1 and none", "merge_tree", []any{origin, "v1", "none"}},
		{"ERROR executing 'git.rebase': Interactive rebases are not supported", "rebase", []any{origin, "v1", "opts=--interactive"}},
	} {
		if got := call(c.fun, c.args...); !value.Equal(got, c.want) {
			t.Errorf("%s %q: returns %s, want %s", c.fun, c.args, value.Repr(got), value.Repr(c.want))
		}
	}
	if st, err := os.Stat(dir + "/a.tar"); err != nil || st.Size() == 0 {
		t.Errorf("the archive: %v", err)
	}
}

// TestRevisionsAreNoOptions: git would take these revisions for options that write a file or run a program.
func TestRevisionsAreNoOptions(t *testing.T) {
	origin := repository(t)
	t.Setenv("HOME", "/")
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	call := func(fun string, args ...any) string {
		return value.Str(r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "git." + fun, Arg: args}).Return)
	}
	dir := t.TempDir()
	evil := "--output=" + filepath.Join(dir, "written")
	for _, c := range [][]any{
		{"checkout", origin, evil}, {"describe", origin, evil}, {"rev_parse", origin, evil}, {"revision", origin, evil}, {"archive", origin, dir + "/a.tar", evil},
		{"diff", origin, evil}, {"diff", origin, "v1", evil}, {"diff", origin, evil, "cached=True"}, {"diff", origin, evil, "no_index=True"},
		{"merge_base", origin, "refs=v1," + evil}, {"merge_tree", origin, evil, "v1", "v1"}, {"merge_tree", origin, "v1", "v2", evil},
	} {
		if got := call(c[0].(string), c[1:]...); !strings.Contains(got, "must not begin with a hyphen") {
			t.Errorf("%v: %s", c, got)
		}
	}
	if got := call("symbolic_ref", origin, evil); !strings.Contains(got, "ref "+evil+" is not a symbolic ref") && !strings.Contains(got, "No such ref: "+evil) {
		t.Errorf("symbolic_ref: %s", got)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("written: %v, %v", left, err)
	}
	// "-" is the branch before.
	call("checkout", origin, "side")
	call("checkout", origin, "-")
	if got := call("current_branch", origin); got != "main" {
		t.Errorf("checkout -: on %s", got)
	}
}
