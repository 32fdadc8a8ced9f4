package cluster

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/members"
)

// removal removes masters from the cluster.
type removal struct {
	cfg      *Config
	secrets  *keys.Secrets
	files    *members.Files
	peers    *peerSet
	excludes func(id string) bool // see Exclude
}

// Exclude sets the function that reports whether the records of this master exclude an id. It must be called before Run.
func (r *removal) Exclude(fn func(id string) bool) { r.excludes = fn }

// excluded reports whether the records exclude an id.
func (r *removal) excluded(id string) bool { return r.excludes != nil && r.excludes(id) }

// Look makes this master drop a peer at once if the peer's key was deleted.
func (r *removal) Look(id string) {
	if p := r.peers.all()[id]; p != nil {
		p.look()
	}
}

// drop deletes the key of a peer, see Cluster.Drop.
func (r *removal) drop(id string) error {
	if err := r.removable(id); err != nil {
		return err
	}
	err := os.Remove(r.secrets.PeerPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return noMember(id)
	}
	if err == nil {
		err = r.files.Forget(id)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot remove %s from the cluster: %w", id, err)
	}
	r.Look(id)
	return nil
}

// removable returns an error if an id cannot be removed.
func (r *removal) removable(id string) error {
	switch {
	case salt.CheckID(id) != nil:
		return salt.Errorf(salt.Invalid, "%.100q is not a valid id of a master", id)
	case id == r.cfg.ID:
		return salt.Errorf(salt.Invalid, "%s is this master: run this on another member, and stop this master", id)
	}
	if _, err := os.Lstat(r.secrets.PeerPath(id)); errors.Is(err, fs.ErrNotExist) {
		return noMember(id)
	}
	return nil
}

// take bans an id, removes it from the cluster, and waits until that is recorded. The ban comes first: if it fails, nothing has changed and
// the removal can be retried. Until the removal is recorded, secrets may still be sent to the id.
func (r *removal) take(ctx context.Context, id string) error {
	if err := r.removable(id); err != nil {
		return err
	}
	if err := r.files.Ban(r.cfg.ID, id); err != nil {
		return err
	}
	if err := r.drop(id); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	for r.excludes != nil && !r.excluded(id) {
		if !wait.Sleep(ctx, 10*time.Millisecond) {
			return salt.Errorf(salt.Unavailable,
				"%s was removed, but the removal is not recorded on this master yet, so the secrets that it knew are still valid: run brine cluster "+
					"rotate-secret", id)
		}
	}
	return nil
}

// A removed master may have copies of all secrets: the key of the cluster, the key of publications, the secret of session keys, the joining
// secret, tokens. Remove replaces all except the key of the cluster, which minions know; RotateKey replaces that. The order matters: no
// member may send the new secrets to the removed master, so they are created after its removal is recorded. Changes of one master arrive in
// order, and a member sends nothing to masters excluded by its records (Exclude).

func noMember(id string) error {
	return salt.Errorf(salt.NotFound, "there is no master %s in the cluster", id)
}

// Times of a removal.
const (
	// recordTime is how long to wait until a removal is recorded.
	recordTime = 5 * time.Second
	// oldDropTime is how long members of versions without Exclude take to drop a removed peer.
	oldDropTime = 2 * time.Second
)

// Remove removes a peer from the cluster for good. Without a shared directory its id may not join again until it is readmitted, and the
// secrets that it knew are replaced; keepSecret keeps the joining secret and tokens. It returns the members and witnesses that have the new
// joining secret (have), and the unreachable ones, which get it later (late).
func (c *Cluster) Remove(ctx context.Context, id string, keepSecret bool) (have, late []string, err error) {
	if !c.cfg.Options.Isolated {
		return nil, nil, c.Drop(id)
	}
	old := !c.trust.allUseSecret()
	if err := c.Removal.take(ctx, id); err != nil {
		return nil, nil, err
	}
	if old {
		time.Sleep(oldDropTime)
	}
	if keepSecret {
		return nil, nil, c.renew()
	}
	if c.cfg.Expels != nil {
		if err := c.cfg.Expels(); err != nil {
			return nil, nil, salt.Errorf(salt.Unavailable, "%s was removed, but what it knew is still valid: %w; run brine cluster rotate-secret", id, err)
		}
	}
	return c.RotateSecret(ctx)
}

// Drop removes a peer from the cluster: its key is deleted here and, without a shared directory, eventually on all others.
func (c *Cluster) Drop(id string) error { return c.Removal.drop(id) }

// Readmit lets a removed id join again.
func (c *Cluster) Readmit(id string) error { return c.files.Readmit(id) }

// Disowned reports whether a peer has reported that this master is not a member. In that case the others already know what Forget would
// publish.
func (r *removal) Disowned() bool {
	for _, p := range r.peers.all() {
		p.mu.Lock()
		disowns := p.disowns
		p.mu.Unlock()
		if disowns {
			return true
		}
	}
	return false
}

// Forget deletes this master's own key from the members' keys; the change is replicated.
func (r *removal) Forget() error {
	if err := r.files.Forget(r.cfg.ID); err != nil {
		return err
	}
	return os.Remove(r.secrets.PeerPath(r.cfg.ID))
}
