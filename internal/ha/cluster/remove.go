package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
)

// A master that was removed may have copies of all that it knew: the key of the
// cluster, the key of publications, the secret of session keys, the joining
// secret, tokens. Remove replaces all but the first, which minions know; RotateKey
// replaces that. The order matters: no member may send the new ones to the
// one that was removed, so they are made once its removal is on record. Changes of
// one master arrive in their order, and a member sends nothing to whom its records
// exclude (Exclude).

// removedDir, in cluster_pki_dir, has a file for each id that was removed and
// may not join again.
const removedDir = "removed"

// RemovedDir is the directory of the ids that may not join again.
func (c *Cluster) RemovedDir() string { return filepath.Join(c.cfg.Options.PKIDir, removedDir) }

func (c *Cluster) removedPath(id string) string { return filepath.Join(c.RemovedDir(), id) }

// removal is what is in the file of a removed id.
type removal struct {
	By string    `json:"by"`
	At time.Time `json:"at"`
}

// Exclude has fn say whether the records of this master exclude an id from the
// members. It must come before Run.
func (c *Cluster) Exclude(fn func(id string) bool) { c.excludes = fn }

// excluded reports whether the records say that an id was removed.
func (c *Cluster) excluded(id string) bool { return c.excludes != nil && c.excludes(id) }

// Look has this master drop a peer at once whose key was deleted.
func (c *Cluster) Look(id string) {
	if p := c.all()[id]; p != nil {
		p.look()
	}
}

// Drop takes a peer out of the cluster: its key is deleted, here and, without
// a shared directory, by and by at all others.
func (c *Cluster) Drop(id string) error {
	if err := c.removable(id); err != nil {
		return err
	}
	err := os.Remove(c.secrets.peerPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return noMember(id)
	}
	if err == nil {
		err = c.forgetStation(id)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot remove %s from the cluster: %w", id, err)
	}
	c.Look(id)
	return nil
}

// removable says why an id cannot be removed.
func (c *Cluster) removable(id string) error {
	switch {
	case salt.CheckID(id) != nil:
		return salt.Errorf(salt.Invalid, "%.100q is the id of no master", id)
	case id == c.cfg.ID:
		return salt.Errorf(salt.Invalid, "%s is this master itself: remove it at another one, and stop it", id)
	}
	if _, err := os.Lstat(c.secrets.peerPath(id)); errors.Is(err, fs.ErrNotExist) {
		return noMember(id)
	}
	return nil
}

func noMember(id string) error {
	return salt.Errorf(salt.NotFound, "there is no master %s in the cluster", id)
}

// Times of a removal.
const (
	// recordTime bounds the wait until a removal is on record.
	recordTime = 5 * time.Second
	// oldDropTime is within what time a member of a version that knows no
	// exclusion drops a peer that was removed.
	oldDropTime = 2 * time.Second
)

// Remove takes a peer out of the cluster for good. Without a shared directory its id
// may not join again until it is readmitted, and the keys that it knew are
// replaced; with keepSecret the joining secret and tokens stay. It returns which
// members and witnesses have the new joining secret, and which will have it when
// they are back.
func (c *Cluster) Remove(ctx context.Context, id string, keepSecret bool) (have, late []string, err error) {
	if !c.cfg.Options.Isolated {
		return nil, nil, c.Drop(id)
	}
	old := !c.allUseSecret()
	if err := c.take(ctx, id); err != nil {
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

// take bans an id, takes it out of the cluster, and waits until that is on
// record. The ban comes first: without it nothing was done, and the removal can
// be tried again. What is not on record may still be sent to the id.
func (c *Cluster) take(ctx context.Context, id string) error {
	if err := c.removable(id); err != nil {
		return err
	}
	if err := c.ban(id); err != nil {
		return err
	}
	if err := c.Drop(id); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	for c.excludes != nil && !c.excluded(id) {
		select {
		case <-ctx.Done():
			return salt.Errorf(salt.Unavailable, "%s was removed, but that is not on record on this master yet, so what it knew is still valid: run brine cluster rotate-secret", id)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// ban notes that an id may not join again.
func (c *Cluster) ban(id string) error {
	b, err := json.Marshal(removal{By: c.cfg.ID, At: time.Now().UTC().Truncate(time.Second)})
	if err == nil {
		err = os.MkdirAll(c.RemovedDir(), 0o755)
	}
	if err == nil {
		err = atomicfile.Write(c.removedPath(id), append(b, '\n'), 0o644, true)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot note that %s was removed: %w", id, err)
	}
	return nil
}

// banned returns when an id was removed; ok is false if it may join.
func (c *Cluster) banned(id string) (r removal, ok bool, err error) {
	b, err := os.ReadFile(c.removedPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, true, salt.Errorf(salt.Unavailable, "cannot read whether %s was removed: %w", id, err)
	}
	json.Unmarshal(b, &r) // that there is a file counts
	return r, true, nil
}

// Readmit lets an id join again that was removed.
func (c *Cluster) Readmit(id string) error {
	if salt.CheckID(id) != nil {
		return salt.Errorf(salt.Invalid, "%.100q is the id of no master", id)
	}
	err := os.Remove(c.removedPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return salt.Errorf(salt.NotFound, "no master %s was removed from the cluster: it may join", id)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot readmit %s: %w", id, err)
	}
	return nil
}
