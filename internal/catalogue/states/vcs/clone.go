package vcs

import (
	"context"
	"slices"
	"strconv"

	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// planClone returns the plan if there is no checkout yet.
func (f *following) planClone() (state.Plan, error) {
	clear, err := room(f.Target, f.ForceClone)
	if err != nil {
		return state.Plan{}, err
	}
	change := state.Change{Diff: value.DictOf("new", f.Name+" => "+f.Target), Comment: "Repository " + f.Name + " would be cloned to " + f.Target}
	if clear {
		change.Diff.Set("forced clone", true)
		change.Comment = "Target directory " + f.Target + " exists. Since force_clone=True, the contents of " + f.Target + " would be deleted, and " +
			f.Name + " would be cloned into this directory."
	}
	return state.Plan{Steps: []state.Step{{Change: change, Do: func(ctx context.Context) (state.Change, error) {
		if clear {
			if err := empty(f.Target); err != nil {
				return state.Change{}, err
			}
			f.changes.Set("forced clone", true)
		}
		if err := f.clone(ctx); err != nil {
			return state.Change{Diff: f.changes}, f.fail(err)
		}
		if rev := f.r.head(ctx); rev != "" {
			f.changes.Set("revision", value.DictOf("old", nil, "new", rev))
		}
		return state.Change{Diff: f.changes, Comment: sentences(f.done)}, nil
	}}}}, nil
}

func (f *following) clone(ctx context.Context) error {
	var opts []string
	kind := ""
	switch {
	case f.Mirror:
		opts, kind = []string{"--mirror"}, " as mirror"
	case f.Bare:
		opts, kind = []string{"--bare"}, " as bare repository"
	}
	if f.Remote != "origin" {
		opts = append(opts, "--origin", f.Remote)
	}
	if f.Depth != nil {
		opts = append(opts, "--depth", strconv.FormatInt(*f.Depth, 10), "--branch", f.Rev)
	}
	if err := f.r.clone(ctx, f.url, opts...); err != nil {
		return already(nil, "Clone failed: %s", said(err))
	}
	f.changes.Set("new", f.Name+" => "+f.Target)
	f.say(f.Name + " cloned to " + f.Target + kind)
	if f.hash == "" {
		return nil
	}
	if err := f.settle(ctx); err != nil {
		return err
	}
	if f.Submodules {
		if err := f.r.submodules(ctx); err != nil {
			return already(f.done, "Failed to update submodules: %s", said(err))
		}
	}
	return nil
}

// settle checks out the wanted revision in a new clone.
func (f *following) settle(ctx context.Context) error {
	if f.kind == kindTag && !slices.Contains(f.r.names(ctx, "refs/tags/"), f.Rev) {
		return already(f.done, "Revision '%s' does not exist in clone", f.Rev)
	}
	if f.Branch != "" && !slices.Contains(f.r.names(ctx, "refs/heads/"), f.Branch) {
		if _, err := f.r.Run(ctx, "checkout", "-b", f.Branch, f.start()); err != nil {
			return err
		}
		f.say("Branch '" + f.Branch + "' checked out, with " + f.place + " as a starting point")
	}
	rev, branch := f.r.head(ctx), f.r.branch(ctx)
	if branch == "" && !f.refs.Has("HEAD") {
		return already(f.done,
			"Remote HEAD refers to a ref that does not exist. This can happen when the default branch on the remote repository is renamed or "+
				"deleted. If you are unable to fix the remote repository, you can work around this by setting the 'branch' argument (which will "+
				"ensure that the named branch is created if it does not already exist).")
	}
	if !f.equal(rev) {
		if _, err := f.r.Run(ctx, "reset", "--hard", f.hash); err != nil {
			return err
		}
		f.say("Repository was reset to " + f.place)
	}
	now := f.r.word(ctx, "rev-parse", "--abbrev-ref", branch+"@{upstream}")
	if opts, word := f.follow(now, f.r.names(ctx, "refs/heads/")); opts != nil {
		if _, err := f.r.Run(ctx, opts...); err != nil {
			return err
		}
		f.say("Tracking branch was " + word)
	}
	return nil
}

// start returns the revision at which a new local branch begins.
func (f *following) start() string {
	switch {
	case f.Rev == "HEAD":
		return f.hash
	case f.upstream != "":
		return f.upstream
	}
	return f.Rev
}
