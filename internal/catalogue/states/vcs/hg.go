package vcs

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() { units.Register("hg", hgModule) }

// hgModule returns the states for Mercurial.
func hgModule(m *host.Machine) state.Module {
	when := func(fn.Reader) (string, bool) { return "Command hg not found", m.Which("hg") != "" }
	return state.Module{Name: "hg", When: when, Doc: `Keep checkouts of Mercurial.`, Funcs: []state.Func{
		state.Of("latest", hgLatest, `Have a checkout of the latest, or of some revision.`),
	}}
}

type hgArgs struct {
	Name       string `salt:"name" doc:"repository"`
	Rev        any    `salt:"rev" doc:"revision; the tip without" default:"null"`
	Target     string `salt:"target" doc:"path of the checkout" default:"null"`
	Clean      bool   `salt:"clean" doc:"throw local changes away" default:"false"`
	User       any    `salt:"user" doc:"user to run hg as" default:"null"`
	Identity   any    `salt:"identity" doc:"file of a private key for SSH" default:"null"`
	Force      bool   `salt:"force" doc:"replace a directory that is no checkout" default:"false"`
	Opts       any    `salt:"opts" doc:"further options of hg pull and hg clone" default:"false"`
	UpdateHead bool   `salt:"update_head" doc:"check out what was fetched" default:"true"`
}

func (a hgArgs) call(ctx context.Context, e *state.Env, fun string, kw *value.Dict, args ...any) (string, error) {
	kw.Set("user", a.User)
	v, err := e.Exec(ctx, "hg."+fun, kw, args...)
	return value.Str(v), err
}

func hgLatest(ctx context.Context, e *state.Env, a hgArgs) (state.Plan, error) {
	if a.Target == "" {
		return state.Plan{}, state.Errorf(`"target option is required`)
	}
	isDir := func(path string) bool { info, err := os.Stat(path); return err == nil && info.IsDir() }
	if isDir(filepath.Join(a.Target, ".hg")) {
		now, err := a.call(ctx, e, "revision", value.DictOf("rev", "."), a.Target)
		switch {
		case err != nil:
			return state.Plan{}, err
		case now == "":
			return state.Plan{}, state.Errorf("Seems that %s is not a valid hg repo", a.Target)
		}
		would := "Repository " + a.Target + " update is probably required (current revision is " + now + ")"
		return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: would},
			Do: func(ctx context.Context) (state.Change, error) { return a.update(ctx, e, now) }}}}, nil
	}
	if entries, err := os.ReadDir(a.Target); err == nil && len(entries) > 0 && !a.Force {
		return state.Plan{}, state.Errorf("Directory exists, and is not empty")
	}
	would := "Repository " + a.Name + " is about to be cloned to " + a.Target
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: would}, Do: func(ctx context.Context) (state.Change, error) {
		if isDir(a.Target) {
			if err := os.RemoveAll(a.Target); err != nil {
				return state.Change{}, state.Errorf("cannot remove %s: %w", a.Target, err)
			}
		}
		return a.clone(ctx, e)
	}}}}, nil
}

func (a hgArgs) update(ctx context.Context, e *state.Env, before string) (state.Change, error) {
	said, err := a.call(ctx, e, "pull", value.DictOf("identity", a.Identity, "opts", a.Opts, "repository", a.Name), a.Target)
	switch {
	case err != nil:
		return state.Change{}, err
	case !a.UpdateHead && strings.Contains(said, "no changes found"):
		return state.Change{Comment: "No changes found and update_head=False so will skip updating."}, nil
	case !a.UpdateHead:
		return state.Change{Comment: "Update is probably required but update_head=False so we will skip updating."}, nil
	}
	rev := "tip"
	if value.Truth(a.Rev) {
		rev = value.Str(a.Rev)
	}
	if _, err := a.call(ctx, e, "update", value.DictOf("force", a.Clean), a.Target, rev); err != nil {
		return state.Change{}, err
	}
	now, err := a.call(ctx, e, "revision", value.DictOf("rev", "."), a.Target)
	switch {
	case err != nil:
		return state.Change{}, err
	case now != before:
		return state.Change{Diff: value.DictOf("revision", before+" => "+now), Comment: "Repository " + a.Target + " updated."}, nil
	case strings.Contains(said, "error:"):
		return state.Change{}, state.Errorf("An error was thrown by hg:\n%s", said)
	}
	return state.Change{}, nil
}

func (a hgArgs) clone(ctx context.Context, e *state.Env) (state.Change, error) {
	if _, err := a.call(ctx, e, "clone", value.DictOf("identity", a.Identity, "opts", a.Opts), a.Target, a.Name); err != nil {
		return state.Change{}, err
	}
	if value.Truth(a.Rev) {
		if _, err := a.call(ctx, e, "update", value.NewDict(1), a.Target, value.Str(a.Rev)); err != nil {
			return state.Change{}, err
		}
	}
	now, err := a.call(ctx, e, "revision", value.NewDict(1), a.Target)
	return state.Change{Diff: value.DictOf("new", a.Name, "revision", now), Comment: "Repository " + a.Name + " cloned to " + a.Target}, err
}
