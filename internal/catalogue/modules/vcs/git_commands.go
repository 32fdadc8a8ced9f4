package vcs

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// moreArgs are further arguments, for the functions in this file.
type moreArgs struct {
	args
	Output      string `salt:"output" doc:"file to write"`
	Prefix      any    `salt:"prefix" doc:"directory of all names in the archive; that of the checkout if null" default:"null"`
	Item1       any    `salt:"item1" doc:"commit to compare" default:"null"`
	Item2       any    `salt:"item2" doc:"commit to compare it with" default:"null"`
	NoIndex     bool   `salt:"no_index" doc:"compare files that need not be in a repository" default:"false"`
	Cached      bool   `salt:"cached" doc:"compare what is in the index" default:"false"`
	Paths       any    `salt:"paths" doc:"only these files, with commas or as a list" default:"null"`
	Path        string `salt:"path" doc:"what to reset" default:"."`
	Stale       bool   `salt:"stale" doc:"only those whose directory is gone" default:"false"`
	Refs        any    `salt:"refs" doc:"commits, with commas or as a list" default:"null"`
	Octopus     bool   `salt:"octopus" doc:"of all of them at once" default:"false"`
	IsAncestor  bool   `salt:"is_ancestor" doc:"say whether the first of two comes before the second" default:"false"`
	Independent bool   `salt:"independent" doc:"return those that come before no other" default:"false"`
	ForkPoint   any    `salt:"fork_point" doc:"branch that the commit was made on" default:"null"`
	Ref1        string `salt:"ref1" doc:"commit"`
	Ref2        string `salt:"ref2" doc:"commit"`
	Base        any    `salt:"base" doc:"commit that both come from; found by itself if null" default:"null"`
	Action      string `salt:"action" doc:"what to do with the stash" default:"save"`
	Worktree    string `salt:"worktree_path" doc:"directory of the new checkout"`
	ResetBranch bool   `salt:"reset_branch" doc:"take the branch even if there is one of that name" default:"null"`
	Detach      bool   `salt:"detach" doc:"no branch" default:"false"`
	DryRun      bool   `salt:"dry_run" doc:"only tell what would be done" default:"false"`
	Verbose     bool   `salt:"verbose" doc:"tell what is done" default:"true"`
	Expire      any    `salt:"expire" doc:"only what is older than this time" default:"null"`
}

