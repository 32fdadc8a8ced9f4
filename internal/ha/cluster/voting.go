package cluster

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"

	"brine/internal/base/salt"
	"brine/internal/ha/lease"
	"brine/internal/py/value"
)

// askLease is the query of masters to the voters among them.
const askLease = "lease"

// leaseFile, in a voter's own directory, has its grants.
const leaseFile = "lease"

// vote prepares the lease of a cluster without a shared directory, if there are voters.
func (c *Cluster) vote(dir string) error {
	voters := c.cfg.Options.Voters
	if !c.cfg.Options.Isolated || len(voters) == 0 {
		return nil
	}
	if slices.Contains(voters, c.cfg.ID) {
		var err error
		if c.voter, err = lease.OpenVoter(filepath.Join(dir, leaseFile), voters); err != nil {
			return err
		}
	}
	c.AnswerWith(askLease, func(arg *value.Dict) *value.Dict { return answerLease(c.voter, arg, c.rateLimitedLog.log) })
	c.witnesses = map[string]*witnessLink{}
	as := &asker{id: c.cfg.ID, cluster: c.cfg.Options.ID, tlsIdentity: c.tlsIdentity, own: c.cfg.Own, clusterInfo: c.clusterInfo, dir: filepath.Join(dir, witnessesDir), rateLimitedLog: c.rateLimitedLog}
	for _, v := range voters {
		c.witnesses[v] = &witnessLink{asker: as, witness: v, address: c.cfg.Options.address(v)}
	}
	c.once = lease.NewHolder(c.cfg.ID, voters, c.askVoter, c.log)
	return nil
}

// askVoter sends a request to this master itself, another one, or a witness.
func (c *Cluster) askVoter(ctx context.Context, voter string, r lease.Request) (lease.Answer, error) {
	if voter == c.cfg.ID && c.voter != nil {
		return c.voter.Answer(r)
	}
	arg := requestDict(r)
	var d *value.Dict
	var err error
	if c.all()[voter] != nil {
		d, err = c.AskOne(ctx, voter, askLease, arg)
	} else {
		d, err = c.witnesses[voter].ask(ctx, arg)
	}
	if err != nil {
		return lease.Answer{}, err
	}
	a, err := readAnswer(d)
	if a.Why != "" {
		c.rateLimitedLog.warn("voter "+voter, "a voter grants no lease", "voter", voter, "reason", a.Why)
	}
	return a, err
}

func requestDict(r lease.Request) *value.Dict {
	return value.DictOf("holder", r.Holder, "token", int64(r.Token), "voters", r.Voters, "release", r.Release, "claim", r.Claim)
}

// answerLease answers for a voter, which may be nil.
func answerLease(v *lease.Voter, arg *value.Dict, log *slog.Logger) *value.Dict {
	if v == nil {
		return value.DictOf("why", "its own cluster_voters does not contain it")
	}
	a, err := v.Answer(lease.Request{Holder: arg.Str("holder"), Token: uint64(max(arg.Int("token"), 0)), Voters: arg.Str("voters"), Release: arg.Bool("release"), Claim: arg.Str("claim")})
	if err != nil {
		log.Error("cannot grant a lease", "err", err)
		return value.DictOf("why", err.Error())
	}
	return value.DictOf("granted", a.Granted, "seen", int64(a.Seen), "holder", a.Holder, "why", a.Why, "claimed", a.Claimed, "by", a.By)
}

func readAnswer(d *value.Dict) (lease.Answer, error) {
	if d.Len() == 0 {
		return lease.Answer{}, salt.Errorf(salt.Unavailable, "it does not support leases")
	}
	return lease.Answer{Granted: d.Bool("granted"), Seen: uint64(max(d.Int("seen"), 0)), Holder: d.Str("holder"), Why: d.Str("why"), Claimed: d.Bool("claimed"), By: d.Str("by")}, nil
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
		return 0, c.first()
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
