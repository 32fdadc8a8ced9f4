package runners

import (
	"context"

	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// GitPillar is the set of git repositories of the pillar.
type GitPillar interface {
	// Update fetches the repositories with a branch and a URL or name; empty
	// means all.
	Update(ctx context.Context, branch, repo string) (*value.Dict, error)
	// Remotes returns the status of each repository.
	Remotes() *value.Dict
	// ClearLock removes locks.
	ClearLock(match func(url string) bool, kind string) (done, failed []string)
}

// GitPillars returns the git repositories of the pillar, as they are configured now.
type GitPillars interface {
	GitPillar() GitPillar
}

type gitPillar struct{ GitPillars }

func init() { runners.Register("git_pillar", gitPillarModule) }

func gitPillarModule(d Deps) fn.Module {
	g := gitPillar{d.Serves}
	return fn.Module{Name: "git_pillar", Doc: `The git repositories of the pillar.`, Funcs: []fn.Func{
		fn.Of("update", g.update, `Fetch repositories. Returns True for changes, None for none, False for an error.`,
			fn.Example("salt-run git_pillar.update branch=main repo=https://example.com/pillar.git")),
		fn.Of("remotes", g.remotes, `Return the status of each repository: revision, age and last error (Brine only).`,
			fn.Example("salt-run git_pillar.remotes")),
	}}
}

type gitUpdateArgs struct {
	Branch any `salt:"branch" doc:"only repositories of this branch" default:"null"`
	Repo   any `salt:"repo" doc:"only the repository with this URL or name" default:"null"`
}

func (g gitPillar) update(ctx context.Context, c *fn.Call, a gitUpdateArgs) (any, error) {
	out, err := g.GitPillar().Update(ctx, textOr(a.Branch), textOr(a.Repo))
	if err != nil {
		c.Log.Error("cannot fetch some git repositories of the pillar", "err", err)
	}
	switch {
	case out.Len() > 0:
		return out, nil
	case a.Branch != nil || a.Repo != nil:
		return nil, fn.Errorf("Specified git branch/repo not found in ext_pillar config")
	}
	return nil, fn.Errorf("No git_pillar remotes are configured")
}

// textOr returns v as a string, "" for null.
func textOr(v any) string {
	if v == nil {
		return ""
	}
	return value.Str(v)
}

func (g gitPillar) remotes(context.Context, *fn.Call, none) (any, error) {
	return g.GitPillar().Remotes(), nil
}

type gitLockArgs struct {
	Role   string    `salt:"role" doc:"gitfs or git_pillar"`
	Remote any       `salt:"remote" doc:"pattern for URLs; null: all" default:"null"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// clearGitLock removes locks of gitfs or git_pillar; the argument type names
// the kinds.
func (c cached) clearGitLock(_ context.Context, _ *fn.Call, a gitLockArgs) (any, error) {
	kinds := []string{"update", "checkout", "mountpoint"}
	for k, v := range a.Kwargs.Clean().All() {
		if k != "type" {
			return nil, fn.Errorf("The following keyword arguments are not valid: %s=%s", value.Str(k), value.Str(v))
		}
		kinds = value.Split(v)
	}
	glob := textOr(a.Remote)
	var r report
	for _, kind := range kinds {
		if kind != "update" && kind != "checkout" && kind != "mountpoint" {
			return nil, fn.Errorf("unknown lock type %s: use update, checkout or mountpoint", kind)
		}
		switch a.Role {
		case "gitfs":
			for _, b := range c.files.FileServer().Fetchers("gitfs") {
				r.add(b.ClearLock(glob, kind))
			}
		case "git_pillar":
			g := target.ParseGlob(glob)
			r.add(c.pillars.GitPillar().ClearLock(func(url string) bool { return glob == "" || g.Match(url) }, kind))
		default:
			return nil, fn.Errorf("Invalid role '%s'", a.Role)
		}
	}
	return r.say("cleared", "No locks were removed"), nil
}