// moreOpen is moreArgs with any further keywords.
type moreOpen struct {
	moreArgs
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// refArgs are the arguments of symbolic_ref.
type refArgs struct {
	Cwd      any    `salt:"cwd" doc:"directory of the checkout"`
	Ref      string `salt:"ref" doc:"the symbolic reference, HEAD mostly"`
	Value    any    `salt:"value" doc:"reference to point to" default:"null"`
	Opts     any    `salt:"opts" doc:"further options of the command" default:""`
	GitOpts  any    `salt:"git_opts" doc:"further options of git itself" default:""`
	User     string `salt:"user" doc:"user that git runs as" default:"null"`
	Password any    `salt:"password" ignored:"only Windows needs it" default:"null"`
	Ignore   bool   `salt:"ignore_retcode" ignored:"failures are returned, not logged" default:"false"`
	Encoding any    `salt:"output_encoding" ignored:"output is UTF-8" default:"null"`
}

// commands returns the rarely used functions, which run git with arguments.
func (g git) commands() []fn.Func {
	ex := func(line string) fn.Option { return fn.Example("salt myminion git." + line) }
	return []fn.Func{
		fn.Of("archive", g.archive, `Write the files of a revision to an archive; the keyword is format.`, ex("archive /path/to/repo /path/to/archive.tar"),
			takes("cwd output rev prefix git_opts "+tail), fn.Default("rev", "HEAD")),
		fn.Of("config_get_regexp", g.configGetRegexp, `Return the settings whose names fit a pattern, as lists of values; the keyword is global.`,
			ex(`config_get_regexp user\..+ /path/to/repo`),
			takes("key value_regex cwd "+tail), fn.Default("cwd", "null")),
		fn.Of("config_get_regex", g.configGetRegexp, `Same as git.config_get_regexp.`, ex(`config_get_regex user\..+ /path/to/repo`),
			takes("key value_regex cwd "+tail), fn.Default("cwd", "null")),
		fn.Of("diff", g.diff, `Return the differences of commits, files or the checkout.`, ex("diff /path/to/repo HEAD~1"),
			takes("cwd item1 item2 opts git_opts user password no_index cached paths output_encoding")),
		fn.Of("discard_local_changes", g.discard, `Reset files of the checkout to what is in the index.`, ex("discard_local_changes /path/to/repo"),
			takes("cwd path "+tail)),
		fn.Of("list_worktrees", g.listWorktrees, `Return the checkouts of a repository by their directories; the keyword is all.`,
			ex("list_worktrees /path/to/repo"),
			takes("cwd stale user password output_encoding")),
		fn.Of("merge_base", g.mergeBase, `Return the commit that others come from, or a list with the keyword all.`,
			ex("merge_base /path/to/repo refs='HEAD,upstream/main'"),
			takes("cwd refs octopus is_ancestor independent fork_point "+plus)),
		fn.Of("merge_tree", g.mergeTree, `Return what a merge would give.`, ex("merge_tree /path/to/repo HEAD upstream/dev"),
			takes("cwd ref1 ref2 base "+tail)),
		fn.Of("rebase", g.rebase, `Put the commits of a branch on top of another one.`, ex("rebase /path/to/repo main"), takes("cwd rev "+plus),
			fn.Default("rev", "master")),
		fn.Of("stash", g.stash, `Put changes away, or take them back.`, ex("stash /path/to/repo pop"), takes("cwd action "+plus)),
		fn.Of("symbolic_ref", g.symbolicRef, `Return what a symbolic reference points to, or change it.`, ex("symbolic_ref /path/to/repo HEAD")),
		fn.Of("worktree_add", g.worktreeAdd, `Make a further checkout; the keyword is branch.`, ex("worktree_add /path/to/repo ../hotfix ref=origin/main"),
			takes("cwd worktree_path ref reset_branch force detach "+plus), fn.Default("force", "null")),
		fn.Of("worktree_prune", g.worktreePrune, `Forget checkouts whose directory is gone.`, ex("worktree_prune /path/to/repo"),
			takes("cwd dry_run verbose expire "+plus)),
		fn.Of("worktree_rm", g.worktreeRm, `Remove the directory of a further checkout.`, ex("worktree_rm /path/to/worktree"),
			takes("cwd user output_encoding")),
	}
}

// only rejects keywords other than names.
func only(kwargs fn.Kwargs, names ...string) error {
	for k, v := range kwargs.Clean().All() {
		if !slices.Contains(names, value.Str(k)) {
			return fn.Invalidf("The following keyword arguments are not valid: %s=%s", value.Str(k), value.Str(v))
		}
	}
	return nil
}

func (g git) archive(ctx context.Context, c *fn.Call, a moreOpen) (bool, error) {
	if err := only(a.Kwargs, "format"); err != nil {
		return false, err
	}
	var more []string
	switch prefix := a.Prefix; {
	case prefix == "":
	case !value.Truth(prefix):
		more = append(more, "--prefix", filepath.Base(g.directory(ctx, a.args))+"/")
	default:
		more = append(more, "--prefix", value.Str(prefix))
	}
	if f := a.Kwargs.At("format"); value.Truth(f) {
		more = append(more, "--format", value.Str(f))
	}
	revs, err := revisions(a.Rev)
	if err != nil {
		return false, err
	}
	out := a.args
	out.Cwd = a.Output
	_, err = g.do(ctx, c, a.args, "archive", append(append(more, "--output", g.directory(ctx, out)), revs...)...)
	return err == nil, err
}

func (g git) configGetRegexp(ctx context.Context, c *fn.Call, a open) (*value.Dict, error) {
	if err := only(a.Kwargs, "global"); err != nil {
		return nil, err
	}
	flags, err := where(a)
	if err != nil {
		return nil, err
	}
	found := value.NewDict(0)
	out, err := g.do(ctx, c, a.args, "config", append(append(flags, "--get-regexp", a.Key), optional(a.Regex)...)...)
	if exit(err) == 1 {
		return found, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range strings.SplitSeq(out, "\n") {
		key, v, ok := strings.Cut(line, " ")
		if !ok || v == "" {
			continue
		}
		if !found.Has(key) {
			found.Set(key, &value.List{})
		}
		found.At(key).(*value.List).Append(v)
	}
	return found, nil
}

func (g git) diff(ctx context.Context, c *fn.Call, a moreArgs) (string, error) {
	var more []string
	items, err := revisions(a.Item1, a.Item2)
	switch {
	case err != nil:
		return "", err
	case a.NoIndex && a.Cached:
		return "", fn.Errorf("The 'no_index' and 'cached' options cannot be used together")
	case a.NoIndex:
		more = append(more, "--no-index")
	case a.Cached:
		more = append(append(more, "--cached"), optional(a.Item1)...)
	default:
		more = items
	}
	if value.Truth(a.Paths) {
		more = append(more, "--")
		if l, ok := a.Paths.(*value.List); ok {
			more = append(more, value.Texts(l)...)
		} else {
			more = append(more, strings.Split(value.Str(a.Paths), ",")...)
		}
	}
	text, err := g.said(ctx, c, a.args, "diff", more...)
	if a.NoIndex && exit(err) != 0 { // 1 means that the files differ
		err = nil
	}
	return text, err
}

func (g git) discard(ctx context.Context, c *fn.Call, a moreArgs) (string, error) {
	return g.said(ctx, c, a.args, "checkout", "--", a.Path)
}

func (g git) listWorktrees(ctx context.Context, c *fn.Call, a moreOpen) (*value.Dict, error) {
	if err := only(a.Kwargs, "all"); err != nil {
		return nil, err
	}
	all := a.Kwargs.Bool("all")
	if all && a.Stale {
		return nil, fn.Errorf("'all' and 'stale' cannot both be set to True")
	}
	text, err := g.do(ctx, c, a.args, "worktree", "list", "--porcelain")
	if err != nil {
		return nil, err
	}
	out := value.NewDict(0)
	for entry := range strings.SplitSeq(text, "\n\n") {
		facts := map[string]string{}
		for line := range strings.SplitSeq(entry, "\n") {
			key, v, _ := strings.Cut(line, " ")
			facts[key] = v
		}
		_, detached := facts["detached"]
		if facts["worktree"] == "" || facts["HEAD"] == "" || facts["branch"] == "" && !detached {
			continue // a bare repository
		}
		st, err := os.Stat(g.m.Path(facts["worktree"]))
		gone := err != nil || !st.IsDir()
		if !all && gone != a.Stale {
			continue
		}
		d := value.DictOf("stale", gone, "HEAD", facts["HEAD"], "detached", detached, "branch", nil)
		if !detached {
			d.Set("branch", strings.Replace(facts["branch"], "refs/heads/", "", 1))
		} else if tags, err := g.do(ctx, c, a.args, "tag", "--points-at", facts["HEAD"]); err != nil {
			return nil, err
		} else if tags != "" {
			d.Set("tags", lines(tags))
		}
		out.Set(facts["worktree"], d)
	}
	return out, nil
}

func (g git) mergeBase(ctx context.Context, c *fn.Call, a moreOpen) (any, error) {
	if err := only(a.Kwargs, "all"); err != nil {
		return nil, err
	}
	all, forked := a.Kwargs.Bool("all"), value.Truth(a.ForkPoint)
	if all && (a.Independent || a.IsAncestor || forked) {
		return nil, fn.Invalidf("The 'all' argument is not compatible with 'independent', 'is_ancestor', or 'fork_point'")
	}
	var refs []string
	switch x := a.Refs.(type) {
	case nil:
	case *value.List:
		refs = value.Texts(x)
	default:
		for r := range strings.SplitSeq(value.Str(x), ",") {
			refs = append(refs, strings.TrimSpace(r))
		}
	}
	var how []string
	if all {
		how = append(how, "--all")
	}
	chosen := 0
	for _, o := range []struct {
		on   bool
		flag []string
	}{
		{a.Octopus, []string{"--octopus"}}, {a.IsAncestor, []string{"--is-ancestor"}},
		{a.Independent, []string{"--independent"}}, {forked, []string{"--fork-point", value.Str(a.ForkPoint)}},
	} {
		if o.on {
			chosen++
			how = append(how, o.flag...)
		}
	}
	switch {
	case chosen > 1:
		return nil, fn.Invalidf("Only one of 'octopus', 'independent', 'is_ancestor', and 'fork_point' is permitted")
	case a.IsAncestor && len(refs) != 2:
		return nil, fn.Invalidf("Two refs/commits are required if 'is_ancestor' is True")
	case forked && len(refs) > 1:
		return nil, fn.Invalidf("At most one ref/commit can be passed if 'fork_point' is specified")
	case forked && len(refs) == 0:
		refs = []string{"HEAD"}
	}
	for _, r := range refs {
		if _, err := revisions(r); err != nil {
			return nil, err
		}
	}
	text, err := g.do(ctx, c, a.args, "merge-base", append(how, refs...)...)
	if a.IsAncestor {
		if exit(err) != 0 {
			return false, nil
		}
		return err == nil, err
	}
	if err != nil {
		return nil, err
	}
	found := lines(text)
	if all {
		return found, nil
	}
	if found.Len() == 0 {
		return nil, fn.Errorf("these commits have no common one")
	}
	return found.Items[0], nil
}

func (g git) mergeTree(ctx context.Context, c *fn.Call, a moreArgs) (string, error) {
	base := a.Base
	if base == nil {
		b := moreOpen{moreArgs: a}
		b.Refs = value.ListOf(a.Ref1, a.Ref2)
		var err error
		if base, err = g.mergeBase(ctx, c, b); err != nil {
			return "", fn.Errorf("Unable to determine merge base for %s and %s", a.Ref1, a.Ref2)
		}
	}
	revs, err := revisions(base, a.Ref1, a.Ref2)
	if err != nil {
		return "", err
	}
	return g.do(ctx, c, a.args, "merge-tree", revs...)
}

func (g git) rebase(ctx context.Context, c *fn.Call, a moreArgs) (string, error) {
	opts, err := words(a.Opts)
	if err != nil {
		return "", err
	}
	if slices.Contains(opts, "-i") || slices.Contains(opts, "--interactive") {
		return "", fn.Invalidf("Interactive rebases are not supported")
	}
	revs, err := words(value.Str(a.Rev))
	if err != nil {
		return "", err
	}
	return g.do(ctx, c, a.args, "rebase", revs...)
}

func (g git) stash(ctx context.Context, c *fn.Call, a moreArgs) (string, error) {
	return g.do(ctx, c, a.args, "stash "+a.Action)
}

func (g git) symbolicRef(ctx context.Context, c *fn.Call, a refArgs) (string, error) {
	opts, err := words(a.Opts)
	if err != nil {
		return "", err
	}
	if a.Value != nil && (slices.Contains(opts, "-d") || slices.Contains(opts, "--delete")) {
		return "", fn.Invalidf("Value cannot be set for symbolic ref if -d/--delete is included in opts")
	}
	return g.do(ctx, c, args{Cwd: a.Cwd, Opts: a.Opts, GitOpts: a.GitOpts, User: a.User}, "symbolic-ref",
		host.Operands(append([]string{a.Ref}, optional(a.Value)...)...)...)
}

func (g git) worktreeAdd(ctx context.Context, c *fn.Call, a moreOpen) (string, error) {
	if err := only(a.Kwargs, "branch"); err != nil {
		return "", err
	}
	name, branch := "worktree add", a.Kwargs.At("branch")
	var how []string
	switch {
	case a.Detach && value.Truth(branch):
		return "", fn.Invalidf("Only one of 'branch' and 'detach' is allowed")
	case a.Detach:
		how = append(how, "--detach")
	default:
		flag := "-b"
		if a.ResetBranch {
			flag = "-B"
		}
		if !value.Truth(branch) {
			branch = filepath.Base(a.Worktree)
		}
		how = append(how, flag, value.Str(branch))
		if a.Force {
			how = append(how, "--force")
		}
	}
	opts, err := words(a.Opts)
	if err != nil {
		return "", err
	}
	a.Opts = value.Strings(append(how, opts...))
	return g.said(ctx, c, a.args, name, host.Operands(append([]string{a.Worktree}, optional(a.Ref)...)...)...)
}

func (g git) worktreePrune(ctx context.Context, c *fn.Call, a moreArgs) (string, error) {
	var how []string
	if a.DryRun {
		how = append(how, "--dry-run")
	}
	if a.Verbose {
		how = append(how, "--verbose")
	}
	if value.Truth(a.Expire) {
		how = append(how, "--expire", value.Str(a.Expire))
	}
	opts, err := words(a.Opts)
	if err != nil {
		return "", err
	}
	a.Opts = value.Strings(append(how, opts...))
	return g.said(ctx, c, a.args, "worktree prune")
}

func (g git) worktreeRm(ctx context.Context, c *fn.Call, a moreArgs) (bool, error) {
	dir := g.directory(ctx, a.args)
	if _, err := os.Lstat(g.m.Path(dir)); err != nil {
		return false, fn.Errorf("%s does not exist", dir)
	}
	if r, err := g.run(ctx, c, a.args); err != nil {
		return false, err
	} else if !r.IsWorktree(ctx) {
		return false, fn.Errorf("%s is not a git worktree", dir)
	}
	if err := os.RemoveAll(g.m.Path(dir)); err != nil {
		return false, fn.Errorf("Unable to remove %s: %w", dir, err)
	}
	return true, nil
}
