package cluster

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/wire"
	"brine/internal/ha/cluster/witness"
	"brine/internal/ha/lease"
)

// clusterInfo returns the update for witnesses.
func (c *Cluster) clusterInfo() (t witness.Update, err error) {
	if t.Secret, err = c.cfg.Options.secret(); err != nil {
		return t, err
	}
	if fi, err := os.Stat(filepath.Join(c.cfg.Options.PKIDir, keys.SecretFile)); err == nil {
		t.SecretFrom = fi.ModTime()
	}
	if fi, err := os.Stat(c.PeersDir()); err == nil {
		t.MembersFrom = fi.ModTime()
	}
	t.Members = map[string]string{c.cfg.ID: string(c.cfg.OwnPub)}
	for id, p := range c.peers.all() {
		if p.isGone() {
			continue
		}
		if text, err := os.ReadFile(c.secrets.PeerPath(id)); err == nil {
			t.Members[id] = string(text)
		}
	}
	t.Tls = c.trust.allTLS()
	return t, nil
}

// outside returns the voters that are not masters, as far as known.
func (c *Cluster) outside() []string {
	var out []string
	for _, v := range c.cfg.Options.Voters {
		if v != c.cfg.ID && c.peers.all()[v] == nil {
			out = append(out, v)
		}
	}
	return out
}

// informed reports whether a witness has the current joining secret; an error says why it will not get it soon.
func (c *Cluster) informed(ctx context.Context, id string) (bool, error) {
	l := c.witnesses[id]
	if l == nil {
		return false, salt.Errorf(salt.Unavailable, "this master has no connection to it")
	}
	ctx, cancel := context.WithTimeout(ctx, wire.DialTime)
	defer cancel()
	_, err := l.Ask(ctx, witness.RequestDict(lease.Request{Holder: c.cfg.ID, Voters: lease.Fingerprint(c.cfg.Options.Voters)}))
	up, byTLS, knows := l.State()
	if err == nil && up && !byTLS {
		err = salt.Errorf(salt.Unavailable, "it does not support TLS, and cannot receive a secret")
	}
	return err == nil && c.isTag(knows), err
}

// Voter is the state of a voter, as seen by this master.
type Voter struct {
	ID string
	// Witness says that it is not a master of the cluster.
	Witness bool
	// Votes says that it answers and can grant the lease; Why is the reason if not.
	Votes bool
	Why   string
	// Holder is the holder of its present grant, "" for none, and Token the greatest that it has granted.
	Holder string
	Token  uint64
	// TLS says that it is connected by TLS, or is this master; Secret that a witness has the current secret of the cluster.
	TLS, Secret bool
}

// Voters queries the voters, in the order of the configuration.
func (c *Cluster) Voters(ctx context.Context) (voters []Voter) {
	s := c.Lease(ctx)
	if s == nil {
		return nil
	}
	outside := c.outside()
	for _, id := range c.cfg.Options.Voters {
		v := Voter{ID: id, Witness: slices.Contains(outside, id), Why: s.Silent[id]}
		if a, ok := s.Voters[id]; ok {
			v.Votes, v.Holder, v.Token = true, a.Holder, a.Seen
		}
		if p := c.peers.all()[id]; p != nil {
			v.TLS = p.member().TLS
		} else if l := c.witnesses[id]; v.Witness && l != nil {
			_, byTLS, knows := l.State()
			v.TLS, v.Secret = byTLS, c.isTag(knows)
		} else {
			v.TLS = true
		}
		voters = append(voters, v)
	}
	return voters
}
