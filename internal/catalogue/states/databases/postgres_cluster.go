package databases

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/pgclusters"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	when := func(fn.Reader) (string, bool) {
		return "Unable to load postgres module: pg_createcluster is not installed.", (&host.Machine{}).Which("pg_createcluster") != ""
	}
	units.Declare("postgres_cluster", func() state.Module {
		return state.Module{Name: "postgres_cluster", When: when, Doc: `Keep clusters of PostgreSQL on Debian.`, Funcs: []state.Func{
			state.Of("present", pgClusterPresent, `Have a cluster.`),
			state.Of("absent", pgClusterAbsent, `Have no such cluster.`),
		}}
	})
}

type pgClusterArgs struct {
	Version     any    `salt:"version" doc:"version of PostgreSQL"`
	Name        string `salt:"name" doc:"name of the cluster"`
	Port        any    `salt:"port" doc:"port; null: the next free one" default:"null"`
	Encoding    any    `salt:"encoding" doc:"encoding; null: that of the locale" default:"null"`
	Locale      any    `salt:"locale" doc:"locale; null: that of the system" default:"null"`
	Datadir     any    `salt:"datadir" doc:"directory of the data" default:"null"`
	GroupAccess any    `salt:"allow_group_access" doc:"let the group of the owner read all files" default:"null"`
	Checksums   any    `salt:"data_checksums" doc:"have checksums on data pages" default:"null"`
	WALSegsize  any    `salt:"wal_segsize" doc:"size of WAL segments, in MB" default:"null"`
}

func pgClusterPresent(ctx context.Context, e *state.Env, a pgClusterArgs) (state.Plan, error) {
	n := pgclusters.Name{Version: a.Version, Name: a.Name}
	all, err := pgclusters.List(ctx, e.Call)
	if err != nil {
		return state.Plan{}, err
	}
	if now, ok := all.At(n.String()).(*value.Dict); ok {
		wrong := func(want, have any) bool { return value.Truth(want) && !value.Equal(want, have) }
		if wrong(a.Port, now.At("port")) || wrong(a.Datadir, now.At("datadir")) {
			return state.Plan{}, state.Errorf("Cluster %s has wrong parameters which couldn't be changed on fly.", n)
		}
		return state.Plan{Comment: "Cluster " + n.String() + " is already present"}, nil
	}
	return clusterPlan("Cluster "+n.String()+" is set to be created", func(ctx context.Context) (state.Change, error) {
		done, err := pgclusters.Create(ctx, e.Call, pgclusters.Wanted{Name: n, Port: a.Port, Locale: a.Locale, Encoding: a.Encoding, Datadir: a.Datadir,
			GroupAccess: a.GroupAccess, Checksums: a.Checksums, WALSegsize: a.WALSegsize})
		if err == nil && done == false {
			err = state.Errorf("Failed to create cluster %s", n)
		}
		if err != nil {
			return state.Change{}, err
		}
		return state.Change{Diff: value.DictOf(n.String(), "Present"), Comment: "The cluster " + n.String() + " has been created"}, nil
	}), nil
}

func clusterPlan(would string, do func(ctx context.Context) (state.Change, error)) state.Plan {
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: would}, Do: do}}}
}

type pgClusterAbsentArgs struct {
	Version any    `salt:"version" doc:"version of PostgreSQL"`
	Name    string `salt:"name" doc:"name of the cluster"`
}

func pgClusterAbsent(ctx context.Context, e *state.Env, a pgClusterAbsentArgs) (state.Plan, error) {
	n := pgclusters.Name{Version: a.Version, Name: a.Name}
	all, err := pgclusters.List(ctx, e.Call)
	if err != nil {
		return state.Plan{}, err
	}
	if !all.Has(n.String()) {
		return state.Plan{Comment: "Cluster " + n.String() + " is not present, so it cannot be removed"}, nil
	}
	return clusterPlan("Cluster "+n.String()+" is set to be removed", func(ctx context.Context) (state.Change, error) {
		done, err := pgclusters.Remove(ctx, e.Call, n, true)
		if err == nil && done.Int("retcode") != 0 {
			err = state.Errorf("Failed to remove cluster %s: %s", n, done.Str("stderr"))
		}
		if err != nil {
			return state.Change{}, err
		}
		return state.Change{Diff: value.DictOf(a.Name, "Absent"), Comment: "Cluster " + n.String() + " has been removed"}, nil
	}), nil
}
