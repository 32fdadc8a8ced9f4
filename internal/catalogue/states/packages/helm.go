package packages

import (
	"context"

	"brine/internal/catalogue/actions/helm"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("helm", func() state.Module {
		return state.Module{Name: "helm", Doc: `Keep releases and repositories of Helm.`, Funcs: []state.Func{
			state.Of("repo_managed", helmRepos, `Have repositories, or not.`),
			state.Of("repo_updated", helmUpdated, `Get what repositories have now.`),
			state.Of("release_present", helmPresent, `Have a release, and upgrade it.`),
			state.Of("release_absent", helmAbsent, `Have no such release.`),
		}}
	})
}

// helmPlan is a plan of one step: only helm knows whether there is something to
// do.
func helmPlan(would string, do func(ctx context.Context) (state.Change, error)) (state.Plan, error) {
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: would}, Do: do}}}, nil
}

// helmDone returns an error if a function has not returned true.
func helmDone(v any, err error) error {
	if err == nil && v != true {
		err = state.Errorf("%s", value.Str(v))
	}
	return err
}

type helmReposArgs struct {
	Name   string `salt:"name" doc:"what the repositories are called in the SLS"`
	Update bool   `salt:"repo_update" doc:"get what repositories have, if one was added or removed" default:"false"`
	helm.Repos
}

func helmRepos(_ context.Context, e *state.Env, a helmReposArgs) (state.Plan, error) {
	return helmPlan("Helm repo would have been managed.", func(ctx context.Context) (state.Change, error) {
		d, err := helm.ManageRepos(ctx, e.Call, a.Repos)
		switch {
		case err != nil:
			return state.Change{}, state.Errorf("Failed to add some repositories: %w.", err)
		case len(d.List("failed")) > 0:
			return state.Change{Diff: d}, state.Errorf("Failed to add or remove some repositories.")
		case len(d.List("added"))+len(d.List("removed")) == 0:
			return state.Change{Comment: "Helm repo is managed."}, nil
		}
		if a.Update {
			v, err := helm.UpdateRepos(ctx, e.Call, a.Namespace, a.Flags)
			if err != nil {
				return state.Change{Diff: d}, err
			}
			d.Set("repo_update", v)
		}
		return state.Change{Diff: d, Comment: "Repositories were added or removed."}, nil
	})
}

type helmUpdatedArgs struct {
	Name      string `salt:"name" doc:"what the update is called in the SLS"`
	Namespace any    `salt:"namespace" doc:"namespace" default:"null"`
	helm.Flags
}

func helmUpdated(_ context.Context, e *state.Env, a helmUpdatedArgs) (state.Plan, error) {
	return helmPlan("Helm repo would have been updated.", func(ctx context.Context) (state.Change, error) {
		if err := helmDone(helm.UpdateRepos(ctx, e.Call, a.Namespace, a.Flags)); err != nil {
			return state.Change{}, state.Errorf("Failed to sync some repositories.\n%w", err)
		}
		return state.Change{Comment: "Helm repo is updated."}, nil
	})
}

type helmPresentArgs struct {
	Name      string `salt:"name" doc:"name of the release"`
	Chart     string `salt:"chart" doc:"chart, or its directory"`
	Values    any    `salt:"values" doc:"path of a file with values" default:"null"`
	Version   any    `salt:"version" doc:"version of the chart; null: the newest" default:"null"`
	Namespace any    `salt:"namespace" doc:"namespace" default:"null"`
	Set       any    `salt:"set" doc:"value, or list of values, as NAME=VALUE" default:"null"`
	helm.Flags
}

func helmPresent(_ context.Context, e *state.Env, a helmPresentArgs) (state.Plan, error) {
	return helmPlan("Helm release would have been installed or updated.", func(ctx context.Context) (state.Change, error) {
		change := helm.Install
		old, err := helm.Status(ctx, e.Call, a.Name, a.Namespace, helm.Flags{})
		if err != nil {
			return state.Change{}, err
		}
		if _, ok := old.(*value.Dict); ok {
			change = helm.Upgrade
		}
		err = helmDone(change(ctx, e.Call, helm.Release{Release: a.Name, Chart: a.Chart, Values: a.Values, Version: a.Version, Namespace: a.Namespace, Set: a.Set,
			Flags: a.Flags}))
		if err != nil {
			return state.Change{}, err
		}
		now, err := helm.Status(ctx, e.Call, a.Name, a.Namespace, helm.Flags{})
		if err != nil {
			return state.Change{}, err
		}
		d, ok := now.(*value.Dict)
		if !ok {
			return state.Change{}, state.Errorf("%s", value.Str(now))
		}
		d.Delete("manifest")
		return state.Change{Diff: d, Comment: "Helm release " + a.Name + " is present"}, nil
	})
}

type helmAbsentArgs struct {
	Name      string `salt:"name" doc:"name of the release"`
	Namespace any    `salt:"namespace" doc:"namespace" default:"null"`
	helm.Flags
}

func helmAbsent(_ context.Context, e *state.Env, a helmAbsentArgs) (state.Plan, error) {
	return helmPlan("Helm release would have been uninstalled.", func(ctx context.Context) (state.Change, error) {
		done := state.Change{Comment: "Helm release " + a.Name + " is absent."}
		now, err := helm.Status(ctx, e.Call, a.Name, a.Namespace, helm.Flags{})
		if _, ok := now.(*value.Dict); !ok || err != nil {
			return done, err
		}
		done.Diff = value.DictOf("absent", a.Name)
		if err := helmDone(helm.Uninstall(ctx, e.Call, a.Name, a.Namespace, a.Flags)); err != nil {
			return state.Change{}, err
		}
		return done, nil
	})
}
