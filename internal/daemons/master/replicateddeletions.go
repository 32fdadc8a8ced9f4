package master

import (
	"log/slog"
	"path/filepath"
	"time"

	"brine/internal/ha/cluster"
	"brine/internal/ha/replica"
	"brine/internal/store/keystore"
)

// forgetting are the kinds of which so much comes and goes that what was deleted
// cannot be remembered for ever. Of members and secrets there is little, and
// a member that was removed must learn that at any time.
var forgetting = []string{kindKey, kindMinion, kindToken, kindRevision}

// forgetPause is the longest time between two looks for what may be forgotten.
const forgetPause = time.Hour

// forgetDeleted forgets what was deleted long enough ago, if all members know.
func (c *replicated) forgetDeleted(now time.Time, keep time.Duration) {
	if c == nil || keep <= 0 || now.Sub(c.forgot) < min(forgetPause, keep/4) {
		return
	}
	c.forgot = now
	// What all knew at the last look: since then their directories have become as
	// their records say, so that no member changes what was deleted without knowing.
	acked, seen := c.acked, c.seen
	var ok bool
	if c.acked, c.seen, ok = c.cluster.Feeds.KnownToAll(streamRecords); !ok {
		c.acked, c.seen = nil, nil // one is unreachable, and may have what was deleted
	}
	for _, kind := range forgetting {
		if acked == nil {
			break
		}
		n, err := c.records.ForgetDeleted(kind, now.Add(-keep), acked, seen)
		if err != nil {
			c.log.Error("what was deleted long ago cannot be forgotten", "kind", kind, "err", err)
		} else if n > 0 {
			c.log.Debug("deletions that all masters know were forgotten", "kind", kind, "things", n)
		}
	}
}

// PutAside puts aside what is left on a machine that is about to join a cluster
// of an earlier membership: what was deleted since, and forgotten, would come back
// with it.
func PutAside(cacheDir, id, pkiDir string, log *slog.Logger) error {
	own, err := cluster.OwnDir(cacheDir, id)
	if err != nil {
		return err
	}
	aside, err := replica.PutAside(own, pkiDir, append(cluster.Common(), keystore.DirNames()...),
		[]string{filepath.Join(cacheDir, "tokens"), filepath.Join(cacheDir, "minions")})
	if aside != "" {
		log.Warn("this machine was a member before: what it has of that time was put aside, and the cluster's state counts", "dir", aside)
	}
	return err
}
