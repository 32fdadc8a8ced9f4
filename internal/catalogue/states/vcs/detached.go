package vcs

import (
	"context"
	"path/filepath"
	"strings"

	"brine/internal/base/log/redact"
	"brine/internal/call/fn"
	"brine/internal/host/filesys"
	gitcmd "brine/internal/host/git"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	add(func(g git) []state.Func {
		return []state.Func{state.Of("detached", g.detached, `Keep a checkout at a commit, tag or branch of a remote repository, on no local branch.`)}
	})
}

type detachedArgs struct {
	Name          string `salt:"name" doc:"address of the remote repository"`
	Revision      any    `salt:"rev" doc:"branch, tag or commit"`
	Target        string `salt:"target" doc:"directory of the checkout"`
	Remote        string `salt:"remote" doc:"name of the remote repository in the checkout" default:"origin"`
	ForceClone    bool   `salt:"force_clone" doc:"remove what is in the directory if it is no checkout" default:"false"`
	ForceCheckout bool   `salt:"force_checkout" doc:"discard local changes that are in the way" default:"false"`
	FetchRemote   bool   `salt:"fetch_remote" doc:"fetch unless the commit is there already" default:"true"`
	HardReset     bool   `salt:"hard_reset" doc:"discard local changes" default:"false"`
	Submodules    bool   `salt:"submodules" doc:"update submodules" default:"false"`
	access
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// pinned is a checkout of a fixed revision.
type pinned struct {
	detachedArgs
	// Rev is the argument rev; a hash is in lower case.
	Rev   string
	r     repo
	url   string
	there bool // the checkout exists
	clear bool // remove the content of the directory
	old   string
	// fetchURL is the present URL of the remote, if it must change.
	fetchURL string
	repoint  bool
	fetch    bool
	done     []string
	changes  *value.Dict
}

func (g git) detached(ctx context.Context, e *state.Env, a detachedArgs) (state.Plan, error) {
	if err := known(a.Kwargs); err != nil {
		return state.Plan{}, err
	}
	rev, err := revision(a.Revision)
	if err != nil {
		return state.Plan{}, err
	}
	switch {
	case a.Target == "":
		return state.Plan{}, fn.Errorf("'%s' is not a valid value for the 'target' argument", a.Target)
	case !filepath.IsAbs(a.Target):
		return state.Plan{}, fn.Errorf("Target '%s' is not an absolute path", a.Target)
	case filesys.IsFile(a.Target):
		return state.Plan{}, fn.Errorf("Target '%s' exists and is a regular file, cannot proceed", a.Target)
	}
	p := &pinned{detachedArgs: a, Rev: rev, changes: value.NewDict(1)}
	if p.r, err = g.reach(ctx, e, a.Target, a.access); err != nil {
		return state.Plan{}, err
	}
	if p.url, err = a.address(a.Name); err != nil {
		return state.Plan{}, err
	}
	if isHash(p.Rev) {
		p.Rev = strings.ToLower(p.Rev)
	}
	p.fetch = a.FetchRemote
	if p.there = p.r.isCheckout(ctx); !p.there {
		if p.clear, err = room(a.Target, a.ForceClone); err != nil {
			return state.Plan{}, err
		}
		return p.plan("")
	}
	return p.look(ctx)
}

// look returns the plan for an existing checkout.
func (p *pinned) look(ctx context.Context) (state.Plan, error) {
	p.old = p.r.head(ctx)
	if isHash(p.Rev) {
		if p.r.does(ctx, "describe", "--always", p.Rev) {
			p.fetch = false
		}
	} else if d := p.r.remotes(ctx).Dict(p.Remote); !strings.Contains(d.Str("fetch"), p.Name) {
		p.fetchURL, p.repoint = d.Str("fetch"), true
	}
	if p.repoint || p.fetch {
		return p.plan("")
	}
	at, err := p.commit(ctx)
	if err != nil {
		return state.Plan{}, err
	}
	if at == p.old && !p.HardReset && !p.Submodules {
		return state.Plan{Comment: "Already checked out at correct revision"}, nil
	}
	return p.plan(at)
}

// plan predicts the first action: the later ones depend on it.
func (p *pinned) plan(at string) (state.Plan, error) {
	r := &state.Result{}
	switch {
	case p.clear:
		r.Comment = "Target directory " + p.Target + " exists. Since force_clone=True, the contents of " + p.Target + " would be deleted, and " + p.Name +
			" would be cloned into this directory."
	case !p.there:
		r.Comment = "Repository " + p.Name + " would be cloned to " + p.Target
	case p.repoint:
		r.Comment = "Remote " + p.Remote + " would be set to " + p.Name
	case p.fetch:
		r.Comment = "Repository remote " + p.Remote + " would be fetched"
	case p.HardReset:
		r.Comment = "Hard reset to HEAD would be performed on " + p.Target
	case at != p.old:
		r.Comment = "Commit ID " + at + " would be checked out at " + p.Target
		r.Changes = value.DictOf("HEAD", value.DictOf("old", orNil(p.old), "new", at))
	default:
		r.Verdict, r.Comment = state.Succeeded, "Already checked out at correct revision"
	}
	return state.Plan{Forecast: r, Steps: []state.Step{{Do: p.carryOut}}}, nil
}

// commit resolves the revision in the checkout.
func (p *pinned) commit(ctx context.Context) (string, error) {
	if isHash(p.Rev) {
		if !p.r.does(ctx, "describe", "--always", p.Rev) {
			return "", already(p.done, "Revision '%s' does not exist", p.Rev)
		}
		if full := p.r.commit(ctx, p.Rev); strings.HasPrefix(full, p.Rev) && full == p.old {
			return full, nil
		}
		return p.Rev, nil
	}
	far := p.r
	far.Dir = ""
	text, err := far.Run(ctx, "ls-remote", p.Target)
	if err != nil {
		return "", fn.Errorf("Failed to list refs for %s: %s", p.Remote, said(err))
	}
	refs := gitcmd.Refs(text)
	for _, name := range []string{"refs/remotes/" + p.Remote + "/" + p.Rev, "refs/tags/" + p.Rev + "^{}", "refs/tags/" + p.Rev} {
		if refs.Has(name) {
			return refs.Str(name), nil
		}
	}
	return "", already(nil, "Revision '%s' does not exist", p.Rev)
}

func (p *pinned) say(text string) { p.done = append(p.done, text) }

func (p *pinned) carryOut(ctx context.Context) (state.Change, error) {
	err := p.obtain(ctx)
	if err == nil {
		err = p.settle(ctx)
	}
	if err != nil {
		return state.Change{Diff: p.changes}, fn.Errorf("%w", err)
	}
	return state.Change{Diff: p.changes, Comment: sentences(p.done)}, nil
}

// obtain clones or fetches.
func (p *pinned) obtain(ctx context.Context) error {
	if p.clear {
		if err := empty(p.Target); err != nil {
			return err
		}
		p.changes.Set("forced clone", true)
	}
	if !p.there {
		opts := []string{"--no-checkout"}
		if p.Remote != "origin" {
			opts = append(opts, "--origin", p.Remote)
		}
		if err := p.r.clone(ctx, p.url, opts...); err != nil {
			return already(p.done, "%s", said(err))
		}
		p.say(p.Name + " cloned to " + p.Target)
	}
	if p.repoint {
		if err := p.r.setRemote(ctx, p.Remote, p.url); err != nil {
			return err
		}
		p.say("Remote " + p.Remote + " updated from '" + value.Str(orNil(redact.Text(p.fetchURL))) + "' to '" + p.Name + "'")
	}
	if !p.fetch {
		return nil
	}
	came, err := p.r.fetch(ctx, p.Remote, true, []string{"refs/heads/*:refs/remotes/" + p.Remote + "/*", "+refs/tags/*:refs/tags/*"})
	if err != nil {
		return already(p.done, "Fetch failed:\n\n%w", err)
	}
	if came {
		p.say("Remote " + p.Remote + " was fetched, resulting in updated refs")
	}
	return nil
}

// settle checks out the commit.
func (p *pinned) settle(ctx context.Context) error {
	at, err := p.commit(ctx)
	if err != nil {
		return err
	}
	if p.HardReset {
		if _, err := p.r.Run(ctx, "reset", "--hard", "HEAD"); err != nil {
			return err
		}
		p.say("Repository was reset to HEAD before checking out revision")
	}
	if at != p.old {
		args := []string{"checkout"}
		if p.ForceCheckout {
			args = append(args, "--force")
		}
		if _, err := p.r.Run(ctx, append(args, at)...); err != nil {
			return err
		}
		p.say("Commit ID " + at + " was checked out at " + p.Target)
	}
	if p.Submodules {
		if err := p.r.submodules(ctx); err != nil {
			return err
		}
		p.say("Submodules were updated")
	}
	if at == p.old {
		p.say("Already checked out at correct revision")
		return nil
	}
	p.changes.Set("HEAD", value.DictOf("old", orNil(p.old), "new", p.r.head(ctx)))
	return nil
}
