package cluster

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/limitlog"
	"brine/internal/ha/cluster/members"
	"brine/internal/ha/cluster/wire"
	"brine/internal/ha/cluster/witness"
	"brine/internal/ha/lease"
	"brine/internal/py/value"
)

// voting is the lease of a cluster without a shared directory, and the voters, which may be witnesses.
type voting struct {
	cfg            *Config
	log            *slog.Logger
	rateLimitedLog *limitlog.Log
	secrets        *keys.Secrets
	identity       *wire.Identity
	peers          *peerSet
	trust          *trust
	queries        *queries
	paths          members.Paths

	once      *lease.Holder // nil without voters
	voter     *lease.Voter  // if this master is one
	witnesses map[string]*witness.Link
}

// askLease is the query of masters to the voters among them.
const askLease = "lease"

// secretTag identifies the secret without disclosing it.
func (vt *voting) secretTag() string {
	s, err := vt.cfg.Options.secret()
	if err != nil {
		return ""
	}
	return witness.TagOf(s)
}

// isTag reports whether a witness with a tag has the current secret: that of witnesses or, for older versions, the joining secret.
func (vt *voting) isTag(tag string) bool {
	s, err := vt.cfg.Options.secret()
	return err == nil && tag != "" && (tag == witness.TagOf(witness.Secret(s)) || tag == witness.TagOf(s))
}

// vote prepares the lease of a cluster without a shared directory, if there are voters.
func (vt *voting) vote(dir string) error {
	voters := vt.cfg.Options.Voters
	if !vt.cfg.Options.Isolated || len(voters) == 0 {
		return nil
	}
	if slices.Contains(voters, vt.cfg.ID) {
		var err error
		if vt.voter, err = lease.OpenVoter(filepath.Join(dir, witness.LeaseFile), voters); err != nil {
			return err
		}
	}
	vt.queries.AnswerWith(askLease, func(arg *value.Dict) *value.Dict { return witness.AnswerLease(vt.voter, arg, vt.rateLimitedLog.Log) })
	vt.witnesses = map[string]*witness.Link{}
	as := &witness.Master{ID: vt.cfg.ID, Cluster: vt.cfg.Options.ID, Identity: vt.identity, Own: vt.cfg.Own, Update: vt.clusterInfo,
		Dir: filepath.Join(dir, witness.Dir), Log: vt.rateLimitedLog}
	for _, v := range voters {
		vt.witnesses[v] = &witness.Link{Master: as, Witness: v, Address: vt.cfg.Options.address(v)}
	}
	vt.once = lease.NewHolder(vt.cfg.ID, voters, vt.askVoter, vt.log)
	return nil
}

// askVoter sends a request to this master itself, another one, or a witness.
func (vt *voting) askVoter(ctx context.Context, voter string, r lease.Request) (lease.Answer, error) {
	if voter == vt.cfg.ID && vt.voter != nil {
		return vt.voter.Answer(r)
	}
	arg := witness.RequestDict(r)
	var d *value.Dict
	var err error
	if vt.peers.all()[voter] != nil {
		d, err = vt.queries.AskOne(ctx, voter, askLease, arg)
	} else {
		d, err = vt.witnesses[voter].Ask(ctx, arg)
	}
	if err != nil {
		return lease.Answer{}, err
	}
	a, err := witness.ReadAnswer(d)
	if a.Why != "" {
		vt.rateLimitedLog.Warn("voter "+voter, "a voter grants no lease", "voter", voter, "reason", a.Why)
	}
	return a, err
}

// Lease returns the state of the lease, nil if there are no voters.
func (vt *voting) Lease(ctx context.Context) *lease.Status {
	if vt.once == nil {
		return nil
	}
	s := vt.once.Status(ctx)
	return &s
}

// Once reports whether this master may do work that only one master may do, and the token for it. Without voters the reachable master with
// the lowest id may, and the token is 0.
func (vt *voting) Once() (token uint64, may bool) {
	if vt.once == nil {
		return 0, vt.peers.first()
	}
	return vt.once.Token()
}

// Votes reports whether a majority of voters decides which master does such work.
func (vt *voting) Votes() bool { return vt.once != nil }

// Claim is lease.Holder.Claim.
func (vt *voting) Claim(ctx context.Context, name string) (token uint64, by string, err error) {
	if vt.once == nil {
		return 0, "", salt.Errorf(salt.Invalid, "cluster_voters is not set")
	}
	return vt.once.Claim(ctx, name)
}

// clusterInfo returns the update for witnesses.
func (vt *voting) clusterInfo() (t witness.Update, err error) {
	if t.Secret, err = vt.cfg.Options.secret(); err != nil {
		return t, err
	}
	if fi, err := os.Stat(filepath.Join(vt.cfg.Options.PKIDir, keys.SecretFile)); err == nil {
		t.SecretFrom = fi.ModTime()
	}
	if fi, err := os.Stat(vt.paths.PeersDir()); err == nil {
		t.MembersFrom = fi.ModTime()
	}
	t.Members = map[string]string{vt.cfg.ID: string(vt.cfg.OwnPub)}
	for id, p := range vt.peers.all() {
		if p.isGone() {
			continue
		}
		if text, err := os.ReadFile(vt.secrets.PeerPath(id)); err == nil {
			t.Members[id] = string(text)
		}
	}
	t.Tls = vt.trust.allTLS()
	return t, nil
}

// outside returns the voters that are not masters, as far as known.
func (vt *voting) outside() []string {
	var out []string
	for _, v := range vt.cfg.Options.Voters {
		if v != vt.cfg.ID && vt.peers.all()[v] == nil {
			out = append(out, v)
		}
	}
	return out
}

// informed reports whether a witness has the current joining secret; an error says why it will not get it soon.
func (vt *voting) informed(ctx context.Context, id string) (bool, error) {
	l := vt.witnesses[id]
	if l == nil {
		return false, salt.Errorf(salt.Unavailable, "this master has no connection to it")
	}
	ctx, cancel := context.WithTimeout(ctx, wire.DialTime)
	defer cancel()
	_, err := l.Ask(ctx, witness.RequestDict(lease.Request{Holder: vt.cfg.ID, Voters: lease.Fingerprint(vt.cfg.Options.Voters)}))
	up, byTLS, knows := l.State()
	if err == nil && up && !byTLS {
		err = salt.Errorf(salt.Unavailable, "it does not support TLS, and cannot receive a secret")
	}
	return err == nil && vt.isTag(knows), err
}

// Voters queries the voters, in the order of the configuration.
func (vt *voting) Voters(ctx context.Context) (voters []Voter) {
	s := vt.Lease(ctx)
	if s == nil {
		return nil
	}
	outside := vt.outside()
	for _, id := range vt.cfg.Options.Voters {
		v := Voter{ID: id, Witness: slices.Contains(outside, id), Why: s.Silent[id]}
		if a, ok := s.Voters[id]; ok {
			v.Votes, v.Holder, v.Token = true, a.Holder, a.Seen
		}
		if p := vt.peers.all()[id]; p != nil {
			v.TLS = p.member().TLS
		} else if l := vt.witnesses[id]; v.Witness && l != nil {
			_, byTLS, knows := l.State()
			v.TLS, v.Secret = byTLS, vt.isTag(knows)
		} else {
			v.TLS = true
		}
		voters = append(voters, v)
	}
	return voters
}
