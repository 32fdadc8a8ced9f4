package databases

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/pgclusters"
	"brine/internal/py/value"
)

// clusterFuncs are the functions for clusters, which Debian's programs manage.
func clusterFuncs() []fn.Func {
	return []fn.Func{
		fn.Of("cluster_create", clusterCreate, `Make a cluster on Debian. Returns what cmd.run_all does, or false.`,
			fn.Example("salt '*' postgres.cluster_create '15' 'main'")),
		fn.Of("cluster_list", clusterList, `Return the clusters of a Debian machine, with details if asked.`,
			fn.Example("salt '*' postgres.cluster_list verbose=True")),
		fn.Of("cluster_exists", clusterExists, `Report whether a cluster exists.`, fn.Example("salt '*' postgres.cluster_exists '15' 'main'")),
		fn.Of("cluster_remove", clusterRemove, `Remove a cluster with its data. Returns what cmd.run_all does, and changes.`,
			fn.Example("salt '*' postgres.cluster_remove '15' 'main' stop=True")),
	}
}

func clusterCreate(ctx context.Context, c *fn.Call, w pgclusters.Wanted) (any, error) {
	return pgclusters.Create(ctx, c, w)
}

type clusterListArgs struct {
	Verbose bool `salt:"verbose" doc:"return details, too" default:"false"`
}

func clusterList(ctx context.Context, c *fn.Call, a clusterListArgs) (any, error) {
	all, err := pgclusters.List(ctx, c)
	if a.Verbose || err != nil {
		return all, err
	}
	return &value.List{Items: all.Keys()}, nil
}

func clusterExists(ctx context.Context, c *fn.Call, n pgclusters.Name) (bool, error) {
	all, err := pgclusters.List(ctx, c)
	return all.Has(n.String()), err
}

type clusterRemoveArgs struct {
	pgclusters.Name
	Stop bool `salt:"stop" doc:"stop its server first" default:"false"`
}

func clusterRemove(ctx context.Context, c *fn.Call, a clusterRemoveArgs) (*value.Dict, error) {
	return pgclusters.Remove(ctx, c, a.Name, a.Stop)
}
