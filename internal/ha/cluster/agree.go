package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/refusal"
)

// tryHandshake connects to the peer and disconnects.
func (p *peer) tryHandshake(ctx context.Context) error {
	c := p.c
	s, _, err := p.handshake(ctx)
	if err == nil {
		c.conns.Remove(s.Conn.Raw)
		s.Conn.Close()
	}
	return err
}

// unshared returns an error if this master has just created the key of the cluster although a peer runs whose key is not in the directory:
// it is not the one that the masters share, for example because it is not mounted. With a key of its own this master would make minions
// refuse the others. The created key is removed.
func unshared(c *local) error {
	if !c.secrets.Created || c.cfg.Options.Isolated {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), agreeTime)
	defer cancel()
	var mu sync.Mutex
	var absent []string
	var wg sync.WaitGroup
	for _, p := range c.peers.all() {
		wg.Go(func() {
			conn, err := p.dial(ctx)
			if err != nil {
				return
			}
			c.conns.Remove(conn)
			conn.Close()
			for {
				if _, err = c.secrets.PeerKey(p.id); !errors.Is(err, fs.ErrNotExist) {
					return
				}
				select {
				case <-time.After(dataPause):
					continue
				case <-ctx.Done():
				}
				break
			}
			mu.Lock()
			defer mu.Unlock()
			absent = append(absent, p.id)
		})
	}
	wg.Wait()
	if len(absent) == 0 {
		return nil
	}
	slices.Sort(absent)
	err := salt.Errorf(salt.Invalid, "cluster_pki_dir %s had no key of the cluster and has none of %s, which runs: it is not the directory that the masters share. Is it mounted?",
		c.cfg.Options.PKIDir, strings.Join(absent, ", "))
	return errors.Join(err, c.secrets.Discard())
}

// agreeTime is the timeout for the peers at the start of a master.
const agreeTime = 3 * time.Second

// dataPause is the time between two looks at data of a peer that a network file system may show late.
const dataPause = 250 * time.Millisecond

// agree checks the settings with the running Brine masters. Those that are unreachable or do not answer are checked when they connect.
func (c *Cluster) agree() error {
	ctx, cancel := context.WithTimeout(context.Background(), agreeTime)
	defer cancel()
	var mu sync.Mutex
	var reasons, unknown []string  // unknown: a member may not know yet who has joined
	var clocks []string            // of two clocks it is unknown which one is wrong
	unnamed := map[string]string{} // by peer
	agreed := c.founding           // accepted by the member that admitted it
	var wg sync.WaitGroup
	for _, p := range c.peers.all() {
		if _, err := os.Stat(markPath(c.cfg.Options.PKIDir, p.id)); err != nil && !c.cfg.Options.Isolated {
			continue
		}
		wg.Go(func() {
			err := p.tryHandshake(ctx)
			for refusal.Is(err, refusal.Data) {
				select {
				case <-ctx.Done():
				case <-time.After(dataPause):
				}
				again := p.tryHandshake(ctx)
				if ctx.Err() != nil {
					break
				}
				err = again
			}
			mu.Lock()
			defer mu.Unlock()
			r := refusal.Of(err)
			switch {
			case err == nil:
				agreed = true
			case r == nil:
			case r.Code == refusal.Shares:
				c.log.Warn("continuing without a peer: "+r.Reason, "peer", p.id)
				agreed = true
			case r.Code == refusal.Clock && c.cfg.Options.Isolated:
				clocks = append(clocks, r.Reason)
			case r.Code == refusal.NotMember:
				unknown = append(unknown, r.Reason)
			case r.Code == refusal.Unnamed:
				unnamed[p.id] = r.Reason
			default:
				reasons = append(reasons, r.Reason)
			}
		})
	}
	wg.Wait()
	if !agreed {
		reasons = append(reasons, unknown...)
		reasons = slices.AppendSeq(reasons, maps.Values(unnamed))
	} else {
		// One master with an incomplete list must not keep the others from starting.
		for _, id := range slices.Sorted(maps.Keys(unnamed)) {
			c.log.Warn("continuing without a peer: "+unnamed[id], "peer", id)
		}
	}
	if !agreed && len(clocks) > 1 {
		reasons = append(reasons, clocks...) // its own clock is wrong
	} else if len(clocks) > 0 {
		c.log.Warn("continuing without a peer until the clocks agree", "reasons", strings.Join(clocks, "; "))
	}
	if len(reasons) == 0 {
		return nil
	}
	slices.Sort(reasons)
	if len(unknown) > 0 && !agreed {
		reasons = append(reasons, c.local.wayBack())
	}
	return salt.Errorf(salt.Invalid, "this master cannot be a member of the cluster: %s", strings.Join(reasons, "; "))
}

// wayBack says what a master does that the members do not know any more, and that is to be a member again.
func (c *local) wayBack() string {
	return fmt.Sprintf("if it was removed and is to join again, run brine cluster readmit %s on a member, stop this master, remove %s and start it",
		c.cfg.ID, filepath.Join(c.cfg.Options.PKIDir, "cluster.pem"))
}
