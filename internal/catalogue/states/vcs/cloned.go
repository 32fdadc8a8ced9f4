package vcs

import (
	"context"
	"path/filepath"

	"brine/internal/call/fn"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	add(func(g git) []state.Func {
		return []state.Func{
			state.Of("cloned", g.cloned, `Clone a repository once, and check out a branch of it.`),
			state.Of("present", g.present, `Keep a repository, which is made empty.`),
		}
	})
}

type clonedArgs struct {
	Name   string `salt:"name" doc:"address of the remote repository"`
	Target string `salt:"target" doc:"directory of the checkout"`
	Branch any    `salt:"branch" doc:"branch to check out" default:"null"`
	access
}

func (g git) cloned(ctx context.Context, e *state.Env, a clonedArgs) (state.Plan, error) {
	branch := ""
	if a.Branch != nil {
		if branch = value.Str(a.Branch); branch == "" {
			return state.Plan{}, fn.Errorf("Invalid 'branch' argument")
		}
	}
	switch {
	case a.Target == "":
		return state.Plan{}, fn.Errorf("'target' argument is required")
	case !filepath.IsAbs(a.Target):
		return state.Plan{}, fn.Errorf("'target' path must be absolute")
	}
	r, err := g.reach(ctx, e, a.Target, a.access)
	if err != nil {
		return state.Plan{}, err
	}
	if !filesys.Exists(a.Target, true) {
		return a.plan(r, branch)
	}
	if _, err := r.Run(ctx, "status", "-z", "--porcelain"); err != nil {
		return state.Plan{}, fn.Errorf("%w", err)
	}
	at := ""
	if branch != "" {
		at = " and is checked out to branch '" + branch + "'"
	}
	now := r.branch(ctx)
	if branch == "" || now == branch {
		return state.Plan{Comment: "Repository already exists at " + a.Target + at}, nil
	}
	diff := value.DictOf("branch", value.DictOf("old", now, "new", branch))
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: diff, Comment: "Branch would be changed to '" + branch + "'"},
		Do: func(ctx context.Context) (state.Change, error) {
			args := []string{"checkout", branch}
			if !r.does(ctx, "rev-parse", branch) {
				args = []string{"checkout", "-b", branch, "origin/" + branch}
			}
			if _, err := r.Run(ctx, args...); err != nil {
				return state.Change{}, fn.Errorf("Failed to change branch to '%s': %w", branch, err)
			}
			return state.Change{Diff: diff, Comment: "Branch changed to '" + branch + "'"}, nil
		},
	}}}, nil
}

func (a clonedArgs) plan(r repo, branch string) (state.Plan, error) {
	url, err := a.address(a.Name)
	if err != nil {
		return state.Plan{}, err
	}
	diff := value.DictOf("new", a.Name+" => "+a.Target)
	with, opts := "", []string(nil)
	if branch != "" {
		with, opts = " with branch '"+branch+"'", []string{"--branch", branch}
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: diff, Comment: a.Name + " would be cloned to " + a.Target + with},
		Do: func(ctx context.Context) (state.Change, error) {
			if err := r.clone(ctx, url, opts...); err != nil {
				return state.Change{}, fn.Errorf("Clone failed: %s", said(err))
			}
			return state.Change{Diff: diff, Comment: a.Name + " cloned to " + a.Target + with}, nil
		},
	}}}, nil
}

type presentArgs struct {
	Name     string `salt:"name" doc:"directory of the repository"`
	Force    bool   `salt:"force" doc:"remove what is in the directory if it is no repository" default:"false"`
	Bare     bool   `salt:"bare" doc:"make a repository without a checkout" default:"true"`
	Template any    `salt:"template" doc:"directory of templates" default:"null"`
	GitDir   any    `salt:"separate_git_dir" doc:"directory for the repository itself" default:"null"`
	Shared   any    `salt:"shared" doc:"who may write" default:"null"`
	as
}

func (g git) present(ctx context.Context, _ *state.Env, a presentArgs) (state.Plan, error) {
	r := g.local(a.Name, a.as)
	kind := ""
	if a.Bare {
		kind = "bare "
	}
	change := state.Change{Diff: value.DictOf("new", a.Name), Comment: "New " + kind + "repository would be created"}
	clear := false
	if filesys.IsDir(a.Name) {
		if a.Bare && filesys.IsFile(filepath.Join(a.Name, "HEAD")) || !a.Bare && r.isCheckout(ctx) {
			return state.Plan{}, nil
		}
		if a.Force {
			clear = true
			change.Diff.Set("forced init", true)
			change.Comment = "Target directory " + a.Name + " exists. Since force=True, the contents of " + a.Name + " would be deleted, and a " + kind +
				"repository would be initialized in its place."
		} else if _, err := room(a.Name, false); err != nil {
			return state.Plan{},
				fn.Errorf("Target '%s' exists, is non-empty, and is not a git repository. Set the 'force' option to True to remove this directory's "+
					"contents and proceed with initializing a repository", a.Name)
		}
	}
	return state.Plan{Steps: []state.Step{{Change: change, Do: func(ctx context.Context) (state.Change, error) {
		changes := value.NewDict(2)
		if clear {
			if err := filesys.Remove(a.Name); err != nil {
				return state.Change{}, fn.Errorf("Unable to remove %s: %w", a.Name, err)
			}
			changes.Set("forced init", true)
		}
		r.Dir = ""
		if _, err := r.Run(ctx, a.words()...); err != nil {
			return state.Change{Diff: changes}, fn.Errorf("%w", err)
		}
		done := []string{"Initialized " + kind + "repository in " + a.Name}
		if value.Truth(a.Template) {
			done = append(done, "Template directory set to "+value.Str(a.Template))
		}
		if value.Truth(a.GitDir) {
			done = append(done, "Gitdir set to "+value.Str(a.GitDir))
		}
		changes.Set("new", a.Name)
		return state.Change{Diff: changes, Comment: sentences(done)}, nil
	}}}}, nil
}

func (a presentArgs) words() []string {
	w := []string{"init"}
	if a.Bare {
		w = append(w, "--bare")
	}
	if a.Template != nil {
		w = append(w, "--template="+value.Str(a.Template))
	}
	if a.GitDir != nil {
		w = append(w, "--separate-git-dir="+value.Str(a.GitDir))
	}
	switch x := a.Shared.(type) {
	case nil:
	case int64:
		w = append(w, "--shared=0"+value.Str(x))
	case bool:
		w = append(w, map[bool]string{true: "--shared=true", false: "--shared=false"}[x])
	default:
		w = append(w, "--shared="+value.Str(x))
	}
	return append(w, "--", a.Name)
}
