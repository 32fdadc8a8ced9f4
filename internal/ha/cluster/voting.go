package cluster

import (
	"context"
	"path/filepath"
	"slices"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/witness"
	"brine/internal/ha/lease"
	"brine/internal/py/value"
)

// askLease is the query of masters to the voters among them.
const askLease = "lease"

// vote prepares the lease of a cluster without a shared directory, if there are voters.
func (c *Cluster) vote(dir string) error {
	voters := c.cfg.Options.Voters
	if !c.cfg.Options.Isolated || len(voters) == 0 {
		return nil
	}
	if slices.Contains(voters, c.cfg.ID) {
		var err error
		if c.voter, err = lease.OpenVoter(filepath.Join(dir, witness.LeaseFile), voters); err != nil {
			return err
		}
	}
	c.AnswerWith(askLease, func(arg *value.Dict) *value.Dict { return witness.AnswerLease(c.voter, arg, c.rateLimitedLog.Log) })
	c.witnesses = map[string]*witness.Link{}
	as := &witness.Master{ID: c.cfg.ID, Cluster: c.cfg.Options.ID, Identity: c.identity, Own: c.cfg.Own, Update: c.clusterInfo, Dir: filepath.Join(dir, witness.Dir), Log: c.rateLimitedLog}
	for _, v := range voters {
		c.witnesses[v] = &witness.Link{Master: as, Witness: v, Address: c.cfg.Options.address(v)}
	}
	c.once = lease.NewHolder(c.cfg.ID, voters, c.askVoter, c.log)
	return nil
}

// askVoter sends a request to this master itself, another one, or a witness.
func (c *Cluster) askVoter(ctx context.Context, voter string, r lease.Request) (lease.Answer, error) {
	if voter == c.cfg.ID && c.voter != nil {
		return c.voter.Answer(r)
	}
	arg := witness.RequestDict(r)
	var d *value.Dict
	var err error
	if c.peers.all()[voter] != nil {
		d, err = c.AskOne(ctx, voter, askLease, arg)
	} else {
		d, err = c.witnesses[voter].Ask(ctx, arg)
	}
	if err != nil {
		return lease.Answer{}, err
	}
	a, err := witness.ReadAnswer(d)
	if a.Why != "" {
		c.rateLimitedLog.Warn("voter "+voter, "a voter grants no lease", "voter", voter, "reason", a.Why)
	}
	return a, err
}

// Lease returns the state of the lease, nil if there are no voters.
func (c *Cluster) Lease(ctx context.Context) *lease.Status {
	if c.once == nil {
		return nil
	}
	s := c.once.Status(ctx)
	return &s
}

// Once reports whether this master may do work that only one master may do, and the token for it. Without voters the reachable master with
// the lowest id may, and the token is 0.
func (c *Cluster) Once() (token uint64, may bool) {
	if c.once == nil {
		return 0, c.peers.first()
	}
	return c.once.Token()
}

// Votes reports whether a majority of voters decides which master does such work.
func (c *Cluster) Votes() bool { return c.once != nil }

// Claim is lease.Holder.Claim.
func (c *Cluster) Claim(ctx context.Context, name string) (token uint64, by string, err error) {
	if c.once == nil {
		return 0, "", salt.Errorf(salt.Invalid, "cluster_voters is not set")
	}
	return c.once.Claim(ctx, name)
}
