package cluster

import (
	"context"
	"errors"

	"io/fs"
	"maps"
	"net"
	"os"

	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
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

// consent returns the error with which the peer refuses this master, nil if it agrees. Until ctx ends it retries a peer that accepts the
// connection but does not answer. It retries refusals that may be temporary for a shorter time.
func (p *peer) consent(ctx context.Context) error {
	var late time.Time
	for {
		err := p.tryHandshake(ctx)
		passing := time.Duration(0)
		switch {
		case refusal.Is(err, refusal.Data):
			passing = dataTime // a network file system may show data late
		case refusal.Is(err, refusal.InUse):
			passing = 2 * aliveTime // the peer may still count the previous process of this master as connected
		}
		switch {
		case passing > 0:
			if late.IsZero() {
				late = time.Now().Add(passing)
			}
			if time.Now().After(late) {
				return err
			}
		case !silent(err):
			return err
		}
		if !wait.Sleep(ctx, dataPause) {
			return err
		}
	}
}

// silent reports whether the peer accepted the connection but did not answer in time.
func silent(err error) bool {
	var made unreachableError
	var timeout net.Error
	return !errors.As(err, &made) && errors.As(err, &timeout) && timeout.Timeout()
}

// unshared returns an error if this master has just created the cluster's key in cluster_pki_dir although a peer runs whose key is missing
// there. Then the directory is not the shared one, for example because it is not mounted. Minions that know this master's new key would
// reject the other masters. The created key is removed.
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
	err := salt.Errorf(salt.Invalid,
		"cluster_pki_dir %s had no key of the cluster and has none of %s, which runs: it is not the directory that the masters share. Is it mounted?",
		c.cfg.Options.PKIDir, strings.Join(absent, ", "))
	return errors.Join(err, c.secrets.Discard())
}

// Times at the start of a master.
const (
	// agreeTime is how long the key of a peer that accepts connections may be missing.
	agreeTime = 3 * time.Second
	// answerTime is the timeout for the answer of a peer that accepts connections. It is bounded so that a master starts even if a peer hangs.
	answerTime = 30 * time.Second
	// dataTime is how long the files of a running peer may be out of date, as on a slow network file system. dataPause is the interval of
	// checks.
	dataTime  = 3 * time.Second
	dataPause = 250 * time.Millisecond
)

// agree checks the settings with the running Brine masters. A peer that is unreachable, or has not answered after answerTime, is checked
// when it connects.
func (c *Cluster) agree() error {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	var mu sync.Mutex
	var reasons, unknown []string  // unknown: a member may not know yet that this master has joined
	var clocks []string            // if two clocks differ, it is unknown which one is wrong
	unnamed := map[string]string{} // by peer
	agreed := c.founding           // a master that has just joined was accepted by the member that admitted it
	var wg sync.WaitGroup
	for _, p := range c.peers.all() {
		if _, err := os.Stat(markPath(c.cfg.Options.PKIDir, p.id)); err != nil && !c.cfg.Options.Isolated {
			continue
		}
		wg.Go(func() {
			err := p.consent(ctx)
			mu.Lock()
			defer mu.Unlock()
			r := refusal.Of(err)
			switch {
			case err == nil:
				agreed = true
			case r == nil && silent(err):
				c.log.Warn("continuing without the answer of a peer that accepts connections; checking it when it connects", "peer", p.id, "err", err)
			case r == nil:
			case r.Code == refusal.Shares:
				c.log.Warn("continuing without a peer: "+r.Reason, "peer", p.id)
				agreed = true
			case r.Code == refusal.Key && c.cfg.Store != nil:
				// One of both lost its disk and has a new key, which is in the store of record.
				c.log.Warn("continuing without a peer until the store of record has its key: "+r.Reason, "peer", p.id)
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
		reasons = append(reasons, clocks...) // the others agree: this master's clock is wrong
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
