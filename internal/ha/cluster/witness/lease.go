package witness

import (
	"log/slog"

	"brine/internal/base/salt"
	"brine/internal/ha/lease"
	"brine/internal/py/value"
)

// leaseFile, in a voter's own directory, has its grants.
const LeaseFile = "lease"

// RequestDict encodes a request for a lease.
func RequestDict(r lease.Request) *value.Dict {
	return value.DictOf("holder", r.Holder, "token", int64(r.Token), "voters", r.Voters, "release", r.Release, "claim", r.Claim)
}

// AnswerLease answers for a voter, which may be nil.
func AnswerLease(v *lease.Voter, arg *value.Dict, log *slog.Logger) *value.Dict {
	if v == nil {
		return value.DictOf("why", "its own cluster_voters does not contain it")
	}
	a, err := v.Answer(lease.Request{Holder: arg.Str("holder"), Token: uint64(max(arg.Int("token"), 0)), Voters: arg.Str("voters"),
		Release: arg.Bool("release"), Claim: arg.Str("claim")})
	if err != nil {
		log.Error("cannot grant a lease", "err", err)
		return value.DictOf("why", err.Error())
	}
	return value.DictOf("granted", a.Granted, "seen", int64(a.Seen), "holder", a.Holder, "why", a.Why, "claimed", a.Claimed, "by", a.By)
}

// ReadAnswer decodes the answer of a voter. An error of kind Unavailable says that it does not support leases.
func ReadAnswer(d *value.Dict) (lease.Answer, error) {
	if d.Len() == 0 {
		return lease.Answer{}, salt.Errorf(salt.Unavailable, "it does not support leases")
	}
	return lease.Answer{Granted: d.Bool("granted"), Seen: uint64(max(d.Int("seen"), 0)), Holder: d.Str("holder"), Why: d.Str("why"),
		Claimed: d.Bool("claimed"), By: d.Str("by")}, nil
}
