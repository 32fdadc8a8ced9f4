package master

import (
	"log/slog"
	"path/filepath"
	"time"

	"brine/internal/base/steady"
	"brine/internal/ha/cluster"
	"brine/internal/ha/replica"
	"brine/internal/store/keystore"
)

// forgetting lists the kinds with so many deletions that these cannot be kept for ever. Members
// and secrets are few, and a removed member must be able to learn of its removal at any time.
var forgetting = []string{kindKey, kindMinion, kindToken, kindRevision, kindSaved}

// forgetPause is the longest time between checks for deletions to forget.
const forgetPause = time.Hour

// forgetDeleted forgets old deletions that all members know.
func (c *replicated) forgetDeleted(now time.Time, keep time.Duration) {
	if c == nil || keep <= 0 || now.Sub(c.forgot) < min(forgetPause, keep/4) {
		return
	}
	c.forgot = now
	// Use what all members knew at the last check: since then their directories match their
	// records, so that no member changes a file without knowing that it was deleted.
	acked, seen := c.acked, c.seen
	var ok bool
	if c.acked, c.seen, ok = c.cluster.Feeds.KnownToAll(streamRecords); !ok {
		c.acked, c.seen = nil, nil // an unreachable master may have deleted files
	}
	for _, kind := range forgetting {
		if acked == nil {
			break
		}
		n, err := c.records.ForgetDeleted(kind, steady.Removal().Add(-keep), acked, seen)
		if err != nil {
			c.log.Error("cannot remove old deletion records", "kind", kind, "err", err)
		} else if n > 0 {
			c.log.Debug("removed deletion records that all masters know", "kind", kind, "things", n)
		}
	}
}

// PutAside moves the state of an earlier membership aside on a machine that is about to join a
// cluster. Otherwise it would restore records that were deleted since, if the deletions are
// already forgotten.
func PutAside(cacheDir, id, pkiDir string, log *slog.Logger) error {
	own, err := cluster.OwnDir(cacheDir, id)
	if err != nil {
		return err
	}
	aside, err := replica.PutAside(own, pkiDir, append(cluster.Common(), keystore.DirNames()...),
		[]string{filepath.Join(cacheDir, "tokens"), filepath.Join(cacheDir, "minions"), savedDir(cacheDir)})
	if aside != "" {
		log.Warn("this machine was a member before: moved its old state aside, using the cluster's state", "dir", aside)
	}
	return err
}
