package runners

import (
	"context"
	"time"

	"brine/internal/cluster"
	"brine/internal/fn"
	"brine/internal/salt"
	"brine/internal/value"
)

// Cluster is the cluster that the master is one of.
type Cluster interface {
	Members() []cluster.Member
	// Leads reports whether this master does what one of them should do.
	Leads() bool
	// Isolated reports whether they share no folder.
	Isolated() bool
	// Remove takes a member out.
	Remove(id string) error
}

type clusters struct{ Deps }

func clusterModule(d Deps) fn.Module {
	c := clusters{d}
	return fn.Module{Name: "cluster", Doc: `The cluster of masters that this one belongs to.`, Funcs: []fn.Func{
		fn.Of("members", c.members, `Return the masters of the cluster and how they are.

Which can be reached from here, what is the matter with those that cannot, whether this one does what one of them
should do, and, without a shared folder, how many changes each has not got yet.`,
			fn.Example("salt-run cluster.members")),
		fn.Of("check", c.check, `Compare what the masters of a cluster without a shared folder have.

That is keys, jobs, returns, what is known of minions, tokens and the keys of the cluster. While minions return, or keys change, there may be differences that are gone a second later.`,
			fn.Example("salt-run cluster.check")),
		fn.Of("remove", c.remove, `Take a master out of the cluster for good.

Its key is deleted, and no other speaks with it any more. Those that cannot be reached now do the same as soon as they hear of it.`,
			fn.Example("salt-run cluster.remove 192.0.2.3")),
		fn.Of("leave", c.leave, `Have this master leave a cluster without a shared folder, and end.

It takes no more requests, waits until the masters that can be reached have all that it has, and tells them that it is gone.`,
			fn.Example("salt-run cluster.leave")),
	}}
}

var errNoCluster = salt.Errorf(salt.Invalid, "this master is not one of a cluster: cluster_id is not set")

func (c clusters) members(_ context.Context, _ *fn.Call, _ struct{}) (*value.Dict, error) {
	if c.Cluster == nil {
		return nil, errNoCluster
	}
	out := value.NewDict(4)
	self := value.DictOf("up", true, "self", true, "leads", c.Cluster.Leads())
	out.Set(c.ID, self)
	for _, m := range c.Cluster.Members() {
		d := value.DictOf("up", m.Up, "self", false, "kind", m.Kind)
		if m.Problem != "" {
			d.Set("problem", m.Problem)
		}
		if c.Cluster.Isolated() {
			behind := value.NewDict(len(m.Behind))
			for name, n := range m.Behind {
				behind.Set(name, n)
			}
			d.Set("behind", behind)
		}
		out.Set(m.ID, d)
	}
	return out, nil
}

// checkTime bounds a comparison of all masters.
const checkTime = 2 * time.Minute

func (c clusters) check(ctx context.Context, call *fn.Call, _ struct{}) (*value.Dict, error) {
	switch {
	case c.Cluster == nil:
		return nil, errNoCluster
	case !c.Cluster.Isolated():
		return nil, salt.Errorf(salt.Invalid, "the masters of this cluster share a folder: there is nothing to compare")
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	d, err := c.ClusterCheck(ctx)
	if err == nil && !d.Bool("equal") {
		call.SetRetcode(1)
	}
	return d, err
}

type removeArgs struct {
	ID string `salt:"id" doc:"id of the master"`
}

func (c clusters) remove(_ context.Context, _ *fn.Call, a removeArgs) (bool, error) {
	if c.Cluster == nil {
		return false, errNoCluster
	}
	return true, c.Cluster.Remove(a.ID)
}

func (c clusters) leave(_ context.Context, _ *fn.Call, _ struct{}) (bool, error) {
	if c.Cluster == nil {
		return false, errNoCluster
	}
	if err := c.ClusterLeave(); err != nil {
		return false, err
	}
	return true, nil
}
