package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"path/filepath"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/ha/cluster/keys"
)

// SecretTime is how long to wait until the members have a new secret.
const SecretTime = 10 * time.Second

// RotateSecret replaces the joining secret, the secret of session keys and the key of publications. It returns the members and witnesses
// that have the new secret (have), and the unreachable ones, which get it later (late).
func (c *Cluster) RotateSecret(ctx context.Context) (have, late []string, err error) {
	if !c.cfg.Options.Isolated {
		return nil, nil, salt.Errorf(salt.Invalid, "the masters of this cluster share a directory: there is no joining secret")
	}
	var b [16]byte
	rand.Read(b[:])
	path := filepath.Join(c.cfg.Options.PKIDir, keys.SecretFile)
	if err := atomicfile.Write(path, []byte(hex.EncodeToString(b[:])+"\n"), 0o600, true); err != nil {
		return nil, nil, salt.Errorf(salt.Unavailable, "cannot replace the secret of the cluster: %w", err)
	}
	c.log.Info("replaced the joining secret", "cluster", c.cfg.Options.ID)
	if err := c.renew(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, SecretTime)
	defer cancel()
	mine := c.Voting.secretTag()
	for {
		have, late = nil, nil
		away := 0
		for _, s := range c.Status(ctx) {
			switch {
			case s.Self || s.report().Secret == mine:
				have = append(have, s.ID)
				continue
			case !s.Up:
				away++
			}
			late = append(late, s.ID)
		}
		for _, w := range c.Voting.outside() {
			switch has, err := c.Voting.informed(ctx, w); {
			case has:
				have = append(have, w)
				continue
			case err != nil:
				away++
			}
			late = append(late, w)
		}
		if len(late) == away {
			return have, late, nil
		}
		if !wait.Sleep(ctx, 100*time.Millisecond) {
			return have, late, nil
		}
	}
}
